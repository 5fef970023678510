"""A published bubble formula: its counterexample run again, or its agreement with the theorem about the idle time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from itertools import product
from typing import Any

from verifier.check import order
from verifier.check.conditions import require, whole
from verifier.check.scripts import Asked
from verifier.check.theorems import check_theorem
from verifier.costs import CostModel
from verifier.families import FAMILIES, build_family
from verifier.theorems.theories import ANY_COSTS, THEORIES

LARGEST = 4
"""P and M, at which two formulas are compared that are affine in both and linear in the costs."""

MAX_SIZE = 64
"""P and M of a counterexample; there are smaller ones for every formula that is wrong."""


def check_published(name: str, evidence: Mapping[str, Any], asked: Collection[Asked] | None = None) -> str:
    """
    Check that a published formula is wrong where it is said to be, or else that it is the idle time.

    Parameters
    ----------
    name
        Which theorem the evidence is for.
    asked
        As in ``check_theorem``.

    Raises
    ------
    EvidenceError
        If it is not so, or the theorem about the idle time is not covered.
    """
    family = evidence["family"]
    require(name == f"published-{family}-bubble", f"evidence about {family} is none of {name}")
    corrected = check_theorem(f"{family}-idle", evidence["corrected"], asked)
    if evidence["counterexample"] is None:
        _agrees(family)
        return f"{name}: proved; {corrected}"
    return f"{name}: refuted, {_differs(family, evidence['counterexample'])}; {corrected}"


def _differs(family: str, point: Mapping[str, Any]) -> str:
    """A size and costs at which a rank idles otherwise than published."""
    ranks, microbatches = (whole(point[size], 1, MAX_SIZE, size) for size in "PM")
    rank = whole(point["rank"], 0, ranks - 1, "rank")
    costs = CostModel.of(**point["costs"])
    prices = [costs.prices[kind] for kind in ("F", "I", "W", "B", "F&B")]
    f, i, w, b, pair = (price for price in prices if isinstance(price, Fraction))
    require(min(f, i, w) > 0 and b == i + w and pair >= max(f, b), "costs are positive, B = I + W, FB >= max(F, B)")
    schedule = build_family(family, ranks, microbatches)
    row = schedule.order[rank]
    idle = Fraction(
        order.makespan(schedule.problem.stages, schedule.order, costs) - order.busy(row, costs), costs.ticks_per_unit
    )
    claim = next(claim for claim in FAMILIES[family].claims if claim.quantity == "idle")
    said = claim.value(ranks, microbatches, costs)
    require(idle != said, "the formula is wrong at the counterexample")
    return f"rank {rank} of P = {ranks}, M = {microbatches} idles {idle}, not {said}"


def _agrees(family: str) -> None:
    """The formula is the idle time of the theorem, for all costs: as polynomials, of which a few points decide."""
    theory = next(theory for theory in THEORIES if theory.name == family)
    require(theory.costs == ANY_COSTS and len(theory.makespan) == len(theory.parts) == 1, "one formula for all costs")
    claim = next(claim for claim in FAMILIES[family].claims if claim.quantity == "idle")
    for ranks, microbatches, cost in product(range(1, LARGEST), range(1, LARGEST), range(3)):
        sizes = {"P": ranks, "M": microbatches}
        ray = tuple(int(k == cost) for k in range(4))
        true = [
            sum(n * number.value(sizes) for n, number in zip(ray, formula.parts, strict=True))
            for formula in (theory.makespan[0], theory.parts[0].busy)
        ]
        said = claim.value(ranks, microbatches, CostModel.of(F=ray[0], I=ray[1], W=ray[2], FB=0))
        require(said == true[0] - true[1], f"{claim.formula} is the idle time")
