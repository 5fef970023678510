"""
The ranks over time as the papers draw them: a row per rank, columns in proportion to time, a cell per block.

Where colours are seen, a cell holds the number of its micro-batch and its colour says kind and direction; else the kind is
written too. What does not fit into the width goes on below, in bands of time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice

from rich.text import Text

from verifier.measures import as_far_as_it_runs
from verifier.model import Block, Part, Schedule, Timeline, shown
from verifier.simulate import Simulation
from verifier.views.labels import round_step
from verifier.views.palette import COLOURS, SIXTEEN, tones

MAX_BANDS = 12
"""Bands that are drawn unless a stretch of time is asked for."""

Styles = Mapping[str, tuple[str, str]]
"""Per kind: direction 0 or a rank's first stage; direction 1 or its second stage."""

STYLES: Styles = {kind: (f"black on {light}", f"white on {dark}") for kind, (light, dark) in COLOURS.items()}
STYLES_OF_SIXTEEN: Styles = {
    kind: (f"black on {light}", f"{'white' if kind in 'IW' else 'black'} on {dark}") for kind, (light, dark) in SIXTEEN.items()
}

LEAST = 20
"""Columns of the shortest stretch of time that is asked for."""

_STUCK = "bold white on red"


@dataclass(frozen=True)
class Grid:
    """
    Lines to print.

    Attributes
    ----------
    end
        When the last block ends.
    until
        The time that the lines reach, where that is not the end.
    hidden
        Blocks within the lines that are shorter than a column and have none of their own.
    """

    lines: tuple[Text, ...]
    end: Fraction
    until: Fraction | None = None
    hidden: int = 0


def draw(
    simulation: Simulation,
    width: int,
    *,
    styles: Styles | None = None,
    dot: str = ".",
    since: Fraction | None = None,
    until: Fraction | None = None,
) -> Grid:
    """
    Draw a schedule; where the ranks hang, what they do until then, and marked the block that each of them is stuck at.

    Parameters
    ----------
    width
        Columns of the terminal.
    styles
        Colours that tell the kinds apart; None where they are written.
    dot
        What idle time is filled with.
    since, until
        The stretch of time to draw, in the unit of the costs, at a scale for the blocks in it; all of it, up to
        :data:`MAX_BANDS`, unless given.

    Notes
    -----
    Linear in the number of blocks and of columns drawn.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.simulate import simulate
    >>> for line in draw(simulate(build_family("1f1b", 2, 2)), 60).lines:
    ...     print(line.plain.rstrip())
             0              5
    rank 0   F0 F1 .  .  B0    .  B1
    rank 1   .  F0 B0    F1 B1    .  .
    <BLANKLINE>
    """
    run, stuck = as_far_as_it_runs(simulation)
    timeline = run.timeline
    assert timeline is not None, "what comes before the first blocked blocks does not wait for them"
    axis = _axis(timeline, styles is not None, since, until)
    rows = [_row(timeline, axis, rank, styles) for rank in range(len(timeline.start))]
    if stuck:
        rows = [row + _mark(row, timeline.schedule, stuck[rank], rank) for rank, row in enumerate(rows)]
    end = max((row[-1].end for row in rows if row), default=0)
    first = axis.column(since) if since is not None else 0
    last = min(end, axis.column(until)) if until is not None else end
    margin = len(f"rank {len(rows) - 1}") + 3
    pages = _bands(rows, first, last, max(width - margin - 1, 20))
    bands = list(pages if until is not None else islice(pages, MAX_BANDS))
    lines: list[Text] = []
    for begin, stop in bands:
        lines.append(Text(" " * margin + axis.ruler(begin, stop), "dim"))
        for rank, row in enumerate(rows):
            line = Text(f"rank {rank}".ljust(margin))
            idle_until = stop if not stuck else row[-1].begin if row else 0
            lines.append(_append(line, row, begin, stop, min(stop, idle_until), axis.dots(dot)))
        lines.append(Text())
    reaches = bands[-1][1] if bands else last
    hidden = sum(cell.hidden and first <= cell.begin < reaches for row in rows for cell in row)
    return Grid(tuple(lines), timeline.makespan, axis.time(reaches) if reaches < end else None, hidden)


