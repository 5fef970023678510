"""
Still pictures of a timeline, for papers and READMEs: SVG, PNG and PDF, drawn by matplotlib.

Everything is placed in inches by ``sheet``, text by its baseline, so that a picture does not depend on the fonts of the machine
that draws it. The same schedule gives the same bytes.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from fractions import Fraction
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from verifier.gaps import gaps
from verifier.model import Part, Schedule, ScheduleError, shown
from verifier.verify import Report
from verifier.views.labels import round_step
from verifier.views.palette import COLOURS, THEMES, shades, tones
from verifier.views.sheet import (
    LEFT,
    LETTER,
    LINE,
    NUMBER,
    SMALLEST,
    Sheet,
    critical_stretches,
    held_stretches,
    item_width,
    numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("svg", "png", "pdf")
FRAMED = 4.0
"""Points of the narrowest block with a frame of full width."""
MOST = 300_000
"""Blocks of the largest picture: it takes half a minute, and shows little more than stripes."""

_GRAIN = 7200
"""Steps per inch to which times are rounded, since a picture of many blocks consists of their digits."""

SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "verifier",
    "pdf.fonttype": 42,
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "hatch.linewidth": 0.5,
}
FALLBACK = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "PingFang SC",
    "Microsoft YaHei",
    "Arial Unicode MS",
    "Noto Emoji",
    "Symbola",
)
"""Fonts for letters that the usual ones lack; those that are installed are used where letters become shapes."""
METADATA: dict[str, dict[str, Any]] = {
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
        If matplotlib is not installed, or there are more blocks than :data:`MOST`.

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
    refuse_too_large(report.schedule, form)
    sheet = Sheet.of(report, memory)
    colours = THEMES[theme]
    out = BytesIO()
    with mpl.rc_context(), warnings.catch_warnings():
        # A name in letters that no font has is still the name.
        warnings.simplefilter("ignore", UserWarning)
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        if form != "svg" and not sheet.name.isascii():
            mpl.rcParams["font.family"] = ["sans-serif", *_installed()]
        figure = Figure(figsize=(sheet.width, sheet.height), dpi=150)
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, sheet.width), ylim=(0, sheet.height))
        axes.axis("off")
        _Pen(axes, colours).draw(sheet)
        figure.savefig(out, format=form, metadata={"Title": sheet.name, **METADATA[form]}, facecolor=colours["paper"])
    return out.getvalue()


def _installed() -> list[str]:
    """Those of :data:`FALLBACK` that this machine has; a name that it lacks would be warned of."""
    from matplotlib.font_manager import fontManager

    known = set(fontManager.get_font_names())
    return [name for name in FALLBACK if name in known]


def refuse_too_large(schedule: Schedule, form: str) -> None:
    """
    Refuse a schedule of more blocks than a picture may have; costs nothing, where a verdict on it takes a while.

    Raises
    ------
    ScheduleError
        If there are more than :data:`MOST`.
    """
    blocks = sum(map(len, schedule.order))
    if blocks > MOST:
        raise ScheduleError(f"{form}: {blocks} blocks, and a picture has at most {MOST}; --to html shows them all, and zooms")


# ---------------------------------------- drawing


class _Style(NamedTuple):
    """How rectangles are drawn; in this order one above the other."""

    layer: int
    face: str = "none"
    edge: str = "none"
    width: float = 0.0
    hatch: str | None = None


class _Pen:
    """Collects rectangles by style, since a path of them all is written far faster than its members, and far smaller."""

    def __init__(self, axes: Axes, colours: dict[str, str]) -> None:
        self.axes = axes
        self.colours = colours
        self.shapes: dict[_Style, list[list[tuple[float, float]]]] = defaultdict(list)

    def draw(self, sheet: Sheet) -> None:
        """Draw everything."""
        self._title(sheet)
        self._axis(sheet)
        for rank in range(sheet.ranks):
            middle = sheet.bottom(rank) + sheet.block / 2
            self._text(LEFT - 0.1, middle, f"rank {rank}", 7.5, "ink", "right")
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

    def _title(self, sheet: Sheet) -> None:
        self._text(LEFT, sheet.height - 0.24, sheet.name, 11, "ink", weight="bold")
        lines = [*((line, "muted") for line in sheet.facts), *((line, "critical") for line in sheet.refuted)]
        for index, (line, colour) in enumerate(lines):
            self._text(LEFT, sheet.height - 0.5 - index * LINE, line, 8, colour)

    def _axis(self, sheet: Sheet) -> None:
        """Times at round distances below the last rank."""
        timeline = sheet.timeline
        per_unit = sheet.rate * timeline.ticks_per_unit
        longest = len(shown(timeline.makespan)) * LETTER * 7 / 72 + 0.15
        step = round_step(Fraction(max(longest, 0.45) / per_unit).limit_denominator(10**6))
        base = sheet.bottom(sheet.ranks - 1) - (sheet.pitch - sheet.block)
        line = _Style(1, self.colours["line"])
        self._rectangle(line, sheet.x(0), base - 0.01, sheet.x(timeline.makespan_ticks), base)
        for number in range(int(timeline.makespan // step) + 1):
            x = sheet.x(float(number * step * timeline.ticks_per_unit))
            self._rectangle(line, x - 0.005, base - 0.05, x + 0.005, base)
            self._text(x, base - 0.13, shown(number * step), 7, "muted", "center")

    def _blocks(self, sheet: Sheet, rank: int) -> None:
        """The blocks of a rank and their numbers."""
        schedule, timeline, bottom = sheet.run.schedule, sheet.timeline, sheet.bottom(rank)
        tone = tones(schedule.problem.stages_on(rank))
        for block, start, span in zip(schedule.order[rank], timeline.start[rank], timeline.duration[rank], strict=True):
            left, right = sheet.x(start), sheet.x(start + span)
            parts = block.parts
            each = (right - left) / len(parts)
            for index, (part, number) in enumerate(zip(parts, numbers(schedule, block), strict=True)):
                self._part(part, tone.get(part[1:3], 0), left + index * each, bottom, each, sheet.block, number)
            frame = self._frame(len(parts) == 2, (right - left) * 72)
            if frame.width:
                self._rectangle(frame, left, bottom, right, bottom + sheet.block)

    def _part(self, part: Part, tone: int, left: float, bottom: float, width: float, height: float, number: str) -> None:
        """One half of a pair, or the whole of another block."""
        self._rectangle(_Style(2, COLOURS[part.kind][tone]), left, bottom, left + width, bottom + height)
        size = min(NUMBER, height * 72 * 0.7, (width * 72 - 2) / (len(number) * LETTER))
        if size >= SMALLEST:
            ink = "#ffffff" if tone else "#000000"
            self._text(left + width / 2, bottom + height / 2, number, round(size, 1), ink, "center")

    def _critical(self, sheet: Sheet) -> None:
        """Outlines inside the frames of those blocks that nothing could start later; one for those that follow one another."""
        style, inset = _Style(5, edge=self.colours["critical"], width=1.3), 0.012
        for rank, begin, end in critical_stretches(sheet.run, sheet.timeline):
            left, right, bottom = sheet.x(begin) + inset, sheet.x(end) - inset, sheet.bottom(rank)
            if left < right:
                self._rectangle(style, left, bottom + inset, right, bottom + sheet.block - inset)

    def _memory(self, sheet: Sheet, rank: int) -> None:
        """A strip below the blocks, as high as the rank holds activations; the highest of all ranks fills it."""
        most = max(map(max, filter(None, sheet.run.held_steps)), default=1) or 1
        height = sheet.pitch - sheet.block - 0.08
        floor = sheet.bottom(rank) - 0.02 - height
        style = _Style(1, self.colours["memory"])
        for begin, end, held in held_stretches(sheet.run, sheet.timeline, rank):
            self._rectangle(style, sheet.x(begin), floor, sheet.x(end), floor + height * held / most)
        peak = f"peak {shown(sheet.run.peak_activations[rank])}"
        self._text(sheet.x(sheet.timeline.makespan_ticks) + 0.06, floor + height / 2, peak, 6.5, "muted")

    def _waiting(self, sheet: Sheet, rank: int) -> None:
        """Which block a rank waits at for ever."""
        block, starts = sheet.stuck[rank], sheet.timeline.start[rank]
        end = starts[-1] + sheet.timeline.duration[rank][-1] if starts else 0
        if block is not None:
            text = f"waits at {sheet.run.schedule.text(block)}"
            self._text(sheet.x(end) + 0.05, sheet.bottom(rank) + sheet.block / 2, text, 6.5, "critical")

    def _legend(self, sheet: Sheet) -> None:
        """What the drawing means."""
        for index, line in enumerate(sheet.legend):
            x, y = LEFT, 0.1 + LINE * (len(sheet.legend) - 1 - index)
            for item in line:
                self._sample(item[0], x, y, shades(sheet.run.schedule.problem) - 1)
                self._text(x + (0.35 if item[0] else 0), y + 0.08, item[1], 7.5, "muted")
                x += item_width(item)

    def _sample(self, drawn: str, left: float, bottom: float, dark: int) -> None:
        """A sample of how something is drawn; ``dark`` is 1 where both colours of a kind occur."""
        middle, right, top = left + 0.14, left + 0.28, bottom + 0.16
        if drawn in COLOURS or drawn == "pair":
            first, second = ("F", "B") if drawn == "pair" else (drawn, drawn)
            halves = dict.fromkeys((COLOURS[first][0], COLOURS[second][dark]))
            for colour, begin, end in zip(halves, (left, middle), (middle if len(halves) > 1 else right, right), strict=False):
                self._rectangle(_Style(2, colour), begin, bottom, end, top)
            self._rectangle(self._frame(drawn == "pair", FRAMED), left, bottom, right, top)
        elif drawn == "idle":
            self._rectangle(_Style(0, edge=self.colours["idle"], hatch="////"), left, bottom, right, top)
        elif drawn == "critical":
            self._rectangle(_Style(5, edge=self.colours["critical"], width=1.3), left, bottom, right, top)
        elif drawn == "memory":
            self._rectangle(_Style(1, self.colours["memory"]), left, bottom, right, top)

    def _frame(self, pair: bool, points: float) -> _Style:
        """Around a block so many points wide, thinner where it would hide what is in it; pairs stand out, above the others."""
        layer, colour, width = (4, "pair", 1.0) if pair else (3, "frame", 0.4)
        return _Style(layer, edge=self.colours[colour], width=round(width * min(1.0, points / FRAMED), 1))

    # ---------------------------------------------------------------------------------------------------- matplotlib

    def _rectangle(self, style: _Style, left: float, bottom: float, right: float, top: float) -> None:
        left, right = (round(x * _GRAIN) / _GRAIN for x in (left, right))
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
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        for style, shapes in sorted(self.shapes.items(), key=lambda item: item[0][:4]):
            corners = [corner for shape in shapes for corner in (*shape, shape[0])]
            codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(shapes)
            patch = PathPatch(
                Path(corners, codes),
                facecolor=style.face,
                edgecolor=style.edge,
                linewidth=style.width,
                hatch=style.hatch,
                zorder=style.layer,
                clip_on=False,
            )
            self.axes.add_artist(patch)
