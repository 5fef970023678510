"""
Our own format, ``pipeline-schedule/1``: a schedule as JSON, with costs, limits, times, claims and a certificate where known.

``pipeline-schedule-1.schema.json`` in this folder describes it to others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from verifier.costs import CostModel
from verifier.formats import json_text
from verifier.formats.json_text import json_value, listed
from verifier.formats.source import Source
from verifier.model import Block, Limits, Schedule, ScheduleError, exact, plain

FORMAT = "pipeline-schedule/1"

# -------------------------------------------------------------------------------------------------------------- reading


def of_json(written: Any, *, microbatches: int | None = None) -> Source:
    """
    The schedule in a file.

    Parameters
    ----------
    written
        The file, as :func:`verifier.formats.json_text.parsed` gives it.
    microbatches
        How many there should be, over both directions (halved between them), where the file is not to be believed.

    Raises
    ------
    ScheduleError
        If the file has not the published shape, or its parts do not fit one another.

    Examples
    --------
    >>> source = of_json(json_text.parsed('''{"format": "pipeline-schedule/1", "ranks": 1, "placement": [[0]],
    ...     "microbatches": [1], "order": [["0F0", "0B0"]], "costs": {"F": 2.50}}'''))
    >>> source.schedule.order[0][1].kind, source.costs.prices["F"]
    ('B', Fraction(5, 2))
    """
    json_text.check_shape(written, FORMAT)
    problem = json_text.problem(written, microbatches, "order")
    order = tuple(
        tuple(
            json_text.word(token, Block.parse, "a block such as 0F3, 7B0' or (0F7;7B3')", ("order", rank, position))
            for position, token in enumerate(listed(row, f"order[{rank}]"))
        )
        for rank, row in enumerate(written["order"])
    )
    return Source(
        Schedule(problem, order, written.get("name", "")),
        FORMAT,
        json_text.costs(written, problem),
        _limits(written["limits"], problem.ranks) if "limits" in written else None,
        _start(written["start"], order) if "start" in written else None,
        {key: json_value(value, f"claims.{key}") for key, value in written.get("claims", {}).items()},
        json_value(written.get("certificate"), "certificate"),
    )


# ---------------------------------------------------------------------------------------------------------------- parts


def _limits(written: Mapping[str, object], ranks: int) -> Limits:
    activations = _per_rank(written.get("activations"), "limits.activations")
    weights = _per_rank(written.get("weights"), "limits.weights")
    if any(number.denominator != 1 for number in (weights if isinstance(weights, tuple) else (weights or Fraction(0),))):
        raise ScheduleError("limits.weights: expected whole numbers of weight copies")
    whole = tuple(map(int, weights)) if isinstance(weights, tuple) else None if weights is None else int(weights)
    limits = Limits(activations, whole)
    limits.check(ranks)
    return limits


def _per_rank(value: object, where: str) -> Fraction | tuple[Fraction, ...] | None:
    if isinstance(value, list):
        return tuple(exact(item, f"{where}[{rank}]") for rank, item in enumerate(value))
    return None if value is None else exact(value, where)


def _start(written: Sequence[object], order: Sequence[Sequence[Block]]) -> tuple[tuple[Fraction, ...], ...]:
    """Start times, one per block."""
    _check_start(written, order)
    return tuple(
        tuple(exact(time, f"start[{rank}][{position}]") for position, time in enumerate(listed(times, f"start[{rank}]")))
        for rank, times in enumerate(written)
    )


def _check_start(start: Sequence[Any], order: Sequence[Sequence[Block]]) -> None:
    """Refuse times that are not one per block."""
    if len(start) != len(order):
        raise ScheduleError(f"start: expected {len(order)} lists, one per rank, got {len(start)}")
    for rank, (times, blocks) in enumerate(zip(start, order, strict=True)):
        if isinstance(times, (list, tuple)) and len(times) != len(blocks):
            raise ScheduleError(f"start[{rank}]: expected {len(blocks)} times, one per block, got {len(times)}")


# -------------------------------------------------------------------------------------------------------------- writing


def dump(
    source: Source | Schedule,
    *,
    costs: CostModel | None = None,
    limits: Limits | None = None,
    start: Sequence[Sequence[Fraction]] | None = None,
    claims: Mapping[str, object] | None = None,
    certificate: object = None,
) -> str:
    """
    The text of a schedule file; equal schedules give equal bytes, and :func:`of_json` gives the same schedule back.

    Parameters
    ----------
    source
        A schedule, or what a file said about one.
    costs, limits, start, claims, certificate
        As in :class:`Source`; given here they replace what the source says.

    Raises
    ------
    ScheduleError
        If the times are not one per block, or a claim is nothing that JSON can hold.

    Examples
    --------
    >>> from verifier.model import Problem
    >>> schedule = Schedule(Problem(((0,),), (1,)), ((Block.parse("0F0"), Block.parse("0B0")),))
    >>> print(dump(schedule, claims={"makespan": 3}), end="")
    {
     "format": "pipeline-schedule/1",
     "ranks": 1,
     "placement": [[0]],
     "microbatches": [1],
     "order": [
      ["0F0", "0B0"]
     ],
     "claims": {"makespan": 3}
    }
    """
    if isinstance(source, Schedule):
        source = Source(source, FORMAT)
    schedule, problem = source.schedule, source.schedule.problem
    costs, limits, start = costs or source.costs, limits or source.limits, start if start is not None else source.start
    claims = source.claims if claims is None else claims
    certificate = source.certificate if certificate is None else certificate
    entries = json_text.head(FORMAT, schedule.name, problem)
    entries["order"] = json_text.rows([str(block) for block in row] for row in schedule.order)
    if costs:
        entries["costs"] = json.dumps(costs.as_written())
    if limits:
        entries["limits"] = json.dumps(_written_limits(limits))
    if start is not None:
        _check_start(start, schedule.order)
        entries["start"] = json_text.rows([plain(time) for time in row] for row in start)
    if claims:
        entries["claims"] = json.dumps(json_value(claims, "claims"), sort_keys=True)
    if certificate is not None:
        entries["certificate"] = json.dumps(json_value(certificate, "certificate"), sort_keys=True)
    return json_text.whole_text(entries)


def _written_limits(limits: Limits) -> dict[str, object]:
    written: dict[str, object] = {}
    for name, value in (("activations", limits.activations), ("weights", limits.weights)):
        if value is not None:
            written[name] = [plain(number) for number in value] if isinstance(value, tuple) else plain(value)
    return written
