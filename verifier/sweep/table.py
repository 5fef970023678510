"""
The rows of a sweep side by side: one panel for all that is equal, in it one line for each family, along one axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from verifier.model import shown
from verifier.sweep.points import Point
from verifier.sweep.record import Record

AXES = ("microbatches", "ranks")
_SHOWN_AS_PERCENT = ("bubble_ratio",)
NAMES = {
    "idle_mean": "idle time, mean of the ranks",
    "idle_worst": "idle time of the worst rank",
    "bubble_ratio": "bubble, share of ranks times makespan",
    "makespan": "makespan",
    "peak_activations": "peak activations of the worst rank",
    "weights_held": "weights of the worst rank",
    "overlapped": "overlapped pairs of all ranks",
}
"""What the quantities are called."""


@dataclass(frozen=True)
class Panel:
    """
    Lines under equal terms.

    Attributes
    ----------
    title
        What is equal, as far as it is not the same in all panels.
    lines
        ``lines[label][x]`` is a row, or None where there is none yet.
    """

    title: str
    lines: Mapping[str, Mapping[int, Mapping[str, object] | None]]

    @property
    def places(self) -> tuple[int, ...]:
        """The values along the axis, in order."""
        return tuple(sorted({x for line in self.lines.values() for x in line}))


def default_axis(points: Iterable[Point]) -> str:
    """
    The axis that has more values: ``microbatches``, unless only ``ranks`` vary.

    >>> default_axis([Point("1f1b", "", 4, 8), Point("1f1b", "", 8, 8)])
    'ranks'
    """
    points = tuple(points)
    return "ranks" if len({point.written or point.microbatches for point in points}) == 1 else "microbatches"


def panels(points: Sequence[Point], record: Record, axis: str) -> list[Panel]:
    """
    The rows of the points, along ``ranks`` or ``microbatches``.

    Examples
    --------
    >>> from verifier.sweep.measure import measured
    >>> points = [Point(family, "", 4, m) for family in ("1f1b", "zb1p") for m in (8, 12)]
    >>> record = Record(points)
    >>> for point in points:
    ...     record.add(measured(point))
    >>> for panel in panels(points, record, "microbatches"):
    ...     print(panel.title, {label: [row["idle_mean"] for row in line.values()] for label, line in panel.lines.items()})
    P=4 {'1f1b': [9, 9], 'zb1p': [3, 3]}
    """
    found: dict[tuple[str, ...], dict[str, dict[int, Mapping[str, object] | None]]] = {}
    for point in points:
        lines = found.setdefault(_terms(point, axis), {})
        lines.setdefault(point.label, {})[getattr(point, axis)] = record.row(point)
    varying = [len(set(column)) > 1 for column in zip(*found, strict=True)]
    return [
        # The sizes are always said; what else is the same everywhere is said once, elsewhere.
        Panel(", ".join(text for index, text in enumerate(terms) if text and (varying[index] or not index)), lines)
        for terms, lines in found.items()
    ]


def common(points: Iterable[Point], axis: str) -> str:
    """
    What all panels have in common, but for sizes.

    >>> common([Point("1f1b", "", 4, 8)], "ranks")
    'costs F=1,I=1,W=1,B=2,FB=3'
    """
    columns = list(zip(*(_terms(point, axis) for point in points), strict=True))
    return ", ".join(column[0] for column in columns[1:] if len(set(column)) == 1 and column[0])


def _terms(point: Point, axis: str) -> tuple[str, ...]:
    """What has to be equal in a panel, in words."""
    return (
        f"M={point.written or point.microbatches}" if axis == "ranks" else f"P={point.ranks}",
        f"costs {point.costs}",
        f"at most {point.activations} activations" if point.activations else "",
        f"at most {point.weights} weight copies" if point.weights else "",
        "per stage" if point.per == "stage" else "",
    )


def value(row: Mapping[str, object] | None, quantity: str) -> Fraction | None:
    """
    A number of a row; None where it has none.

    >>> value({"bubble_ratio": "1/11"}, "bubble_ratio")
    Fraction(1, 11)
    """
    number = None if row is None else row[quantity]
    return None if number is None else Fraction(str(number))


def cell(row: Mapping[str, object] | None, quantity: str) -> str:
    """
    A row as a cell of a table: the number, marked where it is not what was asked for, or why there is none.

    >>> cell({"status": "proved", "idle_mean": "13/2"}, "idle_mean"), cell({"status": "refused", "makespan": None}, "makespan")
    ('6.5', '-')
    """
    number, status = value(row, quantity), "" if row is None else str(row["status"])
    if number is None:
        return {"": "", "refused": "-"}.get(status, status)
    return _text(number, quantity) + MARKS.get(status, "")


def is_rounded(row: Mapping[str, object] | None, quantity: str) -> bool:
    """
    Whether a cell shows less than the row has; percentages always do.

    >>> [is_rounded({"idle_mean": number}, "idle_mean") for number in ("13/2", "1/3", None)]
    [False, True, False]
    """
    number = value(row, quantity)
    return number is not None and quantity not in _SHOWN_AS_PERCENT and "/" in shown(number)


def _text(number: Fraction, quantity: str) -> str:
    """Decimals only, so that the eye can compare them."""
    if quantity in _SHOWN_AS_PERCENT:
        return f"{float(number):.1%}"
    return f"{float(number):.2f}" if "/" in shown(number) else shown(number)


MARKS = {"refuted": "!", "feasible": "*"}
"""Behind a number: of a schedule that breaks a limit; of one that may not be the shortest."""
