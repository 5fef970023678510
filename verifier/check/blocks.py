"""
What a loop program runs at all sizes, worked out from its loops alone.

Rows are affine expressions that are at least 0; all symbols are whole numbers. The prover's way from loops to conditions
(``theorems.classes``, ``conditions``, ``structure``) takes no part here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import NamedTuple

from verifier.affine import Affine, Case
from verifier.check.conditions import require
from verifier.loops import Item, Piece, Program

Rows = tuple[Affine, ...]
Job = tuple[str, int]
"""F or I and its phase; the I inside a B counts."""
I, J = Affine((("i", 1),)), Affine((("j", 1),))  # noqa: E741
"""The iteration of a block, and of an earlier one."""
ZERO = Affine()


def denied(row: Affine) -> Affine:
    """At least 0 exactly where a row is not."""
    return -row - 1


def same(left: Affine, right: Affine) -> Rows:
    """Both are equal."""
    return left - right, right - left


def replaced(rows: Sequence[Affine], values: dict[str, Affine]) -> Rows:
    """With some symbols replaced."""
    return tuple(row.substitute(values) for row in rows)


def worlds(body: Sequence[Item]) -> Iterator[Callable[[Item], bool]]:
    """Every way in which the guards of a loop body can fall; each says whether an item runs."""
    found: dict[Affine, None] = {}
    for item in body:
        for condition in item.guard:
            if denied(condition.expression) not in found:
                found[condition.expression] = None
    for truth in product((True, False), repeat=len(found)):
        true = {row if holds else denied(row) for row, holds in zip(found, truth, strict=True)}
        yield partial(_runs, true)


def _runs(true: set[Affine], item: Item) -> bool:
    return all(condition.expression in true for condition in item.guard)


def job_of(piece: Piece) -> Job | None:
    """What a piece counts as; a W takes what waits."""
    return None if piece.kind == "W" or piece.phase is None else ("F" if piece.kind == "F" else "I", piece.phase)


def jobs(items: Sequence[Item], runs: Callable[[Item], bool]) -> Counter[Job]:
    """How many jobs the items hold that run."""
    return Counter(job for item in items if runs(item) for piece in item.pieces if (job := job_of(piece)) is not None)


@dataclass(frozen=True, eq=False)
class Blocks:
    """
    The blocks of one item of one loop, on the ranks of one regime.

    Attributes
    ----------
    regime, loop, place
        Their numbers.
    domain
        Where there is such a block: rows over sizes, rank and ``i``.
    trips
        How often the loop runs.
    number
        Which micro-batch each F and I is of.
    """

    regime: int
    loop: int
    place: int
    item: Item
    domain: Rows
    trips: Affine
    number: dict[Job, Affine]

    @property
    def takes(self) -> tuple[int, int, int, int]:
        """How often F, I, W and FB go into its duration."""
        kinds = [piece.kind for piece in self.item.pieces]
        if len(kinds) == 2:
            require(sorted(kinds) == ["B", "F"], "pairs are of F and B")
            return 0, 0, 0, 1
        return int(kinds == ["F"]), int(kinds[0] in "IB"), int(kinds[0] in "WB"), 0


class Regime(NamedTuple):
    """Ranks with the same expressions for their trip counts."""

    where: Rows
    trips: tuple[Affine, ...]


class Producer(NamedTuple):
    """Where the neighbour of a stage is: phase, rank, and under which rows."""

    phase: int
    rank: Affine
    where: Rows


class Reading:
    """
    A loop program under rows on its sizes.

    Parameters
    ----------
    never
        Whether it is certified that rows are never all at least 0.

    Examples
    --------
    >>> from verifier.families import GPIPE
    >>> for block in Reading(GPIPE, (), lambda rows: False).blocks:
    ...     print(block.item, block.number, block.takes)
    F0 {('F', 0): i} (1, 0, 0, 0)
    B0 {('I', 0): i} (0, 1, 1, 0)
    """

    def __init__(self, program: Program, domain: Rows, never: Callable[[Rows], bool]) -> None:
        self.program, self.never = program, never
        self.rank = Affine(((program.rank, 1),))
        self.sizes: Rows = (*(condition.expression for condition in program.domain), *domain)
        self.ranks: Rows = (*self.sizes, self.rank, program.ranks - self.rank - 1)
        self.regimes = [Regime((), ())]
        for each in program.loops:
            self.regimes = [
                Regime((*regime.where, *where), (*regime.trips, trips))
                for regime in self.regimes
                for where, trips in self._cases(each.trips.cases(), (*self.ranks, *regime.where))
            ]
        self.blocks = [block for number, regime in enumerate(self.regimes) for block in self._blocks(number, regime)]

    def _cases(self, cases: Sequence[Case], known: Rows) -> list[tuple[Rows, Affine]]:
        """The cases of a trip count that occur; one that always holds stands for all."""
        found = [(tuple(condition.expression for condition in where), value) for where, value in cases]
        found = [(where, value) for where, value in found if not self.never((*known, *where))]
        for where, value in found:
            if all(self.never((*known, denied(row))) for row in where):
                return [((), value)]
        return found

    def per_iteration(self, loop: int) -> Counter[Job]:
        """What one iteration of a loop runs, however the guards fall."""
        body = self.program.loops[loop].body
        first, *others = [jobs(body, runs) for runs in worlds(body)]
        require(all(other == first for other in others), "guards do not decide which F and I run")
        return first

    def _blocks(self, number: int, regime: Regime) -> Iterator[Blocks]:
        before: dict[Job, Affine] = {}
        for loop, trips in enumerate(regime.trips):
            body, each = self.program.loops[loop].body, self.per_iteration(loop)
            for place, item in enumerate(body):
                guard = tuple(condition.expression for condition in item.guard)
                domain = (*self.ranks, *regime.where, I, trips - I - 1, *guard)
                if not self.never(domain):
                    own = [job for piece in item.pieces if (job := job_of(piece)) is not None]
                    mine = {job: before.get(job, ZERO) + each[job] * I + self._earlier(body, place, job) for job in own}
                    yield Blocks(number, loop, place, item, domain, trips, mine)
            for job, count in each.items():
                before[job] = before.get(job, ZERO) + count * trips

    @staticmethod
    def _earlier(body: Sequence[Item], place: int, job: Job) -> int:
        """How many such jobs stand before an item in its iteration."""
        counts = {jobs(body[:place], runs)[job] for runs in worlds(body) if runs(body[place])}
        require(len(counts) == 1, "the micro-batch does not depend on how guards fall")
        return counts.pop()

    def totals(self, regime: Regime) -> dict[Job, Affine]:
        """How many of each job a rank runs."""
        found: dict[Job, Affine] = {}
        for loop, trips in enumerate(regime.trips):
            for job, count in self.per_iteration(loop).items():
                found[job] = found.get(job, ZERO) + count * trips
        return found

    def producers(self, kind: str, phase: int) -> list[Producer]:
        """Where the stage before (of an F) or behind (of an I) is."""
        stages, found = self.program.stages, []
        wanted = stages[phase] + (-1 if kind == "F" else 1)
        for other, stage in enumerate(stages):
            slope = stage.coefficient(self.program.rank)
            require(slope in (1, -1), "stages move by one from rank to rank")
            there = slope * (wanted - (stage - slope * self.rank))
            where = (there, self.program.ranks - there - 1)
            if not self.never((*self.ranks, *where)):
                found.append(Producer(other, there, where))
        return found
