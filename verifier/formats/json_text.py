"""
JSON as our own formats have it: read with every digit kept, checked against a published schema, written byte for byte alike.

What a file of any format says of its problem is read here too.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import isfinite
from typing import Any, TypeVar

from verifier.costs import CostModel
from verifier.formats.source import MAX_WORD, one_line
from verifier.model import Problem, ScheduleError, plain

Read = TypeVar("Read")

_OUTLINE = 100
"""Items of a list, keys of an object and characters of a text that the schema validator gets to see."""


class Number(str):
    """A number as the file writes it, so that no digit is lost, and what is no number (NaN) can be refused by its place."""

    __slots__ = ()


# -------------------------------------------------------------------------------------------------------------- reading


def parsed(text: str) -> Any:
    """
    The JSON value, its numbers as they are written.

    Raises
    ------
    ScheduleError
        If the text is no JSON, or an object has a key twice.

    Examples
    --------
    >>> parsed('[1, 2.50, "x"]')
    [1, '2.50', 'x']
    """
    try:
        return json.loads(
            text, parse_float=Number, parse_int=_integer, parse_constant=Number, object_pairs_hook=_object_without_twins
        )
    except json.JSONDecodeError as error:
        raise ScheduleError(f"line {error.lineno}, column {error.colno}: {error.msg}; expected JSON") from None


def _integer(text: str) -> int | Number:
    """A whole number; one that nobody takes stays text, since reading it would take quadratic time."""
    return int(text) if len(text) <= _OUTLINE else Number(text)


def _object_without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object, refused where a key is there twice: the earlier value would be lost without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twin = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ScheduleError(f'the key "{one_line(twin, 40)}" is given twice')
    return found


# ---------------------------------------------------------------------------------------------------------------- shape


def schema(format: str) -> dict[str, Any]:  # noqa: A002 - the key in the file is called so
    """
    The published JSON Schema of one of our formats.

    >>> schema("pipeline-program/1")["title"]
    'pipeline-program/1'
    """
    # Imported here, as jsonschema below: the help has to appear sooner than they do.
    from importlib import resources

    name = format.replace("/", "-") + ".schema.json"
    text = resources.files("verifier.formats").joinpath(name).read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def format_of(written: Mapping[str, object], known: Iterable[str]) -> str:
    """
    Which of our formats a file says it is.

    Raises
    ------
    ScheduleError
        If it is none that is known.

    Examples
    --------
    >>> format_of({"format": "pipeline-schedule/2"}, ["pipeline-schedule/1", "pipeline-program/1"])
    Traceback (most recent call last):
    verifier.model.ScheduleError: format: expected "pipeline-schedule/1" or "pipeline-program/1", got "pipeline-schedule/2"
    """
    names, stated = list(known), written.get("format")
    if isinstance(stated, str) and stated in names:
        return stated
    expected = " or ".join(f'"{name}"' for name in names)
    raise ScheduleError(f"format: expected {expected}, got {shown(stated) if 'format' in written else 'no such key'}")


def check_shape(written: Any, format: str) -> None:  # noqa: A002
    """
    Refuse what the schema of a format does not allow.

    Raises
    ------
    ScheduleError
        The first fault from the top, in words of the schema.

    Examples
    --------
    >>> check_shape(parsed('{"format": "pipeline-schedule/1", "ranks": 1, "plaecment": []}'), "pipeline-schedule/1")
    Traceback (most recent call last):
    verifier.model.ScheduleError: unknown key "plaecment"; did you mean "placement"?
    """
    from jsonschema import Draft202012Validator

    faults = Draft202012Validator(schema(format)).iter_errors(_outline(written))
    # An unknown key first: where it is a misspelt one, the right one is missing too.
    worst = min(faults, key=lambda fault: (len(fault.absolute_path), fault.validator != "additionalProperties"), default=None)
    if worst is None:
        return
    place = _place(worst.absolute_path)
    prefix = f"{place}: " if place else ""
    rule: Mapping[str, Any] = worst.schema if isinstance(worst.schema, dict) else {}
    if worst.validator == "additionalProperties":
        raise ScheduleError(prefix + _unknown_key(worst.instance, rule))
    if worst.validator == "required":
        missing = ", ".join(f'"{key}"' for key in rule["required"] if key not in worst.instance)
        raise ScheduleError(f"{prefix}expected {missing} too")
    raise ScheduleError(f"{prefix}expected {rule.get('description', 'something else')}, got {shown(worst.instance)}")


def _outline(value: Any, depth: int = 0) -> Any:
    """
    The beginning of every list, object and text.

    The validator takes 10 us per value, and copies what it refuses into its message; each block and number is looked at again
    anyway when it is read.
    """
    if isinstance(value, Number):
        return float(value)
    if isinstance(value, str):
        return value[:_OUTLINE]
    if isinstance(value, list):
        return [_outline(item, depth + 1) for item in value[:_OUTLINE]] if depth < 5 else []
    if isinstance(value, dict):
        if depth > 5:
            return {}
        return {key[:_OUTLINE]: _outline(value[key], depth + 1) for key in list(value)[:_OUTLINE]}
    return value


def _unknown_key(instance: Mapping[str, object], rule: Mapping[str, Any]) -> str:
    """Which key is too many, and which one may be meant."""
    known = list(rule["properties"])
    patterns = rule.get("patternProperties", {})
    key = next(key for key in instance if key not in known and not any(re.search(pattern, key) for pattern in patterns))
    close = difflib.get_close_matches(key, known, 1)
    meant = (
        f'did you mean "{close[0]}"?'
        if close
        else f"expected {rule['description']}"
        if patterns
        else f"expected {', '.join(known)}"
    )
    return f'unknown key "{one_line(key, 40)}"; {meant}'


def _place(path: Iterable[str | int]) -> str:
    """A path as people write it: ``costs.FB[0]``."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{one_line(step, 40)}" for step in path)
    return place.removeprefix(".")


