"""Strings, list scheduling, seeds, compiled lengths, local search and kernels."""

from dataclasses import replace
from fractions import Fraction
from itertools import islice, takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.questions import COLUMNS, bidirectional
from tests.strategies import costs, problems, schedules, v_shaped
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.model import Limits, Op, Problem, Schedule, ScheduleError
from verifier.search import anneal, arrays
from verifier.search.greedy import TASTES, greedy
from verifier.search.improve import checked, improve, require_room
from verifier.search.kernels import (
    EPILOGUE,
    KERNEL,
    PROLOGUE,
    WHOLE,
    KernelForm,
    found_kernels,
    known_kernels,
    own_kernels,
    place_kernels,
    settled,
)
from verifier.search.pool import Pool
from verifier.search.seeds import seeds, trimmed, usable
from verifier.search.strings import Board
from verifier.simulate import simulate

ROOMY = Limits(10**6)
SEQUENTIAL = Problem((tuple(range(4)),), (8,))


def compiled_length(board: Board, order: tuple, **kernels: object) -> int | None:
    """The makespan as the search sees it."""
    tables = arrays.tables(board, **kernels)
    state = arrays.state(board, tables, order)
    found = anneal.begin(tables, state, WHOLE)
    return None if found == anneal.NEVER else int(found)


def ticks(schedule: Schedule, model: CostModel) -> int:
    timeline = simulate(schedule, model).timeline
    assert timeline is not None
    return timeline.makespan_ticks


def found(problem: Problem, model: CostModel, cap: object, evaluations: int = 60_000, **options: object) -> int:
    return improve(problem, model, Limits(cap), evaluations=evaluations, **options).ticks


# -------------------------------------------------------------------------------------------------------------- strings


@given(schedules(), st.data())
def test_first_in_first_out_numbers_lose_nothing(schedule, data):
    model = data.draw(costs(schedule.problem, zeros=False))
    board = Board(schedule.problem, model, ROOMY, any_pairs=True)
    renumbered = board.decode(board.encode(schedule))
    assert board.encode(renumbered) == board.encode(schedule)
    assert ticks(renumbered, model) <= ticks(schedule, model)


@given(schedules(), st.data())
def test_the_compiled_length_is_the_simulated_one_within_the_limit(schedule, data):
    model = data.draw(costs(schedule.problem))
    limit = data.draw(st.fractions(0, 8, max_denominator=3))
    board = Board(schedule.problem, model, Limits(limit), any_pairs=True)
    order = board.encode(schedule)
    simulation = simulate(board.decode(order), model)
    fits = max(simulation.peak_activations) <= limit
    if any(model.ticks(block) == 0 for row in schedule.order for block in row) and simulation.timeline is None:
        return  # numbers in the order of time need not be in the order of what takes none
    assert compiled_length(board, order) == (simulation.timeline.makespan_ticks if fits else None)


@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_a_folded_half_has_the_length_of_the_whole(ranks):
    model = CostModel.of(F=10, I=12, W=9, FB=26, hop=1)
    whole = build_family("dualpipe", ranks, 2 * ranks)
    board = Board(whole.problem, model, Limits(ranks + 1), folded=True)
    assert board.decode(board.encode(whole)) == whole
    assert compiled_length(board, board.encode(whole)) == ticks(whole, model)


def test_boards_refuse_blocks_that_cannot_do_the_work():
    with pytest.raises(ScheduleError, match="expected F, and B or both I and W"):
        Board(SEQUENTIAL, CostModel.of(), ROOMY, blocks=("F", "I"))
    with pytest.raises(ScheduleError, match='unknown kind "X"'):
        Board(SEQUENTIAL, CostModel.of(), ROOMY, blocks=("F", "B", "X"))
    with pytest.raises(ScheduleError, match="mirror-symmetric schedules"):
        Board(SEQUENTIAL, CostModel.of(), ROOMY, folded=True)


# ------------------------------------------------------------------------------------------------ list scheduling, seeds


@st.composite
def limited(draw: st.DrawFn) -> Board:
    """Any board with limits that one micro-batch fits into, tight ones as well."""
    problem = draw(problems())
    model = draw(costs(problem))
    least = [
        max(
            sum(model.activation_change(Op("F", d, s, 0)) for e, s in problem.stages_on(rank) if e == d)
            for d in range(problem.directions)
        )
        for rank in range(problem.ranks)
    ]
    limits = Limits(tuple(need + draw(st.integers(0, 3)) for need in least))
    blocks = draw(st.sampled_from((None, ("F", "B"), ("F", "B", "F&B"), ("F", "I", "W"))))
    return Board(problem, model, limits, blocks, draw(st.booleans()))


