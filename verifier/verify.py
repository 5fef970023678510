"""
The verdict on a schedule: every rule, judged by replay and, while that is quick, by Z3 as a second way.

Two semantics meet here. ``simulate`` says what the ranks would do, ``rules`` what must hold, and Z3 answers the same questions
about all timelines of the order. Where they disagree the program stops: then one of them is wrong, and no verdict is safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

from verifier import rules
from verifier.costs import CostModel
from verifier.model import Limits, Origin, Schedule, ScheduleError, Timeline, Witness, exact, plain, shown
from verifier.simulate import Simulation, simulate

if TYPE_CHECKING:
    from verifier.messages import Program
    from verifier.solvers.smt import OrderAnswers

SOLVER_SECONDS = 60.0
"""How long Z3 may take over one order before its part of the answer is unknown; it needs a fraction of that."""

MAX_ACTIONS = 1000
"""Actions of the largest program whose messages Z3 judges too, so that each model takes it well under a second."""

NUMBERS = ("makespan", "idle", "span_idle", "bubble_ratio", "peak_activations", "weight_copies", "overlapped")
"""What a claim can be about."""


Cells = tuple[tuple[int, ...], ...] | None
"""``cells[rank][position]`` is a column of the source; None where it is no table."""


class DisagreementError(Exception):
    """Replay, rules or solver contradict each other: a defect of this program, never caught."""


@dataclass(frozen=True)
class Property:
    """
    The verdict on one rule.

    Attributes
    ----------
    status
        ``proved``, ``refuted``, ``unknown`` or ``not asked``.
    method
        ``replay``, ``z3`` or ``both``; empty where nothing was asked.
    reason
        Why it is unknown, or what was judged in place of what the source does not say.
    models
        Of ``messages``: the verdict under each communication model, which carries the witnesses.
    """

    status: str
    witnesses: tuple[Witness, ...] = ()
    method: str = "replay"
    reason: str = ""
    models: Mapping[str, Property] = field(default_factory=dict)

    def as_json(self, cells: Cells, action_cells: Cells = None) -> dict[str, object]:
        """The property as ``verify --json`` carries it, with the source's columns of blocks and of actions."""
        written: dict[str, object] = {"status": self.status}
        if self.models:
            written["models"] = {name: part.as_json(action_cells) for name, part in self.models.items()}
        else:
            written["witness"] = [_witness_json(witness, cells) for witness in self.witnesses]
        if self.method:
            written["method"] = self.method
        if self.reason:
            written["reason"] = self.reason
        return written


def _judged(witnesses: Sequence[Witness], method: str = "replay") -> Property:
    """Refuted where there is a witness, else proved."""
    return Property("refuted" if witnesses else "proved", tuple(witnesses), method)


NOT_ASKED = Property("not asked", method="")


@dataclass(frozen=True)
class Report:
    """
    All that ``verify`` found.

    Attributes
    ----------
    properties
        A :class:`Property` per rule, in the order of the rules.
    waiting
        Per rank, the most received activations and gradients that can wait unused on it, over all timelines of the order;
        None where Z3 was not asked.
    """

    schedule: Schedule
    costs: CostModel
    limits: Limits
    simulation: Simulation
    properties: Mapping[str, Property]
    waiting: tuple[int, ...] | None = None
    program: Program | None = None
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """The worst verdict of all properties."""
        return worst(part.status for part in self.properties.values())

    def as_json(self) -> dict[str, object]:
        """The object that ``verify --json`` prints."""
        cells, action_cells = _cells(self.schedule.origin), _cells(self.program.origin if self.program else None)
        properties = {name: part.as_json(cells, action_cells) for name, part in self.properties.items()}
        written = numbers(self.simulation)
        head = {"schedule": written.pop("schedule"), "status": self.status, "properties": properties}
        waiting = None if self.waiting is None else list(self.waiting)
        return {**head, **written, "waiting_inputs": waiting, "notes": list(self.notes)}


