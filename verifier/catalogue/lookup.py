"""
What the catalogue knows of a problem: schedules to start from, and what solvers said of this very question.

Of a problem that it has with fewer micro-batches only, a schedule whose bubble is proved not to grow is made longer. Only the
index is read where it has nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from verifier.costs import CostModel
from verifier.families import placement
from verifier.model import Limits, Problem, Schedule, ScheduleError, exact
from verifier.search.strings import Board, fits_mirror
from verifier.synthesize import Recorded

NAME = "generated_schedules"
INDEX = "index.json"
SHARED = Path("share") / "pipeline-schedule-verifier"
"""Where an installed package has its catalogue, below the prefix of Python."""
WAY_OUT = "make the catalogue again, or say --no-catalogue"


@dataclass(frozen=True)
class Known:
    """
    What the catalogue has.

    Attributes
    ----------
    seeds
        Schedules of the problem; under other costs and limits they may be neither short nor legal.
    recorded
        What solvers said, where costs (up to a common factor) are the same and the limits no looser.
    """

    seeds: tuple[Schedule, ...] = ()
    recorded: Recorded | None = None


def folder() -> Path | None:
    """The catalogue beside the package, or where an installation puts it; None where there is none."""
    here = Path(__file__).parents[2]
    for place in (here / NAME, Path(sys.prefix) / SHARED / NAME):
        if (place / INDEX).is_file():
            return place
    return None


def known(problem: Problem, costs: CostModel, limits: Limits, place: Path | None = None) -> Known:
    """
    Look a problem up.

    Parameters
    ----------
    place
        The catalogue; :func:`folder` unless given.

    Raises
    ------
    ScheduleError
        If costs or limits do not fit the problem, or a file of the catalogue is damaged; one line says which.

    Examples
    --------
    >>> known(Problem(((0, 1),), (3,)), CostModel.of(), Limits())
    Known(seeds=(), recorded=None)
    """
    costs.check(problem)
    limits.check(problem.ranks)
    place = place or folder()
    if place is None:
        return Known()
    index = read_index(place)
    rows = [row for row in index if _is_of(row, problem)]
    if not rows:
        return Known(symmetric(_longer(place, index, problem, costs, limits), costs, limits))
    answers = [
        (factor, row) for row in rows if (factor := ratio(costs, CostModel.of(**row["costs"]))) and _binds(row, limits, problem)
    ]
    answers.sort(key=lambda found: found[1]["status"] != "optimal")
    if answers:
        factor, row = answers[0]
        schedule = _schedule(place, row)
        if row["status"] == "optimal":
            return Known(symmetric([schedule], costs, limits), recorded(row, factor))
        rows = [row, *(other for other in rows if other is not row)]
    seeds = symmetric((_schedule(place, row) for row in rows), costs, limits)
    return Known(seeds, recorded(answers[0][1], answers[0][0]) if answers else None)


def read_index(place: Path) -> list[dict[str, Any]]:
    """
    The rows of the index, one per schedule.

    Raises
    ------
    ScheduleError
        If it cannot be read.
    """
    try:
        rows = json.loads((place / INDEX).read_text("utf-8"))["schedules"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ScheduleError(f"{place / INDEX}: cannot be read ({error}); {WAY_OUT}") from None
    assert isinstance(rows, list)
    return rows


def ratio(costs: CostModel, other: CostModel) -> Fraction | None:
    """
    The factor by which all durations and hops of ``costs`` are larger; None where they differ otherwise.

    >>> ratio(CostModel.of(F=2, I=2, W=2, FB=5), CostModel.of(F="1/2", I="1/2", W="1/2", FB="5/4"))
    Fraction(4, 1)
    """
    if (costs.release, costs.activation) != (other.release, other.activation) or costs.prices.keys() != other.prices.keys():
        return None
    pairs = [(costs.prices[kind], other.prices[kind]) for kind in costs.prices] + [(costs.hop, other.hop)]
    numbers = [(a, b) for a, b in pairs if isinstance(a, Fraction) and isinstance(b, Fraction)]
    factor = next((a / b for a, b in numbers if a and b), None)
    if factor is None or len(numbers) < len(pairs) or any(a != b * factor for a, b in numbers):
        return None
    return factor


def recorded(written: Mapping[str, Any], factor: Fraction = Fraction(1)) -> Recorded | None:
    """What solvers said, as a certificate or a row of the index has it; None where only bounds are known."""
    by = written.get("refuted_by") or ()
    if not by:
        return None
    scoped = written["scope_bound"]
    bound = exact(written["lower_bound"] if scoped is None else scoped, "bound") * factor
    return Recorded(bound, tuple(map(str, by)), "all" if scoped is None else "mirrored")


def _is_of(row: Mapping[str, Any], problem: Problem) -> bool:
    return row["microbatches"] == list(problem.microbatches) and _is_placed(row, problem)


def _is_placed(row: Mapping[str, Any], problem: Problem) -> bool:
    return bool(row["ranks"] == problem.ranks and placement(row["placement"], row["ranks"]) == problem.placement)


def _longer(
    place: Path, index: Iterable[Mapping[str, Any]], problem: Problem, costs: CostModel, limits: Limits
) -> Iterator[Schedule]:
    """Of schedules of fewer micro-batches, the one nearest its bound that can be made longer, made longer."""
    from verifier.all_microbatches.repeating import longer, steady

    rows = [
        row
        for row in index
        if _is_placed(row, problem) and ratio(costs, CostModel.of(**row["costs"])) and _holds(row, limits, problem)
    ]
    for row in sorted(rows, key=_gap):
        # A seed needs no proof that it goes on so, it is replayed; but whether there is one may be known.
        if row["all_microbatches"] is None or row["all_microbatches"]["status"] == "proved":
            split = steady(_schedule(place, row), costs)
            schedule = longer(split, problem) if split else None
            if schedule is not None:
                yield schedule
                return


def _gap(row: Mapping[str, Any]) -> tuple[Fraction, int]:
    """What a schedule is above its bound, in forwards, and its size."""
    ticks = exact(row["makespan"], "makespan") - exact(row["lower_bound"], "bound")
    return ticks / exact(row["costs"]["F"], "F"), sum(row["microbatches"])


def _binds(row: Mapping[str, Any], limits: Limits, problem: Problem) -> bool:
    """Whether what is impossible under the limit of a row is impossible under these limits."""
    held = (limits.activations_on(rank) for rank in range(problem.ranks))
    return all(activations is not None and activations <= exact(row["activations"], "limit") for activations in held)


def _holds(row: Mapping[str, Any], limits: Limits, problem: Problem) -> bool:
    """Whether a schedule is within these limits because it is within its own."""
    held = (limits.activations_on(rank) for rank in range(problem.ranks))
    return all(activations is None or activations >= exact(row["activations"], "limit") for activations in held)


def _schedule(place: Path, row: Mapping[str, Any]) -> Schedule:
    from verifier.formats import load

    try:
        return load(place / row["file"]).schedule
    except ScheduleError as error:
        raise ScheduleError(f"{error}; {WAY_OUT}") from None


def symmetric(schedules: Iterable[Schedule], costs: CostModel, limits: Limits) -> tuple[Schedule, ...]:
    """Schedules of one problem without those that would make a search for mirror-symmetric ones one for all."""
    found = tuple(schedules)
    if not found or not fits_mirror(found[0].problem, costs, limits):
        return found
    return tuple(filter(Board(found[0].problem, costs, limits, folded=True).tells, found))
