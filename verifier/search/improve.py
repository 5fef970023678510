"""
The shortest order that seeds and local search find, replayed before it is handed out.

Deterministic for a given seed and number of changes tried; a limit in seconds can only stop the search earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from time import monotonic
from typing import TYPE_CHECKING

from verifier.costs import CostModel
from verifier.model import Limits, Problem, Schedule, ScheduleError, plain
from verifier.rules import RULES, Question, broken
from verifier.search.greedy import TASTES, greedy
from verifier.search.kernels import (
    EPILOGUE,
    PROLOGUE,
    WHOLE,
    KernelForm,
    found_kernels,
    known_kernels,
    own_kernels,
    place_kernels,
    settled,
)
from verifier.search.seeds import Found, trimmed
from verifier.search.seeds import seeds as board_seeds
from verifier.search.strings import Board, fits_mirror
from verifier.simulate import Simulation, simulate

if TYPE_CHECKING:
    from verifier.search.pool import Pool

LONGEST = 2**60
"""Ticks of the longest order that compiled search can measure."""
PLAIN_SHARE = 0.8
"""Of the time that is left, what a search without kernel takes before one with it."""
PROLOGUE_SHARE, PARTS_SHARE = 0.08, 0.6
"""Of the time that is left, what the search of the prologue takes, and of the epilogue where one of the whole is to follow."""
TURNS = 2
"""Of the kernel, while its prologue and epilogue are searched for."""
TIDY = 10
"""One part in so many of the changes goes into fewer activations at the end."""


@dataclass(frozen=True)
class Progress:
    """Where a search stands: the best length so far, in ticks, and the changes it has tried."""

    ticks: int
    evaluations: int


@dataclass(frozen=True)
class SearchResult:
    """
    The best order found.

    Parameters
    ----------
    schedule
        Complete, free of deadlock and within the limits: it was replayed.
    ticks
        What the objective counts: the makespan, or the longest time from a rank's first start to its last end.
    evaluations
        Changes tried.
    mirrored
        Whether the schedule is its own mirror image.
    start
        The seed that it came from.
    form
        Prologue, kernel and epilogue, where the search used a kernel: the same order for more micro-batches.
    interrupted
        Whether someone stopped it.
    """

    schedule: Schedule
    ticks: int
    evaluations: int
    mirrored: bool
    start: str
    form: KernelForm | None = None
    interrupted: bool = False


def checked(schedule: Schedule, costs: CostModel, limits: Limits) -> Simulation:
    """Replay a schedule through the simulation and through all rules; what the search made must stand both."""
    simulation = simulate(schedule, costs)
    assert simulation.timeline is not None, simulation.circle
    question = Question(schedule, costs, limits, simulation.timeline)
    witnesses = [witness for rule in RULES.values() for witness in broken(rule, question)]
    assert not witnesses, witnesses
    return simulation


def require_room(problem: Problem, costs: CostModel, limits: Limits) -> None:
    """
    Refuse limits below what one micro-batch needs; whatever is not refused has a legal schedule.

    Raises
    ------
    ScheduleError
        Naming the first rank, what it holds and its limit.

    Examples
    --------
    >>> require_room(Problem(((0, 1, 1, 0),), (4,)), CostModel.of(), Limits(1))
    Traceback (most recent call last):
    verifier.model.ScheduleError: limits.activations: rank 0 holds 2 activations of one micro-batch at once; the limit is 1
    """
    board = Board(problem, costs, limits)
    for rank, chain in enumerate(board.chain):
        weights, activations = limits.weights_on(rank), limits.activations_on(rank)
        if weights is not None and len(chain) > weights:
            raise ScheduleError(f"limits.weights: rank {rank} holds {len(chain)} weight copies; the limit is {weights}")
        for direction, count in enumerate(problem.microbatches):
            steps = sum(board.steps(stage, "F") for stage in chain if stage // problem.stages == direction)
            if count and activations is not None and steps > board.cap(rank):
                held = plain(Fraction(steps, costs.steps_per_activation))
                raise ScheduleError(
                    f"limits.activations: rank {rank} holds {held} activations of one micro-batch at once; "
                    f"the limit is {plain(activations)}"
                )


def improve(
    problem: Problem,
    costs: CostModel,
    limits: Limits,
    *,
    seeds: Iterable[Schedule] = (),
    target: int = 0,
    evaluations: int = 2_000_000,
    seconds: float | None = None,
    seed: int = 0,
    blocks: Collection[str] | None = None,
    pairs: str = "opposite",
    objective: str = "makespan",
    mirrored: bool | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> SearchResult:
    """
    Look for a schedule of least makespan; then for fewer activations, then for more overlapped pairs.

    Parameters
    ----------
    problem, costs, limits
        What is asked for.
    seeds
        Schedules to start from, besides the families and list scheduling.
    target
        Ticks at which to stop: a lower bound.
    evaluations
        Changes to try. With the seed it decides the result.
    seconds
        Stop earlier after so long.
    blocks
        Kinds of blocks that may be used; None for all that have a price.
    pairs
        ``opposite``, or ``any`` where both parts of a pair may be of one direction.
    objective
        ``makespan``, or ``span-idle``: the longest time from a rank's first start to its last end.
    mirrored
        Whether to look among mirror-symmetric schedules only. None: first there, where that loses nothing as far as is known.
    progress
        Called after every run.

    Raises
    ------
    ScheduleError
        If the limits are below what one micro-batch needs, or costs, limits or blocks do not fit the problem.

    Examples
    --------
    >>> both = Problem(((0, 1, 2, 3), (3, 2, 1, 0)), (4, 4))
    >>> found = improve(both, CostModel.of(F=2, I=2, W=2, FB=4), Limits(5), target=42)
    >>> found.ticks, found.start
    (42, 'dualpipe P=4 M=8, step 4 opened by a pair')
    """
    costs.check(problem)
    limits.check(problem.ranks)
    require_room(problem, costs, limits)
    search = _Search(costs, limits, blocks, pairs == "any", objective == "span-idle", seed, target, seconds, progress)
    return search.improve(problem, tuple(seeds), evaluations, mirrored)


@dataclass(frozen=True)
class _Stage:
    """What one board came to."""

    board: Board
    found: Found
    form: KernelForm | None = None

    def schedule(self) -> Schedule:
        start = self.found.start.removeprefix("synthesized from ")
        return self.board.decode(self.found.order, f"synthesized from {start}")


class _Search:
    """One call: what all its boards have in common, and what is spent."""

    def __init__(
        self,
        costs: CostModel,
        limits: Limits,
        blocks: Collection[str] | None,
        any_pairs: bool,
        spans: bool,
        seed: int,
        target: int,
        seconds: float | None,
        progress: Callable[[Progress], None],
    ) -> None:
        self.costs, self.limits, self.blocks, self.any_pairs, self.spans = costs, limits, blocks, any_pairs, spans
        self.seed, self.target, self.progress = seed, target, progress
        self.spent, self.interrupted = 0, False
        self.stop = None if seconds is None else monotonic() + seconds

    def due(self) -> bool:
        return self.interrupted or (self.stop is not None and monotonic() > self.stop)

    def board(self, problem: Problem, folded: bool) -> Board:
        return Board(problem, self.costs, self.limits, self.blocks, self.any_pairs, folded)

    # ----------------------------------------------------------------------------------------------- folded, then whole

    def improve(self, problem: Problem, given: tuple[Schedule, ...], evaluations: int, mirrored: bool | None) -> SearchResult:
        mirrors = fits_mirror(problem, self.costs, self.limits)
        stages: list[_Stage] = []
        if mirrored or (mirrors and mirrored is None):
            share = 1 if mirrored or self._mirror_is_enough(problem) else 2
            stages.append(self.stage(self.board(problem, True), given, evaluations // share))
        elif problem.directions == 2 and mirrored is None:
            given += self._levelled(problem, evaluations // 2)
        if not stages or (mirrored is None and not self._mirror_is_enough(problem) and stages[0].found.ticks > self.target):
            given += tuple(stage.schedule() for stage in stages)
            stages.append(self.stage(self.board(problem, False), given, evaluations - self.spent))
        best = min(stages, key=lambda stage: stage.found.ticks)
        schedule = best.schedule()
        timeline = checked(schedule, self.costs, self.limits).timeline
        assert self.spans or (timeline and timeline.makespan_ticks == best.found.ticks), "replay agrees with the search"
        return SearchResult(
            schedule, best.found.ticks, self.spent, best.board.folded, best.found.start, best.form, self.interrupted
        )

    def _mirror_is_enough(self, problem: Problem) -> bool:
        """Whether nothing is known to be lost by symmetry: a pair takes as long as each of F, I and W at least."""
        board = self.board(problem, True)
        return all(
            board.span(rank, token) >= board.span(rank, (part,))
            for rank in range(board.ranks)
            for token in board.tokens
            if len(token) == 2 and board.span(rank, token) >= 0
            for kind, slot in token
            for part in ([(kind, slot)] if kind != "B" else [("I", slot), ("W", slot)])
        )

    def _levelled(self, problem: Problem, evaluations: int) -> tuple[Schedule, ...]:
        """What a search finds for as many micro-batches in both directions, without those that are too many."""
        level = replace(problem, microbatches=(max(problem.microbatches),) * 2)
        if level == problem or not fits_mirror(level, self.costs, self.limits):
            return ()
        target, self.target = self.target, 0
        stage = self.stage(self.board(level, True), (), evaluations)
        self.target = target
        return (trimmed(stage.schedule(), problem),)

    # ---------------------------------------------------------------------------------------------- one board, any size

    def stage(self, board: Board, given: tuple[Schedule, ...], evaluations: int) -> _Stage:
        """The best order of a board; by prologue, kernel and epilogue where it has many micro-batches."""
        if _horizon(board) > LONGEST:
            return self._listed(board)
        from verifier.search.pool import Pool

        least, more = _base(board)
        stage = None if self.spans else self._by_parts(board, least, more, evaluations)
        if more and not self.spans and (not stage or self._may_grow_less(stage, more)):
            other = self._formed(board, least, more, evaluations)
            stage = min(filter(None, (stage, other)), key=lambda stage: stage.found.ticks, default=None)
        if stage and stage.found.ticks <= self.target:
            return stage
        starts = [*((schedule.name, board.encode(schedule)) for schedule in given), *board_seeds(board)]
        if stage:
            starts.insert(0, (stage.found.start, stage.found.order))
        whole = Pool(board, starts, spans=self.spans, seed=self.seed)
        if stage and more and stage.found.ticks <= whole.best.ticks:
            return stage
        self.run(whole, self.target, evaluations)
        return _Stage(board, whole.best)

    def _by_parts(self, board: Board, least: Problem, more: int, evaluations: int) -> _Stage | None:
        """
        The best order that repeats a kernel of a seed, its prologue and then its epilogue improved; None without such a seed.

        Between the two the kernel runs at its own pace, so that what one gains the other cannot lose: one large search becomes
        two small ones. They are made with few turns of the kernel, which are quick to measure, even if none is wanted: it
        keeps the parts apart.
        """
        from verifier.search.pool import Pool

        base = self.board(least, board.folded)
        known = list(board_seeds(base))
        forms: list[tuple[int, str, KernelForm]] = []
        for kernels in known_kernels(base):
            for name, order in known:
                form = found_kernels(base, order, kernels)
                ticks = None if form is None else form.makespan(more)
                if form is not None and ticks is not None:
                    forms.append((ticks, name, form))
        if not forms:
            return None
        ticks, name, form = min(forms, key=lambda found: found[0])
        stages = [_Stage(board, Found(ticks, name, form.expanded(more)), form)]
        starts = [(name, other.order) for _, name, other in forms if other.kernels == form.kernels]
        kernels = tuple(kernel * TURNS for kernel in form.kernels)
        pool = Pool(base, starts, kernels=kernels, microbatches=TURNS, seed=self.seed)
        ahead = self._ahead(form, more - TURNS)
        for part, share in ((PROLOGUE, PROLOGUE_SHARE), (EPILOGUE, 1.0 if more else PARTS_SHARE)):
            self.run(pool, self.target - ahead, int(share * (evaluations - self.spent)), ahead, share, part)
        for kept in pool.kept:
            # What is short with few turns could grow faster.
            form = replace(form, order=kept.order)
            ticks = form.makespan(more)
            if ticks is not None:
                stages.append(_Stage(board, Found(ticks, kept.start, form.expanded(more)), form))
        return min(stages, key=lambda stage: stage.found.ticks)

    def _listed(self, board: Board) -> _Stage:
        """The best of list scheduling, in numbers of any size."""
        found = []
        for taste in TASTES:
            order = greedy(board, taste)
            timeline = simulate(board.decode(order), self.costs).timeline
            assert timeline is not None, "list scheduling never hangs"
            spans = [
                begin[-1] + span[-1] - begin[0] for begin, span in zip(timeline.start, timeline.duration, strict=True) if begin
            ]
            found.append(Found(max(spans) if self.spans else timeline.makespan_ticks, str(taste), order))
        return _Stage(board, min(found, key=lambda other: other.ticks))

    def run(self, pool: Pool, target: int, evaluations: int, ahead: int = 0, share: float = 1.0, part: int = WHOLE) -> None:
        """
        Search a pool, then a last pass for fewer activations; a prologue is left without it, since it changes the whole order.

        ``ahead`` ticks are added in what is shown, and a share of the time that is left may be taken. An interrupt ends the
        search; what was found so far remains.
        """
        until = None if self.stop is None else self.stop - (1 - share) * (self.stop - monotonic())
        before = pool.spent

        def told() -> bool:
            self.progress(Progress(pool.best.ticks + ahead, self.spent + pool.spent - before))
            return self.due() or (until is not None and monotonic() > until)

        try:
            pool.search(evaluations - evaluations // TIDY, target, told, part)
            if part != PROLOGUE:
                pool.tidy(evaluations // TIDY, self.due)
        except KeyboardInterrupt:
            self.interrupted = True
        self.spent += pool.spent - before

    def _may_grow_less(self, stage: _Stage, more: int) -> bool:
        """Whether another kernel might take less: not where this one keeps its ranks busy, with pairs only."""
        form = stage.form
        assert form is not None, "made from one"
        least, ticks = form.makespan(TURNS), stage.found.ticks
        pairs = all(len(token) == 2 for kernel in form.kernels for token in kernel)
        return not pairs or least is None or ticks > least + self._ahead(form, more - TURNS)

    def _formed(self, board: Board, least: Problem, more: int, evaluations: int) -> _Stage | None:
        """The best order that repeats a kernel: one of seeds, or of what a search without kernel finds, improved with it."""
        from verifier.search.pool import Pool

        base, turns = self.board(least, board.folded), min(more, least.stages + least.stages % 2)
        plain = Pool(base, board_seeds(base), seed=self.seed)
        forms = self._forms(base, plain.kept, turns)
        if not any(ticks + self._ahead(form, more - turns) <= self.target for ticks, _, form in forms):
            self.run(plain, 0, evaluations // 3, self._ahead(forms[0][2], more) if forms else 0, PLAIN_SHARE)
            forms += self._forms(base, plain.kept, turns)
        if not forms:
            return None
        _, name, form = min(forms, key=lambda found: found[0])
        form = settled(form, turns // form.microbatches)
        pool = Pool(
            base,
            [(name, form.order), *((name, other.order) for _, name, other in forms if other.kernels == form.kernels)],
            kernels=tuple(kernel * (turns // form.microbatches) for kernel in form.kernels),
            microbatches=turns,
            seed=self.seed,
        )
        ahead = self._ahead(form, more - turns)
        self.run(pool, self.target - ahead, evaluations - self.spent, ahead)
        form = replace(form, order=pool.best.order)
        ticks = form.makespan(more // form.microbatches)
        assert ticks is not None, "what runs with a few turns runs with more"
        return _Stage(board, Found(ticks, pool.best.start, form.expanded(more // form.microbatches)), form)

    @staticmethod
    def _ahead(form: KernelForm, microbatches: int) -> int:
        """Ticks that so many more micro-batches of each stage take at least."""
        return microbatches // form.microbatches * form.work()

    def _forms(self, base: Board, orders: Iterable[Found], turns: int) -> list[tuple[int, str, KernelForm]]:
        """Kernels in orders of the base, with the makespan at so many turns; time permitting, but in one order at least."""
        found: list[tuple[int, str, KernelForm]] = []
        for order in orders:
            if found and self.due():
                break
            forms = [place_kernels(base, order.order, kernels, turns) for kernels in known_kernels(base)]
            forms += [own_kernels(base, order.order, turns // size, size) for size in (1, 2)]
            for form in forms:
                ticks = None if form is None else form.makespan(turns // form.microbatches)
                if form is not None and ticks is not None:
                    found.append((ticks, order.start, form))
        return found


def _horizon(board: Board) -> int:
    """Ticks that no order takes: all ops and hops one after the other."""
    stages = board.problem.stages
    total = 0
    for stage, (rank, slot) in enumerate(board.home):
        singles = [max(0, board.span(rank, ((kind, slot),))) for kind in "FBIW"]
        hops = [board.lag(stage, towards) for towards in (-1, 1) if 0 <= stage % stages + towards < stages]
        total += board.counts[stage] * (sum(singles) + sum(hops))
    pairs = max((board.span(rank, token) for rank in range(board.ranks) for token in board.tokens), default=0)
    return total + pairs * sum(board.counts)


def _base(board: Board) -> tuple[Problem, int]:
    """A problem with so many micro-batches that the pipeline fills, and how many more the board has, an even number."""
    problem = board.problem
    fill = -(-2 * problem.stages // board.slots)
    more = (min(problem.microbatches) - fill) // 2 * 2
    if more < problem.stages // 2:
        return problem, 0
    return replace(problem, microbatches=tuple(count - more for count in problem.microbatches)), more
