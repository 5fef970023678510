"""
Answers by CP-SAT: an interval model of all schedules of a problem within a horizon.

Every start is a variable, every block that could run a literal with an interval.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

from verifier.bounds import activation_size, lone_forwards
from verifier.model import Schedule
from verifier.simulate import simulate
from verifier.solvers.choices import Choice, Choices, Hold, Part, Start, Wait
from verifier.solvers.questions import Answer, Question, believed
from verifier.solvers.race import Stop

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver, IntervalVar, IntVar

NAME = "CP-SAT"


def ask(
    question: Question,
    *,
    seconds: float = 60.0,
    hint: Schedule | None = None,
    implied: bool = True,
    stop: Stop | None = None,
) -> Answer:
    """
    Ask CP-SAT whether a schedule within the horizon exists.

    Parameters
    ----------
    seconds
        Of the wall clock; afterwards the answer is unknown.
    hint
        A schedule to start from, of the same problem; it need not be within the horizon.
    implied
        Tell the solver what follows from the arguments of ``bounds``, too.
    stop
        Ends the search from another thread.

    Raises
    ------
    ReplayError
        If replay refuses the schedule that came back: then the model is wrong.

    Examples
    --------
    >>> from verifier.costs import CostModel
    >>> from verifier.model import Limits, Problem
    >>> question = Question(Problem(((0, 1),), (2,)), CostModel.of(), Limits(2), horizon=7)
    >>> ask(question).status
    'sat'
    """
    from ortools.sat.python import cp_model

    begin = time.thread_time()
    model = Model(Choices(question), cp_model.CpModel(), implied)
    if hint is not None:
        model.hint(hint)
    solver = _solver(seconds)
    if stop is not None:
        stop.calls(solver.stop_search)
    status = solver.solve(model.model)
    spent = time.thread_time() - begin
    if status == cp_model.INFEASIBLE:
        return Answer("unsat", NAME, spent)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer("unknown", NAME, spent, reason=f"no answer in {seconds:g} s")
    return believed(question, model.schedule(solver), NAME, spent)


def _solver(seconds: float) -> CpSolver:
    """One worker: the other core is for the other solver, and a single worker is deterministic but for its time limit."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.max_time_in_seconds = max(0.01, seconds)
    parameters.catch_sigint_signal = False
    # Measured at P = 6, M = 12: half the time of the default.
    parameters.use_overload_checker_in_cumulative = True
    parameters.use_timetable_edge_finding_in_cumulative = True
    parameters.use_hard_precedences_in_cumulative = True
    return solver


