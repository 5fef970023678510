"""
A family, for all its sizes and costs: which conditions a theorem comes to, each against its certificate.

What has to be trusted
----------------------
The evidence, the solvers and the code that found the proof need no trust. The conditions are worked out here, from the loops of
the family and the claim, by code of the checker alone (``blocks``, ``counting``, ``timing``); the prover has its own
(``theorems.classes``, ``conditions``, ``structure``, ``paths``, ``cones``), and where that asks for less a certificate is
missing. What both share, and what is therefore to be read with care:

- ``affine`` and ``loops``: expressions, the cases of a minimum, and what a loop program is; ``families``: the loops;
- ``theorems.theories``: what is claimed, as formulas, regions of costs and parts of the sizes. Their completeness is checked;
- the mathematics in ``theorems.conditions`` and ``paths``: timelines for rays give timelines for all costs that they generate,
  a path is a lower bound whatever the costs are; and, for DualPipe, that the folded program says it all.

Against a mistake in these, ``instances`` runs the family itself at many sizes and costs, by a simulation of the checker's own:
blocks, makespan, idle times and peaks must be what the theorem says, the start times of the evidence must fit, and the sentence
that people read must give the same makespan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import product
from typing import Any

from verifier.affine import Affine, Condition
from verifier.check.blocks import Reading, Rows, denied
from verifier.check.conditions import require
from verifier.check.counting import busy, complete, peak, weights
from verifier.check.covering import Table
from verifier.check.instances import check_instances
from verifier.check.scripts import Asked
from verifier.check.timing import Timelines, Wait, along, check_path, live_waits, path_of, spans
from verifier.theorems.theories import THEORIES, Region, Theory

COSTS = ("F", "I", "W", "FB")


def check_theorem(name: str, evidence: Mapping[str, Any], asked: Collection[Asked] | None = None) -> str:
    """
    Check a theorem about a family.

    Parameters
    ----------
    name
        Which theorem the evidence is for.
    asked
        What solvers are asked about: nothing of what is used here may be missing. There must be a certificate for all of it,
        and for nothing else; those that are not used here are checked as well.

    Raises
    ------
    EvidenceError
        If a condition is not covered.

    Examples
    --------
    >>> from verifier.theorems.evidence import certified
    >>> check_theorem("gpipe-makespan", certified("gpipe", "makespan"))
    'gpipe-makespan: all 45 different conditions are covered; 6 instances agree'
    """
    family, about = evidence["family"], evidence["about"]
    require(name == f"{family}-{about}", f"evidence of {family}-{about} is none of {name}")
    theory = next((theory for theory in THEORIES if theory.name == family), None)
    require(theory is not None and about in DEMANDS, f"{name} is a theorem")
    assert theory is not None, "required"
    book = Book(theory, evidence)
    for demand in DEMANDS[about]:
        demand(book)
    count = len(book.table.used)
    if asked is not None:
        _check_all(book.table, asked, evidence)
    checked = check_instances(theory, about, book.parts, book.guesses)
    return f"{name}: all {count} different conditions are covered; {checked} instances agree"


def _check_all(table: Table, asked: Collection[Asked], evidence: Mapping[str, Any]) -> None:
    """The two files are about the same conditions, and every certificate is right."""
    known = {each.name: each for each in asked}
    require(table.used <= known.keys(), "the SMT-LIB 2 text asks about every condition")
    require(evidence["certificates"].keys() <= known.keys(), "the SMT-LIB 2 text asks about whatever has a certificate")
    lacking = known.keys() - evidence["certificates"].keys()
    require(len(lacking) <= len(evidence["uncertified"]), "whatever the SMT-LIB 2 text asks about has a certificate")
    for name in sorted(table.left_over):
        named = "a condition that is not needed"
        require(table.excludes(known[name].rows, known[name].options, named), named)


class Book:
    """What is certified, and what a theory's loops come to; the certificates are checked as they are looked for."""

    def __init__(self, theory: Theory, evidence: Mapping[str, Any]) -> None:
        self.theory = theory
        self.table = Table(evidence["certificates"])
        self.guesses = evidence["guesses"]
        self.parts = [Reading(theory.program, rows(each.domain), self.has) for each in theory.settings]
        self._live: dict[int, list[Wait]] = {}

    def has(self, given: Rows, row: Affine | None = None) -> bool:
        """Whether a row, or without one a contradiction, is certified to follow."""
        return self.table.excludes(given if row is None else (*given, denied(row)))

    def follows(self, given: Rows, row: Affine, name: str) -> None:
        """Insist on a certificate."""
        require(self.has(given, row), name)

    def never(self, given: Rows, name: str) -> None:
        """Insist on a certificate."""
        require(self.has(given), name)

    def one_of(self, given: Rows, options: list[Rows], name: str) -> None:
        """Insist on a certificate."""
        require(self.table.excludes(given, options, name), name)

    def cover(self, given: Rows, cases: Iterable[Rows], name: str) -> None:
        """Insist that one case always holds; what is given needs no mention in a case."""
        for outside in product(*([row for row in case if row not in given] for case in cases)):
            self.never((*given, *map(denied, outside)), name)

    def timelines(self, number: int, region: Region) -> None:
        """The timelines of one region."""
        if number not in self._live:
            self._live[number] = live_waits(self.parts[number], self)
        written = self.guesses[str(number)]["regions"][region.name]
        claimed = [self.theory.makespan[k].parts for k in region.formulas]
        Timelines(self.parts[number], written, self._live[number]).check(claimed, region.rays, self)


