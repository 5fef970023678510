"""
Why there is a bubble: every stretch in which a rank idles, and the chain of blocks that it waits for.

A block starts when its rank is free and its inputs are there; what came last is its cause. From the block that ends an idle
stretch, the causes lead back to a block that ran already when the stretch began: together they fill it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from verifier.model import Block, Op, Timeline, shown
from verifier.simulate import Simulation, reads


@dataclass(frozen=True)
class Gap:
    """
    A stretch in which a rank idles.

    Attributes
    ----------
    position
        Of the block before which the rank idles; the number of its blocks where all of them are done.
    begin, end
        In ticks.
    chain
        Nodes of the simulation's graph. First the block before which the rank idles, or where the rank is done the block that
        ends last of all; then always the cause of the one before, down to a block that ran already at ``begin``.
    """

    rank: int
    position: int
    begin: int
    end: int
    chain: tuple[int, ...]


def gaps(simulation: Simulation) -> tuple[tuple[Gap, ...], ...]:
    """
    The idle stretches of every rank, in order of time; they add up to ``timeline.idle``. None where the ranks hang.

    Notes
    -----
    Linear in the number of blocks and of the links of all chains. The blocks of a chain run one after the other while the rank
    idles, so that the chains of one rank together have no more links than fit into its idle time.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.simulate import simulate
    >>> simulation = simulate(build_family("1f1b", 4, 8))
    >>> [(gap.begin, gap.end) for gap in gaps(simulation)[0]]
    [(4, 10), (24, 25), (27, 28), (30, 31)]
    """
    timeline = simulation.timeline
    if timeline is None:
        return tuple(() for _ in simulation.first)
    return tuple(tuple(_gaps(simulation, timeline, rank)) for rank in range(len(simulation.first)))


def _gaps(simulation: Simulation, timeline: Timeline, rank: int) -> Iterator[Gap]:
    """The gaps of one rank."""
    busy_until, base = 0, simulation.first[rank]
    position = -1
    for position, (start, span) in enumerate(zip(timeline.start[rank], timeline.duration[rank], strict=True)):
        if start > busy_until:
            yield Gap(rank, position, busy_until, start, _chain(simulation, timeline, base + position, busy_until))
        busy_until = start + span
    if busy_until < timeline.makespan_ticks:
        last, at = simulation.critical_path[-1]
        chain = _chain(simulation, timeline, simulation.first[last] + at, busy_until)
        yield Gap(rank, position + 1, busy_until, timeline.makespan_ticks, chain)


def _chain(simulation: Simulation, timeline: Timeline, node: int, begin: int) -> tuple[int, ...]:
    """A block and its causes, down to one that started no later than the gap began."""
    chain = [node]
    while True:
        rank, position = simulation.where(chain[-1])
        if timeline.start[rank][position] <= begin:
            return tuple(chain)
        # A block that starts later than the gap began starts after 0, and so has a cause.
        chain.append(simulation.cause[chain[-1]])


# ---------------------------------------- in words


def why(simulation: Simulation, gap: Gap) -> str:
    """
    A gap in words.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.simulate import simulate
    >>> simulation = simulate(build_family("1f1b", 4, 8))
    >>> print(why(simulation, gaps(simulation)[1][1]))
    rank 1 idles from 4 to 8: 1B0 needs 2B0 on rank 2 (6 to 8); 2B0 needs 3B0 on rank 3 (4 to 6)
    """
    begin, end = _time(simulation, gap.begin), _time(simulation, gap.end)
    done = gap.position == len(simulation.schedule.order[gap.rank])
    reasons = [f"it is done; {last(simulation)}"] if done else []
    reasons += links(simulation, gap.chain)
    return f"rank {gap.rank} idles from {begin} to {end}: {'; '.join(reasons)}"


def links(simulation: Simulation, chain: Sequence[int]) -> list[str]:
    """
    What every block of a chain but the last waited for; those that a rank ran one after the other are named together.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.simulate import simulate
    >>> simulation = simulate(build_family("1f1b", 4, 8))
    >>> links(simulation, (17, 1, 0)), links(simulation, (2, 1, 0))
    (['1F1 needs 0F1 on rank 0 (1 to 2)', '0F1 runs after 0F0 on rank 0 (0 to 1)'],
     ['0F2 runs after 0F0 to 0F1 on rank 0 (0 to 2)'])
    """
    told, index = [], 0
    while index < len(chain) - 1:
        end = index
        while end < len(chain) - 1 and _follows(simulation, chain[end], chain[end + 1]):
            end += 1
        if end - index < 2:
            told.append(link(simulation, chain[index]))
            index += 1
        else:
            told.append(_busy(simulation, chain[index], chain[index + 1], chain[end]))
            index = end
    return told


def _follows(simulation: Simulation, node: int, before: int) -> bool:
    """Whether a rank runs a block directly behind another."""
    return before == node - 1 and simulation.where(before)[0] == simulation.where(node)[0]


def _busy(simulation: Simulation, node: int, latest: int, earliest: int) -> str:
    """That a block runs after several others of its rank."""
    rank, position = simulation.where(latest)
    timeline, schedule = _timeline(simulation), simulation.schedule
    begin = timeline.start[rank][simulation.where(earliest)[1]]
    end = timeline.start[rank][position] + timeline.duration[rank][position]
    names = [schedule.text(_block(simulation, other)) for other in (node, earliest, latest)]
    when = f"{_time(simulation, begin)} to {_time(simulation, end)}"
    return f"{names[0]} runs after {names[1]} to {names[2]} on rank {rank} ({when})"


def last(simulation: Simulation) -> str:
    """
    Which block ends last of all, in words; empty where none runs.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.simulate import simulate
    >>> last(simulate(build_family("1f1b", 4, 8)))
    'the last to end is 0B7 on rank 0 (31 to 33)'
    """
    return f"the last to end is {_placed(simulation, *simulation.critical_path[-1])}" if simulation.critical_path else ""


def link(simulation: Simulation, node: int) -> str:
    """
    What a block waited for longest, in words: an input, or the block before it on its rank. Empty for one that starts at 0.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.simulate import simulate
    >>> simulation = simulate(build_family("dualpipe", 4, 8))
    >>> link(simulation, 1), link(simulation, 8)
    ('0F1 runs after 0F0 on rank 0 (0 to 1)', "(3F2';0B0) needs 2F2' in (2F2';1B0) on rank 1 (8 to 11)")
    """
    cause = simulation.cause[node]
    if cause < 0:
        return ""
    schedule = simulation.schedule
    block, source = _block(simulation, node), _block(simulation, cause)
    there = _placed(simulation, *simulation.where(cause))
    needed = next((op for made_by, op in inputs(simulation, node) if made_by == cause), None)
    if needed is None:
        return f"{schedule.text(block)} runs after {there}"
    spoken = schedule.spoken(needed)
    # An op of a pair is named before the pair that it runs in.
    what = there if spoken == schedule.text(source) else f"{spoken} in {there}"
    hop = simulation.costs.hop_ticks(simulation.where(cause)[0], simulation.where(node)[0])
    return f"{schedule.text(block)} needs {what}" + (f" and {_time(simulation, hop)} on the way" if hop else "")


def inputs(simulation: Simulation, node: int) -> Iterator[tuple[int, Op]]:
    """
    What a block reads from other blocks: the node that makes it, and the op.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.simulate import simulate
    >>> simulation = simulate(build_family("1f1b", 4, 8))
    >>> [(simulation.where(source), str(op)) for source, op in inputs(simulation, 4)]
    [((0, 0), '0F0'), ((1, 3), '1I0')]
    """
    made_before = [(source, _block(simulation, source).ops) for source in simulation.graph.pred[node]]
    for own in _block(simulation, node).ops:
        for needed in reads(own, simulation.schedule.problem.stages):
            source = next((source for source, ops in made_before if needed in ops), None)
            if source is not None:
                yield source, needed


def _placed(simulation: Simulation, rank: int, position: int) -> str:
    """A block, where and when it runs."""
    timeline = _timeline(simulation)
    start, span = timeline.start[rank][position], timeline.duration[rank][position]
    block = simulation.schedule.order[rank][position]
    when = f"{_time(simulation, start)} to {_time(simulation, start + span)}"
    return f"{simulation.schedule.text(block)} on rank {rank} ({when})"


def _timeline(simulation: Simulation) -> Timeline:
    assert simulation.timeline is not None, "only of blocks that run"
    return simulation.timeline


def _block(simulation: Simulation, node: int) -> Block:
    rank, position = simulation.where(node)
    return simulation.schedule.order[rank][position]


def _time(simulation: Simulation, ticks: int) -> str:
    return shown(Fraction(ticks, simulation.costs.ticks_per_unit))
