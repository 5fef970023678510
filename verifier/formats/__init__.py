"""
Reading and writing schedules: what a file is, is found out from its content, never from its name.

One module per format, writer and reader side by side. A new one is asked for in :func:`read`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from verifier.formats import json_text, program_json, schedule_json, torch_csv
from verifier.formats.source import DIALECTS, Source, one_line, reason, write_text
from verifier.model import MAX_OPS, ScheduleError

__all__ = ["MAX_BYTES", "STDIN", "Source", "load", "program_json", "read", "schedule_json", "torch_csv", "write_text"]

MAX_BYTES = 128 * 2**20
"""Bytes of the largest file that is read."""

STDIN = "-"

READABLE = "pipeline-schedule/1 or pipeline-program/1 (JSON), or a PyTorch table (one line per rank, cells such as 0F3)"

_JSON: dict[str, Callable[..., Source]] = {
    schedule_json.FORMAT: schedule_json.of_json,
    program_json.FORMAT: program_json.of_json,
}
"""The reader of each JSON format."""

_TOML = re.compile(r"(?:#[^\n]*\n\s*)*(?:\[\[?[\w.\- ]+\]\]?\s*(?:#.*)?$|[\w.\-]+ *= *\S)", re.MULTILINE)


def load(path: str | Path, *, microbatches: int | None = None, dialect: str = "modern", copies: int = 1) -> Source:
    """
    The schedule in a file, whatever readable format it is in.

    Parameters
    ----------
    path
        The file; ``-`` is standard input.
    microbatches
        How many there should be, over both directions; what the file says unless given.
    dialect
        ``legacy`` for tables in which B is the input backward.
    copies
        2 for tables whose stages are two weight copies laid end to end; see :func:`verifier.formats.torch_csv.read`.

    Raises
    ------
    ScheduleError
        If the file cannot be read, is too large, or is no schedule: one line that names it and what would be right.

    Examples
    --------
    >>> load(".")
    Traceback (most recent call last):
    verifier.model.ScheduleError: .: is a directory; expected a file with pipeline-schedule/1 or ...
    """
    if str(path) == STDIN:
        return _read(
            lambda: _text(sys.stdin.buffer.read(MAX_BYTES + 1)), "standard input", "stdin", microbatches, dialect, copies
        )
    return _read(lambda: _text(_bytes(path)), _short_path(path), Path(path).stem, microbatches, dialect, copies)


def read(
    data: bytes, where: str, *, name: str = "", microbatches: int | None = None, dialect: str = "modern", copies: int = 1
) -> Source:
    """
    The schedule in the bytes of a file.

    Parameters
    ----------
    data
        UTF-8 text, with or without a byte order mark.
    where
        What errors name, such as the path.
    name
        What the schedule is called where the file does not say it.
    microbatches, dialect, copies
        As in :func:`load`.

    Raises
    ------
    ScheduleError
        As :func:`load`.

    Examples
    --------
    >>> read(b"0F0,0B0", "here").format
    'torch-csv'
    >>> read(b"0F0,0b0", "here")
    Traceback (most recent call last):
    verifier.model.ScheduleError: here: rank 0, column 1: "0b0" is not a cell; did you mean 0B0?
    """
    return _read(lambda: _text(data), where, name, microbatches, dialect, copies)


def _read(text: Callable[[], str], where: str, name: str, microbatches: int | None, dialect: str, copies: int) -> Source:
    """Ask for the text, which only its reader then holds on to, and put the place before every error."""
    try:
        if dialect not in DIALECTS:
            raise ScheduleError(f'dialect: expected {" or ".join(DIALECTS)}, got "{dialect}"')
        if microbatches is not None and not 1 <= microbatches <= MAX_OPS:
            raise ScheduleError(f"micro-batches: expected a number from 1 to {MAX_OPS}, got {microbatches}")
        return _parsed(text(), name, microbatches, dialect, copies)
    except RecursionError:
        raise ScheduleError(f"{where}: nested too deeply; expected {READABLE}") from None
    except ScheduleError as error:
        raise ScheduleError(one_line(f"{where}: {error}")) from None


def _bytes(path: str | Path) -> bytes:
    """The beginning of a file, one byte more than is read at most."""
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ScheduleError(f"{reason(error)}; expected a file with {READABLE}") from None


def _text(data: bytes) -> str:
    """The text of a file, unless it is too large to look at or no text."""
    if len(data) > MAX_BYTES:
        raise ScheduleError(f"more than {MAX_BYTES // 2**20} MiB, the largest file that is read")
    if data.count(b",") >= MAX_OPS or data.count(b"\n") >= MAX_OPS:
        raise ScheduleError(f"more than {MAX_OPS} cells, the limit")
    zero = data.find(b"\0")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        zero = error.start if zero < 0 else zero
    if zero >= 0:
        raise ScheduleError(f"not UTF-8 text (byte {zero} is {data[zero]:#04x}); expected {READABLE}")
    return text


def _parsed(text: str, name: str, microbatches: int | None, dialect: str, copies: int) -> Source:
    """Ask the reader of the format that the text begins like."""
    begin = re.match(r"\s*", text).end()  # type: ignore[union-attr]
    head = text[begin : begin + 300]
    line = head.split("\n", 1)[0]
    if not head:
        raise ScheduleError(f"empty; expected {READABLE}")
    if head[0] == "{":
        written = json_text.parsed(text)
        stated = json_text.format_of(written, _JSON)
        if dialect != "modern":
            raise ScheduleError(f"dialect: {stated} has one dialect; only tables have a legacy one")
        if copies != 1:
            raise ScheduleError(f"copies: {stated} says itself how many weight copies there are")
        return _JSON[stated](written, microbatches=microbatches)
    if _TOML.match(head):
        raise ScheduleError(f"looks like a TOML spec; expected a schedule, {READABLE}")
    if head[0] == "[":
        raise ScheduleError(f"a JSON list; expected an object, {' or '.join(_JSON)}")
    if "," in line or re.search(r"\d", line):
        return torch_csv.read(text, name=name, microbatches=microbatches, dialect=dialect, copies=copies)
    raise ScheduleError(f'begins with "{one_line(line, 40)}"; expected {READABLE}')


def _short_path(path: str | Path) -> str:
    """A path that fits into a line; of a long one the end, which says more."""
    shown = one_line(str(path), 10_000)
    return shown if len(shown) <= 160 else "..." + shown[-157:]
