import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.formats.traces import load_traces, read_trace
from verifier.model import Block, ScheduleError
from verifier.specs import read_costs


def event(name: str, duration: object, **more: object) -> dict[str, object]:
    return {"ph": "X", "name": f"PP:{name}", "dur": duration, "ts": 1700000000000000.123, "pid": 0, "tid": 0, **more}


def trace(*events: dict[str, object]) -> str:
    return json.dumps({"schemaVersion": 1, "traceEvents": events})


def test_medians_per_stage_and_kind() -> None:
    measured = read_trace(
        trace(
            *(event(f"0F{m}", time) for m, time in enumerate((10, 30, 11))),
            event("0I0", 20), event("0W0", 5), event("1F0", 12), event("1B0", 30),
            event("0SEND_F0", 999), event("0UNSHARD", 999), event("0F9", 999, ph="i"),
            {"ph": "X", "name": "aten::mm", "dur": 999},
        )
    )  # fmt: skip
    costs = measured.costs()
    assert costs.prices["F"] == (11, 12)
    assert costs.prices["B"] == (25, 30)
    # Stage 1 shows only whole backwards; they are split as stage 0 splits its own.
    assert costs.prices["I"] == (20, 24)
    assert costs.prices["W"] == (5, 6)
    assert measured.spread["F", 0, 0].high == 30


def test_a_full_backward_may_be_cheaper_than_its_halves() -> None:
    costs = read_trace(trace(event("0F0", 10), event("0I0", 20), event("0W0", 15), event("0B1", 28))).costs()
    assert [costs.prices[kind] for kind in "IWB"] == [(20,), (15,), (28,)]


def test_only_full_backwards_give_only_those() -> None:
    assert "I" not in read_trace(trace(event("0F0", 10), event("0B0", 21))).as_toml().partition("[costs]")[2]


def test_an_overlapped_pair_is_priced_as_a_share_of_its_parts() -> None:
    events = [event(f"{s}{kind}0", time) for s in (0, 1) for kind, time in (("F", 100 + 20 * s), ("I", 110), ("W", 90))]
    measured = read_trace(trace(*events, event("(0F1;1B0)OVERLAP_F_B", 240), event("(1F1;0B0)OVERLAP_F_B", 256)))
    costs = measured.costs()
    assert costs.duration(Block.parse("(0F1;1B0)")) == 240
    assert costs.duration(Block.parse("(1F1;0B0)")) == 256


def test_times_of_the_device_count_where_there_are_any() -> None:
    both = (event("0F0", 3, cat="user_annotation"), event("0F0", 50, cat="gpu_user_annotation"))
    assert read_trace(trace(*both)).spread["F", 0, 0].median == 50


def test_stages_of_two_copies_fold() -> None:
    primed = read_trace(trace(event("0F0'", 4), event("0F0", 2), event("0B0", 5)))
    folded = read_trace(trace(event("2F0", 4), event("0F0", 2), event("0B0", 5)), stages=2)
    assert primed.spread["F", 0, 0] == folded.spread["F", 0, 0]
    assert folded.stages == 1


def test_files_are_read_together_and_unpacked(tmp_path: Path) -> None:
    one, two = tmp_path / "rank0.json", tmp_path / "rank1.json.gz"
    one.write_text(trace(event("0F0", 2), event("0B0", 5)))
    two.write_bytes(gzip.compress(trace(event("1F0", 3), event("1B0", 6)).encode()))
    assert load_traces([one, two]).costs().prices["F"] == (2, 3)
    two.write_bytes(two.read_bytes()[:-9])
    with pytest.raises(ScheduleError, match=r"rank1.json.gz: cannot be read"):
        load_traces([one, two])
    with pytest.raises(ScheduleError, match=r"absent.json: cannot be read: no such file or directory"):
        load_traces([tmp_path / "absent.json"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0,0B0", "no JSON; expected a Chrome trace"),
        ("[" * 100_000, "no JSON"),
        ("17", "expected a list of events, or an object with traceEvents"),
        ('{"traceEvents": {}}', "expected a list of events"),
        ("[]", 'no range such as "PP:2F0" in it'),
        (trace(event("0F0", None)), "PP:0F0: dur: expected a number"),
        (trace(event("0F0", -1)), "expected a number that is not negative"),
    ],
)
def test_what_is_no_trace_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        read_trace(text)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ScheduleError, match="trace: no F of stage 0 in it, while stage 1 is there"):
        read_trace(trace(event("1F0", 3), event("1B0", 6))).costs()
    with pytest.raises(ScheduleError, match="trace: stage 0 has neither a full backward nor both of its halves in it"):
        read_trace(trace(event("0F0", 3), event("0I0", 6))).costs()


def comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#") and "of stage" not in line.split(":")[0]]


def test_what_was_not_measured_is_said() -> None:
    measured = read_trace(
        trace(
            event("0F0", 10), event("0I0", 20), event("0W0", 5),
            event("1F0", 12), event("1B0", 30),
            event("2F0", 12), event("2B0", 30), event("2I0", 21),
            event("3F0", 12), event("3B0", 30), event("3I0", 20), event("3W0", 15),
        )
    )  # fmt: skip
    text = measured.as_toml()
    assert "# Not measured, but from B = I + W: B of stage 0; W of stage 2" in text.splitlines()
    assert "# Not measured, but B split as on stages that show both halves: I and W of stage 1" in text.splitlines()
    assert measured.as_json()["derived"] == [
        {"kind": "B", "stage": 0, "from": "I + W"},
        {"kind": "I", "stage": 1, "from": "B, split as elsewhere"},
        {"kind": "W", "stage": 1, "from": "B, split as elsewhere"},
        {"kind": "W", "stage": 2, "from": "B - I"},
    ]
    # Halves alone are written as they are.
    halves = read_trace(trace(event("0F0", 10), event("0I0", 20), event("0W0", 5)))
    assert "Not measured" not in halves.as_toml()
    whole = read_trace(trace(event("0F0", 10), event("0B0", 21)))
    assert "Not measured" not in whole.as_toml()
    assert whole.as_json()["derived"] == []


def test_an_unmeasured_split_into_equal_halves_is_said() -> None:
    text = read_trace(trace(event("0F0", 1), event("0I0", 0), event("0W0", 0), event("1F0", 1), event("1B0", 8))).as_toml()
    assert "# Not measured, but B split into equal halves: I and W of stage 1" in text.splitlines()


def test_a_first_step_is_left_out_where_others_follow(tmp_path: Path) -> None:
    step = (("0F0", 10), ("0F1", 11), ("0B0", 20), ("0B1", 21))
    cold = [event(name, 100 * time, ts=at) for at, (name, time) in enumerate(step)]
    warm = [event(name, time, ts=100 + at) for at, (name, time) in enumerate(step)]
    # The order of the events in the file says nothing.
    measured = read_trace(trace(*warm, *cold))
    assert (measured.spread["F", 0, 0].high, measured.spread["B", 0, 0].count, measured.left_out) == (11, 2, 4)
    assert "# Without the first of several steps (4 measurements), which warms up." in measured.as_toml().splitlines()
    alone = read_trace(trace(*cold))
    assert (alone.spread["F", 0, 0].high, alone.left_out) == (1100, 0)
    assert "# Of a single step, so that warming up is counted." in alone.as_toml().splitlines()
    paths = []
    for rank in range(2):
        paths.append(tmp_path / f"{rank}.json")
        paths[-1].write_text(trace(*cold))
    assert load_traces(paths).left_out == 0


def test_the_same_name_in_two_places_is_one_step() -> None:
    places = [event("0F0", 10, tid=7), event("0F0", 12, tid=8), event("0F0", 12, pid=1), event("0B0", 20)]
    assert read_trace(trace(*places)).left_out == 0


times = st.decimals(0, 10**6, places=3).map(float)


@given(st.lists(st.tuples(times, times, times, st.none() | times), min_size=1, max_size=4), times)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, stages: list[tuple[float, ...]], pair: float
) -> None:
    events = []
    for stage, (f, i, w, b) in enumerate(stages):
        events += [event(f"{stage}F0", f), event(f"{stage}I0", i), event(f"{stage}W0", w)]
        events += [event(f"{stage}B1", b)] if b is not None else []
    measured = read_trace(trace(*events, event(f"(0F1;{len(stages) - 1}B0)OVERLAP_F_B", pair)))
    path = tmp_path_factory.mktemp("costs") / "costs.toml"
    path.write_text(measured.as_toml("a\ntrace"))
    assert read_costs(str(path)) == measured.costs()
    json.dumps(measured.as_json())


def test_costs_keep_three_digits_of_what_is_typical() -> None:
    events = [event(f"{stage}{kind}0", time) for stage, time in enumerate((12345.678, 700)) for kind in "FB"]
    assert read_trace(trace(*events, event("2F0", 23456), event("2B0", 23456))).costs().prices["F"] == (12300, 700, 23500)
