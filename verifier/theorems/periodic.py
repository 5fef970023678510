"""
A schedule as prologue, kernel and epilogue, and the same schedule with more kernel periods.

On every rank a window of the order, its kernel, holds each job of each of the rank's stages equally often, n times. Behind it
go k further copies, the j-th for micro-batches that are j n later, and what stands behind the window moves on by k n. Nothing
has to repeat in the given schedule for that; where something does, all windows of one repeating stretch give the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from verifier.model import Block, Op, Problem, Schedule, ScheduleError

Window = tuple[int, int]
"""Positions ``[start, end)`` of a rank's order."""

MAX_PERIOD = 32
"""Micro-batches of each direction in the longest kernel that is looked for; every length costs a pass over the order."""
MAX_CHOICES = 20
"""Places per rank that are looked at more closely."""


@dataclass(frozen=True)
class Split:
    """
    Where the kernel of a schedule lies on every rank.

    Parameters
    ----------
    schedule
        A complete order; all directions have the same number of micro-batches.
    period
        n, micro-batches of each direction that one kernel period serves.
    windows
        ``windows[rank]`` holds the kernel; see :func:`candidates`.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> split = first_split(build_family("1f1b", 2, 4))
    >>> split.period, split.windows, [str(block) for block in split.kernel(0)]
    (1, ((1, 3), (0, 2)), ['0F1', '0B0'])
    """

    schedule: Schedule
    period: int
    windows: tuple[Window, ...]

    @property
    def microbatches_per_period(self) -> int:
        """Micro-batches over all directions that one kernel period serves."""
        return self.period * self.schedule.problem.directions

    def kernel(self, rank: int) -> tuple[Block, ...]:
        """The blocks of one period on a rank."""
        start, end = self.windows[rank]
        return self.schedule.order[rank][start:end]

    def moved(self, periods: int) -> Split:
        """The split of the schedule with more periods, its kernel being the last of them."""
        lengths = [end - start for start, end in self.windows]
        windows = tuple((s + periods * n, e + periods * n) for (s, e), n in zip(self.windows, lengths, strict=True))
        return Split(insert_kernels(self, periods), self.period, windows)


def insert_kernels(split: Split, periods: int) -> Schedule:
    """
    The schedule with more kernel periods.

    Parameters
    ----------
    split
        A schedule and its kernel.
    periods
        k >= 0.

    Raises
    ------
    ScheduleError
        If k is negative.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> longer = insert_kernels(first_split(build_family("dualpipe", 4, 10)), 3)
    >>> longer.name, longer == build_family("dualpipe", 4, 16)
    ('dualpipe P=4 M=10, 3 kernel periods more', True)
    """
    if periods < 0:
        raise ScheduleError(f"{split.schedule.name}: {periods} kernel periods more; expected at least 0")
    schedule, order = split.schedule, []
    counts = tuple(count + periods * split.period for count in schedule.problem.microbatches)
    problem = Problem(schedule.problem.placement, counts)  # first, since it refuses what is too large
    for row, (start, end) in zip(schedule.order, split.windows, strict=True):
        copies = (_shifted(block, j * split.period) for j in range(1, periods + 1) for block in row[start:end])
        rest = (_shifted(block, periods * split.period) for block in row[end:])
        order.append((*row[:end], *copies, *rest))
    plural = "period" if periods == 1 else "periods"
    name = f"{schedule.name}, {periods} kernel {plural} more" if periods else schedule.name
    return Schedule(problem, tuple(order), name)


def _shifted(block: Block, microbatches: int) -> Block:
    """The block for later micro-batches."""
    if not microbatches:
        return block
    return Block(tuple(op._replace(microbatch=op.microbatch + microbatches) for op in block.ops))


# ---------------------------------------- finding kernels


@dataclass(frozen=True)
class Stretch:
    """
    Windows of one rank that give the same order: a stretch of the order that repeats, if only by itself.

    Attributes
    ----------
    window
        The first of them.
    choices
        How many there are; at least as many as the window is long where the stretch holds the kernel twice.
    """

    window: Window
    choices: int


