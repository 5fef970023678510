"""
Readers and writers of schedules: what is read, what is refused and how, and that writing loses nothing.
"""

import csv
import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.strategies import bidirectional, costs, problems, schedules
from verifier.costs import CostModel
from verifier.formats import Source, load, read, schedule_json, torch_csv, write_text
from verifier.formats.json_text import schema
from verifier.model import MAX_OPS, Block, Limits, Op, Problem, Schedule, ScheduleError

DATA = Path(__file__).parent / "data"
TABLES = sorted(DATA.glob("**/*.csv"))
FILES = sorted(DATA.glob("**/*.json"))
PYTORCH = "cases/pytorch__test_distributed_pipelining_artifacts_"
ZB1P = DATA / f"{PYTORCH}zb1p_2rank_2stagep_compute__a8e954a5.csv"
ZB1P_LEGACY = DATA / f"{PYTORCH}zb1p_2rank_2stagep_compute__15380b18_legacyB.csv"
ZB1P_COMMS = DATA / f"{PYTORCH}zb1p_2rank_2stagep_comms__bf69c149.csv"
CUSTOM = DATA / "cases/torchtitan__tests_assets_custom_schedule__91fa6065.csv"
TWO_COPIES = DATA / "cases/derived__DualPipe_P4_M8_bidirectional.csv"
LARGE = DATA / "cases/derived__1F1B_P64_M512.csv"


def table(*rows, **options):
    return read("\n".join(rows).encode(), "t.csv", **options)


def document(**changes):
    """A small file of our own format, changed; None takes a key away."""
    whole = {
        "format": "pipeline-schedule/1",
        "ranks": 2,
        "placement": [[0, 1]],
        "microbatches": [1],
        "order": [["0F0", "0B0"], ["1F0", "1B0"]],
        **changes,
    }
    return {key: value for key, value in whole.items() if value is not None}


def from_json(**changes):
    return read(json.dumps(document(**changes)).encode(), "s.json")


def refusal(call, *arguments, **options):
    """The one line that a refusal says."""
    with pytest.raises(ScheduleError) as caught:
        call(*arguments, **options)
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) < 500
    return line


def words(schedule):
    return [[str(block) for block in row] for row in schedule.order]


# ------------------------------------------------------------------------------------------------------ recorded files


@pytest.mark.parametrize("path", TABLES + FILES, ids=lambda path: path.name)
def test_every_recorded_file_is_read_whole(path):
    source = load(path)
    problem = source.schedule.problem
    done = [op for row in source.schedule.order for block in row for op in block.ops]
    missing = 1 if "missing_0W9" in path.name else 0
    legacy = len(done) // 4 if source.suspicion else 0
    assert len(done) - legacy == len(list(problem.ops())) - missing
    assert all(problem.holds(op) for op in done)


def test_recorded_files_keep_to_the_published_schema():
    validator = Draft202012Validator(schema(schedule_json.FORMAT))
    Draft202012Validator.check_schema(schema(schedule_json.FORMAT))
    for path in FILES:
        validator.validate(json.loads(path.read_text()))
        validator.validate(json.loads(schedule_json.dump(load(path))))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_recorded_files_survive_writing(path):
    source = load(path)
    text = schedule_json.dump(source)
    again = read(text.encode(), "again")
    assert again == source
    assert again.schedule.name == source.schedule.name
    assert schedule_json.dump(again) == text
    in_a_table = torch_csv.dump_table(source.schedule)
    assert read(in_a_table.encode(), "table").schedule == source.schedule


def test_recorded_tables_survive_writing():
    for path in TABLES:
        source = load(path)
        if path != LARGE and source.format == "torch-csv":
            assert read(torch_csv.dump_table(source.schedule).encode(), "again").schedule == source.schedule
    plain = DATA / "torch/ScheduleZBVZeroBubble_P4_M8.csv"
    assert torch_csv.dump(load(plain).schedule).splitlines() == [
        ",".join(filter(None, line.split(","))) for line in plain.read_text().splitlines()
    ]


def test_two_copies_in_a_table_are_the_recorded_dualpipe():
    source = load(TWO_COPIES)
    recorded = load(DATA / "deepseek/dualpipe_P4_M8.json").schedule
    assert source.schedule == recorded
    assert torch_csv.dump_table(recorded) == TWO_COPIES.read_text()
    assert source.schedule.text(Op("F", 1, 3, 0)) == "3F4"
    assert "stage 0 lives on ranks 0 and 3" in source.notes[0]
    assert "micro-batches 4..7" in source.notes[0]


# ----------------------------------------------------------------------------------------------------- public cases


