"""
What each kind of theorem demands: its conditions, generated from the loop program and the claim.

The prover and whoever writes evidence run through this; they differ in what they do with a condition. Nothing here decides
anything. The checker of evidence does not: it works conditions out by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from verifier.affine import Affine, Condition
from verifier.loops import Program
from verifier.theorems.classes import Analysis
from verifier.theorems.conditions import Formula, Implication, Statement, dead_conditions, kink_conditions, obligations
from verifier.theorems.cones import covered, spanned
from verifier.theorems.guesses import Bound, Guesses
from verifier.theorems.paths import Path, path_conditions
from verifier.theorems.structure import busy, completeness, peak, peak_is_reached, weight_queue
from verifier.theorems.theories import Region, Theory, total_of


class Book(Protocol):
    """Who takes conditions, and supplies what is guessed."""

    def add(self, conditions: Iterable[Statement]) -> None:
        """Take conditions that must hold."""

    def analysis(self, program: Program, domain: tuple[Condition, ...]) -> Analysis:
        """The classes of a program."""

    def guesses(self, theory: Theory, number: int, only: str | None = None) -> Guesses:
        """Paths and timelines for one part of the sizes; with ``only``, the timelines of one region."""

    def links(self, analysis: Analysis, path: Path, name: str) -> dict[str, int]:
        """In which way each block of a path waits for the one before."""


def legal(theory: Theory, book: Book) -> None:
    """Complete, every producer where it should be, every W with an I to follow; opposite phases in a pair."""
    sizes = (*theory.program.domain, *theory.domain)
    book.add(covered(sizes, [setting.domain for setting in theory.settings], "no sizes are left out"))
    for setting in theory.settings:
        analysis = book.analysis(theory.program, setting.domain)
        regimes = [regime.where for regime in analysis.regimes]
        book.add(covered(analysis.assumptions, regimes, "the cases of trip counts leave no rank out"))
        book.add(completeness(analysis))
        book.add(weight_queue(analysis))
        book.add(_pairs(analysis))
        book.add(dead_conditions(analysis))


def no_deadlock(theory: Theory, book: Book) -> None:
    """
    A timeline for one cost under which every block takes time: no blocks can wait in a circle, whatever they cost.
    """
    region = theory.regions[0]
    total = total_of(region.rays)
    for number, setting in enumerate(theory.settings):
        analysis = book.analysis(theory.program, setting.domain)
        known = book.guesses(theory, number, only=region.name)
        for block in analysis.classes:
            takes = sum(count * cost for count, cost in zip(block.duration, total, strict=True))
            book.add([Implication(f"{block.name} takes time", (), Affine((), takes - 1))])
        _check_region(analysis, theory, region, known.regions[region.name], book)


def every_block_takes_time(theory: Theory) -> bool:
    """Whether timelines for the rays of a region, added up, show that no blocks wait in a circle."""
    blocks = {item for each in theory.program.loops for item in each.body}
    total = total_of(theory.regions[0].rays)
    cost = dict(zip(("F", "I", "W", "FB"), total, strict=True))
    cost["B"] = cost["I"] + cost["W"]
    return all(cost["FB" if len(item.pieces) == 2 else item.pieces[0].kind] >= 1 for item in blocks)


def _pairs(analysis: Analysis) -> Iterator[Implication]:
    """The two parts of an overlapped block belong to opposite phases."""
    for block in analysis.classes:
        if len(block.pieces) == 2 and block.pieces[0].phase == block.pieces[1].phase:
            yield Implication(f"{block.name} joins opposite phases", block.domain, None)


def peaks(theory: Theory, book: Book) -> None:
    """No rank holds more activations than claimed at any time, and each holds as many at some time."""
    for setting in theory.settings:
        analysis = book.analysis(theory.program, setting.domain)
        book.add(peak(analysis, theory.peak))
        book.add(peak_is_reached(analysis, theory.peak))


def idle_formulas(theory: Theory) -> dict[str, tuple[Formula, ...]]:
    """Per part of the ranks, the formulas whose greatest is the idle time."""
    minus = {part.name: Formula(*(-count for count in part.busy.parts)) for part in theory.parts}
    return {name: tuple(formula + less for formula in theory.makespan) for name, less in minus.items()}


def busy_times(theory: Theory, book: Book) -> None:
    """What the ranks run, and that the idle time does not speak of micro-batches."""
    for setting in theory.settings:
        analysis = book.analysis(theory.program, setting.domain)
        for part in theory.parts:
            book.add(busy(analysis, part.where, part.busy, part.name))
        if all(part.where for part in theory.parts):
            book.add(covered(analysis.assumptions, [part.where for part in theory.parts], "every rank has a part"))


def makespan(theory: Theory, book: Book) -> None:
    """
    The makespan is the greatest of the formulas.
    """
    book.add(covered(theory.costs, [region.where for region in theory.regions], "regions cover all costs"))
    for region in theory.regions:
        book.add(spanned(region.rays, region.where, region.name))
    for number, setting in enumerate(theory.settings):
        analysis = book.analysis(theory.program, setting.domain)
        known = book.guesses(theory, number)
        for k, formula in enumerate(theory.makespan):
            _check_path(analysis, known.paths[k], formula, f"path {k}", book)
        for region in theory.regions:
            _check_region(analysis, theory, region, known.regions[region.name], book)


def _check_path(analysis: Analysis, path: Path, formula: Formula, name: str, book: Book) -> None:
    book.add(path_conditions(analysis, path, formula, book.links(analysis, path, name), name))


def _check_region(analysis: Analysis, theory: Theory, region: Region, bound: Bound, book: Book) -> None:
    """There is a timeline for every ray, each ending by the greatest of the region's formulas."""
    limit, kink, timelines = bound
    sizes = (*analysis.program.domain, *analysis.domain)
    options = kink.options if kink else (Formula(*(Affine(),) * 4),)
    claimed = [theory.makespan[k] for k in region.formulas]
    if [limit + option for option in options] != claimed or [timeline.ray for timeline in timelines] != list(region.rays):
        book.add([Implication(f"{region.name}: bound and rays as claimed", (), None)])
    for k, option in enumerate(options):
        book.add(Implication(f"{region.name} option {k} is never negative", sizes, part) for part in option.parts)
    if kink:
        book.add(kink_conditions(analysis, kink))
    for timeline in timelines:
        book.add(obligation.implication for obligation in obligations(analysis, timeline, limit, kink))


def speaks_of_microbatches(theory: Theory) -> str | None:
    """The part of the ranks whose idle time depends on M; None where there is none."""
    symbols = theory.program.microbatches.symbols
    for part, formulas in idle_formulas(theory).items():
        if any(number.symbols & symbols for formula in formulas for number in formula.parts):
            return part
    return None


Demand = Callable[[Theory, Book], None]
DEMANDS: dict[str, tuple[Demand, ...]] = {
    "legal": (legal, no_deadlock),
    "peak-activations": (legal, no_deadlock, peaks),
    "makespan": (legal, makespan),
    "idle": (legal, makespan, busy_times),
    "independence": (legal, makespan, busy_times),
    "bubble-ratio": (legal, makespan, busy_times),
}
"""By kind of theorem."""