def shown(value: object) -> str:
    """
    A value in an error.

    >>> shown([1, 2]), shown("fast"), shown(None)
    ('a list of 2', '"fast"', 'null')
    """
    if isinstance(value, list):
        return f"a list of {len(value)}" if len(value) < _OUTLINE else "a long list"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, str) and not isinstance(value, Number):
        return f'"{one_line(value, 40)}"'
    return one_line(json.dumps(value) if value is None or isinstance(value, bool) else str(value), 40)


# ---------------------------------------------------------------------------------------------------------------- parts


def problem(written: Mapping[str, Any], microbatches: int | None, rows: str) -> Problem:
    """
    The problem that a file states with ``ranks``, ``placement`` and ``microbatches``.

    Parameters
    ----------
    written
        A file of a shape that its schema allows.
    microbatches
        How many there should be, over both directions, where the file is not to be believed.
    rows
        The key with one list per rank.

    Raises
    ------
    ScheduleError
        If these keys do not fit one another.

    Examples
    --------
    >>> problem({"ranks": 2, "placement": [[0, 1]], "microbatches": [4], "order": [[], []]}, None, "order").microbatches
    (4,)
    """
    placement = tuple(
        tuple(
            whole(rank, f"placement[{direction}][{stage}]") for stage, rank in enumerate(listed(row, f"placement[{direction}]"))
        )
        for direction, row in enumerate(written["placement"])
    )
    stated = Problem(placement, _counts(written["microbatches"], microbatches))
    if written["ranks"] != stated.ranks:
        raise ScheduleError(f"ranks: expected {stated.ranks}, the ranks in placement, got {written['ranks']}")
    if len(written[rows]) != stated.ranks:
        raise ScheduleError(f"{rows}: expected {stated.ranks} lists, one per rank, got {len(written[rows])}")
    return stated


def costs(written: Mapping[str, Any], stated: Problem) -> CostModel | None:
    """
    The costs that a file states for its problem, if any.

    >>> costs({}, Problem(((0,),), (1,)))
    """
    if "costs" not in written:
        return None
    model = CostModel.of(**written["costs"])
    model.check(stated)
    return model