def verify(
    schedule: Schedule,
    costs: CostModel | None = None,
    limits: Limits | None = None,
    *,
    start: Sequence[Sequence[Fraction]] | None = None,
    claims: Mapping[str, object] | None = None,
    suspicion: str | None = None,
    models: Sequence[str] = (),
    program: Program | None = None,
    solver: str = "auto",
    notes: Sequence[str] = (),
) -> Report:
    """
    Judge a schedule by every rule.

    Parameters
    ----------
    schedule
        The order to judge.
    costs
        Default F = I = W = 1, FB = 3, no hop time.
    limits
        Activations and weight copies per rank; a rule without a limit is not asked.
    start
        ``start[rank][position]`` as the source gives them, in the unit of the costs. Then they are judged too: no overlap on a
        rank, every dependency met. Where that holds, numbers and claims are about them, else about the earliest timeline.
    claims
        What the source says of itself (see :data:`NUMBERS`): one number, or one per rank. Other keys are no claims.
    suspicion
        Why the source was probably misread; takes the place of the many faults that follow from it.
    models
        Communication models under which the messages are judged (:data:`verifier.messages.MODELS`).
    program
        The messages, where the source carries them; without it those of the lowering that ``export`` writes are judged.
    solver
        ``auto`` asks Z3 too up to a size where it stays quick, ``z3`` always, ``replay`` never.

    Raises
    ------
    ScheduleError
        If costs, limits or start times do not fit the schedule.
    DisagreementError
        If the ways contradict each other.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> report = verify(build_family("1f1b", 4, 8), limits=Limits(activations=3))
    >>> report.status, report.properties["dependencies"].status
    ('refuted', 'proved')
    >>> print(report.properties["activations"].witnesses[0])
    rank 0, position 3: 0F3 brings the live activations to 4; the limit is 3
    """
    costs, limits = costs or CostModel.of(), limits or Limits()
    costs.check(schedule.problem)
    limits.check(schedule.problem.ranks)
    simulation = simulate(schedule, costs)
    given = _given_timeline(schedule, costs, start) if start is not None else None
    answers = _ask_z3(schedule, costs, limits, solver)
    question = rules.Question(schedule, costs, limits, simulation.timeline)
    _agree(simulation, question, answers)
    dependencies, exclusive = _dependencies(question, simulation, given, answers), _exclusive(question, given)
    if given is not None and dependencies.status == exclusive.status == "proved":
        assert simulation.timeline is not None, "dependencies are proved"
        earliest = simulation.timeline.makespan
        notes = (*notes, f"numbers are of the given start times; at its earliest the order ends at {shown(earliest)}")
        simulation = replace(simulation, timeline=given.timeline)
    complete = _judged(rules.broken(rules.RULES["complete"], question))
    if complete.witnesses and suspicion:
        complete = _judged((Witness(suspicion),))
    pairing = _judged(rules.broken(rules.RULES["pairing"], question), _method(answers and answers.pairing))
    properties = {
        "complete": complete,
        "dependencies": dependencies,
        "exclusive": exclusive,
        "pairing": pairing,
        "activations": _activations(question, answers),
        "weights": NOT_ASKED if limits.weights is None else _judged(rules.broken(rules.RULES["weights"], question)),
        "messages": _messages(simulation, models, program, solver),
        "claims": _claims(simulation, claims or {}),
    }
    waiting = answers.waiting if answers else None
    return Report(schedule, costs, limits, simulation, properties, waiting, program, tuple(notes))


def numbers(simulation: Simulation) -> dict[str, object]:
    """
    The numbers of a schedule as JSON carries them; null from ``makespan`` on where no timeline exists.

    >>> from verifier.families import build_family
    >>> numbers(simulate(build_family("dualpipe", 4, 8)))["idle"]
    [2, 2, 2, 2]
    """
    schedule, problem, timeline = simulation.schedule, simulation.schedule.problem, simulation.timeline
    written: dict[str, object] = {
        "schedule": schedule.name,
        "ranks": problem.ranks,
        "microbatches": problem.total_microbatches,
    }
    if timeline is None:
        return {**written, **dict.fromkeys(NUMBERS)}
    return {
        **written,
        "makespan": plain(timeline.makespan),
        "idle": [plain(idle) for idle in timeline.idle],
        "span_idle": [plain(idle) for idle in timeline.span_idle],
        "bubble_ratio": plain(timeline.bubble_ratio),
        "peak_activations": [plain(peak) for peak in simulation.peak_activations],
        "weight_copies": [len(problem.stages_on(rank)) for rank in range(problem.ranks)],
        "overlapped": list(simulation.overlapped),
    }


