from collections import Counter
from pathlib import Path

import pytest

from verifier.families import build_family
from verifier.formats import load
from verifier.formats.torch_comms_csv import cell, dump, dump_program
from verifier.messages import lower_torch
from verifier.model import Block, Problem, Schedule, ScheduleError

DATA = Path(__file__).parent / "data"
RECORDED = sorted((DATA / "torch").glob("*.comms.csv"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_a_table_has_the_cells_of_torch_s_own(path: Path) -> None:
    # Where the messages stand differs; which there are does not. How often weights are gathered depends on how many are kept.
    written, recorded = (
        [Counter(word for word in line.split(",") if "SHARD" not in word) for line in text.splitlines()]
        for text in (dump(load(path).schedule), path.read_text())
    )
    assert written == recorded


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_torch_s_own_lowering_comes_out_as_torch_writes_it(path: Path) -> None:
    compute_only = path.with_name(path.name.replace(".comms", ""))
    if compute_only.exists():
        assert dump_program(lower_torch(load(compute_only).schedule)) == path.read_text()


def test_a_table_reads_back() -> None:
    schedule = build_family("zbv", 4, 8)
    source = load_text(dump(schedule))
    assert source.schedule == schedule
    assert source.format == "torch-comms-csv"


def load_text(text: str):  # type: ignore[no-untyped-def]
    from verifier.formats import read

    return read(text.encode(), "here")


def test_two_copies_are_one_chain_that_nothing_crosses_in_the_middle() -> None:
    rows = [line.split(",") for line in dump(build_family("dualpipe", 4, 8)).splitlines()]
    words = {word for row in rows for word in row}
    assert {"3F0", "4F0", "7B3", "(0F3;7B1)OVERLAP_F_B"} <= words
    assert not words & {
        f"{stage}{action}{m}" for stage, action in ((3, "SEND_F"), (4, "RECV_F"), (4, "SEND_B")) for m in range(4)
    }
    assert [row[0] for row in rows] == ["0UNSHARD", "1UNSHARD", "5UNSHARD", "4UNSHARD"]
    assert all(f"{rank}REDUCE_GRAD" in row and f"{7 - rank}REDUCE_GRAD" in row for rank, row in enumerate(rows))


def schedule_of(problem: Problem, *rows: str) -> Schedule:
    return Schedule(problem, tuple(tuple(map(Block.parse, row.split())) for row in rows))


def test_torch_limits_are_named() -> None:
    one, two = Problem(((0,),), (2,)), ((0, 1), (1, 0))
    overtaken = schedule_of(one, "0F1 0F0 0B0 0B1")
    with pytest.raises(ScheduleError, match="torch: 0F1 runs where torch takes the loss of micro-batch 0; number the"):
        dump(overtaken)
    with pytest.raises(ScheduleError, match=r"torch: rank 0, position 0: \(0F0;0F1\) is not a forward with a backward"):
        dump(schedule_of(one, "(0F0;0F1) 0B0 0B1"))
    with pytest.raises(ScheduleError, match=r"torch: expected as many micro-batches in both directions, got \[1, 0\]"):
        dump(schedule_of(Problem(two, (1, 0)), "0F0 0B0", "1F0 1B0"))
    with pytest.raises(ScheduleError, match="torch: both directions have their first stage on rank 0; place them apart"):
        dump(schedule_of(Problem(((0, 1), (0, 1)), (1, 1)), "0F0 0F0' 0B0 0B0'", "1F0 1F0' 1B0 1B0'"))


def test_a_pair_keeps_the_order_of_its_parts() -> None:
    assert cell(Problem(((0, 1),), (2,)), Block.parse("(1B0;0F1)")) == "(1B0;0F1)OVERLAP_F_B"
