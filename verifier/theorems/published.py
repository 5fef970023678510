"""
The published bubble formulas as theorems: where each is exact, where it is above or below the truth, and the corrected one.

What a formula says is compared with what the loops do: at small sizes by running them, for the least costs at which it is
wrong; for all sizes by the theorem about the family's idle time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from verifier.claims import Claim
from verifier.costs import CostModel
from verifier.families import FAMILIES, build_family
from verifier.model import ScheduleError, plain
from verifier.simulate import simulate
from verifier.theorems.conditions import Formula
from verifier.theorems.demands import idle_formulas
from verifier.theorems.theories import Theory

LARGEST_RANKS = 6
LARGEST_SUM = 8
"""Ranks, and whole costs by their sum, among which counterexamples are looked for."""


@dataclass(frozen=True)
class Difference:
    """Costs and a rank at which a published formula is not what the rank idles."""

    ranks: int
    microbatches: int
    costs: CostModel
    rank: int
    published: Fraction
    true: Fraction
    overlaps: bool

    def __str__(self) -> str:
        prices = ", ".join(f"{kind.replace('&', '')} = {plain(price)}" for kind, price in self._prices())
        side = "above" if self.published > self.true else "below"
        return (
            f"P = {self.ranks}, M = {self.microbatches}, {prices}: rank {self.rank} idles {plain(self.true)}, "
            f"the formula says {plain(self.published)}, which is {side}"
        )

    def as_json(self) -> dict[str, object]:
        """As evidence carries it."""
        costs = {kind.replace("&", ""): plain(price) for kind, price in self._prices()}
        return {"P": self.ranks, "M": self.microbatches, "rank": self.rank, "costs": costs}

    def _prices(self) -> Iterator[tuple[str, Fraction]]:
        for kind, price in self.costs.prices.items():
            assert isinstance(price, Fraction), "made by this module"
            if self.overlaps or "&" not in kind:
                yield kind, price


def idle_claim(family: str) -> Claim:
    """What was published about the idle time of a family."""
    return next(claim for claim in FAMILIES[family].claims if claim.quantity == "idle")


def differences(family: str) -> Iterator[Difference]:
    """
    Where the published formula is wrong, the least sum of positive whole costs first.

    Costs with FB at least F and at least B, in families that overlap; sizes that the family accepts.

    Examples
    --------
    >>> print(next(differences("dualpipe")))
    P = 6, M = 12, F = 1, I = 1, W = 1, B = 2, FB = 2: rank 0 idles 1, the formula says 2, which is above
    """
    claim, overlaps = idle_claim(family), "dualpipe" in family
    for costs in _costs(overlaps):
        for ranks, microbatches in _sizes(family):
            timeline = simulate(build_family(family, ranks, microbatches), costs).timeline
            assert timeline is not None, "families do not hang"
            published = claim.value(ranks, microbatches, costs)
            wrong = [rank for rank, true in enumerate(timeline.idle) if true != published]
            if wrong:
                yield Difference(ranks, microbatches, costs, wrong[0], published, timeline.idle[wrong[0]], overlaps)


def _costs(overlaps: bool) -> Iterator[CostModel]:
    """Positive whole costs by their sum; FB counts where blocks overlap."""
    for total in range(3, LARGEST_SUM + 1):
        for f, i, w in product(range(1, total), repeat=3):
            pair = total - f - i - w
            if overlaps and pair >= max(f, i + w):
                yield CostModel.of(F=f, I=i, W=w, FB=pair)
            elif not overlaps and pair == 0:
                yield CostModel.of(F=f, I=i, W=w)


def both_sides(family: str) -> list[Difference]:
    """The first difference, and the first one to the other side where there is one."""
    found: list[Difference] = []
    for each in differences(family):
        if not found or (found[0].published > found[0].true) != (each.published > each.true):
            found.append(each)
        if len(found) == 2:
            break
    return found


def _sizes(family: str) -> Iterator[tuple[int, int]]:
    """Small sizes that a family accepts, with enough micro-batches to fill the pipeline."""
    for ranks in range(2, LARGEST_RANKS + 1):
        try:
            build_family(family, ranks, 2 * ranks)
        except ScheduleError:
            continue
        yield ranks, 2 * ranks


def is_the_idle_time(theory: Theory) -> bool:
    """
    Whether the published formula is, as a polynomial, the one idle formula of a theory.

    Both are linear in the costs and affine in P and M, so that a few points decide.

    Examples
    --------
    >>> from verifier.theorems.theories import THEORIES
    >>> {theory.name: is_the_idle_time(theory) for theory in THEORIES if theory.name in ("1f1b", "zb1p", "dualpipe")}
    {'1f1b': True, 'zb1p': False, 'dualpipe': False}
    """
    formulas = {formula for each in idle_formulas(theory).values() for formula in each}
    return len(formulas) == 1 and all(_agree(theory, formula) for formula in formulas)


def _agree(theory: Theory, formula: Formula) -> bool:
    claim = idle_claim(theory.name)
    if theory.program.ranks.symbols != {"P"}:
        return False
    for ranks, microbatches in ((1, 1), (2, 1), (1, 2)):
        for ray in ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)):
            costs = CostModel.of(F=ray[0], I=ray[1], W=ray[2], FB=ray[3])
            if claim.value(ranks, microbatches, costs) != formula.along(ray).value({"P": ranks, "M": microbatches}):
                return False
    return True
