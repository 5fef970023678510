"""
Whatever a file holds, a reader gives a schedule or one clear line; it never fails otherwise.
"""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.families import build_family
from verifier.formats import Source, load, program_json, read, schedule_json, torch_csv
from verifier.formats.json_text import schema
from verifier.messages import lower
from verifier.model import ScheduleError

DATA = Path(__file__).parent / "data"
SAMPLES = [
    path.read_bytes()
    for pattern in ("cases/*.csv", "torch/*_P2_*.csv", "deepseek/*_P[1234]_*.json")
    for path in sorted(DATA.glob(pattern))
    if path.stat().st_size < 10_000
] + [program_json.dump(lower(build_family(name, 2, 4)), groups=True).encode() for name in ("zbv", "dualpipe")]
TOKENS = (
    *(b"0F0", b"1B0", b"2I1", b"0W0'", b"(0F1;1B0)OVERLAP_F_B", b"(0F1;1B0')", b"0SEND_F0", b"3RECV_B7", b"1UNSHARD"),
    *(b"00F01", b"0f0", b"0F999999999", b"\xd9\xa3F0", b"0F0x"),
)
WORDS = (
    *(*TOKENS, b",", b",,", b"\n", b"\r\n", b" ", b"\xc2\xa0", b'"', b";", b"(", b")", b"[", b"]", b"{", b"}", b":", b"F"),
    *(b"-1", b"1e999", b"NaN", b"null", b"true", b'"order"', b'"actions"', b'"placement"', b"\0", b"\xef\xbb\xbf", b"\xff"),
)
OPTIONS = st.fixed_dictionaries(
    {}, optional={"microbatches": st.integers(-1, 20), "dialect": st.sampled_from(("modern", "legacy", "other"))}
)


def is_read_or_refused(data, **options):
    """What every reader promises; where a schedule comes out, its writers keep the same promise."""
    try:
        source = read(data, "some file", **options)
    except ScheduleError as error:
        line = str(error)
        assert line.startswith("some file: ")
        assert line.isprintable()
        assert len(line) < 500
        return
    assert isinstance(source, Source)
    for note in (*source.notes, source.suspicion or ""):
        assert note.isprintable()
    again = read(schedule_json.dump(source).encode(), "dumped")
    assert again.schedule == source.schedule
    assert (again.costs, again.limits, again.start, again.claims) == (source.costs, source.limits, source.start, source.claims)
    if source.program:
        written = program_json.dump(source.program, costs=source.costs).encode()
        assert read(written, "dumped").program == source.program
    with suppress(ScheduleError):
        torch_csv.dump_table(source.schedule)


@given(st.binary(), OPTIONS)
def test_any_bytes(data, options):
    is_read_or_refused(data, **options)


@given(st.text(), OPTIONS)
def test_any_text(text, options):
    is_read_or_refused(text.encode("utf-8", "surrogatepass"), **options)


@given(st.lists(st.sampled_from(WORDS), max_size=30).map(b"".join), OPTIONS)
def test_words_of_the_formats_in_any_order(data, options):
    is_read_or_refused(data, **options)


@given(st.lists(st.lists(st.sampled_from(TOKENS), max_size=9), max_size=4))
def test_tables_of_any_cells(rows):
    is_read_or_refused(b"\n".join(b",".join(row) for row in rows))


@st.composite
def damaged(draw):
    """A real file with a few pieces cut out, doubled, moved or replaced."""
    data = draw(st.sampled_from(SAMPLES))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.integers(0, 30)))
        piece = draw(st.one_of(st.just(b""), st.just(data[begin:end] * 2), st.sampled_from(WORDS), st.binary(max_size=4)))
        data = data[:begin] + piece + data[end:]
    return data


@given(damaged(), OPTIONS)
def test_damaged_files(data, options):
    is_read_or_refused(data, **options)


json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from(("0F0", "1B0'", "5/2", "(0F0;1B0)", "0SEND_F0", "1RECV_F0", "0RESHARD")),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(st.text(max_size=3), st.sampled_from(("F", "FB", "hop", "weights", "cls"))), inner, max_size=3
        ),
    ),
    max_leaves=10,
)
KEYS = tuple(schema(schedule_json.FORMAT)["properties"] | schema(program_json.FORMAT)["properties"])
SMALL = {
    "format": "pipeline-schedule/1", "ranks": 2, "placement": [[0, 1], [1, 0]], "microbatches": [1, 1],
    "order": [["0F0", "1F0'", "1B0'", "0B0"], ["0F0'", "1F0", "1B0", "0B0'"]], "costs": {"F": 2, "hop": [[0, 1], [1, 0]]},
    "limits": {"activations": [3, 3], "weights": 2}, "start": [[0, 1, 2, 3], [0, 1, 2, "7/2"]], "claims": {"makespan": 6},
}  # fmt: skip
PROGRAM = {
    "format": "pipeline-program/1", "ranks": 2, "placement": [[0, 1]], "microbatches": [1], "costs": {"F": 2},
    "actions": [["0F0", ["0SEND_F0"], ["0RECV_B0"], "0B0", "0REDUCE_GRAD"], [["1RECV_F0"], "1F0", "1B0", "1SEND_B0"]],
}  # fmt: skip


@given(json_values)
def test_any_json(value):
    is_read_or_refused(json.dumps(value).encode())


@pytest.mark.parametrize("small", [SMALL, PROGRAM], ids=["schedule", "program"])
@given(values=st.dictionaries(st.sampled_from(KEYS[1:]), json_values, max_size=3), options=OPTIONS)
def test_our_formats_with_any_values(small, values, options):
    is_read_or_refused(json.dumps({**small, **values}).encode(), **options)


@pytest.mark.parametrize("small", [SMALL, PROGRAM], ids=["schedule", "program"])
@given(data=st.data())
def test_our_formats_with_one_value_changed(small, data):
    document = json.loads(json.dumps(small))
    place = document
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], (dict, list)) or data.draw(st.booleans()):
            break
        place = place[key]
    if data.draw(st.booleans()):
        place[key] = data.draw(json_values)
    else:
        del place[key]
    is_read_or_refused(json.dumps(document).encode())


@pytest.mark.parametrize("depth", [10, 200, 900, 2_000, 100_000])
@pytest.mark.parametrize("key", ["claims", "certificate", "costs", "order", "start", "actions"])
def test_deep_nesting(depth, key):
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        nested = opening * depth + b"1" + closing * depth
        whole = PROGRAM if key == "actions" else SMALL
        begin = json.dumps({key_: value for key_, value in whole.items() if key_ != key})[:-1].encode()
        is_read_or_refused(begin + b', "' + key.encode() + b'": ' + nested + b"}")


@given(data=st.binary(max_size=60))
def test_any_file(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "file"
    path.write_bytes(data)
    with suppress(ScheduleError):
        assert load(path) == read(data, "bytes")
