"""
A theorem at many sizes and costs, by running what it is about.

Conditions for all sizes may be the wrong conditions. So the blocks that they speak of are compared with those that the loops
unroll to, the start times of the evidence with everything that blocks wait for in the family's own schedule, and makespan, idle
times, peaks and the sentence with what a simulation of the checker's own finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

from verifier.check import order
from verifier.check.blocks import Blocks, Reading
from verifier.check.conditions import require
from verifier.check.formulas import value_of
from verifier.check.timing import affine_of
from verifier.costs import CostModel
from verifier.families import FAMILIES, build_family
from verifier.loops import unroll
from verifier.model import Block, Op
from verifier.theorems.theories import Region, Theory

SIZES, SPREAD = 6, (8, 19)
"""Sizes per part of them, and the largest symbols P and M (or q and m)."""
WEIGHTS = (3, 1, 5, 2, 7, 4)
"""Of the rays in the costs that are looked at."""
MIRRORED = ("dualpipe", "dualpipe-paired", "zbv-mirrored")
"""Families whose loops stand for a rank and for its mirror image, which runs the same with directions exchanged."""
Sizes = dict[str, int]
Home = tuple[int, int]
"""Direction and stage."""


def check_instances(theory: Theory, about: str, parts: Sequence[Reading], guesses: Mapping[str, Any]) -> int:
    """
    Run a theorem's family at some sizes, and at costs from every region; say how many sizes.

    Parameters
    ----------
    guesses
        Per part of the sizes, the timelines of the evidence.

    Raises
    ------
    EvidenceError
        If something is otherwise than the theorem or its evidence says.
    """
    count = 0
    for number, reading in enumerate(parts):
        for sizes in _sizes(reading):
            _Instance(theory, reading, sizes).check(about, guesses[str(number)]["regions"] if guesses else {})
            count += 1
    return count


def _sizes(reading: Reading) -> Iterator[Sizes]:
    """A few sizes of a part, the least one and others spread over it."""
    names = sorted({name for row in reading.sizes for name in row.symbols}, key="PqMm".index)
    ranges = (range(1, most + 1) for most in SPREAD)
    found = [dict(zip(names, numbers, strict=False)) for numbers in product(*ranges)]
    fitting = [sizes for sizes in found if all(row.value(sizes) >= 0 for row in reading.sizes)]
    step = max(1, -(-len(fitting) // SIZES))
    yield from fitting[::step]


class _Instance:
    """One size: the family's schedule, and which of the theorem's blocks stands where in it."""

    def __init__(self, theory: Theory, reading: Reading, sizes: Sizes) -> None:
        self.theory, self.reading, self.sizes = theory, reading, sizes
        self.folded = reading.program.ranks.value(sizes)
        self.blocks = [list(self._blocks(rank)) for rank in range(self.folded)]
        double = 2 if theory.name in MIRRORED else 1
        self.P, self.M = double * self.folded, double * reading.program.microbatches.value(sizes)
        self.stages = reading.program.depth.value(sizes)
        self.rows = tuple(self._row(rank) for rank in range(self.P))
        done = [op for row in self.rows for block in row for op in block.ops]
        jobs = 3 * double * self.stages * reading.program.microbatches.value(sizes)
        require(len(done) == len(set(done)) == jobs, f"every op runs exactly once at {sizes}")
        if theory.name in FAMILIES:
            order_of = build_family(theory.name, self.P, self.M).order
            same = [[set(block.ops) for block in row] for row in order_of] == [[set(b.ops) for b in row] for row in self.rows]
            require(same, f"the family runs these blocks at {sizes}")

    def _blocks(self, rank: int) -> Iterator[tuple[Blocks, int, int]]:
        """The theorem's blocks of a rank in program order: class, its number, iteration."""
        values = {**self.sizes, self.reading.program.rank: rank}
        found = [
            ((block.loop, i, block.place), block, number, i)
            for number, block in enumerate(self.reading.blocks)
            for i in range(max(0, block.trips.value(values)))
            if all(row.value({**values, "i": i}) >= 0 for row in block.domain)
        ]
        # Where two regimes hold, both speak of the same blocks.
        once = {place: (block, number, i) for place, block, number, i in sorted(found, key=lambda each: each[0])}
        yield from once.values()

    def _row(self, rank: int) -> tuple[Block, ...]:
        """What a rank runs, as the loops unroll; the theorem's blocks must be these."""
        program, half = self.reading.program, self._half(rank)
        values = {**self.sizes, program.rank: half}
        unrolled, mine = unroll(program, self.sizes, half), self.blocks[half]
        name = f"rank {half} runs these blocks at {self.sizes}"
        require(len(unrolled) == len(mine), name)
        for jobs, (block, _, i) in zip(unrolled, mine, strict=True):
            said = {job: number.value({**values, "i": i}) for job, number in block.number.items()}
            true = {("F" if job.kind == "F" else "I", job.phase): job.microbatch for job in jobs if job.kind != "W"}
            require(said == true and [piece.kind for piece in block.item.pieces] == [job.kind for job in jobs], name)
        homes: list[Home] = [(0, stage.value(values)) for stage in program.stages]
        if self.theory.name in MIRRORED:
            # A phase goes down the ranks from the first one on, or from the last one, in the direction that starts there.
            near, far = (0, half), (1, self.P - 1 - half)
            homes = [near, far] if rank == half else [(1, half), (0, self.P - 1 - half)]
        return tuple(_block([(job.kind, homes[job.phase], job.microbatch) for job in jobs]) for jobs in unrolled)

    def check(self, about: str, regions: Mapping[str, Any]) -> None:
        """All that the theorem says, at this size."""
        if about == "peak-activations":
            for rank, row in enumerate(self.rows):
                held = order.peak(row)
                require(held == self.theory.peak.value(self._values(rank)), f"the peak of rank {rank} at {self.sizes}")
                self._agrees("peak", {}, rank, held)
            return
        for region in self.theory.regions if about != "legal" else self.theory.regions[:1]:
            weights = [WEIGHTS[(k + sum(self.sizes.values())) % len(WEIGHTS)] for k in range(len(region.rays))]
            self._check_region(region, weights, regions[region.name], about)

    def _values(self, rank: int) -> Sizes:
        return {**self.sizes, self.reading.program.rank: self._half(rank)}

    def _half(self, rank: int) -> int:
        """The rank of the loops that a rank runs."""
        return rank if self.folded == self.P else min(rank, self.P - 1 - rank)

    def _check_region(self, region: Region, weights: Sequence[int], written: Mapping[str, Any], about: str) -> None:
        """At costs inside a region: start times wait for everything, and what is claimed is true."""
        f, i, w, pair = (sum(weight * ray[k] for weight, ray in zip(weights, region.rays, strict=True)) for k in range(4))
        model = CostModel.of(F=f, I=i, W=w, **({"FB": pair} if pair else {}))
        place = f"{region.name} at {self.sizes}, F, I, W, FB = {f}, {i}, {w}, {pair}"
        starts = self._starts(weights, written, (f, i, w, pair))
        for u, v, lag in order.edges(self.stages, self.rows, model):
            require(starts[v] >= starts[u] + Fraction(lag, model.ticks_per_unit), f"start times wait for everything: {place}")
        if about == "legal":
            return
        ends = Fraction(order.makespan(self.stages, self.rows, model), model.ticks_per_unit)
        claimed = max(formula.along((f, i, w, pair)).value(self.sizes) for formula in self.theory.makespan)
        require(ends == claimed, f"the makespan is as claimed: {place}")
        costs = {"F": f, "I": i, "W": w, "B": i + w, "FB": pair}
        self._agrees("makespan", costs, 0, ends)
        if about == "makespan":
            return
        for rank, row in enumerate(self.rows):
            idle = ends - Fraction(order.busy(row, model), model.ticks_per_unit)
            values = self._values(rank)
            part = next(part for part in self.theory.parts if all(condition.holds(values) for condition in part.where))
            said = claimed - part.busy.along((f, i, w, pair)).value(values)
            require(idle == said, f"the idle time of rank {rank} is as claimed: {place}")
            self._agrees("idle", costs, rank, idle)
            if about == "bubble-ratio":
                self._agrees("ratio", costs, rank, idle / ends)

    def _agrees(self, word: str, costs: Mapping[str, int], rank: int, true: int | Fraction) -> None:
        """The sentence that people read gives the true number, too."""
        values = {**self.sizes, "P": self.P, "M": self.M, "r": rank, "h": self._half(rank), "q": self.folded, **costs}
        sentence = self.theory.said[word]
        first, *less = re.split(r" on the middle, less | half | on ", sentence)
        found = value_of(first, values)
        if " on the middle, less " in sentence and self._half(rank) < self.folded - 1:
            found -= value_of(less[0], values)
        require(found == true, f"{sentence}: {word} at {values}")

    def _starts(self, weights: Sequence[int], written: Mapping[str, Any], costs: Sequence[int]) -> dict[order.Place, Fraction]:
        """When every block starts, as the evidence says for the rays of which the costs are a sum."""
        carried = written["kink"]
        options = carried["options"] if carried else []
        sizes = self.sizes
        most = max(
            (sum(c * affine_of(n).value(sizes) for c, n in zip(costs, each, strict=True)) for each in options), default=0
        )
        carriers = set(carried["carriers"]) if carried else set()
        timelines = [
            (weight / Fraction(each["scale"]), list(map(affine_of, each["starts"])))
            for weight, each in zip(weights, written["timelines"], strict=True)
        ]
        found = {}
        for rank in range(len(self.rows)):
            half = self._half(rank)
            for at, (_, number, i) in enumerate(self.blocks[half]):
                values = {**sizes, self.reading.program.rank: half, "i": i}
                start = sum((share * starts[number].value(values) for share, starts in timelines), Fraction(0))
                found[rank, at] = start + (most if number in carriers else 0)
        return found


def _block(jobs: Sequence[tuple[str, Home, int]]) -> Block:
    """A block that runs some jobs."""
    return Block(
        tuple(Op(kind, *home, microbatch) for name, home, microbatch in jobs for kind in ("IW" if name == "B" else name))
    )
