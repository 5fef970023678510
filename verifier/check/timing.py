"""
Timelines and critical paths for all sizes: what must be true of those that evidence brings along.

Which of its ways a block waits in, and which option takes the place of what is carried, evidence need not say: any will do for
which all rows are certified.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any, NamedTuple, Protocol

from verifier.affine import Affine
from verifier.check.blocks import ZERO, Blocks, I, J, Reading, Rows, replaced, same
from verifier.check.conditions import require
from verifier.check.counting import Covering

Counts = tuple[Affine, ...]
"""How often F, I, W and FB go into a time, at all sizes."""
Ray = tuple[int, ...]
T = Affine((("t", 1),))
"""How often a part of a path was passed."""


class Certified(Covering, Protocol):
    """Who also says what is certified without insisting on it."""

    def has(self, given: Rows, row: Affine | None = None) -> bool:
        """Whether a row, or without one a contradiction, is certified to follow."""


class Wait(NamedTuple):
    """Blocks ``later`` wait for blocks ``earlier`` on a rank, where rows over sizes, rank, i and j hold."""

    earlier: int
    later: int
    rank: Affine
    given: Rows


def affine_of(written: Mapping[str, int]) -> Affine:
    """An expression as evidence writes it; the constant has no name."""
    require(all(type(number) is int for number in written.values()), "expressions have whole coefficients")
    return Affine(tuple((name, c) for name, c in written.items() if name), written.get("", 0))


def along(counts: Counts, ray: Ray) -> Affine:
    """A time under given costs."""
    return sum((cost * count for cost, count in zip(ray, counts, strict=True)), ZERO)


# ---------------------------------------- who waits for whom


def waits(reading: Reading) -> Iterator[Wait]:
    """Every pair of blocks of which one has to wait for the other: along ranks, and for what it reads."""
    blocks, rank = reading.blocks, reading.program.rank
    for m, u in enumerate(blocks):
        for n, v in enumerate(blocks):
            both = (*v.domain, *replaced(u.domain, {"i": J}))
            if u.regime == v.regime and u.loop < v.loop:
                yield Wait(m, n, reading.rank, both)
            if u.regime == v.regime and u.loop == v.loop:
                yield Wait(m, n, reading.rank, (*both, I - J - 1))
                if u.place < v.place:
                    yield Wait(m, n, reading.rank, (*both, *same(I, J)))
    for n, v in enumerate(blocks):
        for (kind, phase), number in v.number.items():
            sources = [(kind, each.phase, each.rank, each.where) for each in reading.producers(kind, phase)]
            if kind == "I":
                sources.append(("F", phase, reading.rank, ()))
            for needed, other, there, where in sources:
                for m, u in enumerate(blocks):
                    if (needed, other) in u.number:
                        values = {"i": J, rank: there}
                        equal = same(number, u.number[needed, other].substitute(values))
                        yield Wait(m, n, there, (*v.domain, *where, *replaced(u.domain, values), *equal))


def live_waits(reading: Reading, book: Certified) -> list[Wait]:
    """Those that are not certified never to occur."""
    return [wait for wait in waits(reading) if not book.has(wait.given)]


# ---------------------------------------- timelines


class Timelines:
    """
    Timelines for the rays of one region, all ending by a greatest of formulas.

    Parameters
    ----------
    written
        ``limit``, what the formulas have in common; ``kink``, what else each of them has and which blocks carry the greatest
        of it; ``timelines``, per ray a scale and when each kind of block starts.
    """

    def __init__(self, reading: Reading, written: Mapping[str, Any], live: Sequence[Wait]) -> None:
        self.reading, self.live = reading, live
        self.limit: Counts = tuple(map(affine_of, written["limit"]))
        carried = written["kink"]
        self.options: list[Counts] = [tuple(map(affine_of, each)) for each in carried["options"]] if carried else [(ZERO,) * 4]
        self.carriers = set(carried["carriers"]) if carried else set()
        self.rays: list[Ray] = [tuple(each["ray"]) for each in written["timelines"]]
        self.scales: list[int] = [each["scale"] for each in written["timelines"]]
        self.starts = [list(map(affine_of, each["starts"])) for each in written["timelines"]]
        require(
            all(type(n) is int for scale, ray in zip(self.scales, self.rays, strict=True) for n in (scale, *ray)), "numbers"
        )
        require(all(scale > 0 for scale in self.scales), "scales are positive")
        require(all(len(starts) == len(reading.blocks) for starts in self.starts), "every block has a start")

    def check(self, claimed: Sequence[Counts], rays: Sequence[Ray], book: Certified) -> None:
        """That they are timelines for these rays, and end by the greatest of the claimed formulas."""
        bounds = [tuple(a + b for a, b in zip(self.limit, option, strict=True)) for option in self.options]
        require(bounds == list(claimed), "the bound is as claimed")
        require(self.rays == list(rays), "there is a timeline for every ray")
        for option in self.options:
            for part in option:
                book.follows(self.reading.sizes, part, "what is carried is never negative")
        for wait in self.live:
            if wait.earlier in self.carriers and wait.later not in self.carriers:
                book.never(wait.given, "no block waits for one that carries more")
            else:
                name = f"{self._item(wait.later)} waits for {self._item(wait.earlier)}"
                self._some_option(wait.given, self._slack(wait), self._gains(wait.earlier, wait.later), book, name)
        for number, block in enumerate(self.reading.blocks):
            for starts in self.starts:
                book.follows(block.domain, starts[number], "nothing starts before 0")
            self._some_option(block.domain, self._to_the_end(number), number not in self.carriers, book, "blocks end in time")

    def _item(self, number: int) -> str:
        return str(self.reading.blocks[number].item)

    def _gains(self, earlier: int, later: int) -> bool:
        """Whether the later block alone carries."""
        return later in self.carriers and earlier not in self.carriers

    def _slack(self, wait: Wait) -> list[Affine]:
        """Per ray, how much later than needed a block starts."""
        values = {"i": J, self.reading.program.rank: wait.rank}
        return [
            starts[wait.later] - starts[wait.earlier].substitute(values) - scale * self._takes(wait.earlier, ray)
            for ray, scale, starts in self._each()
        ]

    def _to_the_end(self, number: int) -> list[Affine]:
        """Per ray, how much earlier than the limit a block ends."""
        return [
            scale * along(self.limit, ray) - starts[number] - scale * self._takes(number, ray)
            for ray, scale, starts in self._each()
        ]

    def _each(self) -> Iterator[tuple[Ray, int, list[Affine]]]:
        return zip(self.rays, self.scales, self.starts, strict=True)

    def _takes(self, number: int, ray: Ray) -> int:
        return sum(cost * count for cost, count in zip(ray, self.reading.blocks[number].takes, strict=True))

    def _some_option(self, given: Rows, slack: Sequence[Affine], gains: bool, book: Certified, name: str) -> None:
        """
        That no slack is negative: where the greatest option comes on top, with one option in its place for all rays.
        """
        ways = [
            [row + scale * along(option, ray) for row, (ray, scale, _) in zip(slack, self._each(), strict=True)]
            for option in (self.options if gains else [(ZERO,) * 4])
        ]
        found = next((way for way in ways if all(book.has(given, row) for row in way)), None)
        require(found is not None, name)


def spans(rays: Sequence[Ray], where: Rows, names: Sequence[str]) -> bool:
    """
    Whether all costs for which some rows are at least 0 are sums of multiples of the rays.

    Where rows are homogeneous these costs are the sums of multiples of the extreme rays: directions in which all rows but one
    dimension's worth are 0, and the others at least 0. Each must be one of the rays. No certificate takes part.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> F, I, W, FB = symbols("F I W FB")
    >>> where = (F - I, I, W, -W, FB, -FB)
    >>> spans([(1, 0, 0, 0), (1, 1, 0, 0)], where, "F I W FB".split())
    True
    >>> spans([(1, 0, 0, 0), (2, 1, 0, 0)], where, "F I W FB".split())
    False
    """
    rows = [[Fraction(row.coefficient(name)) for name in names] for row in dict.fromkeys(where)]
    if any(row.constant or row.symbols - set(names) for row in where):
        return False
    found = set()
    for chosen in combinations(rows, len(names) - 1):
        line = _line(chosen, len(names))
        for sign in (1, -1) if line else ():
            ray = [sign * number for number in line]
            if all(sum(a * b for a, b in zip(row, ray, strict=True)) >= 0 for row in rows):
                found.add(_direction(ray))
    # A cone with no line in it is what its extreme rays generate.
    return _rank(rows) == len(names) and found <= {_direction([Fraction(number) for number in ray]) for ray in rays}


def _direction(ray: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Rays that are multiples of one another look the same."""
    total = sum(map(abs, ray), Fraction(0)) or Fraction(1)
    return tuple(number / total for number in ray)


