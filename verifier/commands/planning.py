"""
The command ``plan``: from a cluster and a model to pipeline depth, schedule, memory and step time.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from verifier.commands.options import DONE, INTERRUPTED, REFUTED, Seconds, examples, json_option, keep_input, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from verifier.planning.improve import Improvement
    from verifier.planning.plan import Plan
    from verifier.planning.spec import PlanSpec


@click.command(
    epilog=examples(
        "verifier plan specs/cluster-deepseek-v3.toml",
        "verifier plan specs/cluster-dense-70b.toml -o plan.md",
        "verifier plan specs/cluster-small-moe.toml --synthesize --budget 10 --schedule schedule.json",
    )
)
@click.argument("spec")
@click.option("--batch", type=click.IntRange(1), metavar="N", help="Sequences of a step, in place of the spec's.")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="Rows of the ranking to print.")
@click.option("--synthesize", "search", is_flag=True, help="Search for a shorter order in place of the recommended schedule's.")
@click.option(
    "--budget",
    type=Seconds(0, 1_000_000),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for the search.",
)
@click.option("--schedule", "schedule_file", metavar="FILE", help="Write the schedule that was found, as JSON.")
@click.option("-o", "output", metavar="FILE", help="Write the whole report as Markdown.")
@json_option
def plan(
    spec: str,
    batch: int | None,
    top: int,
    search: bool,
    budget: float,
    schedule_file: str | None,
    output: str | None,
    as_json: bool,
) -> int:
    """
    Plan a pipeline: every depth with every schedule, ranked, with memory, bubble and step time.

    SPEC is a TOML file with [cluster], [model] and [batch], and what else is known; see specs/cluster-*.toml. Sizes and
    durations are estimates, whose formulas the report (-o) prints. Exit code 1 where nothing fits.
    """
    from verifier.formats import schedule_json, write_text
    from verifier.planning.improve import improve
    from verifier.planning.report import markdown, plan_json
    from verifier.planning.spec import read_plan_spec

    if schedule_file is not None and not search:
        raise click.UsageError("--schedule goes with --synthesize")
    given = read_plan_spec(spec)
    keep_input([spec, given.chunk.file if given.chunk else None], output, schedule_file)
    if output is not None and schedule_file is not None and os.path.realpath(output) == os.path.realpath(schedule_file):
        raise click.UsageError("-o and --schedule name one file; expected two")
    made = _made(given if batch is None else given.with_batch(batch))
    improved = improve(made, budget) if search and made.fitting else None
    if output is not None:
        write_text(output, markdown(made, improved.sentence() if improved else ""))
    if schedule_file is not None and improved is not None and improved.best is not None:
        write_text(schedule_file, schedule_json.dump(improved.best, costs=improved.choice.costs))
    if as_json:
        print_json({**plan_json(made), **({"synthesis": improved.as_json()} if improved else {})})
    else:
        _print(made, top, improved)
    if improved is not None and improved.found.interrupted:
        return INTERRUPTED
    return DONE if made.fitting else REFUTED


def _made(spec: PlanSpec) -> Plan:
    """The plan, with a bar where somebody watches."""
    from verifier.planning.plan import make_plan

    if not sys.stderr.isatty():
        return make_plan(spec)
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("schedules")
        return make_plan(spec, lambda done, total: progress.update(task, completed=done, total=total))


def _print(made: Plan, top: int, improved: Improvement | None) -> None:
    from verifier.planning.advice import fillings, published, reasons
    from verifier.planning.report import described
    from verifier.planning.rules import RULES
    from verifier.views.terminal import console

    out = console()
    for line in described(made):
        out.print(line, soft_wrap=True)
    for note in made.spec.notes:
        out.print(f"note: {note}", soft_wrap=True)
    out.print()
    _print_ranking(out, made, top)
    if not made.fitting:
        return
    if made.out:
        out.print()
    best = made.fitting[0]
    out.print(f"recommended: {best.name}", style="bold")
    rule = RULES[best.family]
    bubbles = ", ".join(f"{filling.run.bubble:.1%} at {filling.microbatches}" for filling in fillings(made, best))
    for line in (*reasons(made), f"micro-batches: {rule.sizes}; {rule.remark} (without hops); bubble {bubbles}"):
        out.print(f"- {line}", soft_wrap=True)
    _print_copies(out, made)
    for line in (published(made), f"synthesis: {improved.sentence()}" if improved else ""):
        if line:
            out.print(f"- {line}", soft_wrap=True)
    out.print("all sizes and durations are estimates; -o FILE writes a report with every formula", style="dim", soft_wrap=True)


def _print_ranking(out: Console, made: Plan, top: int) -> None:
    from rich import box
    from rich.table import Table

    from verifier.planning.report import COLUMNS, ranking_row

    if made.fitting:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == "schedule" else "right")
        for choice in made.fitting[:top]:
            table.add_row(*ranking_row(made, choice))
        out.print(table)
        if len(made.fitting) > top:
            out.print(f"and {len(made.fitting) - top} more that fit (--top)", style="dim")
    if made.out:
        out.print(f"what does not fit ({made.spec.cluster.memory / 1e9:g} GB):")
    for family in dict.fromkeys(choice.family for choice in made.out):
        listed = (
            f"P={choice.depth}: {', '.join(obstacle.short for obstacle in choice.broken)}"
            for choice in made.out
            if choice.family == family
        )
        out.print(f"  {family:<12}{'; '.join(listed)}", soft_wrap=True)


def _print_copies(out: Console, made: Plan) -> None:
    """The price of a second weight copy at the depth that a schedule with two directions would have."""
    from verifier.planning.advice import second_copy

    two = next((choice for choice in made.fitting if choice.copies == 2), made.fitting[0])
    if two.depth == 1:
        return
    extra = second_copy(made.spec, two.depth)
    line = f"a second weight copy at P={two.depth} takes {extra.weights / 1e9:.1f} GB per rank, its gradients "
    line += f"{extra.gradients / 1e9:.1f} GB"
    if extra.ratio > 1:
        line += f"; unsharded, as in a dense model, the weights would take {extra.unsharded / 1e9:.1f} GB, "
        line += f"{extra.ratio:.1f} times as much"
    out.print(f"- {line}", soft_wrap=True)
