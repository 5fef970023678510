"""
What a schedule and all its longer versions have in common: inequalities, timelines and paths for any number of kernel periods.

S_k is the schedule with k kernel periods more (``periodic``). ``bubble`` says what follows from what is found here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from verifier.costs import CostModel
from verifier.model import Block, Op
from verifier.simulate import reads, simulate
from verifier.theorems.periodic import Split, insert_kernels

Edge = tuple[int, int, int, int]
"""``(u, v, d, lag)``: copy j + d of block v starts at least ``lag`` ticks after copy j of block u starts."""
FRONT, KERNEL, BEHIND = 0, 1, 2
Node = tuple[int, int]
"""A block of S_0, by its number over all ranks, and which copy of it."""


class Pattern:
    """
    What S_0, S_1, S_2, ... have in common: blocks, their durations, and who waits for whom at what distance in copies.

    Parameters
    ----------
    split
        A schedule and its kernel.
    costs
        What blocks take.
    """

    def __init__(self, split: Split, costs: CostModel) -> None:
        self.split = split
        schedule = split.schedule
        self.first: list[int] = []
        blocks: list[Block] = []
        self.rank: list[int] = []
        self.zone: list[int] = []
        for rank, (row, (start, end)) in enumerate(zip(schedule.order, split.windows, strict=True)):
            self.first.append(len(blocks))
            blocks += row
            self.rank += [rank] * len(row)
            self.zone += [FRONT] * start + [KERNEL] * (end - start) + [BEHIND] * (len(row) - end)
        self.span = [costs.ticks(block) for block in blocks]
        self.costs = costs
        self.where: dict[Op, dict[int, int]] = {}
        for number, block in enumerate(blocks):
            for op in block.ops:
                self.where.setdefault(op._replace(microbatch=0), {})[op.microbatch] = number

    @cached_property
    def edges(self) -> frozenset[Edge]:
        """All that S_k asks for, for every k."""
        return frozenset(self._along_ranks()) | frozenset(self._reads())

    @cached_property
    def largest_base(self) -> int:
        """K: from S_K on, more copies add no inequality that is not among those before."""
        return max([1, *(self._base(job, needed) for job, needed in self._pairs())])

    def busy(self, rank: int) -> int:
        """Ticks that one period takes on a rank."""
        start, end = (self.first[rank] + position for position in self.split.windows[rank])
        return sum(self.span[start:end])

    def _along_ranks(self) -> Iterator[Edge]:
        for base, row, (start, end) in zip(self.first, self.split.schedule.order, self.split.windows, strict=True):
            for node in range(base, base + len(row) - 1):
                yield node, node + 1, 0, self.span[node]
            yield base + end - 1, base + start, 1, self.span[base + end - 1]

    def _pairs(self) -> Iterator[tuple[Op, Op]]:
        """Every job and a job that it reads, of micro-batch 0."""
        for job in self.where:
            for needed in reads(job, self.split.schedule.problem.stages):
                yield job, needed

    def _base(self, job: Op, needed: Op) -> int:
        return max(1, (self._front(job, needed) - self._behind(job, needed)) // self.split.period)

    def _front(self, *jobs: Op) -> int:
        """The largest micro-batch that one of the jobs has in front of the copies."""
        return max(b for job in jobs for b, node in self.where[job].items() if self.zone[node] < BEHIND)

    def _behind(self, *jobs: Op) -> int:
        """The smallest micro-batch that one of the jobs has in the kernel or behind it."""
        return min(b for job in jobs for b, node in self.where[job].items() if self.zone[node] > FRONT)

    def _reads(self) -> Iterator[Edge]:
        for job, needed in self._pairs():
            total, period = len(self.where[job]), self.split.period
            lag = self.costs.hop_ticks(self.rank[self.where[needed][0]], self.rank[self.where[job][0]])
            low, high = self._behind(job, needed), self._front(job, needed)
            for k in range(self._base(job, needed) + 1):
                # Outside this range both blocks stand in front or both behind, as they do in S_0.
                for b in range(low, high + k * period + 1) if k else range(total):
                    (u, j), (v, i) = self._image(needed, b, k), self._image(job, b, k)
                    # The W of a full backward comes after its I inside the block.
                    if not (job.kind == "W" and u == v and i == j):
                        yield u, v, i - j, self.span[u] + lag

    def _image(self, job: Op, b: int, k: int) -> Node:
        """The block of S_0, and which copy of it, that does a job for micro-batch b in S_k."""
        numbers, period = self.where[job], self.split.period
        if b < len(numbers) and self.zone[numbers[b]] < BEHIND:
            return numbers[b], 0
        inner = self._inner[job][b % period]
        copy = (b - inner) // period
        return (numbers[inner], copy) if 1 <= copy <= k else (numbers[b - k * period], k)

    @cached_property
    def _inner(self) -> dict[Op, dict[int, int]]:
        """Per job, the micro-batch in the kernel by its remainder: one of each, since the numbers come out right."""
        period = self.split.period
        return {
            job: {b % period: b for b, node in numbers.items() if self.zone[node] == KERNEL}
            for job, numbers in self.where.items()
        }


# ---------------------------------------- timelines for all k


def slope(pattern: Pattern) -> tuple[Fraction, tuple[Edge, ...]]:
    """
    The least T for which the kernel can repeat, and a circuit of kernel blocks that takes as long.

    The greatest ratio of ticks to copies over the circuits of the kernel's inequalities, found by moving on from one circuit
    that takes longer than T allows to the next.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.theorems.periodic import first_split
    >>> slope(Pattern(first_split(build_family("1f1b", 2, 4)), CostModel.of(hop=1)))[0]
    Fraction(4, 1)
    """
    inner = [edge for edge in pattern.edges if pattern.zone[edge[0]] == pattern.zone[edge[1]] == KERNEL]
    ratio = Fraction(0)
    circuit: tuple[Edge, ...] = ()
    while found := _positive_circuit(inner, ratio):
        copies = sum(d for _, _, d, _ in found)
        if copies <= 0:
            raise HangsError
        ratio, circuit = Fraction(sum(lag for *_, lag in found), copies), found
    return ratio, circuit


class HangsError(Exception):
    """Some S_k has a circle of waiting blocks."""


def _positive_circuit(edges: Sequence[Edge], ratio: Fraction) -> tuple[Edge, ...]:
    """A circuit that takes longer than ``ratio`` per copy; empty where there is none. Bellman and Ford's method."""
    scale, per_copy = ratio.denominator, ratio.numerator
    weights = [(u, v, lag * scale - d * per_copy, (u, v, d, lag)) for u, v, d, lag in edges]
    nodes = {u for u, *_ in edges}
    far, cause = dict.fromkeys(nodes, 0), {}
    last = None
    for _ in range(len(nodes) + 1):
        last = None
        for u, v, weight, edge in weights:
            if far[u] + weight > far[v]:
                far[v], cause[v], last = far[u] + weight, edge, v
        if last is None:
            return ()
    node = last
    assert node is not None
    for _ in range(len(nodes)):
        node = cause[node][0]
    circuit = [cause[node]]
    while circuit[-1][0] != node:
        circuit.append(cause[circuit[-1][0]])
    return tuple(reversed(circuit))


