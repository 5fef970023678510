"""
That a loop program is complete at all sizes, holds no more activations than it says, and how busy it keeps each rank.

How often an item has run before a block is no affine number where a guard decides about the item. Then cases are told apart,
each with a number of its own for the first iteration in which the guard holds. These conditions are exact: where one fails, the
point that is found is a size and a rank at which the loops do something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

from verifier.affine import Affine, Condition, Extreme, affine
from verifier.loops import Item, Loop, Piece
from verifier.model import ScheduleError
from verifier.theorems.classes import INDEX, Analysis, BlockClass, Regime
from verifier.theorems.conditions import Formula, Implication, OneOf, at, equal

Weight = Callable[[Item], int]
"""How much a block of an item counts."""


class Count(NamedTuple):
    """One case of a number: under which conditions, on sizes and on symbols of the case's own, and which."""

    where: tuple[Condition, ...]
    value: Affine


def completeness(analysis: Analysis) -> Iterator[Implication]:
    """
    Every F and I exactly once, and where its inputs come from.

    Loops count micro-batches up one by one, so a rank runs each micro-batch of a job once if it runs as many as there are.
    """
    program = analysis.program
    jobs = [(kind, phase) for phase in range(len(program.stages)) for kind in "FI"]
    for number, regime in enumerate(analysis.regimes):
        where = (*analysis.assumptions, *regime.where)
        for step, trips in enumerate(regime.trips, 1):
            yield Implication(f"regime {number}, step {step}: trips", where, trips)
        totals = analysis.totals(regime)
        for job in jobs:
            for k, condition in enumerate(equal(totals.get(job, affine(0)), program.microbatches)):
                yield Implication(f"regime {number}: all {job[0]}{job[1]} {k}", where, condition.expression)
    for phase, stage in enumerate(program.stages):
        yield Implication(f"phase {phase}: stage", analysis.assumptions, stage)
        yield Implication(f"phase {phase}: stage below depth", analysis.assumptions, program.depth - 1 - stage)
    for kind, phase in jobs:
        yield from _one_producer(analysis, kind, phase)


def _one_producer(analysis: Analysis, kind: str, phase: int) -> Iterator[Implication]:
    """A stage with a neighbour finds it in exactly one phase."""
    step = -1 if kind == "F" else 1
    producers = analysis.neighbours(phase, step)
    where = (*analysis.assumptions, analysis.has_neighbour(phase, step))
    for lacking in _choices([producer.where for producer in producers]):
        given = (*where, *(condition.negated for condition in lacking))
        yield Implication(f"{kind}{phase} has a producer", given, None)
    for k, first in enumerate(producers):
        for second in producers[k + 1 :]:
            yield Implication(f"{kind}{phase} has one producer", (*where, *first.where, *second.where), None)
    for producer in producers:
        stage = analysis.program.stages[producer.phase].substitute({analysis.program.rank: producer.rank})
        for condition in equal(stage, analysis.program.stages[phase] + step):
            yield Implication(f"{kind}{phase} reads its neighbour", (*where, *producer.where), condition.expression)


def _choices(groups: list[tuple[Condition, ...]]) -> Iterator[tuple[Condition, ...]]:
    """One condition of each group."""
    yield from product(*groups)


def weight_queue(analysis: Analysis) -> Iterator[Implication]:
    """Whenever a W runs, an I waits for it, and none waits at the end: so every W runs once, first in, first out."""
    program = analysis.program
    named = {piece.phase for each in program.loops for item in each.body for piece in item.pieces if piece.kind == "W"}
    if None in named and len(named) > 1:
        raise ScheduleError(f"{program.name}: expected W with a phase everywhere or nowhere")
    queues: list[int | None] = [None] if None in named else list(range(len(program.stages)))
    for queue in queues:

        def waiting(item: Item, queue: int | None = queue) -> int:
            """I that are added to the queue, less W that are taken out of it."""
            parts = [piece for piece in item.pieces if queue is None or piece.phase == queue]
            return sum((piece.kind == "I") - (piece.kind == "W") for piece in parts)

        label = "" if queue is None else str(queue)
        for block in analysis.classes:
            if Piece("W", queue) in block.pieces:
                for where, value in before(analysis, block, waiting):
                    yield Implication(f"W{label} of {block.name} has an I", (*block.domain, *where), value - 1)
        for number, regime in enumerate(analysis.regimes):
            given = (*analysis.assumptions, *regime.where)
            for where, value in in_all(analysis, regime, waiting):
                for condition in equal(value, 0):
                    yield Implication(f"regime {number}: no I waits for W{label}", (*given, *where), condition.expression)


def _live(item: Item) -> int:
    """Activations that an item leaves behind."""
    return sum((piece.kind == "F") - (piece.kind in "BW") for piece in item.pieces)


def peak(analysis: Analysis, most: Affine | Extreme) -> Iterator[Implication]:
    """No forward brings a rank's live activations above a bound."""
    for block in analysis.classes:
        if any(piece.kind == "F" for piece in block.pieces):
            for (where, held), bound in product(before(analysis, block, _live), most.cases()):
                yield Implication(f"peak at {block.name}", (*block.domain, *where, *bound.where), bound.value - held - 1)


