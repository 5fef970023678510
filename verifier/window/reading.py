"""
Specs of chunks: components and their times, transfers, orders of issue, and what was measured of the whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from verifier.formats.source import one_line
from verifier.model import MAX_DIGITS, ScheduleError, counted, exact
from verifier.specs import in_file, known_keys, read_toml
from verifier.window.chunk import COMMUNICATION, COMPUTE, MAX_STEPS, RESOURCES, TRANSFER, Chunk, Component
from verifier.window.orders import Order, read_order

MEASURED = ("F", "I", "W", "B", "FB", COMPUTE, COMMUNICATION, "hidden")
"""What a spec may say was measured: durations of blocks; of the pair the busy times, and the hidden share in percent."""

RESERVED = ("best", "given")
MAX_LAYERS = 1_000


@dataclass(frozen=True)
class ChunkSpec:
    """
    What a spec of a chunk says.

    Attributes
    ----------
    source
        Where the times come from.
    measured
        Of the whole, to compare with; by the names of :data:`MEASURED`.
    """

    path: str
    chunk: Chunk
    orders: Mapping[str, Order]
    source: str = ""
    measured: Mapping[str, Fraction] | None = None


def read_chunk(path: str | Path) -> ChunkSpec:
    """
    Read the spec of a chunk.

    Raises
    ------
    ScheduleError
        If it cannot be read, is no TOML, has an unknown key or a value that does not fit.

    Examples
    --------
    >>> spec = read_chunk("specs/chunk-deepseek-v3.toml")
    >>> spec.chunk.layers, [component.name for component in spec.chunk.components]
    (4, ['attention', 'dispatch', 'mlp', 'combine'])
    """
    with in_file(path) as shown:
        return _spec(shown, read_toml(Path(path)))


def _spec(shown: str, read: Mapping[str, object]) -> ChunkSpec:
    known_keys(read, ("chunk", "component", "transfers", "sms", "orders", "measured"), "")
    head = _table(read, "chunk", ("layers", "unit", "source"))
    layers = _whole(head, "chunk", "layers", MAX_LAYERS)
    transfers = _table(read, "transfers", ("F", "I"))
    chunk = Chunk(
        _components(read.get("component"), layers),
        layers,
        {kind: exact(value, f"transfers.{kind}") for kind, value in transfers.items()},
        _text(head, "chunk", "unit"),
        _sms(_table(read, "sms", ("total", "communication"))),
    )
    written = read.get("orders", {})
    if not isinstance(written, dict):
        raise ScheduleError("orders: expected a table [orders]")
    for name in written:
        if name in RESERVED:
            raise ScheduleError(f"orders.{name}: the name is taken; expected another one")
    orders = {name: read_order(name, steps, chunk) for name, steps in written.items()}
    measured = _table(read, "measured", MEASURED)
    figures = {name: exact(value, f"measured.{name}") for name, value in measured.items()}
    return ChunkSpec(shown, chunk, orders, _text(head, "chunk", "source"), figures)


def _components(written: object, layers: int) -> tuple[Component, ...]:
    if not isinstance(written, list) or not written or not all(isinstance(table, dict) for table in written):
        raise ScheduleError("component: expected tables [[component]], in the order of a forward layer")
    if len(written) * layers > MAX_STEPS:
        raise ScheduleError(f"component: more than {MAX_STEPS} steps; expected a chunk of a few layers")
    components = tuple(_component(table, f"component[{index}]", layers) for index, table in enumerate(written))
    names = [component.name for component in components]
    for name in names:
        if names.count(name) > 1:
            raise ScheduleError(f"component: {name} is there twice; expected names that differ")
    return components


def _component(table: Mapping[str, object], where: str, layers: int) -> Component:
    known_keys(table, ("name", "on", "F", "I", "W"), where)
    name, resource = _text(table, where, "name"), _text(table, where, "on")
    if not re.fullmatch(r"[A-Za-z][\w.-]{0,39}", name, re.ASCII) or name == TRANSFER:
        raise ScheduleError(f'{where}.name: expected a word such as attention, got "{one_line(name, 40)}"')
    if resource not in RESOURCES:
        raise ScheduleError(f'{where}.on: expected {COMPUTE} or {COMMUNICATION}, got "{one_line(resource, 40)}"')
    times = {kind: _times(table[kind], f"{where}.{kind}", layers) for kind in "FIW" if kind in table}
    if not times:
        raise ScheduleError(f"{where}: expected a time for F, I or W")
    return Component(name, resource, times)


def _times(value: object, where: str, layers: int) -> tuple[Fraction, ...]:
    """One time for all layers, or one for each."""
    if not isinstance(value, list):
        return (exact(value, where),) * layers
    if len(value) != layers:
        raise ScheduleError(f"{where}: expected {counted(layers, 'number')}, one per layer; got {len(value)}")
    return tuple(exact(item, f"{where}[{index}]") for index, item in enumerate(value))


def _sms(table: Mapping[str, object]) -> tuple[int, int] | None:
    if not table:
        return None
    total = _whole(table, "sms", "total", 100_000)
    communication = _whole(table, "sms", "communication", 100_000)
    if communication >= total:
        raise ScheduleError(f"sms.communication: expected a number below {total}, got {communication}")
    return total, communication


# ---------------------------------------- values


def _table(read: Mapping[str, object], name: str, keys: tuple[str, ...]) -> dict[str, object]:
    table = read.get(name, {})
    if not isinstance(table, dict):
        raise ScheduleError(f"{name}: expected a table [{name}]")
    known_keys(table, keys, name)
    return table


def _text(table: Mapping[str, object], where: str, key: str) -> str:
    """Text; empty where a key that explains is absent."""
    value = table.get(key, "" if where == "chunk" else None)
    if not isinstance(value, str):
        raise ScheduleError(f"{where}.{key}: expected text, got {_shown(value)}")
    return one_line(value)


def _whole(table: Mapping[str, object], where: str, key: str, most: int) -> int:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ScheduleError(f"{where}.{key}: expected a whole number from 1 to {most}, got {_shown(value)}")
    return value


def _shown(value: object) -> str:
    """A value for people; a whole number of thousands of digits is no text in Python."""
    if isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
        return "a number too large"
    return "nothing" if value is None else one_line(str(value), 40)
