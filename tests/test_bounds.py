"""Bounds against exact optima, families and published values."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.questions import COLUMNS, bidirectional, least, mirrored, questions
from verifier.bounds import BOUNDS, Bound, Times, board_bounds, bounds, lone_forwards
from verifier.costs import CostModel
from verifier.families import FAMILIES, build_family, placement
from verifier.model import Limits, Problem, ScheduleError
from verifier.search.strings import Board
from verifier.simulate import simulate


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (4, [25, 42, 46, 240, 1540]),
        (6, [38, 64, 70, 366, 2368]),
        (8, [51, 86, 94, 491, 3196]),
        (12, [77, 130, 142, 739, 4852]),
        (16, [103, 174, 190, 991, 6508]),
        (32, [207, 350, 382, 1999, 13154]),
    ],
)
def test_values_for_dualpipe_placement(ranks, expected):
    found = [bounds(bidirectional(ranks), CostModel.of(**column), Limits(ranks + 1))[0] for column in COLUMNS]
    assert [bound.ticks for bound in found] == expected
    assert {bound.name for bound in found} == {"one rank"}


def lb0(ranks: int, microbatches: int, forward: int, gradient: int, weight: int, pair: int) -> int:
    """The closed form of which `one rank` is a generalization, for two copies and at least four micro-batches."""
    q, whole = ranks // 2, gradient + weight
    f, i, fb = min(forward, pair), min(gradient, pair), min(pair, forward + whole)
    h = ranks * f + (q - 1) * i
    trips = q * forward + microbatches // 2 * (ranks - 1) * (f + i)
    one = max(h, trips) + (microbatches - 1) * fb + whole
    return min(
        one,
        *(max(h, (q - 1 + a) * forward) + (microbatches - a) * fb + a * whole for a in range(2, microbatches + 1)),
    )


@given(st.sampled_from((2, 4, 6, 8)), st.integers(1, 6), *[st.integers(1, 20)] * 4)
def test_never_below_the_closed_form(ranks, half, forward, gradient, weight, pair):
    costs = CostModel.of(F=forward, I=gradient, W=weight, FB=pair)
    found = bounds(bidirectional(ranks, 2 * half), costs)[0].ticks
    assert found >= lb0(ranks, 2 * half, forward, gradient, weight, pair)


@given(st.sampled_from(sorted(FAMILIES)), st.integers(1, 5), st.integers(1, 12), *[st.integers(1, 9)] * 4, st.integers(0, 3))
def test_never_above_a_family(name, ranks, microbatches, forward, gradient, weight, pair, hop):
    try:
        schedule = build_family(name, ranks, microbatches)
    except ScheduleError:
        return
    costs = CostModel.of(F=forward, I=gradient, W=weight, FB=pair, hop=hop)
    simulation = simulate(schedule, costs)
    peaks = tuple(simulation.peak_activations)
    for bound in bounds(schedule.problem, costs, Limits(peaks), pairs="any"):
        assert bound.ticks <= simulation.timeline.makespan_ticks, bound


@settings(max_examples=25)
@given(questions(max_work=10))
def test_never_above_an_optimum(question):
    optimum = least(question)
    if optimum is not None:
        for bound in board_bounds(question.board, question.objective):
            assert bound.ticks <= optimum, bound
        folded = mirrored(question)
        if folded is not None:
            symmetric = least(folded)
            for bound in board_bounds(folded.board, question.objective):
                assert symmetric is None or bound.ticks <= symmetric, bound


def test_an_optimum_that_the_two_copy_form_without_one_in_flight_would_miss():
    problem = Problem(((0, 1), (1, 0)), (1, 1))
    assert bounds(problem, CostModel.of(F=1, I=3, W=4, FB=1))[0].ticks <= 14


@pytest.mark.parametrize(
    ("cap", "blocks", "expected"),
    [(1, None, 72), (4, None, 27), (1, ("F", "B"), 96), (4, ("F", "B"), 33), (2, None, 36)],
)
def test_memory_bounds_of_one_copy(cap, blocks, expected):
    problem = Problem(placement("sequential", 4), (8,))
    assert bounds(problem, CostModel.of(), Limits(cap), blocks)[0].ticks == expected


def test_bounds_round_up_to_what_durations_divide():
    problem = Problem(((0, 1),), (3,))
    assert all(bound.ticks % 5 == 0 for bound in bounds(problem, CostModel.of(F=5, I=10, W=5, hop=5), Limits(1)))


def test_ticks_follow_fractions():
    problem = bidirectional(4)
    whole = bounds(problem, CostModel.of(F=2, I=2, W=2, FB=5), Limits(5))[0]
    halves = CostModel.of(F=1, I=1, W=1, FB=Fraction(5, 2))
    assert Fraction(bounds(problem, halves, Limits(5))[0].ticks, halves.ticks_per_unit) == Fraction(whole.ticks, 2)


def test_other_kinds_of_pairs_leave_only_what_holds_for_them():
    costs = CostModel.of(F=2, I=2, W=2, **{"F&F": 1})
    found = {bound.name for bound in bounds(Problem(placement("v", 2), (3,)), costs, Limits(4), pairs="any")}
    assert "one rank" not in found
    assert {"one micro-batch", "work", "capacity"} <= found


def test_a_single_rank_has_no_idle_time_to_find():
    assert bounds(Problem(((0,),), (5,)), CostModel.of(F=2, I=3, W=4))[0].ticks == 45


def test_span_bounds_forget_head_and_tail():
    problem = Problem(placement("sequential", 4), (8,))
    found = [bounds(problem, CostModel.of(), Limits(cap), objective="span-idle")[0].ticks for cap in (4, 5, 6, 7, 8)]
    assert found == [27, 26, 25, 24, 24]


def test_an_empty_direction_is_no_direction():
    one = bounds(Problem(((0, 1, 2), (2, 1, 0)), (3, 0)), CostModel.of())[0]
    alone = bounds(Problem(((0, 1, 2),), (3,)), CostModel.of())[0]
    assert one.ticks == alone.ticks


def test_cheap_pairs_are_bounded_by_what_is_in_flight():
    times = Times(Board(bidirectional(4), CostModel.of(**COLUMNS[4]), Limits(5)))
    by_lone = lone_forwards(times, 1)
    assert by_lone[2] > 1700 > by_lone[4]


def test_the_registry_names_what_it_returns():
    for name, argue in BOUNDS.items():
        bound = argue(Times(Board(bidirectional(4), CostModel.of(), Limits(5))))
        assert isinstance(bound, Bound)
        assert bound.name == name
