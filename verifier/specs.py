"""
Specs: a problem or a schedule, its costs, limits and expectations in one TOML file; and costs and limits as people write them.

Whatever is wrong in a file is one line with its place: ``specs/x.toml: costs.FB: expected a number such as 3, ...``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from verifier.costs import CostModel
from verifier.formats.source import MAX_WORD, Source, one_line, reason
from verifier.model import MAX_DIGITS, MAX_OPS, Limits, Problem, ScheduleError, exact
from verifier.verify import NUMBERS

if TYPE_CHECKING:
    from verifier.formats.loop_text import OwnLoops

MAX_BYTES = 1_000_000
"""A spec is written by people; what is larger is another file given by mistake."""

_TABLES = ("schedule", "loops", "problem", "costs", "limits", "expect")
_FAMILY_KEYS = ("family", "ranks", "microbatches", "stages_per_rank", "rule")
_FILE_KEYS = ("file", "microbatches", "dialect")
_SIZE_KEYS = ("ranks", "microbatches")
_PROBLEM_KEYS = ("placement", "ranks", "microbatches", "stages_per_rank")


@dataclass(frozen=True)
class Spec:
    """
    What a spec says; None or empty where it is silent.

    Attributes
    ----------
    problem
        Of ``[problem]``, or of the schedule.
    source
        The schedule of ``[schedule]``, as its family, file or loops give it.
    loops
        The loop program of ``[loops]``.
    expectations
        Numbers that are known of the schedule: one, or one per rank. They are judged as claims.
    unit
        Of the costs, as ``[costs] unit`` says it; empty where it does not.
    reference
        Where the expectations come from.
    """

    path: str
    problem: Problem | None = None
    source: Source | None = None
    loops: OwnLoops | None = None
    costs: CostModel | None = None
    unit: str = ""
    limits: Limits = field(default_factory=Limits)
    expectations: Mapping[str, object] = field(default_factory=dict)
    reference: str = ""


def read_spec(path: str | Path) -> Spec:
    """
    Read a spec.

    Raises
    ------
    ScheduleError
        If it cannot be read, is no TOML, has an unknown key or a value that does not fit.

    Examples
    --------
    >>> spec = read_spec("specs/dualpipe-p8-m20.toml")
    >>> spec.source.schedule.name, spec.expectations["makespan"]
    ('dualpipe P=8 M=20', 66)
    """
    with in_file(path) as shown:
        return _spec(shown, Path(path), _tables(Path(path)))


def read_costs(text: str) -> CostModel:
    """
    Costs of the command line: ``F=1,I=1,W=1,FB=5/2``, or the path of a TOML file with ``[costs]``.

    Raises
    ------
    ScheduleError
        As :meth:`CostModel.parse` and :func:`read_spec`.

    Examples
    --------
    >>> read_costs("F=2,I=3").prices["B"], read_costs("specs/dualpipe-unequal-costs.toml").prices["B"]
    (Fraction(4, 1), Fraction(21, 1))
    """
    return read_costs_and_unit(text)[0]


def read_costs_and_unit(text: str) -> tuple[CostModel, str]:
    """
    As :func:`read_costs`, with the unit that the file gives them as ``[costs] unit``; empty where nothing says it.

    >>> read_costs_and_unit("F=2,I=3")[1]
    ''
    """
    if "=" in text and not text.endswith(".toml"):
        return CostModel.parse(text), ""
    if not text.endswith(".toml") and not Path(text).exists():
        raise ScheduleError(f'costs: expected F=1,I=1,W=1,FB=3,hop=0 or a TOML file, got "{one_line(text, 40)}"')
    spec = read_spec(text)
    if spec.costs is None:
        raise ScheduleError(f"{one_line(text, 200)}: expected a table [costs]")
    return spec.costs, spec.unit


def costs_of_table(table: Mapping[str, object]) -> CostModel:
    """
    A table ``[costs]``, which may say its ``unit``: nothing that is judged depends on it.

    >>> costs_of_table({"F": 2, "unit": "ms"}).prices["F"]
    Fraction(2, 1)
    """
    if "unit" in table:
        _text(table, "costs", "unit")
    return CostModel.of(**{key: value for key, value in table.items() if key != "unit"})


def read_ranges(text: str) -> str:
    """
    Costs with ranges, ``F=9..11,I=10``, from the command line or from a TOML file with ``[costs]`` and nothing else.

    In the file a range is text: ``F = "9..11"``, or one per stage: ``F = ["9..11", "9..11", 12]``.

    Raises
    ------
    ScheduleError
        If the file cannot be read, or a value is no number, range or list of them.

    Examples
    --------
    >>> read_ranges("specs/costs-ranges.toml"), read_ranges("F=1..2")
    ('F=9..11,I=10..14,W=8..9,FB=24..28', 'F=1..2')
    """
    if "=" in text and not text.endswith(".toml"):
        return text
    if not text.endswith(".toml") and not Path(text).exists():
        raise ScheduleError(f'costs: expected F=9..11,I=10 or a TOML file with such ranges, got "{one_line(text, 40)}"')
    with in_file(text):
        tables = _tables(Path(text))
        known_keys(tables, ("costs",), "")
        if not tables.get("costs"):
            raise ScheduleError("expected a table [costs]")
        return ",".join(
            f"{_word(key, f'costs.{key}')}={_ranges(value, f'costs.{key}')}"
            for key, value in tables["costs"].items()
            if key != "unit"
        )


def _ranges(value: object, where: str) -> str:
    """A number or range, or a list of them, as on the command line."""
    if isinstance(value, list):
        return f"[{','.join(_ranges(item, f'{where}[{k}]') for k, item in enumerate(value))}]"
    return _word(value, where)


def _word(value: object, where: str) -> str:
    """Text that means nothing else once it stands between commas."""
    text = str(value) if isinstance(value, str) or (type(value) is int and abs(value) < 10**MAX_DIGITS) else ""
    if not text.strip() or len(text) > MAX_WORD or set(text) & set(",=[]\n\r"):
        raise ScheduleError(f'{where}: expected a number or a range such as "9..11", got {_shown(value)}')
    return text


def limits_of(activations: object = None, weights: object = None) -> Limits:
    """
    Limits as people write them: one number, a list with one per rank, or both as text with commas.

    Raises
    ------
    ScheduleError
        If one is no number, or a number of weight copies is not whole.

    Examples
    --------
    >>> limits_of("9,8,8,9", 2)
    Limits(activations=(Fraction(9, 1), Fraction(8, 1), Fraction(8, 1), Fraction(9, 1)), weights=2)
    """
    held = _one_or_many(activations, "limits.activations")
    copies = _one_or_many(weights, "limits.weights")
    if any(number.denominator > 1 for number in _flat(copies)):
        raise ScheduleError("limits.weights: expected whole numbers")
    whole = tuple(map(int, copies)) if isinstance(copies, tuple) else None if copies is None else int(copies)
    return Limits(held, whole)


def limits_over(above: Limits, below: Limits | None) -> Limits:
    """
    Limits where those above have precedence.

    >>> limits_over(Limits(weights=2), Limits(Fraction(9), 1))
    Limits(activations=Fraction(9, 1), weights=2)
    """
    if below is None:
        return above
    return Limits(
        below.activations if above.activations is None else above.activations,
        below.weights if above.weights is None else above.weights,
    )


# ---------------------------------------- the file


@contextmanager
def in_file(path: str | Path) -> Iterator[str]:
    """
    Name the file in front of whatever is wrong in it; gives the name as it is shown.

    >>> with in_file("mine.toml"):
    ...     raise ScheduleError("batch: missing")
    Traceback (most recent call last):
    verifier.model.ScheduleError: mine.toml: batch: missing
    """
    shown = one_line(str(path), 200)
    try:
        yield shown
    except ScheduleError as error:
        raise ScheduleError(f"{shown}: {error}") from None


def read_toml(path: Path) -> dict[str, object]:
    """
    What a TOML file holds; decimals stay the text that they are.

    Raises
    ------
    ScheduleError
        If it cannot be read or is no TOML; the path is left to the caller.

    Examples
    --------
    >>> read_toml(Path("specs/dualpipe-p8-m20.toml"))["limits"]
    {'activations': 9, 'weights': 2}
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ScheduleError(f"cannot be read: {reason(error)}") from None
    if len(content) > MAX_BYTES:
        raise ScheduleError(f"larger than {MAX_BYTES // 1_000_000} MB; expected a spec, a small TOML file")
    try:
        return tomllib.loads(content.decode("utf-8-sig"), parse_float=lambda text: text.replace("_", ""))
    except UnicodeDecodeError:
        raise ScheduleError("not UTF-8 text; expected a spec in TOML") from None
    except RecursionError:
        raise ScheduleError("nested too deeply for a spec") from None
    except tomllib.TOMLDecodeError as error:
        raise ScheduleError(f"not TOML: {one_line(str(error))}") from None
    except ValueError:
        # What int() says of a number with thousands of digits passes through tomllib.
        raise ScheduleError("a number with too many digits for a spec") from None


