"""Boards and orders as the arrays that the compiled search works on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verifier.search.anneal import Ints, State, Tables
from verifier.search.strings import Board, Order, Token


def tables(board: Board, kernels: Sequence[Sequence[Token]] = (), more: int = 0, room: int = 0, spans: bool = False) -> Tables:
    """
    A board as arrays.

    On rank r the empty token stands for ``kernels[r]``, which runs ``more`` micro-batches of each stage; ``room`` is the
    length of the longest that is to come. With ``spans`` the time of each rank counts from its first start.
    """
    slots, ranks, tokens = board.slots, range(board.ranks), board.tokens
    part, pair = _full(-1, len(tokens), 2), _full(-1, 4 * slots, 4 * slots)
    kinds, at_slot = part.copy(), part.copy()
    for code, token in enumerate(tokens):
        for side, (kind, slot) in enumerate(token):
            kinds[code, side], at_slot[code, side] = "FBIW".index(kind), slot
            part[code, side] = "FBIW".index(kind) * slots + slot
        if len(token) == 2:
            pair[part[code, 0], part[code, 1]] = pair[part[code, 1], part[code, 0]] = code
    stage = _full(-1, board.ranks, slots)
    for rank, held in enumerate(board.chain):
        stage[rank, : len(held)] = held
    t = Tables(
        slots,
        part,
        kinds,
        at_slot,
        pair,
        np.array([[board.span(rank, token) for token in tokens] for rank in ranks]),
        stage,
        np.array([[board.steps(at, kind) for kind in "FBIW"] for at in range(len(board.home))]),
        np.array([board.cap(rank) for rank in ranks]),
        int(spans),
        _full(-1, board.ranks, max([room, *map(len, kernels)])),
        *_items(board, max(board.counts) + more),
    )
    for rank, row in enumerate(kernels):
        load_kernel(board, t, rank, row)
    return t


def load_kernel(board: Board, t: Tables, rank: int, kernel: Sequence[Token]) -> None:
    """Say what the empty token stands for on a rank."""
    t.kernel[rank, len(kernel) :] = -1
    t.kernel[rank, : len(kernel)] = [board.codes[token] for token in kernel]


def _items(board: Board, per_stage: int) -> tuple[int, Ints, Ints, Ints, Ints]:
    """Who makes each item, from what, and who reads it."""
    stages, all_stages = board.problem.stages, len(board.home)
    half = all_stages * per_stage
    reads, reader, lag, maker = (_full(-1, 2 * half) for _ in range(4))
    for at, (rank, _) in enumerate(board.home):
        forward = np.arange(at * per_stage, (at + 1) * per_stage)
        maker[forward] = maker[half + forward] = rank
        if at % stages:
            reads[forward], lag[forward] = forward - per_stage, board.lag(at - 1, 1)
            reader[forward - per_stage] = forward
        if at % stages < stages - 1:
            backward = half + forward
            reads[backward], lag[backward] = backward + per_stage, board.lag(at + 1, -1)
            reader[backward + per_stage] = backward
    return per_stage, reads, reader, lag, maker


def state(board: Board, t: Tables, order: Order) -> State:
    """Strings as arrays, with room for every string of the board."""
    ranks = board.ranks
    room = 3 * max(sum(board.counts[stage] for stage in row) for row in board.chain) + 2
    nodes, items, rows = room + t.kernel.shape[1], len(t.reads), 2 * ranks
    s = State(
        row=np.arange(ranks),
        token=_full(0, rows, room),
        size=_full(0, rows),
        first=_full(0, rows, room),
        length=_full(0, rows),
        source=_full(0, rows, nodes),
        make=_full(0, rows, nodes, 2),
        span=_full(0, rows, nodes),
        work=_full(0, rows),
        peak=_full(0, rows),
        pairs=_full(0, rows),
        side=_full(0, 1),
        start=_full(0, 2, ranks, nodes),
        end=_full(0, 2, items),
        tail=_full(0, ranks, nodes),
        place=_full(0, items),
        sequence=_full(0, ranks * nodes, 2),
        heap=_full(0, 5, ranks),
        counts=_full(0, 4, board.slots),
        use=_full(0, ranks),
        path=_full(0, ranks * nodes, 2),
        held=_full(0, rows),
        low=_full(0, rows),
        read=_full(0, ranks, 5),
        read_counts=_full(0, ranks, 4, board.slots),
        run=_full(0, ranks, 3),
        run_end=_full(-1, items),
    )
    load(board, s, order)
    return s


def copied(s: State) -> State:
    """A state of its own, for another thread."""
    return State(*(array.copy() for array in s))


def load(board: Board, s: State, order: Order) -> None:
    """Make an order the current strings; nothing else is worked out."""
    for rank, row in enumerate(order):
        load_row(board, s, rank, row)


def load_row(board: Board, s: State, rank: int, row: Sequence[Token]) -> None:
    """Make a string the current one of a rank."""
    s.row[rank] = rank
    s.size[rank] = len(row)
    s.token[rank, : len(row)] = [board.codes[token] for token in row]


def _full(value: int, *shape: int) -> Ints:
    return np.full(shape, value, np.int64)