def worst(statuses: Iterable[str]) -> str:
    """
    The worst of several verdicts; what was not asked does not count.

    >>> worst(["proved", "not asked", "unknown"])
    'unknown'
    """
    return max(statuses, key=("not asked", "proved", "unknown", "refuted").index, default="not asked")


# ------------------------------------------------------------------------------------------------------ the second way


def _ask_z3(schedule: Schedule, costs: CostModel, limits: Limits, solver: str) -> OrderAnswers | None:
    """Z3's answers about all timelines of the order; None where it is not to be asked."""
    ops = sum(len(block.ops) for row in schedule.order for block in row)
    if solver == "replay" or not ops:
        return None
    # Importing Z3 costs more than most replays, so its size limit is read only where the order may be below it.
    from verifier.solvers import MAX_OPS

    if solver == "auto" and ops > MAX_OPS:
        return None
    from verifier.solvers.smt import order_answers

    return order_answers(schedule, costs, limits, seconds=SOLVER_SECONDS)


def _method(answer: object) -> str:
    """Which ways stand behind a verdict, by whether Z3 gave one."""
    return "replay" if answer is None or answer == "unknown" else "both"


def _agree(simulation: Simulation, question: rules.Question, answers: OrderAnswers | None) -> None:
    """Stop if replay, rules and solver do not say the same."""
    timeline, schedule = simulation.timeline, question.schedule
    if timeline is not None:
        for name in ("dependencies", "exclusive"):
            for witness in rules.broken(rules.RULES[name], question):
                raise DisagreementError(f"the earliest timeline breaks the rule {name}: {witness}")
        if rules.peaks(question) != simulation.peak_activations:
            raise DisagreementError(f"peaks by time {rules.peaks(question)}, by order {simulation.peak_activations}")
    if answers is None:
        return
    said: list[tuple[str, object, object]] = []
    if answers.timeline != "unknown":
        said.append(("a timeline exists", timeline is not None, answers.timeline == "sat"))
    if answers.makespan is not None and timeline is not None:
        said.append(("least makespan in ticks", timeline.makespan_ticks, answers.makespan))
    if answers.pairing is not None:
        pairs = tuple((witness.rank, witness.position) for witness in rules.self_dependent(schedule))
        said.append(("blocks that need themselves", pairs, answers.pairing))
    if answers.peaks is not None and timeline is not None:
        said.append(("peak activations", simulation.peak_activations, answers.peaks))
    for what, replay, z3 in said:
        if replay != z3:
            raise DisagreementError(f"{what}: replay says {replay}, Z3 says {z3}. The question:\n{answers.smtlib}")


# ------------------------------------------------------------------------------------------------- property by property


def _dependencies(
    question: rules.Question, simulation: Simulation, given: rules.Question | None, answers: OrderAnswers | None
) -> Property:
    """Refuted by a circle, together with the pairs that need themselves; then by the start times of the source."""
    method = _method(answers and answers.timeline)
    if simulation.circle is not None:
        pairs, circle = tuple(rules.self_dependent(question.schedule)), simulation.circle
        # A pair that needs itself may be the circle; it is said once, with the chain.
        same = any((pair.rank, pair.position) == (circle.rank, circle.position) for pair in pairs)
        return _judged(pairs if same and "same block" in circle.text else (*pairs, circle), method)
    if given is not None:
        return _judged(rules.broken(rules.RULES["dependencies"], given), method)
    return _judged((), method)


def _exclusive(question: rules.Question, given: rules.Question | None) -> Property:
    """Only where the source carries start times: without them a rank runs its blocks in turn by definition."""
    return NOT_ASKED if given is None else _judged(rules.broken(rules.RULES["exclusive"], given))


def _activations(question: rules.Question, answers: OrderAnswers | None) -> Property:
    if question.limits.activations is None:
        return NOT_ASKED
    if question.timeline is None:
        # The peak follows from the order alone, so a rank that hangs later is still counted, block by block.
        order = question.schedule.order
        start, duration = tuple(tuple(range(len(row))) for row in order), tuple((1,) * len(row) for row in order)
        in_turn = replace(question, timeline=Timeline(question.schedule, start, duration))
        return _judged(rules.broken(rules.RULES["activations"], in_turn))
    return _judged(rules.broken(rules.RULES["activations"], question), _method(answers and answers.peaks))