def test_empty_cells_are_idle_slots():  # C04
    source = load(ZB1P)
    assert source.schedule.problem == Problem(((0, 1, 0, 1),), (8,))
    assert [len(row) for row in source.schedule.order] == [48, 48]
    assert source.schedule.place(0, 3) == "rank 0, cell 4"
    assert source.schedule.place(1, 0) == "rank 1, cell 1"
    assert source.suspicion is None


def test_older_dialect_is_recognised_and_read_when_named():  # C05, C08
    modern = load(ZB1P_LEGACY)
    assert modern.dialect == "modern"
    assert modern.suspicion.startswith("rank 0, cell 6: 2W0 stands beside a full backward B")
    assert "and 31 more" in modern.suspicion
    legacy = load(ZB1P_LEGACY, dialect="legacy")
    assert legacy.suspicion is None
    assert legacy.schedule == load(ZB1P).schedule
    old, new = (next(DATA.glob(f"cases/*4-rank__{blob}.csv")) for blob in ("38268836", "c58c4fbf"))
    assert "and 47 more" in load(old).suspicion
    assert load(old, dialect="legacy").schedule == load(new).schedule


def test_a_stray_weight_gradient_is_no_dialect():
    assert table("0F0,0F1,0F2,0B0,0W0,0B1,0B2").suspicion is None
    assert table("0F0,0F1,0B0,0W0,0I1,0W1").suspicion is None
    assert table("0F0,0F1,0B0,0B1,0W1,0W0").suspicion is not None


def test_the_older_dialect_has_no_input_gradient():
    line = refusal(table, "0F0,0I0,0W0", dialect="legacy")
    assert line == "t.csv: rank 0, column 1: 0I0: the older dialect has no I; read the table without the legacy dialect"


def test_communication_is_kept_in_order():  # C07
    source = load(ZB1P_COMMS)
    assert source.format == "torch-comms-csv"
    assert [len(row) for row in source.program.actions] == [80, 96]
    assert list(map(str, source.program.actions[0][:3])) == ["0F0", "0SEND_F0", "2RECV_F0"]
    assert source.program.place(0, 2) == "rank 0, cell 2"
    assert source.program.schedule == source.schedule


def test_sharding_has_a_stage_and_no_microbatch():
    source = load(DATA / "torch/ScheduleDualPipeV_P2_M4.comms.csv")
    assert list(map(str, source.program.actions[0][:2])) == ["0UNSHARD", "3UNSHARD"]
    kinds = {action.kind for row in source.program.actions for action in row}
    assert kinds >= {"REDUCE_GRAD", "RESHARD", "F&B", "B"}
    assert load(DATA / "torch/ScheduleGPipe_P2_M4.csv").format == "torch-csv"


def test_declared_microbatches_count():  # C10, C20, C36
    assert load(CUSTOM).schedule.problem.microbatches == (8,)
    assert load(CUSTOM, microbatches=16).schedule.problem.microbatches == (16,)
    few = load(CUSTOM, microbatches=4)
    assert few.schedule.problem.microbatches == (4,)
    assert few.schedule.order == load(CUSTOM).schedule.order
    hole = table("0F0,0F2,0B0,0B2", microbatches=2).schedule
    assert hole.problem.microbatches == (2,)
    assert words(hole) == [["0F0", "0F2", "0B0", "0B2"]]


@pytest.mark.parametrize("name", ["BOM_CRLF", "spaces_trailing_commas_blank_line"])
def test_what_spreadsheets_do_is_read_as_meant(name):  # C11
    assert load(DATA / f"cases/derived__custom_schedule_{name}.csv").schedule == load(CUSTOM).schedule


def test_blank_lines_are_no_ranks():
    source = table("", "0F0, ,0B0,,", ",,", "1F0,1B0", " ", ",,,", "")
    assert words(source.schedule) == [["0F0", "0B0"], ["1F0", "1B0"]]
    assert "blank lines" in source.notes[0]
    assert words(read(b"0F0,0B0\r1F0,1B0\r", "mac").schedule) == [["0F0", "0B0"], ["1F0", "1B0"]]
    assert words(table('"0F0"," 0B0 "').schedule) == [["0F0", "0B0"]]


