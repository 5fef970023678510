"""A given schedule, for every number of kernel periods: the evidence of ``theorems.bubble``, checked anew."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

from verifier.check.conditions import rational, require, whole
from verifier.check.order import Rows, edges, makespan, read_schedule, reads
from verifier.costs import CostModel
from verifier.model import Block, Op, Problem

MAX_BLOCKS, TIMES = 100_000, 16
"""A schedule that is built has at most so many blocks more than so many times those of the evidence."""
MAX_WORK = 10_000_000
"""Blocks of all schedules that are built."""
MAX_DENOMINATOR = 10**18
"""Of T, which is a time over a number of copies."""


def check_bubble(evidence: Mapping[str, Any]) -> str:
    """
    Check that k kernel periods more are legal for every k, and add no idle time or the claimed one.

    Only S_0 to S_K are built, as they are meant; why that is enough stands in ``theorems.bubble``.

    Raises
    ------
    EvidenceError
        If a condition does not hold.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.theorems.bubble import prove_bubble_constant
    >>> check_bubble(prove_bubble_constant(build_family("1f1b", 3, 4)).evidence)
    'constant: each kernel period takes 3 on every rank, for all k >= 0'
    """
    family = _Longer(evidence)
    costs = family.costs
    family.check_renumbering()
    unit = CostModel.of()
    free, timed = evidence["free"], evidence["timed"]
    for k in range(family.largest_base + 1):
        rows = family.rows(k)
        family.check_timeline(rows, k, free, unit, "no circle of waiting blocks")
        family.check_timeline(rows, k, timed, costs, "upper bound")
    slope = rational(timed["per_copy"], "T")
    require(evidence["claim"] in ("constant", "growing"), "the claim is constant or growing")
    if evidence["claim"] == "constant":
        _check_constant(family, evidence, slope)
        return f"constant: each kernel period takes {slope / costs.ticks_per_unit} on every rank, for all k >= 0"
    ends = makespan(family.problem.stages, family.rows(0), costs)
    require(rational(evidence["makespan"], "the makespan") == ends, "the makespan of S_0")
    growth = [slope - family.busy(rank) for rank in range(family.ranks)]
    require(any(growth), "some rank's idle time grows")
    copies = {path["copies"] for path in evidence["paths"]}
    paths = [family.path(path, slope) for path in evidence["paths"]]
    remainders = {path["base"] % path["copies"] for path in evidence["paths"]}
    require(len(copies) == 1 and len(remainders) == copies.pop(), "a path for every remainder of k")
    assert all(length > 0 for length in paths), "paths were measured"
    per_period = Fraction(max(growth), costs.ticks_per_unit)
    return f"growing: in the long run each kernel period adds {per_period} to the idle time of some rank"


def _check_constant(family: _Longer, evidence: Mapping[str, Any], slope: Fraction) -> None:
    """Busy time and both bounds have one slope, and the bounds meet."""
    ends = rational(evidence["makespan"], "the makespan")
    timed = evidence["timed"]
    for rank in range(family.ranks):
        require(family.busy(rank) == slope, f"rank {rank} is busy for T in every period")
    bounds = [x + span * timed["denominator"] for x, span in zip(timed["start"], family.spans(family.rows(0)), strict=True)]
    require(max(bounds) <= ends * timed["denominator"], "the upper bound ends with S_0")
    (path,) = evidence["paths"]
    require(path["copies"] == 1, "the path grows with every period")
    require(family.path(path, slope) == ends + path["base"] * slope, "the bounds meet")
    for k in range(path["base"]):
        require(makespan(family.problem.stages, family.rows(k), family.costs) == ends + k * slope, f"for k = {k}, too")


class _Longer:
    """S_0, S_1, ... of one piece of evidence, built from its words."""

    def __init__(self, evidence: Mapping[str, Any]) -> None:
        self.problem, self.order = read_schedule(evidence["schedule"])
        self.costs = CostModel.of(**evidence["costs"])
        self.ranks = self.problem.ranks
        self.blocks = sum(map(len, self.order))
        # K is about the number of ranks, and paths are about as many.
        self._left = MAX_WORK + TIMES * self.ranks * self.blocks
        require(len(set(self.problem.microbatches)) == 1, "directions of equal size")
        # A kernel stands in S_0, so it serves no more micro-batches than S_0 has.
        self.period = whole(evidence["period"], 1, self.problem.microbatches[0], "the period")
        self.windows: list[tuple[int, int]] = []
        for row, (start, end) in zip(self.order, evidence["windows"], strict=True):
            first = whole(start, 0, len(row) - 1, "a kernel's start")
            self.windows.append((first, whole(end, first + 1, len(row), "a kernel's end")))
        self.front, self.behind = self._spread()

    def _spread(self) -> tuple[dict[Op, int], dict[Op, int]]:
        """Per job, its largest micro-batch up to the kernel's end and its smallest from the kernel's start."""
        front: dict[Op, int] = {}
        behind: dict[Op, int] = {}
        for row, (start, end) in zip(self.order, self.windows, strict=True):
            for position, block in enumerate(row):
                for op in block.ops:
                    job = op._replace(microbatch=0)
                    if position < end:
                        front[job] = max(front.get(job, 0), op.microbatch)
                    if position >= start:
                        behind[job] = min(behind.get(job, op.microbatch), op.microbatch)
        return front, behind

    @property
    def largest_base(self) -> int:
        """K."""
        base = 1
        for job in self.front:
            for needed in reads(job, self.problem.stages):
                gap = max(self.front[job], self.front[needed]) - min(self.behind[job], self.behind[needed])
                base = max(base, gap // self.period)
        return base

    def check_renumbering(self) -> None:
        """S_1 is complete, and so are all others: the equation that says so adds up."""
        rows = self.rows(1)
        counts = tuple(count + self.period for count in self.problem.microbatches)
        found = sorted(op for row in rows for block in row for op in block.ops)
        require(found == sorted(Problem(self.problem.placement, counts).ops()), "one period more is complete")
        for row, (start, end) in zip(self.order, self.windows, strict=True):
            inside = sorted(op._replace(microbatch=0) for block in row[start:end] for op in block.ops)
            jobs = sorted({op._replace(microbatch=0) for block in row for op in block.ops})
            require(inside == sorted(jobs * self.period), "a kernel takes what it frees")

    def rows(self, k: int) -> Rows:
        """The order of S_k; refused if the evidence asks for more than anybody wants to wait for."""
        size = self.blocks + k * sum(end - start for start, end in self.windows)
        self._left -= size
        require(size <= MAX_BLOCKS + TIMES * self.blocks and self._left >= 0, "schedules are small enough to be built again")
        rows = []
        for row, (start, end) in zip(self.order, self.windows, strict=True):
            copies = [self._later(block, j) for j in range(1, k + 1) for block in row[start:end]]
            rows.append((*row[:end], *copies, *(self._later(block, k) for block in row[end:])))
        return tuple(rows)

    def _later(self, block: Block, periods: int) -> Block:
        return Block(tuple(op._replace(microbatch=op.microbatch + periods * self.period) for op in block.ops))

    def times(self, k: int, timeline: Mapping[str, Any]) -> dict[tuple[int, int], int]:
        """When every block of S_k starts, in ticks over the denominator."""
        step = rational(timeline["per_copy"], "T") * self.scale(timeline)
        require(step.denominator == 1, "T over the stated denominator")
        found: dict[tuple[int, int], int] = {}
        base = 0
        for rank, (row, (start, end)) in enumerate(zip(self.order, self.windows, strict=True)):
            x = timeline["start"][base : base + len(row)]
            right = len(x) == len(row) and all(type(time) is int and time >= 0 for time in x)
            require(right, "a start time for every block")
            base += len(row)
            copies = [time + j * int(step) for j in range(1, k + 1) for time in x[start:end]]
            later = [time + k * int(step) for time in x[end:]]
            found |= {(rank, position): time for position, time in enumerate([*x[:end], *copies, *later])}
        return found

    @staticmethod
    def scale(timeline: Mapping[str, Any]) -> int:
        """The denominator of start times; below 1 no inequality would say anything."""
        return whole(timeline["denominator"], 1, MAX_DENOMINATOR, "a denominator")

    def check_timeline(self, rows: Rows, k: int, timeline: Mapping[str, Any], costs: CostModel, what: str) -> None:
        """All of S_k's inequalities."""
        times, scale = self.times(k, timeline), self.scale(timeline)
        waits = edges(self.problem.stages, rows, costs)
        require(all(times[v] >= times[u] + lag * scale for u, v, lag in waits), f"{what}, k = {k}")

    def spans(self, rows: Rows) -> list[int]:
        """Ticks of every block."""
        return [self.costs.ticks(block) for row in rows for block in row]

    def busy(self, rank: int) -> int:
        """Ticks of one kernel period."""
        start, end = self.windows[rank]
        return sum(self.costs.ticks(block) for block in self.order[rank][start:end])

    def path(self, path: Mapping[str, Any], slope: Fraction) -> int:
        """The length of a path whose middle part can be run again, after all that is asked of it."""
        (first, last), copies = path["middle"], path["copies"]
        nodes = [(rank, position) for rank, position in path["nodes"]]
        require(all(type(number) is int for node in nodes for number in node), "a path's blocks exist")
        # From block to block a path gets on by at most K + 1 copies, and stands on each of them.
        most = len(nodes) * (self.largest_base + 1)
        base, copies = whole(path["base"], 0, most, "a path's base"), whole(copies, 1, most, "a path's copies")
        rows = self.rows(base)
        lags: dict[tuple[tuple[int, int], tuple[int, int]], int] = {}
        for u, v, lag in edges(self.problem.stages, rows, self.costs):
            lags[u, v] = max(lag, lags.get((u, v), 0))
        steps = list(pairwise(nodes))
        require(all(step in lags for step in steps), "a path waits at every step")
        zones = [self._zone(node, base) for node in nodes]
        require(0 <= first < last < len(nodes), "a path with a middle part")
        require(all(zone < 2 for zone in zones[: last + 1]) and all(zone > 0 for zone in zones[first:]), "a path in order")
        (rank, here), (same, there) = nodes[first], nodes[last]
        start, end = self.windows[rank]
        require(same == rank and there - here == copies * (end - start), "the middle part ends p copies on")
        again = sum(lags[step] for step in steps[first:last])
        require(again == copies * slope, "the middle part takes T per copy")
        rank, position = nodes[-1]
        length = sum(lags[step] for step in steps) + self.costs.ticks(rows[rank][position])
        require(path["length"] == length, "a path is as long as it says")
        return length

    def _zone(self, node: tuple[int, int], k: int) -> int:
        """0 in front of the kernel copies of S_k, 1 among them, 2 behind."""
        rank, position = node
        start, end = self.windows[rank]
        return 0 if position < start else 1 if position < end + k * (end - start) else 2
