"""Z3's part: whether implications between affine inequalities hold for all whole numbers, and a point where one does not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from verifier.affine import Affine, Condition
from verifier.theorems.conditions import Implication

if TYPE_CHECKING:
    import z3

SECONDS = 20.0
"""How long one implication may take; they take milliseconds."""


class UndecidedError(Exception):
    """The solver gave up on an implication."""


@lru_cache(maxsize=100_000)
def expression(value: Affine) -> z3.ArithRef:
    """An affine expression as a term over whole numbers; the same few come up again and again."""
    import z3

    return z3.Sum([z3.IntVal(value.constant), *(c * z3.Int(name) for name, c in value.terms)])


def possible(conditions: Sequence[Condition]) -> bool:
    """
    Whether some whole numbers fulfil all conditions.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> x, = symbols("x")
    >>> possible((2 * x >= 1, 2 * x <= 1)), possible((x >= 1,))
    (False, True)
    """
    return point(conditions) is not None


def counterexample(implication: Implication) -> dict[str, int] | None:
    """
    Whole numbers for which an implication fails; None where it holds.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> x, y = symbols("x y")
    >>> counterexample(Implication("", (x >= 1, y >= 1), x + y - 2))
    >>> counterexample(Implication("", (x >= 3, x <= 3), x - 4))
    {'x': 3}
    """
    return _point(implication.given, implication.then)


def point(conditions: Sequence[Condition]) -> dict[str, int] | None:
    """
    Whole numbers that fulfil all conditions; None where there are none.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> x, = symbols("x")
    >>> point((2 * x >= 5, x <= 3))
    {'x': 3}
    """
    return _point(conditions, None)


def _point(given: Sequence[Condition], not_then: Affine | None) -> dict[str, int] | None:
    import z3

    solver = z3.SimpleSolver()
    solver.set("timeout", int(1000 * SECONDS))
    solver.add([expression(condition.expression) >= 0 for condition in given])
    if not_then is not None:
        solver.add(expression(not_then) < 0)
    answer = solver.check()
    if answer == z3.unknown:
        raise UndecidedError(solver.reason_unknown())
    if answer == z3.unsat:
        return None
    model = solver.model()
    names = {name for e in (*(c.expression for c in given), *([not_then] if not_then else [])) for name in e.symbols}
    return {name: model.eval(z3.Int(name), model_completion=True).as_long() for name in sorted(names)}
