"""
What one point of a sweep gives: a row of plain values, the same in whatever process it is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verifier.compare import Row, costs_of_shares
from verifier.costs import CostModel
from verifier.families import build_family, placement
from verifier.formats.source import one_line
from verifier.model import Limits, Problem, ScheduleError, plain
from verifier.specs import limits_of
from verifier.sweep.points import KEYS, Point
from verifier.verify import verify

if TYPE_CHECKING:
    from verifier.simulate import Simulation

RESULTS = (
    "status",
    "makespan",
    "idle_mean",
    "idle_worst",
    "bubble_ratio",
    "bubble_percent",
    "peak_activations",
    "weights_held",
    "overlapped",
    "lower_bound",
    "reason",
)
"""The columns of a result. Idle time, activations and weights are of the worst rank unless the name says otherwise."""

COLUMNS = (*KEYS, *RESULTS)
"""All columns of a row."""

QUANTITIES = ("idle_mean", "idle_worst", "bubble_ratio", "makespan", "peak_activations", "weights_held", "overlapped")
"""Those that tables and charts are made of."""


def measured(point: Point) -> dict[str, object]:
    """
    The row of a point: ``status`` is what ``verify`` or ``synthesize`` says, or ``refused`` where there is no such schedule.

    Examples
    --------
    >>> row = measured(Point("dualpipe", "", 8, 20))
    >>> row["status"], row["makespan"], row["idle_mean"], row["bubble_ratio"], row["bubble_percent"]
    ('proved', 66, 6, '1/11', '9.09')
    >>> row = measured(Point("dualpipe", "", 8, 12))
    >>> row["status"], row["reason"]
    ('refused', 'dualpipe: M = 12 micro-batches; expected an even number of at least 2 P = 16')
    """
    try:
        limits = limits_of(point.activations or None, point.weights or None)
        found = _of_family(point, limits) if point.family else _shortest(point, limits)
    except ScheduleError as error:
        found = {"status": "refused", "reason": one_line(str(error))}
    return completed(point, found)


def completed(point: Point, found: dict[str, object]) -> dict[str, object]:
    """
    A whole row; what was not found is empty.

    >>> completed(Point("1f1b", "", 4, 8), {"status": "error"})["makespan"] is None
    True
    """
    return {**point.as_row(), **dict.fromkeys(RESULTS), **found}


def _of_family(point: Point, limits: Limits) -> dict[str, object]:
    options: dict[str, Any] = {"stages_per_rank": int(point.stages_per_rank or 2), "rule": point.rule or "pytorch"}
    schedule = build_family(point.family, point.ranks, point.microbatches, **options)
    report = verify(schedule, _costs(point, schedule.problem), limits, solver="replay")
    witnesses = [witness for part in report.properties.values() for witness in part.witnesses]
    return {
        "status": report.status,
        **_numbers(point, report.simulation),
        "reason": one_line(str(witnesses[0])) if witnesses else None,
    }


def _shortest(point: Point, limits: Limits) -> dict[str, object]:
    from verifier.synthesize import synthesize

    rows = placement(point.placement, point.ranks, int(point.stages_per_rank or 2))
    # As on the command line: an odd number gives direction 0 one more.
    counts = tuple((point.microbatches + len(rows) - 1 - index) // len(rows) for index in range(len(rows)))
    problem = Problem(rows, counts)
    options: dict[str, Any] = dict(word.split("=", 1) for word in point.search.split())
    if "blocks" in options:
        options["blocks"] = tuple(options["blocks"].split(","))
    if "budget" in options:
        options["budget"] = float(options["budget"])
    found = synthesize(problem, _costs(point, problem), limits, **options)
    if found.interrupted:
        raise InterruptedError("the search was interrupted")
    result: dict[str, object] = {"status": found.status, "reason": one_line(found.reason) or None}
    if found.simulation is not None:
        result |= _numbers(point, found.simulation)
        result["lower_bound"] = None if found.lower_bound is None else plain(found.scope_bound or found.lower_bound)
    return result


def _costs(point: Point, problem: Problem) -> CostModel:
    costs = CostModel.parse(point.costs)
    return costs_of_shares(costs, problem) if point.per == "model" else costs


def _numbers(point: Point, simulation: Simulation) -> dict[str, object]:
    """What the timeline gives; nothing where the ranks hang."""
    timeline = simulation.timeline
    if timeline is None:
        return {}
    row = Row(simulation, point.per)
    return {
        "makespan": plain(row.makespan),
        "idle_mean": plain(row.idle_mean),
        "idle_worst": plain(max(row.idle)),
        "bubble_ratio": plain(timeline.bubble_ratio),
        "bubble_percent": f"{100 * float(timeline.bubble_ratio):.2f}",
        "peak_activations": plain(max(simulation.peak_activations)),
        "weights_held": plain(max(row.weights)),
        "overlapped": sum(simulation.overlapped),
    }