def _eliminated(rows: Sequence[Sequence[Fraction]]) -> tuple[list[list[Fraction]], list[int]]:
    """Rows in reduced echelon form, and the columns of their leading ones."""
    left, pivots = [list(row) for row in rows], []
    done: list[list[Fraction]] = []
    for column in range(len(rows[0]) if rows else 0):
        chosen = next((row for row in left if row[column]), None)
        if chosen is not None:
            left = [row for row in left if row is not chosen]
            lead = [number / chosen[column] for number in chosen]
            left, done = (
                [[a - row[column] * b for a, b in zip(row, lead, strict=True)] for row in group] for group in (left, done)
            )
            done.append(lead)
            pivots.append(column)
    return done, pivots


def _rank(rows: Sequence[Sequence[Fraction]]) -> int:
    return len(_eliminated(rows)[1])


def _line(rows: Sequence[Sequence[Fraction]], size: int) -> list[Fraction]:
    """The direction in which all rows are 0; empty where there is not exactly one."""
    done, pivots = _eliminated(rows)
    if len(pivots) != size - 1:
        return []
    (free,) = set(range(size)) - set(pivots)
    line = [Fraction(0)] * size
    line[free] = Fraction(1)
    for row, pivot in zip(done, pivots, strict=True):
        line[pivot] = -row[free]
    return line


