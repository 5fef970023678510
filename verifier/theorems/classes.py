"""
A loop program taken apart: one class of blocks per item of its loops, with every number affine in sizes, rank and loop index.

Here no size is given. Which micro-batch an item runs on follows from how many jobs of its kind the loops before it, the
iterations before it and the items before it hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from verifier.affine import Affine, Condition, affine
from verifier.loops import Loop, Piece, Program
from verifier.model import ScheduleError

Costs = tuple[int, int, int, int]
"""How often F, I, W and an overlapped F&B go into a duration; a full backward is I + W."""

DURATIONS: dict[str, Costs] = {"F": (1, 0, 0, 0), "I": (0, 1, 0, 0), "W": (0, 0, 1, 0), "B": (0, 1, 1, 0), "F&B": (0, 0, 0, 1)}
Job = tuple[str, int]
"""F or I (also the one inside a B), and the phase."""
Judge = Callable[[tuple[Condition, ...]], bool]
"""Whether some sizes fulfil all conditions."""
INDEX = affine(0) + Affine((("i", 1),))


@dataclass(frozen=True)
class BlockClass:
    """
    All blocks that one item makes, where the trip counts of its rank are given by the same expressions.

    Attributes
    ----------
    regime, step, position
        Which rank's trip counts, which loop and which item of its body, counted from 0.
    pieces
        What the block runs.
    domain
        Conditions on sizes, rank and the loop index ``i`` under which there is such a block.
    microbatch
        The micro-batch of each F and I, as an expression in sizes, rank and ``i``.
    """

    regime: int
    step: int
    position: int
    pieces: tuple[Piece, ...]
    domain: tuple[Condition, ...]
    trips: Affine
    microbatch: dict[Job, Affine]

    @property
    def kind(self) -> str:
        """As in ``Block.kind``."""
        return "&".join(sorted((piece.kind for piece in self.pieces), key="FBIW".index))

    @property
    def duration(self) -> Costs:
        """How often each cost goes into it."""
        return DURATIONS[self.kind]

    @property
    def name(self) -> str:
        """For people: step and blocks."""
        return f"{self.step + 1}:{'&'.join(map(str, self.pieces))}@{self.position}"


@dataclass(frozen=True)
class Regime:
    """Ranks whose trip counts are given by the same expressions, one per loop."""

    where: tuple[Condition, ...]
    trips: tuple[Affine, ...]


@dataclass(frozen=True)
class Producer:
    """Where a stage's neighbour lives: its phase, its rank as an expression in the rank here, and under which conditions."""

    phase: int
    rank: Affine
    where: tuple[Condition, ...]


@dataclass(frozen=True, eq=False)
class Analysis:
    """
    A loop program under conditions on its sizes.

    Parameters
    ----------
    program
        The loops.
    domain
        What is assumed besides the program's own domain.
    possible
        Decides which combinations of cases occur.

    Raises
    ------
    ScheduleError
        If an item has no price of its own, or its micro-batch depends on how the guards of other items fall.
    """

    program: Program
    domain: tuple[Condition, ...]
    possible: Judge

    @cached_property
    def assumptions(self) -> tuple[Condition, ...]:
        """Conditions on sizes and rank that always hold."""
        return (*self.program.assumptions, *self.domain)

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """The symbols of the program but the rank."""
        return tuple(sorted(self.program.ranks.symbols | self.program.microbatches.symbols | self.program.depth.symbols))

    @cached_property
    def regimes(self) -> tuple[Regime, ...]:
        """All of them; together they cover the domain, and where two of them hold they agree."""
        found = [Regime((), ())]
        for each in self.program.loops:
            found = [
                Regime(regime.where + case, (*regime.trips, trips))
                for regime in found
                for case, trips in self._cases(each, regime.where)
            ]
        return tuple(found)

    def _cases(self, each: Loop, where: tuple[Condition, ...]) -> Iterator[tuple[tuple[Condition, ...], Affine]]:
        """The cases of a trip count that occur; one alone where it covers the others."""
        known = self.assumptions + where
        cases = [case for case in each.trips.cases() if self.possible(known + case.where)]
        for case in cases:
            if not any(self.possible((*known, condition.negated)) for condition in case.where):
                yield (), case.value
                return
        yield from ((case.where, case.value) for case in cases)

    @cached_property
    def classes(self) -> tuple[BlockClass, ...]:
        """All classes, in program order inside each regime."""
        return tuple(found for number, regime in enumerate(self.regimes) for found in self._of_regime(number, regime))

    def _of_regime(self, number: int, regime: Regime) -> Iterator[BlockClass]:
        totals: dict[Job, Affine] = {}
        for step, (each, trips) in enumerate(zip(self.program.loops, regime.trips, strict=True)):
            for position, item in enumerate(each.body):
                where = (*self.assumptions, *regime.where, INDEX >= 0, trips > INDEX, *item.guard)
                if not self.possible(where):
                    continue
                microbatch = {}
                for piece in item.pieces:
                    if (job := job_of(piece)) is not None:
                        before = totals.get(job, affine(0))
                        microbatch[job] = before + each.per_iteration[job] * INDEX + self._offset(each, position, job)
                found = BlockClass(number, step, position, item.pieces, where, trips, microbatch)
                if found.kind not in DURATIONS:
                    raise ScheduleError(
                        f"{self.program.name}, step {step + 1}: no price for {found.kind}; expected F, I, W, B, F&B"
                    )
                yield found
            for job, count in each.per_iteration.items():
                totals[job] = totals.get(job, affine(0)) + count * trips

    def _offset(self, each: Loop, position: int, job: Job) -> int:
        """How many such jobs stand before an item in the body, wherever the item is there at all."""
        item = each.body[position]
        counts = {
            sum(job_of(piece) == job for other in each.body[:position] if way.issuperset(other.guard) for piece in other.pieces)
            for way in each.ways()
            if way.issuperset(item.guard)
        }
        if len(counts) != 1:
            raise ScheduleError(f"{self.program.name}: the micro-batch of {item} depends on how the guards before it fall")
        return counts.pop()

    def totals(self, regime: Regime) -> dict[Job, Affine]:
        """How many of each job a rank runs."""
        found: dict[Job, Affine] = {}
        for each, trips in zip(self.program.loops, regime.trips, strict=True):
            for job, count in each.per_iteration.items():
                found[job] = found.get(job, affine(0)) + count * trips
        return found

    def neighbours(self, phase: int, step: int) -> tuple[Producer, ...]:
        """
        Where the stage before (step -1) or behind (step 1) the one of a phase lives: the cases that occur.

        They cover every rank whose stage has such a neighbour, and exclude one another.
        """
        program = self.program
        wanted = program.stages[phase] + step
        found = []
        for other, stage in enumerate(program.stages):
            slope = stage.coefficient(program.rank)
            if slope not in (1, -1):
                raise ScheduleError(f"{program.name}: stage {stage}; expected one that moves by one from rank to rank")
            rank = slope * (wanted - stage.substitute({program.rank: 0}))
            where = (rank >= 0, rank < program.ranks)
            if self.possible(self.assumptions + where):
                found.append(Producer(other, rank, where))
        return tuple(found)

    def has_neighbour(self, phase: int, step: int) -> Condition:
        """Whether the stage of a phase has a stage before or behind it."""
        stage = self.program.stages[phase] + step
        return stage >= 0 if step < 0 else stage < self.program.depth


def job_of(piece: Piece) -> Job | None:
    """The job whose micro-batch is counted; None for a W, which takes what waits."""
    if piece.kind == "W" or piece.phase is None:
        return None
    return ("I" if piece.kind == "B" else piece.kind, piece.phase)
