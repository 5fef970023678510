"""
Makespans of the families' orders, quickly: a plan asks for dozens of them, and needs no graph, no circle and no path.

The same earliest starts as ``verifier.simulate``, which a test compares; for legal orders of F, I, W, B and F&B, uniform hops,
and costs in whole numbers.
"""

from __future__ import annotations

from fractions import Fraction

from verifier.costs import CostModel, Price
from verifier.model import Schedule


def makespan_and_busy(schedule: Schedule, costs: CostModel) -> tuple[int, int]:
    """
    The last end, and the busy time of all ranks together.

    Raises
    ------
    ValueError
        If the ranks hang.

    Notes
    -----
    Linear in the number of ops: a rank that waits is looked at again when what it waits for is done.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> makespan_and_busy(build_family("dualpipe", 4, 8), CostModel.of())
    (26, 96)
    """
    problem = schedule.problem
    stages, span = problem.stages, max(problem.microbatches)
    single = {kind: _per_stage(costs.prices[kind], stages) for kind in "FIWB"}
    pairs = _table(costs, stages)
    assert isinstance(costs.hop, Fraction), "plans have one hop"
    hop = _whole(costs.hop)
    place = problem.placement
    # forward[x] and backward[x]: when F and I of (direction, stage, micro-batch) end; -1 before they run.
    forward, backward = ([-1] * (len(place) * stages * span) for _ in range(2))
    free, position, busy = [0] * problem.ranks, [0] * problem.ranks, 0
    waiting: dict[tuple[str, int], int] = {}
    ready = list(range(problem.ranks))
    while ready:
        rank = ready.pop()
        row = schedule.order[rank]
        while position[rank] < len(row):
            ops = row[position[rank]].ops
            start, blocked = free[rank], None
            for kind, direction, stage, microbatch in ops:
                source = stage - 1 if kind == "F" else stage + 1
                if kind == "W" or not 0 <= source < stages:
                    continue
                index = (direction * stages + source) * span + microbatch
                end = (forward if kind == "F" else backward)[index]
                if end < 0:
                    blocked = (kind, index)
                    break
                start = max(start, end if place[direction][source] == rank else end + hop)
            if blocked:
                waiting[blocked] = rank
                break
            first = ops[0]
            if len(ops) == 3:
                duration = pairs[first.stage][ops[1].stage]
            else:
                duration = single["B" if len(ops) == 2 else first.kind][first.stage]
            busy += duration
            free[rank] = start + duration
            position[rank] += 1
            for kind, direction, stage, microbatch in ops:
                if kind != "W":
                    index = (direction * stages + stage) * span + microbatch
                    (forward if kind == "F" else backward)[index] = start + duration
                    if (kind, index) in waiting:
                        ready.append(waiting.pop((kind, index)))
    if waiting:
        raise ValueError(f"{schedule.name}: the ranks hang")
    return max(free), busy


def _per_stage(price: Price, stages: int) -> list[int]:
    values = price if isinstance(price, tuple) else (price,) * stages
    return [_whole(value) for value in values if isinstance(value, Fraction)]


def _table(costs: CostModel, stages: int) -> list[list[int]]:
    """Durations of pairs, by the stage of the forward and that of the backward."""
    price = costs.prices["F&B"]
    if isinstance(price, Fraction):
        return [[_whole(price)] * stages for _ in range(stages)]
    return [[_whole(value) for value in row] for row in price if isinstance(row, tuple)]


def _whole(value: Fraction) -> int:
    if value.denominator != 1:
        raise ValueError(f"expected whole numbers, got {value}")
    return value.numerator
