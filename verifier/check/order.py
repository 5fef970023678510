"""Given orders, by the checker's own reading: are they complete, who waits for whom, when everything ends, what ranks hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from verifier.check.conditions import require, whole
from verifier.costs import CostModel
from verifier.model import Block, Op, Problem

Rows = tuple[tuple[Block, ...], ...]
Place = tuple[int, int]
"""Rank and position of a block."""


def read_schedule(written: Mapping[str, Any]) -> tuple[Problem, Rows]:
    """
    A schedule as evidence writes it, complete and in its place.

    Raises
    ------
    EvidenceError
        If an op is missing, runs twice or runs on another rank than its own.

    Examples
    --------
    >>> problem, order = read_schedule({"placement": [[0]], "microbatches": [1], "order": [["0F0", "0B0"]]})
    >>> order[0][1].ops
    (Op(kind='I', direction=0, stage=0, microbatch=0), Op(kind='W', direction=0, stage=0, microbatch=0))
    """
    order = tuple(tuple(map(Block.parse, row)) for row in written["order"])
    ops = sum(len(block.ops) for row in order for block in row)
    # Sizes are compared with what is written out before anything of that size is made.
    counts = tuple(whole(count, 0, ops, "a number of micro-batches") for count in written["microbatches"])
    placement = tuple(tuple(whole(rank, 0, len(order) - 1, "a rank") for rank in row) for row in written["placement"])
    problem = Problem(placement, counts)
    require(3 * problem.stages * sum(counts) == ops, "every op exactly once")
    require(len(order) == problem.ranks, "one row per rank")
    require(sorted(op for row in order for block in row for op in block.ops) == sorted(problem.ops()), "every op exactly once")
    placed = problem.placement
    home = (placed[op.direction][op.stage] == rank for rank, row in enumerate(order) for block in row for op in block.ops)
    require(all(home), "every op on its rank")
    return problem, order


def reads(op: Op, stages: int) -> Iterator[Op]:
    """
    What an op needs: activations flow up the stages, gradients down, and both backwards need what comes before them.

    Examples
    --------
    >>> [str(op) for op in reads(Op("I", 0, 1, 4), stages=3)]
    ['1F4', '2I4']
    """
    if op.kind == "W":
        yield op._replace(kind="I")
    elif op.kind == "I":
        yield op._replace(kind="F")
        if op.stage + 1 < stages:
            yield op._replace(stage=op.stage + 1)
    elif op.stage:
        yield op._replace(stage=op.stage - 1)


def edges(stages: int, rows: Rows, costs: CostModel) -> Iterator[tuple[Place, Place, int]]:
    """Who waits for whom, and for how many ticks from start to start."""
    where = {op: (rank, at) for rank, row in enumerate(rows) for at, block in enumerate(row) for op in block.ops}
    for rank, row in enumerate(rows):
        for at, block in enumerate(row):
            if at:
                yield (rank, at - 1), (rank, at), costs.ticks(row[at - 1])
            for op in block.ops:
                for needed in reads(op, stages):
                    source = where[needed]
                    # The W of a full backward comes after its I inside the block.
                    if source != (rank, at) or op.kind != "W":
                        yield source, (rank, at), costs.ticks(rows[source[0]][source[1]]) + costs.hop_ticks(source[0], rank)


def earliest(stages: int, rows: Rows, costs: CostModel) -> dict[Place, int]:
    """
    When every block starts at the earliest, in ticks, each worked out when all that it waits for are.

    Raises
    ------
    EvidenceError
        If blocks wait in a circle.
    """
    begin = {(rank, at): 0 for rank, row in enumerate(rows) for at in range(len(row))}
    after: dict[Place, list[tuple[Place, int]]] = {place: [] for place in begin}
    left = dict.fromkeys(begin, 0)
    for u, v, lag in edges(stages, rows, costs):
        after[u].append((v, lag))
        left[v] += 1
    ready, done = deque(place for place, count in left.items() if not count), 0
    while ready:
        u = ready.popleft()
        done += 1
        for v, lag in after[u]:
            begin[v] = max(begin[v], begin[u] + lag)
            left[v] -= 1
            if not left[v]:
                ready.append(v)
    require(done == len(begin), "no blocks wait in a circle")
    return begin


def makespan(stages: int, rows: Rows, costs: CostModel) -> int:
    """The makespan in ticks."""
    begin = earliest(stages, rows, costs)
    return max(begin[rank, len(row) - 1] + costs.ticks(row[-1]) for rank, row in enumerate(rows) if row)


def busy(row: Sequence[Block], costs: CostModel) -> int:
    """How long a rank computes, in ticks."""
    return sum(costs.ticks(block) for block in row)


def peak(row: Sequence[Block]) -> int:
    """
    The most activations that a rank holds: from the start of an F to the end of its W.

    Examples
    --------
    >>> peak([Block.parse(text) for text in ("0F0", "0F1", "0I0", "0W0", "0B1")])
    2
    """
    held = most = 0
    for block in row:
        kinds = [op.kind for op in block.ops]
        most = max(most, held + kinds.count("F"))
        held += kinds.count("F") - kinds.count("W")
    return most
