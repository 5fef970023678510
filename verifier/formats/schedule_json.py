"""
Our own format, ``pipeline-schedule/1``: a schedule as JSON, with costs, limits, times, claims and a certificate where known.

``pipeline-schedule-1.schema.json`` in this folder describes it to others.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import isfinite
from typing import Any

from verifier.costs import CostModel
from verifier.formats.source import MAX_WORD, Source, one_line
from verifier.model import Block, Limits, Problem, Schedule, ScheduleError, exact, plain

FORMAT = "pipeline-schedule/1"

_OUTLINE = 100
"""Items of a list, keys of an object and characters of a text that the schema validator gets to see."""


class _Number(str):
    """A number as the file writes it, so that no digit is lost, and what is no number (NaN) can be refused by its place."""

    __slots__ = ()


def schema() -> dict[str, Any]:
    """
    The published JSON Schema of the format.

    >>> schema()["title"]
    'pipeline-schedule/1'
    """
    # Imported here, as jsonschema below: the help has to appear sooner than they do.
    from importlib import resources

    text = resources.files("verifier.formats").joinpath("pipeline-schedule-1.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


# -------------------------------------------------------------------------------------------------------------- reading


def read(text: str, *, microbatches: int | None = None) -> Source:
    """
    Read a schedule file.

    Parameters
    ----------
    text
        The file.
    microbatches
        How many there should be, over both directions (halved between them), where the file is not to be believed.

    Raises
    ------
    ScheduleError
        If the text is not JSON, has not the published shape, or its parts do not fit one another.

    Examples
    --------
    >>> source = read('''{"format": "pipeline-schedule/1", "ranks": 1, "placement": [[0]], "microbatches": [1],
    ...                   "order": [["0F0", "0B0"]], "costs": {"F": 2.50}}''')
    >>> source.schedule.order[0][1].kind, source.costs.prices["F"]
    ('B', Fraction(5, 2))
    """
    written = _parsed(text)
    _check_shape(written)
    placement = tuple(
        tuple(
            _whole(rank, f"placement[{direction}][{stage}]")
            for stage, rank in enumerate(_listed(row, f"placement[{direction}]"))
        )
        for direction, row in enumerate(written["placement"])
    )
    problem = Problem(placement, _counts(written["microbatches"], microbatches))
    if written["ranks"] != problem.ranks:
        raise ScheduleError(f"ranks: expected {problem.ranks}, the ranks in placement, got {written['ranks']}")
    if len(written["order"]) != problem.ranks:
        raise ScheduleError(f"order: expected {problem.ranks} lists, one per rank, got {len(written['order'])}")
    order = tuple(_blocks(_listed(row, f"order[{rank}]"), rank) for rank, row in enumerate(written["order"]))
    costs = CostModel.of(**written["costs"]) if "costs" in written else None
    if costs:
        costs.check(problem)
    return Source(
        Schedule(problem, order, written.get("name", "")),
        FORMAT,
        costs,
        _limits(written["limits"], problem.ranks) if "limits" in written else None,
        _start(written["start"], order) if "start" in written else None,
        {key: _json_value(value, f"claims.{key}") for key, value in written.get("claims", {}).items()},
        _json_value(written.get("certificate"), "certificate"),
    )


def _parsed(text: str) -> Any:
    """The JSON value, its numbers as they are written."""
    try:
        return json.loads(
            text, parse_float=_Number, parse_int=_integer, parse_constant=_Number, object_pairs_hook=_object_without_twins
        )
    except json.JSONDecodeError as error:
        raise ScheduleError(f"line {error.lineno}, column {error.colno}: {error.msg}; expected JSON") from None


def _integer(text: str) -> int | _Number:
    """A whole number; one that nobody takes stays text, since reading it would take quadratic time."""
    return int(text) if len(text) <= _OUTLINE else _Number(text)


def _object_without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object, refused where a key is there twice: the earlier value would be lost without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twin = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ScheduleError(f'the key "{one_line(twin, 40)}" is given twice')
    return found


# ---------------------------------------------------------------------------------------------------------------- shape


def _check_shape(written: Any) -> None:
    """Refuse what the schema does not allow; the first fault from the top, in words of the schema."""
    if isinstance(written, dict) and written.get("format") != FORMAT:
        got = _shown(written["format"]) if "format" in written else "no such key"
        raise ScheduleError(f'format: expected "{FORMAT}", got {got}')
    from jsonschema import Draft202012Validator

    faults = Draft202012Validator(schema()).iter_errors(_outline(written))
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
    raise ScheduleError(f"{prefix}expected {rule.get('description', 'something else')}, got {_shown(worst.instance)}")


def _outline(value: Any, depth: int = 0) -> Any:
    """
    The beginning of every list, object and text.

    The validator takes 10 us per value, and copies what it refuses into its message; each block and number is looked at again
    anyway when it is read.
    """
    if isinstance(value, _Number):
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


def _shown(value: object) -> str:
    """A value in an error."""
    if isinstance(value, list):
        return f"a list of {len(value)}" if len(value) < _OUTLINE else "a long list"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, str) and not isinstance(value, _Number):
        return f'"{one_line(value, 40)}"'
    return one_line(json.dumps(value) if value is None or isinstance(value, bool) else str(value), 40)


# ---------------------------------------------------------------------------------------------------------------- parts


def _listed(value: object, where: str) -> list[Any]:
    """A list; the validator has seen only the first ones."""
    if not isinstance(value, list):
        raise ScheduleError(f"{where}: expected a list, got {_shown(value)}")
    return value


def _whole(value: object, where: str) -> int:
    if type(value) is not int or value < 0:
        raise ScheduleError(f"{where}: expected a whole number from 0, got {_shown(value)}")
    return value


def _counts(written: Sequence[object], total: int | None) -> tuple[int, ...]:
    """Micro-batches per direction: the file's, unless another total is asked for."""
    counts = tuple(_whole(count, f"microbatches[{direction}]") for direction, count in enumerate(written))
    if total is None or total == sum(counts):
        return counts
    if len(counts) == 2 and total % 2:
        raise ScheduleError(f"microbatches: expected an even number for two directions, got {total}")
    return (total // len(counts),) * len(counts)


def _blocks(tokens: Sequence[object], rank: int) -> tuple[Block, ...]:
    """The blocks of a rank."""
    blocks = []
    for position, token in enumerate(tokens):
        try:
            if not isinstance(token, str) or len(token) > MAX_WORD:
                raise ScheduleError(f"expected a block such as 0F3, 7B0' or (0F7;7B3'), got {_shown(token)}")
            blocks.append(Block.parse(token))
        except ScheduleError as error:
            raise ScheduleError(f"order, rank {rank}, position {position}: {error}") from None
    return tuple(blocks)


def _limits(written: Mapping[str, object], ranks: int) -> Limits:
    activations = _per_rank(written.get("activations"), "limits.activations")
    weights = _per_rank(written.get("weights"), "limits.weights")
    if any(number.denominator != 1 for number in (weights if isinstance(weights, tuple) else (weights or Fraction(0),))):
        raise ScheduleError("limits.weights: expected whole numbers of weight copies")
    whole = tuple(map(int, weights)) if isinstance(weights, tuple) else None if weights is None else int(weights)
    limits = Limits(activations, whole)
    limits.check(ranks)
    return limits


def _per_rank(value: object, where: str) -> Fraction | tuple[Fraction, ...] | None:
    if isinstance(value, list):
        return tuple(exact(item, f"{where}[{rank}]") for rank, item in enumerate(value))
    return None if value is None else exact(value, where)


def _start(written: Sequence[object], order: Sequence[Sequence[Block]]) -> tuple[tuple[Fraction, ...], ...]:
    """Start times, one per block."""
    _check_start(written, order)
    return tuple(
        tuple(exact(time, f"start[{rank}][{position}]") for position, time in enumerate(_listed(times, f"start[{rank}]")))
        for rank, times in enumerate(written)
    )


def _check_start(start: Sequence[Any], order: Sequence[Sequence[Block]]) -> None:
    """Refuse times that are not one per block."""
    if len(start) != len(order):
        raise ScheduleError(f"start: expected {len(order)} lists, one per rank, got {len(start)}")
    for rank, (times, blocks) in enumerate(zip(start, order, strict=True)):
        if isinstance(times, (list, tuple)) and len(times) != len(blocks):
            raise ScheduleError(f"start[{rank}]: expected {len(blocks)} times, one per block, got {len(times)}")


def _json_value(value: object, where: str) -> object:
    """What a file may carry without our knowing it."""
    if isinstance(value, _Number):
        return _float_or_text(value, where)
    if isinstance(value, Fraction):
        return plain(value)
    if isinstance(value, (list, tuple)):
        return [_json_value(item, where) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _json_value(item, where) for key, item in value.items()}
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and isfinite(value)):
        return value
    raise ScheduleError(f"{where}: {one_line(str(value), 40)} is nothing that JSON can hold")