@given(limited(), st.sampled_from(TASTES))
def test_list_scheduling_is_legal_under_every_limit_that_is_not_refused(board, taste):
    require_room(board.problem, board.costs, board.limits)
    schedule = board.decode(greedy(board, taste))
    checked(schedule, board.costs, board.limits)
    assert {block.kind for row in schedule.order for block in row} <= set(board.kinds)


@given(limited())
def test_seeds_are_complete_and_use_what_may_be_used(board):
    for _, order in islice(seeds(board), 12):
        assert usable(order, board) == order
        for chain, row in zip(board.chain, order, strict=True):
            for slot, stage in enumerate(chain):
                parts = [kind for token in row for kind, at in token if at == slot]
                assert parts.count("F") == parts.count("B") + parts.count("I") == board.counts[stage]
                assert parts.count("I") == parts.count("W")


def test_limits_below_one_microbatch_are_refused_with_the_rank():
    v = Problem(v_shaped(2), (3,))
    with pytest.raises(ScheduleError, match="rank 1 holds 2 activations of one micro-batch at once; the limit is 1"):
        improve(v, CostModel.of(), Limits((2, 1)))
    with pytest.raises(ScheduleError, match=r"limits\.weights: rank 0 holds 2 weight copies; the limit is 1"):
        improve(v, CostModel.of(), Limits(None, 1))


def test_a_family_without_some_microbatches_is_legal():
    whole = build_family("dualpipe", 4, 8)
    part = trimmed(whole, Problem(whole.problem.placement, (3, 1)))
    checked(part, CostModel.of(), Limits(5))


# --------------------------------------------------------------------------------------------------------- local search


@pytest.mark.parametrize(
    ("ranks", "cap", "known"),
    [
        (4, 5, (25, 42, 47, 245, 1564)),
        (4, 2, (33, None, 66, 349, 2741)),
        (4, 6, (25, None, 47, 243, 1564)),
        (6, 7, (38, 64, 71, 371, None)),
        (8, 9, (51, 86, 96, None, None)),
    ],
)
def test_known_optima_are_met(ranks, cap, known):
    for column, least in zip(COLUMNS, known, strict=True):
        if least is not None:
            model = CostModel.of(**column)
            assert found(bidirectional(ranks), model, cap, 400_000, target=least) == least


@pytest.mark.parametrize(("cap", "least"), [(1, 72), (2, 41), (3, 31), (4, 27), (5, 27)])
def test_known_optima_of_one_copy(cap, least):
    assert found(SEQUENTIAL, CostModel.of(), cap, target=least) == least


@pytest.mark.parametrize(("cap", "least"), [(1, 96), (3, 39), (4, 33)])
def test_known_optima_without_split_backwards(cap, least):
    assert found(SEQUENTIAL, CostModel.of(), cap, target=least, blocks=("F", "B")) == least


@pytest.mark.parametrize(("cap", "least"), [(2, 41), (4, 27), (5, 26), (6, 25), (7, 24)])
def test_known_longest_spans(cap, least):
    assert found(SEQUENTIAL, CostModel.of(), cap, 300_000, target=least, objective="span-idle") == least


def test_pairs_of_one_direction_and_orders_without_symmetry_can_be_shorter():
    model = CostModel.of(F=1, I=1, W=1, FB=2)
    assert found(bidirectional(4), model, 4, target=23) == 23
    assert found(bidirectional(4), model, 4, 300_000, target=22, pairs="any") == 22
    cheap = CostModel.of(F=1, I=3, W=4, FB=1)
    assert found(bidirectional(2, 2), cheap, None, mirrored=True) == 16
    assert found(bidirectional(2, 2), cheap, None, target=14) == 14


def test_a_mirrored_problem_is_a_v_on_half_the_ranks():
    for column in COLUMNS[:4]:
        model = CostModel.of(**column)
        v = found(Problem(v_shaped(2), (4,)), model, 5, 150_000)
        assert v == found(bidirectional(4), model, 5, 150_000, target=v)


