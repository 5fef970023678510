"""
The words of the product as data: ops, blocks, problems, limits, schedules, timelines.

Everything here is frozen and validated on construction. A schedule may still be *wrong* (that is what ``rules`` and
``simulate`` judge); construction only refuses what is not a schedule at all. Numbers are exact: rationals in, whole
ticks inside, rationals out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

KINDS = ("F", "I", "W")
MAX_OPS = 10_000_000
"""Ops of the largest problem that is looked at; beyond it the memory of one machine would not do."""
MAX_DIGITS = 18
"""Digits of the largest numerator or denominator that is read."""


class ScheduleError(ValueError):
    """Wrong use or unreadable input: one line that says where, what, and what would be right."""


# ---------------------------------------- numbers

_DIGITS = rf"\d{{1,{MAX_DIGITS}}}"
_NUMBER = re.compile(rf"-?{_DIGITS}(?:\.{_DIGITS})?(?:[eE][+-]?\d{{1,2}})?|-?{_DIGITS}/{_DIGITS}", re.ASCII)


def exact(value: object, where: str) -> Fraction:
    """
    The rational that a person wrote: a whole number, ``2.5``, ``"5/2"``; never negative.

    Parameters
    ----------
    value
        What was read; a float counts as the decimal that it prints as.
    where
        The place to name in an error, for example ``"costs.FB"``.

    Raises
    ------
    ScheduleError
        If it is no number, negative, or needs more than 18 digits.

    Examples
    --------
    >>> exact("5/2", "costs.FB"), exact(2.5, "costs.FB")
    (Fraction(5, 2), Fraction(5, 2))
    >>> exact("fast", "costs.FB")
    Traceback (most recent call last):
    verifier.model.ScheduleError: costs.FB: expected a number such as 3, 2.5 or "5/2", got "fast"
    """
    if isinstance(value, (int, Fraction)) and not isinstance(value, bool):
        number = Fraction(value)
    else:
        text = value.strip() if isinstance(value, str) else repr(value)
        if isinstance(value, bool) or len(text) > 60 or not _NUMBER.fullmatch(text) or re.search(r"/0+$", text):
            shown = text if len(text) <= 40 else text[:37] + "..."
            if re.fullmatch(r"-?\d+([./]\d+)?([eE][+-]?\d+)?", text, re.ASCII) and not re.search(r"/0+$", text):
                raise ScheduleError(
                    f'{where}: expected at most {MAX_DIGITS} digits in numerator and denominator, got "{shown}"'
                )
            raise ScheduleError(f'{where}: expected a number such as 3, 2.5 or "5/2", got "{shown}"')
        number = Fraction(text)
    # The size first: a whole number of thousands of digits cannot even be printed.
    if max(abs(number.numerator), number.denominator) >= 10**MAX_DIGITS:
        raise ScheduleError(f"{where}: expected at most {MAX_DIGITS} digits in numerator and denominator")
    if number < 0:
        raise ScheduleError(f"{where}: expected a number that is not negative, got {plain(number)}")
    return number


def plain(value: Fraction | int) -> int | str:
    """
    A rational as JSON carries it: whole numbers as numbers, others as text.

    >>> plain(Fraction(4, 2)), plain(Fraction(7, 2))
    (2, '7/2')
    """
    value = Fraction(value)
    return value.numerator if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def shown(value: Fraction | int) -> str:
    """
    A number for people: a decimal where a short one is exact, else a fraction.

    >>> shown(Fraction(13, 2)), shown(Fraction(1, 3)), shown(66)
    ('6.5', '1/3', '66')
    """
    value = Fraction(value)
    for digits in range(5):
        scaled = value * 10**digits
        if scaled.denominator == 1:
            whole, rest = divmod(scaled.numerator, 10**digits)
            return f"{whole}.{rest:0{digits}}" if digits else str(whole)
    return f"{value.numerator}/{value.denominator}"


def counted(number: int, one: str, many: str = "") -> str:
    """
    So many of something, for people.

    >>> counted(1, "layer"), counted(3, "layer"), counted(2, "batch", "batches")
    ('1 layer', '3 layers', '2 batches')
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"


# ---------------------------------------- ops and blocks


class Op(NamedTuple):
    """
    One job: forward, input backward or weight backward of one micro-batch on one stage.

    A named tuple rather than a dataclass, since hundreds of thousands of them are hashed.

    >>> str(Op("F", 1, 2, 0))
    "2F0'"
    """

    kind: str
    direction: int
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}" + "'" * self.direction


