"""Costs as cones: that some rays generate all costs which fulfil some conditions, and that regions leave no costs out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, product
from math import gcd, lcm

from verifier.affine import Affine, Condition, symbols
from verifier.theorems.classes import Costs
from verifier.theorems.conditions import Implication

COSTS = symbols("F I W FB")
Row = list[Fraction]


def spanned(rays: Sequence[Costs], where: Sequence[Condition], name: str) -> Iterator[Implication]:
    """
    All costs with some properties are sums of multiples of the rays.

    The rays generate a cone; it is given by the hyperplanes through some of them that have all on one side. Each of these
    inequalities, and each equation that all rays fulfil, must follow from the properties.

    Examples
    --------
    >>> from verifier.theorems.solving import counterexample
    >>> F, I, W, FB = COSTS
    >>> rays = [(1, 0, 0, 0), (1, 1, 0, 0)]
    >>> where = (F >= I, I >= 0, W >= 0, W <= 0, FB >= 0, FB <= 0)
    >>> [counterexample(each) for each in spanned(rays, where, "")]
    [None, None, None, None, None, None]
    """
    basis = _reduced([[Fraction(n) for n in ray] for ray in rays])
    for k, normal in enumerate(_orthogonal(basis, len(COSTS))):
        for sign in (1, -1):
            yield Implication(f"{name}: equation {k}", tuple(where), _dot(normal, sign))
    facets = set()
    for chosen in combinations(rays, len(basis) - 1):
        products = [[_inner(b, ray) for b in basis] for ray in chosen]
        for weights in _orthogonal(_reduced(products), len(basis)):
            normal = [sum((w * b[k] for w, b in zip(weights, basis, strict=True)), Fraction(0)) for k in range(len(COSTS))]
            sides = [_inner(normal, ray) for ray in rays]
            if all(side >= 0 for side in sides) and any(sides):
                facets.add(_whole(normal, 1))
            elif all(side <= 0 for side in sides) and any(sides):
                facets.add(_whole(normal, -1))
    for k, facet in enumerate(sorted(facets)):
        yield Implication(f"{name}: facet {k}", tuple(where), _dot([Fraction(n) for n in facet], 1))


def covered(where: Sequence[Condition], regions: Sequence[Sequence[Condition]], name: str) -> Iterator[Implication]:
    """All costs with some properties lie in one of the regions: there are none outside all of them."""
    for outside in product(*([c for c in region if c not in where] for region in regions)):
        yield Implication(name, (*where, *(condition.negated for condition in outside)), None)


def rays_of(where: Sequence[Condition]) -> tuple[Costs, ...]:
    """
    Costs that generate all costs which fulfil some conditions: the extreme rays of a cone, in whole numbers.

    Parameters
    ----------
    where
        Comparisons of multiples of costs; together they allow no line in both directions.

    Notes
    -----
    Looks at all triples of conditions, since three of them leave one direction of four.

    Examples
    --------
    >>> F, I, W, FB = COSTS
    >>> rays_of((F >= I, I >= 0, W >= 0, W <= 0, FB >= 0, FB <= 0))
    ((1, 0, 0, 0), (1, 1, 0, 0))
    """
    rows = [[Fraction(c.expression.coefficient(str(cost))) for cost in COSTS] for c in dict.fromkeys(where)]
    found = set()
    for chosen in combinations(rows, len(COSTS) - 1):
        basis = _reduced([row[:] for row in chosen])
        if len(basis) == len(COSTS) - 1:
            (direction,) = _orthogonal(basis, len(COSTS))
            for sign in (1, -1):
                ray = _whole(direction, sign)
                if all(_inner(row, ray) >= 0 for row in rows):
                    found.add(ray)
    return tuple((f, i, w, pair) for f, i, w, pair in sorted(found))


def _inner(a: Sequence[Fraction], b: Sequence[Fraction | int]) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def _whole(row: Row, sign: int) -> tuple[int, ...]:
    scale = lcm(*(number.denominator for number in row))
    numbers = [int(sign * number * scale) for number in row]
    return tuple(number // gcd(*numbers) for number in numbers)


def _dot(row: Row, sign: int) -> Affine:
    numbers = _whole(row, sign)
    return sum((n * cost for n, cost in zip(numbers, COSTS, strict=True)), Affine())


def _reduced(rows: list[Row]) -> list[Row]:
    """A basis of what the rows span, in reduced echelon form."""
    rows = [row[:] for row in rows]
    done = 0
    for column in range(len(rows[0]) if rows else 0):
        chosen = next((k for k in range(done, len(rows)) if rows[k][column]), None)
        if chosen is None:
            continue
        rows[done], rows[chosen] = rows[chosen], rows[done]
        pivot = rows[done][column]
        rows[done] = [number / pivot for number in rows[done]]
        for k, row in enumerate(rows):
            if k != done and row[column]:
                rows[k] = [a - row[column] * b for a, b in zip(row, rows[done], strict=True)]
        done += 1
    return rows[:done]


def _orthogonal(basis: list[Row], size: int) -> Iterator[Row]:
    """A basis of what is orthogonal to rows in reduced echelon form."""
    pivots = [next(k for k, number in enumerate(row) if number) for row in basis]
    for free in sorted(set(range(size)) - set(pivots)):
        row = [Fraction(0)] * size
        row[free] = Fraction(1)
        for pivot, base in zip(pivots, basis, strict=True):
            row[pivot] = -base[free]
        yield row