def word(token: object, read: Callable[[str], Read], expected: str, place: tuple[str, int, int]) -> Read:
    """
    Read one text of a list of a rank; ``place`` is the key of the lists, the rank, and the position.

    Examples
    --------
    >>> from verifier.model import Block
    >>> word("0X", Block.parse, "a block such as 0F3", ("order", 0, 7))
    Traceback (most recent call last):
    verifier.model.ScheduleError: order, rank 0, position 7: "0X" is not a block such as 0F3, 7B0' or (0F7;7B3')
    """
    try:
        if not isinstance(token, str) or len(token) > MAX_WORD:
            raise ScheduleError(f"expected {expected}, got {shown(token)}")
        return read(token)
    except ScheduleError as error:
        key, rank, position = place
        raise ScheduleError(f"{key}, rank {rank}, position {position}: {error}") from None


def listed(value: object, where: str) -> list[Any]:
    """
    A list; the validator has seen only the first ones.

    >>> listed([1], "order[0]")
    [1]
    """
    if not isinstance(value, list):
        raise ScheduleError(f"{where}: expected a list, got {shown(value)}")
    return value


def whole(value: object, where: str) -> int:
    """
    A whole number from 0.

    >>> whole(3, "ranks")
    3
    """
    if type(value) is not int or value < 0:
        raise ScheduleError(f"{where}: expected a whole number from 0, got {shown(value)}")
    return value


def _counts(written: Sequence[object], total: int | None) -> tuple[int, ...]:
    """Micro-batches per direction: the file's, unless another total is asked for."""
    counts = tuple(whole(count, f"microbatches[{direction}]") for direction, count in enumerate(written))
    if total is None or total == sum(counts):
        return counts
    if len(counts) == 2 and total % 2:
        raise ScheduleError(f"microbatches: expected an even number for two directions, got {total}")
    return (total // len(counts),) * len(counts)


# ------------------------------------------------------------------------------------------------------------ any value


def json_value(value: object, where: str) -> object:
    """
    What a file may carry without our knowing it.

    >>> json_value({"makespan": Fraction(5, 2)}, "claims")
    {'makespan': '5/2'}
    """
    if isinstance(value, Number):
        return _float_or_text(value, where)
    if isinstance(value, Fraction):
        return plain(value)
    if isinstance(value, (list, tuple)):
        return [json_value(item, where) for item in value]
    if isinstance(value, Mapping):
        return {str(key): json_value(item, where) for key, item in value.items()}
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and isfinite(value)):
        return value
    raise ScheduleError(f"{where}: {one_line(str(value), 40)} is nothing that JSON can hold")


def _float_or_text(number: Number, where: str) -> float | str:
    """A decimal as a float where that prints the same, else its text."""
    if not number[-1].isdigit():
        raise ScheduleError(f"{where}: expected a number, got {number}")
    nearest = float(number)
    try:
        return nearest if isfinite(nearest) and Decimal(repr(nearest)) == Decimal(number) else str(number)
    except InvalidOperation:
        return str(number)


# -------------------------------------------------------------------------------------------------------------- writing


def head(format: str, name: str, stated: Problem) -> dict[str, str]:  # noqa: A002
    """
    The first entries of a file, as :func:`whole_text` takes them.

    >>> head("pipeline-schedule/1", "", Problem(((0,),), (1,)))["placement"]
    '[[0]]'
    """
    entries = {"format": json.dumps(format)}
    if name:
        entries["name"] = json.dumps(name)
    entries["ranks"] = json.dumps(stated.ranks)
    entries["placement"] = json.dumps(stated.placement)
    entries["microbatches"] = json.dumps(stated.microbatches)
    return entries


def rows(lists: Iterable[Sequence[object]]) -> str:
    """
    Lists, a line per rank.

    >>> print(rows([["0F0"], ["1F0"]]))
    [
      ["0F0"],
      ["1F0"]
     ]
    """
    return "[\n" + ",\n".join("  " + json.dumps(row) for row in lists) + "\n ]"


def whole_text(entries: Mapping[str, str]) -> str:
    """
    A file of these entries, whose values are JSON already.

    >>> print(whole_text({"ranks": "1", "placement": "[[0]]"}), end="")
    {
     "ranks": 1,
     "placement": [[0]]
    }
    """
    return "{\n" + ",\n".join(f' "{key}": {text}' for key, text in entries.items()) + "\n}\n"
