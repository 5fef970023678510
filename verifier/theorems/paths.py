"""
Critical paths for all sizes: chains of blocks, each waiting for the one before, written as loops.

The length of a path bounds the makespan from below whatever the costs are, so that the number of F, I, W and F&B on it can be
compared with a formula one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import NamedTuple

from verifier.affine import Affine, Condition, affine
from verifier.theorems.classes import Analysis, Job
from verifier.theorems.conditions import Formula, Implication, at, equal

STEP = Affine((("t", 1),))
"""The iteration of a segment."""


class Stop(NamedTuple):
    """A block on a path: its class, its rank, and its loop index ``place``, in sizes and ``t``."""

    block: int
    rank: Affine
    place: Affine


@dataclass(frozen=True)
class Segment:
    """A few stops that are passed again and again, ``t`` counting from 0."""

    stops: tuple[Stop, ...]
    trips: Affine


Path = tuple[Segment, ...]


def length(analysis: Analysis, path: Path) -> Formula:
    """How often each cost lies on a path."""
    total = Formula(*(affine(0),) * 4)
    for segment in path:
        counts = [sum(analysis.classes[stop.block].duration[k] for stop in segment.stops) for k in range(4)]
        total += Formula(*(count * segment.trips for count in counts))
    return total


# ---------------------------------------- conditions


class Step(NamedTuple):
    """One block and the next on a path, and when both are there."""

    name: str
    given: tuple[Condition, ...]
    earlier: Stop
    later: Stop


def path_steps(analysis: Analysis, path: Path, name: str) -> Iterator[Step]:
    """From block to block: inside segments, from one iteration to the next, and on to the next segment that is not empty."""
    sizes = (*analysis.program.domain, *analysis.domain)
    for number, segment in enumerate(path, 1):
        inside = (*sizes, STEP >= 0, segment.trips > STEP)
        for place, (u, v) in enumerate(pairwise(segment.stops), 1):
            yield Step(f"{name} segment {number} step {place}", inside, u, v)
        following = (*sizes, STEP >= 0, segment.trips > STEP + 1)
        yield Step(f"{name} segment {number} again", following, segment.stops[-1], at_step(segment.stops[0], STEP + 1))
    for first, before in enumerate(path):
        empty: tuple[Condition, ...] = ()
        for second, after in enumerate(path[first + 1 :], first + 1):
            given = (*sizes, before.trips >= 1, after.trips >= 1, *empty)
            u, v = at_step(before.stops[-1], before.trips - 1), at_step(after.stops[0], affine(0))
            yield Step(f"{name} from segment {first + 1} to {second + 1}", given, u, v)
            empty += (after.trips <= 0,)


def path_conditions(
    analysis: Analysis, path: Path, formula: Formula, links: dict[str, int], name: str = "path"
) -> Iterator[Implication]:
    """
    That there is such a path at all sizes, and that it is as long as a formula says.

    ``links`` says for each step which of the :func:`waits` is meant; steps that never happen need none.
    """
    sizes = (*analysis.program.domain, *analysis.domain)
    for cost, found, claimed in zip(("F", "I", "W", "FB"), length(analysis, path).parts, formula.parts, strict=True):
        for k, condition in enumerate(equal(found, claimed)):
            yield Implication(f"{name}: {cost} {k}", sizes, condition.expression)
    for number, segment in enumerate(path, 1):
        yield Implication(f"{name} segment {number} trips", sizes, segment.trips)
        inside = (*sizes, STEP >= 0, segment.trips > STEP)
        for place, stop in enumerate(segment.stops, 1):
            for k, condition in enumerate(_here(analysis, stop)):
                yield Implication(f"{name} segment {number} stop {place} domain {k}", inside, condition.expression)
    for step in path_steps(analysis, path, name):
        yield from _linked(analysis, step, links.get(step.name))


def choose_links(analysis: Analysis, path: Path, name: str, holds: Callable[[Implication], bool]) -> dict[str, int]:
    """For each step the first way in which its later block waits for the earlier one at all sizes."""
    found = {}
    for step in path_steps(analysis, path, name):
        for number in range(len(waits(analysis, step.earlier, step.later))):
            if all(map(holds, _linked(analysis, step, number))):
                found[step.name] = number
                break
    return found


def at_step(stop: Stop, step: Affine) -> Stop:
    """A stop in one iteration."""
    return stop._replace(rank=stop.rank.substitute({"t": step}), place=stop.place.substitute({"t": step}))


def _here(analysis: Analysis, stop: Stop) -> tuple[Condition, ...]:
    return at(analysis.classes[stop.block].domain, {analysis.program.rank: stop.rank, "i": stop.place})


def _linked(analysis: Analysis, step: Step, link: int | None) -> Iterator[Implication]:
    """That the later block waits for the earlier one in one of its ways; without a way, that the step never happens."""
    if link is None:
        yield Implication(step.name, step.given, None)
        return
    for k, condition in enumerate(waits(analysis, step.earlier, step.later)[link]):
        yield Implication(f"{step.name} {k}", step.given, condition.expression)


def waits(analysis: Analysis, u: Stop, v: Stop) -> list[tuple[Condition, ...]]:
    """The ways in which one stop can wait for another, each as the conditions under which it does."""
    earlier, later = analysis.classes[u.block], analysis.classes[v.block]
    found: list[tuple[Condition, ...]] = []
    here = equal(u.rank, v.rank)
    if earlier.regime == later.regime and earlier.step < later.step:
        found.append(here)
    elif earlier.regime == later.regime and earlier.step == later.step:
        found.append((*here, u.place <= v.place if earlier.position < later.position else u.place < v.place))
    for job, needed in product(later.microbatch, earlier.microbatch):
        if (way := _reading(analysis, (u, needed), (v, job))) is not None:
            found.append(way)
    return found


def _reading(analysis: Analysis, earlier: tuple[Stop, Job], later: tuple[Stop, Job]) -> tuple[Condition, ...] | None:
    """When one job reads another; None where its kind never does."""
    (u, (needed, other)), (v, (kind, phase)) = earlier, later
    rank, stages = analysis.program.rank, analysis.program.stages
    made = analysis.classes[u.block].microbatch[needed, other].substitute({rank: u.rank, "i": u.place})
    read = analysis.classes[v.block].microbatch[kind, phase].substitute({rank: v.rank, "i": v.place})
    there, here = stages[other].substitute({rank: u.rank}), stages[phase].substitute({rank: v.rank})
    if kind == "I" and needed == "F":
        return (*equal(made, read), *equal(there, here)) if phase == other else None
    if kind != needed:
        return None
    return (*equal(made, read), *equal(there, here - 1 if kind == "F" else here + 1))