@pytest.mark.parametrize(
    ("cell", "advice"),
    [  # C12
        ("2BW0", '"2BW0": unknown action BW, perhaps of another version; known are F, I, W, B, OVERLAP_F_B, SEND_F'),
        ("0WAIT_REDUCE_GRAD", '"0WAIT_REDUCE_GRAD": unknown action WAIT_REDUCE_GRAD, perhaps of another version'),
        ("0F0x", '"0F0x" is not a cell; expected stage, action and micro-batch, such as 0F3 or 2SEND_B1'),
        ("0F 0", '"0F 0" is not a cell; did you mean 0F0?'),
        ("0F0;1B0", "an overlapped block is written (0F7;7B3)OVERLAP_F_B, and cells are separated by commas"),
        ("0F-1", "is not a cell"),
        ("0BACKWARD1", "unknown action BACKWARD"),
        ("0SEND_F", '"0SEND_F" lacks its micro-batch; expected one such as 0SEND_F0'),
        ("0F", '"0F" lacks its micro-batch; expected one such as 0F0'),
        ("0UNSHARD3", "UNSHARD is of a stage, not of a micro-batch; expected 0UNSHARD"),
        ("None", "leave an idle slot empty"),
        ("F0", "is not a cell"),
        ("0f0", "did you mean 0F0?"),
        ("-1F0", "is not a cell"),
        ("(0F0", "an overlapped block is written"),
        ("0B0)OVERLAP_F_B", "an overlapped block is written"),
        ("(0F0;1B0)", "an overlapped block is written"),
        ("(0F0;1B0;2B0)OVERLAP_F_B", "an overlapped block is written"),
        ("(0SEND_F0;1B0)OVERLAP_F_B", "an overlapped block is written"),
        ("(0F0;0F0)OVERLAP_F_B", "each op once"),
        ("0F" + "0" * 200, "has 202 characters"),
        ("0F1234567890", "is not a cell"),
        ("٣F0", "is not a cell"),
    ],
)
def test_malformed_cells_are_refused_by_place(cell, advice):
    line = refusal(table, "0F0,0F1,0B0,0B1", f"1F0,,{cell},1B0")
    assert line.startswith("t.csv: rank 1, column 2: ")
    assert advice in line


def test_odd_but_clear_cells_are_read():  # C12
    assert words(table("0F0 ,(0F1; 0B0)OVERLAP_F_B", "1F0").schedule)[0] == ["0F0", "(0F1;0B0)"]
    padded = table("00F01,0F0,0B00,0B1")
    assert words(padded.schedule) == [["0F1", "0F0", "0B0", "0B1"]]
    assert padded.notes == ('leading zeros do not count: rank 0, column 0: "00F01" and 1 more',)
    assert table("0F0,0F10").notes == ()


def test_single_cell_edits_stay_what_they_are():  # C24
    changed = load(DATA / "cases/derived__dualpipev_W_before_I.csv").schedule
    assert changed.place(0, 8) == "rank 0, cell 8"
    assert str(changed.order[0][8]) == "7W0"
    short = load(DATA / "cases/derived__dualpipev_missing_0W9_trailing_comma.csv").schedule
    assert short.problem == load(DATA / f"{PYTORCH}dualpipev_4rank_10mb__a2af973f.csv").schedule.problem


def test_uneven_placement_comes_from_the_cells():  # C25
    source = table("0F0,1F0,,,4F0,4B0,,,1B0,0B0", ",,2F0,3F0,,,3B0,2B0,,")
    assert source.schedule.problem == Problem(((0, 0, 1, 1, 0),), (1,))
    assert source.schedule.origin.cells == ((0, 1, 4, 5, 8, 9), (2, 3, 6, 7))


def test_two_copies_of_two_stages():  # C37
    source = table("0F0,1F1,1B1,0B0", "0F1,1F0,1B0,0B1")
    assert source.schedule.problem == Problem(((0, 1), (1, 0)), (1, 1))
    more = table("0F0,1F1,1B1,0B0", "0F1,1F0,1B0,0B1", microbatches=4).schedule
    assert more.problem.microbatches == (1, 3)
    assert [more.microbatch_name(1, number) for number in range(3)] == [1, 2, 3]
    quarter = ["0F0,0F1,3F2,3B2,3F3,3B3,0B0,0B1", "1F0,2F2,1F1,2F3,2B2,1B0,2B3,1B1"]
    mirrored = [",".join(f"{cell[:2]}{(int(cell[2]) + 2) % 4}" for cell in row.split(",")) for row in reversed(quarter)]
    chimera = table(*quarter, *mirrored).schedule
    assert chimera.problem == Problem(bidirectional(4), (2, 2))
    assert chimera.text(chimera.order[0][2]) == "3F2"


# ---------------------------------------------------------------------------------------------------- two weight copies


def two_copies(ranks=4, microbatches=8):
    return load(DATA / f"deepseek/dualpipe_P{ranks}_M{microbatches}.json").schedule


def cells_of(schedule):
    return [line.split(",") for line in torch_csv.dump_table(schedule).splitlines()]


