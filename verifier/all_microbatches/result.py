"""
What came of a search for an order for all numbers of micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from verifier.model import Schedule, plain
from verifier.synthesize import Synthesis
from verifier.theorems.proof import PROVED, REFUTED, UNKNOWN, Proof


@dataclass(frozen=True)
class Size:
    """A number of micro-batches, its makespan by replay, and the best lower bound that needs no solver."""

    microbatches: int
    makespan: Fraction
    lower_bound: Fraction
    bound: str


@dataclass(frozen=True)
class ForAll:
    """
    An order for all larger numbers of micro-batches.

    Attributes
    ----------
    shortest
        What came of the search for the given size alone.
    schedule
        S_0 of the proof: its kernel can run again. None where there is no schedule.
    proof
        ``proved``: every period adds ``slope * step`` to the makespan, exactly. ``refuted``: it adds idle time, and ``slope``
        is what it comes to in the long run. ``unknown``: neither was shown.
    sizes
        The schedule itself, then with 1, 2 and 5 periods more.
    """

    shortest: Synthesis
    schedule: Schedule | None = None
    proof: Proof | None = None
    sizes: tuple[Size, ...] = ()
    interrupted: bool = False

    @property
    def step(self) -> int | None:
        """Micro-batches, over all directions, of one period."""
        step = self.proof and self.proof.numbers.get("microbatches_per_period")
        return int(str(step)) if step else None

    @property
    def slope(self) -> Fraction | None:
        """Time per micro-batch, in the long run; None where that is not proved."""
        if not self.step or self.proof is None or not self.proof.evidence:
            return None
        return Fraction(str(self.proof.numbers["time_per_period"])) / self.step

    @property
    def offset(self) -> Fraction | None:
        """The makespan is ``offset + slope * M``, where that is proved."""
        if self.slope is None or self.proof is None or self.proof.status != PROVED:
            return None
        return self.sizes[0].makespan - self.slope * self.sizes[0].microbatches

    @property
    def bound_slope(self) -> Fraction | None:
        """What the lower bound grows by per micro-batch, from the first size to the last."""
        if len(self.sizes) < 2:
            return None
        first, last = self.sizes[0], self.sizes[-1]
        return (last.lower_bound - first.lower_bound) / (last.microbatches - first.microbatches)

    @property
    def gaps(self) -> tuple[Fraction, ...]:
        """Makespan minus lower bound, of every size."""
        return tuple(size.makespan - size.lower_bound for size in self.sizes)

    def sentences(self) -> Iterator[str]:
        """The result for people."""
        yield self.shortest.sentence()
        if self.schedule is None or self.proof is None:
            return
        if self.schedule is not self.shortest.schedule:
            first = self.sizes[0]
            yield f"another order has a better kernel: makespan {plain(first.makespan)} at M={first.microbatches}"
        yield self._law()
        if self.bound_slope is not None and self.slope is not None:
            gaps = sorted(set(self.gaps))
            gap = (
                f"the gap is {plain(gaps[0])}" if len(gaps) == 1 else "gaps " + ", ".join(str(plain(gap)) for gap in self.gaps)
            )
            replayed = ", ".join(str(size.microbatches) for size in self.sizes)
            yield f"lower bound: {plain(self.bound_slope)} per micro-batch; {gap} at M = {replayed}, all replayed"

    def _law(self) -> str:
        assert self.proof is not None
        if self.slope is None or self.step is None:
            return f"larger M: unknown: {self.proof.witness[0]}"
        first = self.sizes[0].microbatches
        where = f"M = {first}, {first + self.step}, {first + 2 * self.step}, ..."
        if self.offset is not None:
            sign = "-" if self.offset < 0 else "+"
            line = f"{plain(self.slope)} M {sign} {plain(abs(self.offset))}"
            return f"makespan {line} for all {where}, with the same peaks: proved"
        if self.proof.status == REFUTED:
            return f"for {where} it grows by {plain(self.slope)} per micro-batch in the long run: {self.proof.witness[0]}"
        return f"larger M: {UNKNOWN}: {self.proof.witness[0]}"

    def as_json(self) -> dict[str, object]:
        """What ``--json`` adds to the result of the given size."""
        if self.proof is None:
            return {"status": UNKNOWN}
        return {
            "status": self.proof.status,
            "statement": self.proof.statement,
            "reason": list(self.proof.witness),
            "step": self.step,
            "slope": _written(self.slope),
            "offset": _written(self.offset),
            "kernel": self.proof.numbers.get("kernel"),
            "bound_slope": _written(self.bound_slope),
            "sizes": [
                {
                    "microbatches": size.microbatches,
                    "makespan": plain(size.makespan),
                    "lower_bound": plain(size.lower_bound),
                    "bound": size.bound,
                }
                for size in self.sizes
            ],
        }


def _written(value: Fraction | None) -> int | str | None:
    return None if value is None else plain(value)
