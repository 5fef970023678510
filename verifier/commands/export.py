"""
The command ``export``, and what it can write.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from verifier.commands.options import DONE, costs_option, examples, source_options
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

PICTURES = ("svg", "png", "pdf")


@click.command(
    epilog=examples(
        "verifier export dualpipev -P 4 -M 10 --to torch-csv -o schedule.csv",
        "verifier export dualpipe -P 8 -M 20 --to svg --memory -o dualpipe.svg",
    )
)
@click.argument("source")
@source_options
@costs_option
@click.option("--to", "target", required=True, type=click.Choice([*EXPORTERS, *PICTURES]), help="The format to write.")
@click.option("--theme", type=click.Choice(["light", "dark"]), help="Of a picture (default light).")
@click.option("--memory", is_flag=True, help="Draw the live activations of every rank into a picture.")
@click.option("-o", "output", metavar="FILE", help="Where to write; standard output by default.")
def export(
    source: str, costs: str | None, target: str, theme: str | None, memory: bool, output: str | None, **given: Any
) -> int:
    """
    Write a schedule for a runtime, for a trace viewer, or as a picture.

    Traces are for ui.perfetto.dev. A source's own messages are kept where the format has any; else they are placed so that they
    are right under every communication model. What has to go with the file is said on standard error.
    """
    from verifier.formats import write_text
    from verifier.formats.notes import notes
    from verifier.sources import judged_under, open_source

    if target not in PICTURES and (theme or memory):
        raise ScheduleError(f"{target}: --theme and --memory are for pictures: {', '.join(PICTURES)}")
    subject = judged_under(open_source(source, **given), costs=costs)
    written = _picture(subject, target, theme or "light", memory) if target in PICTURES else EXPORTERS[target](subject)
    if output is not None:
        write_text(output, written)
    elif target in ("png", "pdf") and sys.stdout.isatty():
        raise ScheduleError(f"{target}: not for a terminal; say where to write it with -o FILE")
    else:
        click.echo(written, nl=False)
    for note in notes(subject, target, Path(output).name if output else "FILE"):
        click.echo(note, err=True)
    return DONE


def _picture(source: Source, form: str, theme: str, memory: bool) -> bytes:
    """The timeline as a picture, which says so where the schedule is refuted."""
    from verifier.sources import verdict
    from verifier.views.picture import picture

    return picture(verdict(source, solver="replay"), form, theme=theme, memory=memory)
