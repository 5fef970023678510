"""
Loop programs: a schedule family written once, as the loops that every rank runs.

Trip counts and guards are affine in the sizes and in the rank, so that the same object can be unrolled to an order and be
reasoned about for all sizes at once. Micro-batch numbers are never written: a forward takes the next micro-batch of its
phase, a backward the next one of its own, a W the oldest that waits.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from verifier.affine import Affine, Condition, Extreme, affine
from verifier.model import ScheduleError

# ---------------------------------------- items, loops, programs


class Piece(NamedTuple):
    """One side of an item: F, I, W or B of a phase; a W without a phase is the oldest of all that wait."""

    kind: str
    phase: int | None

    def __str__(self) -> str:
        return self.kind + ("" if self.phase is None else str(self.phase))


_PIECE = re.compile(r"([FIB])([01])|(W)([01])?", re.ASCII)


@dataclass(frozen=True)
class Item:
    """
    What one position of a loop body runs as one block, where its guard holds.

    Parameters
    ----------
    pieces
        One, or two that overlap.
    guard
        Conditions that must all hold.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> h, i = symbols("h i")
    >>> Item.parse("F0&B1"), Item.parse("B1", 2 * i <= h), Item.parse("W")
    (F0&B1, B1 if h >= 2i, W)
    """

    pieces: tuple[Piece, ...]
    guard: tuple[Condition, ...] = ()

    @classmethod
    def parse(cls, text: str, *guard: Condition) -> Item:
        """
        Read ``F0``, ``W``, ``F0&B1``; the digit is the phase.

        Raises
        ------
        ScheduleError
            If the text is anything else.
        """
        matches = [_PIECE.fullmatch(word) for word in text.split("&")]
        if len(matches) > 2 or not all(matches):
            raise ScheduleError(f'"{text}" is not an item such as F0, I1, W, B0 or F0&B1')
        words = [(m[1] or m[3], m[2] or m[4]) for m in matches if m]
        return cls(tuple(Piece(kind, int(phase) if phase else None) for kind, phase in words), guard)

    def __str__(self) -> str:
        guard = f" if {' and '.join(map(str, self.guard))}" if self.guard else ""
        return "&".join(map(str, self.pieces)) + guard

    __repr__ = __str__


@dataclass(frozen=True)
class Loop:
    """
    A body that is run a number of times; the index ``i`` counts from 0.

    Parameters
    ----------
    trips
        How often; it must not be negative anywhere in the program's domain.
    body
        Items in the order in which they run.

    Raises
    ------
    ScheduleError
        If the forwards or the input backwards of one iteration depend on how the guards fall. They may not, so that the
        micro-batch of every op is affine in the index: alternatives do the same jobs in other blocks, and what runs in some
        iterations only is a loop of its own.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> P, r, i = symbols("P r i")
    >>> loop(P - r - 1, "I1", "W", "F1").per_iteration
    {('I', 1): 1, ('F', 1): 1}
    >>> loop(P, "F0", Item.parse("I0", i >= r))
    Traceback (most recent call last):
    verifier.model.ScheduleError: loop body "F0, I0 if i >= r": a guard decides which F or I run; ...
    """

    trips: Affine | Extreme
    body: tuple[Item, ...]

    def __post_init__(self) -> None:
        if any(counts != self.per_iteration for counts in map(self._jobs, self.ways())):
            shown = ", ".join(map(str, self.body))
            raise ScheduleError(
                f'loop body "{shown}": a guard decides which F or I run; expected the same ones in every iteration'
            )

    @property
    def per_iteration(self) -> dict[tuple[str, int], int]:
        """How many forwards and input backwards (the one in a B counts) of each phase one iteration runs."""
        return self._jobs(next(self.ways()))

    def ways(self) -> Iterator[frozenset[Condition]]:
        """The sets of conditions that hold together, each condition or its negation; impossible ones are not sorted out."""
        conditions = {condition: None for item in self.body for condition in item.guard}
        pairs = {frozenset((condition, condition.negated)) for condition in conditions}
        return map(frozenset, product(*pairs))

    def _jobs(self, true: frozenset[Condition]) -> dict[tuple[str, int], int]:
        """What one iteration runs where exactly these conditions hold."""
        runs = (piece for item in self.body if true.issuperset(item.guard) for piece in item.pieces)
        return dict(Counter(("I" if kind == "B" else kind, phase) for kind, phase in runs if phase is not None and kind != "W"))


def loop(trips: Affine | Extreme | int, *body: Item | str) -> Loop:
    """A loop whose items may be written as text."""
    items = tuple(Item.parse(item) if isinstance(item, str) else item for item in body)
    return Loop(affine(trips) if isinstance(trips, int) else trips, items)


@dataclass(frozen=True)
class Program:
    """
    What every rank runs, for all sizes.

    Parameters
    ----------
    name
        For people.
    rank
        The symbol of the rank: ``r``, or ``h`` where two ranks that mirror one another are folded into one.
    ranks, microbatches, depth
        Ranks, micro-batches of each phase, stages that a micro-batch passes.
    stages
        ``stages[phase]`` is the stage that a rank runs in that phase. Producers follow from it: F comes from the rank and
        phase of the stage before, I from those of the stage behind.
    domain
        Conditions on the sizes under which the program is meant. That the rank is one of ``ranks`` goes without saying.
    loops
        Run one after the other.

    Raises
    ------
    ScheduleError
        If a loop uses a symbol or a phase that nothing defines.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> P, M, r = symbols("P M r")
    >>> gpipe = Program("gpipe", "r", P, M, P, (r,), (P >= 1, M >= 1), (loop(M, "F0"), loop(M, "B0")))
    >>> print(gpipe)
    gpipe: rank r of P runs, of P stages, r in phase 0
    M micro-batches in each phase
    where P >= 1, M >= 1
    step  count  blocks per iteration
    1     M      F0
    2     M      B0
    """

    name: str
    rank: str
    ranks: Affine
    microbatches: Affine
    depth: Affine
    stages: tuple[Affine, ...]
    domain: tuple[Condition, ...]
    loops: tuple[Loop, ...]

    def __post_init__(self) -> None:
        known = {self.rank} | self.ranks.symbols | self.microbatches.symbols
        for step, each in enumerate(self.loops, 1):
            guards = {symbol for item in each.body for c in item.guard for symbol in c.expression.symbols}
            if unknown := (each.trips.symbols | guards - {"i"}) - known:
                raise ScheduleError(f"{self.name}, step {step}: unknown symbol {min(unknown)}; expected {sorted(known)}")
            if any(phase is not None and phase >= len(self.stages) for item in each.body for _, phase in item.pieces):
                raise ScheduleError(
                    f"{self.name}, step {step}: expected phases below {len(self.stages)}, one per stage of a rank"
                )

    @property
    def assumptions(self) -> tuple[Condition, ...]:
        """The domain, and the range of the rank."""
        rank = Affine(((self.rank, 1),))
        return (*self.domain, rank >= 0, rank < self.ranks)

    def __str__(self) -> str:
        phases = ", ".join(f"{stage} in phase {phase}" for phase, stage in enumerate(self.stages))
        table = [("step", "count", "blocks per iteration")]
        table += [(str(n), str(each.trips), ", ".join(map(str, each.body))) for n, each in enumerate(self.loops, 1)]
        width = max(len(count) for _, count, _ in table)
        return "\n".join(
            [
                f"{self.name}: rank {self.rank} of {self.ranks} runs, of {self.depth} stages, {phases}",
                f"{self.microbatches} micro-batches in each phase",
                f"where {', '.join(map(str, self.domain))}",
                *(f"{step:4}  {count:{width}}  {blocks}" for step, count, blocks in table),
            ]
        )


# ---------------------------------------- unrolling


class Job(NamedTuple):
    """A piece with its micro-batch."""

    kind: str
    phase: int
    microbatch: int


class _Counts:
    """First in, first out, per phase: which micro-batch a piece runs on."""

    def __init__(self, phases: int) -> None:
        self.forwards = [0] * phases
        self.backwards = [0] * phases
        self.waiting: list[deque[tuple[int, int]]] = [deque() for _ in range(phases)]
        self.parked = 0
        self.place = ""

    def take(self, piece: Piece) -> Job:
        """The job that a piece stands for now."""
        if piece.kind == "W":
            return self._weight(piece.phase)
        phase = piece.phase
        assert phase is not None, "only a W may leave its phase open"
        counter = self.forwards if piece.kind == "F" else self.backwards
        microbatch = counter[phase]
        counter[phase] += 1
        if piece.kind == "I":
            self.waiting[phase].append((self.parked, microbatch))
            self.parked += 1
        return Job(piece.kind, phase, microbatch)

    def _weight(self, phase: int | None) -> Job:
        """The oldest W that waits, of one phase or of all."""
        heads = [(line[0][0], p) for p, line in enumerate(self.waiting) if line and phase in (None, p)]
        if not heads:
            raise ScheduleError(f"{self.place}: {Piece('W', phase)} has nothing to do; expected an I that waits for its W")
        _, found = min(heads)
        return Job("W", found, self.waiting[found].popleft()[1])


def unroll(program: Program, sizes: Mapping[str, int], rank: int) -> tuple[tuple[Job, ...], ...]:
    """
    The blocks that one rank runs at given sizes, each as one or two jobs.

    Parameters
    ----------
    program
        The loops.
    sizes
        A number for every symbol of the program but the rank.
    rank
        The rank, or half-rank, counted from 0.

    Raises
    ------
    ScheduleError
        If the sizes are outside the program's domain, a trip count is negative, or a W finds no I that waits for it.

    Notes
    -----
    Time and memory grow linearly with the number of blocks.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> P, M, r = symbols("P M r")
    >>> program = Program("one", "r", P, M, P, (r,), (M >= 1,), (loop(M, "F0"), loop(M, "I0", "W")))
    >>> [str(job.kind) + str(job.microbatch) for block in unroll(program, {"P": 1, "M": 2}, 0) for job in block]
    ['F0', 'F1', 'I0', 'W0', 'I1', 'W1']
    """
    values = {**sizes, program.rank: rank}
    for condition in program.assumptions:
        if not condition.holds(values):
            raise ScheduleError(f"{program.name}: {condition} does not hold at {_written(values)}")
    counts = _Counts(len(program.stages))
    blocks: list[tuple[Job, ...]] = []
    for step, each in enumerate(program.loops, 1):
        counts.place = f"{program.name}, step {step}"
        trips = each.trips.value(values)
        if trips < 0:
            raise ScheduleError(f"{counts.place}: {each.trips} is negative at {_written(values)}; expected at least 0")
        body = [(item.pieces, [_line(condition, values) for condition in item.guard]) for item in each.body]
        for i in range(trips):
            for pieces, guard in body:
                if all(constant + slope * i >= 0 for constant, slope in guard):
                    blocks.append(tuple(map(counts.take, pieces)))
    return tuple(blocks)


def _line(condition: Condition, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Along one loop only i varies: a condition's expression as constant and slope."""
    expression = condition.expression.substitute(sizes)
    return expression.constant, expression.coefficient("i")


def _written(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sizes.items())