def test_the_search_is_decided_by_its_seed_and_budget():
    model = CostModel.of(F=10, I=12, W=9, FB=26)
    once, again = (improve(bidirectional(6), model, Limits(7), evaluations=30_000, seed=3) for _ in range(2))
    assert once.schedule == again.schedule
    assert once.evaluations == again.evaluations


def test_of_equal_orders_the_one_with_fewer_activations_is_kept():
    result = improve(Problem(((0, 1),), (6,)), CostModel.of(), Limits(), target=19, evaluations=100_000)
    assert result.ticks == 19
    assert max(simulate(result.schedule).peak_activations) <= 3


@settings(max_examples=25)
@given(limited())
def test_whatever_is_asked_a_legal_schedule_comes_back(board):
    result = improve(
        board.problem,
        board.costs,
        board.limits,
        evaluations=2_000,
        blocks=board.blocks,
        pairs="any" if board.any_pairs else "opposite",
    )
    assert ticks(result.schedule, board.costs) == result.ticks <= ticks(board.decode(greedy(board)), board.costs)


def test_an_odd_microbatch_more_starts_from_the_mirrored_problem():
    model = CostModel.of(F=2, I=2, W=2, FB=4)
    problem = Problem(bidirectional(4).placement, (5, 4))
    result = improve(problem, model, Limits(5), evaluations=60_000)
    assert not result.mirrored
    assert 42 < result.ticks <= found(Problem(problem.placement, (5, 5)), model, 5)


def test_a_budget_of_no_time_still_gives_a_schedule():
    result = improve(bidirectional(8), CostModel.of(F=2, I=2, W=2, FB=5), Limits(9), seconds=0)
    assert result.ticks <= 98


def test_ticks_beyond_whole_numbers_of_64_bits_are_left_to_the_seeds():
    fine = CostModel.of(F=Fraction(10**9 + 7, 10**9), I=Fraction(10**8 + 7, 10**8 + 9), W=10**6)
    result = improve(Problem(((0, 1),), (4,)), fine, Limits(2))
    assert result.evaluations == 0
    assert ticks(result.schedule, fine) == result.ticks > 2**63


def test_an_interrupt_gives_the_best_so_far():
    def stop(progress: object) -> None:
        raise KeyboardInterrupt

    result = improve(bidirectional(6), CostModel.of(F=2, I=2, W=2, FB=5), Limits(7), progress=stop)
    assert result.interrupted
    assert result.ticks <= 73


# -------------------------------------------------------------------------------------------------------------- kernels


@pytest.mark.parametrize(("column", "slope", "excess"), [(0, 3, 0), (1, 4, 0), (2, 5, 1), (3, 26, 5)])
def test_one_search_serves_all_microbatch_counts(column, slope, excess):
    model = CostModel.of(**COLUMNS[column])
    result = improve(bidirectional(4, 48), model, Limits(5), evaluations=30_000)
    assert result.form is not None
    for microbatches in (12, 14, 48, 100):
        schedule = result.form.schedule(bidirectional(4, microbatches))
        simulation = checked(schedule, model, Limits(5))
        assert simulation.timeline.makespan == result.ticks + slope * (microbatches - 48)
    bound = {0: 3 * 48 + 1, 1: 4 * 48 + 10, 2: 46 + 5 * 40, 3: 240 + 26 * 40}[column]
    assert result.ticks == bound + excess


@pytest.mark.parametrize("part", [PROLOGUE, EPILOGUE])
def test_a_search_of_one_part_leaves_the_other_and_measures_the_whole(part):
    """What runs before the epilogue is measured once; the length must be that of the whole order all the same."""
    model, schedule = CostModel.of(F=10, I=12, W=9, FB=26), build_family("dualpipe", 8, 24)
    board = Board(schedule.problem, model, Limits(9), folded=True)
    order = board.encode(schedule)
    form = next(form for kernels in known_kernels(board) if (form := found_kernels(board, order, kernels)))
    # Made worse in both parts first: each backward alone, its W at the end.
    order = tuple(_unpaired(row) for row in form.order)
    kernels = tuple(kernel * 2 for kernel in form.kernels)
    pool = Pool(board, [("unpaired", order)], kernels=kernels, microbatches=2, seed=1)
    before = pool.best.ticks
    pool.search(40_000, 0, lambda: False, part)
    assert pool.best.ticks < before
    for kept in pool.kept:
        assert kept.ticks == compiled_length(board, kept.order, kernels=kernels, more=2)
        for row, old in zip(kept.order, order, strict=True):
            at, old_at = row.index(KERNEL), old.index(KERNEL)
            assert row[at:] == old[old_at:] if part == PROLOGUE else row[:at] == old[:old_at]


