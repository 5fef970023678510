"""
What blocks cost: durations, hop time between ranks, and the activations that an op takes or frees.

The one place that computes a duration. Rationals come in, whole ticks go out to everything that compares times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import lcm
from types import MappingProxyType

from verifier.model import Block, Op, Problem, ScheduleError, counted, exact, plain

Uniform = Fraction
PerStage = tuple[Fraction, ...]
Table = tuple[tuple[Fraction, ...], ...]
Price = Uniform | PerStage | Table

SINGLE = ("F", "I", "W", "B")
PAIRS = tuple(f"{a}&{b}" for i, a in enumerate("FBIW") for b in "FBIW"[i:])
"""Kinds of overlapped blocks, named by their two parts in a fixed order."""

_MAX_TICKS = 10**18


@dataclass(frozen=True)
class CostModel:
    """
    Durations per kind of block, hop time per rank pair, activation change per op.

    Build it with :meth:`of`, which fills in what follows from what is given.

    Parameters
    ----------
    prices
        ``prices[kind]`` for F, I, W and B is one duration, or one per stage. For a pair such as ``F&B`` it is one duration,
        or a table ``[stage of the first part][stage of the second]``. One duration for a pair of uneven stages is what a pair
        of average stages takes; every other pair is scaled in proportion to the sum of its two parts.
    hop
        Time from the producer's end until the next stage's rank may start: one number, or ``hop[from rank][to rank]``.
        It delays the receiver only, has no contention, and is 0 within a rank.
    release
        Share of an activation that is freed at the end of I; the rest goes at the end of W.
    activation
        Activation size of a stage, in stage units: one number, or one per stage.

    Examples
    --------
    >>> costs = CostModel.of(F=10, I=12, W=9, FB=26)
    >>> costs.duration(Block.parse("2B0")), costs.duration(Block.parse("(0F7;7B3)"))
    (Fraction(21, 1), Fraction(26, 1))
    """

    prices: Mapping[str, Price]
    hop: Fraction | Table = Fraction(0)
    release: Fraction = Fraction(0)
    activation: Fraction | PerStage = Fraction(1)
    _ticks: dict[tuple[str, int, int], int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _steps: dict[tuple[str, int], int] = field(default_factory=dict, init=False, repr=False, compare=False)

    # ------------------------------------------------------------------------------------------------- construction

    @classmethod
    def of(cls, /, **written: object) -> CostModel:
        """
        Costs as a person writes them: ``F``, ``I``, ``W``, ``B``, ``FB``, other pairs, ``hop``, ``release``, ``activation``.

        F = I = W = 1 unless given. Of B, I and W two give the third (B = I + W); B alone is split into equal halves; all
        three price the full backward apart. FB is F + B unless given.

        Raises
        ------
        ScheduleError
            If a key is unknown, a value is not an exact number that is not negative, B is below the I or W it is made of,
            or the common tick needs more than 18 digits.

        Examples
        --------
        >>> {kind: str(price) for kind, price in CostModel.of(F=2, B=5, I=2).prices.items()}
        {'F': '2', 'I': '2', 'W': '3', 'B': '5', 'F&B': '7'}
        """
        prices: dict[str, Price] = {}
        rest: dict[str, object] = {}
        for key, value in written.items():
            if key in ("hop", "release", "activation"):
                rest[key] = value
                continue
            kind = _kind(key)
            if kind in prices:
                raise ScheduleError(f"costs.{key}: {kind} is given twice")
            prices[kind] = _price(value, f"costs.{key}", table=kind in PAIRS)
        prices.setdefault("F", Fraction(1))
        _complete_backward(prices)
        prices.setdefault("F&B", _mean(prices["F"]) + _mean(prices["B"]))
        release = exact(rest.get("release", 0), "costs.release")
        if release > 1:
            raise ScheduleError(f"costs.release: expected a share from 0 to 1, got {plain(release)}")
        hop = _price(rest.get("hop", 0), "costs.hop", table=True)
        activation = _price(rest.get("activation", 1), "costs.activation", table=False)
        ordered = {kind: prices[kind] for kind in (*SINGLE[:3], "B", *PAIRS) if kind in prices}
        model = cls(MappingProxyType(ordered), hop, release, activation)  # type: ignore[arg-type]
        if model.ticks_per_unit >= _MAX_TICKS:
            raise ScheduleError("costs: the common denominator needs more than 18 digits; use rounder numbers")
        return model

    @classmethod
    def parse(cls, text: str) -> CostModel:
        """
        Costs of the command line: ``F=1,I=1,W=1,FB=5/2,hop=0``; per stage ``F=[1,1,1,2]``.

        Raises
        ------
        ScheduleError
            If the text is not a list of ``key=value``, or as :meth:`of`.

        Examples
        --------
        >>> CostModel.parse("F=[1,1,1,2],hop=1/4").hop
        Fraction(1, 4)
        """
        written: dict[str, object] = {}
        for item in _split(text):
            key, equals, value = (word.strip() for word in item.partition("="))
            if not equals or not key or not value:
                raise ScheduleError(f'costs: expected F=1,I=1,W=1,FB=3,hop=0, got "{_short(item)}"')
            if key in written:
                raise ScheduleError(f"costs.{key}: given twice")
            written[key] = _nested(value, f"costs.{key}")
        return cls.of(**written)

    def check(self, problem: Problem) -> None:
        """
        Refuse costs that do not fit the problem.

        Raises
        ------
        ScheduleError
            If a list does not name every stage, a table every pair, or the whole problem takes no time.
        """
        for kind, price in (*self.prices.items(), ("activation", self.activation)):
            if isinstance(price, tuple) and len(price) != problem.stages:
                raise ScheduleError(
                    f"costs.{kind}: expected {counted(problem.stages, 'number')}, one per stage; got {len(price)}"
                )
        if isinstance(self.hop, tuple) and len(self.hop) != problem.ranks:
            raise ScheduleError(f"costs.hop: expected {problem.ranks} rows of {problem.ranks}; got {len(self.hop)} rows")
        if not any(self._single(kind, stage) for kind in SINGLE for stage in range(problem.stages)):
            raise ScheduleError("costs: every op takes no time; expected at least one of F, I, W above 0")

    # ------------------------------------------------------------------------------------------------------ durations

    def duration(self, block: Block) -> Fraction:
        """How long a block takes, in the unit of the costs."""
        return Fraction(self.ticks(block), self.ticks_per_unit)

    def ticks(self, block: Block) -> int:
        """
        How long a block takes, in ticks.

        A kind of pair that has no price takes the sum of its parts; the rule ``pairing`` refuses it.
        """
        if "&" in block.kind:
            first, second = sorted(block.parts, key=lambda part: "FBIW".index(part.kind))
            key = (block.kind, first.stage, second.stage)
        else:
            key = (block.kind, block.ops[0].stage, 0)
        found = self._ticks.get(key)
        if found is None:
            exactly = self._duration(*key) * self.ticks_per_unit
            assert exactly.denominator == 1, "the tick divides every duration"
            found = self._ticks[key] = exactly.numerator
        return found

    def share_of_parts(self, key: str) -> Fraction | None:
        """
        What a pair, such as ``FB``, takes as a share of its two parts run one after the other, where they differ by stage.

        None where a pair has one duration, or a table of them.

        >>> CostModel.of(F=[1, 2], FB=3).share_of_parts("FB")
        Fraction(6, 7)
        """
        kind = "&".join(key)
        return self._ratio(kind) if kind in PAIRS and kind in self.prices and not self._even_pair(kind) else None

    def prices_kind(self, kind: str) -> bool:
        """Whether a kind of block has a price."""
        return kind in self.prices

    def hop_ticks(self, sender: int, receiver: int) -> int:
        """Ticks between the end of a producer and the earliest start of its consumer on another rank."""
        if sender == receiver:
            return 0
        return self._hop_ticks[sender][receiver] if isinstance(self._hop_ticks, list) else self._hop_ticks

    @cached_property
    def _hop_ticks(self) -> int | list[list[int]]:
        """The hop in ticks, worked out once: it is asked for on every edge between ranks."""
        scale = self.ticks_per_unit
        if isinstance(self.hop, tuple):
            return [[int(number * scale) for number in row] for row in self.hop]
        return int(self.hop * scale)

    @cached_property
    def ticks_per_unit(self) -> int:
        """The least number of ticks per unit that makes every duration and hop whole."""
        scale = lcm(*(number.denominator for price in (*self.prices.values(), self.hop) for number in _numbers(price)))
        for kind in self.prices:
            if "&" in kind and not self._even_pair(kind):
                scale = lcm(scale, scale * self._ratio(kind).denominator)
        return scale

    def _duration(self, kind: str, stage: int, other: int) -> Fraction:
        if kind in SINGLE:
            return self._single(kind, stage)
        first, second = kind.split("&")
        price = self.prices.get(kind)
        if isinstance(price, tuple):
            return price[stage][other]  # type: ignore[index]
        if price is not None and self._even_pair(kind):
            return price
        parts = self._single(first, stage) + self._single(second, other)
        return parts if price is None else parts * self._ratio(kind)

    def _single(self, kind: str, stage: int) -> Fraction:
        price = self.prices[kind]
        # A stage beyond the list is an op out of range; `complete` reports it, and any number will do here.
        return price if isinstance(price, Fraction) else price[min(stage, len(price) - 1)]  # type: ignore[return-value]

    def _even_pair(self, kind: str) -> bool:
        first, second = kind.split("&")
        return isinstance(self.prices[kind], tuple) or _even(self.prices[first], self.prices[second])

    def _ratio(self, kind: str) -> Fraction:
        """What a pair takes as a share of its two parts run one after the other."""
        first, second = kind.split("&")
        price, apart = self.prices[kind], _mean(self.prices[first]) + _mean(self.prices[second])
        return price / apart if apart else Fraction(1)  # type: ignore[operator]

    # ---------------------------------------------------------------------------------------------------- activations

    def activation_change(self, op: Op) -> Fraction:
        """Stage units that an op adds to its rank: F at its start; I and W free at their end."""
        return Fraction(self.activation_steps(op), self.steps_per_activation)

    def activation_steps(self, op: Op) -> int:
        """As :meth:`activation_change`, in whole steps."""
        key = (op.kind, op.stage)
        steps = self._steps.get(key)
        if steps is None:
            size = self.activation
            if isinstance(size, tuple):
                size = size[min(op.stage, len(size) - 1)]
            share = {"F": Fraction(1), "I": -self.release, "W": self.release - 1}[op.kind]
            steps = self._steps[key] = int(size * share * self.steps_per_activation)
        return steps

    @cached_property
    def steps_per_activation(self) -> int:
        """The least number of steps per stage unit that makes every activation change whole."""
        return lcm(*(number.denominator for number in _numbers(self.activation))) * self.release.denominator

    def as_written(self) -> dict[str, object]:
        """The costs as a file carries them; :meth:`of` reads them back."""
        written: dict[str, object] = {kind.replace("&", ""): _written(price) for kind, price in self.prices.items()}
        for name, value in (("hop", self.hop), ("release", self.release), ("activation", self.activation)):
            if value != (1 if name == "activation" else 0):
                written[name] = _written(value)
        return written


# ------------------------------------------------------------------------------------------------ reading and arithmetic


def _kind(key: str) -> str:
    """The kind that a key of the costs names: ``FB`` and ``F&B`` are the overlapped pair."""
    if key in SINGLE:
        return key
    kind = "&".join(sorted(key.replace("&", ""), key=lambda letter: "FBIW".find(letter)))
    if kind not in PAIRS:
        raise ScheduleError(
            f'costs.{_short(key)}: unknown key; expected F, I, W, B, FB, another pair such as "F&I", hop, release, activation'
        )
    return kind


def _price(value: object, where: str, *, table: bool) -> Price:
    """One number, a list of numbers, or where a table is meant a square of them."""
    if not isinstance(value, (list, tuple)):
        return exact(value, where)
    if not table:
        if not value or any(isinstance(item, (list, tuple)) for item in value):
            raise ScheduleError(f"{where}: expected one number, or a list of numbers, one per stage")
        return tuple(exact(item, f"{where}[{index}]") for index, item in enumerate(value))
    if not value or any(not isinstance(row, (list, tuple)) or len(row) != len(value) for row in value):
        raise ScheduleError(f"{where}: expected one number, or a square table of numbers")
    return tuple(tuple(exact(item, f"{where}[{i}][{j}]") for j, item in enumerate(row)) for i, row in enumerate(value))


def _complete_backward(prices: dict[str, Price]) -> None:
    """Fill in what B, I and W leave open: B = I + W, unless all three are given."""
    if "B" in prices:
        if "I" not in prices and "W" not in prices:
            prices["I"] = prices["W"] = _halved(prices["B"])
        elif "W" not in prices:
            prices["W"] = _combine(prices["B"], prices["I"], -1, "W")
        elif "I" not in prices:
            prices["I"] = _combine(prices["B"], prices["W"], -1, "I")
    else:
        prices.setdefault("I", Fraction(1))
        prices.setdefault("W", Fraction(1))
        prices["B"] = _combine(prices["I"], prices["W"], 1, "B")


def _halved(price: Price) -> Price:
    return price / 2 if isinstance(price, Fraction) else tuple(number / 2 for number in _numbers(price))


def _combine(left: Price, right: Price, sign: int, name: str) -> Price:
    """left + sign * right, per stage where either is."""
    if _even(left, right):
        result: Price = left + sign * right  # type: ignore[operator]
    else:
        length = max(len(price) for price in (left, right) if isinstance(price, tuple))
        spread = [(price if isinstance(price, tuple) else (price,) * length) for price in (left, right)]
        if len(spread[0]) != len(spread[1]):
            raise ScheduleError(f"costs: lists of {len(spread[0])} and {len(spread[1])} stages do not fit together")
        result = tuple(a + sign * b for a, b in zip(*spread, strict=True))
    if any(number < 0 for number in _numbers(result)):
        raise ScheduleError(f"costs.{name}: B is below the part that is given; expected B = I + W with neither negative")
    return result


def _even(*prices: Price) -> bool:
    """Whether none of the prices differs by stage."""
    return all(isinstance(price, Fraction) for price in prices)


def _numbers(price: Price) -> Sequence[Fraction]:
    if isinstance(price, Fraction):
        return (price,)
    return [number for row in price for number in (row if isinstance(row, tuple) else (row,))]


def _mean(price: Price) -> Fraction:
    numbers = _numbers(price)
    return sum(numbers, Fraction(0)) / len(numbers)


def _written(price: Price) -> object:
    if isinstance(price, Fraction):
        return plain(price)
    return [_written(item) for item in price]


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _split(text: str) -> list[str]:
    """Cut at the commas outside brackets."""
    return re.findall(r"(?:\[(?:[^\[\]]|\[[^\[\]]*\])*\]|[^,\[\]]|[\[\]])+", text)


def _nested(text: str, where: str) -> object:
    """A number, or a bracketed list of at most two levels."""
    if not text.startswith("["):
        return text
    if not text.endswith("]") or text.count("[") != text.count("]"):
        raise ScheduleError(f'{where}: expected a list such as [1,1,2], got "{_short(text)}"')
    return [_nested(item.strip(), where) for item in _split(text[1:-1])]