def rows_of(cells):
    return [",".join(row) for row in cells]


@given(st.randoms(use_true_random=False))
def test_a_lost_or_misplaced_cell_is_no_third_direction(random):
    schedule = two_copies()
    cells = cells_of(schedule)
    rank, other = random.sample(range(4), 2)
    cell = cells[rank].pop(random.randrange(len(cells[rank])))
    if random.random() < 0.5:
        cells[other].insert(random.randrange(len(cells[other])), cell)
    loaded = table(*rows_of(cells)).schedule
    assert loaded.problem == schedule.problem
    assert loaded.origin.microbatches == ((0, 1, 2, 3), (4, 5, 6, 7))


several = problems().filter(lambda problem: problem.directions == 1 and problem.ranks > 1 and problem.microbatches[0] > 1)


@given(schedules(several, join=0.0), st.randoms(use_true_random=False))
def test_a_misplaced_cell_of_one_copy_is_no_second_direction(schedule, random):
    cells = cells_of(schedule)
    rank, other = random.sample(range(schedule.problem.ranks), 2)
    cells[other].insert(random.randint(0, len(cells[other])), cells[rank].pop(random.randrange(len(cells[rank]))))
    assert table(*rows_of(cells)).schedule.problem == schedule.problem


def test_a_stage_of_one_microbatch_on_a_wrong_rank_is_a_slip():
    loaded = table("0F0,0F1,0F2,1F2,1B2,0B0,0B1,0B2", "1F0,1B0,1F1,1B1").schedule
    assert loaded.problem == Problem(((0, 1),), (3,))


def test_every_microbatch_faulty_takes_the_majority():
    loaded = table("0F0,0B0,1F1,1B1,0F1", "1F0,1B0,0B1").schedule
    assert loaded.problem == Problem(((0, 1),), (2,))
    assert table("0F0,1F0,0B0", "1I0").schedule.problem.placement == ((0, 1),)
    assert table("0F0,(1B0;0B0)OVERLAP_F_B", "1F0").schedule.problem.placement == ((0, 1),)


def test_an_absent_microbatch_keeps_its_number():
    cells = [[cell for cell in row if "5" not in cell] for row in cells_of(two_copies())]
    loaded = table(*rows_of(cells)).schedule
    assert loaded.problem.microbatches == (4, 4)
    assert loaded.microbatch_name(1, 1) == 5
    assert loaded.text(Op("F", 1, 0, 1)) == "0F5"


def test_numbers_beyond_the_declared_ones_keep_their_names():
    loaded = load(TWO_COPIES, microbatches=6).schedule
    assert loaded.problem.microbatches == (4, 2)
    assert loaded.order == two_copies().order
    assert loaded.microbatch_name(1, 3) == 7


def test_a_third_map_is_folded_into_the_best_agreeing():
    rows = ["0F0,1F1,0F2,0B0,1B1,0B2", "1F0,0F1,2F2,1B0,0B1,2B2", "2F0,2F1,1F2,2B0,2B1,1B2"]
    placement = table(*rows).schedule.problem.placement
    assert len(placement) == 2
    assert placement[0] == (0, 1, 2)


def test_the_direction_of_the_smallest_microbatch_is_the_first():
    loaded = table(*rows_of(reversed(cells_of(two_copies())))).schedule
    assert loaded.problem.placement == ((3, 2, 1, 0), (0, 1, 2, 3))


def test_messages_of_two_copies_are_numbered_like_their_blocks():
    source = table(
        "0UNSHARD,1UNSHARD,0F0,0SEND_F0,1RECV_F1,1F1,1B1,1SEND_B1,0RECV_B0,0B0,1REDUCE_GRAD",
        "1UNSHARD,0F1,0SEND_F1,1RECV_F0,1F0,1B0,1SEND_B0,0RECV_B1,0B1,7SEND_F9",
    )
    assert source.schedule.problem.microbatches == (1, 1)
    words = list(map(str, source.program.actions[0]))
    assert words[:6] == ["0UNSHARD", "1UNSHARD'", "0F0", "0SEND_F0", "1RECV_F0'", "1F0'"]
    assert str(source.program.actions[1][-1]) == "7SEND_F1'"
    assert source.schedule.microbatch_name(1, 1) == 9


def test_a_table_of_messages_alone_has_ranks_and_no_work():
    source = table("0SEND_F1,0RECV_B0", "1SEND_B0,1RECV_F1,1SEND_F1,1RECV_B0", "2SEND_B0,2RECV_F1")
    assert source.schedule.problem == Problem(((0, 1, 2),), (2,))
    assert source.schedule.order == ((), (), ())
    assert [len(row) for row in source.program.actions] == [2, 4, 2]