# ---------------------------------------- paths


class Stop(NamedTuple):
    """A block on a path, at a rank and iteration that are affine in sizes and ``t``."""

    block: int
    rank: Affine
    place: Affine


class Segment(NamedTuple):
    """Stops that are passed again and again."""

    trips: Affine
    stops: tuple[Stop, ...]


def path_of(written: Sequence[Mapping[str, Any]]) -> list[Segment]:
    """A path as evidence writes it."""
    return [
        Segment(affine_of(each["trips"]), tuple(Stop(b, affine_of(r), affine_of(i)) for b, r, i in each["stops"]))
        for each in written
    ]


def check_path(reading: Reading, path: Sequence[Segment], claimed: Counts, book: Certified) -> None:
    """That there is such a path at all sizes, and that it is as long as claimed whatever the costs are."""
    require(all(segment.stops for segment in path), "every part of a path has a stop")
    blocks = reading.blocks
    require(all(0 <= stop.block < len(blocks) for segment in path for stop in segment.stops), "a path's blocks exist")
    for cost, count in enumerate(claimed):
        length = sum((blocks[stop.block].takes[cost] * each.trips for each in path for stop in each.stops), ZERO)
        for row in same(length, count):
            book.follows(reading.sizes, row, "a path is as long as claimed")
    for segment in path:
        book.follows(reading.sizes, segment.trips, "no part of a path has negative length")
        inside = (*reading.sizes, T, segment.trips - T - 1)
        for stop in segment.stops:
            for row in replaced(blocks[stop.block].domain, {"i": stop.place, reading.program.rank: stop.rank}):
                book.follows(inside, row, "a path's blocks exist")
    for given, earlier, later in _steps(reading.sizes, path):
        ways = [] if book.has(given) else _ways(reading, earlier, later)
        linked = book.has(given) or any(all(book.has(given, row) for row in way) for way in ways)
        require(linked, f"{blocks[later.block].item} waits for {blocks[earlier.block].item} on a path")


def _at(stop: Stop, step: Affine) -> Stop:
    return Stop(stop.block, stop.rank.substitute({"t": step}), stop.place.substitute({"t": step}))


def _steps(sizes: Rows, path: Sequence[Segment]) -> Iterator[tuple[Rows, Stop, Stop]]:
    """From stop to stop, round again, and over empty segments to the next one."""
    for number, (trips, stops) in enumerate(path):
        for earlier, later in pairwise(stops):
            yield (*sizes, T, trips - T - 1), earlier, later
        yield (*sizes, T, trips - T - 2), stops[-1], _at(stops[0], T + 1)
        skipped: Rows = ()
        for after in path[number + 1 :]:
            given = (*sizes, trips - 1, after.trips - 1, *skipped)
            yield given, _at(stops[-1], trips - 1), _at(after.stops[0], ZERO)
            skipped = (*skipped, -after.trips)


def _ways(reading: Reading, u: Stop, v: Stop) -> Iterator[Rows]:
    """The ways in which one stop can wait for another, each with what must be true then."""
    earlier, later = reading.blocks[u.block], reading.blocks[v.block]
    if earlier.regime == later.regime and earlier.loop < later.loop:
        yield same(u.rank, v.rank)
    if earlier.regime == later.regime and earlier.loop == later.loop:
        apart = 0 if earlier.place < later.place else 1
        yield (*same(u.rank, v.rank), v.place - u.place - apart)
    for job in later.number:
        for needed in earlier.number:
            yield from _reads(reading, (u, earlier, needed), (v, later, job))


def _reads(
    reading: Reading, source: tuple[Stop, Blocks, tuple[str, int]], reader: tuple[Stop, Blocks, tuple[str, int]]
) -> Iterator[Rows]:
    (u, earlier, needed), (v, later, job) = source, reader
    rank, stages = reading.program.rank, reading.program.stages
    made = earlier.number[needed].substitute({rank: u.rank, "i": u.place})
    read = later.number[job].substitute({rank: v.rank, "i": v.place})
    there, here = stages[needed[1]].substitute({rank: u.rank}), stages[job[1]].substitute({rank: v.rank})
    if job[0] == "I" and needed[0] == "F" and job[1] == needed[1]:
        yield (*same(made, read), *same(there, here))
    elif job[0] == needed[0]:
        yield (*same(made, read), *same(there, here - 1 if job[0] == "F" else here + 1))
