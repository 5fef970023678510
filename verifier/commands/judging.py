"""
The commands that look at schedules and judge them: ``families``, ``show``, ``verify`` and ``compare``.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from verifier.commands.options import (
    DONE,
    EXIT_CODES,
    REFUTED,
    WRONG,
    costs_option,
    examples,
    json_option,
    print_json,
    source_options,
)
from verifier.model import ScheduleError, exact, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verifier.compare import Refusal, Row
    from verifier.costs import CostModel
    from verifier.families import Family
    from verifier.simulate import Simulation

MODELS = ("tagged", "ordered", "pair", "rank", "batched", "blocking")
"""As in ``verifier.messages``, named here so that the help text needs no import; a test keeps them equal."""


@click.command()
@json_option
def families(as_json: bool) -> int:
    """The families, their sizes, and published claims."""
    from verifier.families import FAMILIES

    if as_json:
        print_json([_family_json(family) for family in FAMILIES.values()])
    else:
        from verifier.views.terminal import console, print_families

        print_families(console(), list(FAMILIES.values()))
    return DONE


def _family_json(family: Family) -> dict[str, object]:
    return {
        "name": family.name,
        "description": family.description,
        "conditions": family.conditions,
        "placement": family.placement,
        "claims": [
            {"quantity": claim.quantity, "formula": claim.formula, "domain": claim.domain, "source": claim.source}
            for claim in family.claims
        ],
    }


@click.command(epilog=examples("verifier show dualpipe -P 8 -M 20", "verifier show zbv -P 4 -M 8 --costs F=10,I=12,W=9 --json"))
@click.argument("source")
@source_options
@costs_option
@click.option("--from", "since", metavar="TIME", help="Draw the ranks from this time on.")
@click.option("--to", "until", metavar="TIME", help="Draw the ranks up to this time.")
@click.option(
    "--timeline", "with_times", is_flag=True, help="With --json: every rank's order, and start and end of each block."
)
@json_option
def show(
    source: str,
    costs: str | None,
    since: str | None,
    until: str | None,
    with_times: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """What every rank does when; makespan, idle time, peaks."""
    from verifier.sources import judged_under, open_source, verdict

    if with_times and not as_json:
        raise ScheduleError("--timeline: says what --json writes; without it the timeline is drawn")
    subject = judged_under(open_source(source, **given), costs=costs)
    report = verdict(replace(subject, limits=None, claims={}, program=None), solver="replay")
    if as_json:
        from verifier.measures import windows_json
        from verifier.verify import numbers

        refuted = {name: part for name, part in report.properties.items() if part.status == "refuted"}
        said = (
            {"status": "refuted", "properties": replace(report, properties=refuted).as_json()["properties"]} if refuted else {}
        )
        times = _times_json(report.simulation) if with_times else {}
        print_json({**said, **numbers(report.simulation), **windows_json(report.simulation.timeline), **times})
    else:
        from verifier.views.terminal import console, print_show

        stretch = [None if time is None else exact(time, name) for name, time in (("--from", since), ("--to", until))]
        if None not in stretch and stretch[0] >= stretch[1]:  # type: ignore[operator]
            raise ScheduleError(f"--from {since} --to {until}: expected a stretch of time that is not empty")
        print_show(console(), report, *stretch)
    return DONE if report.simulation.timeline else REFUTED


def _times_json(simulation: Simulation) -> dict[str, object]:
    """The order as schedule files carry it, and in the same shape when each block starts and ends."""
    timeline, order = simulation.timeline, [list(map(str, row)) for row in simulation.schedule.order]
    if timeline is None:
        return {"order": order, "start": None, "end": None}
    unit = timeline.ticks_per_unit
    rows = list(zip(timeline.start, timeline.duration, strict=True))
    return {
        "order": order,
        "start": [[plain(Fraction(tick, unit)) for tick in starts] for starts, _ in rows],
        "end": [[plain(Fraction(tick + span, unit)) for tick, span in zip(*row, strict=True)] for row in rows],
    }


@click.command(
    epilog=examples(
        "verifier verify dualpipe -P 8 -M 20 --activations 9 --weights 2",
        "verifier verify schedule.csv --spec specs/dualpipev-p4-m10.toml",
    )
)
@click.argument("source")
@source_options
@click.option("--spec", metavar="SPEC", help="The problem, costs, limits and expectations to judge against.")
@costs_option
@click.option("--activations", metavar="N", help="Most activations that a rank may hold: one number, or N,N,... per rank.")
@click.option("--weights", metavar="N", help="Most weight copies (stages) that a rank may hold: one number, or N,N,...")
@click.option(
    "--messages",
    "models",
    multiple=True,
    type=click.Choice(MODELS),
    metavar="MODEL",
    help=f"Judge the messages under a communication model, or several: {', '.join(MODELS)}.",
)
@click.option(
    "--solver",
    type=click.Choice(["auto", "z3", "replay"]),
    default="auto",
    help="auto: replay, and Z3 as a second way while it is quick; z3: both; replay: replay alone.",
)
@json_option
def verify(
    source: str,
    spec: str | None,
    costs: str | None,
    activations: str | None,
    weights: str | None,
    models: tuple[str, ...],
    solver: str,
    as_json: bool,
    **given: Any,
) -> int:
    """Judge a schedule by every rule; a refuted one with the place."""
    from verifier.sources import judged_under, open_source, verdict
    from verifier.specs import read_spec

    against = read_spec(spec) if spec is not None else None
    subject = judged_under(open_source(source, **given), spec=against, costs=costs, activations=activations, weights=weights)
    declared = given["microbatches"]
    if against and against.problem and declared not in (None, against.problem.total_microbatches):
        raise ScheduleError(f"-M {declared}: {against.path} says {against.problem.total_microbatches} micro-batches; drop one")
    report = verdict(subject, models=models, solver=solver)
    if as_json:
        print_json(report.as_json())
    else:
        from verifier.views.terminal import console, print_report

        print_report(console(), report)
    return EXIT_CODES[report.status]


@click.command(epilog=examples("verifier compare dualpipe dualpipev 1f1b -P 8 -M 20"))
@click.argument("sources", nargs=-1, required=True, metavar="FAMILY-OR-FILE...")
@source_options
@costs_option
@click.option(
    "--per",
    type=click.Choice(["model", "stage"]),
    default="model",
    help="model: one model for all, so a rank with two stages has two half stages; stage: each in its own stage units.",
)
@click.option("--gpu-hours", metavar="HOURS", help="Of the first schedule; estimate those of the others from their bubbles.")
@json_option
def compare(sources: tuple[str, ...], costs: str | None, per: str, gpu_hours: str | None, as_json: bool, **given: Any) -> int:
    """A table of schedules side by side; exit code 1 where one of them has no row."""
    from verifier.compare import Refusal, Row
    from verifier.costs import CostModel
    from verifier.specs import read_costs

    model = read_costs(costs) if costs is not None else CostModel.of()
    hours = None if gpu_hours is None else exact(gpu_hours, "--gpu-hours")
    rows = [_compared(source, model, per, given) for source in sources]
    if as_json:
        print_json(
            {
                "per": per,
                "costs": model.as_written(),
                "schedules": [{**row.as_json(), **_hours(row, rows, hours)} for row in rows],
            }
        )
    elif any(isinstance(row, Row) for row in rows):
        from verifier.views.terminal import console, print_comparison

        print_comparison(console(), rows, model, per, hours)
    else:
        raise ScheduleError("; ".join(row.reason for row in rows if isinstance(row, Refusal)))
    there = [isinstance(row, Row) for row in rows]
    return DONE if all(there) else REFUTED if any(there) else WRONG


def _hours(row: Row | Refusal, rows: Sequence[Row | Refusal], hours: Fraction | None) -> dict[str, object]:
    """The estimate of GPU hours, where it was asked for."""
    from verifier.compare import Row

    first = next((other for other in rows if isinstance(other, Row)), None)
    if hours is None or first is None or not isinstance(row, Row):
        return {}
    return {"estimated_gpu_hours": plain(row.hours(hours, first))}


def _compared(source: str, costs: CostModel, per: str, given: dict[str, Any]) -> Row | Refusal:
    """A row of the comparison, or why there is none: the others are still worth seeing."""
    from verifier.compare import Refusal, compare
    from verifier.sources import fitting, open_source

    try:
        subject = open_source(source, **fitting(source, given))
        return compare(subject.schedule, costs, per, own_costs=subject.costs)
    except ScheduleError as error:
        return Refusal(source, str(error))