def peak_is_reached(analysis: Analysis, most: Affine | Extreme) -> Iterator[OneOf]:
    """On every rank some forward, the first or last of its loop, reaches the bound."""
    known = {"i", analysis.program.rank, *analysis.sizes}
    reached: dict[int, list[tuple[Condition, ...]]] = {}
    for block in analysis.classes:
        if not any(piece.kind == "F" for piece in block.pieces):
            continue
        for index, starts in ((affine(0), True), (block.trips - 1, False)):
            for (where, held), bound in product(before(analysis, block, _live, starts=starts), most.cases()):
                if any(condition.expression.symbols - known for condition in where):
                    continue
                there = (*block.domain, *where, *bound.where, *equal(held + 1, bound.value))
                reached.setdefault(block.regime, []).append(at(there, {"i": index}))
    for number, regime in enumerate(analysis.regimes):
        given = (*analysis.assumptions, *regime.where)
        yield OneOf(f"regime {number}: the peak is reached", given, tuple(reached.get(number, [])))


def busy(analysis: Analysis, where: tuple[Condition, ...], formula: Formula, name: str) -> Iterator[Implication]:
    """How much F, I, W and F&B a rank runs."""
    kinds = (("F",), ("I", "B"), ("W", "B"))

    def alone(kinds: tuple[str, ...]) -> Weight:
        return lambda item: sum(piece.kind in kinds for piece in item.pieces) if len(item.pieces) == 1 else 0

    weights = [*map(alone, kinds), lambda item: int(len(item.pieces) == 2)]
    for number, regime in enumerate(analysis.regimes):
        given = (*analysis.assumptions, *regime.where, *where)
        for label, weight, part in zip(("F", "I", "W", "FB"), weights, formula.parts, strict=True):
            for case, value in in_all(analysis, regime, weight):
                for condition in equal(value, part):
                    yield Implication(f"{name}, regime {number}: {label}", (*given, *case), condition.expression)


# ---------------------------------------- how often items have run


def in_all(analysis: Analysis, regime: Regime, weight: Weight) -> Iterator[Count]:
    """The sum of an item's weight over all blocks of a rank."""
    loops = zip(analysis.program.loops, regime.trips, strict=True)
    return _sum([_in_loop(each, step, trips, weight) for step, (each, trips) in enumerate(loops)])


def before(analysis: Analysis, block: BlockClass, weight: Weight, *, starts: bool = False) -> Iterator[Count]:
    """The sum of an item's weight over all blocks before one on its rank, which ``starts`` its loop or not."""
    program, trips = analysis.program, analysis.regimes[block.regime].trips
    parts = [_in_loop(program.loops[step], step, trips[step], weight) for step in range(block.step)]
    here = program.loops[block.step]
    if not starts:
        parts.append(_in_loop(here, block.step, INDEX, weight))
    parts += [_here(item, weight(item)) for item in here.body[: block.position] if weight(item)]
    return _sum(parts)


def _here(item: Item, weight: int) -> list[Count]:
    """What an item before a block counts in the block's own iteration: its weight, if its guard holds."""
    found = [Count(item.guard, affine(weight))]
    for k, condition in enumerate(item.guard):
        found.append(Count((*item.guard[:k], condition.negated), affine(0)))
    return found


def _in_loop(each: Loop, step: int, iterations: Affine, weight: Weight) -> list[Count]:
    """The sum of an item's weight over the first iterations of a loop."""
    sums = {sum(weight(item) for item in each.body if way.issuperset(item.guard)) for way in each.ways()}
    if len(sums) == 1:
        # Whatever the guards say, an iteration counts the same.
        return [Count((), sums.pop() * iterations)]
    counted = [(place, item) for place, item in enumerate(each.body) if weight(item)]
    parts = [[Count(w, weight(item) * n) for w, n in _times(item, f"{step}.{place}", iterations)] for place, item in counted]
    return list(_sum(parts))


def _times(item: Item, label: str, iterations: Affine) -> list[Count]:
    """How often the guard of an item holds in the first iterations: between the bounds that its conditions set."""
    ranges: list[tuple[tuple[Condition, ...], Affine, Affine]] = [((), affine(0), iterations)]
    for k, condition in enumerate(item.guard):
        slope = condition.expression.coefficient("i")
        edge = Affine(((f"n{label}.{k}", 1),))
        ranges = [found for each in ranges for found in _narrowed(each, condition, slope, edge)]
    if not item.guard:
        return [Count((), iterations)]
    return [
        case
        for where, low, high in ranges
        for case in (Count((*where, high >= low), high - low), Count((*where, high < low), affine(0)))
    ]


def _narrowed(
    found: tuple[tuple[Condition, ...], Affine, Affine], condition: Condition, slope: int, edge: Affine
) -> Iterator[tuple[tuple[Condition, ...], Affine, Affine]]:
    """A range of iterations, less those in which a condition does not hold; ``edge`` is the first in which it changes."""
    where, low, high = found
    if slope == 0:
        yield (*where, condition), low, high
        yield (*where, condition.negated), low, low
        return
    at_edge, just_before = (Condition(condition.expression.substitute({"i": index})) for index in (edge, edge - 1))
    if slope > 0:
        known = (*where, at_edge, just_before.negated)
        yield (*known, edge >= low), edge, high
        yield (*known, edge < low), low, high
    else:
        known = (*where, at_edge.negated, just_before)
        yield (*known, edge <= high), low, edge
        yield (*known, edge > high), low, high


def _sum(parts: list[list[Count]]) -> Iterator[Count]:
    """Every case of each part with every case of the others."""
    for cases in product(*parts):
        yield Count(tuple(c for case in cases for c in case.where), sum((case.value for case in cases), affine(0)))
