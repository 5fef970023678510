"""
The rows of a sweep in one file, CSV or JSON, from which the sweep goes on.

The file is written anew as a whole, under a temporary name that is then renamed: it can be read at any moment, and is always in
the order of the spec. So what it ends as does not depend on interrupts, or on who did which point when.
"""

from __future__ import annotations

import csv
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from time import monotonic

from verifier.formats.source import one_line, reason, write_text
from verifier.model import ScheduleError
from verifier.sweep.measure import COLUMNS
from verifier.sweep.points import KEYS, Point
from verifier.sweep.reading import FORMAT, Row, rows_of_csv, rows_of_json

MAX_BYTES = 2**30
"""Bytes of the largest file that is gone on from."""
PAUSE = 1.0
"""Least seconds between two writings; longer where writing takes long."""
_NO_ROWS = "no rows of a sweep to go on from; expected another name, or no such file"


class Record:
    """
    What a sweep has found so far.

    Parameters
    ----------
    path
        ``.csv`` or ``.json``; None keeps the rows in memory only. What is there already counts as done, but for points that
        ended in an unexpected error: these are tried again. Rows of other points are kept behind those of the spec.

    Raises
    ------
    ScheduleError
        If the file is neither, cannot be read, or was not written by a sweep. A last row that was cut off is missing.

    Examples
    --------
    >>> from verifier.sweep.measure import measured
    >>> points = [Point("1f1b", "", 4, 8), Point("1f1b", "", 4, 12)]
    >>> record = Record(points)
    >>> record.add(measured(points[0]))
    >>> [point.microbatches for point in record.missing], record.rows()[0]["makespan"]
    ([12], 33)
    """

    def __init__(self, points: Iterable[Point], path: str | Path | None = None) -> None:
        self.points = {point.key: point for point in points}
        self.path = None if path is None else Path(path)
        self._rows = {} if self.path is None else {_key(row): row for row in _load(self.path)}
        self._changed, self._due = False, 0.0

    @property
    def missing(self) -> list[Point]:
        """The points that are still to be done."""
        return [point for key, point in self.points.items() if key not in self._rows or self._rows[key]["status"] == "error"]

    def rows(self) -> list[Row]:
        """The rows of the spec's points, in its order."""
        return [self._rows[key] for key in self.points if key in self._rows]

    @property
    def others(self) -> list[Row]:
        """Rows of points that the spec does not have."""
        return [row for key, row in self._rows.items() if key not in self.points]

    def row(self, point: Point) -> Row | None:
        """The row of a point; None as long as there is none."""
        return self._rows.get(point.key)

    def add(self, row: Row) -> None:
        """Take over a row."""
        self._rows[_key(row)] = row
        self._changed = True

    def save(self, *, at_once: bool = False) -> None:
        """Write the file, if there is one, anything is new, and the last time is long enough ago."""
        begin = monotonic()
        if self.path is None or not self._changed or (begin < self._due and not at_once):
            return
        write_text(self.path, dump(self.rows() + self.others, _form(self.path)))
        self._changed = False
        # Writing takes a tenth of the time at most, however many rows there are.
        end = monotonic()
        self._due = end + max(PAUSE, 10 * (end - begin))


def dump(rows: Iterable[Mapping[str, object]], form: str) -> str:
    """
    Rows as a file carries them.

    Parameters
    ----------
    form
        ``csv``, where an empty cell is what is unknown; or ``json``, one row per line.

    Examples
    --------
    >>> from verifier.sweep.measure import measured
    >>> print(dump([measured(Point("1f1b", "", 4, 8))], "csv").splitlines()[1])
    1f1b,,4,8,,,"F=1,I=1,W=1,B=2,FB=3",,,model,,proved,33,9,9,3/11,27.27,4,1/4,0,,
    """
    if form == "json":
        lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
        return f'{{\n "format": "{FORMAT}",\n "rows": [\n{lines}\n ]\n}}\n'
    out = StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _load(path: Path) -> list[Row]:
    """The rows of a file; none where there is no file yet."""
    shown, form = one_line(str(path), 200), _form(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ScheduleError(f"{shown}: cannot be read: {reason(error)}") from None
    try:
        if len(data) > MAX_BYTES:
            raise ValueError("too large")
        # A letter that was cut in two is in a row that was cut off.
        text = data[: data.rfind(b"\n") + 1].decode() if form == "csv" else data.decode()
        if not data.strip():
            return []
        return list(rows_of_json(text) if form == "json" else rows_of_csv(text))
    except ScheduleError as error:
        raise ScheduleError(f"{shown}: {error}; without that row in the file it is done again") from None
    except json.JSONDecodeError as error:
        if FORMAT not in text[:100]:
            raise ScheduleError(f"{shown}: exists, and holds {_NO_ROWS}") from None
        raise ScheduleError(f"{shown}: cut off or damaged at line {error.lineno}, so that it holds {_NO_ROWS}") from None
    except (ValueError, TypeError, KeyError, RecursionError, csv.Error):
        raise ScheduleError(f"{shown}: exists, and holds {_NO_ROWS}") from None


@contextmanager
def alone(path: str | Path | None) -> Iterator[None]:
    """
    Keep other sweeps away from a file as long as this one goes on from it.

    The lock is the system's, on a hidden file beside it, and so ends with the process that holds it, however that ends.

    Raises
    ------
    ScheduleError
        If another sweep holds it, or nothing can be written there.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, alone(f"{folder}/x.csv"):
    ...     with alone(f"{folder}/x.csv"):
    ...         pass
    Traceback (most recent call last):
    verifier.model.ScheduleError: ...x.csv: another sweep is writing it; wait for it, or use another name
    """
    if path is None:
        yield
        return
    target, shown = Path(path).resolve(), one_line(str(path), 200)
    lock = target.with_name(f".{target.name[:100]}.lock")
    try:
        held = _locked(lock)
    except BlockingIOError:
        raise ScheduleError(f"{shown}: another sweep is writing it; wait for it, or use another name") from None
    except (OSError, ValueError) as error:
        raise ScheduleError(f"{shown}: cannot be written: {reason(error)}") from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(held)


def _locked(lock: Path) -> int:
    """The descriptor of a lock file that we hold and that is still there: who held it before may just have removed it."""
    while True:
        held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(lock.stat(), os.fstat(held)):
                    return held
        except OSError:
            os.close(held)
            raise
        os.close(held)


def _form(path: Path) -> str:
    form = path.suffix.removeprefix(".").lower()
    if form not in ("csv", "json"):
        raise ScheduleError(f"{one_line(str(path), 200)}: expected a name that ends in .csv or .json")
    return form


def _key(row: Row) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in KEYS)