def _tables(path: Path) -> dict[str, dict[str, object]]:
    """The tables of a spec."""
    read = read_toml(path)
    known_keys(read, _TABLES, "")
    tables = {name: table for name, table in read.items() if isinstance(table, dict)}
    for name in read.keys() - tables.keys():
        raise ScheduleError(f"{name}: expected a table [{name}]")
    return tables


def _spec(shown: str, path: Path, tables: dict[str, dict[str, object]]) -> Spec:
    if not tables:
        raise ScheduleError(f"empty; expected tables such as {', '.join(f'[{name}]' for name in _TABLES)}")
    for other in ("schedule", "loops"):
        if other in tables and "problem" in tables:
            raise ScheduleError(f"expected [{other}] or [problem], got both")
    loops = _loops(tables["loops"]) if "loops" in tables else None
    costs = costs_of_table(tables["costs"]) if "costs" in tables else None
    unit = str(tables.get("costs", {}).get("unit", ""))
    limits = _limits(tables.get("limits", {}))
    expectations, reference = _expectations(tables.get("expect", {}))
    source = _schedule(tables["schedule"], path.parent, loops) if "schedule" in tables else None
    problem = source.schedule.problem if source else _problem(tables["problem"]) if "problem" in tables else None
    if problem:
        (costs or CostModel.of()).check(problem)
        limits.check(problem.ranks)
    return Spec(shown, problem, source, loops, costs, unit, limits, expectations, reference)


