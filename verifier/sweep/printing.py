"""
The rows of a sweep as a table for people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verifier.formats.source import one_line
from verifier.sweep.points import Point
from verifier.sweep.reading import Row
from verifier.sweep.record import Record
from verifier.sweep.table import MARKS, NAMES, cell, common, is_rounded, panels

MOST = 14
"""Columns of the widest table; of more values along the axis some are left out, evenly."""
_LETTER = {"ranks": "P", "microbatches": "M"}
_MEANING = {"refuted": "breaks a limit", "feasible": "perhaps not the shortest"}


def print_sweep(out: Console, points: Sequence[Point], record: Record, axis: str, quantity: str, known: int = 0) -> None:
    """
    How many points came to what, and one quantity along one axis.

    Parameters
    ----------
    known
        How many points were done before.

    Examples
    --------
    >>> from verifier.sweep.measure import measured
    >>> points = [Point(family, "", 4, m) for family in ("1f1b", "dualpipe") for m in (4, 8)]
    >>> record = Record(points)
    >>> for point in points:
    ...     record.add(measured(point))
    >>> print_sweep(Console(width=80), points, record, "microbatches", "idle_mean")
    4 points: 3 proved, 1 refused
    idle time, mean of the ranks; costs F=1,I=1,W=1,B=2,FB=3
    <BLANKLINE>
          M=         4   8
    ──────────────────────
    P=4   1f1b       9   9
          dualpipe   -   2
    <BLANKLINE>
    - there is no such schedule: dualpipe: M = 4 micro-batches; expected an even
    number of at least 2 P = 8
    """
    rows = record.rows()
    statuses = Counter(str(row["status"]) for row in rows)
    left = len(record.points) - len(rows)
    counts = [f"{count} {status}" for status, count in statuses.items()] + ([f"{left} not done"] if left else [])
    before = f" ({known} of them done before)" if known else ""
    out.print(f"{len(record.points)} points{before}: {', '.join(counts) or 'none'}", style="bold")
    terms = common(points, axis)
    out.print(f"{NAMES[quantity]}{'; ' + terms if terms else ''}", style="dim")
    out.print()
    for line in out.render_lines(_table(points, record, axis, quantity), pad=False):
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
        text.rstrip()
        out.print(text)
    notes = _notes(record)
    if any(is_rounded(record.row(point), quantity) for point in points):
        notes.append("- numbers are rounded to two digits where no short decimal is exact; rows (-o, --json) have them exactly")
    if notes:
        out.print()
        for note in notes:
            out.print(note, style="dim")


def _table(points: Sequence[Point], record: Record, axis: str, quantity: str) -> Table:
    drawn = panels(points, record, axis)
    places = sorted({x for panel in drawn for x in panel.places})
    places = places[:: -(-len(places) // MOST)]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("")
    table.add_column(f"{_LETTER[axis]}=", header_style="dim", justify="left")
    for place in places:
        table.add_column(str(place), justify="right", no_wrap=True)
    for number, panel in enumerate(drawn):
        for index, (label, line) in enumerate(panel.lines.items()):
            cells = [cell(line[place], quantity) if place in line else "" for place in places]
            table.add_row("" if index else panel.title, label, *cells)
        if number < len(drawn) - 1:
            table.add_section()
    return table


def _notes(record: Record) -> list[str]:
    """What the marks mean, each with the first reason."""
    notes: list[str] = []
    first: dict[str, Row] = {}
    for row in record.rows():
        first.setdefault(str(row["status"]), row)
    if "refused" in first:
        notes.append(f"- there is no such schedule: {one_line(str(first['refused']['reason']))}")
    for status, mark in MARKS.items():
        if status in first:
            reason = first[status]["reason"]
            notes.append(f"{mark} {_MEANING[status]}" + (f": {one_line(str(reason))}" if reason else ""))
    if "error" in first:
        notes.append(f"error: {one_line(str(first['error']['reason']))}; the same command tries again")
    if record.others:
        notes.append(f"{len(record.others)} rows of other points are kept in {record.path}")
    return notes
