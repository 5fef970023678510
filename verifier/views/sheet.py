"""Where the things of a picture stand, in inches: worked out from what is drawn, never from the fonts of a machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from operator import itemgetter
from textwrap import wrap
from unicodedata import east_asian_width

from verifier.formats.source import one_line
from verifier.measures import as_far_as_it_runs
from verifier.model import Block, Schedule, Timeline, shown
from verifier.simulate import Simulation
from verifier.verify import Report
from verifier.views.labels import costs_text, share_text
from verifier.views.palette import MEANING

_NARROWEST, _WIDEST = 6.0, 24.0
"""Inches that the rows may take; rather than make them wider, the numbers in blocks are made smaller or left out."""
NUMBER, SMALLEST = 6.5, 4.0
"""Points of the numbers in blocks."""
LETTER = 0.64
"""Width of a digit, and of letters on the average, as a share of the size of the font; no usual font is wider."""
LEFT, _RIGHT, LINE = 0.75, 0.6, 0.22
"""Inches: for the names of ranks, for peaks, for a line of text."""


@dataclass(frozen=True)
class Sheet:
    """
    What is drawn, and where in inches from the lower left corner.

    Attributes
    ----------
    rate
        Inches per tick.
    stuck
        The block that each rank waits at, where the ranks hang.
    """

    report: Report
    run: Simulation
    timeline: Timeline
    stuck: tuple[Block | None, ...]
    memory: bool
    rate: float

    @classmethod
    def of(cls, report: Report, memory: bool) -> Sheet:
        """A sheet as wide as the numbers in the usual blocks need, within limits."""
        run, stuck = as_far_as_it_runs(report.simulation)
        assert run.timeline is not None, "what comes before the first blocked blocks does not wait for them"
        wanted = _rate(run.timeline) * run.timeline.makespan_ticks
        rate = min(max(wanted, _NARROWEST), _WIDEST) / max(run.timeline.makespan_ticks, 1)
        return cls(report, run, run.timeline, stuck, memory, rate)

    @cached_property
    def name(self) -> str:
        """What the picture is called, in one line that fits."""
        return fitting(self.run.schedule.name or "schedule", int((self.width - LEFT - 0.1) / (11 * 0.72 / 72)))

    @cached_property
    def ranks(self) -> int:
        """How many rows there are."""
        return len(self.timeline.start)

    @cached_property
    def width(self) -> float:
        """Of the whole picture."""
        waiting = [f"waits at {self.run.schedule.text(block)}" for block in self.stuck if block is not None]
        beside = max([_RIGHT, *(len(text) * 6.5 * LETTER / 72 + 0.1 for text in waiting)])
        return LEFT + self.rate * self.timeline.makespan_ticks + beside

    @cached_property
    def height(self) -> float:
        """Of the whole picture."""
        return self.head + self.pitch * self.ranks + 0.36 + LINE * len(self.legend) + 0.1

    @cached_property
    def head(self) -> float:
        """What the title takes."""
        return 0.5 + LINE * len(self.facts) + LINE * len(self.refuted)

    @cached_property
    def block(self) -> float:
        """Height of a block."""
        return 0.24 if self.ranks <= 16 else 0.2 if self.ranks <= 32 else 0.16

    @cached_property
    def pitch(self) -> float:
        """From one rank to the next."""
        return self.block + (0.24 if self.memory else 0.05)

    def x(self, tick: float) -> float:
        """Where a moment is."""
        return LEFT + self.rate * tick

    def bottom(self, rank: int) -> float:
        """Where the blocks of a rank stand."""
        return self.height - self.head - self.pitch * rank - self.block

    @cached_property
    def room(self) -> int:
        """Characters of a line below the title."""
        return int((self.width - LEFT - 0.1) / (8 * LETTER / 72))

    @cached_property
    def facts(self) -> list[str]:
        """Times and costs, in lines that fit."""
        times = f"makespan {shown(self.timeline.makespan)}, bubble {share_text(self.timeline.bubble_ratio)}"
        text = (
            f"{'no timeline exists' if self.stuck else times}; costs {costs_text(self.report.costs, any(self.run.overlapped))}"
        )
        if len(text) <= self.room:
            return [text]
        return wrap(text.replace(",", ", ").replace(",  ", ", "), self.room, max_lines=4, placeholder=" ...")

    @cached_property
    def refuted(self) -> list[str]:
        """What is wrong with the schedule first of all, in lines that fit."""
        for name, part in self.report.properties.items():
            if part.witnesses:
                return wrap(f"refuted ({name}): {part.witnesses[0]}", self.room, max_lines=3, placeholder=" ...")
        return []

    @cached_property
    def legend(self) -> list[list[tuple[str, str]]]:
        """Lines of what is explained: how it is drawn, and what it means."""
        lines: list[list[tuple[str, str]]] = [[]]
        free = self.width - LEFT
        for item in _explained(self):
            if lines[-1] and free < item_width(item):
                lines.append([])
                free = self.width - LEFT
            lines[-1].append(item)
            free -= item_width(item)
        return lines


def fitting(name: str, room: int) -> str:
    """
    A name in one line as wide as so many letters; those of East Asia, and emoji, count twice.

    >>> fitting("abcdefgh", 6), fitting("\N{CJK UNIFIED IDEOGRAPH-6D41}" * 4, 6) == "\N{CJK UNIFIED IDEOGRAPH-6D41}..."
    ('abc...', True)
    """
    line = one_line(name, room)
    wide = list(accumulate(1 + (east_asian_width(letter) in "WF") for letter in line))
    return line if not wide or wide[-1] <= room else line[: sum(width <= room - 3 for width in wide)] + "..."


def _rate(timeline: Timeline) -> float:
    """Inches per tick at which the usual blocks hold their numbers; far shorter ones are no reason to widen all."""
    needs = {
        (sum(map(_number_width, numbers(timeline.schedule, block))), span)
        for row, spans in zip(timeline.schedule.order, timeline.duration, strict=True)
        for block, span in zip(row, spans, strict=True)
    }
    total, count = sum(map(sum, timeline.duration)), sum(map(len, timeline.duration))
    return max((need / span for need, span in needs if span * count * 4 >= total > 0), default=1.0)


def numbers(schedule: Schedule, block: Block) -> list[str]:
    """What is written into a block: the micro-batch of each part."""
    return [str(schedule.microbatch_name(part.direction, part.microbatch)) for part in block.parts]


def _number_width(number: str, size: float = NUMBER) -> float:
    return (len(number) * LETTER * size + 3) / 72


def _explained(sheet: Sheet) -> Iterator[tuple[str, str]]:
    """What the legend says, of that which occurs."""
    schedule = sheet.run.schedule
    parts = [part for row in schedule.order for block in row for part in block.parts]
    yield from ((kind, meaning) for kind, meaning in MEANING.items() if any(part.kind == kind for part in parts))
    problem = schedule.problem
    if problem.directions > 1:
        yield "", "dark: direction 1"
    elif problem.stages > problem.ranks:
        yield "", "dark: second stage of a rank"
    if any(sheet.run.overlapped):
        yield "pair", "overlapped"
    if not sheet.stuck:
        yield "idle", "idle"
        yield "critical", "critical path"
    if sheet.memory:
        yield "memory", "live activations"


def item_width(item: tuple[str, str]) -> float:
    """Inches that an item of the legend takes."""
    drawn, text = item
    return len(text) * 7.5 * LETTER / 72 + (0.55 if drawn else 0.2)


def critical_stretches(run: Simulation, timeline: Timeline) -> Iterator[tuple[int, int, int]]:
    """The critical path as (rank, begin, end), without a break as long as it stays on a rank."""
    for rank, path in groupby(run.critical_path, key=itemgetter(0)):
        positions = [position for _, position in path]
        last = positions[-1]
        yield rank, timeline.start[rank][positions[0]], timeline.start[rank][last] + timeline.duration[rank][last]


def held_stretches(run: Simulation, timeline: Timeline, rank: int) -> Iterator[tuple[int, int, int]]:
    """From when to when a rank holds how many steps of activations, where it holds any; each as long as that stays the same."""
    begin = end = steps = 0
    for since, until, held in _held(run, timeline, rank):
        if held != steps or since != end:
            if steps:
                yield begin, end, steps
            begin, steps = since, held
        end = until
    if steps:
        yield begin, end, steps


def _held(run: Simulation, timeline: Timeline, rank: int) -> Iterator[tuple[int, int, int]]:
    """The same, block by block and gap by gap."""
    row, starts, spans = run.schedule.order[rank], timeline.start[rank], timeline.duration[rank]
    kept = 0
    for position, block in enumerate(row):
        behind = starts[position] + spans[position]
        yield starts[position], behind, run.held_steps[rank][position]
        kept += sum(map(run.costs.activation_steps, block.ops))
        end = starts[position + 1] if position + 1 < len(row) else timeline.makespan_ticks
        if end > behind:
            yield behind, end, kept