def _unpaired(row: tuple) -> tuple:
    """Every pair as its parts, one behind the other."""
    return tuple(single for token in row for single in ([(part,) for part in token] if len(token) == 2 else [token]))


@pytest.mark.parametrize(("ranks", "column", "slope", "bound", "gap"), [(8, 3, 26, 491, 10), (12, 2, 5, 142, 2)])
def test_the_gap_of_an_epilogue_searched_apart_is_the_same_for_all_microbatches(ranks, column, slope, bound, gap):
    """``bound`` is the first of the bounds for M = 2 P; the gap is the least known one."""
    model = CostModel.of(**COLUMNS[column])
    for microbatches in (8 * ranks, 512):
        target = bound + slope * (microbatches - 2 * ranks) + gap
        problem = bidirectional(ranks, microbatches)
        result = improve(problem, model, Limits(ranks + 1), target=target, evaluations=2_000_000)
        assert result.ticks == target == ticks(result.schedule, model)


def test_dualpipe_loses_its_time_in_the_drain():
    """With its fill and kernel block for block, and only what is behind them changed, it is as short as any known one."""
    model, dualpipe = CostModel.of(**COLUMNS[3]), build_family("dualpipe", 8, 64)
    board = Board(bidirectional(8, 20), model, Limits(9), folded=True)
    order = board.encode(build_family("dualpipe", 8, 20))
    form = next(form for kernels in known_kernels(board) if (form := found_kernels(board, order, kernels)))
    pool = Pool(board, [("dualpipe", form.order)], kernels=form.kernels, microbatches=1, seed=1)
    pool.search(600_000, 501 + 6 * 26, lambda: False, EPILOGUE)
    schedule = replace(form, order=pool.best.order).schedule(dualpipe.problem)
    assert (ticks(schedule, model), ticks(dualpipe, model)) == (501 + 48 * 26, 515 + 48 * 26)
    kept = [len(before) for before in (tuple(takewhile(lambda token: token != KERNEL, row)) for row in form.order)]
    for rank, length in enumerate(kept):
        turns = length + 2 * (64 - 20) // 2
        assert schedule.order[rank][:turns] == dualpipe.order[rank][:turns]


def test_kernel_forms_say_which_sizes_they_make():
    board = Board(bidirectional(4), CostModel.of(F=2, I=2, W=2, FB=4), Limits(5), folded=True)
    form = place_kernels(board, board.encode(build_family("dualpipe", 4, 8)), next(known_kernels(board)), 4)
    assert isinstance(form, KernelForm)
    assert (
        settled(form, 4).makespan(4)
        <= form.makespan(4)
        == compiled_length(board, form.order, kernels=[kernel * 4 for kernel in form.kernels], more=4)
    )
    assert all(row.count(KERNEL) == 1 for row in form.order)
    for other in (bidirectional(4, 6), Problem(bidirectional(4).placement, (5, 4)), bidirectional(6, 12)):
        with pytest.raises(ScheduleError, match=r"any multiple of 1 more in each direction"):
            form.schedule(other)


def test_the_kernel_of_an_order_is_found_in_it():
    board = Board(Problem(SEQUENTIAL.placement, (12,)), CostModel.of(), Limits(4))
    form = own_kernels(board, board.encode(build_family("1f1b", 4, 12)), 5, 1)
    assert form is not None
    assert all(sorted(kernel) == [(("B", 0),), (("F", 0),)] for kernel in form.kernels)
    longer = form.schedule(replace(board.problem, microbatches=(20,)))
    assert longer == build_family("1f1b", 4, 20)


def test_an_order_that_hangs_has_no_kernel():
    board = Board(Problem(((0, 1),), (2,)), CostModel.of(), Limits(2))
    backwards_first = ((*((("B", 0),),) * 2, *((("F", 0),),) * 2),) * 2
    assert place_kernels(board, backwards_first, next(known_kernels(board)), 3) is None


def test_orders_that_hang_are_no_starts():
    board = Board(Problem(((0, 1),), (1,)), CostModel.of(), Limits(1))
    hangs = (((("B", 0),), (("F", 0),)),) * 2
    pool = Pool(board, [("hangs", hangs), ("runs", greedy(board))])
    assert [found.start for found in pool.kept] == ["runs"]
    assert pool.best.ticks == 5
