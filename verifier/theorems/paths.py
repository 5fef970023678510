"""
Critical paths for all sizes: chains of blocks, each waiting for the one before, written as loops.

The length of a path bounds the makespan from below whatever the costs are, so that the number of F, I, W and F&B on it can be
compared with a formula one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import NamedTuple

from verifier.affine import Affine, Condition, affine
from verifier.theorems.classes import Analysis, Costs, Job
from verifier.theorems.conditions import Formula, Implication, at, equal
from verifier.theorems.discovery import Instance, Node

STEP = Affine((("t", 1),))
"""The iteration of a segment."""
LONGEST_BODY = 8


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


# ---------------------------------------- discovery


def find_path(analysis: Analysis, costs: Costs, instances: Sequence[Instance]) -> Path | None:
    """
    A path that is critical under some costs, fitted to instances that are large enough to show all its loops.

    Returns
    -------
    A guess, or None where the instances differ in more than numbers.
    """
    for prefer_order in (True, False):
        pieces = [_compressed(_critical(instance, costs, prefer_order)) for instance in instances]
        shapes = {tuple((piece.shape, piece.steps) for piece in each) for each in pieces}
        if len(shapes) == 1 and (path := _fitted(analysis, instances, pieces)) is not None:
            return path
    return None


class _Piece(NamedTuple):
    """A segment at given sizes: classes, (rank, index) of the first iteration, and how both change per iteration."""

    shape: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]
    first: tuple[tuple[int, int], ...]
    trips: int


def _critical(instance: Instance, costs: Costs, prefer_order: bool) -> list[Node]:
    """A longest path, program order or reads taken first among equals; empty where the blocks hang."""
    found = instance.ends(costs, prefer_order)
    if found is None:
        return []
    ends, cause = found
    path: list[Node] = []
    last: Node | None = max(ends, key=lambda node: (ends[node], node))
    while last is not None:
        path.append(last)
        last = cause[last]
    return path[::-1]


def _compressed(nodes: list[Node]) -> list[_Piece]:
    """The path as few repeated bodies, as far as looking ahead finds them."""
    found, place = [], 0
    while place < len(nodes):
        options = [_repeated(nodes, place, size) for size in range(1, min(LONGEST_BODY, len(nodes) - place) + 1)]
        # Two bodies in a row look evenly changed by chance; three do not.
        best = max(options, key=lambda p: (len(p.shape) * p.trips if p.trips > 1 + (len(p.shape) > 1) else 0, -len(p.shape)))
        found.append(best)
        place += len(best.shape) * best.trips
    return found


def _repeated(nodes: list[Node], place: int, size: int) -> _Piece:
    """How often the next few blocks repeat with ranks and indices that change evenly."""
    body, after = nodes[place : place + size], nodes[place + size : place + 2 * size]
    steps = tuple((v[1] - u[1], v[2] - u[2]) for u, v in zip(body, after, strict=False))
    trips = 1
    while len(steps) == size:
        expected = [(c, r + trips * dr, i + trips * di) for (c, r, i), (dr, di) in zip(body, steps, strict=True)]
        if nodes[place + trips * size : place + (trips + 1) * size] != expected:
            break
        trips += 1
    shape, first = tuple(node[0] for node in body), tuple((node[1], node[2]) for node in body)
    return _Piece(shape, steps if trips > 1 else ((0, 0),) * size, first, trips)


def _fitted(analysis: Analysis, instances: Sequence[Instance], pieces: Sequence[Sequence[_Piece]]) -> Path | None:
    """The same segments with their numbers as functions of the sizes."""
    fit = AffineFit(analysis.sizes, [instance.sizes for instance in instances])
    path = []
    for same in zip(*pieces, strict=True):
        stops = []
        for k, block in enumerate(same[0].shape):
            rank, index = (fit.through([piece.first[k][axis] for piece in same]) for axis in (0, 1))
            if rank is None or index is None:
                return None
            dr, di = same[0].steps[k]
            stops.append(Stop(block, rank + dr * STEP, index + di * STEP))
        trips = fit.through([piece.trips for piece in same])
        if trips is None:
            return None
        path.append(Segment(tuple(stops), trips))
    return tuple(path)


class AffineFit:
    """Affine functions of the sizes through given values."""

    def __init__(self, symbols: Sequence[str], sizes: Sequence[Mapping[str, int]]) -> None:
        self.symbols = ("", *symbols)
        self.rows = [[1, *(each[symbol] for symbol in symbols)] for each in sizes]

    def through(self, values: Sequence[int]) -> Affine | None:
        """The function with whole coefficients that has these values; None where there is none."""
        table = [[Fraction(n) for n in (*row, value)] for row, value in zip(self.rows, values, strict=True)]
        pivots: list[int] = []
        for column in range(len(self.symbols)):
            chosen = next((row for row in range(len(pivots), len(table)) if table[row][column]), None)
            if chosen is None:
                continue
            table[len(pivots)], table[chosen] = table[chosen], table[len(pivots)]
            pivot = table[len(pivots)]
            pivot[:] = [number / pivot[column] for number in pivot]
            for other in table:
                if other is not pivot and other[column]:
                    other[:] = [a - other[column] * b for a, b in zip(other, pivot, strict=True)]
            pivots.append(column)
        if any(row[-1] for row in table[len(pivots) :]):
            return None
        found = dict.fromkeys(self.symbols, Fraction(0)) | {
            self.symbols[column]: table[row][-1] for row, column in enumerate(pivots)
        }
        if any(number.denominator != 1 for number in found.values()):
            return None
        constant = int(found.pop(""))
        return Affine(tuple((symbol, int(number)) for symbol, number in found.items()), constant)