def sized(spec: Spec, ranks: int | None, microbatches: int | None) -> Spec:
    """
    A spec of a loop program with its schedule for other sizes; a size that is not given is that of ``[schedule]``.

    Expectations are about the sizes of the spec, and are left out for others.

    Raises
    ------
    ScheduleError
        If a size is missing, or the loops, costs or limits do not fit.

    Examples
    --------
    >>> sized(read_spec("specs/loops-early-1f1b.toml"), 4, 16).source.schedule.name
    'early 1f1b P=4 M=16'
    """
    assert spec.loops is not None, "asked for loops only"
    have = spec.problem
    if have is not None:
        ranks = have.ranks if ranks is None else ranks
        microbatches = have.total_microbatches if microbatches is None else microbatches
    if ranks is None or microbatches is None:
        raise ScheduleError(f"{spec.path}: a loop program needs its sizes, for example: {spec.path} -P 4 -M 8")
    try:
        source = _of_loops(spec.loops, ranks, microbatches)
        problem = source.schedule.problem
        (spec.costs or CostModel.of()).check(problem)
        spec.limits.check(problem.ranks)
    except ScheduleError as error:
        raise ScheduleError(f"{spec.path}: {error}") from None
    if problem != have:
        spec = replace(spec, expectations={}, reference="")
    return replace(spec, problem=problem, source=source)


def _loops(table: dict[str, object]) -> OwnLoops:
    from verifier.formats.loop_text import KEYS, read_loops

    known_keys(table, KEYS, "loops")
    return read_loops(table)


def _of_loops(loops: OwnLoops, ranks: int, microbatches: int) -> Source:
    from verifier.families import build_program

    return Source(build_program(loops.program, loops.placement, ranks, microbatches), "loops")


def _schedule(table: dict[str, object], folder: Path, loops: OwnLoops | None) -> Source:
    """``[schedule]``: a family with its sizes, a file beside the spec, or the sizes of ``[loops]``."""
    if loops is not None:
        known_keys(table, _SIZE_KEYS, "schedule")
        return _of_loops(loops, *(_whole(table, "schedule", key) for key in _SIZE_KEYS))
    if "file" in table:
        from verifier.formats import load

        known_keys(table, _FILE_KEYS, "schedule")
        microbatches = _whole(table, "schedule", "microbatches") if "microbatches" in table else None
        dialect = _text(table, "schedule", "dialect") if "dialect" in table else "modern"
        return load(folder / _text(table, "schedule", "file"), microbatches=microbatches, dialect=dialect)
    from verifier.families import build_family

    known_keys(table, _FAMILY_KEYS, "schedule")
    family = _text(table, "schedule", "family")
    sizes = [_whole(table, "schedule", key) for key in _SIZE_KEYS]
    options: dict[str, object] = {}
    if "stages_per_rank" in table:
        options["stages_per_rank"] = _whole(table, "schedule", "stages_per_rank")
    if "rule" in table:
        options["rule"] = _text(table, "schedule", "rule")
    return Source(build_family(family, *sizes, **options), "family")  # type: ignore[arg-type]


