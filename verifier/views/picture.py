"""
Still pictures of a timeline, for papers and READMEs: SVG, PNG and PDF, drawn by matplotlib.

Everything is placed here in inches, text by its baseline, so that a picture does not depend on the fonts of the
machine that draws it. The same schedule gives the same bytes.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from io import BytesIO
from itertools import groupby
from operator import itemgetter
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from verifier.formats.source import one_line
from verifier.gaps import gaps
from verifier.measures import as_far_as_it_runs
from verifier.model import Block, Part, Schedule, ScheduleError, Timeline, shown
from verifier.simulate import Simulation
from verifier.verify import Report
from verifier.views.labels import costs_text, round_step, share_text
from verifier.views.palette import COLOURS, MEANING, THEMES, tones

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("svg", "png", "pdf")

_NARROWEST, _WIDEST = 6.0, 24.0
"""Inches that the rows may take; rather than make them wider, the numbers in blocks are made smaller or left out."""
_NUMBER, _SMALLEST = 6.5, 4.0
"""Points of the numbers in blocks."""
_LETTER = 0.64
"""Width of a digit, and of letters on the average, as a share of the size of the font; no usual font is wider."""
_LEFT, _RIGHT, _LINE = 0.75, 0.6, 0.22
"""Inches: for the names of ranks, for peaks, for a line of text."""

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "verifier",
    "pdf.fonttype": 42,
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "hatch.linewidth": 0.5,
}
_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "verifier"},
    "pdf": {"CreationDate": None, "Creator": "verifier", "Producer": "matplotlib"},
    "png": {"Software": "verifier"},
}


def picture(report: Report, form: str = "svg", *, theme: str = "light", memory: bool = False) -> bytes:
    """
    A row per rank: blocks by kind and direction, overlapped pairs as two halves in one frame, idle time hatched.

    The critical path is outlined. Where the ranks hang, what they do until then is drawn, and where each of them waits.

    Parameters
    ----------
    form
        ``svg`` (text stays text), ``png`` or ``pdf``.
    theme
        ``light`` or ``dark``.
    memory
        Whether to draw the live activations of every rank below its blocks.

    Raises
    ------
    ScheduleError
        If matplotlib is not installed.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.verify import verify
    >>> b"makespan 6, " in picture(verify(build_family("1f1b", 2, 1), solver="replay"))
    True
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise ScheduleError(
            f"{form}: needs matplotlib, which comes with pip install 'pipeline-schedule-verifier[pictures]'; html does without"
        ) from None
    sheet = _Sheet.of(report, memory)
    colours = THEMES[theme]
    out = BytesIO()
    with mpl.rc_context(), warnings.catch_warnings():
        # A name in letters that no font has is still the name.
        warnings.simplefilter("ignore", UserWarning)
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        figure = Figure(figsize=(sheet.width, sheet.height), dpi=150)
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, sheet.width), ylim=(0, sheet.height))
        axes.axis("off")
        _Pen(axes, colours).draw(sheet)
        figure.savefig(out, format=form, metadata={"Title": sheet.name, **_METADATA[form]}, facecolor=colours["paper"])
    return out.getvalue()


# ---------------------------------------- where things are


