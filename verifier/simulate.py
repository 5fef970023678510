"""
What the ranks would do: earliest timeline, memory, critical path, and the circle of waiting blocks where they hang.

The model is a dependency graph (networkx): a node per block, an edge wherever a block has to wait. The earliest timeline is
its longest path. This module knows nothing of ``rules``: it asks what a block *reads*, as a runtime does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from verifier.costs import CostModel
from verifier.model import Block, Op, Schedule, Timeline, Witness

if TYPE_CHECKING:
    import networkx as nx

    Graph = nx.DiGraph[int]


@dataclass(frozen=True)
class Simulation:
    """
    What came of running a schedule.

    Attributes
    ----------
    timeline
        Every block at its earliest start, or None where the ranks hang.
    circle
        The shortest circle of ranks that wait for each other, or None.
    graph
        The dependency graph. Node ``first[rank] + position`` is a block; edge data ``lag`` is the least time from start to
        start, in ticks.
    """

    schedule: Schedule
    costs: CostModel
    timeline: Timeline | None
    circle: Witness | None
    graph: Graph = field(repr=False, compare=False)
    first: tuple[int, ...] = field(repr=False)
    cause: tuple[int, ...] = field(repr=False)

    @cached_property
    def held_steps(self) -> tuple[tuple[int, ...], ...]:
        """
        ``held_steps[rank][position]``: activations that a rank holds while it runs a block.

        In steps, of which the costs' ``steps_per_activation`` make a stage unit.
        """
        costs, profile = self.costs, []
        for row in self.schedule.order:
            live, during = 0, []
            for block in row:
                steps = [(op.kind == "F", costs.activation_steps(op)) for op in block.ops]
                live += sum(step for takes, step in steps if takes)
                during.append(live)
                live += sum(step for takes, step in steps if not takes)
            profile.append(tuple(during))
        return tuple(profile)

    @cached_property
    def peak_activations(self) -> tuple[Fraction, ...]:
        """Most activations that each rank ever holds, in stage units; it follows from the order alone."""
        scale = self.costs.steps_per_activation
        return tuple(Fraction(max((0, *during)), scale) for during in self.held_steps)

    @cached_property
    def overlapped(self) -> tuple[int, ...]:
        """Overlapped pairs per rank."""
        return tuple(sum("&" in block.kind for block in row) for row in self.schedule.order)

    @cached_property
    def critical_path(self) -> tuple[tuple[int, int], ...]:
        """A chain of (rank, position) without slack, from the start to the makespan; empty where the ranks hang."""
        if self.timeline is None:
            return ()
        ends = [
            (start + span, -rank, rank, position)
            for rank, (starts, spans) in enumerate(zip(self.timeline.start, self.timeline.duration, strict=True))
            for position, (start, span) in enumerate(zip(starts, spans, strict=True))
        ]
        _, _, rank, position = max(ends)
        path = [(rank, position)]
        while (node := self.cause[self.first[path[-1][0]] + path[-1][1]]) >= 0:
            path.append(self.where(node))
        return tuple(reversed(path))

    def where(self, node: int) -> tuple[int, int]:
        """The (rank, position) of a node of the graph."""
        return _where(self.first, node)


def simulate(schedule: Schedule, costs: CostModel | None = None) -> Simulation:
    """
    Run every block as early as its rank and its inputs allow.

    Parameters
    ----------
    schedule
        Any order. What is missing from it holds nobody up; of an op that runs twice the first counts.
    costs
        Default F = I = W = 1, FB = 3, no hop time.

    Notes
    -----
    Linear in the number of ops.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> simulate(build_family("dualpipe", 4, 8)).timeline.makespan
    Fraction(26, 1)
    """
    import networkx as nx

    costs = costs or CostModel.of()
    order = schedule.order
    first, total = [], 0
    for row in order:
        first.append(total)
        total += len(row)
    producer = _producers(schedule, first)
    graph = _graph(schedule, costs, first, total, producer)
    start, cause, done = [0] * total, [-1] * total, [False] * total
    successors = graph.adj
    try:
        for node in nx.topological_sort(graph):
            done[node] = True
            begin = start[node]
            for after, edge in successors[node].items():
                ready = begin + edge["lag"]
                if ready > start[after] or (cause[after] < 0 and ready == start[after]):
                    start[after], cause[after] = ready, node
    except nx.NetworkXUnfeasible:
        circle = _circle(schedule, first, producer, done)
        return Simulation(schedule, costs, None, circle, graph, tuple(first), tuple(cause))
    timeline = Timeline(
        schedule,
        tuple(tuple(start[base : base + len(row)]) for base, row in zip(first, order, strict=True)),
        tuple(tuple(costs.ticks(block) for block in row) for row in order),
        costs.ticks_per_unit,
    )
    return Simulation(schedule, costs, timeline, None, graph, tuple(first), tuple(cause))


def reads(op: Op, stages: int) -> tuple[Op, ...]:
    """
    The ops whose results an op reads: activations flow up the stages, gradients down, and both backwards need the forward.

    >>> [str(op) for op in reads(Op("I", 0, 2, 5), stages=4)]
    ['2F5', '3I5']
    """
    kind, direction, stage, microbatch = op
    if stage >= stages:
        return ()  # no such stage: nobody can hold it up
    if kind == "W":
        return (Op("I", direction, stage, microbatch),)
    if kind == "F":
        return (Op("F", direction, stage - 1, microbatch),) if stage else ()
    own = Op("F", direction, stage, microbatch)
    return (own,) if stage == stages - 1 else (own, Op("I", direction, stage + 1, microbatch))


def _producers(schedule: Schedule, first: list[int]) -> dict[Op, int]:
    """The node that first runs each op."""
    producer: dict[Op, int] = {}
    for base, row in zip(first, schedule.order, strict=True):
        for node, block in enumerate(row, base):
            for op in block.ops:
                producer.setdefault(op, node)
    return producer


def _graph(schedule: Schedule, costs: CostModel, first: list[int], total: int, producer: dict[Op, int]) -> Graph:
    """Who waits for whom: the block before it on the rank, and the blocks whose results it reads."""
    import networkx as nx

    graph: Graph = nx.DiGraph()
    graph.add_nodes_from(range(total))
    stages = schedule.problem.stages
    rank_of = [rank for rank, row in enumerate(schedule.order) for _ in row]
    span = [costs.ticks(block) for row in schedule.order for block in row]

    def edges() -> Iterator[tuple[int, int, int]]:
        for rank, (base, row) in enumerate(zip(first, schedule.order, strict=True)):
            for node, block in enumerate(row, base):
                if node > base:
                    yield node - 1, node, span[node - 1]
                for op in block.ops:
                    for needed in reads(op, stages):
                        source = producer.get(needed, -1)
                        if source >= 0 and not (source == node and _inside_backward(block, op)):
                            yield source, node, span[source] + costs.hop_ticks(rank_of[source], rank)

    graph.add_weighted_edges_from(edges(), weight="lag")
    return graph


def _inside_backward(block: Block, op: Op) -> bool:
    """Whether the op is the W of a full backward in this block: its I comes first inside, and nobody waits."""
    return op.kind == "W" and any(part.kind == "B" and part[1:] == op[1:] for part in block.parts)


def _circle(schedule: Schedule, first: list[int], producer: dict[Op, int], done: list[bool]) -> Witness:
    """The shortest circle over the ranks' first blocked blocks; going along one rank counts as one step."""
    stages = schedule.problem.stages
    head: dict[int, int] = {}
    for rank, (base, row) in enumerate(zip(first, schedule.order, strict=True)):
        for node in range(base, base + len(row)):
            if not done[node]:
                head[rank] = node
                break
    waits: dict[int, dict[int, tuple[Op, Op]]] = {}
    for rank, node in head.items():
        block = schedule.order[rank][node - first[rank]]
        waits[rank] = {}
        for op in block.ops:
            for needed in reads(op, stages):
                source = producer.get(needed, -1)
                if source >= 0 and not done[source] and not (source == node and _inside_backward(block, op)):
                    waits[rank].setdefault(_where(first, source)[0], (op, needed))
    ring = shortest_circle({rank: tuple(others) for rank, others in waits.items()})
    steps = []
    for rank, after in zip(ring, ring[1:] + ring[:1], strict=True):
        block, needed = schedule.order[rank][head[rank] - first[rank]], waits[rank][after][1]
        steps.append(
            f"{schedule.place(rank, head[rank] - first[rank])} at {schedule.text(block)} needs {schedule.spoken(needed)}"
        )
    rank, node = ring[0], head[ring[0]]
    position = node - first[rank]
    blocked = schedule.text(schedule.order[rank][position])
    if len(ring) == 1:
        needed = waits[rank][rank][1]
        text = f"{schedule.place(rank, position)}: {blocked} needs {schedule.spoken(needed)}, "
        if producer[needed] == node:
            text += "which is inside the same block"
        else:
            text += f"which runs later on the same rank; move it after {schedule.spoken(needed)}"
    else:
        text = f"{len(ring)} blocks wait in a circle: {' -> '.join(steps)} -> {steps[0].partition(' needs ')[0]}"
    return Witness(text, rank, position, blocked)