class Model:
    """The constraints of a question, and the variables that a schedule is read from."""

    def __init__(self, choices: Choices, model: CpModel, implied: bool = True) -> None:
        self.choices, self.model = choices, model
        self.board, self.times, self.horizon = choices.board, choices.times, choices.horizon
        spans = choices.question.objective == "span-idle"
        # Every rank works on some chain whose first rank sees all of it, so spans of T reach no further than this.
        self.latest = self.horizon * (2 * self.board.chains + 1) if spans else self.horizon
        self.start = {start: model.new_int_var(0, self.latest, str(start)) for start in choices.starts}
        self.chosen = [model.new_bool_var(str(choice)) for choice in choices.all]
        self.split = {place: self._split(*place) for place in choices.each}
        self._one_block_for_each_part()
        for wait in choices.waits(implied):
            self._wait(wait)
        self._one_block_at_a_time()
        self._activations()
        if spans:
            self._spans()
        elif implied and choices.plain:
            self._implied()

    def _split(self, stage: int, k: int) -> IntVar:
        """Whether a backward runs as I and W apart."""
        if self.choices.may_split and self.choices.may_join:
            return self.model.new_bool_var(f"split[{stage}B{k}]")
        return self.model.new_constant(int(self.choices.may_split))

    def _runs(self, part: Part) -> list[IntVar]:
        """The literals of the blocks that a part can run in."""
        return [self.chosen[index] for index in self.choices.of[part]]

    # ------------------------------------------------------------------------------------------------------ constraints

    def _one_block_for_each_part(self) -> None:
        """A forward runs in one block; a backward as one part, or split into an input and a weight backward."""
        for (stage, k), split in self.split.items():
            for kind, present in (("F", 1), ("B", 1 - split), ("I", split), ("W", split)):
                self.model.add(sum(self._runs(Part(kind, stage, k))) == present)
        for choice, chosen in zip(self.choices.all, self.chosen, strict=True):
            if len(choice.parts) == 2:
                first, second = (self.start[part.start] for part in choice.parts)
                self.model.add(first == second).only_enforce_if(chosen)

    def _wait(self, wait: Wait) -> None:
        conditions = [self.split[wait.later.stage, wait.later.k]] if wait.when_split else []
        self._after(self.start[wait.later], wait.parts, wait.lag, conditions)

    def _after(self, later: IntVar, parts: tuple[Part, ...], lag: int, conditions: list[IntVar]) -> None:
        """``later`` comes no earlier than the end of whichever of these parts runs, plus a lag."""
        runs = [(self.choices.all[index].span, self.chosen[index]) for part in parts for index in self.choices.of[part]]
        begin, least = self.start[parts[0].start], min(span for span, _ in runs)
        self.model.add(later >= begin + least + lag).only_enforce_if(conditions)
        for span, literal in runs:
            if span > least:
                self.model.add(later >= begin + span + lag).only_enforce_if([literal, *conditions])

    def _one_block_at_a_time(self) -> None:
        """The blocks of a rank do not overlap, and end in time."""
        rows: dict[int, list[IntervalVar]] = defaultdict(list)
        for choice, chosen in zip(self.choices.all, self.chosen, strict=True):
            begin = self.start[choice.parts[0].start]
            rows[choice.rank].append(self.model.new_optional_fixed_size_interval_var(begin, choice.span, chosen, ""))
            self.model.add(begin + choice.span <= self.latest).only_enforce_if(chosen)
        for row in rows.values():
            self.model.add_no_overlap(row)

    def _activations(self) -> None:
        """What a rank holds stays within its limit: from the start of a forward until its backward lets go."""
        for rank in range(self.board.ranks):
            limit, holds = self.choices.limit(rank), self.choices.holds(rank)
            if holds and limit is not None:
                self.model.add_cumulative([self._holding(hold) for hold in holds], [hold.steps for hold in holds], limit)

    def _holding(self, hold: Hold) -> IntervalVar:
        """The time for which memory is held."""
        stage, k, split = hold.stage, hold.k, self.split[hold.stage, hold.k]
        until = self.model.new_int_var(0, self.latest, f"until[{hold.until}{stage},{k}]")
        if self.choices.may_join:
            self._after(until, (Part("B", stage, k),), 0, [split.negated()])  # type: ignore[list-item]
        if self.choices.may_split:
            self._after(until, (Part(hold.until, stage, k),), 0, [split])
        return self.model.new_interval_var(
            self.start[Start("F", stage, k)], self.model.new_int_var(0, self.latest, ""), until, ""
        )

    def _spans(self) -> None:
        """Every rank is done within the horizon after its own start."""
        first = [self.model.new_int_var(0, self.latest, f"first[{rank}]") for rank in range(self.board.ranks)]
        for choice, chosen in zip(self.choices.all, self.chosen, strict=True):
            begin = self.start[choice.parts[0].start]
            self.model.add(first[choice.rank] <= begin).only_enforce_if(chosen)
            self.model.add(begin + choice.span <= first[choice.rank] + self.horizon).only_enforce_if(chosen)

    # ---------------------------------------------------------------------------------------------------------- implied

    def _implied(self) -> None:
        """
        What follows for each rank by the arguments of :func:`verifier.bounds.one_rank`.

        The solver would find little of it by itself: with it, what took minutes takes seconds.
        """
        for rank in range(self.board.ranks):
            if self.times.held(rank):
                self._fill_and_drain(rank)
                self._in_flight(rank)

    def _work(self, rank: int) -> list[tuple[IntVar, Choice]]:
        return [(self.chosen[index], choice) for index, choice in self.choices.on(rank)]

    def _fill_and_drain(self, rank: int) -> None:
        """Blocks with a backward lie behind its earliest start, blocks with a forward before the drain of the last one."""
        times, grain, stages = self.times, self.choices.grain, self.times.held(rank)
        begin, end = times.head(rank) // grain, self.horizon - times.tail(rank) // grain
        backward = times.earliest_backward(rank) // grain
        forward = self.horizon - min(times.round_trip[stage] + times.finish(stage) for stage in stages) // grain
        for stage in stages:
            for k in range(times.count[stage]):
                self.model.add(self.start[Start("I", stage, k)] >= backward)
        rows = [(chosen * choice.span, {part.kind for part in choice.parts}) for chosen, choice in self._work(rank)]
        self.model.add(sum(time for time, _ in rows) <= end - begin)
        self.model.add(sum(time for time, kinds in rows if kinds != {"F"}) <= end - backward)
        self.model.add(sum(time for time, kinds in rows if "F" in kinds) <= forward - begin)
        self.model.add(sum(time for time, kinds in rows if len(kinds) > 1) <= max(0, forward - backward))

    def _in_flight(self, rank: int) -> None:
        """Round trips and blocks fit into the rank's time, once for every forward outside pairs, and within its memory."""
        from ortools.sat.python import cp_model

        times, grain, stages = self.times, self.choices.grain, self.times.held(rank)
        time_of_rank = self.horizon - (times.head(rank) + times.tail(rank)) // grain
        trips = {stage: times.count[stage] * times.round_trip[stage] // grain for stage in stages}
        rows, limit = self._work(rank), self.choices.limit(rank)
        lone = sum(chosen for chosen, choice in rows if [part.kind for part in choice.parts] == ["F"])
        work = sum(chosen * choice.span for chosen, choice in rows)
        self.model.add(sum(trips.values()) + work <= time_of_rank * lone)
        possible = [a for a, ticks in lone_forwards(times, rank).items() if ticks <= self.horizon * grain]
        forwards = sum(times.count[stage] for stage in stages)
        if min(lone_forwards(times, rank)) < forwards:
            self.model.add_linear_expression_in_domain(lone, cp_model.Domain.from_values(possible))
        if limit is not None:
            held = sum(trips[stage] * activation_size(self.board, stage) for stage in stages)
            during = sum(chosen * choice.span * sum(map(self._holds, choice.parts)) for chosen, choice in rows)
            self.model.add(held + during <= limit * time_of_rank)

    def _holds(self, part: Part) -> int:
        """Steps of memory that a part holds while it runs."""
        return self.choices.kept(part.stage) if part.kind == "W" else activation_size(self.board, part.stage)

    # -------------------------------------------------------------------------------------------- schedules in and out

    def schedule(self, solver: CpSolver) -> Schedule:
        """The schedule of a solution."""
        pairs = zip(self.choices.all, self.chosen, strict=True)
        return self.choices.schedule(
            (choice, solver.value(self.start[choice.parts[0].start])) for choice, chosen in pairs if solver.value(chosen)
        )

    def hint(self, schedule: Schedule) -> None:
        """Start the search from a schedule."""
        timeline = simulate(schedule, self.choices.question.costs).timeline
        if timeline is None:
            return
        index = {choice[:3]: number for number, choice in enumerate(self.choices.all)}
        hinted = set()
        for rank, token, parts, begin in self.choices.played(schedule, timeline):
            if (rank, token, parts) in index:
                hinted.add(index[rank, token, parts])
                for part in parts:
                    self.model.add_hint(self.start[part.start], min(begin, self.latest))
        for number, literal in enumerate(self.chosen):
            self.model.add_hint(literal, number in hinted)
