"""
The order encoding: all schedules within a horizon as clauses over literals ``start(op) <= t``.

Precedences are two-literal clauses where durations do not depend on a choice, so that a SAT solver moves whole windows at once.
Of one stage the forwards (backwards, weight backwards) follow each other anyway, first in, first out; so "one block at a time"
asks only that at each moment at most one such group of a rank runs. Memory is a counter at each moment.

A literal is a variable's number, or minus it for the negation; a clause is a list of literals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from itertools import combinations

from verifier.bounds import lone_forwards
from verifier.solvers.choices import Choices, Hold, Part, Start, Wait

TRUE, FALSE = 1, -1


class Encoding:
    """
    The clauses of a question.

    Attributes
    ----------
    clauses
        Satisfiable exactly if there is a schedule.
    names
        ``names[variable - 1]`` for people; empty for counters.

    Examples
    --------
    >>> from verifier.costs import CostModel
    >>> from verifier.model import Limits, Problem
    >>> from verifier.solvers.questions import Question
    >>> encoding = Encoding(Choices(Question(Problem(((0,),), (1,)), CostModel.of(), Limits(1), 3)))
    >>> encoding.dimacs().splitlines()[0]
    'p cnf 13 19'
    """

    def __init__(self, choices: Choices, implied: bool = True) -> None:
        self.choices, self.times, self.horizon = choices, choices.times, choices.horizon
        self.clauses: list[list[int]] = [[TRUE]]
        self.names = ["true"]
        self._first: dict[Start, tuple[int, int, int]] = {}
        self.chosen = [self._variable(str(choice)) for choice in choices.all]
        self.split = {place: self._split(*place) for place in choices.each}
        self._any: dict[tuple[int, ...], int] = {}
        for start in choices.starts:
            self._moments(start)
        self._one_block_for_each_part()
        for wait in choices.waits(implied):
            self._wait(wait)
        self._ends()
        if choices.question.fifo:
            self._weights_in_turn()
        for rank in range(choices.board.ranks):
            self._one_block_at_a_time(rank)
            self._activations(rank)
            if implied and choices.plain and self.times.held(rank):
                self._lone_forwards(rank)

    # --------------------------------------------------------------------------------------------------------- literals

    def _variable(self, name: str = "") -> int:
        self.names.append(name)
        return len(self.names)

    def _add(self, *literals: int) -> None:
        if TRUE not in literals:
            self.clauses.append([literal for literal in literals if literal != FALSE])

    def _split(self, stage: int, k: int) -> int:
        """Whether a backward runs as I and W apart."""
        if self.choices.may_split and self.choices.may_join:
            return self._variable(f"split[{stage}B{k}]")
        return TRUE if self.choices.may_split else FALSE

    def _moments(self, start: Start) -> None:
        """The literals ``start <= t`` between the earliest and the latest possible moment, each implying the next."""
        low, high = self._window(start)
        first = len(self.names) + 1
        for moment in range(low, high):
            self._variable(f"{start} <= {moment}")
        for moment in range(low, high - 1):
            self._add(-(first + moment - low), first + moment - low + 1)
        self._first[start] = (first, low, high)
        if low > high:
            self._add(FALSE)

    def _window(self, start: Start) -> tuple[int, int]:
        """The earliest and the latest start that the way to and from it leaves, in grains."""
        times, grain, (kind, stage, k) = self.times, self.choices.grain, start
        later = times.count[stage] - 1 - k
        before, after = (k, later) if self.choices.question.fifo else (0, 0)
        reach = times.fill[stage] + times.forward[stage] + times.round_trip[stage]
        rest = max(times.backward[stage], times.gradient[stage] + times.drain[stage])
        if kind == "F":
            low = times.fill[stage] + before * times.forward[stage]
            high = times.forward[stage] + times.round_trip[stage] + rest + after * times.forward[stage]
        else:
            low, high = reach + before * times.gradient[stage], rest + after * times.gradient[stage]
            if self.choices.plain:
                low = max(low, times.earliest_backward(times.board.home[stage][0]))
            if kind == "W":
                high = 0
        return low // grain, self.horizon - high // grain

    def by(self, start: Start, moment: int) -> int:
        """The literal that a start comes no later than a moment."""
        first, low, high = self._first[start]
        return FALSE if moment < low else TRUE if moment >= high else first + moment - low

    def moment(self, start: Start, true: Collection[int]) -> int:
        """The start that an assignment gives: the first moment whose literal is true."""
        first, low, high = self._first[start]
        return next((low + place for place in range(high - low) if first + place in true), high)

    def _one_of(self, literals: list[int]) -> int:
        """A literal that is true where one of these is."""
        if len(literals) == 1:
            return literals[0]
        key = tuple(literals)
        if key not in self._any:
            self._any[key] = self._variable()
            for literal in literals:
                self._add(-literal, self._any[key])
        return self._any[key]

    def _spans(self, parts: tuple[Part, ...], ending: bool = False) -> list[tuple[int, int]]:
        """
        The durations that a part, or one of several that exclude each other, can have: (duration, literal).

        ``ending``: only of blocks of which it is the last part, so that a pair counts once.
        """
        runs: dict[int, list[int]] = defaultdict(list)
        for part in parts:
            for index in self.choices.of[part]:
                choice = self.choices.all[index]
                if not ending or choice.parts[-1] == part:
                    runs[choice.span].append(self.chosen[index])
        return [(span, self._one_of(literals)) for span, literals in sorted(runs.items())]

    # ---------------------------------------------------------------------------------------------------------- clauses

    def _one_block_for_each_part(self) -> None:
        """A forward runs in one block; a backward as one part, or split into an input and a weight backward."""
        for (stage, k), split in self.split.items():
            for kind, absent in (("F", FALSE), ("B", split), ("I", -split), ("W", -split)):
                runs = [self.chosen[index] for index in self.choices.of[Part(kind, stage, k)]]
                self._add(absent, *runs)
                for run in runs:
                    self._add(-run, -absent)
                self._at_most_one(runs)
        for choice, chosen in zip(self.choices.all, self.chosen, strict=True):
            if len(choice.parts) == 2:
                first, second = (part.start for part in choice.parts)
                for moment in range(self.horizon + 1):
                    self._add(-chosen, -self.by(first, moment), self.by(second, moment))
                    self._add(-chosen, self.by(first, moment), -self.by(second, moment))

    def _at_most_one(self, literals: list[int]) -> None:
        """At most one of these is true."""
        if len(literals) > 5:
            self._at_most([(literal, 1) for literal in literals], 1)
            return
        for one, other in combinations(literals, 2):
            self._add(-one, -other)

    def _at_most(self, items: list[tuple[int, int]], limit: int) -> None:
        """The weights of the true literals add up to no more than a limit: a counter along the list."""
        before = [FALSE] * limit
        for literal, weight in items:
            # carried[j]: what is there when this one is added makes j + 1.
            carried = [TRUE if j < weight else before[j - weight] for j in range(limit)]
            after = [old if new == FALSE else self._variable() for old, new in zip(before, carried, strict=True)]
            for old, new, now in zip(before, carried, after, strict=True):
                if now != old:
                    self._add(-old, now)
                    self._add(-literal, -new, now)
            self._add(-literal, -before[limit - weight] if weight <= limit else FALSE)
            before = after

    def _wait(self, wait: Wait) -> None:
        """A start comes no earlier than the end of whichever of some parts runs, plus a lag."""
        conditions = [-self.split[wait.later.stage, wait.later.k]] if wait.when_split else []
        self._after(wait.later, self._spans(wait.parts), wait.parts[0].start, wait.lag, conditions)

    def _after(self, later: Start, spans: list[tuple[int, int]], begin: Start, lag: int, conditions: list[int]) -> None:
        least = spans[0][0]
        for span, literal in spans:
            unless = [*conditions, -literal] if span > least else conditions
            for moment in range(self.horizon + 1):
                late, early = self.by(later, moment), self.by(begin, moment - span - lag)
                if late != FALSE and early != TRUE:
                    self._add(*unless, -late, early)

    def _ends(self) -> None:
        """Every block ends within the horizon."""
        for choice, chosen in zip(self.choices.all, self.chosen, strict=True):
            self._add(-chosen, self.by(choice.parts[0].start, self.horizon - choice.span))

    def _weights_in_turn(self) -> None:
        """
        Weight backwards that run apart follow each other in the order of their micro-batches.

        The start of one that does not run is anything between its neighbours; so each only looks at the next.
        """
        if self.choices.may_split:
            for stage, k in self.choices.each:
                if k:
                    before, spans = Start("W", stage, k - 1), self._spans((Part("W", stage, k - 1),))
                    free = [(0, TRUE)] if spans[0][0] else []
                    self._after(Start("W", stage, k), [*free, *spans], before, 0, [])

    def _one_block_at_a_time(self, rank: int) -> None:
        """At each moment at most one group of parts runs: those of one kind and stage follow each other anyway."""
        running: dict[tuple[object, ...], dict[int, int]] = defaultdict(dict)
        for stage in self.times.held(rank):
            for k in range(self.times.count[stage]):
                for kind in "FIW" if self.choices.may_split else "FI":
                    group = (kind, stage) if self.choices.question.fifo else (kind, stage, k)
                    self._running(running[group], self.choices.ends(kind, stage, k))
        for moment in range(self.horizon):
            self._at_most_one([group[moment] for group in running.values() if moment in group])

    def _running(self, group: dict[int, int], parts: tuple[Part, ...]) -> None:
        """While one of these parts runs, so does its group."""
        start = parts[0].start
        for span, literal in self._spans(parts, ending=True):
            for moment in range(self.horizon):
                begun, ended = self.by(start, moment), self.by(start, moment - span)
                if begun != FALSE and ended != TRUE:
                    if moment not in group:
                        group[moment] = self._variable()
                    self._add(-literal, -begun, ended, group[moment])

    def _activations(self, rank: int) -> None:
        """At each moment what a rank holds is within its limit."""
        limit, holds = self.choices.limit(rank), self.choices.holds(rank)
        if holds and limit is not None:
            held = [(self._held(hold), hold.steps) for hold in holds]
            for moment in range(self.horizon):
                self._at_most([(at[moment], steps) for at, steps in held if moment in at], limit)

    def _held(self, hold: Hold) -> dict[int, int]:
        """For each moment a literal that is true while memory is held."""
        held: dict[int, int] = {}
        begin = Start("F", hold.stage, hold.k)
        for part in (Part("B", hold.stage, hold.k), Part(hold.until, hold.stage, hold.k)):
            for span, literal in self._spans((part,)):
                for moment in range(self.horizon):
                    begun, ended = self.by(begin, moment), self.by(part.start, moment - span)
                    if begun != FALSE and ended != TRUE:
                        if moment not in held:
                            held[moment] = self._variable()
                        self._add(-literal, -begun, ended, held[moment])
        return held

    def _lone_forwards(self, rank: int) -> None:
        """By the argument of ``bounds.one_rank`` only some numbers of forwards outside pairs are possible."""
        ticks = lone_forwards(self.times, rank)
        most = max(ticks)
        if min(ticks) == most:
            return
        lone = [self.chosen[i] for i, choice in self.choices.on(rank) if [part.kind for part in choice.parts] == ["F"]]
        least = min((a for a, t in ticks.items() if t <= self.horizon * self.choices.grain), default=most + 1)
        top = max((a for a, t in ticks.items() if t <= self.horizon * self.choices.grain), default=-1)
        if least > top:
            self._add(FALSE)
        elif top < most:
            self._at_most([(literal, 1) for literal in lone], top)
        if least <= top and least > 0:
            self._at_most([(-literal, 1) for literal in lone], len(lone) - least)

    # -------------------------------------------------------------------------------------------------------------- out

    def dimacs(self) -> str:
        """The clauses as SAT solvers read them."""
        lines = [f"p cnf {len(self.names)} {len(self.clauses)}"]
        lines += [" ".join(map(str, clause)) + " 0" for clause in self.clauses]
        return "\n".join(lines) + "\n"
