"""What it means that a condition is covered, and which numbers evidence may hold."""

from __future__ import annotations

import re
from fractions import Fraction

MAX_DIGITS = 40


class EvidenceError(ValueError):
    """The evidence does not show what it claims: which condition is not covered."""


def require(true: bool, condition: str) -> None:
    """
    Go on only if a condition holds.

    Raises
    ------
    EvidenceError
        If it does not.

    Examples
    --------
    >>> require(1 < 2, "one is less than two")
    """
    if not true:
        raise EvidenceError(f"not covered: {condition}")


def whole(number: object, least: int, most: int, name: str) -> int:
    """
    A whole number of evidence, in a range that follows from what it is about, before anything is done with it.

    Raises
    ------
    EvidenceError
        If it is anything else.

    Examples
    --------
    >>> whole(3, 1, 16, "the period")
    3
    >>> whole(10**30, 1, 16, "the period")
    Traceback (most recent call last):
    verifier.check.conditions.EvidenceError: not covered: the period is a whole number from 1 to 16
    """
    if type(number) is int and least <= number <= most:
        return number
    raise EvidenceError(f"not covered: {name} is a whole number from {least} to {most}")


def rational(written: object, name: str) -> Fraction:
    """
    A number of evidence, whole or such as ``"5/2"``, of at most 40 digits: an exponent would make a large one of a short text.

    Raises
    ------
    EvidenceError
        If it is anything else.

    Examples
    --------
    >>> rational("5/2", "the bound")
    Fraction(5, 2)
    >>> rational("1e999999999", "the bound")
    Traceback (most recent call last):
    verifier.check.conditions.EvidenceError: not covered: the bound is a number such as 3 or "5/2"
    """
    digits = rf"\d{{1,{MAX_DIGITS}}}"
    text = written if isinstance(written, str) else ""
    if type(written) is int and abs(written) < 10**MAX_DIGITS:
        text = str(written)
    if re.fullmatch(rf"-?{digits}(/0*[1-9]\d{{0,{MAX_DIGITS}}})?", text, re.ASCII):
        return Fraction(text)
    raise EvidenceError(f'not covered: {name} is a number such as 3 or "5/2"')
