"""
The search for an order for every number of micro-batches.

A search looks for orders with a kernel; ``theorems.bubble`` finds a kernel in what it is given and proves what more turns of it
cost. Of all orders that are tried the one whose makespan grows least wins, then the one that is shortest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from time import monotonic

from verifier.all_microbatches.repeating import growth, placed
from verifier.all_microbatches.result import ForAll, Size
from verifier.bounds import bounds
from verifier.costs import CostModel
from verifier.model import Limits, Problem, Schedule, ScheduleError
from verifier.search.improve import improve
from verifier.search.kernels import KernelForm
from verifier.search.seeds import seeds as known_orders
from verifier.simulate import simulate
from verifier.solvers.questions import Question, refusal
from verifier.synthesize import Recorded, Synthesis, synthesize
from verifier.theorems.bubble import split_of
from verifier.theorems.periodic import insert_kernels
from verifier.theorems.proof import PROVED, UNKNOWN, Proof

SHARE = 0.5
"""Of the budget, for the shortest schedule of the given size; the rest is for kernels."""
LEAST = 1.0
"""Seconds that are left for kernels in any case."""
TURNS = (0, 1, 2, 4)
"""Kernels more than the size needs, at which a proof is tried: where it runs never, there is nothing to see."""
REPLAYED = (1, 2, 5)
"""Periods more at which a result is replayed."""


def synthesize_for_all(
    problem: Problem,
    costs: CostModel | None = None,
    limits: Limits | None = None,
    *,
    blocks: Collection[str] | None = None,
    pairs: str = "opposite",
    scope: str = "auto",
    budget: float = 60.0,
    seed: int = 0,
    seeds: Iterable[Schedule] = (),
    recorded: Recorded | None = None,
    on_progress: Callable[[Fraction, Fraction, Fraction], None] = lambda best, bound, gap: None,
) -> ForAll:
    """
    The shortest schedule found that is one for all larger numbers of micro-batches, too.

    Parameters
    ----------
    problem
        The least number of micro-batches; as many in every direction, or nothing can be proved.
    costs, limits, blocks, pairs, scope, budget, seed, seeds, recorded, on_progress
        As of :func:`verifier.synthesize.synthesize`.

    Raises
    ------
    ScheduleError
        As :func:`verifier.synthesize.synthesize`.

    Examples
    --------
    >>> found = synthesize_for_all(Problem(((0, 1, 2, 3), (3, 2, 1, 0)), (4, 4)), limits=Limits(5))
    >>> found.proof.status, found.step, found.slope, found.offset
    ('proved', 2, Fraction(3, 1), Fraction(1, 1))
    """
    end = monotonic() + budget
    costs, limits, known = costs or CostModel.of(), limits or Limits(), tuple(seeds)
    shortest = synthesize(
        problem,
        costs,
        limits,
        blocks=blocks,
        pairs=pairs,
        scope=scope,
        budget=budget * SHARE,
        seed=seed,
        seeds=known,
        recorded=recorded,
        on_progress=on_progress,
    )
    if shortest.schedule is None:
        return ForAll(shortest)
    if shortest.interrupted:
        return ForAll(shortest, interrupted=True)
    question = Question(problem, costs, limits, 0, None if blocks is None else tuple(blocks), pairs)
    best, interrupted = None, False
    try:
        for schedule in _orders(shortest, question, known, end, seed):
            found = _judged(schedule, question)
            best = found if best is None or _rank(found, problem) < _rank(best, problem) else best
            if (
                schedule is shortest.schedule
                and found.proof.status == PROVED
                and found.slope == _bound_slope(problem, question)
            ):
                break  # neither shorter nor growing less
    except KeyboardInterrupt:
        interrupted = True
    if best is None:
        return ForAll(shortest, interrupted=True)
    return ForAll(shortest, best.schedule, best.proof, tuple(_sizes(best, question)), interrupted)


@dataclass(frozen=True)
class _Judged:
    """A schedule with what is proved of its larger sizes."""

    schedule: Schedule
    makespan: Fraction
    proof: Proof
    slope: Fraction | None


def _judged(schedule: Schedule, question: Question) -> _Judged:
    proof = growth(schedule, question.costs)
    whole = ForAll(Synthesis(UNKNOWN), schedule, proof)
    timeline = simulate(schedule, question.costs).timeline
    assert timeline is not None, "only schedules that were replayed get here"
    return _Judged(schedule, timeline.makespan, proof, whole.slope)


def _rank(found: _Judged, problem: Problem) -> tuple[bool, Fraction, bool, Fraction, int]:
    """Least is best: by growth, then by what is proved, then by makespan at the size that was asked for, on the line."""
    more = found.schedule.problem.total_microbatches - problem.total_microbatches
    length = found.makespan - (found.slope or 0) * more
    return (found.slope is None, found.slope or Fraction(0), found.proof.status != PROVED, length, more)


def _bound_slope(problem: Problem, question: Question) -> Fraction:
    """What the lower bound grows by, per micro-batch, from twice the size on."""
    step = len(problem.microbatches)
    sizes = [_longer(problem, 2 * sum(problem.microbatches) + more) for more in (0, 2)]
    low, high = (_bound(size, question)[0] for size in sizes)
    return (high - low) / (2 * step)


def _longer(problem: Problem, more: int) -> Problem:
    """So many micro-batches more in every direction."""
    return replace(problem, microbatches=tuple(count + more for count in problem.microbatches))


def _bound(problem: Problem, question: Question) -> tuple[Fraction, str]:
    best = bounds(problem, question.costs, question.limits, question.blocks, question.pairs)[0]
    return Fraction(best.ticks, question.costs.ticks_per_unit), best.name


def _orders(shortest: Synthesis, question: Question, known: tuple[Schedule, ...], end: float, seed: int) -> Iterator[Schedule]:
    """Legal orders in which something may repeat: the shortest, known ones, those of a search with a kernel."""
    assert shortest.schedule is not None
    yield shortest.schedule
    board = question.board
    known += tuple(board.decode(order, name) for name, order in known_orders(board))
    yield from (schedule for schedule in known if schedule.problem == question.problem and _is_legal(schedule, question))
    for form in placed(shortest.schedule, question):
        yield from _at_least_sizes(form, question)
    yield from _with_kernels(question, max(end - monotonic(), LEAST), seed)


def _is_legal(schedule: Schedule, question: Question) -> bool:
    simulation = simulate(schedule, question.costs)
    if simulation.timeline is None:
        return False
    asked = replace(question, problem=schedule.problem, horizon=simulation.timeline.makespan_ticks, mirrored=False)
    return refusal(asked, schedule, simulation) is None


def _with_kernels(question: Question, seconds: float, seed: int) -> Iterator[Schedule]:
    """What a search finds that has to run a kernel often, at the least sizes at which the kernel runs."""
    problem = question.problem
    longer = _longer(problem, 2 * problem.stages)
    try:
        found = improve(
            longer,
            question.costs,
            question.limits,
            target=int(_bound(longer, question)[0] * question.costs.ticks_per_unit),
            evaluations=10**12,
            seconds=seconds,
            seed=seed,
            blocks=question.blocks,
            pairs=question.pairs,
        )
    except ImportError:
        return
    if found.form is None:
        yield found.schedule
        return
    yield from _at_least_sizes(found.form, question)


def _at_least_sizes(form: KernelForm, question: Question) -> Iterator[Schedule]:
    """The order for the size that is asked for, or the next that its kernel makes, and for some more turns."""
    least = form.board.problem
    missing = max(0, question.problem.microbatches[0] - least.microbatches[0])
    for turns in TURNS:
        size = _longer(least, (-(-missing // form.microbatches) + turns) * form.microbatches)
        schedule = form.schedule(size, "synthesized with a kernel")
        if _is_legal(schedule, question):
            yield schedule


def _sizes(best: _Judged, question: Question) -> Iterator[Size]:
    """The schedule and longer ones, replayed; a contradiction to what is proved is our own mistake."""
    yield _size(best.schedule, question)
    if best.slope is None:
        return
    split = split_of(best.schedule, best.proof)
    for periods in REPLAYED:
        longer = insert_kernels(split, periods)
        if not _is_legal(longer, question):
            raise ScheduleError(f"{longer.name}: replay refuses what the proof allows; please report this")
        size = _size(longer, question)
        line = best.makespan + best.slope * split.microbatches_per_period * periods
        assert best.proof.status != PROVED or size.makespan == line, "replay agrees with the proof"
        yield size


def _size(schedule: Schedule, question: Question) -> Size:
    timeline = simulate(schedule, question.costs).timeline
    assert timeline is not None, "legal schedules have a timeline"
    return Size(schedule.problem.total_microbatches, timeline.makespan, *_bound(schedule.problem, question))
