"""A bound for all costs in a box: the corners on which it depends, each run again by the checker's own simulation."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from verifier.check import order
from verifier.check.conditions import rational, require
from verifier.check.question import check_question
from verifier.costs import CostModel
from verifier.theorems.boxes import BUBBLE, MAKESPAN, MAX_RANGES, Box


def check_bound(evidence: Mapping[str, Any], text: str | None = None) -> str:
    """
    Check a bound on makespan or bubble, or that it does not hold.

    Why corners are enough stands in ``theorems.boxes``; that no duration falls when a cost rises is asked by ``Box``.

    Parameters
    ----------
    text
        What solvers are asked; it must be the question whose answer ``unsat`` confirms the bound.

    Raises
    ------
    EvidenceError
        If the corners say something else.

    Examples
    --------
    >>> schedule = {"placement": [[0]], "microbatches": [1], "order": [["0F0", "0B0"]]}
    >>> bound = {"kind": "makespan-at-most", "bound": "8", "costs": "F=1..2,I=2,W=3..4", "status": "proved"}
    >>> check_bound({"schedule": schedule, **bound})
    'makespan-at-most 8: proved, the makespan is 8 at F=2,I=2,W=4'
    """
    problem, rows = order.read_schedule(evidence["schedule"])
    bound, box = rational(evidence["bound"], "the bound"), Box.parse(evidence["costs"])
    require(evidence["kind"] in (MAKESPAN, BUBBLE), "a bound is on makespan or bubble")
    require(evidence["kind"] == MAKESPAN or len(box.ranges) <= MAX_RANGES, f"at most {MAX_RANGES} ranges, 2^k corners")
    found: list[tuple[Fraction, str]] = []
    for corner in [box.at(1)] if evidence["kind"] == MAKESPAN else box.corners():
        costs = CostModel.parse(corner)
        costs.check(problem)
        ends = order.makespan(problem.stages, rows, costs)
        busy = sum(order.busy(row, costs) for row in rows)
        share = 1 - Fraction(busy, ends * len(rows)) if ends else Fraction(0)
        found.append((Fraction(ends, costs.ticks_per_unit) if evidence["kind"] == MAKESPAN else share, corner))
    worst, corner = max(found, key=lambda each: each[0])
    status = "proved" if worst <= bound else "refuted"
    require(status == evidence["status"], f"{evidence['kind']} {bound} is {evidence['status']}")
    if text is not None:
        require(evidence["kind"] == MAKESPAN and status == "proved", "solvers are asked about a makespan that is not exceeded")
        check_question(text, problem.stages, rows, (CostModel.parse(box.at(0)), CostModel.parse(box.at(1))), bound)
    quantity = "makespan" if evidence["kind"] == MAKESPAN else "bubble"
    return f"{evidence['kind']} {bound}: {status}, the {quantity} is {worst} at {corner}"
