"""
``python -m verifier.catalogue DIR``: make what the catalogue does not have yet, small problems first.

A file that is there stays: one that is optimal for good, an open one unless ``--improve`` is given. An interrupt, or the end of
the time, keeps what was made. Exit code 0, or 130 if interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import click

from verifier.catalogue.cells import Cell, cells
from verifier.catalogue.making import Told, make, read, seconds
from verifier.catalogue.table import write_index
from verifier.model import ScheduleError, plain

INTERRUPTED = 130


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--budget", type=float, default=3600.0, show_default=True, metavar="SECONDS", help="Time for everything.")
@click.option(
    "--factor", type=float, default=1.0, show_default=True, metavar="N", help="Time for one schedule, by this factor."
)
@click.option("--improve", is_flag=True, help="Search again where the gap is open.")
@click.option("--only", default="", metavar="TEXT", help="Only schedules whose file name contains this.")
def main(folder: Path, budget: float, factor: float, improve: bool, only: str) -> None:
    """Make the catalogue in DIR; it can be interrupted and called again."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        wanted = [cell for cell in cells() if only in cell.name]
        interrupted = _make(wanted, folder, monotonic() + budget, factor, improve)
        rows = write_index(cells(), folder)
    except (ScheduleError, OSError) as error:
        raise click.ClickException(str(error)) from None
    open_gaps = sum(row["status"] != "optimal" for row in rows)
    click.echo(f"{len(rows)} of {len(list(cells()))} schedules, {open_gaps} of them with an open gap")
    sys.exit(INTERRUPTED if interrupted else 0)


def _make(wanted: list[Cell], folder: Path, end: float, factor: float, improve: bool) -> bool:
    """Whether it was interrupted."""
    try:
        with _progress(len(wanted)) as (tell, advance):
            for cell in wanted:
                left = end - monotonic()
                before = read(cell, folder)
                if left > 0 and (before is None or (improve and not before.is_optimal)):
                    began = monotonic()
                    found = make(cell, folder, min(left, factor * seconds(cell, folder)), tell(cell.name))
                    click.echo(f"{cell.name}: {found.sentence()} ({monotonic() - began:.1f} s)", err=True)
                    if found.interrupted:
                        return True
                advance()
    except KeyboardInterrupt:
        return True
    return False


@contextmanager
def _progress(total: int) -> Iterator[tuple[Callable[[str], Told], Callable[[], None]]]:
    """A bar on the terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def tell(name: str) -> Told:
            bar.update(task, description=name)
            return lambda best, bound, gap: bar.update(
                task, description=f"{name}: {plain(best)}, bound {plain(bound)}, gap {plain(gap)}"
            )

        yield tell, lambda: bar.advance(task)


if __name__ == "__main__":
    main()