# ------------------------------------------------------------------------------------------------- tables that are none


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (["0F0,2F0,2B0,0B0"], "stage 1 is absent, while stage 2 is there; expected stages from 0 without a gap"),
        (["0F0,0B0", "1F0,1B0", "1F0,1B0"], "rank 2: no stage lives here, stage 1 lives on rank 1; expected one line per rank"),
        (["0F0,0B0", "5UNSHARD"], "rank 1: no stage lives here, stage 5 computes nowhere; expected one line per rank"),
        ([",,,"], "no cell in it; expected one line per rank with cells such as 0F3"),
        (["0UNSHARD"], "nothing is computed and nothing is sent; expected cells such as 0F3 or 0SEND_F3"),
        (["0F999999999"], "micro-batches 0 to 999999999 on 1 stages make more than 10000000 ops, the limit"),
    ],
)
def test_tables_that_are_no_schedule(rows, line):
    assert line in refusal(table, *rows)


def test_options_are_checked():
    assert "expected a number from 1 to" in refusal(table, "0F0", microbatches=0)
    assert "expected a number from 1 to" in refusal(table, "0F0", microbatches=MAX_OPS + 1)
    assert refusal(table, "0F0", dialect="old") == 't.csv: dialect: expected modern or legacy, got "old"'
    assert "only tables have a legacy one" in refusal(read, json.dumps(document()).encode(), "s", dialect="legacy")


# -------------------------------------------------------------------------------------------------------- files at large


def test_files_that_cannot_be_read(tmp_path):
    assert "no such file or directory" in refusal(load, tmp_path / "none.csv")
    assert "is a directory; expected a file" in refusal(load, tmp_path)
    assert "embedded null byte" in refusal(load, "a\0b")
    deep = tmp_path / ("x" * 300)
    assert "file name too long" in refusal(load, deep)
    assert "\\n" in refusal(load, tmp_path / "two\nlines.csv")


@pytest.mark.skipif(os.geteuid() == 0, reason="the super-user may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    path = tmp_path / "secret.csv"
    path.write_text("0F0,0B0")
    path.chmod(0)
    assert "permission denied" in refusal(load, path)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "empty; expected pipeline-schedule/1 or pipeline-program/1 (JSON), or a PyTorch table"),
        (b"\xef\xbb\xbf \n", "empty"),
        (b"\x7fELF\x00\x01", "not UTF-8 text (byte 4 is 0x00)"),
        (b"0F0,\xff", "not UTF-8 text (byte 4 is 0xff)"),
        ("0F0,0B0".encode("utf-16"), "not UTF-8 text"),
        (b"hello world", 'begins with "hello world"; expected pipeline-schedule/1 or pipeline-program/1 (JSON), or a'),
        (b"[schedule]\nfamily = 'x'\n", "looks like a TOML spec; expected a schedule"),
        (b"# a comment\n\n[costs]\nF = 1\n", "looks like a TOML spec"),
        (b"family = 'dualpipe'", "looks like a TOML spec"),
        (b'["0F0"]', "a JSON list; expected an object"),
        (b"{", "line 1, column 2: Expecting property name enclosed in double quotes; expected JSON"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"format": "pipeline-schedule/1", "name": "x", "name": "y"}', 'the key "name" is given twice'),
    ],
)
def test_contents_that_are_no_schedule(data, line):
    found = refusal(read, data, "file")
    assert found.startswith("file: ")
    assert line in found


SIZES = """
import re, sys, time
from pathlib import Path
from verifier.formats import read
from verifier.model import ScheduleError
begin, repeat = sys.argv[1], 50 * 2**20 // len(sys.argv[1])
data = begin.encode() * repeat
started = time.process_time()
try:
    read(data, "large")
except ScheduleError as error:
    # The peak of this process alone: what getrusage tells starts at the size of the process that started it.
    peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
    print(time.process_time() - started, int(peak) // 1024, error)
"""


@pytest.mark.parametrize("begin", ["a", "0F0,", "[", '{"a":', "1", "0F0\n"])
def test_fifty_megabytes_are_refused_at_once(begin):
    done = subprocess.run([sys.executable, "-c", SIZES, begin], capture_output=True, text=True, check=True)
    seconds, megabytes, line = done.stdout.split(maxsplit=2)
    assert float(seconds) < 1
    assert int(megabytes) < 200
    assert len(line) < 300


def test_a_file_beyond_the_limit_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("verifier.formats.MAX_BYTES", 2**20)
    path = tmp_path / "long.csv"
    path.write_bytes(b"0F0,0B0\n" * 2**18)
    assert "more than 1 MiB" in refusal(load, path)


