"""
What a solver has to choose: which blocks run, and when; and what their starts have to wait for.

Solver-independent: a question as data, from which each solver's module translates. The precedences are those of
:data:`verifier.rules.PRECEDENCES`. Times are in grains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from verifier.bounds import PLAIN_KINDS, activation_size
from verifier.model import Schedule, Timeline
from verifier.rules import PRECEDENCES
from verifier.search.strings import Token
from verifier.solvers.questions import Question


class Start(NamedTuple):
    """The start of a forward, a backward or a weight backward: kind F, I or W. A full backward starts as its I."""

    kind: str
    stage: int
    k: int

    def __str__(self) -> str:
        return f"start[{self.stage}{self.kind}{self.k}]"


class Part(NamedTuple):
    """A part of the k-th micro-batch of a stage of a chain; kind is F, B, I or W."""

    kind: str
    stage: int
    k: int

    @property
    def start(self) -> Start:
        """When it starts."""
        return Start("I" if self.kind == "B" else self.kind, self.stage, self.k)


class Choice(NamedTuple):
    """A block that a rank may run: one part, or two that start together."""

    rank: int
    token: Token
    parts: tuple[Part, ...]
    span: int

    def __str__(self) -> str:
        return f"run[{'+'.join(f'{part.stage}{part.kind}{part.k}' for part in self.parts)}]"


class Wait(NamedTuple):
    """
    A start comes no earlier than the end of whichever of these parts runs, plus a lag.

    ``when_split``: asked only where the backward of the later start is split.
    """

    later: Start
    parts: tuple[Part, ...]
    lag: int
    when_split: bool = False


class Hold(NamedTuple):
    """Memory that a rank holds from the start of a forward to the end of its I (or B), or of its W (or B)."""

    stage: int
    k: int
    until: str
    steps: int


class Choices:
    """
    A question as data for solvers.

    Examples
    --------
    >>> from verifier.costs import CostModel
    >>> from verifier.model import Limits, Problem
    >>> choices = Choices(Question(Problem(((0, 1),), (1,)), CostModel.of(), Limits(1), 6, blocks=("F", "B")))
    >>> [str(choice) for choice in choices.all], [str(wait.later) for wait in choices.waits()]
    (['run[0F0]', 'run[0B0]', 'run[1F0]', 'run[1B0]'], ['start[0I0]', 'start[0I0]', 'start[1F0]', 'start[1I0]'])
    """

    def __init__(self, question: Question) -> None:
        self.question, self.board, self.times = question, question.board, question.times
        self.grain, self.horizon = question.grain, question.horizon // question.grain
        kinds = {part for kind in self.board.kinds for part in kind.split("&")}
        self.may_split, self.may_join = {"I", "W"} <= kinds, "B" in kinds
        self.all = [
            Choice(rank, token, parts, self.board.span(rank, token) // self.grain)
            for rank in range(self.board.ranks)
            for token in self.board.tokens
            if self.board.span(rank, token) >= 0
            for parts in self._parts(token, self.board.chain[rank])
        ]
        self.of: dict[Part, list[int]] = defaultdict(list)
        for index, choice in enumerate(self.all):
            for part in choice.parts:
                self.of[part].append(index)

    def _parts(self, token: Token, stages: tuple[int, ...]) -> Iterator[tuple[Part, ...]]:
        """The micro-batches that a token can stand for."""
        if any(kind in "IW" and not self.may_split for kind, _ in token):
            return
        sides = [[Part(kind, stages[slot], k) for k in range(self.times.count[stages[slot]])] for kind, slot in token]
        if len(sides) == 1:
            yield from ((part,) for part in sides[0])
            return
        length, alike = self.board.problem.stages, token[0] == token[1]
        for a in sides[0]:
            for b in sides[1]:
                # The forward and the backward of one micro-batch need one another.
                needed = a.k == b.k and a.stage // length == b.stage // length and {a.kind, b.kind} == {"F", "B"}
                if not needed and (a.k < b.k or not alike):
                    yield a, b

    @cached_property
    def each(self) -> list[tuple[int, int]]:
        """Every stage of every chain, with every micro-batch."""
        return [(stage, k) for chain in self.times.chains for stage in chain for k in range(self.times.count[stage])]

    @property
    def starts(self) -> Iterator[Start]:
        """All starts."""
        return (Start(kind, stage, k) for stage, k in self.each for kind in ("FIW" if self.may_split else "FI"))

    def on(self, rank: int) -> Iterator[tuple[int, Choice]]:
        """The choices of a rank, with their index."""
        return ((index, choice) for index, choice in enumerate(self.all) if choice.rank == rank)

    @property
    def plain(self) -> bool:
        """Whether the arguments of ``bounds`` about one rank apply."""
        return PLAIN_KINDS.issuperset(self.board.kinds)

    # ------------------------------------------------------------------------------------------------------------ waits

    def waits(self, implied: bool = True) -> Iterator[Wait]:
        """
        What every start waits for.

        ``implied`` adds what follows from the rest; it cannot change an answer, only its time.
        """
        yield from self._precedences()
        if self.question.fifo:
            yield from self._first_in_first_out()
            if implied:
                yield from self._turns()

    def ends(self, kind: str, stage: int, k: int) -> tuple[Part, ...]:
        """The parts one of whose ends is the end of an op: an input backward ends with a full backward, too."""
        return (Part("I", stage, k), Part("B", stage, k)) if kind == "I" else (Part(kind, stage, k),)

    def _precedences(self) -> Iterator[Wait]:
        """An op starts no earlier than the ops that it needs have ended and their results have hopped."""
        for stage, k in self.each:
            chain = self.times.chain_of(stage)
            for precedence in PRECEDENCES:
                other, later = stage + precedence.offset, Start(precedence.later, stage, k)
                if later.kind == "W":
                    if self.may_split:
                        yield Wait(later, (Part("I", stage, k),), 0, when_split=True)
                elif other in chain:
                    lags = {-1: self.times.up, 0: [0] * (stage + 1), 1: self.times.down}[precedence.offset]
                    yield Wait(later, self.ends(precedence.earlier, other, k), lags[other] // self.grain)

    def _first_in_first_out(self) -> Iterator[Wait]:
        """The forwards of a stage run in the order of their micro-batches, and so do the backwards."""
        for stage, k in self.each:
            if k:
                for kind in "FI":
                    yield Wait(Start(kind, stage, k), self.ends(kind, stage, k - 1), 0)

    def _turns(self) -> Iterator[Wait]:
        """
        So many forwards of a stage fit in memory before a backward: the next waits for one.

        While a micro-batch is under way on a stage it is so on the earlier stages of its chain, too.
        """
        for rank in range(self.board.ranks):
            limit = self.limit(rank)
            for stage in self.times.held(rank):
                below = (other for other in self.times.held(rank) if other <= stage and other in self.times.chain_of(stage))
                size = sum(activation_size(self.board, other) for other in below)
                if limit is not None and size:
                    for k in range(limit // size, self.times.count[stage]):
                        yield Wait(Start("F", stage, k), self.ends("I", stage, k - limit // size), 0)

    # ----------------------------------------------------------------------------------------------------------- memory

    def limit(self, rank: int) -> int | None:
        """The limit on activations of a rank in whole steps."""
        limit = self.board.limits.activations_on(rank)
        return None if limit is None else int(limit * self.board.costs.steps_per_activation)

    def holds(self, rank: int) -> list[Hold]:
        """What a rank holds, where all of it together is more than its limit; else nothing has to be counted."""
        limit, found = self.limit(rank), []
        for stage in self.times.held(rank):
            size = activation_size(self.board, stage)
            kept = self.kept(stage)
            for k in range(self.times.count[stage]):
                found += [Hold(stage, k, until, steps) for until, steps in (("W", kept), ("I", size - kept)) if steps]
        return [] if limit is None or sum(hold.steps for hold in found) <= limit else found

    def kept(self, stage: int) -> int:
        """Steps of an activation that are held until its W, rather than its I, has ended."""
        return int(activation_size(self.board, stage) * (1 - self.board.costs.release))

    # -------------------------------------------------------------------------------------------- schedules in and out

    def schedule(self, chosen: Iterable[tuple[Choice, int]]) -> Schedule:
        """The schedule of chosen blocks and their starts, with first-in-first-out micro-batch numbers."""
        rows: dict[int, list[tuple[int, int, int, int, Token]]] = defaultdict(list)
        for choice, begin in chosen:
            first = choice.parts[0]
            # Blocks without duration at one moment: forwards go up the stages, backwards down.
            tie = first.stage if first.kind == "F" else -first.stage
            rows[choice.rank].append((begin, begin + choice.span, "FBIW".index(first.kind), tie, choice.token))
        return self.board.decode(tuple(tuple(row[-1] for row in sorted(rows[rank])) for rank in range(self.board.ranks)))

    def played(self, schedule: Schedule, timeline: Timeline) -> Iterator[tuple[int, Token, tuple[Part, ...], int]]:
        """The blocks of a schedule: rank, token, parts, start."""
        finer = self.grain * timeline.ticks_per_unit // self.question.costs.ticks_per_unit
        for rank, row in enumerate(self.board.encode(schedule)):
            seen: dict[Start, int] = defaultdict(int)
            split: dict[int, list[int]] = defaultdict(list)
            for position, token in enumerate(row):
                parts = []
                for kind, slot in token:
                    stage = self.board.chain[rank][slot]
                    counter = Part(kind, stage, 0).start
                    k = split[stage][seen[counter]] if kind == "W" else seen[counter]
                    seen[counter] += 1
                    if kind == "I":
                        split[stage].append(k)
                    parts.append(Part(kind, stage, k))
                yield rank, token, tuple(parts), timeline.start[rank][position] // finer