class Part(NamedTuple):
    """One side of a block: F, I, W, or B when the I and the W of one micro-batch run as one."""

    kind: str
    direction: int
    stage: int
    microbatch: int


_PART_ORDER = "FBIW"


@dataclass(frozen=True, slots=True)
class Block:
    """
    What a rank runs as one unit; its ops start and end together.

    Parameters
    ----------
    ops
        Each op once. An I directly followed by the W of the same stage and micro-batch is a full backward, B.

    Attributes
    ----------
    kind
        ``"F"``, ``"I"``, ``"W"``, ``"B"``, or for two parts that overlap their kinds in a fixed order: ``"F&B"``, ``"F&I"``.

    Raises
    ------
    ScheduleError
        If the ops are none, repeated, or make more than two parts.

    Examples
    --------
    >>> Block.parse("(0F7;7B3')").kind
    'F&B'
    >>> str(Block((Op("I", 0, 2, 1), Op("W", 0, 2, 1))))
    '2B1'
    """

    ops: tuple[Op, ...]
    kind: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        ops = self.ops
        if len(ops) == 1:
            kind = ops[0].kind
        else:
            if not ops or len(set(ops)) < len(ops):
                raise ScheduleError("a block holds at least one op, and each op once")
            kinds = sorted((part.kind for part in self.parts), key=_PART_ORDER.index)
            if len(kinds) > 2:
                raise ScheduleError(f"a block joins at most two parts, got {len(kinds)}")
            kind = "&".join(kinds)
        object.__setattr__(self, "kind", kind)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The one or two sides of the block, in written order, with I and W of one micro-batch joined to B."""
        parts: list[Part] = []
        ops = self.ops
        position = 0
        while position < len(ops):
            op = ops[position]
            if op.kind == "I" and ops[position + 1 : position + 2] == (Op("W", *op[1:]),):
                parts.append(Part("B", *op[1:]))
                position += 2
            else:
                parts.append(Part(*op))
                position += 1
        return tuple(parts)

    @classmethod
    def parse(cls, text: str) -> Block:
        """
        Read ``0F3``, ``7B0'`` or ``(0F7;7B3')``.

        Raises
        ------
        ScheduleError
            If the text is anything else.
        """
        match = _TOKEN.fullmatch(text)
        if match:
            return cls(_ops(match[1], match[2], match[3], match[4]))
        if text[:1] == "(" and text[-1:] == ")" and len(halves := text[1:-1].split(";")) == 2:
            matches = [_TOKEN.fullmatch(half.strip()) for half in halves]
            if matches[0] and matches[1]:
                return cls(_ops(*matches[0].groups()) + _ops(*matches[1].groups()))
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise ScheduleError(f"\"{shown}\" is not a block such as 0F3, 7B0' or (0F7;7B3')")

    def __str__(self) -> str:
        return text_of(self.parts)


_TOKEN = re.compile(r"(\d{1,9})([FIWB])(\d{1,9})('?)", re.ASCII)


def _ops(stage: str, kind: str, microbatch: str, prime: str) -> tuple[Op, ...]:
    """The ops that one written part stands for."""
    where = (1 if prime else 0, int(stage), int(microbatch))
    return (Op("I", *where), Op("W", *where)) if kind == "B" else (Op(kind, *where),)


def text_of(parts: Sequence[Part]) -> str:
    """Parts as written in a schedule file: ``0F3`` or ``(0F7;7B3')``."""
    words = [f"{part.stage}{part.kind}{part.microbatch}" + "'" * part.direction for part in parts]
    return words[0] if len(words) == 1 else f"({';'.join(words)})"


# ---------------------------------------- problems


@dataclass(frozen=True)
class Problem:
    """
    Where every stage lives and how many micro-batches flow; every family is only a placement.

    Parameters
    ----------
    placement
        ``placement[direction][stage]`` is a rank. One direction for one weight copy, two for two.
    microbatches
        ``microbatches[direction]``; direction d numbers its micro-batches from 0.

    Raises
    ------
    ScheduleError
        If a rank holds no stage, directions differ in their stages, or the problem has more than 10^7 ops.

    Examples
    --------
    >>> dualpipe = Problem(((0, 1, 2, 3), (3, 2, 1, 0)), (4, 4))
    >>> dualpipe.ranks, dualpipe.stages, dualpipe.stages_on(1)
    (4, 4, ((0, 1), (1, 2)))
    """

    placement: tuple[tuple[int, ...], ...]
    microbatches: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.placement) <= 2 or len(self.microbatches) != len(self.placement):
            raise ScheduleError(
                f"expected one or two directions, each with its micro-batches; got {len(self.placement)} placements "
                f"and {len(self.microbatches)} counts"
            )
        if len({len(row) for row in self.placement}) != 1 or not self.placement[0]:
            raise ScheduleError("placement: expected the same number of stages, at least one, in every direction")
        if any(count < 0 for count in self.microbatches) or not any(self.microbatches):
            raise ScheduleError(f"expected at least one micro-batch, got {list(self.microbatches)}")
        if 3 * self.stages * sum(self.microbatches) > MAX_OPS:
            raise ScheduleError(
                f"{self.stages} stages and {sum(self.microbatches)} micro-batches make more than {MAX_OPS} ops, the limit"
            )
        used = {rank for row in self.placement for rank in row}
        if min(used) < 0 or len(used) != max(used) + 1:
            raise ScheduleError(f"placement: expected ranks 0 to {len(used) - 1} without a gap, got {ranges(sorted(used))}")

    @property
    def directions(self) -> int:
        """Weight copies that micro-batches can flow through."""
        return len(self.placement)

    @property
    def stages(self) -> int:
        """Slices of the model."""
        return len(self.placement[0])

    @cached_property
    def ranks(self) -> int:
        """P, the pipeline devices."""
        return 1 + max(max(row) for row in self.placement)

    @property
    def total_microbatches(self) -> int:
        """M, over all directions."""
        return sum(self.microbatches)

    @cached_property
    def _stages_on(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        held: list[list[tuple[int, int]]] = [[] for _ in range(self.ranks)]
        for direction, row in enumerate(self.placement):
            for stage, rank in enumerate(row):
                held[rank].append((direction, stage))
        return tuple(map(tuple, held))

    def stages_on(self, rank: int) -> tuple[tuple[int, int], ...]:
        """The (direction, stage) pairs that a rank holds weights for."""
        return self._stages_on[rank]

    def ops(self) -> Iterator[Op]:
        """Every op that a complete schedule runs."""
        for direction, count in enumerate(self.microbatches):
            for stage in range(self.stages):
                for microbatch in range(count):
                    for kind in KINDS:
                        yield Op(kind, direction, stage, microbatch)

    def holds(self, op: Op) -> bool:
        """Whether the op belongs to this problem."""
        return (
            0 <= op.direction < self.directions
            and 0 <= op.stage < self.stages
            and 0 <= op.microbatch < self.microbatches[op.direction]
        )


def ranges(numbers: Sequence[int]) -> str:
    """
    Sorted whole numbers, runs shortened.

    >>> ranges([0, 1, 2, 5])
    '0..2, 5'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in runs)


@dataclass(frozen=True)
class Limits:
    """
    What a rank may hold, in stage units: activations of its own stages, and (direction, stage) weight copies.

    One number for all ranks, one per rank, or None where there is no limit.
    """

    activations: Fraction | int | tuple[Fraction | int, ...] | None = None
    weights: int | tuple[int, ...] | None = None

    def check(self, ranks: int) -> None:
        """
        Refuse a list that does not name every rank.

        Raises
        ------
        ScheduleError
            If a list has another length than there are ranks.
        """
        for name, value in (("activations", self.activations), ("weights", self.weights)):
            if isinstance(value, tuple) and len(value) != ranks:
                raise ScheduleError(f"limits.{name}: expected one number or {ranks}, one per rank; got {len(value)}")

    def activations_on(self, rank: int) -> Fraction | int | None:
        """The limit on live activations of one rank."""
        return self.activations[rank] if isinstance(self.activations, tuple) else self.activations

    def weights_on(self, rank: int) -> int | None:
        """The limit on weight copies of one rank."""
        return self.weights[rank] if isinstance(self.weights, tuple) else self.weights


# ---------------------------------------- schedules and timelines


@dataclass(frozen=True)
class Origin:
    """
    How the source wrote what a schedule holds, so that witnesses speak the words of the file.

    Parameters
    ----------
    microbatches
        ``microbatches[direction][k]`` is the number that the file gives to micro-batch k of that direction.
    cells
        ``cells[rank][position]`` is the file's column of that block, counted from 0, empty cells included.
    """

    microbatches: tuple[tuple[int, ...], ...] | None = None
    cells: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class Schedule:
    """
    The order in which every rank runs its blocks, without a clock.

    Parameters
    ----------
    problem
        What has to be done.
    order
        ``order[rank][position]`` is a block. Any blocks: whether they are the right ones is judged elsewhere.
    name
        For people; not part of what the schedule is.
    origin
        How the file that it was read from wrote it.

    Raises
    ------
    ScheduleError
        If there is not one row per rank.
    """

    problem: Problem
    order: tuple[tuple[Block, ...], ...]
    name: str = field(default="", compare=False)
    origin: Origin | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.order) != self.problem.ranks:
            raise ScheduleError(f"expected one row per rank, {self.problem.ranks} rows; got {len(self.order)}")

    def text(self, item: Op | Part | Block) -> str:
        """An op, part or block in the words of the source: its own micro-batch numbers where it had some."""
        parts = item.parts if isinstance(item, Block) else (Part(*item),)
        names = self.origin.microbatches if self.origin else None
        if names is None:
            return text_of(parts)
        return text_of([Part(p.kind, 0, p.stage, self.microbatch_name(p.direction, p.microbatch)) for p in parts])

    def spoken(self, op: Op) -> str:
        """
        An op by the name under which the schedule runs it: the I or W of a full backward is spoken of as B.

        >>> Schedule(Problem(((0,),), (1,)), ((Block.parse("0F0"), Block.parse("0B0")),)).spoken(Op("I", 0, 0, 0))
        '0B0'
        """
        joined = op.kind != "F" and tuple(op[1:]) in self._full_backwards
        return self.text(Part("B", *op[1:]) if joined else op)

    @cached_property
    def _full_backwards(self) -> frozenset[tuple[int, int, int]]:
        """The (direction, stage, micro-batch) whose backward runs as one B somewhere."""
        parts = (part for row in self.order for block in row if len(block.ops) > 1 for part in block.parts)
        return frozenset(part[1:] for part in parts if part.kind == "B")

    def microbatch_name(self, direction: int, microbatch: int) -> int:
        """The number that the source gives to a micro-batch; its own number where it did not say."""
        names = self.origin.microbatches if self.origin else None
        if names is None or direction >= len(names) or microbatch >= len(names[direction]):
            return microbatch
        return names[direction][microbatch]

    def place(self, rank: int, position: int) -> str:
        """
        Where a block stands, for people: ``rank 3, position 7``, or the cell where the source is a table.
        """
        cells = self.origin.cells if self.origin else None
        return f"rank {rank}, position {position}" if cells is None else f"rank {rank}, cell {cells[rank][position]}"


@dataclass(frozen=True)
class Timeline:
    """
    A schedule with a clock, in whole ticks.

    Parameters
    ----------
    schedule
        The order.
    start, duration
        ``start[rank][position]`` and ``duration[rank][position]``, in ticks.
    ticks_per_unit
        How many ticks make one unit of the costs.
    """

    schedule: Schedule
    start: tuple[tuple[int, ...], ...]
    duration: tuple[tuple[int, ...], ...]
    ticks_per_unit: int = 1

    @cached_property
    def makespan_ticks(self) -> int:
        """The last end; a schedule starts at 0 even where its first block starts later."""
        return max(
            (
                s + d
                for starts, spans in zip(self.start, self.duration, strict=True)
                for s, d in zip(starts, spans, strict=True)
            ),
            default=0,
        )

    @property
    def makespan(self) -> Fraction:
        """The last end, in the unit of the costs."""
        return Fraction(self.makespan_ticks, self.ticks_per_unit)

    @cached_property
    def idle(self) -> tuple[Fraction, ...]:
        """Per rank, makespan minus busy time: what the published bubble formulas are about."""
        return tuple(Fraction(self.makespan_ticks - sum(spans), self.ticks_per_unit) for spans in self.duration)

    @cached_property
    def span_idle(self) -> tuple[Fraction, ...]:
        """Per rank, last end minus first start minus busy time: Zero Bubble's bubble."""
        return tuple(
            Fraction(starts[-1] + spans[-1] - starts[0] - sum(spans) if starts else 0, self.ticks_per_unit)
            for starts, spans in zip(self.start, self.duration, strict=True)
        )

    @property
    def bubble_ratio(self) -> Fraction:
        """Idle over all ranks as a share of ranks times makespan; 0 where nothing takes time."""
        whole = self.makespan * len(self.start)
        return sum(self.idle, Fraction(0)) / whole if whole else Fraction(0)


# ---------------------------------------- verdicts


@dataclass(frozen=True)
class Witness:
    """
    Why something is refuted: a line that a person understands, and the place for machines.

    ``position`` counts blocks on the rank from 0; ``op`` is the op or block in the words of the source.
    """

    text: str
    rank: int | None = None
    position: int | None = None
    op: str | None = None

    def __str__(self) -> str:
        return self.text
