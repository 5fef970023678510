"""
Certificates, and what they cover.

A certificate shows that affine rows cannot all be at least 0 for whole numbers. It stands under a name that is made of the
rows, so that who looks for it has to know the rows, and finds nothing where others were certified.

``{"sum": [[row, factor], ...]}``
    Multiples of the rows, with factors above 0, add up to a negative number, all symbols cancelled (Farkas).
``{"split": expression, "at least 0": certificate, "below": certificate}``
    A whole number is at least 0 or at most -1. In each case one more row stands behind the others.
``{"option": k, "fails": [certificate, ...]}``
    Where rows entail that one of several options holds: if the k-th fails then one of its conditions does, which is one more
    row for each certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from verifier.affine import Affine
from verifier.check.conditions import require

Certificate = Mapping[str, Any]
Options = Sequence[Sequence[Affine]]


def in_order(rows: Iterable[Affine]) -> list[Affine]:
    """
    Each row once, in the order in which certificates count them.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> x, y = symbols("x y")
    >>> in_order([y - 1, x, y - 1])
    [x, y-1]
    """
    return sorted(set(rows), key=lambda row: (row.terms, row.constant))


def options_in_order(options: Iterable[Iterable[Affine]]) -> list[list[Affine]]:
    """Each option once, likewise."""
    found = {tuple(in_order(option)) for option in options}
    return [list(option) for option in sorted(found, key=lambda rows: [(row.terms, row.constant) for row in rows])]


def name_of(rows: Sequence[Affine], options: Options = ()) -> str:
    """
    The name under which the certificate of rows and options, in order, stands.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> x, = symbols("x")
    >>> name_of([x, x - 1]) == name_of([x, x - 1]), name_of([x, x - 1]) == name_of([x, x - 2])
    (True, False)
    """
    text = repr([[(row.terms, row.constant) for row in group] for group in (rows, *options)])
    return blake2b(text.encode(), digest_size=8).hexdigest()


class Table:
    """
    The certificates of one piece of evidence.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> x, = symbols("x")
    >>> rows = [x - 2, 1 - x]
    >>> table = Table({name_of(in_order(rows)): {"sum": [[0, 1], [1, 1]]}})
    >>> table.excludes(rows), table.excludes([x - 2, 2 - x]), table.left_over
    (True, False, set())
    """

    def __init__(self, certificates: Mapping[str, Certificate]) -> None:
        self._certificates = certificates
        self.left_over = set(certificates)
        self.used: set[str] = set()

    def excludes(self, rows: Iterable[Affine], options: Iterable[Iterable[Affine]] = (), name: str = "a condition") -> bool:
        """
        Whether it is certified that the rows cannot all be at least 0, or that otherwise one of the options holds.

        Raises
        ------
        EvidenceError
            If there is a certificate, and it is wrong.
        """
        ordered, choices = in_order(rows), options_in_order(options)
        found = name_of(ordered, choices)
        certificate = self._certificates.get(found)
        if certificate is None:
            return False
        if found in self.left_over:
            excludes(ordered, choices, certificate, name)
            self.left_over.discard(found)
            self.used.add(found)
        return True


def excludes(rows: Sequence[Affine], options: Options, certificate: Certificate, name: str) -> None:
    """
    Check one certificate.

    Raises
    ------
    EvidenceError
        If it does not show what it should.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> x, = symbols("x")
    >>> excludes([x - 2, 1 - x], [], {"sum": [[0, 1], [1, 1]]}, "x is above 2 and below 1")
    >>> excludes([x - 2, 1 - x], [], {"sum": [[0, 1], [1, -1]]}, "with a flipped sign")
    Traceback (most recent call last):
    verifier.check.conditions.EvidenceError: not covered: with a flipped sign
    """
    if "option" in certificate:
        chosen, fails = certificate["option"], certificate["fails"]
        require(isinstance(chosen, int) and 0 <= chosen < len(options) and len(fails) == len(options[chosen]), name)
        for condition, below in zip(options[chosen], fails, strict=True):
            excludes([*rows, -condition - 1], options, below, name)
        return
    if "split" in certificate:
        written = certificate["split"]
        require(all(isinstance(c, int) for c in written.values()), name)
        split = Affine(tuple((symbol, c) for symbol, c in written.items() if symbol), written.get("", 0))
        excludes([*rows, split], options, certificate["at least 0"], name)
        excludes([*rows, -split - 1], options, certificate["below"], name)
        return
    factors = certificate["sum"]
    fit = all(isinstance(n, int) and isinstance(f, int) and 0 <= n < len(rows) and f > 0 for n, f in factors)
    require(fit, name)
    total: dict[str, int] = {}
    constant = 0
    for number, factor in factors:
        constant += factor * rows[number].constant
        for symbol, coefficient in rows[number].terms:
            total[symbol] = total.get(symbol, 0) + factor * coefficient
    require(constant < 0 and not any(total.values()), name)
