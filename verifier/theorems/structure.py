"""
That a loop program is complete at all sizes, holds no more activations than it says, and how busy it keeps each rank.

How often an item has run before a block is no affine number where a guard decides about the item; it is written with a least, a
greatest and a division by a constant, and Z3 reasons about that. These conditions are exact: where one fails, the point that Z3
finds is a size and a rank at which the loops do something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from verifier.affine import Affine, Condition, Extreme, affine
from verifier.loops import Item, Loop, Piece
from verifier.model import ScheduleError
from verifier.theorems.classes import INDEX, Analysis, BlockClass, Regime
from verifier.theorems.conditions import Formula, Implication, equal
from verifier.theorems.solving import expression

if TYPE_CHECKING:
    import z3

Weight = Callable[[Item], int]
"""How much a block of an item counts."""


class Query(NamedTuple):
    """A statement that is not affine: ``given`` entails ``then``; symbols are whole numbers."""

    name: str
    given: tuple[Condition, ...]
    then: z3.BoolRef


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
    from itertools import product

    yield from product(*groups)


def weight_queue(analysis: Analysis) -> Iterator[Query]:
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
                yield Query(f"W{label} of {block.name} has an I", block.domain, before(analysis, block, waiting) >= 1)
        for number, regime in enumerate(analysis.regimes):
            given = (*analysis.assumptions, *regime.where)
            yield Query(f"regime {number}: no I waits for W{label}", given, in_all(analysis, regime, waiting) == 0)


def peak(analysis: Analysis, most: Affine | Extreme) -> Iterator[Query]:
    """No forward brings a rank's live activations above a bound, and one on every rank reaches it."""
    import z3

    def live(item: Item) -> int:
        return sum((piece.kind == "F") - (piece.kind in "BW") for piece in item.pieces)

    bound = _value(most)
    forwards = [block for block in analysis.classes if any(piece.kind == "F" for piece in block.pieces)]
    reached: dict[int, list[z3.BoolRef]] = {}
    for block in forwards:
        held = before(analysis, block, live) + 1
        yield Query(f"peak at {block.name}", block.domain, held <= bound)
        for index in (affine(0), block.trips - 1):
            there = z3.And([expression(condition.expression) >= 0 for condition in block.domain])
            at_it = z3.And(there, held == bound)
            reached.setdefault(block.regime, []).append(z3.substitute(at_it, (z3.Int("i"), expression(index))))
    for number, regime in enumerate(analysis.regimes):
        given = (*analysis.assumptions, *regime.where)
        yield Query(f"regime {number}: the peak is reached", given, z3.Or(reached.get(number, [])))


def busy(analysis: Analysis, where: tuple[Condition, ...], formula: Formula, name: str) -> Iterator[Query]:
    """How much F, I, W and F&B a rank runs."""
    kinds = (("F",), ("I", "B"), ("W", "B"))

    def alone(kinds: tuple[str, ...]) -> Weight:
        return lambda item: sum(piece.kind in kinds for piece in item.pieces) if len(item.pieces) == 1 else 0

    weights = [*map(alone, kinds), lambda item: int(len(item.pieces) == 2)]
    for number, regime in enumerate(analysis.regimes):
        given = (*analysis.assumptions, *regime.where, *where)
        for label, weight, part in zip(("F", "I", "W", "FB"), weights, formula.parts, strict=True):
            claim = in_all(analysis, regime, weight) == expression(part)
            yield Query(f"{name}, regime {number}: {label} on a rank", given, claim)


# ---------------------------------------- how often items have run


def in_all(analysis: Analysis, regime: Regime, weight: Weight) -> z3.ArithRef:
    """The sum of an item's weight over all blocks of a rank."""
    loops = zip(analysis.program.loops, regime.trips, strict=True)
    return _sum([_in_loop(each, expression(trips), weight) for each, trips in loops])


def before(analysis: Analysis, block: BlockClass, weight: Weight) -> z3.ArithRef:
    """The sum of an item's weight over all blocks before one, on its rank."""
    import z3

    program, trips = analysis.program, analysis.regimes[block.regime].trips
    earlier = [_in_loop(program.loops[step], expression(trips[step]), weight) for step in range(block.step)]
    here = program.loops[block.step]
    earlier.append(_in_loop(here, expression(INDEX), weight))
    for item in here.body[: block.position]:
        if weight(item):
            holds = z3.And([expression(condition.expression) >= 0 for condition in item.guard])
            earlier.append(z3.If(holds, weight(item), 0))
    return _sum(earlier)


def _in_loop(each: Loop, iterations: z3.ArithRef, weight: Weight) -> z3.ArithRef:
    """The sum of an item's weight over the first iterations of a loop."""
    return _sum([weight(item) * _times(item, iterations) for item in each.body if weight(item)])


def _times(item: Item, iterations: z3.ArithRef) -> z3.ArithRef:
    """How often the guard of an item holds in the first iterations: between the bounds that its conditions set."""
    import z3

    low, high = z3.IntVal(0), iterations
    for condition in item.guard:
        slope = condition.expression.coefficient("i")
        rest = expression(condition.expression.substitute({"i": 0}))
        if slope == 0:
            high = z3.If(rest >= 0, high, 0)
        elif slope > 0:
            # slope i + rest >= 0 from i = ceil(-rest / slope) on; division by a constant rounds down.
            first = -(rest / slope)
            low = z3.If(first > low, first, low)
        else:
            past = rest / -slope + 1
            high = z3.If(past < high, past, high)
    return z3.If(high > low, high - low, 0)


def _value(number: Affine | Extreme) -> z3.ArithRef:
    """An expression, or the least or greatest of some."""
    import z3

    if isinstance(number, Affine):
        return expression(number)
    best, *others = map(_value, number.options)
    for other in others:
        best = z3.If(other < best if number.name == "min" else other > best, other, best)
    return best


def _sum(terms: list[z3.ArithRef]) -> z3.ArithRef:
    import z3

    return z3.Sum(terms) if terms else z3.IntVal(0)
