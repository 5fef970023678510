"""Bounds for ranges of costs: no costs inside exceed them, and the worst ones reach them."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import replayed, schedules
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.model import Schedule, ScheduleError, plain
from verifier.simulate import simulate
from verifier.specs import read_ranges
from verifier.theorems.boxes import BUBBLE, MAKESPAN, Box, prove_at_most

KINDS = ("F", "I", "W", "FB", "hop")


@st.composite
def boxes_with_a_point(draw):
    """A box as people write it, and costs inside."""
    texts, point = [], {}
    for kind in KINDS:
        low, inside, high = sorted(draw(st.lists(st.integers(1, 12), min_size=3, max_size=3)))
        texts.append(f"{kind}={low}..{high}" if low < high else f"{kind}={low}")
        point[kind] = Fraction(inside)
    return Box.parse(",".join(texts)), CostModel.of(**point)


@settings(max_examples=40)
@given(schedules(), boxes_with_a_point())
def test_no_costs_in_the_box_exceed_the_bounds(schedule, boxed):
    box, inside = boxed
    timeline = simulate(schedule, inside).timeline
    if any("&" in block.kind and block.kind != "F&B" for row in schedule.order for block in row):
        return  # a kind of pair without a price
    makespan, bubble = (prove_at_most(name, Fraction(10**6), schedule, box) for name in (MAKESPAN, BUBBLE))
    assert makespan.status == bubble.status == "proved"
    assert timeline.makespan <= Fraction(makespan.numbers["worst"])
    assert timeline.makespan >= Fraction(makespan.numbers["best"])
    assert timeline.bubble_ratio <= Fraction(bubble.numbers["worst"])


@settings(max_examples=20)
@given(schedules(join=0.0), boxes_with_a_point())
def test_the_worst_costs_reach_the_bound(schedule, boxed):
    box, _ = boxed
    proof = prove_at_most(MAKESPAN, Fraction(0), schedule, box)
    worst = CostModel.parse(proof.numbers["worst_costs"])
    ends = [
        start + worst.duration(block)
        for row, starts in zip(schedule.order, replayed(schedule, worst), strict=True)
        for block, start in zip(row, starts, strict=True)
    ]
    assert (proof.status, proof.numbers["worst"]) == ("refuted", plain(max(ends)))


def test_blocks_that_each_take_their_own_time_stay_below_too():
    # Costs per stage are one way for blocks of a kind to differ.
    schedule = build_family("1f1b", 4, 8)
    worst = prove_at_most(MAKESPAN, Fraction(10**6), schedule, Box.parse("F=1..3,I=1..3,W=1..3")).numbers["worst"]
    assert simulate(schedule, CostModel.parse("F=[1,3,2,1],I=[3,1,1,2],W=1")).timeline.makespan <= worst


def test_large_orders_are_bounded_without_the_second_way():
    proof = prove_at_most(MAKESPAN, Fraction(10**6), build_family("1f1b", 8, 200), Box.parse("F=1..2,I=1,W=1"))
    assert (proof.status, proof.numbers["second_way"]) == ("proved", "none: too many ops for Z3")


def test_a_schedule_that_is_not_legal_has_no_bound():
    schedule = build_family("gpipe", 2, 2)
    hung = Schedule(schedule.problem, (tuple(reversed(schedule.order[0])), schedule.order[1]))
    proof = prove_at_most(MAKESPAN, Fraction(100), hung, Box.parse("F=1..2"))
    assert proof.status == "refuted"
    assert "not legal" in proof.witness[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("F=3..2", "smaller number first"),
        ("F=1..x", "expected"),
        ("B=3..4,I=1..2", "two do not give the third"),
        ("F=1,release=0..1", "take no time"),
        ("F=[1..2,1],FB=3", "expected a table"),
    ],
)
def test_boxes_that_cannot_be_are_refused(text, message):
    with pytest.raises(ScheduleError, match=message):
        Box.parse(text)


def test_too_many_corners_are_refused():
    many = ",".join(["1..2"] * 11)
    with pytest.raises(ScheduleError, match="at most 10"):
        prove_at_most(BUBBLE, Fraction(1), build_family("1f1b", 11, 11), Box.parse(f"F=[{many}]"))


# ---------------------------------------- boxes in files


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "box.toml"
        path.write_text(text)
        return str(path)

    return write


def test_a_box_in_a_file_is_the_box_on_the_command_line(written):
    assert read_ranges("specs/costs-ranges.toml") == "F=9..11,I=10..14,W=8..9,FB=24..28"
    text = read_ranges(written('[costs]\nF = ["9..11", 8, "1/2..2.5"]\nhop = 0.5\n"F&B" = "3"\n'))
    assert text == "F=[9..11,8,1/2..2.5],hop=0.5,F&B=3"
    assert len(Box.parse(text.replace(",F&B=3", "")).ranges) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"expected a table \[costs\]"),
        ("[costs]\n", r"expected a table \[costs\]"),
        ("[costs]\nF = 1\n[limits]\nweights = 1\n", "limits: unknown key; expected costs"),
        ('[costs]\nF = "1,I=2"\n', r'costs\.F: expected a number or a range such as "9\.\.11", got "1,I=2"'),
        ('[costs]\n"F=1,I" = 2\n', "expected a number or a range"),
        ("[costs]\nF = true\n", r"costs\.F: expected a number"),
        ("[costs]\nF = {a = 1}\n", r"costs\.F: expected a number"),
        ('[costs]\nF = [1, ""]\n', r"costs\.F\[1\]: expected a number"),
        ("[costs\n", "not TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_place(written, text, message):
    with pytest.raises(ScheduleError, match=message) as caught:
        read_ranges(written(text))
    assert "box.toml: " in str(caught.value)


def test_a_box_needs_a_file_that_exists():
    with pytest.raises(ScheduleError, match=r"expected F=9\.\.11,I=10 or a TOML file"):
        read_ranges("box")
    with pytest.raises(ScheduleError, match="no such file"):
        read_ranges("absent.toml")
