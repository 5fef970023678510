"""
The command ``export``, and what it can write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from verifier.commands.options import DONE, costs_option, examples, source_options

if TYPE_CHECKING:
    from verifier.formats.source import Source


def _to_json(source: Source) -> str:
    from verifier.formats import schedule_json

    return schedule_json.dump(source)


def _to_torch_csv(source: Source) -> str:
    from verifier.formats import torch_csv

    return torch_csv.dump(source.schedule)


def _to_torch_comms_csv(source: Source) -> str:
    from verifier.formats import torch_comms_csv

    return torch_comms_csv.dump(source.schedule)


def _to_dualpipe_table(source: Source) -> str:
    from verifier.formats import dualpipe_table

    return dualpipe_table.dump(source.schedule)


EXPORTERS: dict[str, Callable[[Source], str]] = {
    "json": _to_json,
    "torch-csv": _to_torch_csv,
    "torch-comms-csv": _to_torch_comms_csv,
    "dualpipe-table": _to_dualpipe_table,
}
"""What ``export`` can write, by the name of the format."""


@click.command(epilog=examples("verifier export dualpipev -P 4 -M 10 --to torch-csv -o schedule.csv"))
@click.argument("source")
@source_options
@costs_option
@click.option("--to", "target", required=True, type=click.Choice(list(EXPORTERS)), help="The format to write.")
@click.option("-o", "output", metavar="FILE", help="Where to write; standard output by default.")
def export(source: str, costs: str | None, target: str, output: str | None, **given: Any) -> int:
    """Write a schedule in the format of a runtime."""
    from verifier.formats import write_text
    from verifier.sources import judged_under, open_source

    text = EXPORTERS[target](judged_under(open_source(source, **given), costs=costs))
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)
    return DONE
