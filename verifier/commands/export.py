"""
The command ``export``, and what it can write.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from verifier.commands.drawing import PICTURES, page, picture
from verifier.commands.options import DONE, REFUTED, costs_option, examples, keep_input, source_options
from verifier.model import ScheduleError

if TYPE_CHECKING:
    from verifier.formats.source import Source


def _to_json(source: Source) -> str:
    from verifier.formats import schedule_json

    return schedule_json.dump(source)


def _to_torch_csv(source: Source) -> str:
    from verifier.formats import torch_comms_csv, torch_csv

    table = torch_csv.dump(source.schedule)
    torch_comms_csv.refuse_beyond_torch(source.schedule)
    return table


def _to_torch_comms_csv(source: Source) -> str:
    from verifier.formats import torch_comms_csv
    from verifier.messages import with_marks

    if source.program:
        return torch_comms_csv.dump_program(with_marks(source.program))
    return torch_comms_csv.dump(source.schedule, source.costs)


def _to_program(source: Source, *, groups: bool = False) -> str:
    from verifier.formats import program_json
    from verifier.messages import lower

    return program_json.dump(source.program or lower(source.schedule, source.costs), costs=source.costs, groups=groups)


def _to_dualpipe_table(source: Source) -> str:
    from verifier.formats import dualpipe_table

    return dualpipe_table.dump(source.schedule)


def _to_trace(source: Source) -> str:
    from verifier.formats import trace_json

    return trace_json.dump(source.schedule, source.costs)


EXPORTERS: dict[str, Callable[[Source], str]] = {
    "json": _to_json,
    "torch-csv": _to_torch_csv,
    "torch-comms-csv": _to_torch_comms_csv,
    "dualpipe-table": _to_dualpipe_table,
    "program": _to_program,
    "program-batched": partial(_to_program, groups=True),
    "trace": _to_trace,
}
"""What ``export`` can write of a schedule, by the name of the format."""

FOR_RUNTIMES = ("torch-csv", "torch-comms-csv", "dualpipe-table", "program", "program-batched")
"""Formats that something will execute: a refuted schedule is written in them only when asked twice."""


def _refutations(source: Source) -> Iterator[str]:
    """Why a source should not be executed; limits and claims are no reason."""
    from verifier.sources import verdict

    report = verdict(replace(source, limits=None, claims={}), solver="replay")
    for part in report.properties.values():
        for judged in (part, *part.models.values()):
            yield from map(str, judged.witnesses)


@click.command(
    epilog=examples(
        "verifier export dualpipev -P 4 -M 10 --to torch-csv -o schedule.csv",
        "verifier export dualpipe -P 8 -M 20 --to svg --memory -o dualpipe.svg",
        "verifier export dualpipe 1f1b zbv -P 8 -M 20 --to html -o compared.html",
        "verifier export order.json --extend-to 256 --to torch-csv -o longer.csv",
    )
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@source_options
@costs_option
@click.option("--to", "target", required=True, type=click.Choice([*EXPORTERS, *PICTURES, "html"]), help="The format to write.")
@click.option(
    "--extend-to",
    type=int,
    metavar="N",
    help="The same schedule for N micro-batches: what repeats in it runs more often, where that is proved to add no idle time.",
)
@click.option("--theme", type=click.Choice(["light", "dark"]), help="Of a picture (default light).")
@click.option("--memory", is_flag=True, help="Draw the live activations of every rank into a picture.")
@click.option(
    "--per",
    type=click.Choice(["model", "stage"]),
    help="How html compares several sources: model (the default): one model for all; stage: each in its own stage units.",
)
@click.option("--force", is_flag=True, help="Write for a runtime even what verify refutes.")
@click.option("-o", "output", metavar="FILE", help="Where to write; standard output by default.")
def export(
    sources: tuple[str, ...],
    costs: str | None,
    target: str,
    extend_to: int | None,
    theme: str | None,
    memory: bool,
    per: str | None,
    force: bool,
    output: str | None,
    **given: Any,
) -> int:
    """
    Write a schedule for a runtime, for a trace viewer, as a picture or as a page.

    Traces are for ui.perfetto.dev; html is one file to look into a schedule, or to compare several. A source's own messages are
    kept where the format has any; else they are placed so that they are right under every communication model. What has to go
    with the file is said on standard error.
    """
    from verifier.formats.notes import notes
    from verifier.sources import judged_under, lengthened, open_source

    keep_input([*sources, costs], output)
    if target not in PICTURES and (theme or memory):
        raise ScheduleError(f"{target}: --theme and --memory are for pictures: {', '.join(PICTURES)}")
    if target == "html":
        if extend_to is not None:
            raise ScheduleError(
                "html: takes no --extend-to; export --extend-to N --to json first, and then that file --to html"
            )
        _write(page(sources, costs, per, given), target, output)
        return DONE
    if len(sources) > 1 or per:
        raise ScheduleError(f"{target}: expected one SOURCE; html compares several, and --per says how")
    subject = judged_under(open_source(sources[0], **given), costs=costs)
    if extend_to is not None:
        if subject.program is not None:
            click.echo("the source's messages are for its own micro-batches, and were left out", err=True)
        subject = lengthened(subject, extend_to)
    if target in FOR_RUNTIMES and not force:
        refuted = next(_refutations(subject), None)
        if refuted:
            click.echo(f"refuted: {refuted}; nothing is written without --force", err=True)
            return REFUTED
    if target in PICTURES:
        _write(picture(subject, target, theme or "light", memory), target, output)
        return DONE
    _write(EXPORTERS[target](subject), target, output)
    for note in notes(subject, target, Path(output).name if output else "FILE"):
        click.echo(note, err=True)
    return DONE


def _write(written: str | bytes, target: str, output: str | None) -> None:
    """To the file, or to standard output where nothing suffers from it."""
    from verifier.formats import write_text

    if output is not None:
        write_text(output, written)
    elif target in ("png", "pdf") and sys.stdout.isatty():
        raise ScheduleError(f"{target}: not for a terminal; say where to write it with -o FILE")
    else:
        click.echo(written, nl=False)
