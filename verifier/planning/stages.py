"""
Which layers each stage gets: contiguous, the longest stage as short as can be, then the fullest ranks relieved.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from verifier.model import ScheduleError

Placement = Sequence[Sequence[int]]


def balanced(costs: Sequence[int], placement: Placement) -> tuple[tuple[int, int], ...]:
    """
    Cut a chain of layers into stages.

    Of all cuts those with the least longest stage are found, of them one whose sum of squares is least. Where ranks hold
    several stages, single layers then move from the stages of the fullest rank to others, as long as that lowers its load, or
    else the sum of squares of all loads: a short stage is best where it meets a long one.

    Parameters
    ----------
    costs
        What each layer costs. The first is the embedding and the last the output: they stay with their neighbours, so that
        every stage has a layer.
    placement
        ``placement[direction][stage]``: where each stage lives.

    Returns
    -------
    For each stage the first layer and the one behind its last.

    Raises
    ------
    ScheduleError
        If there are fewer layers than stages.

    Notes
    -----
    Bisection for the longest stage, then dynamic programming over where the last stage begins: O(layers^2) at worst, far less
    where the stages are nearly full. The moves are a local search.

    Examples
    --------
    >>> balanced([0, 3, 3, 3, 3, 3, 4], ((0, 1, 2),))
    ((0, 3), (3, 5), (5, 7))
    >>> balanced([0, 3, 3, 3, 3, 3, 4], ((0, 1, 1, 0),))
    ((0, 2), (2, 3), (3, 5), (5, 7))
    """
    stages, layers = len(placement[0]), len(costs) - 2
    if layers < stages:
        raise ScheduleError(f"{stages} stages for {layers} layers; expected at most a stage per layer")
    joined = list(costs[1:-1])
    joined[0] += costs[0]
    joined[-1] += costs[-1]
    before = [0, *accumulate(joined)]
    bounds = _relieved(before, _even(before, stages), placement)
    # The embedding shifts every layer by one, and the output belongs to the last stage.
    return tuple((0 if begin == 0 else begin + 1, len(costs) if end == layers else end + 1) for begin, end in pairwise(bounds))


def _even(before: Sequence[int], stages: int) -> list[int]:
    """Where stages begin and end, from the costs of all layers before each."""
    layers, most = len(before) - 1, _least_longest(before, stages)
    # best[i]: the sum of squares and the last cut, of the first i layers in so many stages none of which is longer.
    best: dict[int, tuple[int, int]] = {0: (0, 0)}
    rows = []
    for stage in range(1, stages + 1):
        row: dict[int, tuple[int, int]] = {}
        for end in range(stage, layers - (stages - stage) + 1):
            # What is behind has to fit into the stages that are left.
            if before[-1] - before[end] <= (stages - stage) * most:
                first = bisect_left(before, before[end] - most)
                found = [(best[cut][0] + (before[end] - before[cut]) ** 2, cut) for cut in range(first, end) if cut in best]
                if found:
                    row[end] = min(found)
        rows.append(row)
        best = row
    ends = [layers]
    for row in reversed(rows):
        ends.append(row[ends[-1]][1])
    return ends[::-1]


def _least_longest(before: Sequence[int], stages: int) -> int:
    """The cost of the longest stage where it is least; bisection, with stages filled one after the other."""
    low, high = max(second - first for first, second in pairwise(before)), before[-1]
    while low < high:
        middle = (low + high) // 2
        end = used = 0
        while end < len(before) - 1:
            end, used = bisect_right(before, before[end] + middle) - 1, used + 1
        low, high = (low, middle) if used <= stages else (middle + 1, high)
    return low


def _relieved(before: Sequence[int], bounds: list[int], placement: Placement) -> list[int]:
    """Move one layer at a time away from the fullest rank, the best move first, as long as it helps."""
    now, loads = _load(before, bounds, placement)
    while True:
        fullest = loads.index(max(loads))
        givers = {stage for row in placement for stage, rank in enumerate(row) if rank == fullest}
        moved = [
            _moved(bounds, giver, taker)
            for giver in sorted(givers)
            if bounds[giver + 1] - bounds[giver] > 1
            for taker in range(len(bounds) - 1)
            if taker != giver
        ]
        if not moved:
            return bounds
        best = min(moved, key=lambda cut: _load(before, cut, placement)[0])
        found, found_loads = _load(before, best, placement)
        if found >= now:
            return bounds
        now, loads, bounds = found, found_loads, best


def _moved(bounds: Sequence[int], giver: int, taker: int) -> list[int]:
    """One layer fewer for one stage and one more for another; the cuts between them shift."""
    step = -1 if giver < taker else 1
    low, high = sorted((giver, taker))
    return [bound + (step if low < index <= high else 0) for index, bound in enumerate(bounds)]


def _load(before: Sequence[int], bounds: Sequence[int], placement: Placement) -> tuple[tuple[int, int], list[int]]:
    """The fullest rank and the sum of squares; and what each rank runs."""
    loads = [0] * (1 + max(map(max, placement)))
    for row in placement:
        for stage, rank in enumerate(row):
            loads[rank] += before[bounds[stage + 1]] - before[bounds[stage]]
    return (max(loads), sum(load * load for load in loads)), loads