@dataclass(frozen=True)
class _Sheet:
    """
    What is drawn, and where in inches from the lower left corner.

    Attributes
    ----------
    rate
        Inches per tick.
    stuck
        The block that each rank waits at, where the ranks hang.
    """

    report: Report
    run: Simulation
    timeline: Timeline
    stuck: tuple[Block | None, ...]
    memory: bool
    rate: float

    @classmethod
    def of(cls, report: Report, memory: bool) -> _Sheet:
        run, stuck = as_far_as_it_runs(report.simulation)
        assert run.timeline is not None, "what comes before the first blocked blocks does not wait for them"
        wanted = _rate(run.timeline) * run.timeline.makespan_ticks
        rate = min(max(wanted, _NARROWEST), _WIDEST) / max(run.timeline.makespan_ticks, 1)
        return cls(report, run, run.timeline, stuck, memory, rate)

    @cached_property
    def name(self) -> str:
        """What the picture is called, in one line that fits."""
        return one_line(self.run.schedule.name or "schedule", int(self.width / (11 * 0.72 / 72)))

    @cached_property
    def ranks(self) -> int:
        return len(self.timeline.start)

    @cached_property
    def width(self) -> float:
        waiting = [f"waits at {self.run.schedule.text(block)}" for block in self.stuck if block is not None]
        beside = max([_RIGHT, *(len(text) * 6.5 * _LETTER / 72 + 0.1 for text in waiting)])
        return _LEFT + self.rate * self.timeline.makespan_ticks + beside

    @cached_property
    def height(self) -> float:
        return self.head + self.pitch * self.ranks + 0.36 + _LINE * len(self.legend) + 0.1

    @cached_property
    def head(self) -> float:
        """What the title takes."""
        return 0.72 + _LINE * len(self.refuted)

    @cached_property
    def block(self) -> float:
        """Height of a block."""
        return 0.24 if self.ranks <= 16 else 0.2 if self.ranks <= 32 else 0.16

    @cached_property
    def pitch(self) -> float:
        """From one rank to the next."""
        return self.block + (0.24 if self.memory else 0.05)

    def x(self, tick: float) -> float:
        return _LEFT + self.rate * tick

    def bottom(self, rank: int) -> float:
        """Where the blocks of a rank stand."""
        return self.height - self.head - self.pitch * rank - self.block

    @cached_property
    def room(self) -> int:
        """Characters of a line below the title."""
        return int((self.width - _LEFT - 0.1) / (8 * _LETTER / 72))

    @cached_property
    def refuted(self) -> list[str]:
        """What is wrong with the schedule first of all, in lines that fit."""
        for name, part in self.report.properties.items():
            if part.witnesses:
                return wrap(f"refuted ({name}): {part.witnesses[0]}", self.room, max_lines=3, placeholder=" ...")
        return []

    @cached_property
    def legend(self) -> list[list[tuple[str, str]]]:
        """Lines of what is explained: how it is drawn, and what it means."""
        lines: list[list[tuple[str, str]]] = [[]]
        free = self.width - _LEFT
        for item in _explained(self):
            if lines[-1] and free < _item_width(item):
                lines.append([])
                free = self.width - _LEFT
            lines[-1].append(item)
            free -= _item_width(item)
        return lines


def _rate(timeline: Timeline) -> float:
    """Inches per tick at which the usual blocks hold their numbers; far shorter ones are no reason to widen all."""
    needs = {
        (sum(map(_number_width, _numbers(timeline.schedule, block))), span)
        for row, spans in zip(timeline.schedule.order, timeline.duration, strict=True)
        for block, span in zip(row, spans, strict=True)
    }
    total, count = sum(map(sum, timeline.duration)), sum(map(len, timeline.duration))
    return max((need / span for need, span in needs if span * count * 4 >= total > 0), default=1.0)


def _numbers(schedule: Schedule, block: Block) -> list[str]:
    """What is written into a block: the micro-batch of each part."""
    return [str(schedule.microbatch_name(part.direction, part.microbatch)) for part in block.parts]


def _number_width(number: str, size: float = _NUMBER) -> float:
    return (len(number) * _LETTER * size + 3) / 72


def _explained(sheet: _Sheet) -> Iterator[tuple[str, str]]:
    """What the legend says, of that which occurs."""
    schedule = sheet.run.schedule
    parts = [part for row in schedule.order for block in row for part in block.parts]
    yield from ((kind, meaning) for kind, meaning in MEANING.items() if any(part.kind == kind for part in parts))
    problem = schedule.problem
    if problem.directions > 1:
        yield "", "dark: direction 1"
    elif problem.stages > problem.ranks:
        yield "", "dark: second stage of a rank"
    if any(sheet.run.overlapped):
        yield "pair", "overlapped"
    if not sheet.stuck:
        yield "idle", "idle"
        yield "critical", "critical path"
    if sheet.memory:
        yield "memory", "live activations"


def _item_width(item: tuple[str, str]) -> float:
    drawn, text = item
    return len(text) * 7.5 * _LETTER / 72 + (0.55 if drawn else 0.2)


# ---------------------------------------- drawing


class _Style(NamedTuple):
    """How rectangles are drawn; in this order one above the other."""

    layer: int
    face: str = "none"
    edge: str = "none"
    width: float = 0.0
    hatch: str | None = None