def test_sixty_five_thousand_ops_load():
    """How long that takes is measured in tests/bench."""
    assert sum(map(len, load(LARGE).schedule.order)) == 65536


def test_writing_leaves_a_whole_file_or_none(tmp_path):
    path = tmp_path / "order.csv"
    write_text(path, "0F0,0B0\n")
    write_text(path, "0F0\n")
    assert path.read_bytes() == b"0F0\n"
    assert "is a directory" in refusal(write_text, tmp_path, "x")
    assert "no such file" in refusal(write_text, tmp_path / "none" / "x.csv", "x")
    assert "utf-8" in refusal(write_text, path, "\udcff")
    assert path.read_bytes() == b"0F0\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["order.csv"]
    write_text(os.devnull, "x")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


# ------------------------------------------------------------------------------------------------- our own format: reading


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"format": "pipeline-schedule/2"},
            'expected "pipeline-schedule/1" or "pipeline-program/1", got "pipeline-schedule/2"',
        ),
        ({"format": None}, 'format: expected "pipeline-schedule/1" or "pipeline-program/1", got no such key'),
        ({"order": None}, 'expected "order" too'),
        ({"order": None, "ordr": []}, 'unknown key "ordr"; did you mean "order"?'),
        ({"colour": 1}, 'unknown key "colour"; expected format, name, ranks, placement'),
        ({"order": "0F0"}, 'order: expected one list of blocks per rank, got "0F0"'),
        ({"order": [["0F0", 7], []]}, "order[0][1]: expected a block such as 0F3, 7B0' or (0F7;7B3')"),
        ({"order": [["0F0", "0X0"], []]}, "order[0][1]: expected a block such as 0F3"),
        ({"order": [["0F0"] * 200 + ["0X0"], []]}, 'order, rank 0, position 200: "0X0" is not a block such as'),
        ({"order": [["0F0"] * 200 + [7], []]}, "order, rank 0, position 200: expected a block such as"),
        ({"order": [["(0F0;0F0)"], []]}, "order, rank 0, position 0: a block holds at least one op, and each op once"),
        ({"order": [["0F0"]]}, "order: expected 2 lists, one per rank, got 1"),
        ({"ranks": 3}, "ranks: expected 2, the ranks in placement, got 3"),
        ({"ranks": True}, "ranks: expected the number of ranks, a whole number above 0, got true"),
        ({"ranks": 2.0}, "ranks: expected 2, the ranks in placement, got 2.0"),
        (
            {"placement": []},
            "placement: expected one list per direction, at most two, of the rank of every stage, got a list of 0",
        ),
        ({"placement": [[0, 1.0]]}, "placement[0][1]: expected a whole number from 0, got 1.0"),
        ({"placement": [[0, 2]]}, "placement: expected ranks 0 to 1 without a gap, got 0, 2"),
        ({"placement": [[0] * 200 + [-1]]}, "placement[0][200]: expected a whole number from 0, got -1"),
        ({"microbatches": [0]}, "expected at least one micro-batch"),
        ({"microbatches": [10**18]}, "make more than 10000000 ops"),
        ({"microbatches": [1, 1]}, "expected one or two directions, each with its micro-batches"),
        ({"costs": {"F": -1}}, 'costs.F: expected a number such as 3, 2.5 or "5/2", or a list'),
        ({"costs": {"FBB": 1}}, 'costs: unknown key "FBB"; expected an object with the duration of every kind of block'),
        ({"costs": {"cls": 1}}, 'costs: unknown key "cls"'),
        ({"costs": {"F": {}}}, "costs.F: expected a number"),
        ({"costs": {"F": [1, 2, 3]}}, "costs.F: expected 2 numbers, one per stage; got 3"),
        ({"costs": {"F": 0, "I": 0, "W": 0}}, "every op takes no time"),
        ({"limits": {"weights": "3/2"}}, "limits.weights: expected whole numbers"),
        ({"limits": {"activations": [1]}}, "limits.activations: expected one number or 2, one per rank; got 1"),
        ({"start": [[0, 1]]}, "start: expected 2 lists, one per rank, got 1"),
        ({"start": [[0, 1], [0]]}, "start[1]: expected 2 times, one per block, got 1"),
        ({"start": [[0, "x"], [0, 1]]}, "start[0][1]: expected a number"),
        ({"claims": [3]}, "claims: expected an object with what the file says about itself"),
        ({"name": 2.5}, "name: expected a text for people, got 2.5"),
    ],
)
def test_files_of_a_wrong_shape(changes, line):
    assert line in refusal(from_json, **changes)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999999999", "1e99999999999999999999", "1" * 5000, "-1"])