def potentials(pattern: Pattern, per_copy: Fraction, limit: Fraction | None = None) -> list[int] | None:
    """
    Start times x of the blocks of S_0 with which all inequalities hold, the least ones, in ticks over T's denominator.

    Parameters
    ----------
    per_copy
        T, in ticks.
    limit
        Latest end that is allowed, in ticks.

    Returns
    -------
    None where there are none within the limit.
    """
    scale, step = per_copy.denominator, per_copy.numerator
    after: list[list[tuple[int, int]]] = [[] for _ in pattern.span]
    for u, v, d, lag in pattern.edges:
        after[u].append((v, lag * scale - d * step))
    spans = [span * scale for span in pattern.span]
    most = sum(spans) + scale * len(spans) if limit is None else int(limit * scale)
    start = [0] * len(spans)
    waiting, queued = deque(range(len(spans))), [True] * len(spans)
    while waiting:
        u = waiting.popleft()
        queued[u] = False
        begin = start[u]
        if begin + spans[u] > most:
            return None
        for v, weight in after[u]:
            if begin + weight > start[v]:
                start[v] = begin + weight
                if not queued[v]:
                    queued[v] = True
                    waiting.append(v)
    return start


# ---------------------------------------- paths for all k


@dataclass(frozen=True)
class Path:
    """
    A path of S_b whose middle part can be run again.

    Attributes
    ----------
    base
        b.
    nodes
        (rank, position) in S_b, each a block that waits for the one before.
    middle
        The indices in ``nodes`` of copy j and of copy j + p of one kernel block.
    copies
        p.
    length, again
        Ticks of the whole path, and of its middle part.
    """

    base: int
    nodes: tuple[tuple[int, int], ...]
    middle: tuple[int, int]
    copies: int
    length: int
    again: int


