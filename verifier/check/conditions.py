"""What it means that a condition is covered."""

from __future__ import annotations


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
