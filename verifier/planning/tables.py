"""
Strict reading of a table of a TOML file: every key is known, every value of its kind, and what is wrong is one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from verifier.formats.source import one_line
from verifier.model import ScheduleError
from verifier.specs import known_keys

MOST = 10**18
"""Whole numbers beyond this are slips of the finger."""


class Table:
    """
    One table of a spec, read key by key.

    Parameters
    ----------
    written
        As TOML gives it; decimals may be text.
    where
        The table's name in the file, for errors.
    keys
        What it may hold.

    Raises
    ------
    ScheduleError
        If it is no table, or has another key.

    Examples
    --------
    >>> Table({"rank": 8}, "cluster", ("ranks", "per_node"))
    Traceback (most recent call last):
    verifier.model.ScheduleError: cluster.rank: unknown key; did you mean ranks?
    """

    def __init__(self, written: object, where: str, keys: Sequence[str]) -> None:
        if not isinstance(written, Mapping):
            raise ScheduleError(f"{where}: expected a table [{where}]")
        known_keys(written, keys, where)
        self.written: Mapping[str, object] = written
        self.where = where

    def __contains__(self, key: str) -> bool:
        return key in self.written

    def table(self, key: str, keys: Sequence[str]) -> Table:
        """A table inside; a missing one is empty."""
        return Table(self.written.get(key, {}), f"{self.where}.{key}", keys)

    def whole(self, key: str, default: int | None = None, least: int = 1) -> int:
        """
        A whole number of at least ``least``; it must be there unless it has a default.

        >>> Table({"ranks": 0}, "cluster", ("ranks",)).whole("ranks")
        Traceback (most recent call last):
        verifier.model.ScheduleError: cluster.ranks: expected a whole number of at least 1, got 0
        """
        value = self._given(key, default, f"a whole number of at least {least}")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise self._wrong(key, f"a whole number of at least {least}", value)
        return value

    def wholes(self, key: str, least: int = 1) -> tuple[int, ...]:
        """A list of whole numbers that differ; empty where the key is missing."""
        value = self.written.get(key, [])
        if not isinstance(value, list):
            raise self._wrong(key, "a list of whole numbers", value)
        if key in self.written and not value:
            raise ScheduleError(f"{self.where}.{key}: an empty list; expected some whole numbers, or no such key")
        for item in value:
            if isinstance(item, bool) or not isinstance(item, int) or not least <= item <= MOST:
                raise self._wrong(key, f"whole numbers of at least {least}", item)
            if value.count(item) > 1:
                raise ScheduleError(f"{self.where}.{key}: {item} is there twice; expected it once")
        return tuple(value)

    def label(self, key: str) -> str:
        r"""
        Text for people, on one line; empty where the key is missing.

        >>> Table({"name": "a\nb"}, "cluster", ("name",)).label("name")
        'a\\nb'
        """
        return one_line(self.text(key, ""))

    def amount(
        self,
        key: str,
        default: float | None = None,
        *,
        zero: bool = False,
        least: float = 0.0,
        most: float = 1e30,
        example: str = "",
    ) -> float:
        """
        A number above 0 (or 0 where ``zero``), such as 989e12; for estimates, which need no exact arithmetic.

        ``least`` and ``most`` say what is plausible, so that a forgotten e12 or bytes in the place of GB are found.

        >>> Table({"reached": "1.5"}, "cluster", ("reached",)).amount("reached", most=1)
        Traceback (most recent call last):
        verifier.model.ScheduleError: cluster.reached: expected a number above 0 and at most 1, got 1.5
        """
        expected = f"a number {'of at least 0' if zero else 'above 0'}" + (f" and at most {most:g}" if most < 1e30 else "")
        if least:
            expected = f"a number{f' such as {example}' if example else ''}, from {least:g} to {most:g}"
        value = self._given(key, default, expected)
        try:
            if isinstance(value, bool) or not isinstance(value, (int, float, str)):
                raise ValueError
            number = float(value)
        except (ValueError, OverflowError):
            raise self._wrong(key, expected, value) from None
        plausible = number > 0 and least <= number <= most
        if not isfinite(number) or not (plausible or (zero and number == 0)):
            raise self._wrong(key, expected, value)
        return number

    def text(self, key: str, default: str | None = None, among: Sequence[str] = ()) -> str:
        """Text; one of some words where they are named."""
        expected = f"one of {', '.join(among)}" if among else "text"
        value = self._given(key, default, expected)
        if not isinstance(value, str) or (among and value not in among):
            raise self._wrong(key, expected, value)
        return value

    def texts(self, key: str, among: Sequence[str]) -> tuple[str, ...]:
        """A list of some of the words; all of them where the key is missing."""
        value = self.written.get(key, list(among))
        if not isinstance(value, list) or not value:
            raise self._wrong(key, "a list of text", value)
        for item in value:
            if item not in among:
                raise self._wrong(key, f"some of {', '.join(among)}", item)
        return tuple(dict.fromkeys(value))

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.written.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def _given(self, key: str, default: object, expected: str) -> object:
        value = self.written.get(key, default)
        if value is None:
            raise ScheduleError(f"{self.where}.{key}: missing; expected {expected}")
        return value

    def _wrong(self, key: str, expected: str, value: object) -> ScheduleError:
        # A whole number of thousands of digits is no text in Python.
        text = "a number too large" if isinstance(value, int) and abs(value) > MOST else one_line(str(value), 40)
        return ScheduleError(f"{self.where}.{key}: expected {expected}, got {text}")
