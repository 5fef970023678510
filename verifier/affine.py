"""
Affine expressions over named sizes, conditions on them, and the least or greatest of some.

The numbers of loop programs, for all sizes at once: they are evaluated to unroll a program and taken apart to reason about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import NamedTuple

_WRITTEN_ORDER = "MmPqrhi"
"""Sizes before ranks before the loop index, as formulas of schedules are usually written."""


@dataclass(frozen=True)
class Affine:
    """
    A whole number that depends linearly on named sizes.

    Parameters
    ----------
    terms
        Pairs of symbol and coefficient; stored sorted, each symbol once, without zeros, so that equal expressions are equal.
    constant
        What is added.

    Examples
    --------
    >>> h, q = symbols("h q")
    >>> 2 * (q - h - 1)
    2(q-h-1)
    >>> (2 * (q - h - 1)).value({"q": 4, "h": 1})
    4
    >>> q <= 2 * h
    2h >= q
    """

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    def __post_init__(self) -> None:
        sums: Counter[str] = Counter()
        for symbol, coefficient in self.terms:
            sums[symbol] += coefficient
        object.__setattr__(self, "terms", tuple(sorted((s, c) for s, c in sums.items() if c)))

    def __add__(self, other: Affine | int) -> Affine:
        other = affine(other)
        return Affine(self.terms + other.terms, self.constant + other.constant)

    def __mul__(self, factor: int) -> Affine:
        return Affine(tuple((symbol, factor * c) for symbol, c in self.terms), factor * self.constant)

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Affine | int) -> Affine:
        return self + -affine(other)

    def __rsub__(self, other: int) -> Affine:
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __ge__(self, other: Affine | int) -> Condition:
        return Condition(self - other)

    def __gt__(self, other: Affine | int) -> Condition:
        return Condition(self - other - 1)

    def __le__(self, other: Affine | int) -> Condition:
        return Condition(other - self)

    def __lt__(self, other: Affine | int) -> Condition:
        return Condition(other - self - 1)

    @property
    def symbols(self) -> frozenset[str]:
        """The sizes that it depends on."""
        return frozenset(symbol for symbol, _ in self.terms)

    def coefficient(self, symbol: str) -> int:
        """How much it grows when the symbol grows by one."""
        return dict(self.terms).get(symbol, 0)

    def value(self, sizes: Mapping[str, int]) -> int:
        """The number at given sizes; every symbol must be given."""
        return self.constant + sum(c * sizes[symbol] for symbol, c in self.terms)

    def substitute(self, values: Mapping[str, Affine | int]) -> Affine:
        """
        The expression with some symbols replaced.

        >>> q, h = symbols("q h")
        >>> (q - h).substitute({"h": q - 1})
        1
        """
        result = Affine((), self.constant)
        for symbol, c in self.terms:
            result += c * affine(values.get(symbol, Affine(((symbol, 1),))))
        return result

    def cases(self) -> tuple[Case, ...]:
        """Itself, under no condition; see :meth:`Extreme.cases`."""
        return (Case((), self),)

    def __str__(self) -> str:
        terms = sorted(self.terms, key=lambda term: (term[0] not in _WRITTEN_ORDER, _WRITTEN_ORDER.find(term[0])))
        if terms and terms[0][1] < 0:
            terms.sort(key=lambda term: term[1] < 0)
        numbers = [c for _, c in terms] + [self.constant]
        common = gcd(*numbers)
        if common > 1 and sum(map(bool, numbers)) > 1:
            return f"{common}({Affine(tuple((s, c // common) for s, c in terms), self.constant // common)})"
        words = [f"{c:+d}{symbol}" if abs(c) != 1 else f"{'+' if c > 0 else '-'}{symbol}" for symbol, c in terms]
        words += [f"{self.constant:+d}"] if self.constant or not words else []
        return "".join(words).removeprefix("+")

    __repr__ = __str__


def symbols(names: str) -> tuple[Affine, ...]:
    """
    One expression for each name.

    >>> P, r = symbols("P r")
    >>> P - 1 - r
    P-r-1
    """
    return tuple(Affine(((name, 1),)) for name in names.split())


def affine(value: Affine | int) -> Affine:
    """A number as an expression; an expression as it is."""
    return value if isinstance(value, Affine) else Affine((), value)


@dataclass(frozen=True)
class Condition:
    """
    An affine expression that is at least 0. Made by comparing expressions with ``<=``, ``<``, ``>=``, ``>``.

    Examples
    --------
    >>> h, i = symbols("h i")
    >>> full = 2 * i <= h
    >>> full, full.negated, full.holds({"h": 3, "i": 1})
    (h >= 2i, 2i >= h+1, True)
    """

    expression: Affine

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is true at given sizes."""
        return self.expression.value(sizes) >= 0

    @property
    def negated(self) -> Condition:
        """True exactly where this one is false; sizes are whole numbers."""
        return Condition(-self.expression - 1)

    def __bool__(self) -> bool:
        # Without this, `0 <= h < q` would silently mean `h < q`.
        raise TypeError("a condition on symbols is neither true nor false; ask holds(sizes)")

    def __str__(self) -> str:
        more, less = (tuple((s, abs(c)) for s, c in self.expression.terms if sign * c > 0) for sign in (1, -1))
        constant = self.expression.constant
        # A lone constant reads best on the right: P >= 1.
        left = constant if constant > 0 and less else 0
        return f"{Affine(more, left)} >= {Affine(less, left - constant)}"

    __repr__ = __str__


class Case(NamedTuple):
    """An expression and where it is the value of something piecewise."""

    where: tuple[Condition, ...]
    value: Affine


@dataclass(frozen=True)
class Extreme:
    """
    The least or the greatest of some expressions: the trip count of a loop that small sizes cut short.

    Examples
    --------
    >>> M, P, r = symbols("M P r")
    >>> warmup = least(M, P - 1 - r)
    >>> warmup, warmup.value({"M": 1, "P": 8, "r": 0})
    (min(M, P-r-1), 1)
    >>> for case in warmup.cases():
    ...     print(case.value, "where", *case.where)
    M where P >= M+r+1
    P-r-1 where M+r+1 >= P
    """

    name: str
    options: tuple[Affine | Extreme, ...]

    @property
    def symbols(self) -> frozenset[str]:
        """The sizes that it depends on."""
        return frozenset().union(*(option.symbols for option in self.options))

    def value(self, sizes: Mapping[str, int]) -> int:
        """The number at given sizes."""
        numbers = [option.value(sizes) for option in self.options]
        return min(numbers) if self.name == "min" else max(numbers)

    def cases(self) -> tuple[Case, ...]:
        """The affine pieces; together they cover all sizes, and where two of them hold they agree."""
        found = []
        for choice in product(*(option.cases() for option in self.options)):
            for winner in choice:
                beats = tuple(self._is_it(winner.value, other.value) for other in choice if other is not winner)
                found.append(Case(tuple(c for case in choice for c in case.where) + beats, winner.value))
        return tuple(found)

    def _is_it(self, winner: Affine, other: Affine) -> Condition:
        return winner <= other if self.name == "min" else winner >= other

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.options))})"

    __repr__ = __str__


def least(*options: Affine | Extreme | int) -> Extreme:
    """The least of some expressions."""
    return Extreme("min", tuple(affine(o) if isinstance(o, int) else o for o in options))


def greatest(*options: Affine | Extreme | int) -> Extreme:
    """
    The greatest of some expressions.

    >>> P, M = symbols("P M")
    >>> greatest(0, M - P)
    max(0, M-P)
    """
    return Extreme("max", tuple(affine(o) if isinstance(o, int) else o for o in options))
