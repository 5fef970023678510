"""
The shortest schedule of a problem, with a certificate that nothing shorter exists, or with the gap that is still open.

Bound, seeds, search, exact questions, in turn, until bound and schedule meet or the time is up. Everything that finds a
schedule hands it to replay; everything that claims infeasibility is named in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from time import monotonic

from verifier.bounds import Bound, board_bounds, board_grain
from verifier.costs import CostModel
from verifier.model import Limits, Problem, Schedule, ScheduleError, plain
from verifier.search.greedy import greedy
from verifier.search.improve import improve, require_room
from verifier.search.seeds import seeds as known_orders
from verifier.search.strings import fits_mirror, has_hops
from verifier.simulate import Simulation, simulate
from verifier.solvers import cpsat, synthesis_smt
from verifier.solvers.questions import OBJECTIVES, Answer, Question, ReplayError, measured, refusal
from verifier.solvers.race import Stop, race

SCOPES = ("auto", "mirrored", "all")
SMALL = 120
"""Starts of the largest question that is asked before any local search."""
LARGE = 600
"""Starts beyond which no solver has been seen to answer: all time goes to local search."""
FIRST_SEARCH, FIRST_QUESTION = 2.0, 4.0
"""Seconds of the first local search and the first question; the later ones take longer."""
STAGGER = 1.0
"""Seconds that CP-SAT has before Z3 joins in, for whom a question takes longer to write."""


@dataclass(frozen=True)
class Certificate:
    """
    Why nothing shorter exists.

    Attributes
    ----------
    kind
        ``bound``: the schedule meets a solver-free bound. ``two solvers`` or ``one solver``: one tick less is infeasible.
    by
        The bound, or the solvers.
    recorded
        Whether the solvers said so in an earlier search, of which only a record was read now.
    """

    kind: str
    by: tuple[str, ...]
    recorded: bool = False

    def as_json(self) -> dict[str, object]:
        """As in the JSON of a result."""
        return {"kind": self.kind, "by": list(self.by), **({"recorded": True} if self.recorded else {})}


@dataclass(frozen=True)
class Recorded:
    """
    What solvers said of a question in an earlier search.

    Attributes
    ----------
    bound
        Nothing is shorter, in the unit of the costs.
    by
        The solvers.
    scope
        Among which schedules: ``all`` or ``mirrored``.
    """

    bound: Fraction
    by: tuple[str, ...]
    scope: str


@dataclass(frozen=True)
class Synthesis:
    """
    What came of a search.

    Attributes
    ----------
    status
        ``optimal``, ``feasible`` (a gap is open), ``infeasible`` (see ``reason``) or ``unknown``.
    value, lower_bound
        Of the objective, in the unit of the costs. The bound holds for all schedules.
    bound
        The name of the argument behind ``lower_bound``.
    scope
        ``all``, or ``mirrored`` where optimality was shown among mirror-symmetric schedules only.
    scope_bound
        What holds in the scope, where that is more than ``lower_bound``.
    refuted_by
        Solvers that say: nothing is shorter than the bound in the scope. Empty where no bound is theirs.
    claim
        The question that the solvers of the certificate answered with no; ``synthesis_smt.smtlib`` writes it. None where some
        block takes no time, which that text is not made for.
    interrupted
        Whether the search was stopped from the keyboard.
    """

    status: str
    schedule: Schedule | None = None
    simulation: Simulation | None = None
    objective: str = "makespan"
    value: Fraction | None = None
    lower_bound: Fraction | None = None
    bound: str = ""
    scope: str = "all"
    scope_bound: Fraction | None = None
    certificate: Certificate | None = None
    refuted_by: tuple[str, ...] = ()
    seconds: float = 0.0
    reason: str = ""
    claim: Question | None = None
    interrupted: bool = False

    @property
    def gap(self) -> Fraction | None:
        """What is still open between schedule and bound, in the scope."""
        if self.value is None or self.lower_bound is None:
            return None
        return self.value - (self.scope_bound or self.lower_bound)

    def sentence(self) -> str:
        """
        The result in one line, for people.

        >>> Synthesis("infeasible", reason="limits.activations: the limit is 0").sentence()
        'infeasible: limits.activations: the limit is 0'
        """
        if self.value is None or self.lower_bound is None:
            return f"{self.status}: {self.reason}"
        what = f"{'makespan' if self.objective == 'makespan' else 'longest span'} {plain(self.value)}"
        if self.certificate is None:
            known = f"lower bound {plain(self.lower_bound)} ({self.bound})"
            if self.scope_bound is not None:
                known += f", {plain(self.scope_bound)} among mirror-symmetric schedules"
            return f"feasible: {what}; {known}"
        among = " among mirror-symmetric schedules" if self.scope == "mirrored" else ""
        by = " and ".join(self.certificate.by) + (", as recorded" if self.certificate.recorded else "")
        why = f"meets the bound: {by}" if self.certificate.kind == "bound" else f"nothing less by {by}"
        return f"optimal{among}: {what}; {why}"

    def as_json_certificate(self) -> dict[str, object]:
        """What a schedule file says of why nothing shorter exists."""
        written = self.as_json()
        keys = ("status", "objective", "lower_bound", "bound", "scope", "scope_bound")
        refuted = {"refuted_by": list(self.refuted_by)} if self.refuted_by else {}
        return {**{key: written[key] for key in keys}, **refuted, **(self.certificate.as_json() if self.certificate else {})}

    def as_json(self, file: str | None = None) -> dict[str, object]:
        """The object that ``synthesize --json`` prints."""
        written: dict[str, object] = {"status": self.status}
        if self.simulation is not None and self.simulation.timeline is not None:
            timeline = self.simulation.timeline
            written |= {
                "objective": self.objective,
                "makespan": plain(timeline.makespan),
                **({} if self.objective == "makespan" else {"longest_span": plain(self.value or 0)}),
                "lower_bound": plain(self.lower_bound or 0),
                "bound": self.bound,
                "scope": self.scope,
                "scope_bound": None if self.scope_bound is None else plain(self.scope_bound),
                "idle": [plain(idle) for idle in timeline.idle],
                "peak_activations": [plain(peak) for peak in self.simulation.peak_activations],
                "overlapped": list(self.simulation.overlapped),
                "certificate": self.certificate and self.certificate.as_json(),
            }
        if self.reason:
            written["reason"] = self.reason
        return {**written, "seconds": round(self.seconds, 3), "file": file}


def synthesize(
    problem: Problem,
    costs: CostModel | None = None,
    limits: Limits | None = None,
    *,
    blocks: Collection[str] | None = None,
    pairs: str = "opposite",
    scope: str = "auto",
    objective: str = "makespan",
    budget: float = 60.0,
    seed: int = 0,
    seeds: Iterable[Schedule] = (),
    recorded: Recorded | None = None,
    on_progress: Callable[[Fraction, Fraction, Fraction], None] = lambda best, bound, gap: None,
) -> Synthesis:
    """
    Find the shortest schedule.

    Parameters
    ----------
    costs, limits
        Default F = I = W = 1, FB = 3, no hop time; no limits.
    blocks
        Kinds of blocks that may be used, such as ``("F", "B")`` for a runtime that cannot split a backward; None for all that
        have a price.
    pairs
        ``opposite``, or ``any`` where both parts of a pair may be of one direction.
    scope
        Among which schedules optimality is to be shown: ``mirrored`` halves a problem that is its own mirror image, and can
        lose; ``all`` never does. ``auto`` is ``mirrored`` where a problem is its own mirror image and no overlapped pair is
        shorter than one of its ops. With hops, or fewer activations than ranks, losses are known even there; then ``auto``
        looks among all for as long again, and for the rest of the budget if that finds anything shorter.
    objective
        ``makespan``, or ``span-idle``: the longest time from a rank's first start to its last end. Of schedules that are
        equal in it the one with the lower peak of activations is kept, then the one with more overlapped pairs; that is best
        effort.
    budget
        Seconds of the wall clock.
    seed
        Of the local search.
    seeds
        Schedules of this problem that are known already; others are passed over. One that is not its own mirror image makes
        ``auto`` look among all, and is made symmetric for ``mirrored``.
    recorded
        What solvers said of this very question before; it is taken over where it covers the scope, and named as recorded.
    on_progress
        Called with best, bound and gap whenever one of them changes.

    Raises
    ------
    ScheduleError
        If costs or limits do not fit the problem, or the blocks cannot do the work. Limits that no schedule can meet are a
        result, ``infeasible``.

    Examples
    --------
    >>> found = synthesize(Problem(((0, 1, 2, 3), (3, 2, 1, 0)), (4, 4)), limits=Limits(5))
    >>> found.status, found.value, found.certificate.kind, found.certificate.by
    ('optimal', Fraction(25, 1), 'bound', ('one rank',))
    """
    costs, limits, kinds = costs or CostModel.of(), limits or Limits(), None if blocks is None else tuple(blocks)
    _check(problem, costs, limits, pairs, scope, objective)
    question = Question(problem, costs, limits, 0, kinds, pairs, objective=objective)
    known = [schedule for schedule in seeds if schedule.problem == problem]
    mirrored = _is_mirrored(question, scope, known)
    search = _Search(replace(question, mirrored=mirrored), budget, seed, on_progress)
    search.widens = mirrored and scope == "auto" and _symmetry_loses(question)
    try:
        require_room(problem, costs, limits)
    except ScheduleError as error:
        return Synthesis("infeasible", reason=str(error), seconds=search.spent)
    interrupted = False
    if recorded is not None:
        search.recall(recorded)
    try:
        search.run(known)
    except KeyboardInterrupt:
        interrupted = True
    return search.result(interrupted)


def _check(problem: Problem, costs: CostModel, limits: Limits, pairs: str, scope: str, objective: str) -> None:
    """Refuse what does not fit."""
    costs.check(problem)
    limits.check(problem.ranks)
    for name, value, known in (
        ("pairs", pairs, ("opposite", "any")),
        ("scope", scope, SCOPES),
        ("objective", objective, OBJECTIVES),
    ):
        if value not in known:
            raise ScheduleError(f"{name}: expected {' or '.join(known)}, got {value!r}")
    if scope == "mirrored" and not fits_mirror(problem, costs, limits):
        raise ScheduleError(
            "scope: mirror-symmetric schedules need a problem that is its own mirror image, and room for a micro-batch of each "
            "direction on every rank; expected all"
        )


def _is_mirrored(question: Question, scope: str, known: Iterable[Schedule]) -> bool:
    """Whether to look among mirror-symmetric schedules only."""
    if scope == "all" or not fits_mirror(question.problem, question.costs, question.limits):
        return False
    board = replace(question, mirrored=True).board
    symmetric = all(map(board.tells, known))
    return scope == "mirrored" or (symmetric and _pairs_are_long(question))


def _symmetry_loses(question: Question) -> bool:
    """Whether cases are known in which symmetry loses though pairs are long: with hops, and with less than P activations."""
    ranks = question.problem.ranks
    caps = map(question.limits.activations_on, range(ranks))
    return has_hops(question.problem, question.costs) or any(cap is not None and cap < ranks for cap in caps)


def _pairs_are_long(question: Question) -> bool:
    """Whether no overlapped pair is shorter than a single forward, input or weight backward."""
    board = question.board
    spans = {
        size: [
            board.span(rank, token)
            for rank in range(board.ranks)
            for token in board.tokens
            if len(token) == size and token[0][0] != "B" and board.span(rank, token) >= 0
        ]
        for size in (1, 2)
    }
    return min(spans[2], default=0) >= max(spans[1]) if spans[2] else True


class _Search:
    """The best schedule so far, what is known below it, and the methods that take turns."""

    def __init__(
        self,
        question: Question,
        budget: float,
        seed: int,
        on_progress: Callable[[Fraction, Fraction, Fraction], None],
    ) -> None:
        self.question, self.seed, self.on_progress = question, seed, on_progress
        self.began, self.budget = monotonic(), budget
        self.board, self.costs, self.objective = question.board, question.costs, question.objective
        self.best: Simulation | None = None
        self.value, self.taste = 0, (Fraction(0), 0)
        every = replace(question, mirrored=False)
        self.everywhere: Bound = board_bounds(every.board, self.objective)[0]
        self.here: Bound = board_bounds(self.board, self.objective)[0] if question.mirrored else self.everywhere
        self.grain = board_grain(self.board)
        self.refuted_by: tuple[str, ...] = ()
        """Solvers that say: nothing shorter than ``here``, in the scope."""
        self.recorded = False
        """Whether they said so in an earlier search."""
        self.widens = False
        """Whether symmetry was chosen for a start only, where it is known to lose."""

    # ------------------------------------------------------------------------------------------------------------- time

    @property
    def spent(self) -> float:
        """Seconds since the search began."""
        return monotonic() - self.began

    @property
    def left(self) -> float:
        """Seconds that remain."""
        return self.budget - self.spent

    @property
    def met(self) -> bool:
        """Whether schedule and bound meet in the scope."""
        return self.best is not None and self.value <= self.here.ticks

    # ------------------------------------------------------------------------------------------------------ what is known

    def offer(self, schedule: Schedule) -> None:
        """Keep a schedule if replay accepts it and it is better, or as good with fewer activations or more pairs."""
        simulation = simulate(schedule, self.costs)
        value = measured(simulation, self.objective)
        if value is None or (self.best is not None and value > self.value):
            return
        if refusal(replace(self.question, mirrored=False, horizon=value), schedule, simulation) is not None:
            return
        taste = (max(simulation.peak_activations), -sum(simulation.overlapped))
        if self.best is None or (value, taste) < (self.value, self.taste):
            better = self.best is None or value < self.value
            self.best, self.value, self.taste = simulation, value, taste
            if better:
                self._progress()

    def _progress(self) -> None:
        unit = self.costs.ticks_per_unit
        best, bound = Fraction(self.value, unit), Fraction(min(self.here.ticks, self.value), unit)
        self.on_progress(best, bound, best - bound)

    def recall(self, recorded: Recorded) -> None:
        """Take over what solvers said before, if it is more than the bounds know and holds in the scope."""
        ticks = recorded.bound * self.costs.ticks_per_unit
        covers = recorded.scope == "all" or self.question.mirrored
        if not covers or ticks.denominator != 1 or ticks <= self.here.ticks:
            return
        bound = Bound(f"{' and '.join(recorded.by)}, as recorded", ticks.numerator, "an earlier search")
        self.here, self.refuted_by, self.recorded = bound, recorded.by, True
        if recorded.scope == "all" and bound.ticks > self.everywhere.ticks:
            self.everywhere = bound

    def _refuted(self, horizon: int, who: str) -> None:
        """A solver says that no schedule of the scope has at most so many ticks."""
        self.here = Bound(who, (horizon // self.grain + 1) * self.grain, "one tick less is infeasible")
        self.refuted_by, self.recorded = (who,), False
        if not self.question.mirrored:
            self.everywhere = self.here
        self._progress()

    # ------------------------------------------------------------------------------------------------------- the methods

    def run(self, seeds: Iterable[Schedule]) -> None:
        """Methods in turn until bound and schedule meet; then among all schedules, where symmetry is known to lose."""
        self._start(seeds)
        self._take_turns()
        if self.widens and self.met and self.value > self.everywhere.ticks and self.left > 0.1:
            self._widen()

    def _take_turns(self) -> None:
        """Each method for longer than before."""
        starts = 3 * sum(self.board.counts)
        asks = starts <= LARGE
        turn = 0
        while not self.met and self.left > 0.1:
            # Compiled search needs a second to begin with; what is small is closed before that.
            if (turn or starts > SMALL) and self.left > 2:
                seconds = FIRST_SEARCH * (2 if asks else 4) ** turn
                # Where nothing is asked, what is left after a search should be worth another one, which begins anew.
                self._improve(seconds if asks or self.left > 3 * seconds else self.left, turn)
            if not self.met and self.left > 0.1 and asks:
                # What is small is closed by one long question, if at all.
                self._ask(FIRST_QUESTION * (20 if starts <= SMALL else 10) ** turn)
            elif self.left < 2:
                break
            turn += 1
        if self.met and self.refuted_by and not self.recorded and self.left > 0.1:
            self._confirm()

    def _widen(self) -> None:
        """Look for anything shorter among all schedules for as long as everything took so far; then go on where it leads."""
        value, mirrored = self.value, (self.question, self.here, self.refuted_by, self.recorded)
        seconds = max(FIRST_QUESTION, self.spent)
        self._ask_about(replace(self.question, mirrored=False), self.everywhere, (), False)
        try:
            if 3 * sum(self.board.counts) <= LARGE:
                self._answer(value - self.grain, seconds)
            elif self.left > 2:
                self._improve(seconds, 0)
        finally:
            if self.value == value and not self.met:
                self._ask_about(*mirrored)
        if not self.question.mirrored:
            self._take_turns()

    def _ask_about(self, question: Question, here: Bound, refuted_by: tuple[str, ...], recorded: bool) -> None:
        """Look in another scope from now on."""
        self.question, self.board, self.grain = question, question.board, board_grain(question.board)
        self.here, self.refuted_by, self.recorded = here, refuted_by, recorded

    def _start(self, seeds: Iterable[Schedule]) -> None:
        """What is known, the families and their variants while time permits, and list scheduling, which is always legal."""
        for schedule in seeds:
            self.offer(self.board.decode(self.board.encode(schedule), schedule.name))
        for number, (name, order) in enumerate(known_orders(self.board)):
            if self.met or (self.best is not None and self.left < 0.7 * self.budget):
                break
            self.offer(self.board.decode(order, name))
            if self.best is None and not number:
                self.offer(self.board.decode(greedy(self.board), "list scheduling"))

    def _improve(self, seconds: float, turn: int) -> None:
        """Local search; without its compiler there is none."""
        question = self.question
        try:
            found = improve(
                question.problem,
                self.costs,
                question.limits,
                seeds=[self.best.schedule] if self.best else [],
                target=self.here.ticks,
                evaluations=10**12,
                seconds=min(seconds, self.left),
                seed=self.seed + turn,
                blocks=question.blocks,
                pairs=question.pairs,
                objective=self.objective,
                mirrored=question.mirrored or None,
            )
        except ImportError:
            return
        self.offer(found.schedule)
        if found.interrupted:
            # The search took the interrupt to hand over what it had; it was meant for all of us.
            raise KeyboardInterrupt

    def _ask(self, seconds: float) -> None:
        """Ask for one tick less than the best; where that has no answer, whether half the gap can be shown to be none."""
        while not self.met and self.left > 0.1:
            status = self._answer(self.value - self.grain, seconds)
            if status == "unknown":
                break
        low, high = self.here.ticks // self.grain, self.value // self.grain - 1
        while not self.met and low < high and self.left > 0.1:
            middle = (low + high - 1) // 2
            status = self._answer(middle * self.grain, seconds / 4)
            low, high = (self.here.ticks // self.grain, high) if status == "unsat" else (low, middle)
            if status == "unknown" and high - low <= 1:
                break

    def _answer(self, horizon: int, seconds: float) -> str:
        """One question to both solvers side by side; what the first of them says is taken over."""
        question, seconds = replace(self.question, horizon=horizon), min(seconds, self.left)
        answer = race([partial(self._cpsat, question, seconds), partial(self._z3, question, seconds)], STAGGER)
        if answer.schedule is not None:
            self.offer(answer.schedule)
        if answer.status == "unsat":
            self._refuted(horizon, answer.who)
        return answer.status

    def _confirm(self) -> None:
        """Ask the other solver, too, for as long as everything took so far."""
        question, seconds = replace(self.question, horizon=self.here.ticks - self.grain), min(self.left, max(5.0, self.spent))
        other = self._z3 if self.refuted_by == (cpsat.NAME,) else self._cpsat
        answer = race([partial(other, question, seconds)])
        if answer.status == "sat":
            raise ReplayError(f"{answer.who} contradicts {self.refuted_by[0]}: {question}")
        if answer.status == "unsat":
            self.refuted_by = (*self.refuted_by, answer.who)

    def _cpsat(self, question: Question, seconds: float, stop: Stop) -> Answer:
        try:
            return cpsat.ask(question, seconds=seconds, hint=self.best.schedule if self.best else None, stop=stop)
        except ImportError:
            return Answer("unknown", cpsat.NAME, 0.0, reason="ortools is not installed")

    def _z3(self, question: Question, seconds: float, stop: Stop) -> Answer:
        return synthesis_smt.ask(question, seconds=seconds, stop=stop)

    # ------------------------------------------------------------------------------------------------------------ result

    def result(self, interrupted: bool) -> Synthesis:
        """What came of it."""
        if self.best is None:
            return Synthesis("unknown", reason="no schedule was found in time", seconds=self.spent, interrupted=interrupted)
        unit = self.costs.ticks_per_unit
        stronger = self.here.ticks > self.everywhere.ticks
        certificate = self._certificate() if self.met else None
        by_solver = certificate is not None and certificate.kind != "bound"
        return Synthesis(
            "optimal" if self.met else "feasible",
            self.best.schedule,
            self.best,
            self.objective,
            Fraction(self.value, unit),
            Fraction(self.everywhere.ticks, unit),
            self.everywhere.name,
            "mirrored" if stronger else "all",
            Fraction(self.here.ticks, unit) if stronger else None,
            certificate,
            self.refuted_by if certificate is None or by_solver else (),
            self.spent,
            claim=replace(self.question, horizon=self.value - self.grain) if by_solver and self._takes_time() else None,
            interrupted=interrupted,
        )

    def _takes_time(self) -> bool:
        """Whether every block does: others could wait for each other at one moment, which the claim does not forbid."""
        board = self.board
        return all(board.span(rank, token) != 0 for rank in range(board.ranks) for token in board.tokens)

    def _certificate(self) -> Certificate:
        """Why the best is the least: a bound for all schedules, else what solvers say, else a bound in the scope."""
        if self.question.mirrored and self.value <= self.everywhere.ticks:
            return Certificate("bound", (self.everywhere.name,))
        if self.refuted_by:
            return Certificate("two solvers" if len(self.refuted_by) > 1 else "one solver", self.refuted_by, self.recorded)
        return Certificate("bound", (self.here.name,))
