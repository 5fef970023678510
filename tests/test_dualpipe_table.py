import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.families import build_family
from verifier.formats import load
from verifier.formats.dualpipe_table import dump, instructions, spelled_out
from verifier.messages import lower
from verifier.model import Block, Problem, Schedule, ScheduleError

DATA = Path(__file__).parent / "data"
TWO = ((0, 1), (1, 0))


@given(st.integers(1, 4), st.integers(0, 4))
def test_instructions_say_what_the_program_says(half: int, more: int) -> None:
    schedule = build_family("dualpipe", 2 * half, 4 * half + 2 * more)
    program = lower(schedule)
    for rank, row in enumerate(instructions(schedule)):
        assert spelled_out(schedule.problem, rank, row) == program.actions[rank]


def test_the_order_is_the_class_s_own() -> None:
    # Steps 1 to 3 of the class on rank 0 of 4: F0 F0, F0 F1, I1 W F1.
    rows = json.loads(dump(load(DATA / "deepseek" / "dualpipe_P4_M8.json").schedule))["table"]
    computed = [[word for word in row if not word.startswith(("SEND", "RECV"))] for row in rows]
    assert computed[0][:8] == ["F0", "F0", "F0", "F1", "I1", "W", "F1", "(F0;B1)"]
    # The second half of the ranks mirrors it, with the same phases.
    assert computed[3] == computed[0]


def schedule_of(problem: Problem, *rows: str) -> Schedule:
    return Schedule(problem, tuple(tuple(map(Block.parse, row.split())) for row in rows))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (("0F1 0F0 0B0 0B1", "1F1 1B1 1F0 1B0"), "rank 0, position 0: 0F1 runs where the class takes micro-batch 0"),
        (("0F0 0F1 0B1 0B0", "1F0 1F1 1B1 1B0"), "rank 0, position 2: 0B1 runs where the class takes micro-batch 0"),
        (("0F0 (0F1;0I0) 0W0 0B1", "1F0 1B0 1F1 1B1"), "rank 0, position 1: the class overlaps a forward with a full backward"),
        (("0F0 0F1 0I0 0I1 0W1 0W0", "1F0 1B0 1F1 1B1"), "rank 0, position 4: 0W1 runs where 0W0 is due; the class keeps"),
        (("0F0 0F1 0W0 0I0 0B1", "1F0 1B0 1F1 1B1"), "rank 0, position 2: 0W0 runs where no weight part waits"),
    ],
)
def test_limits_of_the_class_are_named(rows: tuple[str, str], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        dump(schedule_of(Problem(TWO, (2, 0)), *rows))


def test_other_placements_are_refused() -> None:
    with pytest.raises(
        ScheduleError, match="dualpipe: expected stage s of direction 0 on rank s and of direction 1 on rank 3 - s"
    ):
        dump(build_family("1f1b", 4, 8))
    with pytest.raises(ScheduleError, match="dualpipe: expected at least 2 ranks"):
        dump(schedule_of(Problem(((0,), (0,)), (1, 1)), "0F0 0B0 0F0' 0B0'"))
