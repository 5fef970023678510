"""
Whether something in an order can be repeated for ever, and how to put something in that can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from verifier.costs import CostModel
from verifier.model import Problem, Schedule
from verifier.search.kernels import KernelForm, known_kernels, own_kernels, place_kernels, settled
from verifier.search.strings import Board, fits_mirror
from verifier.simulate import simulate
from verifier.solvers.questions import Question
from verifier.theorems.bubble import NAME, STATEMENT, prove_bubble_constant
from verifier.theorems.periodic import Split, insert_kernels, splits
from verifier.theorems.proof import UNKNOWN, Proof

FEW = 1000
"""Blocks of the largest order in which every kernel is tried."""


def growth(schedule: Schedule, costs: CostModel) -> Proof:
    """
    The proof that the bubble stays the same for all larger sizes; not looked for where that would take minutes in vain.

    Where the first kernel grows evenly the proof is found at once; else every length of one is tried at many places.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> growth(build_family("dualpipe", 16, 32), CostModel.of()).status
    'proved'
    """
    if sum(map(len, schedule.order)) > FEW and not _grows_evenly(schedule, costs):
        reason = "no short kernel makes the makespan grow evenly, and others are not looked for at this size"
        return Proof(NAME, STATEMENT, "k >= 0", UNKNOWN, 1, 0, 0.0, (reason,))
    return prove_bubble_constant(schedule, costs)


def _grows_evenly(schedule: Schedule, costs: CostModel) -> bool:
    """Whether one, two and three periods of the first kernel add the same each time."""
    split = _first(schedule)
    return split is not None and _growth_of(split, costs) is not None


def _first(schedule: Schedule) -> Split | None:
    return next(splits(schedule), None) if len(set(schedule.problem.microbatches)) == 1 else None


def _growth_of(split: Split, costs: CostModel) -> Fraction | None:
    """What each of three periods adds to the makespan; None where they do not all add the same."""
    timelines = [simulate(insert_kernels(split, periods), costs).timeline for periods in range(4)]
    spans = [timeline.makespan for timeline in timelines if timeline]
    grown = {after - before for before, after in pairwise(spans)}
    return grown.pop() if len(spans) == 4 and len(grown) == 1 else None


def steady(schedule: Schedule, costs: CostModel) -> Split | None:
    """
    The first kernel, if each of three more periods takes as long as the work in it: as far as these replays tell, for ever.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> split = steady(build_family("dualpipe", 8, 16), CostModel.of())
    >>> longer(split, build_family("dualpipe", 8, 500).problem) == build_family("dualpipe", 8, 500)
    True
    """
    split = _first(schedule)
    if split is None:
        return None
    work = max(sum(map(costs.duration, split.kernel(rank))) for rank in range(schedule.problem.ranks))
    return split if _growth_of(split, costs) == work else None


def longer(split: Split, problem: Problem) -> Schedule | None:
    """The schedule of a problem with more periods of a kernel; None where the problem is not so many micro-batches larger."""
    counts = zip(problem.microbatches, split.schedule.problem.microbatches, strict=True)
    extra = {more - count for more, count in counts}
    if len(extra) != 1 or min(extra) < 0 or min(extra) % split.period:
        return None
    return insert_kernels(split, min(extra) // split.period)


def placed(schedule: Schedule, question: Question) -> Iterator[KernelForm]:
    """
    A schedule with a kernel at the place of each rank where it lengthens it least: known kernels, and stretches of its own.

    Nothing where every kernel would make the ranks hang, or where there is no compiler to measure places with.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.model import Limits
    >>> dualpipe = build_family("dualpipe", 4, 8)
    >>> question = Question(dualpipe.problem, CostModel.of(F=10, I=12, W=9, FB=26), Limits(5), 0)
    >>> [form.makespan(3) - form.makespan(1) for form in placed(dualpipe, question)][0]
    104
    """
    try:
        from verifier.search import anneal  # noqa: F401
    except ImportError:
        return
    problem, costs, limits = schedule.problem, question.costs, question.limits
    folded = fits_mirror(problem, costs, limits)
    board = Board(problem, costs, limits, question.blocks, question.pairs == "any", folded)
    if not board.tells(schedule):
        board = replace(board, folded=False)
    order = board.encode(schedule)
    turns = problem.stages + problem.stages % 2
    forms = [place_kernels(board, order, kernels, turns) for kernels in known_kernels(board)]
    forms += [own_kernels(board, order, turns // size, size) for size in (1, 2)]
    for form in forms:
        if form is not None:
            yield settled(form, turns // form.microbatches)