def test_costs_that_are_no_numbers(number):
    text = json.dumps(document(costs={"F": "?"})).replace('"?"', number)
    assert refusal(read, text.encode(), "s.json").startswith("s.json: costs.F: expected")
    text = json.dumps(document(start=[[0, "?"], [0, 1]])).replace('"?"', number)
    assert refusal(read, text.encode(), "s.json").startswith("s.json: start[0][1]: expected")


def test_claims_hold_numbers_only():
    text = json.dumps(document(claims={"makespan": "?"})).replace('"?"', "NaN")
    assert refusal(read, text.encode(), "s.json") == "s.json: claims.makespan: expected a number, got NaN"


def test_no_digit_is_lost():
    digits = "0.12345678901234567"
    assert repr(float(digits)) != digits
    text = json.dumps(document(costs={"F": "?"}, claims={"makespan": "?", "ratio": 0.1, "seconds": 2.50, "tiny": 1e-9}))
    source = read(text.replace('"?"', digits).encode(), "s.json")
    assert source.costs.prices["F"] == Fraction(digits)
    assert source.claims == {"makespan": digits, "ratio": 0.1, "seconds": 2.5, "tiny": 1e-9}


def test_all_parts_of_a_file_are_read():
    source = from_json(
        name="small",
        costs={"F": 2, "B": "5/2", "FB": [[1, 2], [3, 4]], "hop": [[0, 1], [1, 0]], "release": 0.5, "activation": [1, 2]},
        limits={"activations": [1, "3/2"], "weights": 1},
        start=[[0, 8], [3, "11/2"]],
        claims={"makespan": "21/2", "source": "by hand"},
        certificate={"kind": "bound"},
    )
    assert source.schedule.name == "small"
    assert source.costs == CostModel.of(
        F=2, B="5/2", FB=[[1, 2], [3, 4]], hop=[[0, 1], [1, 0]], release="1/2", activation=[1, 2]
    )
    assert source.limits == Limits((Fraction(1), Fraction(3, 2)), 1)
    assert source.start == ((0, 8), (3, Fraction(11, 2)))
    assert source.claims["makespan"] == "21/2"
    assert source.certificate == {"kind": "bound"}


def test_declared_microbatches_of_a_file():
    def counts(total, **changes):
        return read(json.dumps(document(**changes)).encode(), "s.json", microbatches=total).schedule.problem.microbatches

    both = {"placement": [[0, 1], [1, 0]], "microbatches": [3, 1]}
    assert counts(4) == (4,)
    assert counts(4, **both) == (3, 1)
    assert counts(6, **both) == (3, 3)
    with pytest.raises(ScheduleError, match="expected an even number for two directions, got 5"):
        counts(5, **both)


# ------------------------------------------------------------------------------------------------------------- writing

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def sources(draw):
    """A legal schedule with anything else that a file may say."""
    schedule = draw(schedules())
    ranks = schedule.problem.ranks
    rational = st.fractions(0, 100, max_denominator=60)
    per_rank = st.one_of(st.none(), rational, st.tuples(*[rational] * ranks))
    weights = st.one_of(st.none(), st.integers(0, 9), st.tuples(*[st.integers(0, 9)] * ranks))
    return Source(
        replace(schedule, name=draw(st.text(max_size=20))),
        "pipeline-schedule/1",
        draw(st.one_of(st.none(), costs(schedule.problem))),
        draw(st.one_of(st.none(), st.builds(Limits, per_rank, weights))),
        draw(st.one_of(st.none(), st.tuples(*[st.tuples(*[rational] * len(row)) for row in schedule.order]))),
        draw(st.dictionaries(st.text(), json_values, max_size=3)),
        draw(json_values),
    )


@given(sources())
def test_what_was_dumped_is_loaded(source):
    text = schedule_json.dump(source)
    again = read(text.encode(), "again")
    assert again == source
    assert again.schedule.name == source.schedule.name
    assert schedule_json.dump(again) == text
    Draft202012Validator(schema(schedule_json.FORMAT)).validate(json.loads(text))


def test_equal_sources_give_equal_bytes():
    schedule = table("0F0,0B0").schedule
    one, other = ({"b": 1, "a": 2}, {"a": 2, "b": 1})
    assert schedule_json.dump(schedule, claims=one) == schedule_json.dump(schedule, claims=other)