def rows(conditions: Iterable[Condition]) -> Rows:
    """Conditions as rows."""
    return tuple(condition.expression for condition in conditions)


# ---------------------------------------- what each kind of theorem demands


def _legal(book: Book) -> None:
    theory = book.theory
    book.cover(
        rows((*theory.program.domain, *theory.domain)), [rows(each.domain) for each in theory.settings], "no sizes are left out"
    )
    for reading in book.parts:
        complete(reading, book)
        weights(reading, book)
        for block in reading.blocks:
            phases = [piece.phase for piece in block.item.pieces]
            require(len(set(phases)) == len(phases), "pairs join opposite phases")


def _no_deadlock(book: Book) -> None:
    """A timeline in which every block takes time: none wait in a circle."""
    region = book.theory.regions[0]
    costs = tuple(sum(ray[k] for ray in region.rays) for k in range(len(COSTS)))
    for number, reading in enumerate(book.parts):
        for block in reading.blocks:
            takes = along(tuple(Affine((), count) for count in block.takes), costs)
            book.follows((), takes - 1, f"{block.item} takes time")
        book.timelines(number, region)


def _peak(book: Book) -> None:
    for reading in book.parts:
        peak(reading, book.theory.peak, book)


def _makespan(book: Book) -> None:
    theory = book.theory
    costs = rows(theory.costs)
    book.cover(costs, [rows(region.where) for region in theory.regions], "regions leave no costs out")
    for region in theory.regions:
        require(spans(region.rays, rows(region.where), COSTS), f"the rays generate {region.name}")
    for number, reading in enumerate(book.parts):
        paths = book.guesses[str(number)]["paths"]
        for k, formula in enumerate(theory.makespan):
            check_path(reading, path_of(paths[str(k)]), formula.parts, book)
        for region in theory.regions:
            book.timelines(number, region)


def _busy(book: Book) -> None:
    for reading in book.parts:
        for part in book.theory.parts:
            busy(reading, rows(part.where), part.busy.parts, book)
        if all(part.where for part in book.theory.parts):
            book.cover(reading.ranks, [rows(part.where) for part in book.theory.parts], "parts leave no rank out")


def _independent(book: Book) -> None:
    """Idle time is makespan less busy time, as formulas; neither may be said to depend on M but by what cancels."""
    count = book.theory.program.microbatches.symbols
    for part in book.theory.parts:
        for formula in book.theory.makespan:
            idle = [whole - own for whole, own in zip(formula.parts, part.busy.parts, strict=True)]
            require(not any(number.symbols & count for number in idle), f"the idle time of {part.name} does not speak of M")


DEMANDS: dict[str, tuple[Callable[[Book], None], ...]] = {
    "legal": (_legal, _no_deadlock),
    "peak-activations": (_legal, _no_deadlock, _peak),
    "makespan": (_legal, _makespan),
    "idle": (_legal, _makespan, _busy),
    "independence": (_legal, _makespan, _busy, _independent),
    "bubble-ratio": (_legal, _makespan, _busy),
}
"""By kind of theorem."""