def candidates(schedule: Schedule, period: int) -> tuple[tuple[Stretch, ...], ...] | None:
    """
    Per rank, where a kernel of n micro-batches of each direction can lie, the longest repetition first.

    Returns
    -------
    None where some rank has no such place.

    Notes
    -----
    Linear in the number of ops, for each n.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> candidates(build_family("1f1b", 2, 4), 1)[1]
    (Stretch(window=(0, 2), choices=7),)
    """
    found = []
    for rank in range(schedule.problem.ranks):
        row = schedule.order[rank]
        longest = sorted(_stretches(schedule, rank, period), key=lambda stretch: -stretch.choices)[:MAX_CHOICES]
        stretches = tuple(stretch for stretch in longest if _renumbers(row, stretch.window, period))
        if not stretches:
            return None
        found.append(stretches)
    return tuple(found)


def first_split(schedule: Schedule) -> Split:
    """
    The split with the shortest kernel, on every rank in the stretch that repeats longest.

    Raises
    ------
    ScheduleError
        If the schedule has no kernel at all.
    """
    for split in splits(schedule):
        return split
    raise ScheduleError(f"{schedule.name}: no stretch of every rank's order runs all its jobs equally often")


def splits(schedule: Schedule) -> Iterator[Split]:
    """For each length of the kernel, the shortest first, the split that lies where most repeats."""
    for period in range(1, min(MAX_PERIOD, *schedule.problem.microbatches) + 1):
        if found := candidates(schedule, period):
            yield Split(schedule, period, tuple(stretches[0].window for stretches in found))


def _stretches(schedule: Schedule, rank: int, period: int) -> Iterator[Stretch]:
    """Neighbouring windows belong together where the later begins with what follows the earlier, n micro-batches on."""
    row = schedule.order[rank]
    run: list[Window] = []
    for window in _windows(schedule, rank, period):
        if run:
            start, end = run[-1]
            follows = window == (start + 1, end + 1) and row[end] == _shifted(row[start], period)
            if not follows:
                yield Stretch(run[0], len(run))
                run = []
        run.append(window)
    if run:
        yield Stretch(run[0], len(run))


def _windows(schedule: Schedule, rank: int, period: int) -> Iterator[Window]:
    """Windows with every job of the rank's stages n times."""
    row = schedule.order[rank]
    wanted = 3 * period * len(schedule.problem.stages_on(rank))
    inside: Counter[Op] = Counter()
    end = held = 0
    for start in range(len(row)):
        while end < len(row) and held < wanted:
            _count(inside, row[end], 1)
            held += len(row[end].ops)
            end += 1
        if held < wanted:
            return
        if held == wanted and len(inside) * period == wanted and all(count == period for count in inside.values()):
            yield start, end
        _count(inside, row[start], -1)
        held -= len(row[start].ops)


def _count(counts: Counter[Op], block: Block, sign: int) -> None:
    for op in block.ops:
        job = op._replace(microbatch=0)
        counts[job] += sign
        if not counts[job]:
            del counts[job]


def _renumbers(row: tuple[Block, ...], window: Window, period: int) -> bool:
    """
    Whether the copies serve exactly the micro-batches that the moved ones leave free.

    With n for the period, A for the micro-batches of a job behind the window and K for those inside: the sets must fulfil
    1[K+n] = 1[M, M+n) + 1[A] - 1[A+n]. Shifted by n, 2n, ... and added up, that says it for every number of periods.
    """
    start, end = window
    balance: Counter[Op] = Counter()
    totals: Counter[Op] = Counter()
    for position, block in enumerate(row):
        for op in block.ops:
            totals[op._replace(microbatch=0)] += 1
            if start <= position < end:
                balance[op._replace(microbatch=op.microbatch + period)] += 1
            elif position >= end:
                balance[op] -= 1
                balance[op._replace(microbatch=op.microbatch + period)] += 1
    for job, total in totals.items():
        balance.subtract(job._replace(microbatch=total + step) for step in range(period))
    return not any(balance.values())


def with_window(split: Split, rank: int, window: Window) -> Split:
    """The split with the kernel of one rank elsewhere."""
    windows = (*split.windows[:rank], window, *split.windows[rank + 1 :])
    return replace(split, windows=windows)
