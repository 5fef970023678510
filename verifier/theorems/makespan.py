"""Proves what a theory claims: legal, peak, makespan, idle time, each for all sizes and costs of its domain."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from verifier.affine import Affine, Condition
from verifier.loops import Program
from verifier.theorems.classes import Analysis
from verifier.theorems.conditions import Formula, Implication, dead_conditions, kink_conditions, obligations
from verifier.theorems.cones import covered, spanned
from verifier.theorems.discovery import Instance, TimelineFit, choose_options, find_timeline
from verifier.theorems.guesses import Bound, Guesses, load
from verifier.theorems.ledger import Ledger
from verifier.theorems.paths import Path, choose_links, find_path, path_conditions
from verifier.theorems.solving import counterexample, possible
from verifier.theorems.structure import busy, completeness, peak, weight_queue
from verifier.theorems.theories import Region, Setting, Theory, total_of


class NotFoundError(Exception):
    """No timeline or path of the form that is looked for was found; says nothing about the statement."""


@lru_cache(maxsize=32)
def analysis_of(program: Program, domain: tuple[Condition, ...]) -> Analysis:
    """The classes of a program, worked out once."""
    return Analysis(program, domain, possible)


def legal(theory: Theory, ledger: Ledger) -> None:
    """Complete, every producer where it should be, every W with an I to follow; opposite phases in a pair."""
    for setting in theory.settings:
        analysis = analysis_of(theory.program, setting.domain)
        ledger.add(completeness(analysis))
        ledger.add(weight_queue(analysis))
        ledger.add(_pairs(analysis))
        ledger.add(dead_conditions(analysis))


def no_deadlock(theory: Theory, ledger: Ledger, *, fresh: bool = False) -> None:
    """
    A timeline for one cost under which every block takes time: no blocks can wait in a circle, whatever they cost.

    Raises
    ------
    NotFoundError
        If none is found.
    """
    region = theory.regions[0]
    total = total_of(region.rays)
    for number, setting in enumerate(theory.settings):
        analysis = analysis_of(theory.program, setting.domain)
        known = find_guesses(theory, setting, Guesses() if fresh else load(theory.program.name, number), only=region.name)
        for block in analysis.classes:
            takes = sum(count * cost for count, cost in zip(block.duration, total, strict=True))
            ledger.add([Implication(f"{block.name} takes time", (), Affine((), takes - 1))])
        _check_region(analysis, theory, region, known.regions[region.name], ledger)


def _pairs(analysis: Analysis) -> Iterator[Implication]:
    """The two parts of an overlapped block belong to opposite phases."""
    for block in analysis.classes:
        if len(block.pieces) == 2 and block.pieces[0].phase == block.pieces[1].phase:
            yield Implication(f"{block.name} joins opposite phases", block.domain, None)


def peaks(theory: Theory, ledger: Ledger) -> None:
    """No rank holds more activations than claimed at any time, and each holds as many at some time."""
    for setting in theory.settings:
        analysis = analysis_of(theory.program, setting.domain)
        ledger.add(peak(analysis, theory.peak))


def idle_formulas(theory: Theory) -> dict[str, tuple[Formula, ...]]:
    """Per part of the ranks, the formulas whose greatest is the idle time."""
    minus = {part.name: Formula(*(-count for count in part.busy.parts)) for part in theory.parts}
    return {name: tuple(formula + less for formula in theory.makespan) for name, less in minus.items()}


def busy_times(theory: Theory, ledger: Ledger) -> None:
    """What the ranks run, and that the idle time does not speak of micro-batches."""
    for setting in theory.settings:
        analysis = analysis_of(theory.program, setting.domain)
        for part in theory.parts:
            ledger.add(busy(analysis, part.where, part.busy, part.name))
        if all(part.where for part in theory.parts):
            ledger.add(covered(analysis.assumptions, [part.where for part in theory.parts], "every rank has a part"))


def makespan(theory: Theory, ledger: Ledger, *, fresh: bool = False) -> None:
    """
    The makespan is the greatest of the formulas.

    Parameters
    ----------
    fresh
        Find timelines and paths anew, instead of starting from those that were found before.

    Raises
    ------
    NotFoundError
        If one is not found.
    """
    ledger.add(covered(theory.costs, [region.where for region in theory.regions], "regions cover all costs"))
    for region in theory.regions:
        ledger.add(spanned(region.rays, region.where, region.name))
    for number, setting in enumerate(theory.settings):
        analysis = analysis_of(theory.program, setting.domain)
        known = find_guesses(theory, setting, Guesses() if fresh else load(theory.program.name, number))
        for k, formula in enumerate(theory.makespan):
            _check_path(analysis, known.paths[k], formula, f"path {k}", ledger)
        for region in theory.regions:
            _check_region(analysis, theory, region, known.regions[region.name], ledger)


def find_guesses(theory: Theory, setting: Setting, known: Guesses, only: str | None = None) -> Guesses:
    """
    A path for each formula and timelines for each region, those that are known and new ones for the others.

    With ``only``, the timelines of one region and nothing else.

    Raises
    ------
    NotFoundError
        If one is not found.
    """
    analysis = analysis_of(theory.program, setting.domain)
    probes = enumerate(theory.probes) if only is None else ()
    paths = {k: known.paths.get(k) or _path(analysis, setting, probe) for k, probe in probes}
    wanted = [region for region in theory.regions if only in (None, region.name)]
    regions = {r.name: known.regions.get(r.name) or _timelines(analysis, setting, theory, r) for r in wanted}
    return Guesses(paths, regions)


def _path(analysis: Analysis, setting: Setting, probe: tuple[int, int, int, int]) -> Path:
    path = find_path(analysis, probe, [Instance(analysis, sizes) for sizes in setting.spread])
    if path is None:
        raise NotFoundError(f"no path for costs {probe}")
    return path


def _check_path(analysis: Analysis, path: Path, formula: Formula, name: str, ledger: Ledger) -> None:
    links = choose_links(analysis, path, name, lambda condition: counterexample(condition) is None)
    ledger.add(path_conditions(analysis, path, formula, links, name))


def bound_of(analysis: Analysis, theory: Theory, region: Region) -> tuple[Formula, tuple[Formula, ...]]:
    """What the formulas of a region have in common, and what each of them adds: the options of what is carried."""
    formulas = [theory.makespan[k] for k in region.formulas]
    common = Formula(*(_smallest(analysis, [formula.parts[k] for formula in formulas]) for k in range(4)))
    options = tuple(Formula(*(a - b for a, b in zip(f.parts, common.parts, strict=True))) for f in formulas)
    return common, options


def _smallest(analysis: Analysis, values: list[Affine]) -> Affine:
    """The one that is never larger than another."""
    sizes = (*analysis.program.domain, *analysis.domain)
    return next(value for value in values if not any(possible((*sizes, other < value)) for other in values))


def _timelines(analysis: Analysis, setting: Setting, theory: Theory, region: Region) -> Bound:
    instances = [Instance(analysis, sizes) for sizes in setting.small]
    limit, options = bound_of(analysis, theory, region)
    kink = None
    if len(options) > 1:
        carriers = frozenset(n for n, block in enumerate(analysis.classes) if theory.carriers(block))
        kink = choose_options(analysis, limit, region.rays, instances[:7], options, carriers)
        if kink is None:
            raise NotFoundError(f"no choice of options in {region.name}")
    found = []
    for ray in region.rays:
        timeline = find_timeline(TimelineFit(analysis, ray, limit, instances, kink))
        if timeline is None:
            raise NotFoundError(f"no timeline for costs {ray} in {region.name}")
        found.append(timeline)
    return limit, kink, tuple(found)


def _check_region(analysis: Analysis, theory: Theory, region: Region, bound: Bound, ledger: Ledger) -> None:
    """There is a timeline for every ray, each ending by the greatest of the region's formulas."""
    limit, kink, timelines = bound
    sizes = (*analysis.program.domain, *analysis.domain)
    options = kink.options if kink else (Formula(*(Affine(),) * 4),)
    claimed = [theory.makespan[k] for k in region.formulas]
    if [limit + option for option in options] != claimed or [timeline.ray for timeline in timelines] != list(region.rays):
        ledger.add([Implication(f"{region.name}: bound and rays as claimed", (), None)])
    for k, option in enumerate(options):
        ledger.add(Implication(f"{region.name} option {k} is never negative", sizes, part) for part in option.parts)
    if kink:
        ledger.add(kink_conditions(analysis, kink))
    for timeline in timelines:
        ledger.add(obligation.implication for obligation in obligations(analysis, timeline, limit, kink))
