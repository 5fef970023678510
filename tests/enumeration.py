"""
The exact optimum of tiny problems by trying all orders: no solver, no first-in-first-out, no bound, none of the search's data.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

from verifier.costs import CostModel
from verifier.model import Block, Limits, Op, Problem


def shortest(
    problem: Problem,
    costs: CostModel,
    limits: Limits,
    blocks: tuple[str, ...] | None = None,
    pairs: str = "opposite",
    most: int = 300_000,
) -> int | None:
    """
    Ticks of the shortest schedule; None where more states than ``most`` would be looked at.

    Every order has a timeline in which each block starts as soon as its rank and what it reads are there. Such timelines are
    built block by block, in the order of their starts; of equal states it does not matter how they came about. Micro-batches
    have their numbers in the order in which they start.
    """
    ops = [
        Op(kind, direction, stage, number)
        for direction, count in enumerate(problem.microbatches)
        for kind, stage, number in product("FIW", range(problem.stages), range(count))
    ]
    best: int | None = None
    seen: set[object] = set()
    stack: list[tuple[dict[Op, int], tuple[int, ...], tuple[Fraction, ...], int]] = [
        ({}, (0,) * problem.ranks, (Fraction(0),) * problem.ranks, 0)
    ]
    while stack:
        ends, free, held, now = stack.pop()
        if len(ends) == len(ops):
            best = max(free) if best is None else min(best, max(free))
        key = (frozenset(ends.items()), free, now)
        if key in seen or (best is not None and max(free) >= best):
            continue
        seen.add(key)
        if len(seen) > most:
            return None
        for block, rank in _next_blocks(problem, costs, ops, ends, blocks, pairs):
            start = max(free[rank], *(_arrival(problem, costs, op, ends, block) for op in block.ops))
            takes = sum((costs.activation_change(op) for op in block.ops if op.kind == "F"), Fraction(0))
            limit = limits.activations_on(rank)
            if start < now or (limit is not None and held[rank] + takes > limit):
                continue
            end = start + costs.ticks(block)
            change = sum(map(costs.activation_change, block.ops), Fraction(0))
            stack.append(
                (
                    {**ends, **dict.fromkeys(block.ops, end)},
                    tuple(end if r == rank else time for r, time in enumerate(free)),
                    tuple(live + change if r == rank else live for r, live in enumerate(held)),
                    start,
                )
            )
    return best


def _next_blocks(
    problem: Problem,
    costs: CostModel,
    ops: list[Op],
    ends: dict[Op, int],
    blocks: tuple[str, ...] | None,
    pairs: str,
) -> Iterator[tuple[Block, int]]:
    """Blocks that may be used, whose ops are still to be run, and what they read has been."""
    rank = {op: problem.placement[op.direction][op.stage] for op in ops}
    left = [op for op in ops if op not in ends]
    parts = [(op,) for op in left] + [(op, op._replace(kind="W")) for op in left if op.kind == "I"]
    ready = [part for part in parts if all(need in ends or need in part for op in part for need in _reads(problem, op))]
    joined = [
        first + second
        for first, second in product(ready, ready)
        if first[0].kind == "F"
        and second[0].kind == "I"
        and len(second) == 2
        and _may_join(problem, rank, first[0], second[0], pairs)
    ]
    for part in ready + joined:
        block = Block(part)
        if costs.prices_kind(block.kind) and (blocks is None or block.kind in blocks):
            yield block, rank[part[0]]


def _may_join(problem: Problem, rank: dict[Op, int], forward: Op, backward: Op, pairs: str) -> bool:
    """Whether a pair is on one rank and of opposite directions, or in one direction of two of its stages."""
    if rank[forward] != rank[backward]:
        return False
    if pairs == "any":
        return True
    return forward.direction != backward.direction if problem.directions > 1 else forward.stage != backward.stage


def _reads(problem: Problem, op: Op) -> Iterator[Op]:
    """What has to be there before an op runs; on one rank also the start of the micro-batch before."""
    if op.kind == "W":
        yield op._replace(kind="I")
    elif op.kind == "I":
        yield op._replace(kind="F")
        if op.stage + 1 < problem.stages:
            yield op._replace(stage=op.stage + 1)
    elif op.stage:
        yield op._replace(stage=op.stage - 1)
    elif op.microbatch:
        yield op._replace(microbatch=op.microbatch - 1)


def _arrival(problem: Problem, costs: CostModel, op: Op, ends: dict[Op, int], block: Block) -> int:
    """When all that an op reads has come to its rank."""
    row = problem.placement[op.direction]
    needs = [need for need in _reads(problem, op) if need not in block.ops]
    return max((ends[need] + costs.hop_ticks(row[need.stage], row[op.stage]) for need in needs), default=0)
