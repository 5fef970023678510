"""A family, for all its sizes and costs: the certificates of ``theorems.evidence``, checked with whole numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from verifier.affine import Affine, Condition
from verifier.check.conditions import require
from verifier.loops import Program
from verifier.theorems import guesses
from verifier.theorems.classes import Analysis
from verifier.theorems.conditions import Implication
from verifier.theorems.demands import DEMANDS, speaks_of_microbatches
from verifier.theorems.paths import Path
from verifier.theorems.structure import Query
from verifier.theorems.theories import THEORIES, Theory

Certificate = Mapping[str, Any]


def check_theorem(name: str, evidence: Mapping[str, Any]) -> str:
    """
    Check a theorem about a family: its conditions are generated anew, and each must be covered by its certificate.

    Parameters
    ----------
    name
        Which theorem the evidence is for.

    Raises
    ------
    EvidenceError
        If a condition is not covered.

    Examples
    --------
    >>> from verifier.theorems.evidence import certified
    >>> check_theorem("gpipe-makespan", certified(THEORIES[0], "makespan"))
    'gpipe-makespan: all 121 conditions are covered'
    """
    family, kind = evidence["family"], evidence["about"]
    require(name == f"{family}-{kind}", f"evidence of {family}-{kind} is none of {name}")
    theory = next((theory for theory in THEORIES if theory.name == family), None)
    require(theory is not None and kind in DEMANDS, f"{name} is a theorem")
    assert theory is not None, "required"
    book = Checker(evidence)
    for demand in DEMANDS[kind]:
        demand(theory, book)
    require(next(book.certificates, None) is None, "no certificate is left over")
    require(kind != "independence" or speaks_of_microbatches(theory) is None, "the idle time does not speak of M")
    without = "; that the peak is reached is not affine and was left to the solver" if book.without else ""
    return f"{name}: all {book.covered} conditions are covered{without}"


class Checker:
    """A book that takes conditions only with their certificates."""

    def __init__(self, evidence: Mapping[str, Any]) -> None:
        self.certificates: Iterator[Certificate | None] = iter(evidence["certificates"])
        self.covered = self.without = 0
        self._excluded: Iterator[Certificate | None] = iter(evidence["excluded"])
        self._guesses = evidence["guesses"]
        self._links: Iterator[dict[str, int]] = iter(evidence["links"].values())
        self._analyses: dict[tuple[str, tuple[Condition, ...]], Analysis] = {}

    def ask(self, queries: Callable[[], Iterable[Query]]) -> None:
        """What is not affine is left out, and said to be."""
        self.without += 1

    def add(self, conditions: Iterable[Implication]) -> None:
        """Every condition against its certificate."""
        for condition in conditions:
            found = next(self.certificates, None)
            require(found is not None, str(condition))
            assert found is not None, "required"
            rows = [each.expression for each in dict.fromkeys(condition.given)]
            # What follows must fail for the rows to stand together.
            excludes(rows if condition.then is None else [*rows, -condition.then - 1], found, condition.name)
            self.covered += 1

    def analysis(self, program: Program, domain: tuple[Condition, ...]) -> Analysis:
        """The classes, leaving out only what is certified not to occur."""
        key = program.name, domain
        if key not in self._analyses:
            self._analyses[key] = Analysis(program, domain, self._judge)
        return self._analyses[key]

    def _judge(self, conditions: Sequence[Condition]) -> bool:
        found = next(self._excluded, None)
        if found is None:
            return True
        excludes([each.expression for each in dict.fromkeys(conditions)], found, "what is left out does not occur")
        return False

    def guesses(self, theory: Theory, number: int, only: str | None = None) -> guesses.Guesses:
        """As in the evidence."""
        return guesses.read(self._guesses[str(number)])

    def links(self, analysis: Analysis, path: Path, name: str) -> dict[str, int]:
        """As in the evidence."""
        return next(self._links, {})


def excludes(rows: Sequence[Affine], certificate: Certificate, name: str) -> None:
    """
    Check that rows cannot all be at least 0 for whole numbers.

    Raises
    ------
    EvidenceError
        If the certificate does not show it.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> x, = symbols("x")
    >>> excludes([x - 2, 1 - x], {"sum": [[0, 1], [1, 1]]}, "x is above 2 and below 1")
    >>> excludes([x - 2, 1 - x], {"sum": [[0, 1], [1, -1]]}, "with a flipped sign")
    Traceback (most recent call last):
    verifier.check.conditions.EvidenceError: not covered: with a flipped sign
    """
    if "split" in certificate:
        written = certificate["split"]
        split = Affine(tuple((symbol, c) for symbol, c in written.items() if symbol), written.get("", 0))
        excludes([*rows, split], certificate["at least 0"], name)
        excludes([*rows, -split - 1], certificate["below"], name)
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