def _messages(simulation: Simulation, models: Sequence[str], program: Program | None, solver: str) -> Property:
    """The messages under every named model; the source's own, or those of our lowering."""
    if not models:
        return NOT_ASKED
    from verifier.messages import lower

    reason = ""
    if program is None:
        if simulation.timeline is None:
            return Property("unknown", method="", reason="no timeline exists, so there is no lowering to judge")
        program = lower(simulation.schedule, simulation.costs)
        reason = "the source has no messages; judged on the lowering that export writes"
    parts = {model: _under_model(program, model, solver) for model in models}
    methods = {part.method for part in parts.values()}
    method = methods.pop() if len(methods) == 1 else "replay"
    return Property(worst(part.status for part in parts.values()), (), method, reason, parts)


def _under_model(program: Program, model: str, solver: str) -> Property:
    """One model by replay, and by Z3 where that is quick."""
    from verifier.messages import decide, judge, judge_marks

    witnesses, marks = judge(program, model), judge_marks(program)
    small = sum(map(len, program.actions)) <= MAX_ACTIONS
    if solver == "replay" or (solver == "auto" and not small):
        return _judged((*witnesses, *marks))
    clean = decide(program, model, SOLVER_SECONDS)
    if clean is not None and clean != (not witnesses):
        raise DisagreementError(f"messages under {model}: replay says {witnesses or 'clean'}, Z3 says clean is {clean}")
    return _judged((*witnesses, *marks), _method(clean))


def _given_timeline(schedule: Schedule, costs: CostModel, start: Sequence[Sequence[Fraction]]) -> rules.Question:
    """The timeline that the source gives, on a tick that makes its start times whole."""
    if [len(row) for row in start] != [len(row) for row in schedule.order]:
        raise ScheduleError("start: expected one time per block, in the same shape as order")
    scale = lcm(costs.ticks_per_unit, *(time.denominator for row in start for time in row))
    finer = scale // costs.ticks_per_unit
    timeline = Timeline(
        schedule,
        tuple(tuple(int(time * scale) for time in row) for row in start),
        tuple(tuple(costs.ticks(block) * finer for block in row) for row in schedule.order),
        scale,
    )
    return rules.Question(schedule, costs, Limits(), timeline)


def _claims(simulation: Simulation, claims: Mapping[str, object]) -> Property:
    """Every claimed number against the one found."""
    claimed = {name: value for name, value in claims.items() if name in NUMBERS}
    if not claimed:
        return NOT_ASKED
    found = numbers(simulation)
    witnesses = []
    for name, value in claimed.items():
        actual = found[name]
        if actual is None:
            witnesses.append(Witness(f"claims.{name}: expected {_in_words(value)}; no timeline exists"))
        elif not _equal(value, actual, f"claims.{name}"):
            witnesses.append(Witness(f"claims.{name}: expected {_in_words(value)}, found {_in_words(actual)}"))
    return _judged(witnesses)


def _equal(claimed: object, actual: object, where: str) -> bool:
    """Whether a claim says what was found; one number stands for every rank."""
    if isinstance(actual, list):
        values = claimed if isinstance(claimed, (list, tuple)) else [claimed] * len(actual)
        return len(values) == len(actual) and all(_equal(a, b, where) for a, b in zip(values, actual, strict=True))
    return not isinstance(claimed, (list, tuple)) and exact(claimed, where) == exact(actual, where)


def _in_words(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_in_words(item) for item in value) + "]"
    return str(value)


def _cells(origin: Origin | None) -> Cells:
    return origin.cells if origin else None


def _witness_json(witness: Witness, cells: Cells) -> dict[str, object]:
    written: dict[str, object] = {"text": witness.text, "rank": witness.rank, "position": witness.position, "op": witness.op}
    if cells is not None and witness.rank is not None and witness.position is not None:
        written["cell"] = cells[witness.rank][witness.position]
    return written
