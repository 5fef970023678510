"""
The rows of a sweep as a picture: SVG, PNG or PDF, drawn by matplotlib. The same rows give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from verifier.model import ScheduleError
from verifier.sweep.points import Point
from verifier.sweep.record import Record
from verifier.sweep.table import NAMES, Panel, common, panels, value
from verifier.views.palette import THEMES
from verifier.views.picture import METADATA, SETTINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "light": ("#0072b2", "#d55e00", "#009e73", "#b8559a", "#8a6d00", "#3a3f46", "#2a9bd6", "#a3352c", "#6b5fb5"),
    "dark": ("#56b4e9", "#ff8f3f", "#2fd3a2", "#e79bcd", "#f0e442", "#c9ced4", "#9ad2f7", "#ff7b72", "#b3a7ff"),
}
"""Of the lines, after the palette of Okabe and Ito, whose hues stay apart for all kinds of colour blindness."""
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
AXES = {"ranks": "ranks P", "microbatches": "micro-batches M"}
ACROSS = 3
"""Panels in a row."""
WIDTH, HEIGHT, HEAD, FOOT = 3.3, 2.7, 0.55, 0.5
"""Inches of a panel, and above and below all of them."""


def chart(
    points: Sequence[Point], record: Record, form: str = "svg", *, axis: str, quantity: str = "idle_mean", theme: str = "light"
) -> bytes:
    """
    A line per family along one axis; a panel for each value of what else varies, all on one scale.

    Raises
    ------
    ScheduleError
        If matplotlib is not installed, or the format is none of svg, png and pdf.

    Examples
    --------
    >>> from verifier.sweep.measure import measured
    >>> points = [Point("1f1b", "", ranks, 16) for ranks in (2, 4)]
    >>> record = Record(points)
    >>> for point in points:
    ...     record.add(measured(point))
    >>> b"ranks P" in chart(points, record, axis="ranks")
    True
    """
    if form not in METADATA:
        raise ScheduleError(f"plot: expected a name that ends in {', '.join(f'.{known}' for known in METADATA)}")
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise ScheduleError(
            f"{form}: needs matplotlib, which comes with pip install 'pipeline-schedule-verifier[pictures]'"
        ) from None
    colours, drawn = THEMES[theme], panels(points, record, axis)
    labels = list(dict.fromkeys(label for panel in drawn for label in panel.lines))
    across = min(ACROSS, len(drawn))
    down = -(-len(drawn) // across)
    columns = max(1, round(across * WIDTH / 1.6))
    foot = FOOT + 0.22 * -(-len(labels) // columns)
    width, height = max(across * WIDTH, 2 * WIDTH), HEAD + down * HEIGHT + foot
    out = BytesIO()
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        figure = Figure(figsize=(width, height), dpi=150)
        grid = figure.subplots(down, across, sharey=True, squeeze=False)
        figure.subplots_adjust(0.6 / width, foot / height, 1 - 0.15 / width, 1 - HEAD / height, 0.08, 0.42)
        for index, axes in enumerate(grid.flat):
            if index < len(drawn):
                _panel(axes, drawn[index], labels, axis, quantity, theme)
            else:
                axes.set_visible(False)
        # Only now, since a limit that is set ends the search for the scale that all panels share.
        grid[0][0].set_ylim(bottom=0)
        for row in grid:
            row[0].set_ylabel(NAMES[quantity], color=colours["ink"], fontsize=8)
        figure.text(0.6 / width, 1 - 0.24 / height, common(points, axis), color=colours["muted"], fontsize=8, va="center")
        handles = {text: line for axes in grid.flat for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(
            handles.values(), handles, loc="lower center", ncols=columns, fontsize=8, frameon=False, labelcolor=colours["ink"]
        )
        figure.savefig(out, format=form, metadata={"Title": NAMES[quantity], **METADATA[form]}, facecolor=colours["paper"])
    return out.getvalue()


def _panel(axes: Axes, panel: Panel, labels: Sequence[str], axis: str, quantity: str, theme: str) -> None:
    colours = THEMES[theme]
    axes.set_facecolor(colours["paper"])
    axes.set_title(panel.title, fontsize=8, color=colours["ink"], loc="left")
    axes.set_xlabel(AXES[axis], fontsize=8, color=colours["ink"])
    axes.tick_params(colors=colours["muted"], labelsize=7)
    axes.grid(color=colours["line"], linewidth=0.4)
    for spine in axes.spines.values():
        spine.set_color(colours["line"])
    axes.set_xticks(_ticks(panel.places))
    for label, line in panel.lines.items():
        found = [(x, float(number)) for x, row in sorted(line.items()) if (number := value(row, quantity)) is not None]
        index = labels.index(label)
        style: dict[str, Any] = {
            "color": COLOURS[theme][index % len(COLOURS[theme])],
            "marker": MARKS[index % len(MARKS)],
            # Lines that lie on one another are all seen: the later, the thinner.
            "linewidth": max(1.0, 5.0 - 1.2 * index),
            "markersize": max(3.0, 9.0 - 1.2 * index),
        }
        axes.plot([x for x, _ in found], [y for _, y in found], label=label, **style)


def _ticks(places: Sequence[int]) -> Sequence[int]:
    """At most eight of the values along the axis."""
    return places[:: -(-len(places) // 8)]