class _Pen:
    """Collects rectangles by style, since one collection is drawn far faster than its members."""

    def __init__(self, axes: Axes, colours: dict[str, str]) -> None:
        self.axes = axes
        self.colours = colours
        self.shapes: dict[_Style, list[list[tuple[float, float]]]] = defaultdict(list)

    def draw(self, sheet: _Sheet) -> None:
        """Draw everything."""
        self._title(sheet)
        self._axis(sheet)
        for rank in range(sheet.ranks):
            middle = sheet.bottom(rank) + sheet.block / 2
            self._text(_LEFT - 0.1, middle, f"rank {rank}", 7.5, "ink", "right")
            self._blocks(sheet, rank)
            if sheet.memory:
                self._memory(sheet, rank)
            if sheet.stuck:
                self._waiting(sheet, rank)
        for row in gaps(sheet.run) if not sheet.stuck else ():
            for gap in row:
                bottom = sheet.bottom(gap.rank)
                idle = _Style(0, edge=self.colours["idle"], hatch="////")
                self._rectangle(idle, sheet.x(gap.begin), bottom, sheet.x(gap.end), bottom + sheet.block)
        if not sheet.stuck:
            self._critical(sheet)
        self._legend(sheet)
        self._flush()

    # ------------------------------------------------------------------------------------------------ what is drawn

    def _title(self, sheet: _Sheet) -> None:
        top, report, timeline = sheet.height, sheet.report, sheet.timeline
        self._text(_LEFT, top - 0.24, sheet.name, 11, "ink", weight="bold")
        numbers = f"makespan {shown(timeline.makespan)}, bubble {share_text(timeline.bubble_ratio)}"
        if sheet.stuck:
            numbers = "no timeline exists"
        self._text(_LEFT, top - 0.5, one_line(f"{numbers}; costs {costs_text(report.costs)}", sheet.room), 8, "muted")
        for index, line in enumerate(sheet.refuted, 1):
            self._text(_LEFT, top - 0.5 - index * _LINE, line, 8, "critical")

    def _axis(self, sheet: _Sheet) -> None:
        """Times at round distances below the last rank."""
        timeline = sheet.timeline
        per_unit = sheet.rate * timeline.ticks_per_unit
        longest = len(shown(timeline.makespan)) * _LETTER * 7 / 72 + 0.15
        step = round_step(Fraction(max(longest, 0.45) / per_unit).limit_denominator(10**6))
        base = sheet.bottom(sheet.ranks - 1) - (sheet.pitch - sheet.block)
        line = _Style(1, self.colours["line"])
        self._rectangle(line, sheet.x(0), base - 0.01, sheet.x(timeline.makespan_ticks), base)
        for number in range(int(timeline.makespan // step) + 1):
            x = sheet.x(float(number * step * timeline.ticks_per_unit))
            self._rectangle(line, x - 0.005, base - 0.05, x + 0.005, base)
            self._text(x, base - 0.13, shown(number * step), 7, "muted", "center")

    def _blocks(self, sheet: _Sheet, rank: int) -> None:
        """The blocks of a rank and their numbers."""
        schedule, timeline, bottom = sheet.run.schedule, sheet.timeline, sheet.bottom(rank)
        tone = tones(schedule.problem.stages_on(rank))
        for block, start, span in zip(schedule.order[rank], timeline.start[rank], timeline.duration[rank], strict=True):
            left, right = sheet.x(start), sheet.x(start + span)
            parts = block.parts
            each = (right - left) / len(parts)
            for index, (part, number) in enumerate(zip(parts, _numbers(schedule, block), strict=True)):
                self._part(part, tone.get(part[1:3], 0), left + index * each, bottom, each, sheet.block, number)
            self._rectangle(self._frame(len(parts) == 2), left, bottom, right, bottom + sheet.block)

    def _part(self, part: Part, tone: int, left: float, bottom: float, width: float, height: float, number: str) -> None:
        """One half of a pair, or the whole of another block."""
        self._rectangle(_Style(2, COLOURS[part.kind][tone]), left, bottom, left + width, bottom + height)
        size = min(_NUMBER, height * 72 * 0.7, (width * 72 - 2) / (len(number) * _LETTER))
        if size >= _SMALLEST:
            ink = "#ffffff" if tone else "#000000"
            self._text(left + width / 2, bottom + height / 2, number, round(size, 1), ink, "center")

    def _critical(self, sheet: _Sheet) -> None:
        """Outlines inside the frames of those blocks that nothing could start later; one for those that follow one another."""
        style, inset = _Style(5, edge=self.colours["critical"], width=1.3), 0.012
        for rank, begin, end in _stretches(sheet.run, sheet.timeline):
            left, right, bottom = sheet.x(begin) + inset, sheet.x(end) - inset, sheet.bottom(rank)
            if left < right:
                self._rectangle(style, left, bottom + inset, right, bottom + sheet.block - inset)

    def _memory(self, sheet: _Sheet, rank: int) -> None:
        """A strip below the blocks, as high as the rank holds activations; the highest of all ranks fills it."""
        most = max(map(max, filter(None, sheet.run.held_steps)), default=1) or 1
        height = sheet.pitch - sheet.block - 0.08
        floor = sheet.bottom(rank) - 0.02 - height
        style = _Style(1, self.colours["memory"])
        for begin, end, held in _held(sheet.run, sheet.timeline, rank):
            self._rectangle(style, sheet.x(begin), floor, sheet.x(end), floor + height * held / most)
        peak = f"peak {shown(sheet.run.peak_activations[rank])}"
        self._text(sheet.x(sheet.timeline.makespan_ticks) + 0.06, floor + height / 2, peak, 6.5, "muted")

    def _waiting(self, sheet: _Sheet, rank: int) -> None:
        """Which block a rank waits at for ever."""
        block, starts = sheet.stuck[rank], sheet.timeline.start[rank]
        end = starts[-1] + sheet.timeline.duration[rank][-1] if starts else 0
        if block is not None:
            text = f"waits at {sheet.run.schedule.text(block)}"
            self._text(sheet.x(end) + 0.05, sheet.bottom(rank) + sheet.block / 2, text, 6.5, "critical")

    def _legend(self, sheet: _Sheet) -> None:
        """What the drawing means."""
        for index, line in enumerate(sheet.legend):
            x, y = _LEFT, 0.1 + _LINE * (len(sheet.legend) - 1 - index)
            for item in line:
                self._sample(item[0], x, y)
                self._text(x + (0.35 if item[0] else 0), y + 0.08, item[1], 7.5, "muted")
                x += _item_width(item)

    def _sample(self, drawn: str, left: float, bottom: float) -> None:
        """A sample of how something is drawn."""
        middle, right, top = left + 0.14, left + 0.28, bottom + 0.16
        if drawn in COLOURS or drawn == "pair":
            first, second = COLOURS[drawn] if drawn in COLOURS else (COLOURS["F"][0], COLOURS["B"][1])
            self._rectangle(_Style(2, first), left, bottom, middle, top)
            self._rectangle(_Style(2, second), middle, bottom, right, top)
            self._rectangle(self._frame(drawn == "pair"), left, bottom, right, top)
        elif drawn == "idle":
            self._rectangle(_Style(0, edge=self.colours["idle"], hatch="////"), left, bottom, right, top)
        elif drawn == "critical":
            self._rectangle(_Style(5, edge=self.colours["critical"], width=1.3), left, bottom, right, top)
        elif drawn == "memory":
            self._rectangle(_Style(1, self.colours["memory"]), left, bottom, right, top)

    def _frame(self, pair: bool) -> _Style:
        """Around a block; pairs stand out, and above their neighbours."""
        return _Style(4, edge=self.colours["pair"], width=1.0) if pair else _Style(3, edge=self.colours["frame"], width=0.4)

    # ---------------------------------------------------------------------------------------------------- matplotlib

    def _rectangle(self, style: _Style, left: float, bottom: float, right: float, top: float) -> None:
        self.shapes[style].append([(left, bottom), (right, bottom), (right, top), (left, top)])

    def _text(
        self, x: float, y: float, text: str, size: float, colour: str, place: str = "left", weight: str = "normal"
    ) -> None:
        shade = self.colours.get(colour, colour)
        self.axes.text(
            x,
            y - 0.36 * size / 72,
            text,
            size=size,
            color=shade,
            ha=place,
            va="baseline",
            weight=weight,
            parse_math=False,
            zorder=9,
        )

    def _flush(self) -> None:
        """Hand the rectangles to matplotlib."""
        from matplotlib.collections import PolyCollection

        for style, shapes in sorted(self.shapes.items(), key=lambda item: item[0][:4]):
            self.axes.add_collection(
                PolyCollection(
                    shapes,
                    facecolors=style.face,
                    edgecolors=style.edge,
                    linewidths=style.width,
                    hatch=style.hatch,
                    zorder=style.layer,
                    clip_on=False,
                ),
                autolim=False,
            )


def _stretches(run: Simulation, timeline: Timeline) -> Iterator[tuple[int, int, int]]:
    """The critical path as (rank, begin, end), without a break as long as it stays on a rank."""
    for rank, path in groupby(run.critical_path, key=itemgetter(0)):
        positions = [position for _, position in path]
        last = positions[-1]
        yield rank, timeline.start[rank][positions[0]], timeline.start[rank][last] + timeline.duration[rank][last]


def _held(run: Simulation, timeline: Timeline, rank: int) -> Iterator[tuple[int, int, int]]:
    """From when to when a rank holds how many steps of activations, where it holds any."""
    row, starts, spans = run.schedule.order[rank], timeline.start[rank], timeline.duration[rank]
    held = 0
    for position, block in enumerate(row):
        yield starts[position], starts[position] + spans[position], run.held_steps[rank][position]
        held += sum(map(run.costs.activation_steps, block.ops))
        end = starts[position + 1] if position + 1 < len(row) else timeline.makespan_ticks
        if held and end > starts[position] + spans[position]:
            yield starts[position] + spans[position], end, held