class _Reach:
    """Longest paths of S_b that end, or begin, at copies of kernel blocks."""

    def __init__(self, pattern: Pattern, base: int) -> None:
        import networkx as nx

        self.base = base
        self.windows = pattern.split.windows
        self.simulation = simulate(insert_kernels(pattern.split, base), pattern.costs)
        graph = self.simulation.graph
        order = list(nx.topological_sort(graph))
        self.zone = [self._zone(*self.simulation.where(node)) for node in range(len(order))]
        self.ticks = [pattern.costs.ticks(block) for row in self.simulation.schedule.order for block in row]
        self.head, self.tail = [0] * len(order), list(self.ticks)
        self.before, self.after = [-1] * len(order), [-1] * len(order)
        for node in order:
            if self.zone[node] < BEHIND:
                for other, edge in graph.adj[node].items():
                    if self.zone[other] < BEHIND and self.head[node] + edge["lag"] > self.head[other]:
                        self.head[other], self.before[other] = self.head[node] + edge["lag"], node
        for node in reversed(order):
            if self.zone[node] > FRONT:
                for other, edge in graph.pred[node].items():
                    if self.zone[other] > FRONT and self.tail[node] + edge["lag"] > self.tail[other]:
                        self.tail[other], self.after[other] = self.tail[node] + edge["lag"], node

    def _zone(self, rank: int, position: int) -> int:
        start, end = self.windows[rank]
        last = end + self.base * (end - start)
        return FRONT if position < start else KERNEL if position < last else BEHIND

    def node(self, rank: int, position: int, copy: int) -> int:
        """The node of a copy of a kernel block, which stands at ``position`` in S_0."""
        start, end = self.windows[rank]
        return self.simulation.first[rank] + position + copy * (end - start)

    def path(self, middle: Sequence[int], copies: int) -> Path:
        """The longest path that contains given nodes, one after the other."""
        first, last = middle[0], middle[-1]
        nodes = [*self._chain(first, self.before)[:0:-1], *middle, *self._chain(last, self.after)[1:]]
        lags = self.simulation.graph.edges
        again = sum(lags[edge]["lag"] for edge in pairwise(middle))
        begin = len(self._chain(first, self.before)) - 1
        where = tuple(map(self.simulation.where, nodes))
        length = self.head[first] + again + self.tail[last]
        return Path(self.base, where, (begin, begin + len(middle) - 1), copies, length, again)

    @staticmethod
    def _chain(node: int, link: Sequence[int]) -> list[int]:
        found = [node]
        while (node := link[node]) >= 0:
            found.append(node)
        return found


def path_along_rank(pattern: Pattern) -> Path:
    """The longest path of S_1 that runs through two copies of the kernel on one rank."""
    reach = _Reach(pattern, 1)

    def along(rank: int) -> list[int]:
        start, end = pattern.split.windows[rank]
        return [reach.node(rank, end - 1, 0), *(reach.node(rank, position, 1) for position in range(start, end))]

    return max((reach.path(along(rank), 1) for rank in range(len(pattern.first))), key=lambda path: path.length)


def path_around(pattern: Pattern, circuit: Sequence[Edge], more: int = 0) -> Path:
    """A path that runs once around a circuit of kernel blocks, in the least S_b that has room for it, or in a later one."""
    copies = [0]
    for _, _, d, _ in circuit:
        copies.append(copies[-1] + d)
    low = min(copies)
    reach = _Reach(pattern, max(copies) - low + more)
    blocks = [u for u, *_ in circuit] + [circuit[0][0]]
    middle = [
        reach.node(rank, number - pattern.first[rank], copy - low)
        for number, copy in zip(blocks, copies, strict=True)
        for rank in (pattern.rank[number],)
    ]
    return reach.path(middle, copies[-1])
