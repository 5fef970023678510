"""
What the commands print for people: grids, verdicts and tables. Colours only where they are seen; ASCII where nothing else is.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from verifier.formats.source import one_line
from verifier.measures import Window, all_busy, steady, whole
from verifier.model import Timeline, shown
from verifier.views.grid import STYLES, STYLES_OF_SIXTEEN, Grid, Styles, draw
from verifier.views.labels import UNEQUAL, are_unequal, costs_text, share_text, terms_text
from verifier.views.palette import MEANING, shades

if TYPE_CHECKING:
    from verifier.compare import Refusal, Row
    from verifier.costs import CostModel
    from verifier.families import Family
    from verifier.simulate import Simulation
    from verifier.verify import Property, Report

PIPE_WIDTH = 120
"""Columns where there is no terminal and COLUMNS does not say otherwise."""

_COLOURS = {"proved": "bold green", "refuted": "bold red", "unknown": "bold yellow", "not asked": "dim"}


class _Output(Console):
    """Rich ends the program with its own exit code when the reader is gone; that is for the command line to say."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """
    Where results go: as wide as the terminal, with its colours; plain in a pipe and where NO_COLOR is set.

    >>> console().width > 0
    True
    """
    width = None if sys.stdout.isatty() else shutil.get_terminal_size((PIPE_WIDTH, 24)).columns
    return _Output(width=width, highlight=False, markup=False, emoji=False)


# ---------------------------------------- show


def print_show(out: Console, report: Report, since: Fraction | None = None, until: Fraction | None = None) -> None:
    """
    The ranks over time, when they are busy, and what they hold.

    Parameters
    ----------
    since, until
        The stretch of time to draw, in the unit of the costs.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.verify import verify
    >>> print_show(Console(width=80), verify(build_family("1f1b", 2, 2), solver="replay"))
    1f1b P=2 M=2 ...
    """
    simulation = report.simulation
    styles = _styles(out)
    out.print(_title(simulation.schedule.name, report))
    grid = draw(
        simulation,
        out.width,
        styles=styles,
        dot="." if out.options.ascii_only else "\N{MIDDLE DOT}",
        since=since,
        until=until,
    )
    out.print()
    for line in grid.lines:
        if styles is None:
            line.rstrip()
        out.print(line, soft_wrap=True)
    if grid.lines:
        out.print(_legend(simulation, styles), soft_wrap=True)
    for remark in _remarks(grid, since, until):
        out.print(remark, style="dim", soft_wrap=True)
    out.print()
    if simulation.timeline is None:
        _print_headed(out, "no timeline exists: ", str(simulation.circle), "bold red")
        _print_notes(out, report.notes)
        return
    _print_times(out, simulation.timeline)
    out.print()
    out.print(_per_rank(simulation, simulation.timeline))
    _print_refuted(out, report)
    _print_notes(out, report.notes)


def _styles(out: Console) -> Styles | None:
    """The colours of the terminal; None where none are seen."""
    if not out.is_terminal or out.no_color or out.color_system is None:
        return None
    return STYLES if out.color_system in ("256", "truecolor") else STYLES_OF_SIXTEEN


def _remarks(grid: Grid, since: Fraction | None, until: Fraction | None) -> Iterator[str]:
    """What is not drawn."""
    if not grid.lines:
        stretch = "".join(f" {word} {shown(time)}" for word, time in (("from", since), ("to", until)) if time is not None)
        yield f"Nothing to draw{stretch}: what runs does so from 0 to {shown(grid.end)}."
    elif grid.until is not None and until is None:
        yield f"Drawn up to {shown(grid.until)}; --from {shown(grid.until)} shows what follows."
    if grid.hidden:
        blocks = "One block is" if grid.hidden == 1 else f"{grid.hidden} blocks are"
        yield f"{blocks} too short to draw at this scale; a shorter stretch, with --from and --to, is drawn at a larger one."


def _title(name: str, report: Report) -> Text:
    """What is shown, and the costs it is shown under."""
    return Text.assemble((_name(name), "bold"), (f"   {costs_text(report.costs, any(report.simulation.overlapped))}", "dim"))


def _name(name: str) -> str:
    """What a schedule is called, on one line and without what a terminal would obey."""
    return one_line(name, 100) or "schedule"


def _legend(simulation: Simulation, styles: Styles | None) -> Text:
    """What the cells say, of those kinds that occur."""
    kinds = {part.kind for row in simulation.schedule.order for block in row for part in block.parts}
    line = Text()
    for kind in (kind for kind in MEANING if kind in kinds):
        if styles:
            for style in styles[kind][: shades(simulation.schedule.problem)]:
                line.append(" 0 ", style)
            line.append(f" {MEANING[kind]}   ")
        else:
            line.append(f"{kind} {MEANING[kind]}, ")
    problem = simulation.schedule.problem
    if problem.directions > 1:
        line.append("dark direction 1   " if styles else "' direction 1, ")
    elif problem.stages > problem.ranks:
        line.append("dark second stage   " if styles else "stage before the kind, ")
    if any(simulation.overlapped):
        line.append("& overlapped" + ("   " if styles else ", "))
    line.append("dots idle")
    line.stylize("dim") if not styles else None
    return line


def _print_times(out: Console, timeline: Timeline) -> None:
    """Makespan, and from when to when the ranks are how busy."""
    rows = [("makespan", shown(timeline.makespan)), ("bubble", f"{share_text(timeline.bubble_ratio)} of ranks times makespan")]
    busy, window = all_busy(timeline), steady(timeline)
    rows.append(("no rank idles", "never" if busy is None else f"from {_stretch(busy)}"))
    if window is not None:
        rows.append(
            ("steady", f"from {_stretch(window)}: all ranks have started, none is done; {share_text(window.overall)} busy")
        )
    overall = whole(timeline)
    if overall is not None:
        rows.append(("overall", f"{share_text(overall.overall)} busy"))
    for name, text in rows:
        _print_headed(out, name.ljust(15), text)


def _stretch(window: Window) -> str:
    return f"{shown(window.start)} to {shown(window.end)} ({shown(window.end - window.start)} long)"


def _per_rank(simulation: Simulation, timeline: Timeline) -> Table:
    """Idle time, use and memory of every rank."""
    overall, window = whole(timeline), steady(timeline)
    columns = ("rank", "idle", "span idle", "busy", "busy, steady", "activations", "weights", "overlapped")
    problem = simulation.schedule.problem
    rows = [
        (
            str(rank),
            shown(timeline.idle[rank]),
            shown(timeline.span_idle[rank]),
            f"{float(overall.utilisation[rank]):.1%}" if overall else "-",
            f"{float(window.utilisation[rank]):.1%}" if window else "-",
            shown(simulation.peak_activations[rank]),
            str(len(problem.stages_on(rank))),
            str(simulation.overlapped[rank]),
        )
        for rank in range(problem.ranks)
    ]
    return _table(columns, rows)


def _print_refuted(out: Console, report: Report) -> None:
    """Numbers of a wrong order are given, but not without saying that it is wrong."""
    for name, part in report.properties.items():
        if part.witnesses:
            _print_headed(out, f"refuted ({name}): ", str(part.witnesses[0]), "bold red")


def _print_notes(out: Console, notes: Iterable[str]) -> None:
    for note in notes:
        out.print(f"note: {note}", style="dim", soft_wrap=True)


# ---------------------------------------- verify


def print_report(out: Console, report: Report) -> None:
    """
    The verdict, property by property, with its witnesses and the numbers.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.verify import verify
    >>> print_report(Console(width=80), verify(build_family("1f1b", 2, 2), solver="replay"))
    1f1b P=2 M=2: proved
    ...
    """
    simulation = report.simulation
    _print_headed(out, f"{_name(simulation.schedule.name)}: ", report.status, "bold", _COLOURS[report.status])
    out.print(f"costs {costs_text(report.costs, any(report.simulation.overlapped))}", style="dim", soft_wrap=True)
    out.print()
    for name, part in report.properties.items():
        _print_property(out, name, part)
    out.print()
    for name, text in _numbers(report):
        _print_headed(out, name.ljust(18), text)
    _print_notes(out, report.notes)


def _print_property(out: Console, name: str, part: Property, margin: str = "  ") -> None:
    """A line per property, and below it its witnesses, or the models it was judged under."""
    line = Text(f"{margin}{name}".ljust(18)).append(part.status.ljust(11), _COLOURS[part.status])
    line.append({"both": "replay and Z3", "z3": "Z3"}.get(part.method, part.method), "dim")
    if part.reason:
        line.append(f"  {part.reason}")
    line.rstrip()
    out.print(line, soft_wrap=True)
    for witness in part.witnesses:
        out.print(f"{margin}    {witness}", soft_wrap=True)
    for model, judged in part.models.items():
        _print_property(out, model, judged, margin + "  ")


def _numbers(report: Report) -> list[tuple[str, str]]:
    """The numbers of the schedule; of each list only what differs between ranks."""
    simulation, timeline, problem = report.simulation, report.simulation.timeline, report.schedule.problem
    if timeline is None:
        return [("makespan", "no timeline exists")]
    rows = [
        ("makespan", shown(timeline.makespan)),
        ("idle", _each(timeline.idle)),
        ("span idle", _each(timeline.span_idle)),
        ("bubble", f"{share_text(timeline.bubble_ratio)} of ranks times makespan"),
        ("peak activations", _each(simulation.peak_activations)),
        ("weights", _each([len(problem.stages_on(rank)) for rank in range(problem.ranks)])),
        ("overlapped", _each(simulation.overlapped)),
    ]
    if report.waiting is not None:
        rows.append(("waiting inputs", f"{_each(report.waiting)} at most, over all timelines of this order"))
    return rows


def _each(values: Sequence[Fraction | int]) -> str:
    """One number per rank; a single one where they are equal, the least and the most where they would not fit into a line."""
    if len(set(values)) == 1:
        return shown(values[0]) + (" on every rank" if len(values) > 1 else "")
    if len(values) > 16:
        return f"{shown(min(values))} to {shown(max(values))} (--json lists every rank)"
    return ", ".join(map(shown, values))


# ---------------------------------------- compare


def print_comparison(
    out: Console, rows: Sequence[Row | Refusal], costs: CostModel, per: str, hours: Fraction | None = None
) -> None:
    """
    A table of schedules, and why some have no row.

    Parameters
    ----------
    hours
        GPU hours of the first schedule, from which those of the others are estimated.

    Examples
    --------
    >>> from verifier.compare import compare
    >>> from verifier.costs import CostModel
    >>> from verifier.families import build_family
    >>> print_comparison(Console(width=100), [compare(build_family("1f1b", 8, 20))], CostModel.of(), "model")
    schedule       makespan  idle (mean) ...
    1f1b P=8 M=20        81           21 ...
    """
    from verifier.compare import Refusal, Row

    compared = [row for row in rows if isinstance(row, Row)]
    refused = [row for row in rows if isinstance(row, Refusal)]
    if compared:
        columns = ["schedule", "makespan", "idle (mean)", "bubble", "busy", "activations", "weights", "pairs"]
        cells = [_compared(row, per) for row in compared]
        if hours is not None:
            columns += ["GPU hours", "freed"]
            taken = [row.hours(hours, compared[0]) for row in compared]
            cells = [(*row, _hours(own), _hours(hours - own)) for row, own in zip(cells, taken, strict=True)]
        out.print(_table(columns, cells, left=1))
        out.print(terms_text(costs, per), style="dim", soft_wrap=True)
        if hours is not None:
            out.print(
                f"GPU hours are an estimate: {shown(hours)} times the busy share of {_name(compared[0].schedule.name)} "
                "over that of the schedule, as if they differed in their bubbles only.",
                style="dim",
                soft_wrap=True,
            )
    if are_unequal(row.schedule.problem for row in compared):
        _print_notes(out, [UNEQUAL])
    _print_notes(out, (f"{_name(row.schedule.name)}: {row.note}" for row in compared if row.note))
    for row in refused:
        _print_headed(out, f"{row.source}: ", row.reason.removeprefix(f"{row.source}: "), "bold red")


def _hours(hours: Fraction) -> str:
    return f"{float(hours):.4g}"


def _compared(row: Row, per: str) -> tuple[str, ...]:
    simulation = row.simulation
    return (
        _name(row.schedule.name),
        shown(row.makespan),
        _worst_and_mean(row),
        f"{float(1 - row.utilisation):.1%}",
        f"{float(row.utilisation):.1%}",
        shown(max(simulation.peak_activations)),
        _weights(row, per),
        str(sum(simulation.overlapped)),
    )


def _worst_and_mean(row: Row) -> str:
    """Idle time of the worst rank; the mean too where it differs."""
    worst, mean = max(row.idle), row.idle_mean
    if worst == mean:
        return shown(worst)
    return f"{shown(worst)} ({shown(mean) if mean.denominator < 100 else format(float(mean), '.2f')})"


def _weights(row: Row, per: str) -> str:
    """The largest share of the model on a rank, in parts of as many as there are ranks where that is whole: 2/8, not 1/4."""
    most = max(row.weights)
    if per == "stage":
        return shown(most)
    for parts in (row.schedule.problem.ranks, row.schedule.problem.stages):
        if (most * parts).denominator == 1:
            return f"{most * parts}/{parts}"
    return str(most)


# ---------------------------------------- families


def print_families(out: Console, families: Iterable[Family]) -> None:
    """
    Every family: what it is, which sizes it takes, and what was published about it.

    Examples
    --------
    >>> from verifier.families import FAMILIES
    >>> print_families(Console(width=120), [FAMILIES["1f1b"]])
    1f1b ...
    """
    families = list(families)
    claims = [claim for family in families for claim in family.claims]
    formulas = min(28, max((len(claim.formula) for claim in claims), default=0))
    sources = max((len(claim.source) for claim in claims), default=0)
    for family in families:
        _print_headed(out, family.name, f"   {family.description}", "bold cyan")
        out.print(f"  sizes: {family.conditions}; placement: {family.placement}", style="dim", soft_wrap=True)
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
        for width in (12, formulas, None, sources):
            table.add_column(width=width, ratio=1 if width is None else None)
        for claim in family.claims:
            table.add_row(claim.quantity, Text(claim.formula, "bold"), claim.domain, Text(claim.source, "dim"))
        out.print(Padding(table, (0, 0, 1, 2)))
    out.print(
        "idle = makespan - busy time of a rank, F I W B FB = costs, P = ranks, M = micro-batches, V = stages per rank.",
        style="dim",
    )
    out.print("Each formula is exact where the third column says. Next: verifier show dualpipe -P 8 -M 20", style="dim")


def _print_headed(out: Console, head: str, text: str, style: str = "bold", text_style: str = "") -> None:
    """One line, however long, whose beginning stands out."""
    out.print(Text.assemble((head, style), (text, text_style)), soft_wrap=True)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 0) -> Table:
    """A plain table, numbers to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index < left else "right", min_width=max(map(len, name.split())))
    for row in rows:
        table.add_row(*row)
    return table
