"""
What a statement about a loop program comes to: implications between affine inequalities, for all sizes.

Every implication says that some conditions on whole numbers entail another one, or cannot hold together. Nothing is decided
here but which implications there are.

A timeline for all sizes
------------------------
The inequalities of a timeline are linear and homogeneous in start times and costs together. So a timeline for each extreme ray
of a cone of costs gives one for every cost in the cone: combine them as the cost combines the rays. Per ray and class of blocks
one affine function of sizes, rank and loop index says when a block starts. Program order is asked of all pairs of blocks on a
rank that come one before the other, neighbours or not, so that empty loops are no special case.

A term that is no linear function of the cost, X = max(X_1, X_2, ...), may be carried by some classes: their start is the affine
function plus X. Between classes that both carry it or both do not, X cancels. From one that does not to one that does, X may be
replaced by any X_k, one for all rays, since X is at least as large. From one that does to one that does not there must be no
constraint at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import lcm
from typing import NamedTuple

from verifier.affine import Affine, Condition, affine
from verifier.theorems.classes import INDEX, Analysis, BlockClass, Costs, Job, Producer

OTHER = Affine((("j", 1),))
"""The loop index of the earlier of two blocks."""


class Implication(NamedTuple):
    """
    Some conditions entail that an expression is at least 0; where the expression is None, that they cannot hold together.

    >>> from verifier.affine import symbols
    >>> x, y = symbols("x y")
    >>> print(Implication("sum", (x >= 1, y >= 2), x + y - 3))
    sum: x >= 1, y >= 2 => x+y >= 3
    """

    name: str
    given: tuple[Condition, ...]
    then: Affine | None

    def __str__(self) -> str:
        conclusion = "false" if self.then is None else str(Condition(self.then))
        return f"{self.name}: {', '.join(map(str, self.given))} => {conclusion}"


class OneOf(NamedTuple):
    """
    Some conditions entail that all conditions of at least one option hold.

    >>> from verifier.affine import symbols
    >>> x, = symbols("x")
    >>> print(OneOf("sign", (), ((x >= 0,), (x <= 0,))))
    sign:  => (x >= 0) or (0 >= x)
    """

    name: str
    given: tuple[Condition, ...]
    options: tuple[tuple[Condition, ...], ...]

    def __str__(self) -> str:
        options = " or ".join(f"({', '.join(map(str, option))})" for option in self.options)
        return f"{self.name}: {', '.join(map(str, self.given))} => {options or 'false'}"


Statement = Implication | OneOf
"""What is put to a solver, or certified."""


@dataclass(frozen=True)
class Relation:
    """
    Blocks of one class that wait for blocks of another.

    Attributes
    ----------
    earlier, later
        Positions in ``Analysis.classes``.
    rank
        The rank of the earlier block, in terms of the later's.
    given
        When a pair of blocks is meant: conditions on sizes, rank and the indices ``i`` of the later and ``j`` of the earlier.
    """

    name: str
    earlier: int
    later: int
    rank: Affine
    given: tuple[Condition, ...]


def equal(left: Affine, right: Affine | int) -> tuple[Condition, Condition]:
    """Both are the same."""
    return left >= right, left <= right


def at(conditions: Sequence[Condition], values: dict[str, Affine]) -> tuple[Condition, ...]:
    """Conditions with some symbols replaced."""
    return tuple(Condition(condition.expression.substitute(values)) for condition in conditions)


# ---------------------------------------- who waits for whom


@lru_cache(maxsize=64)
def relations(analysis: Analysis) -> tuple[Relation, ...]:
    """Everything that a timeline has to respect: program order on every rank, and what every block reads."""
    return (*_program_order(analysis), *_reads(analysis))


@lru_cache(maxsize=64)
def live_relations(analysis: Analysis) -> tuple[Relation, ...]:
    """Those that some blocks stand in; the others are for :func:`dead_conditions`."""
    return tuple(relation for relation in relations(analysis) if analysis.possible(relation.given))


def dead_conditions(analysis: Analysis) -> Iterator[Implication]:
    """That no blocks stand in the relations that timelines are not asked about."""
    live = set(live_relations(analysis))
    yield from (Implication(f"never {each.name}", each.given, None) for each in relations(analysis) if each not in live)


def _program_order(analysis: Analysis) -> Iterator[Relation]:
    rank = Affine(((analysis.program.rank, 1),))
    for (m, u), (n, v) in product(enumerate(analysis.classes), repeat=2):
        if u.regime != v.regime or u.step > v.step:
            continue
        both = (*v.domain, *at(u.domain, {"i": OTHER}))
        if u.step < v.step:
            yield Relation(f"order {u.name} {v.name}", m, n, rank, both)
            continue
        yield Relation(f"order {u.name} {v.name}, later iteration", m, n, rank, (*both, OTHER < INDEX))
        if u.position < v.position:
            yield Relation(f"order {u.name} {v.name}, same iteration", m, n, rank, (*both, *equal(OTHER, INDEX)))


def _reads(analysis: Analysis) -> Iterator[Relation]:
    for later, block in enumerate(analysis.classes):
        for job in block.microbatch:
            for needed, producer in needs(analysis, job):
                for earlier, other in enumerate(analysis.classes):
                    if needed in other.microbatch:
                        yield read(analysis, (later, job), (earlier, needed), producer)


def needs(analysis: Analysis, job: Job) -> Iterator[tuple[Job, Producer]]:
    """
    What a job reads: activations flow up the stages, gradients down, and a backward needs its own forward.

    Where the stage has no neighbour, no producer's conditions hold.
    """
    kind, phase = job
    program = analysis.program
    if kind == "I":
        yield ("F", phase), Producer(phase, Affine(((program.rank, 1),)), ())
    for producer in analysis.neighbours(phase, -1 if kind == "F" else 1):
        yield (kind, producer.phase), producer


def read(analysis: Analysis, later: tuple[int, Job], earlier: tuple[int, Job], producer: Producer) -> Relation:
    """That blocks of one class read what blocks of another make, for the same micro-batch."""
    (n, job), (m, needed) = later, earlier
    v, u = analysis.classes[n], analysis.classes[m]
    there = {"i": OTHER, analysis.program.rank: producer.rank}
    same = equal(v.microbatch[job], u.microbatch[needed].substitute(there))
    given = (*v.domain, *producer.where, *at(u.domain, there), *same)
    return Relation(f"{job[0]}{job[1]} of {v.name} reads {needed[0]}{needed[1]} of {u.name}", m, n, producer.rank, given)


# ---------------------------------------- timelines


@dataclass(frozen=True)
class Formula:
    """
    A value that is affine in the sizes and linear in the costs F, I, W, FB: one affine expression for each.

    >>> from verifier.affine import symbols
    >>> M, P = symbols("M P")
    >>> makespan = Formula(M + P - 1, M + P - 1, M + P - 1, affine(0))
    >>> print(makespan), makespan.along((1, 0, 2, 0))
    (M+P-1)F + (M+P-1)I + (M+P-1)W
    (None, 3(M+P-1))
    """

    F: Affine
    I: Affine  # noqa: E741
    W: Affine
    FB: Affine

    @property
    def parts(self) -> tuple[Affine, Affine, Affine, Affine]:
        """In the order of costs."""
        return self.F, self.I, self.W, self.FB

    def along(self, ray: Costs) -> Affine:
        """The value at given costs."""
        return sum((cost * part for cost, part in zip(ray, self.parts, strict=True)), affine(0))

    def __add__(self, other: Formula) -> Formula:
        return Formula(*(a + b for a, b in zip(self.parts, other.parts, strict=True)))

    def __str__(self) -> str:
        words = [
            (f"({part})" if len(part.terms) + bool(part.constant) > 1 else str(part)) + name
            for name, part in zip(("F", "I", "W", "FB"), self.parts, strict=True)
            if part != affine(0)
        ]
        return " + ".join(words) or "0"


@dataclass(frozen=True)
class Kink:
    """
    A greatest of several formulas that some classes carry in their start times.

    Attributes
    ----------
    options
        X is the greatest of them.
    carriers
        Positions in ``Analysis.classes``.
    chosen
        Which option takes the place of X, by the name of each relation into a carrier; ``default`` in those not named.
    """

    options: tuple[Formula, ...]
    carriers: frozenset[int]
    chosen: dict[str, int]
    default: int = 0


@dataclass(frozen=True)
class AffineTimeline:
    """
    When blocks start, for all sizes, under the costs of one ray.

    Attributes
    ----------
    ray
        The costs.
    scale
        Times are given in parts: ``scale`` of them make one unit.
    starts
        Per class, in sizes, rank and loop index.
    """

    ray: Costs
    scale: int
    starts: tuple[Affine, ...]

    @classmethod
    def of(cls, ray: Costs, symbols: Sequence[str], rows: Sequence[Sequence[Fraction]]) -> AffineTimeline:
        """From rational coefficients per class: of 1 and of each symbol."""
        scale = lcm(*(number.denominator for row in rows for number in row))
        whole = [[int(number * scale) for number in row] for row in rows]
        starts = tuple(Affine(tuple(zip(symbols, row[1:], strict=True)), row[0]) for row in whole)
        return cls(ray, scale, starts)


def span(block: BlockClass, ray: Costs) -> int:
    """How long a block takes under the costs of a ray."""
    return sum(count * cost for count, cost in zip(block.duration, ray, strict=True))


class Obligation(NamedTuple):
    """One condition on a timeline, and which classes it is about: a relation, or the start or end of one class."""

    implication: Implication
    later: int
    relation: Relation | None = None
    is_end: bool = False


def obligations(analysis: Analysis, timeline: AffineTimeline, limit: Formula, kink: Kink | None = None) -> Iterator[Obligation]:
    """
    That the start times respect everything, begin at 0 or later and end by a limit; ``limit`` leaves out what is carried.
    """
    ray, scale, label = timeline.ray, timeline.scale, "".join(map(str, timeline.ray))
    for number, block in enumerate(analysis.classes):
        start = timeline.starts[number]
        yield Obligation(Implication(f"{label} start {block.name}", block.domain, start), number)
        end = start + scale * span(block, ray)
        slack = scale * (limit.along(ray) + carried(kink, f"end {block.name}", ray, number, None)) - end
        yield Obligation(Implication(f"{label} end {block.name}", block.domain, slack), number, is_end=True)
    for relation in live_relations(analysis):
        if kink and relation.earlier in kink.carriers and relation.later not in kink.carriers:
            continue
        slack = slack_of(analysis, relation, timeline, kink)
        yield Obligation(Implication(f"{label} {relation.name}", relation.given, slack), relation.later, relation)


def carried(kink: Kink | None, name: str, ray: Costs, earlier: int, later: int | None) -> Affine:
    """What X adds to the slack between two classes; the end of the schedule, None, carries it."""
    if kink is None or earlier in kink.carriers or (later is not None and later not in kink.carriers):
        return affine(0)
    return kink.options[kink.chosen.get(name, kink.default)].along(ray)


def slack_of(analysis: Analysis, relation: Relation, timeline: AffineTimeline, kink: Kink | None) -> Affine:
    """By how much the later block of a relation starts after the earlier one's end."""
    there = {"i": OTHER, analysis.program.rank: relation.rank}
    begin = timeline.starts[relation.earlier].substitute(there)
    end = begin + timeline.scale * span(analysis.classes[relation.earlier], timeline.ray)
    more = carried(kink, relation.name, timeline.ray, relation.earlier, relation.later)
    return timeline.starts[relation.later] - end + timeline.scale * more


def kink_conditions(analysis: Analysis, kink: Kink) -> Iterator[Implication]:
    """That no block which does not carry X waits for one that does."""
    for relation in live_relations(analysis):
        if relation.earlier in kink.carriers and relation.later not in kink.carriers:
            yield Implication(f"never {relation.name}", relation.given, None)
