"""
What the page may ask for. Everything that arrives is checked here, before any work begins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from verifier.families import FAMILIES, PLACEMENTS
from verifier.formats.source import DIALECTS, one_line
from verifier.messages import MODELS
from verifier.model import ScheduleError
from verifier.solvers.questions import OBJECTIVES
from verifier.synthesize import SCOPES

MAX_BODY = 2 * 2**20
"""Bytes of the largest request."""
MAX_RANKS = 256
MAX_OPS = 100_000
"""Ops of the largest schedule that the page works on; the command line goes further."""
MAX_SEARCHED = 25_000
"""Ops of the largest schedule that it looks for: known orders and list scheduling alone take seconds there, budget or not."""
MAX_BUDGET = 300
"""Seconds of the longest search."""
MAX_SEED = 2**31 - 1
MAX_TEXT = 10_000
"""Characters of costs and limits."""

SOURCES: dict[str, tuple[str, ...]] = {
    "family": ("family", "ranks", "microbatches", "stages_per_rank", "rule"),
    "synthesis": (
        "placement",
        "ranks",
        "microbatches",
        "stages_per_rank",
        "blocks",
        "pairs",
        "scope",
        "objective",
        "seed",
        "budget",
    ),
    "pasted": ("text", "microbatches", "dialect", "copies"),
}
"""What can be worked on, and what each is described by."""

_JUDGED_UNDER = ("costs", "activations", "weights", "messages")
_WHOLE = {
    "ranks": (1, MAX_RANKS),
    "microbatches": (1, MAX_OPS),
    "stages_per_rank": (1, 64),
    "budget": (1, MAX_BUDGET),
    "seed": (0, MAX_SEED),
}
_CHOICES: dict[str, Collection[str]] = {
    "family": FAMILIES,
    "placement": PLACEMENTS,
    "rule": ("pytorch", "megatron"),
    "dialect": DIALECTS,
    "copies": ("1", "2"),
    "pairs": ("opposite", "any"),
    "scope": SCOPES,
    "objective": OBJECTIVES,
}
_NEEDED = {
    "family": ("family", "ranks", "microbatches"),
    "synthesis": ("placement", "ranks", "microbatches", "budget"),
    "pasted": ("text",),
}


@dataclass(frozen=True)
class Request:
    """
    A request that was checked.

    Attributes
    ----------
    source
        One of :data:`SOURCES`.
    given
        What it is described by, and what it is judged under; what was left empty is absent.
    """

    source: str
    given: Mapping[str, Any]

    @property
    def seconds(self) -> int:
        """How long the work may take, all in all."""
        return int(self.given.get("budget", 0)) + 60

    def only(self, *names: str) -> dict[str, Any]:
        """
        Those of the named values that were given.

        >>> checked({"source": "pasted", "text": "0F0,0B0"}).only("text", "copies")
        {'text': '0F0,0B0'}
        """
        return {name: self.given[name] for name in names if name in self.given}


def checked(written: object) -> Request:
    """
    A request as it was written, if it may be worked on.

    Raises
    ------
    ScheduleError
        If anything in it is unknown, missing, of another type or too large.

    Examples
    --------
    >>> checked({"source": "family", "family": "1f1b", "ranks": 10**9, "microbatches": 8})
    Traceback (most recent call last):
    verifier.model.ScheduleError: ranks: expected a whole number from 1 to 256, got 1000000000
    """
    if not isinstance(written, dict) or not isinstance(source := written.get("source"), str) or source not in SOURCES:
        raise ScheduleError(f"source: expected one of {', '.join(SOURCES)}")
    given = {name: value for name, value in written.items() if name != "source" and value not in (None, "", [])}
    for name, value in given.items():
        if name not in SOURCES[source] + _JUDGED_UNDER:
            raise ScheduleError(f"{_shown(name)}: {source} knows no such value")
        _check(name, value)
    for name in _NEEDED[source]:
        if name not in given:
            raise ScheduleError(f"{name}: missing")
    request = Request(source, given)
    if "ranks" in given:
        check_size(given["ranks"] * given.get("stages_per_rank", 1), given["microbatches"])
    return request


def check_size(stages: int, microbatches: int, most: int = MAX_OPS) -> None:
    """
    Refuse what would take a page too long.

    Raises
    ------
    ScheduleError
        If there are more than ``most`` ops.
    """
    if 3 * stages * microbatches > most:
        raise ScheduleError(
            f"{stages} stages and {microbatches} micro-batches make more than {most} ops, this page's limit"
            f"{'' if most == MAX_OPS else ' for a search'}; the command line goes further"
        )


def _check(name: str, value: object) -> None:
    """Type and size of one value."""
    if name in _WHOLE:
        least, most = _WHOLE[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ScheduleError(f"{name}: expected a whole number from {least} to {most}, got {_shown(value)}")
    elif name == "messages":
        if not isinstance(value, list) or len(value) > len(MODELS) or not set(map(str, value)) <= set(MODELS):
            raise ScheduleError(f"messages: expected some of {', '.join(MODELS)}")
    elif not isinstance(value, str):
        raise ScheduleError(f"{name}: expected text, got {_shown(value)}")
    elif not _is_unicode(value):
        raise ScheduleError(f"{name}: half a character in it; expected Unicode text")
    elif name in _CHOICES and value not in _CHOICES[name]:
        raise ScheduleError(f"{name}: expected {' or '.join(_CHOICES[name])}, got {_shown(value)}")
    elif name != "text" and len(value) > MAX_TEXT:
        raise ScheduleError(f"{name}: longer than {MAX_TEXT} characters")


def _is_unicode(text: str) -> bool:
    """Whether a text can be written; JSON can name halves of characters that cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    """A value in a line; a whole number of thousands of digits is no text in Python."""
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a number too large"
    return one_line(str(value), 40)
