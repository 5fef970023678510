"""
The rows of a file of a sweep, read strictly: what no sweep writes is refused with its place, what was cut off is left out.

A row that is taken over is never done again, so that a wrong number in it would be there for good.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from io import StringIO

from verifier.costs import CostModel
from verifier.families import FAMILIES, PLACEMENTS
from verifier.formats.source import one_line
from verifier.model import ScheduleError, exact, plain
from verifier.specs import limits_of
from verifier.sweep.measure import COLUMNS, RESULTS

FORMAT = "pipeline-sweep/1"
STATUSES = ("proved", "refuted", "unknown", "optimal", "feasible", "infeasible", "refused", "error")

_WHOLE = ("ranks", "microbatches", "overlapped")
_NUMBERS = ("makespan", "idle_mean", "idle_worst", "bubble_ratio", "peak_activations", "weights_held")
_FOUND = (*_NUMBERS, "bubble_percent", "overlapped")
"""There all together, or none of them."""
_WORDS = {
    "family": ("", *FAMILIES),
    "placement": ("", *PLACEMENTS),
    "rule": ("", "pytorch", "megatron"),
    "per": ("model", "stage"),
    "status": STATUSES,
}
_PATTERNS = {
    "stages_per_rank": (r"|[1-9]\d{0,17}", "a whole number, or nothing"),
    "search": (r"|\w+=[^\s=]+( \w+=[^\s=]+)*", "words such as budget=5, or nothing"),
    "bubble_percent": (r"\d{1,20}\.\d\d", "a number such as 9.09"),
}

Row = dict[str, object]


def rows_of_csv(text: str) -> Iterator[Row]:
    r"""
    The rows of a CSV file; a last one that has no end of line was cut off, and is left out.

    Raises
    ------
    ValueError
        If the first line is not that of a sweep.
    ScheduleError
        If a row is none that a sweep writes: one line with its number and column.

    Examples
    --------
    >>> list(rows_of_csv(",".join(COLUMNS) + "\n1f1b,,4,8"))
    []
    """
    reader = csv.reader(StringIO(text[: text.rfind("\n") + 1], newline=""), strict=True)
    if tuple(next(reader, ())) != COLUMNS:
        raise ValueError("another header")
    number = 0
    while True:
        number += 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise _wrong(number, str(error)) from None
        if cells is None:
            return
        if len(cells) != len(COLUMNS):
            raise _wrong(number, f"expected {len(COLUMNS)} cells, got {len(cells)}")
        yield _checked({name: _value(name, cell) for name, cell in zip(COLUMNS, cells, strict=True)}, number)


def rows_of_json(text: str) -> Iterator[Row]:
    """
    The rows of a JSON file.

    Raises
    ------
    ValueError, TypeError, KeyError
        If it is not that of a sweep.
    ScheduleError
        As :func:`rows_of_csv`.

    Examples
    --------
    >>> list(rows_of_json('{"format": "pipeline-sweep/1", "rows": [{}]}'))
    Traceback (most recent call last):
    verifier.model.ScheduleError: row 1: expected the columns family, placement, ...
    """
    read = json.loads(text)
    if read["format"] != FORMAT or not isinstance(read["rows"], list):
        raise ValueError("another format")
    for number, row in enumerate(read["rows"], 1):
        if not isinstance(row, dict) or set(row) != set(COLUMNS):
            raise _wrong(number, f"expected the columns {', '.join(COLUMNS)}")
        yield _checked({name: row[name] for name in COLUMNS}, number)


def _value(name: str, cell: str) -> object:
    """A cell of CSV as it was before it was written."""
    if name in RESULTS and not cell:
        return None
    counts = name in (*_WHOLE, *_NUMBERS, "lower_bound")
    return int(cell) if counts and re.fullmatch(r"0|[1-9]\d{0,17}", cell, re.ASCII) else cell


def _checked(row: Row, number: int) -> Row:
    """The row, if a sweep could have written it."""
    for name, value in row.items():
        if expected := _fault(name, value):
            raise _wrong(number, f'{name}: {expected}, got "{one_line(str(value)[:50], 40)}"')
    for name, why in _disagreements(row):
        raise _wrong(number, f"{name}: {why}")
    return row


def _fault(name: str, value: object) -> str:
    """What would be right in place of a value; empty where it is."""
    if value is None and name in RESULTS and name != "status":
        return ""
    if name in _WHOLE:
        least = 0 if name == "overlapped" else 1
        good = isinstance(value, int) and not isinstance(value, bool) and least <= value < 10**18
        return "" if good else f"expected a whole number of at least {least}"
    if name in (*_NUMBERS, "lower_bound"):
        return "" if _is_number(value) else 'expected a number such as 3 or "5/2"'
    if not isinstance(value, str) or not value.isprintable():
        return "expected text of one line"
    if name in _WORDS:
        return "" if value in _WORDS[name] else f"expected one of {', '.join(filter(None, _WORDS[name]))}"
    if name in _PATTERNS:
        pattern, expected = _PATTERNS[name]
        return "" if re.fullmatch(pattern, value, re.ASCII) else f"expected {expected}"
    return _unread(name, value)


@lru_cache(1000)
def _unread(name: str, value: str) -> str:
    """Why text does not read as costs, limits or a reason; many rows have the same."""
    try:
        if name == "costs":
            CostModel.parse(value)
        elif name in ("activations", "weights"):
            limits_of(**{name: value or None})
        elif not value:
            return "expected text"
    except ScheduleError as error:
        return str(error)
    return ""


def _is_number(value: object) -> bool:
    """Whether a value is as ``plain`` writes one."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return False
    try:
        return plain(exact(value, "")) == value
    except ScheduleError:
        return False


def _disagreements(row: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Columns that do not go with others of their row."""
    if bool(row["family"]) == bool(row["placement"]):
        yield "family", "expected a family or a placement"
    status, found = row["status"], [name for name in _FOUND if row[name] is not None]
    if status in ("refused", "error"):
        if not row["reason"]:
            yield "reason", f"empty; expected why it is {'refused' if status == 'refused' else 'an error'}"
        if found:
            yield found[0], f"expected nothing where the status is {status}"
    missing = [name for name in _FOUND if row[name] is None]
    if missing and (found or status in ("proved", "optimal", "feasible")):
        yield missing[0], f"empty, where {'others have numbers' if found else f'{status} has a number'}"
    if not missing:
        percent = f"{100 * float(Fraction(str(row['bubble_ratio']))):.2f}"
        if row["bubble_percent"] != percent:
            yield "bubble_percent", f"expected {percent}, as the bubble ratio says, got {row['bubble_percent']}"


def _wrong(number: int, text: str) -> ScheduleError:
    return ScheduleError(f"row {number}: {text}")
