"""How often the items of a loop program have run, and what must be true of it: all jobs, all W, the peak, the busy time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Protocol

from verifier.affine import Affine, Extreme
from verifier.check.blocks import ZERO, Blocks, I, Reading, Regime, Rows, denied, replaced, same, worlds
from verifier.loops import Item

Weight = Callable[[Item], int]
Case = tuple[Rows, Affine]
"""A number, and the rows under which it is that."""


class Covering(Protocol):
    """Who insists on certificates."""

    def follows(self, given: Rows, row: Affine, name: str) -> None:
        """That a row is at least 0 wherever the given ones are."""

    def never(self, given: Rows, name: str) -> None:
        """That the given rows are never all at least 0."""

    def one_of(self, given: Rows, options: list[Rows], name: str) -> None:
        """That all rows of some option are at least 0 wherever the given ones are."""


# ---------------------------------------- how often


def before(reading: Reading, block: Blocks, weight: Weight, *, opens: bool = False) -> Iterator[Case]:
    """The weight of all that runs before a block on its rank; ``opens`` if it is of the first iteration of its loop."""
    trips = reading.regimes[block.regime].trips
    parts = [_loop(reading, loop, trips[loop], weight) for loop in range(block.loop)]
    if not opens:
        parts.append(_loop(reading, block.loop, I, weight))
    for item in reading.program.loops[block.loop].body[: block.place]:
        if count := weight(item):
            guard = [condition.expression for condition in item.guard]
            falls = [((*guard[:k], denied(row)), ZERO) for k, row in enumerate(guard)]
            parts.append([(tuple(guard), ZERO + count), *falls])
    return _sums(parts)


def in_all(reading: Reading, regime: Regime, weight: Weight) -> Iterator[Case]:
    """The weight of all that a rank runs."""
    return _sums([_loop(reading, loop, trips, weight) for loop, trips in enumerate(regime.trips)])


def _sums(parts: list[list[Case]]) -> Iterator[Case]:
    for cases in product(*parts):
        yield tuple(row for where, _ in cases for row in where), sum((value for _, value in cases), ZERO)


def _loop(reading: Reading, loop: int, iterations: Affine, weight: Weight) -> list[Case]:
    """The weight of the first iterations of a loop."""
    body = reading.program.loops[loop].body
    sums = {sum(weight(item) for item in body if runs(item)) for runs in worlds(body)}
    if len(sums) == 1:
        return [((), sums.pop() * iterations)]
    parts = []
    for place, item in enumerate(body):
        if count := weight(item):
            parts.append([(where, count * value) for where, value in _times(item, f"{loop}.{place}", iterations)])
    return list(_sums(parts))


def _times(item: Item, label: str, iterations: Affine) -> list[Case]:
    """
    How often a guard holds in the first iterations: it does between two bounds.

    Each of its rows that changes with ``i`` does so once, at a whole number that gets a name.
    """
    if not item.guard:
        return [((), iterations)]
    ranges: list[tuple[Rows, Affine, Affine]] = [((), ZERO, iterations)]
    for k, condition in enumerate(item.guard):
        row, turn = condition.expression, Affine(((f"n{label}.{k}", 1),))
        at, behind = row.substitute({"i": turn}), row.substitute({"i": turn - 1})
        slope, found = row.coefficient("i"), []
        for where, low, high in ranges:
            if slope == 0:
                found += [((*where, row), low, high), ((*where, denied(row)), low, low)]
            elif slope > 0:
                starts = (*where, at, denied(behind))
                found += [((*starts, turn - low), turn, high), ((*starts, low - turn - 1), low, high)]
            else:
                stops = (*where, denied(at), behind)
                found += [((*stops, high - turn), low, turn), ((*stops, turn - high - 1), low, high)]
        ranges = found
    return [
        case for where, low, high in ranges for case in (((*where, high - low), high - low), ((*where, low - high - 1), ZERO))
    ]


# ---------------------------------------- what must be true


def complete(reading: Reading, book: Covering) -> None:
    """Every F and I once: a rank runs as many as there are micro-batches, and finds what they read in one place."""
    program = reading.program
    kinds = [(kind, phase) for phase in range(len(program.stages)) for kind in "FI"]
    for regime in reading.regimes:
        where, totals = (*reading.ranks, *regime.where), reading.totals(regime)
        for trips in regime.trips:
            book.follows(where, trips, "no trip count is negative")
        for job in kinds:
            for row in same(totals.get(job, ZERO), program.microbatches):
                book.follows(where, row, f"all {job[0]}{job[1]} run")
    cases = [[row for row in regime.where if row not in reading.ranks] for regime in reading.regimes]
    for outside in product(*cases):
        book.never((*reading.ranks, *map(denied, outside)), "the cases of trip counts leave no rank out")
    for stage in program.stages:
        book.follows(reading.ranks, stage, "stages count from 0")
        book.follows(reading.ranks, program.depth - 1 - stage, "stages stay below the depth")
    for kind, phase in kinds:
        _one_producer(reading, kind, phase, book)


def _one_producer(reading: Reading, kind: str, phase: int, book: Covering) -> None:
    program, name = reading.program, f"{kind}{phase} reads its neighbour, in one place"
    wanted = program.stages[phase] + (-1 if kind == "F" else 1)
    where = (*reading.ranks, wanted if kind == "F" else program.depth - wanted - 1)
    producers = reading.producers(kind, phase)
    for outside in product(*(producer.where for producer in producers)):
        book.never((*where, *map(denied, outside)), name)
    for k, producer in enumerate(producers):
        for other in producers[k + 1 :]:
            book.never((*where, *producer.where, *other.where), name)
        stage = program.stages[producer.phase].substitute({program.rank: producer.rank})
        for row in same(stage, wanted):
            book.follows((*where, *producer.where), row, name)


def weights(reading: Reading, book: Covering) -> None:
    """Every W once, first in, first out: an I waits for it when it runs, and none waits at the end."""
    pieces = {piece for each in reading.program.loops for item in each.body for piece in item.pieces}
    phases = {piece.phase for piece in pieces if piece.kind == "W"}
    one_queue = None in phases
    book_of: list[int | None] = [None] if one_queue else list(range(len(reading.program.stages)))
    if one_queue and len(phases) > 1:
        book.never((), "W name their phase everywhere or nowhere")
    for queue in book_of:

        def waits(item: Item, queue: int | None = queue) -> int:
            mine = [piece.kind for piece in item.pieces if queue is None or piece.phase == queue]
            return mine.count("I") - mine.count("W")

        for block in reading.blocks:
            if any(piece.kind == "W" and piece.phase == queue for piece in block.item.pieces):
                for where, value in before(reading, block, waits):
                    book.follows((*block.domain, *where), value - 1, "every W has an I")
        for regime in reading.regimes:
            for where, value in in_all(reading, regime, waits):
                for row in same(value, ZERO):
                    book.follows((*reading.ranks, *regime.where, *where), row, "no I is left without its W")


def _held(item: Item) -> int:
    """Activations that an item leaves behind."""
    kinds = [piece.kind for piece in item.pieces]
    return kinds.count("F") - kinds.count("B") - kinds.count("W")


def peak(reading: Reading, most: Affine | Extreme, book: Covering) -> None:
    """No F brings a rank above the peak, and one, the first or last of its loop, brings it there."""
    cases = [(tuple(condition.expression for condition in where), value) for where, value in most.cases()]
    known = {"i", reading.program.rank}.union(*(row.symbols for row in reading.ranks))
    reached: dict[int, list[Rows]] = {}
    for block in reading.blocks:
        if all(piece.kind != "F" for piece in block.item.pieces):
            continue
        for (where, held), (when, bound) in product(before(reading, block, _held), cases):
            book.follows((*block.domain, *where, *when), bound - held - 1, "no rank holds more than the peak")
        for index, opens in ((ZERO, True), (block.trips - 1, False)):
            for (where, held), (when, bound) in product(before(reading, block, _held, opens=opens), cases):
                if not any(row.symbols - known for row in where):
                    rows = (*block.domain, *where, *when, *same(held + 1, bound))
                    reached.setdefault(block.regime, []).append(replaced(rows, {"i": index}))
    for number, regime in enumerate(reading.regimes):
        book.one_of((*reading.ranks, *regime.where), reached.get(number, []), "the peak is reached on every rank")


def busy(reading: Reading, where: Rows, counts: tuple[Affine, ...], book: Covering) -> None:
    """Some ranks run given numbers of F, I, W and F&B."""

    def weight(cost: int) -> Weight:
        def of(item: Item) -> int:
            kinds = "".join(piece.kind for piece in item.pieces)
            if len(kinds) == 2:
                return int(cost == 3)
            return int(cost < 3 and kinds in ("F", "IB", "WB")[cost])

        return of

    for regime in reading.regimes:
        for cost, count in enumerate(counts):
            for case, value in in_all(reading, regime, weight(cost)):
                for row in same(value, count):
                    book.follows((*reading.ranks, *regime.where, *where, *case), row, "ranks are as busy as they should be")
