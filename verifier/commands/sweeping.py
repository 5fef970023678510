"""
The command ``sweep``: many problems from one spec.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from verifier.commands.options import DONE, INTERRUPTED, REFUTED, WRONG, examples, json_option, keep_input
from verifier.formats.source import one_line
from verifier.model import ScheduleError

if TYPE_CHECKING:
    from verifier.sweep import Record
    from verifier.sweep.work import Start

AXES = ("microbatches", "ranks")
QUANTITIES = ("idle_mean", "idle_worst", "bubble_ratio", "makespan", "peak_activations", "weights_held", "overlapped")
"""As in ``verifier.sweep``, named here so that the help text needs no import; a test keeps them equal."""


@click.command(
    epilog=examples(
        "verifier sweep specs/sweep-bubble.toml -o bubble.csv --plot bubble.svg",
        "verifier sweep specs/sweep-bubble.toml -o bubble.csv --executor dask:tcp://scheduler:8786",
    )
)
@click.argument("spec")
@click.option("-o", "output", metavar="FILE", help="Keep the rows here (.csv or .json), and go on from what is there.")
@click.option("--processes", type=click.IntRange(1, 1024), metavar="N", help="Processes of this machine (default: its cores).")
@click.option("--executor", metavar="dask:ADDRESS", help="Hand the points to a Dask cluster, by its scheduler's address.")
@click.option("--x", "axis", type=click.Choice(AXES), help="What tables and plot go along (default: what varies).")
@click.option("--y", "quantity", type=click.Choice(QUANTITIES), default="idle_mean", show_default=True, help="What they show.")
@click.option("--plot", metavar="FILE", help="Draw them, too: .svg, .png or .pdf.")
@click.option("--theme", type=click.Choice(["light", "dark"]), default="light", show_default=True, help="Of the plot.")
@json_option
def sweep(
    spec: str,
    output: str | None,
    processes: int | None,
    executor: str | None,
    axis: str | None,
    quantity: str,
    plot: str | None,
    theme: str,
    as_json: bool,
) -> int:
    """
    Many problems from one spec: ranks, micro-batches, costs, limits, families.

    Every point of the sweep becomes a row. The file of rows can be read at any moment; after an interrupt the same command does
    what is missing. Exit code 1 where a row is an error that nobody expected, 2 where no point has a schedule.
    """
    from verifier.sweep import Record, read_sweep
    from verifier.sweep.record import alone
    from verifier.sweep.table import default_axis

    keep_input([spec], output, plot)
    points = read_sweep(spec)
    form = None if plot is None else Path(plot).suffix.removeprefix(".").lower()
    if form is not None and form not in ("svg", "png", "pdf"):
        raise ScheduleError(f"--plot {plot}: expected a name that ends in .svg, .png or .pdf")
    if executor is not None and processes is not None:
        raise ScheduleError("--executor and --processes: expected one of them")
    with alone(output):
        record = Record(points, output)
        known = len(record.points) - len(record.missing)
        interrupted = not _run(record, *_executor(executor, processes))
    along = axis or default_axis(points)
    if plot is not None and form is not None:
        from verifier.formats import write_text
        from verifier.sweep.chart import chart

        write_text(plot, chart(points, record, form, axis=along, quantity=quantity, theme=theme))
    if as_json:
        from verifier.sweep.record import dump

        click.echo(dump(record.rows(), "json"), nl=False)
    else:
        from verifier.sweep.printing import print_sweep
        from verifier.views.terminal import console

        print_sweep(console(), points, record, along, quantity, known)
    if interrupted:
        return INTERRUPTED
    return _code(record, spec)


def _code(record: Record, spec: str) -> int:
    """The exit code; where nothing came of any point, one line says why."""
    rows = record.rows()
    if any(row["status"] == "error" for row in rows):
        return REFUTED
    if any(row["status"] != "refused" for row in rows):
        return DONE
    which = f"none of the {len(rows)} points has" if len(rows) > 1 else "the point does not have"
    click.echo(one_line(f"{spec}: {which} a schedule; {rows[0]['reason']}"), err=True)
    return WRONG


def _executor(executor: str | None, processes: int | None) -> tuple[Start, int]:
    from verifier.sweep.work import dask, local

    if executor is None:
        return local(processes or os.cpu_count() or 1)
    kind, _, address = executor.partition(":")
    if kind != "dask" or not address:
        raise ScheduleError(f"--executor {executor[:100]}: expected dask:ADDRESS, such as dask:tcp://host:8786")
    return dask(address)


def _run(record: Record, start: Start, window: int) -> bool:
    """Do what is missing and keep it; False if that was interrupted."""
    from verifier.sweep import rows_of

    missing = record.missing
    try:
        with (
            _progress(len(record.points), len(record.points) - len(missing)) as advance,
            closing(rows_of(missing, start, window)) as rows,
        ):
            for row in rows:
                if row is not None:
                    record.add(row)
                    advance()
                record.save()
    except KeyboardInterrupt:
        return False
    finally:
        record.save(at_once=True)
    return True


@contextmanager
def _progress(total: int, done: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error, where that is a terminal; call what is given after every point."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("points", total=total, completed=done)
        yield lambda: bar.advance(task)
