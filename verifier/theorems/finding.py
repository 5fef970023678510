"""Finds timelines and paths for a theory, where they are not known from before."""

from __future__ import annotations

from functools import lru_cache

from verifier.affine import Affine, Condition
from verifier.loops import Program
from verifier.theorems.classes import Analysis
from verifier.theorems.conditions import Formula
from verifier.theorems.discovery import Instance, TimelineFit, choose_options, find_timeline
from verifier.theorems.guesses import Bound, Guesses
from verifier.theorems.pathfinding import find_path
from verifier.theorems.paths import Path
from verifier.theorems.solving import possible
from verifier.theorems.theories import Region, Setting, Theory


class NotFoundError(Exception):
    """No timeline or path of the form that is looked for was found; says nothing about the statement."""


@lru_cache(maxsize=32)
def analysis_of(program: Program, domain: tuple[Condition, ...]) -> Analysis:
    """The classes of a program, worked out once."""
    return Analysis(program, domain, possible)


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
