"""
Orders to start a search from: every family that fits the placement, variants of them, and list scheduling.

A family made for more micro-batches serves for fewer: what is left of its order when micro-batches are dropped hangs no more
than the whole does, and holds no more activations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from verifier.families import FAMILIES, build_family, placement
from verifier.hops import spaced
from verifier.model import Block, Problem, Schedule, ScheduleError
from verifier.search.greedy import TASTES, greedy
from verifier.search.strings import Board, Order, Token, fits_mirror, has_hops


@dataclass(frozen=True)
class Found:
    """An order with its length in ticks, and the seed that it came from."""

    ticks: int
    start: str
    order: Order


def seeds(board: Board) -> Iterator[tuple[str, Order]]:
    """
    Named orders of a board's problem, the most promising first; list scheduling last, which is always legal.

    Any other may hang, or hold more than the limits allow: whoever uses it measures it.

    Examples
    --------
    >>> from verifier.costs import CostModel
    >>> from verifier.model import Limits
    >>> board = Board(Problem(((0, 1, 2, 3), (3, 2, 1, 0)), (3, 2)), CostModel.of(), Limits(3))
    >>> sorted({name.partition(" ")[0] for name, _ in seeds(board)})
    ['chimera', 'dualpipe', 'list', 'one', 'zbv']
    """
    seen: set[Order] = set()
    for name, order in _seeds(board):
        if order not in seen:
            seen.add(order)
            yield name, order


def _seeds(board: Board) -> Iterator[tuple[str, Order]]:
    problem = board.problem
    level = Problem(problem.placement, (max(problem.microbatches),) * problem.directions)
    for schedule in family_schedules(level, board):
        order = board.encode(trimmed(schedule, problem))
        yield schedule.name, usable(order, board)
        opened = tuple(tuple(_opened(row, board, rank)) for rank, row in enumerate(order))
        yield f"{schedule.name}, step 4 opened by a pair", usable(opened, board)
    yield from _spaced(board)
    yield "one micro-batch at a time", usable(one_at_a_time(board), board)
    work = problem.stages * problem.total_microbatches
    for taste in TASTES[: max(2, 10_000 // work)]:
        yield str(taste), greedy(board, taste)


def _spaced(board: Board) -> Iterator[tuple[str, Order]]:
    """DualPipe's wave of pairs with time to spare on the links, where messages take time and memory allows it."""
    problem, ranks = board.problem, board.problem.ranks
    level = max(problem.microbatches)
    caps = [2 * ranks if cap is None else int(cap) for cap in map(board.limits.activations_on, range(ranks))]
    if (
        board.folded
        or not has_hops(problem, board.costs)
        or not level
        or min(caps) <= ranks + 1
        or placement("bidirectional", ranks) != problem.placement
    ):
        return
    schedule = spaced(ranks, 2 * level, min(caps))
    yield schedule.name, usable(board.encode(trimmed(schedule, problem)), board)


def family_schedules(problem: Problem, board: Board) -> Iterator[Schedule]:
    """Families of this placement with at least as many micro-batches, and those of the V that a mirrored problem folds to."""
    yield from _fitting(problem)
    if fits_mirror(problem, board.costs, board.limits):
        folded = Board(problem, board.costs, board.limits, folded=True)
        last = problem.ranks - 1
        half = Problem((tuple(min(rank, last - rank) for rank in problem.placement[0]),), problem.microbatches[:1])
        for schedule in _fitting(half):
            larger = Problem(problem.placement, schedule.problem.microbatches * 2)
            strings = Board(schedule.problem, board.costs, board.limits).encode(schedule)
            if Board(schedule.problem, board.costs, board.limits).chain == folded.chain:
                yield Board(larger, board.costs, board.limits, folded=True).decode(strings, f"{schedule.name} mirrored")


def _fitting(problem: Problem) -> Iterator[Schedule]:
    total, ranks = problem.total_microbatches, problem.ranks
    per_rank = max(1, problem.stages // ranks)
    # Those with overlapped pairs stand last, and are the most promising.
    for name, family in reversed(FAMILIES.items()):
        if placement(family.placement, ranks, per_rank) != problem.placement:
            continue
        for size in sorted({total, total + 1, max(total, 2 * ranks), -(-total // ranks) * ranks}):
            try:
                schedule = build_family(name, ranks, size, stages_per_rank=per_rank)
            except ScheduleError:
                continue
            if schedule.problem.placement == problem.placement:
                yield schedule
            break


def trimmed(schedule: Schedule, problem: Problem) -> Schedule:
    """
    A schedule without the micro-batches that a smaller problem does not have.

    Examples
    --------
    >>> schedule = trimmed(build_family("1f1b", 2, 5), Problem(((0, 1),), (1,)))
    >>> [[str(block) for block in row] for row in schedule.order]
    [['0F0', '0B0'], ['1F0', '1B0']]
    """

    def kept(row: Iterable[Block]) -> Iterator[Block]:
        for block in row:
            ops = tuple(op for op in block.ops if op.microbatch < problem.microbatches[op.direction])
            if ops:
                yield block if len(ops) == len(block.ops) else Block(ops)

    if schedule.problem == problem:
        return schedule
    return Schedule(problem, tuple(tuple(kept(row)) for row in schedule.order), schedule.name)


def _opened(row: tuple[Token, ...], board: Board, rank: int) -> Iterator[Token]:
    """The F; B before the first pair as a pair: DualPipe's middle ranks gain from it where a pair is cheap."""
    first = next((position for position, token in enumerate(row) if len(token) == 2), 0)
    if first >= 2:
        pair = (*row[first - 2], *row[first - 1])
        if len(pair) == 2 and pair[0][0] == "F" and pair[1][0] == "B" and board.span(rank, pair) >= 0:
            row = (*row[: first - 2], pair, *row[first:])
    yield from row


def one_at_a_time(board: Board) -> Order:
    """Each rank takes one micro-batch of each of its stages through: it needs the least memory there can be."""
    rows = []
    for chain in board.chain:
        row: list[Token] = []
        for number in range(max(board.counts[stage] for stage in chain)):
            slots = [slot for slot, stage in enumerate(chain) if number < board.counts[stage]]
            row += [(("F", slot),) for slot in slots]
            row += [((kind, slot),) for slot in reversed(slots) for kind in "IW"]
        rows.append(tuple(row))
    return tuple(rows)


def usable(order: Order, board: Board) -> Order:
    """
    An order with every block that may not be used replaced by its parts, or an I and its W by a B.

    Examples
    --------
    >>> from verifier.costs import CostModel
    >>> from verifier.model import Limits
    >>> board = Board(Problem(((0,),), (1,)), CostModel.of(), Limits(), blocks=("F", "B"))
    >>> usable((((("F", 0),), (("I", 0),), (("W", 0),)),), board)
    (((('F', 0),), (('B', 0),)),)
    """
    rows = []
    for rank, row in enumerate(order):
        parts = (part for token in row for part in _parts(token, board, rank))
        rows.append(tuple(parts))
    return tuple(rows)


def _parts(token: Token, board: Board, rank: int) -> Iterator[Token]:
    if board.span(rank, token) >= 0:
        yield token
    elif len(token) == 2:
        for part in token:
            yield from _parts((part,), board, rank)
    else:
        kind, slot = token[0]
        if kind == "B":
            yield from ((("I", slot),), (("W", slot),))
        elif kind == "I":
            yield (("B", slot),)
