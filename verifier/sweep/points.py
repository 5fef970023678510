"""
Which problems a sweep has: every combination of what its spec lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import islice, product
from pathlib import Path

from verifier.families import FAMILIES, PLACEMENTS
from verifier.formats.source import one_line
from verifier.model import MAX_OPS, ScheduleError, exact
from verifier.specs import costs_of_table, in_file, known_keys, limits_of, read_toml

MAX_POINTS = 1_000_000
"""Points of the largest sweep."""

_TABLES = ("sweep", "synthesize", "costs", "limits")
_SWEEP = ("family", "ranks", "microbatches", "stages_per_rank", "rule", "per")
_SYNTHESIZE = ("placement", "budget", "blocks", "pairs", "objective")
_CHOICES = {"rule": ("pytorch", "megatron"), "per": ("model", "stage"), "pairs": ("opposite", "any")}
_CHOICES["objective"] = ("makespan", "span-idle")
_RANGE = re.compile(r"(\d{1,18}P?)(?:\.\.(\d{1,18}P?)(?: step (\d{1,18}))?)?", re.ASCII)


@dataclass(frozen=True)
class Point:
    """
    One problem of a sweep. All that its result depends on is here, as text or whole numbers, so that any process can take it.

    Parameters
    ----------
    family, placement
        A family, or the placement for which the shortest schedule is searched; the other is empty.
    ranks, microbatches
        P, and M over all directions.
    stages_per_rank, rule
        Of interleaved stages; empty where they are not asked for.
    costs
        As ``--costs`` takes them.
    activations, weights
        Limits as people write them; empty for none.
    per
        Whether costs and limits are of a rank's share of one ``model``, as in ``compare``, or of the schedule's own ``stage``.
    search
        How the shortest schedule is searched: ``budget=5 pairs=any``; empty for a family.
    written
        The micro-batches as the spec writes them, such as ``2P``; not part of what the point is.
    """

    family: str
    placement: str
    ranks: int
    microbatches: int
    stages_per_rank: str = ""
    rule: str = ""
    costs: str = "F=1,I=1,W=1,B=2,FB=3"
    activations: str = ""
    weights: str = ""
    per: str = "model"
    search: str = ""
    written: str = field(default="", compare=False)

    @property
    def key(self) -> tuple[str, ...]:
        """
        What the point is, as text: two points with one key have one result.

        >>> Point("1f1b", "", 4, 8).key[:4]
        ('1f1b', '', '4', '8')
        """
        return tuple(str(getattr(self, name)) for name in KEYS)

    @property
    def label(self) -> str:
        """
        What is measured, without its sizes.

        >>> Point("interleaved", "", 4, 8, "3", "megatron").label, Point("", "v", 4, 8).label
        ('interleaved V=3 megatron', 'shortest, v')
        """
        stages = f"V={self.stages_per_rank}" if self.stages_per_rank else ""
        return " ".join(filter(None, (self.family or f"shortest, {self.placement}", stages, self.rule.removeprefix("pytorch"))))

    def as_row(self) -> dict[str, object]:
        """The point as its row begins."""
        return {name: getattr(self, name) for name in KEYS}


KEYS = tuple(item.name for item in fields(Point) if item.compare)
"""The columns that say what a row is about."""


def read_sweep(path: str | Path) -> tuple[Point, ...]:
    """
    The points of a sweep's spec, in its order.

    Points that differ only in how the spec writes their micro-batches appear once for each way.

    Raises
    ------
    ScheduleError
        If the file cannot be read, has an unknown key, a value that does not fit, or no or too many points. A family that
        does not exist for a size is no error of the spec: the point's row says so.

    Examples
    --------
    >>> points = read_sweep("specs/sweep-bubble.toml")
    >>> len(points), points[0].label, points[0].ranks, points[0].microbatches
    (200, 'gpipe', 2, 32)
    """
    with in_file(path):
        return _points(read_toml(Path(path)))


def _points(read: Mapping[str, object]) -> tuple[Point, ...]:
    known_keys(read, _TABLES, "")
    table, synthesis = _table(read, "sweep"), _table(read, "synthesize")
    if not table:
        raise ScheduleError("sweep: missing; expected a table [sweep] with family, ranks and microbatches")
    known_keys(table, _SWEEP, "sweep")
    known_keys(synthesis, _SYNTHESIZE, "synthesize")
    for name in table:
        _some(table[name], f"sweep.{name}")
    subjects = [*_families(table), *_placements(table, synthesis)]
    if not subjects:
        raise ScheduleError('sweep.family: missing; expected families such as ["1f1b", "dualpipe"], or [synthesize] placement')
    sizes = list(islice(_sizes(table), MAX_POINTS + 1))
    terms = list(product(_costs(read), _limits(read), _words(table, "sweep", "per", "model")))
    if len(subjects) * len(sizes) * len(terms) > MAX_POINTS:
        raise ScheduleError(f"sweep: more than {MAX_POINTS} points; expected a smaller sweep, or several")
    # Twice the same, as in [8, "2P"] for 4 ranks, is kept where it is written in two ways: charts go by what is written.
    found = {
        (point.key, written): point
        for costs, (activations, weights), per in terms
        for subject in subjects
        for ranks, microbatches, written in sizes
        for point in [
            Point(
                **subject,
                ranks=ranks,
                microbatches=microbatches,
                costs=costs,
                activations=activations,
                weights=weights,
                per=per,
                written=written,
            )
        ]
    }
    return tuple(found.values())


# ---------------------------------------- what is measured


def _families(table: Mapping[str, object]) -> Iterator[dict[str, str]]:
    """Families with the options that each takes; one that nobody knows is a mistake in the spec."""
    stages, rules = _stages(table), _words(table, "sweep", "rule", "pytorch")
    for name in _words(table, "sweep", "family"):
        if name not in FAMILIES:
            raise ScheduleError(f'sweep.family: expected some of {", ".join(FAMILIES)}, got "{one_line(name, 40)}"')
        if "stages_per_rank" in FAMILIES[name].options:
            for count, rule in product(stages, rules):
                yield {"family": name, "placement": "", "stages_per_rank": count, "rule": rule}
        else:
            yield {"family": name, "placement": ""}


def _placements(table: Mapping[str, object], synthesis: Mapping[str, object]) -> Iterator[dict[str, str]]:
    """Placements whose shortest schedules are searched."""
    budget = exact(synthesis.get("budget", 10), "synthesize.budget")
    words = [f"budget={budget}"]
    for name in ("blocks", "pairs", "objective"):
        if name in synthesis:
            word = _choice(synthesis[name], "synthesize", name)
            words.append(f"{name}={word.replace(' ', '')}")
    for placement in _words(synthesis, "synthesize", "placement"):
        if placement not in PLACEMENTS:
            raise ScheduleError(
                f'synthesize.placement: expected some of {", ".join(PLACEMENTS)}, got "{one_line(placement, 40)}"'
            )
        for count in _stages(table) if placement in ("interleaved", "v") else ("",):
            yield {"family": "", "placement": placement, "stages_per_rank": count, "search": " ".join(words)}


def _stages(table: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(str(count) for count, _ in _counts(table.get("stages_per_rank", 2), "sweep.stages_per_rank", None))


# ---------------------------------------- sizes


def _sizes(table: Mapping[str, object]) -> Iterator[tuple[int, int, str]]:
    """Ranks, micro-batches, and the latter as written."""
    for name in ("ranks", "microbatches"):
        if name not in table:
            raise ScheduleError(f"sweep.{name}: missing; expected whole numbers such as [4, 8]")
    for ranks, _ in _counts(table["ranks"], "sweep.ranks", None):
        for microbatches, written in _counts(table["microbatches"], "sweep.microbatches", ranks):
            yield ranks, microbatches, written


def _counts(value: object, where: str, ranks: int | None) -> Iterator[tuple[int, str]]:
    """Whole numbers: 8, ``"2P"``, ``"4..16"``, ``"2P..6P step 4"``, or a list of these; and each as it is written."""
    for item in _some(value, where):
        match = _RANGE.fullmatch(str(item)) if isinstance(item, int | str) and not isinstance(item, bool) else None
        if match is None or (ranks is None and "P" in str(item)):
            example = '8, "2P" or "8..64 step 8"' if ranks is not None else '8 or "4..16 step 4"'
            raise ScheduleError(f'{where}: expected whole numbers such as {example}, got "{one_line(str(item), 40)}"')
        first, last, step = match.groups()
        begin, stride = _count(first, ranks), int(step or 1)
        if last is None:
            counts = [(begin, first)]
        else:
            end = _count(last, ranks)
            _check_range(where, str(item), begin, end, stride)
            counts = [(count, str(count)) for count in range(begin, end + 1, stride)]
        for count, written in counts:
            if not 1 <= count <= MAX_OPS:
                raise ScheduleError(f"{where}: expected whole numbers from 1 to {MAX_OPS}, got {count}")
            yield count, written


def _check_range(where: str, item: str, begin: int, end: int, stride: int) -> None:
    """Say what is wrong with a range."""
    if stride < 1:
        raise ScheduleError(f'{where}: "{item}" has a step of 0; expected at least 1')
    if end < begin:
        raise ScheduleError(f'{where}: "{item}" ends below its beginning; expected a range such as "8..64 step 8"')
    if end > MAX_OPS:
        raise ScheduleError(f"{where}: expected whole numbers from 1 to {MAX_OPS}, got {end}")
    if (count := (end - begin) // stride + 1) > MAX_POINTS:
        raise ScheduleError(f'{where}: "{item}" is {count} values; expected at most {MAX_POINTS}')


def _some(value: object, where: str) -> list[object]:
    """One value or a list of them, which has to have some."""
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ScheduleError(f"{where}: an empty list; expected at least one value")
    return values


def _count(text: str, ranks: int | None) -> int:
    """A number, or so many times P."""
    return int(text.removesuffix("P")) * (ranks or 1 if text.endswith("P") else 1)


# ---------------------------------------- terms


def _costs(read: Mapping[str, object]) -> list[str]:
    """``[costs]``, or several ``[[costs]]``, as the command line takes them."""
    texts = []
    for index, (where, table) in enumerate(_tables(read, "costs")):
        try:
            model = costs_of_table(table)
        except ScheduleError as error:
            raise ScheduleError(str(error).replace("costs", where, 1) if index or where != "costs" else str(error)) from None
        texts.append(",".join(f"{key}={_cost(value)}" for key, value in model.as_written().items()))
    return texts


def _cost(value: object) -> str:
    return f"[{','.join(map(_cost, value))}]" if isinstance(value, list) else str(value)


def _limits(read: Mapping[str, object]) -> list[tuple[str, str]]:
    """``[limits]``, or several ``[[limits]]``: activations and weights as text."""
    found = []
    for where, table in _tables(read, "limits"):
        known_keys(table, ("activations", "weights"), where)
        texts = [_limit(table.get(name)) for name in ("activations", "weights")]
        limits_of(*(text or None for text in texts))
        found.append((texts[0], texts[1]))
    return found


def _limit(value: object) -> str:
    return "" if value is None else ",".join(map(str, value)) if isinstance(value, list) else str(value)


# ---------------------------------------- values


def _table(read: Mapping[str, object], name: str) -> dict[str, object]:
    table = read.get(name, {})
    if not isinstance(table, dict):
        raise ScheduleError(f"{name}: expected a table [{name}]")
    return table


def _tables(read: Mapping[str, object], name: str) -> list[tuple[str, dict[str, object]]]:
    """One table, or several of them, each with its place."""
    written = read.get(name, {})
    tables = written if isinstance(written, list) else [written]
    if not tables or not all(isinstance(table, dict) for table in tables):
        raise ScheduleError(f"{name}: expected a table [{name}], or several [[{name}]]")
    many = isinstance(written, list)
    return [(f"{name}[{index}]" if many else name, table) for index, table in enumerate(tables)]


def _words(table: Mapping[str, object], where: str, name: str, default: str | None = None) -> tuple[str, ...]:
    """One word or a list of them."""
    if name not in table:
        return () if default is None else (default,)
    return tuple(_choice(item, where, name) for item in _some(table[name], f"{where}.{name}"))


def _choice(value: object, where: str, name: str) -> str:
    choices = _CHOICES.get(name)
    if not isinstance(value, str) or (choices and value not in choices):
        expected = " or ".join(choices) if choices else "text"
        raise ScheduleError(f'{where}.{name}: expected {expected}, got "{one_line(str(value), 40)}"')
    return value