def _float_or_text(number: _Number, where: str) -> float | str:
    """A decimal as a float where that prints the same, else its text."""
    if not number[-1].isdigit():
        raise ScheduleError(f"{where}: expected a number, got {number}")
    nearest = float(number)
    try:
        return nearest if isfinite(nearest) and Decimal(repr(nearest)) == Decimal(number) else str(number)
    except InvalidOperation:
        return str(number)


# -------------------------------------------------------------------------------------------------------------- writing


def dump(
    source: Source | Schedule,
    *,
    costs: CostModel | None = None,
    limits: Limits | None = None,
    start: Sequence[Sequence[Fraction]] | None = None,
    claims: Mapping[str, object] | None = None,
    certificate: object = None,
) -> str:
    """
    The text of a schedule file; equal schedules give equal bytes, and :func:`read` gives the same schedule back.

    Parameters
    ----------
    source
        A schedule, or what a file said about one.
    costs, limits, start, claims, certificate
        As in :class:`Source`; given here they replace what the source says.

    Raises
    ------
    ScheduleError
        If the times are not one per block, or a claim is nothing that JSON can hold.

    Examples
    --------
    >>> schedule = Schedule(Problem(((0,),), (1,)), ((Block.parse("0F0"), Block.parse("0B0")),))
    >>> print(dump(schedule, claims={"makespan": 3}), end="")
    {
     "format": "pipeline-schedule/1",
     "ranks": 1,
     "placement": [[0]],
     "microbatches": [1],
     "order": [
      ["0F0", "0B0"]
     ],
     "claims": {"makespan": 3}
    }
    """
    if isinstance(source, Schedule):
        source = Source(source, FORMAT)
    schedule, problem = source.schedule, source.schedule.problem
    costs, limits, start = costs or source.costs, limits or source.limits, start if start is not None else source.start
    claims = source.claims if claims is None else claims
    certificate = source.certificate if certificate is None else certificate
    entries = {"format": json.dumps(FORMAT)}
    if schedule.name:
        entries["name"] = json.dumps(schedule.name)
    entries["ranks"] = json.dumps(problem.ranks)
    entries["placement"] = json.dumps(problem.placement)
    entries["microbatches"] = json.dumps(problem.microbatches)
    entries["order"] = _rows([str(block) for block in row] for row in schedule.order)
    if costs:
        entries["costs"] = json.dumps(costs.as_written())
    if limits:
        entries["limits"] = json.dumps(_written_limits(limits))
    if start is not None:
        _check_start(start, schedule.order)
        entries["start"] = _rows([plain(time) for time in row] for row in start)
    if claims:
        entries["claims"] = json.dumps(_json_value(claims, "claims"), sort_keys=True)
    if certificate is not None:
        entries["certificate"] = json.dumps(_json_value(certificate, "certificate"), sort_keys=True)
    return "{\n" + ",\n".join(f' "{key}": {text}' for key, text in entries.items()) + "\n}\n"


def _rows(rows: Iterable[Sequence[object]]) -> str:
    """One line per rank."""
    return "[\n" + ",\n".join("  " + json.dumps(row) for row in rows) + "\n ]"


def _written_limits(limits: Limits) -> dict[str, object]:
    written: dict[str, object] = {}
    for name, value in (("activations", limits.activations), ("weights", limits.weights)):
        if value is not None:
            written[name] = [plain(number) for number in value] if isinstance(value, tuple) else plain(value)
    return written
