"""
Certificates: why affine inequalities cannot hold together, as a sum of them that is negative (Farkas), after splitting cases.

What they look like, and how they are read, stands in ``check.covering``.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any

from verifier.affine import Affine, Condition
from verifier.check.covering import Options, in_order, options_in_order
from verifier.theorems.conditions import OneOf, Statement
from verifier.theorems.solving import point

DEPTH = 12
"""Case splits, one inside the other, before a certificate is given up."""


def rows_of(statement: Statement) -> tuple[list[Affine], list[list[Affine]]]:
    """
    What cannot hold together if a statement is true: its conditions and the negation of what follows, in order; and options.
    """
    rows = [condition.expression for condition in statement.given]
    if isinstance(statement, OneOf):
        return in_order(rows), options_in_order([each.expression for each in option] for option in statement.options)
    return in_order(rows if statement.then is None else [*rows, -statement.then - 1]), []


def certificate(rows: Sequence[Affine], options: Options = (), depth: int = DEPTH) -> dict[str, Any] | None:
    """
    Why the rows are not all at least 0 for any whole numbers for which no option holds; None where that is not seen.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> x, y = symbols("x y")
    >>> certificate([x - y, y - 3, 2 - x])
    {'sum': [[0, 1], [1, 1], [2, 1]]}
    >>> certificate([2 * x - 1, 1 - 2 * x])["split"]
    {'x': 1, '': -1}
    >>> certificate([x], [[x - 1], [-x]])
    {'option': 1, 'fails': [{'option': 0, 'fails': [{'sum': [[1, 1], [2, 1]]}]}]}
    """
    factors = _factors(rows)
    if factors is not None:
        return {"sum": [[row, factor] for row, factor in enumerate(factors) if factor]}
    if options and (values := point([Condition(row) for row in rows])) is not None:
        return _by_option(rows, options, values, depth)
    broken = [(name, value) for name, value in sorted(_rational_point(rows).items()) if value.denominator > 1]
    if not broken or depth == 0:
        return None
    name, value = broken[0]
    split = Affine(((name, 1),), -(value.numerator // value.denominator) - 1)
    upper, lower = certificate([*rows, split], depth=depth - 1), certificate([*rows, -split - 1], depth=depth - 1)
    if upper is None or lower is None:
        return None
    written = {**dict(split.terms), **({"": split.constant} if split.constant else {})}
    return {"split": written, "at least 0": upper, "below": lower}


def _by_option(rows: Sequence[Affine], options: Options, values: dict[str, int], depth: int) -> dict[str, Any] | None:
    """An option that holds at a point of the rows; where it fails there are fewer points, and the others are left."""
    holding = (k for k, option in enumerate(options) if all(_value(condition, values) >= 0 for condition in option))
    chosen = next(holding, None)
    if chosen is None or depth == 0:
        return None
    fails = []
    for condition in options[chosen]:
        below = certificate([*rows, -condition - 1], options, depth - 1)
        if below is None:
            return None
        fails.append(below)
    return {"option": chosen, "fails": fails}


def _value(row: Affine, values: dict[str, int]) -> int:
    """A symbol that no row speaks of may be any number."""
    return row.value({**dict.fromkeys(row.symbols, 0), **values})


def _factors(rows: Sequence[Affine]) -> list[int] | None:
    """Factors that are not negative, with which the rows add up to a negative number."""
    import z3

    solver = z3.SimpleSolver()
    factors = [z3.Real(f"row {k}") for k in range(len(rows))]
    solver.add([factor >= 0 for factor in factors])
    for name in sorted({name for row in rows for name in row.symbols}):
        solver.add(
            z3.Sum([row.coefficient(name) * f for row, f in zip(rows, factors, strict=True) if row.coefficient(name)]) == 0
        )
    solver.add(z3.Sum([row.constant * f for row, f in zip(rows, factors, strict=True) if row.constant]) == -1)
    if solver.check() != z3.sat:
        return None
    model = solver.model()
    found = [Fraction(model.eval(factor, model_completion=True).as_fraction()) for factor in factors]
    scale = lcm(*(number.denominator for number in found))
    return [int(number * scale) for number in found]


def _rational_point(rows: Sequence[Affine]) -> dict[str, Fraction]:
    """Rational numbers with which all rows are at least 0; where no factors exist, some do."""
    import z3

    names = sorted({name for row in rows for name in row.symbols})
    unknowns = {name: z3.Real(name) for name in names}
    solver = z3.SimpleSolver()
    solver.add([z3.Sum([c * unknowns[n] for n, c in row.terms]) + row.constant >= 0 for row in rows])
    answer = solver.check()
    assert answer == z3.sat, "one of the two exists, by Farkas"
    model = solver.model()
    return {name: Fraction(model.eval(unknowns[name], model_completion=True).as_fraction()) for name in names}
