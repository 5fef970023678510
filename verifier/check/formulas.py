"""The formulas in sentences, such as ``(M+P-1)(F+B)``, as numbers: so that what people read is what was checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from verifier.check.conditions import require

_TOKEN = re.compile(r"\s*(max|min|FB|[A-Za-z]|\d+|[-+/*(),])")


def value_of(formula: str, values: Mapping[str, int | Fraction]) -> Fraction:
    """
    The number that a formula gives; what stands side by side is multiplied.

    Raises
    ------
    EvidenceError
        If it is no formula, or speaks of something that has no value.

    Examples
    --------
    >>> value_of("(M-2)FB + max(3F/2, I)", {"M": 5, "F": 2, "I": 1, "FB": 4})
    Fraction(15, 1)
    """
    reader = _Reader(formula, values)
    found = reader.sum()
    require(not reader.left, f"{formula} is a formula")
    return found


class _Reader:
    def __init__(self, formula: str, values: Mapping[str, int | Fraction]) -> None:
        self.formula, self.values = formula, values
        self.left = list(self._tokens())

    def _tokens(self) -> Iterator[str]:
        at = 0
        while at < len(self.formula.rstrip()):
            found = _TOKEN.match(self.formula, at)
            require(found is not None, f"{self.formula} is a formula")
            assert found is not None, "required"
            yield found[1]
            at = found.end()

    def _next(self, *expected: str) -> bool:
        if self.left and self.left[0] in expected:
            self.left.pop(0)
            return True
        return False

    def sum(self) -> Fraction:
        total = self._product()
        while self.left and self.left[0] in "+-":
            sign = 1 if self.left.pop(0) == "+" else -1
            total += sign * self._product()
        return total

    def _product(self) -> Fraction:
        total = self._factor()
        while self.left and self.left[0] not in "+-,)":
            if self._next("/"):
                total /= self._factor()
            else:
                self._next("*")
                total *= self._factor()
        return total

    def _factor(self) -> Fraction:
        require(bool(self.left), f"{self.formula} is a formula")
        token = self.left.pop(0)
        if token in ("max", "min"):
            require(self._next("("), f"{self.formula} is a formula")
            options = [self.sum()]
            while self._next(","):
                options.append(self.sum())
            require(self._next(")"), f"{self.formula} is a formula")
            return max(options) if token == "max" else min(options)
        if token == "(":
            inner = self.sum()
            require(self._next(")"), f"{self.formula} is a formula")
            return inner
        if token.isdigit():
            return Fraction(token)
        require(token in self.values, f"{token} in {self.formula} has a value")
        return Fraction(self.values[token])