def test_parts_given_to_the_writer_replace_those_of_the_source():
    source = from_json(costs={"F": 2}, claims={"makespan": 1}, start=[[0, 1], [0, 1]], certificate=1)
    start = ((Fraction(0), Fraction(1, 2)),) * 2
    written = {"claims": {"makespan": Fraction(5, 2)}, "costs": CostModel.of(F=3), "limits": Limits(Fraction(1), 2)}
    again = read(schedule_json.dump(source, start=start, certificate=("x",), **written).encode(), "again")
    assert again.costs == CostModel.of(F=3)
    assert (again.claims, again.start, again.certificate) == ({"makespan": "5/2"}, start, ["x"])
    assert again.limits == Limits(Fraction(1), 2)


def test_what_a_file_cannot_carry_is_refused():
    schedule = table("0F0,0B0").schedule
    assert "claims: nan is nothing that JSON can hold" in refusal(schedule_json.dump, schedule, claims={"x": float("nan")})
    assert "certificate" in refusal(schedule_json.dump, schedule, certificate=object)
    assert "expected 2 times, one per block, got 1" in refusal(schedule_json.dump, schedule, start=[[Fraction(0)]])


@given(schedules(problems().filter(lambda problem: problem.directions == 1)))
def test_a_table_of_one_copy_says_the_same(schedule):
    text = torch_csv.dump(schedule)
    assert text == torch_csv.dump_table(schedule)
    assert read(text.encode(), "again").schedule == schedule
    assert not text.startswith("\ufeff")
    assert text.endswith("\n")
    assert "\r" not in text
    assert all(list(csv.reader(text.splitlines(keepends=True))))


@given(schedules(st.builds(Problem, st.integers(2, 4).map(bidirectional), st.tuples(st.integers(1, 3), st.integers(1, 3)))))
def test_a_table_of_two_copies_says_the_same(schedule):
    text = torch_csv.dump_table(schedule)
    assert read(text.encode(), "again").schedule == schedule
    assert "the compute-only format has one rank per stage. Use torch-comms-csv or json" in refusal(torch_csv.dump, schedule)


@given(schedules(problems().filter(lambda problem: problem.directions == 2)))
def test_a_table_of_any_two_copies_says_the_same_or_is_refused(schedule):
    try:
        text = torch_csv.dump_table(schedule)
    except ScheduleError:
        return
    assert read(text.encode(), "again").schedule == schedule


def test_schedules_that_a_table_cannot_hold():
    two = load(DATA / "deepseek/dualpipe_P8_M16.json").schedule
    assert refusal(torch_csv.dump, two) == (
        "torch-csv: stage 0 lives on ranks 0 and 7; the compute-only format has one rank per stage. Use torch-comms-csv or json"
    )
    same = Schedule(Problem(((0,), (0,)), (1, 1)), (tuple(map(Block.parse, ("0F0", "0F0'", "0B0", "0B0'"))),))
    assert "stage 0 has two copies on rank 0" in refusal(torch_csv.dump, same)
    assert "cannot tell the two directions" in refusal(torch_csv.dump_table, same)
    empty = Schedule(Problem(((0, 1),), (1,)), ((Block.parse("0F0"),), ()))
    assert "rank 1 has no block" in refusal(torch_csv.dump, empty)
    pair = Schedule(Problem(((0, 0),), (2,)), ((Block.parse("0F0"), Block.parse("(0F1;1I0)")),))
    assert "rank 0, position 1: (0F1;1I0) is not an F with a B" in refusal(torch_csv.dump, pair)
    primed = Schedule(Problem(((0,),), (1,)), ((Block.parse("0F0'"),),))
    assert "micro-batch 0 of direction 1 is out of range" in refusal(torch_csv.dump, primed)


@pytest.mark.runtime
@pytest.mark.parametrize("name", ["dualpipev_P4_M10", "dualpipev_P3_M7", "dualpipev_P8_M20"])
def test_torch_loads_what_is_written(name, tmp_path):
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    schedule = load(DATA / f"deepseek/{name}.json").schedule
    path = tmp_path / "order.csv"
    write_text(path, torch_csv.dump(schedule))
    # Only the loader is asked for; the constructor wants real stages and a process group.
    runtime = object.__new__(_PipelineScheduleRuntime)
    runtime.pipeline_order = {}
    runtime.pp_group_size, runtime._num_stages = schedule.problem.ranks, schedule.problem.stages
    runtime._n_microbatches, runtime._stages, runtime._defer_pp_recv = schedule.problem.total_microbatches, [], False
    runtime._load_csv(str(path), format="compute_only")
    loaded = [[repr(action) for action in runtime.pipeline_order[rank]] for rank in range(schedule.problem.ranks)]
    assert ["".join(row) for row in loaded] == [line.replace(",", "") for line in path.read_text().splitlines()]
