"""
How busy the ranks are, and when: the stretch in which no rank idles, the steady window, and where a stuck order stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from verifier.model import Block, Timeline, plain
from verifier.simulate import Simulation, simulate


@dataclass(frozen=True)
class Window:
    """
    A stretch of time and how busy every rank is inside it, in the unit of the costs.

    Parameters
    ----------
    start, end
        With ``start < end``.
    busy
        ``busy[rank]``: time inside the window that the rank works.
    """

    start: Fraction
    end: Fraction
    busy: tuple[Fraction, ...]

    @property
    def utilisation(self) -> tuple[Fraction, ...]:
        """Busy time as a share of the window, per rank."""
        return tuple(busy / (self.end - self.start) for busy in self.busy)

    @property
    def overall(self) -> Fraction:
        """Busy time of all ranks as a share of ranks times window."""
        return sum(self.utilisation, Fraction(0)) / len(self.busy)

    def as_json(self) -> dict[str, object]:
        """The window as ``show --json`` carries it."""
        return {
            "from": plain(self.start),
            "to": plain(self.end),
            "utilisation": plain(self.overall),
            "per_rank": [plain(share) for share in self.utilisation],
        }


def whole(timeline: Timeline) -> Window | None:
    """
    From 0 to the makespan; None where nothing takes time.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.simulate import simulate
    >>> str(whole(simulate(build_family("dualpipe", 8, 20)).timeline).overall)
    '10/11'
    """
    return _window(timeline, 0, timeline.makespan_ticks)


def steady(timeline: Timeline) -> Window | None:
    """
    From when the last rank has started until the first rank is done; None where one is done before another starts.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.simulate import simulate
    >>> window = steady(simulate(build_family("1f1b", 4, 8)).timeline)
    >>> str(window.start), str(window.end), str(window.overall)
    ('3', '27', '27/32')
    """
    if not all(timeline.start):
        return None
    begin = max(starts[0] for starts in timeline.start)
    end = min(starts[-1] + spans[-1] for starts, spans in zip(timeline.start, timeline.duration, strict=True))
    return _window(timeline, begin, end)


def all_busy(timeline: Timeline) -> Window | None:
    """
    The longest stretch in which no rank idles, the first of them where several are as long; None where there is none.

    Notes
    -----
    O(n log n) in the number of blocks.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.simulate import simulate
    >>> window = all_busy(simulate(build_family("gpipe", 4, 8)).timeline)
    >>> str(window.start), str(window.end)
    ('17', '27')
    """
    ranks = len(timeline.start)
    # At one moment ends come before beginnings, so that ranks that take turns are not counted together.
    changes = sorted(
        change for rank in range(ranks) for begin, end in _stretches(timeline, rank) for change in ((end, -1), (begin, 1))
    )
    busy, since, best = 0, 0, (0, 0)
    for moment, change in changes:
        if busy == ranks and moment - since > best[1] - best[0]:
            best = (since, moment)
        busy += change
        if busy == ranks:
            since = moment
    return _window(timeline, *best)


def windows_json(timeline: Timeline | None) -> dict[str, object]:
    """
    What ``show --json`` says about use: overall, in the steady window, and when no rank idles; null where there is none.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.simulate import simulate
    >>> windows_json(simulate(build_family("1f1b", 2, 4)).timeline)["no_rank_idles"]
    {'from': 4, 'to': 12}
    """
    written: dict[str, object] = dict.fromkeys(("whole", "steady", "no_rank_idles"))
    if timeline is None:
        return written
    for name, window in (("whole", whole(timeline)), ("steady", steady(timeline))):
        written[name] = window.as_json() if window else None
    busy = all_busy(timeline)
    written["no_rank_idles"] = {"from": plain(busy.start), "to": plain(busy.end)} if busy else None
    return written


def reached(simulation: Simulation) -> tuple[int, ...]:
    """
    How many blocks of each rank ever run: all of them, or where the ranks hang, those before the first blocked one.

    Examples
    --------
    >>> from verifier.model import Block, Problem, Schedule
    >>> from verifier.simulate import simulate
    >>> rows = (("0F0", "0B0", "0F1", "0B1"), ("1F1", "1F0", "1B1", "1B0"))
    >>> order = tuple(tuple(map(Block.parse, row)) for row in rows)
    >>> reached(simulate(Schedule(Problem(((0, 1),), (2,)), order)))
    (1, 0)
    """
    import networkx as nx

    counts = [0] * len(simulation.first)
    try:
        for node in nx.topological_sort(simulation.graph):
            counts[simulation.where(node)[0]] += 1
    except nx.NetworkXUnfeasible:
        pass
    return tuple(counts)


def as_far_as_it_runs(simulation: Simulation) -> tuple[Simulation, tuple[Block | None, ...]]:
    """
    The simulation itself; or where the ranks hang, that of the blocks before, and the block that each rank is stuck at.

    What comes before the first blocked blocks does not wait for them, so that the first value has a timeline.

    Examples
    --------
    >>> from verifier.model import Problem, Schedule
    >>> rows = (("0F0", "0B0", "0F1", "0B1"), ("1F1", "1F0", "1B1", "1B0"))
    >>> order = tuple(tuple(map(Block.parse, row)) for row in rows)
    >>> run, stuck = as_far_as_it_runs(simulate(Schedule(Problem(((0, 1),), (2,)), order)))
    >>> str(run.timeline.makespan), [str(block) for block in stuck]
    ('1', ['0B0', '1F1'])
    """
    if simulation.timeline is not None:
        return simulation, ()
    schedule, counts = simulation.schedule, reached(simulation)
    done = tuple(row[:count] for row, count in zip(schedule.order, counts, strict=True))
    stuck = tuple(row[count] if count < len(row) else None for row, count in zip(schedule.order, counts, strict=True))
    return simulate(replace(schedule, order=done), simulation.costs), stuck


def _stretches(timeline: Timeline, rank: int) -> Iterator[tuple[int, int]]:
    """When a rank works without a break, in ticks; blocks that take no time do not count."""
    begin = end = 0
    for start, span in zip(timeline.start[rank], timeline.duration[rank], strict=True):
        if start > end:
            if end > begin:
                yield begin, end
            begin = start
        end = start + span
    if end > begin:
        yield begin, end


def _window(timeline: Timeline, begin: int, end: int) -> Window | None:
    """The window between two moments in ticks; None where it is empty."""
    if begin >= end:
        return None
    scale = timeline.ticks_per_unit
    busy = tuple(
        Fraction(sum(max(0, min(to, end) - max(since, begin)) for since, to in _stretches(timeline, rank)), scale)
        for rank in range(len(timeline.start))
    )
    return Window(Fraction(begin, scale), Fraction(end, scale), busy)
