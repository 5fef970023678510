"""
What a file says, whatever its format, and the few things that every reader and writer needs.

Readers and writers stand side by side in one file per format; this is what they have in common.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from verifier.costs import CostModel
from verifier.messages.program import Program
from verifier.model import Limits, Schedule, ScheduleError

DIALECTS = ("modern", "legacy")
"""In the modern dialect of tables B is a full backward; in the legacy one it is what I is now."""

MAX_WORD = 100
"""Characters of the longest cell or token that is looked at."""


@dataclass(frozen=True)
class Source:
    """
    A schedule, and what else its file says about it.

    Parameters
    ----------
    schedule
        The order of blocks per rank.
    format
        ``pipeline-schedule/1``, ``torch-csv`` or ``torch-comms-csv``.
    costs, limits
        As the file gives them, else None.
    start
        ``start[rank][position]`` in the unit of the costs, where the file carries times.
    claims, certificate
        Expectations that the file states about itself, and why its makespan is the least: plain JSON values.
    notes
        What was read otherwise than written, for people.
    program
        The lists with their messages, of a file that holds communication; else None.
    dialect
        How B was read.
    suspicion
        Why a table read as modern looks like the older dialect, with the first cell that says so; else None.
    """

    schedule: Schedule
    format: str
    costs: CostModel | None = None
    limits: Limits | None = None
    start: tuple[tuple[Fraction, ...], ...] | None = None
    claims: dict[str, object] = field(default_factory=dict)
    certificate: object = None
    notes: tuple[str, ...] = ()
    program: Program | None = None
    dialect: str = "modern"
    suspicion: str | None = None


def one_line(text: str, limit: int = 400) -> str:
    r"""
    Text as one printable line of at most ``limit`` characters.

    >>> one_line("0F0\n0F1"), one_line("abcdefgh", 6)
    ('0F0\\n0F1', 'abc...')
    """
    head = text[: limit + 1]
    if not head.isprintable():
        head = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in head)
    return head if len(head) <= limit else head[: limit - 3] + "..."


def write_text(path: str | Path, text: str | bytes) -> None:
    r"""
    Write a file, text or bytes, as a whole or not at all.

    The text goes to a temporary name in the same folder, which is then renamed, so that nobody ever sees half a file. What is
    no ordinary file, such as ``/dev/stdout``, is written directly.

    Raises
    ------
    ScheduleError
        If the file cannot be written; nothing is left behind then.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(Path(folder) / "order.csv", "0F0,0B0\n")
    ...     (Path(folder) / "order.csv").read_text(), len(list(Path(folder).iterdir()))
    ('0F0,0B0\n', 1)
    """
    try:
        target = Path(path)
        data = text.encode() if isinstance(text, str) else text
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(data)
        else:
            _replace(target.resolve(), data)
    except (OSError, ValueError) as error:
        raise ScheduleError(f"{one_line(str(path), 200)}: cannot be written: {reason(error)}") from None


def _replace(target: Path, data: bytes) -> None:
    """Write beside the target, then take its place."""
    if target.is_dir():
        raise IsADirectoryError(0, "Is a directory")
    beside = target.with_name(f".{target.name[:100]}.{os.getpid()}.part")
    try:
        beside.write_bytes(data)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def reason(error: OSError | ValueError) -> str:
    """
    What the system said, without the path that the line names already.

    >>> reason(FileNotFoundError(2, "No such file or directory", "x.csv"))
    'no such file or directory'
    """
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return one_line(said[:1].lower() + said[1:], 200)
