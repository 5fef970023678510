"""How schedules and verdicts are shown."""

from __future__ import annotations

from fractions import Fraction


def shown(value: Fraction | int) -> str:
    """
    A number for people: a decimal where a short one is exact, else a fraction.

    >>> shown(Fraction(13, 2)), shown(Fraction(1, 3)), shown(66)
    ('6.5', '1/3', '66')
    """
    value = Fraction(value)
    for digits in range(5):
        scaled = value * 10**digits
        if scaled.denominator == 1:
            whole, rest = divmod(scaled.numerator, 10**digits)
            return f"{whole}.{rest:0{digits}}" if digits else str(whole)
    return f"{value.numerator}/{value.denominator}"