# ---------------------------------------- time and columns


@dataclass(frozen=True)
class _Axis:
    """How time becomes columns."""

    columns_per_unit: Fraction
    ticks_per_unit: int
    makespan: Fraction

    def column(self, time: Fraction) -> int:
        return int(time * self.columns_per_unit)

    def column_at(self, tick: int) -> int:
        rate = self.columns_per_unit
        return tick * rate.numerator // (rate.denominator * self.ticks_per_unit)

    def time(self, column: int) -> Fraction:
        return column / self.columns_per_unit

    def ruler(self, begin: int, end: int) -> str:
        """The times above a band, at round distances."""
        step = round_step(max(8, len(shown(self.makespan)) + 2) / self.columns_per_unit)
        line = [" "] * (end - begin)
        number = -(-self.time(begin) // step)
        while (column := self.column(number * step) - begin) < len(line):
            text = shown(number * step)
            if 0 <= column <= len(line) - len(text):
                line[column : column + len(text)] = text
            number += 1
        return "".join(line).rstrip()

    def dots(self, dot: str) -> str:
        """One period of what fills idle time."""
        return dot.ljust(max(2, int(self.columns_per_unit / self.ticks_per_unit)))


def _axis(timeline: Timeline, coloured: bool, since: Fraction | None, until: Fraction | None) -> _Axis:
    """The scale at which the usual blocks hold their labels; blocks below a quarter of the mean are no reason to widen all."""
    schedule, unit = timeline.schedule, timeline.ticks_per_unit
    first = Fraction(since or 0) * unit
    last = Fraction(timeline.makespan_ticks) if until is None else until * unit
    needs, total, count = set(), Fraction(0), 0
    for row, starts, spans in zip(schedule.order, timeline.start, timeline.duration, strict=True):
        for block, start, span in zip(row, starts, spans, strict=True):
            inside = min(Fraction(start + span), last) - max(Fraction(start), first)
            if inside >= 0:
                needs.add((_width(_labels(schedule, block, coloured)), span))
                total, count = total + inside, count + 1
    rate = max((Fraction(need, span) for need, span in needs if span * count * 4 >= total > 0), default=Fraction(1))
    if until is not None and last > first:
        rate = max(rate, LEAST / (last - first))
    return _Axis(rate * unit, unit, timeline.makespan)


def _bands(rows: Sequence[Sequence[_Cell]], first: int, last: int, width: int) -> Iterator[tuple[int, int]]:
    """Stretches of columns no wider than ``width``, cut where the fewest blocks are."""
    begins = [[cell.begin for cell in row] for row in rows]

    def cut(column: int) -> int:
        found = ((row, bisect_right(starts, column - 1) - 1) for row, starts in zip(rows, begins, strict=True))
        return sum(index >= 0 and row[index].end > column for row, index in found)

    while first < last:
        widest = first + width
        end = last if widest >= last else min(range(widest, first + width * 4 // 5, -1), key=cut)
        yield first, end
        first = end


# ---------------------------------------- blocks and cells


@dataclass(frozen=True)
class _Cell:
    """A block in columns; a label and a style for each of its parts; whether it takes time, and less than a column."""

    begin: int
    end: int
    labels: tuple[str, ...]
    styles: tuple[str, ...]
    hidden: bool = False


def _row(timeline: Timeline, axis: _Axis, rank: int, styles: Styles | None) -> tuple[_Cell, ...]:
    """The cells of one rank."""
    schedule = timeline.schedule
    tone = tones(schedule.problem.stages_on(rank))
    cells = [
        _Cell(
            begin := axis.column_at(start),
            end := axis.column_at(start + span),
            _labels(schedule, block, styles is not None),
            tuple(styles[part.kind][tone.get(part[1:3], 0)] if styles else "" for part in block.parts),
            hidden=span > 0 and begin == end,
        )
        for block, start, span in zip(schedule.order[rank], timeline.start[rank], timeline.duration[rank], strict=True)
    ]
    behind = [*(cell.begin for cell in cells[1:]), axis.column_at(timeline.makespan_ticks)]
    return tuple(_in_sight(cell, free) for cell, free in zip(cells, behind, strict=False))


def _in_sight(cell: _Cell, free: int) -> _Cell:
    """A block shorter than a column takes that column where nothing else does."""
    return replace(cell, end=cell.begin + 1, hidden=False) if cell.hidden and free > cell.begin else cell


def _mark(row: Sequence[_Cell], schedule: Schedule, block: Block | None, rank: int) -> tuple[_Cell, ...]:
    """The block that a rank is stuck at, behind its last cell."""
    if block is None:
        return ()
    begin = row[-1].end if row else 0
    label = f"?{''.join(_labels(schedule, block, coloured=False))}"
    return (_Cell(begin, begin + len(label) + 1, (label,), (_STUCK,)),)


def _labels(schedule: Schedule, block: Block, coloured: bool) -> tuple[str, ...]:
    """What is written in a block: one word per part, the second with the mark of a pair."""
    words = [_label(schedule, part, coloured) for part in block.parts]
    return (words[0], *(f"&{word}" for word in words[1:]))


def _label(schedule: Schedule, part: Part, coloured: bool) -> str:
    """The micro-batch; without colours the kind too, the direction, and the stage where the rank alone does not say it."""
    number = str(schedule.microbatch_name(part.direction, part.microbatch))
    if coloured:
        return number
    problem = schedule.problem
    stage = str(part.stage) if problem.stages > problem.ranks else ""
    renamed = schedule.origin is not None and schedule.origin.microbatches is not None
    return f"{stage}{part.kind}{number}{'' if renamed else chr(39) * part.direction}"


def _width(labels: Sequence[str]) -> int:
    """Columns that labels need, with one to keep the next block apart."""
    return sum(map(len, labels)) + 1


# ---------------------------------------- drawing


def _append(line: Text, row: Sequence[_Cell], begin: int, end: int, idle_until: int, dots: str) -> Text:
    """Draw the part of a rank's row that lies in a band."""
    here = begin
    for cell in row[max(0, bisect_right(row, begin, key=lambda cell: cell.begin) - 1) :]:
        if cell.begin >= end:
            break
        if cell.end <= begin or cell.end == cell.begin:
            continue
        _idle(line, here, cell.begin, dots)
        here = min(cell.end, end)
        _draw(line, cell, max(cell.begin, begin), here)
    _idle(line, here, idle_until, dots)
    return line


def _idle(line: Text, begin: int, end: int, dots: str) -> None:
    """Dots at columns that are the same in every row, none of them close to the next block."""
    text = "".join(dots[column % len(dots)] for column in range(begin, end))
    line.append(text[:-1] + " " if len(text) > 1 else text, "dim")


def _draw(line: Text, cell: _Cell, begin: int, end: int) -> None:
    """A cell or the part of it in this band; it is labelled once, in the first part that is wide enough."""
    width, need = end - begin, _width(cell.labels)
    labelled = width >= need and (begin == cell.begin or begin - cell.begin < need)
    words = cell.labels if labelled else ("",) * len(cell.labels)
    fill = " " if labelled or cell.styles[0] else "-"
    if len(words) == 1:
        line.append(words[0].ljust(width, fill), cell.styles[0])
        return
    left = max(len(words[0]), min(width // 2, width - len(words[1]) - 1)) if labelled else width // 2
    line.append(words[0].ljust(left, fill), cell.styles[0])
    line.append(words[1].ljust(width - left, fill), cell.styles[1])