def shortest_circle(waits: dict[int, tuple[int, ...]]) -> list[int]:
    """
    The shortest circle of a small directed graph, starting at its least node.

    Every stuck rank waits for another stuck rank, so a circle exists. A node that was searched from is taken out, and what
    then waits for nobody goes with it; a search stops at the length of the best circle. So a long ring costs one search.

    >>> shortest_circle({0: (1,), 1: (2,), 2: (0, 3), 3: (2,)})
    [2, 3]
    """
    graph = {node: set(others) & waits.keys() for node, others in waits.items()}
    waited_by: dict[int, list[int]] = {node: [] for node in graph}
    for node, others in graph.items():
        for other in others:
            waited_by[other].append(node)
    best: list[int] = []
    loose = [node for node, others in graph.items() if not others]
    for source in sorted(graph):
        while loose:
            _remove(loose.pop(), graph, waited_by, loose)
        if source in graph:
            best = _circle_through(source, graph, len(best) or len(graph) + 1) or best
            _remove(source, graph, waited_by, loose)
    turn = best.index(min(best))
    return best[turn:] + best[:turn]


def _remove(node: int, graph: dict[int, set[int]], waited_by: dict[int, list[int]], loose: list[int]) -> None:
    """Take a node out; whoever then waits for nobody is noted as loose."""
    graph.pop(node, None)
    for waiter in waited_by[node]:
        if waiter in graph and node in graph[waiter]:
            graph[waiter].discard(node)
            if not graph[waiter]:
                loose.append(waiter)


def _circle_through(source: int, graph: dict[int, set[int]], below: int) -> list[int]:
    """The shortest circle through one node with fewer than ``below`` steps, breadth first; empty where there is none."""
    depth, parent = {source: 1}, {source: source}
    queue = deque([source])
    while queue:
        node = queue.popleft()
        if depth[node] >= below:
            break
        for other in sorted(graph[node]):
            if other == source:
                path = [node]
                while path[-1] != source:
                    path.append(parent[path[-1]])
                return path[::-1]
            if other not in parent:
                parent[other], depth[other] = node, depth[node] + 1
                queue.append(other)
    return []


def _where(first: Sequence[int], node: int) -> tuple[int, int]:
    """The (rank, position) of a node."""
    rank = bisect_right(first, node) - 1
    # Ranks without blocks share their first node with the next rank, which is the one that owns it.
    return rank, node - first[rank]