def _problem(table: dict[str, object]) -> Problem:
    """``[problem]``: a placement by name with its ranks, or in full."""
    known_keys(table, _PROBLEM_KEYS, "problem")
    written = table.get("placement")
    if isinstance(written, str):
        from verifier.families import placement

        stages_per_rank = _whole(table, "problem", "stages_per_rank") if "stages_per_rank" in table else 2
        rows = placement(written, _whole(table, "problem", "ranks"), stages_per_rank)
    else:
        rows = _rows(written)
        ranks = 1 + max(map(max, rows))
        if "ranks" in table and _whole(table, "problem", "ranks") != ranks:
            raise ScheduleError(f"problem.ranks: the placement has {ranks} ranks; expected the same or nothing")
        if "stages_per_rank" in table:
            raise ScheduleError("problem.stages_per_rank: the placement is given in full; expected nothing here")
    return Problem(rows, _per_direction(table, len(rows)))


def _rows(written: object) -> tuple[tuple[int, ...], ...]:
    """A placement in full: a list of ranks per direction."""
    if not isinstance(written, list) or not written or not all(isinstance(row, list) and row for row in written):
        raise ScheduleError(
            'problem.placement: expected a name such as "bidirectional", or the ranks per direction such as [[0, 1, 1, 0]]'
        )
    return tuple(
        tuple(_number(item, f"problem.placement[{direction}][{stage}]") for stage, item in enumerate(row))
        for direction, row in enumerate(written)
    )


def _per_direction(table: dict[str, object], directions: int) -> tuple[int, ...]:
    """Micro-batches per direction; one number is shared out evenly."""
    written = table.get("microbatches")
    if isinstance(written, list):
        return tuple(_number(item, f"problem.microbatches[{index}]") for index, item in enumerate(written))
    total = _whole(table, "problem", "microbatches")
    if total % directions:
        raise ScheduleError(f"problem.microbatches: {total} over two directions; expected an even number, or [a, b]")
    return (total // directions,) * directions


def _limits(table: dict[str, object]) -> Limits:
    known_keys(table, ("activations", "weights"), "limits")
    return limits_of(table.get("activations"), table.get("weights"))


def _expectations(table: dict[str, object]) -> tuple[dict[str, object], str]:
    """``[expect]``: the numbers, and where they come from."""
    known_keys(table, (*NUMBERS, "source"), "expect")
    reference = _text(table, "expect", "source") if "source" in table else ""
    numbers = {name: value for name, value in table.items() if name != "source"}
    for name, value in numbers.items():
        _one_or_many(value, f"expect.{name}")
    return numbers, reference


# ---------------------------------------- values


def known_keys(table: Mapping[str, object], keys: Iterable[str], where: str) -> None:
    """
    Refuse a key that nobody reads, with the one that was probably meant.

    >>> known_keys({"rank": 4}, ("ranks", "microbatches"), "sweep")
    Traceback (most recent call last):
    verifier.model.ScheduleError: sweep.rank: unknown key; did you mean ranks?
    """
    keys = tuple(keys)
    for key in table:
        if key not in keys:
            close = get_close_matches(key, keys, 1)
            hint = f"did you mean {close[0]}?" if close else f"expected {', '.join(keys)}"
            raise ScheduleError(f"{where}{'.' if where else ''}{one_line(key, 40)}: unknown key; {hint}")


def _text(table: Mapping[str, object], where: str, key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str):
        got = "nothing" if value is None else _shown(value)
        raise ScheduleError(f"{where}.{key}: expected text, got {got}")
    return value


def _whole(table: Mapping[str, object], where: str, key: str) -> int:
    if key not in table:
        raise ScheduleError(f"{where}.{key}: missing; expected a whole number")
    return _number(table[key], f"{where}.{key}")


def _number(value: object, where: str) -> int:
    """A whole number of things, none of which may be more than there can be ops."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_OPS:
        raise ScheduleError(f"{where}: expected a whole number from 0 to {MAX_OPS}, got {_shown(value)}")
    return value


def _one_or_many(value: object, where: str) -> Fraction | tuple[Fraction, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) and "," in value:
        value = value.split(",")
    if isinstance(value, list):
        return tuple(exact(item, f"{where}[{index}]") for index, item in enumerate(value))
    return exact(value, where)


def _flat(value: Fraction | tuple[Fraction, ...] | None) -> tuple[Fraction, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _shown(value: object) -> str:
    """A value for people; a whole number of thousands of digits is no text in Python."""
    if isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
        return "a number too large"
    return f'"{one_line(value, 40)}"' if isinstance(value, str) else one_line(str(value), 40)
