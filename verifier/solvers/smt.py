"""
Z3 as the second way for a given order: does a timeline exist, how long is the shortest, what can its ranks hold.

The start of every block is a variable, the precedences of ``rules`` are the constraints, and what a rank holds is counted by
time, over all timelines of the order. Nothing here is taken from ``simulate``: where the two answer the same question, each
is a check on the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from verifier.costs import CostModel
from verifier.model import Block, Limits, Op, Problem, Schedule, Witness
from verifier.rules import Precedence, earlier_ops
from verifier.solvers.asking import Script, Solver, climb

Place = tuple[int, int]
"""Rank and position of a block."""


@dataclass(frozen=True)
class LimitAnswer:
    """
    Whether any timeline brings a rank above its limit on activations.

    Attributes
    ----------
    status
        ``"sat"``: some timeline does; ``"unsat"``: none does; ``"unknown"``: time was up.
    value
        What the rank holds in the timeline found, in stage units.
    position, time
        The block that starts when it does, and its start in ticks in that timeline.
    """

    status: str
    value: Fraction | None = None
    position: int | None = None
    time: int | None = None


@dataclass(frozen=True)
class OrderAnswers:
    """
    What Z3 says about all timelines of one order. What time did not allow is ``"unknown"`` or None, never a guess.

    Attributes
    ----------
    timeline
        ``"sat"``, ``"unsat"`` or ``"unknown"``: whether the order has a timeline, whatever the (positive) durations.
    core, witnesses
        Where there is none: the (rank, position) of the blocks that wait in a circle, each for the one before it, and the
        circle in words.
    makespan
        The least makespan in ticks.
    pairing
        The overlapped blocks (rank, position) whose parts need one another by data alone, in whatever order all else runs.
    activations
        Per rank, whether its limit can be exceeded; None without a limit.
    peaks
        Per rank, the most activations held at any time of any timeline, in stage units.
    waiting
        Per rank, the most received activations and gradients, together, that wait unused at one time of some timeline. One
        waits from its arrival (its producer's end, plus the hop) until the block that reads it starts.
    smtlib
        Everything that was asked, in order and with the answers, as a script that Z3 runs.
    """

    timeline: str
    core: tuple[Place, ...] = ()
    witnesses: tuple[Witness, ...] = ()
    makespan: int | None = None
    pairing: tuple[Place, ...] | None = None
    activations: tuple[LimitAnswer, ...] | None = None
    peaks: tuple[Fraction, ...] | None = None
    waiting: tuple[int, ...] | None = None
    smtlib: str = ""


def order_answers(schedule: Schedule, costs: CostModel, limits: Limits, *, seconds: float) -> OrderAnswers:
    """
    Ask Z3 everything that it can say about a given order.

    Parameters
    ----------
    schedule
        Any order. What is missing from it holds nobody up; of an op that runs twice the first counts.
    costs, limits
        What blocks take and hold, and what a rank may hold.
    seconds
        For all questions together.

    Examples
    --------
    >>> rows = ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]
    >>> order = tuple(tuple(map(Block.parse, row.split())) for row in rows)
    >>> answers = order_answers(Schedule(Problem(((0, 1),), (2,)), order), CostModel.of(), Limits(), seconds=10)
    >>> answers.timeline, answers.makespan, answers.peaks, answers.waiting
    ('sat', 9, (Fraction(2, 1), Fraction(1, 1)), (2, 2))
    """
    order, script = _Order(schedule, costs), Script(seconds)
    pairing = _self_dependent(schedule, script)
    starts = script.solver("Starts of the blocks; a duration of 0 counts as 1 tick", order.text(order.positive))
    answer = starts.ask()
    if answer != "sat":
        core, witnesses = _circle(order, script) if answer == "unsat" else ((), ())
        return OrderAnswers(answer, core, witnesses, pairing=pairing, smtlib=script.text)
    makespan = _makespan(order, script, starts)
    starts.add("(declare-const t Int)")
    activations, peaks = _peaks(order, starts, limits)
    waiting = _waiting(order, starts)
    return OrderAnswers(answer, (), (), makespan, pairing, activations, peaks, waiting, script.text)


# ---------------------------------------------------------------------------------------------------------- constraints


class _Wait(NamedTuple):
    """A block starts no earlier than the end of another one plus a hop: because of an op, or of the rank's order alone."""

    before: Place
    after: Place
    hop: int = 0
    op: Op | None = None
    needed: Op | None = None
    precedence: Precedence | None = None

    @property
    def is_along(self) -> bool:
        """Whether the order of a rank says the same, so that people need not be told."""
        return self.before[0] == self.after[0] and self.before[1] < self.after[1]


class _Order:
    """An order as constraints between the starts of its blocks."""

    def __init__(self, schedule: Schedule, costs: CostModel) -> None:
        self.schedule, self.costs = schedule, costs
        self.blocks = {(rank, at): block for rank, row in enumerate(schedule.order) for at, block in enumerate(row)}
        self.spans = {place: costs.ticks(block) for place, block in self.blocks.items()}
        self.first: dict[Op, Place] = {}
        for place, block in self.blocks.items():
            for op in block.ops:
                self.first.setdefault(op, place)
        self.waits = list(self._waits())

    def _waits(self) -> Iterator[_Wait]:
        for (rank, at), block in self.blocks.items():
            # A block waits for the block before it on its rank.
            if at:
                yield _Wait((rank, at - 1), (rank, at))
            # And for the ops that its own ops need, unless they are the I and the W of one full backward.
            for op in block.ops:
                for needed, precedence in earlier_ops(self.schedule.problem, op):
                    before = self.first.get(needed)
                    if before is not None and not (before == (rank, at) and _inside_backward(block, op, needed)):
                        yield _Wait(before, (rank, at), self.costs.hop_ticks(before[0], rank), op, needed, precedence)

    @cached_property
    def positive(self) -> dict[Place, int]:
        """Durations as the structural questions take them: never 0, so that the blocks of a rank have an order in time."""
        return {place: max(1, span) for place, span in self.spans.items()}

    @cached_property
    def incoming(self) -> list[list[_Wait]]:
        """Per rank, the waits for messages: another stage's result, made on another rank."""
        incoming: list[list[_Wait]] = [[] for _ in self.schedule.order]
        for wait in self.waits:
            crosses = wait.precedence is not None and wait.precedence.offset != 0 and wait.before[0] != wait.after[0]
            # A message is used up by the first block that reads it.
            if crosses and wait.op is not None and self.first[wait.op] == wait.after:
                incoming[wait.after[0]].append(wait)
        return incoming

    @cached_property
    def names(self) -> dict[Place, str]:
        """The variable of each block, named by it; a block that runs again is named by its place too."""
        names: dict[Place, str] = {}
        used: set[str] = set()
        for place, block in self.blocks.items():
            name = f"start[{block}]"
            if name in used:
                name = f"start[{block} on rank {place[0]} at {place[1]}]"
            used.add(name)
            names[place] = name
        return names

    def text(self, spans: Mapping[Place, int]) -> str:
        """The starts, the waits between them, and the makespan."""
        lines = ["(declare-const makespan Int)", "(assert (>= makespan 0))"]
        for place, name in self.names.items():
            lines.append(f"(declare-const |{name}| Int)")
            lines.append(f"(assert (>= |{name}| 0))")
            lines.append(f"(assert (>= (- makespan |{name}|) {spans[place]}))")
        lines += [f"(assert {self._holds(wait, spans)}){_why(wait)}" for wait in self.waits]
        return "\n".join(lines)

    def if_assumed(self) -> str:
        """The waits again, each under an assumption with its index, for the unsatisfiable core."""
        lines = [f"(declare-const |{name}| Int)" for name in self.names.values()]
        for index, wait in enumerate(self.waits):
            lines.append(f"(declare-const wait{index} Bool)")
            lines.append(f"(assert (=> wait{index} {self._holds(wait, self.positive)})){_why(wait)}")
        return "\n".join(lines)

    def _holds(self, wait: _Wait, spans: Mapping[Place, int]) -> str:
        lag = spans[wait.before] + wait.hop
        return f"(>= (- |{self.names[wait.after]}| |{self.names[wait.before]}|) {lag})"

    def since(self, place: Place, delay: int) -> str:
        """Whether time t is at or after a block's start plus a delay."""
        return f"(>= (- t |{self.names[place]}|) {delay})"


def _inside_backward(block: Block, op: Op, needed: Op) -> bool:
    """Whether the two are the I and the W of one full backward: I comes first inside, and nothing waits."""
    return op.kind == "W" and any(part.kind == "B" and part[1:] == op[1:] == needed[1:] for part in block.parts)


def _why(wait: _Wait) -> str:
    return f" ; {wait.op} needs {wait.needed}: {wait.precedence.why}" if wait.precedence else " ; order of the rank"


# ------------------------------------------------------------------------------------------------------------ questions


def _self_dependent(schedule: Schedule, script: Script) -> tuple[Place, ...] | None:
    """The blocks whose parts cannot run as one, whatever the order of all else."""
    known: dict[Block, bool] = {}
    found = []
    for rank, row in enumerate(schedule.order):
        for position, block in enumerate(row):
            if "&" not in block.kind:
                continue
            shape = _shape(block)
            if shape not in known:
                answer = script.solver(f"Can the parts of {block} run as one?", *_jointly(schedule.problem, shape)).ask()
                if answer == "unknown":
                    return None
                known[shape] = answer == "unsat"
            if known[shape]:
                found.append((rank, position))
    return tuple(found)


def _shape(block: Block) -> Block:
    """The block with its micro-batches renumbered: precedences only ask whether two are the same."""
    numbers: dict[tuple[int, int], int] = {}
    ops = (op._replace(microbatch=numbers.setdefault((op.direction, op.microbatch), len(numbers))) for op in block.ops)
    return Block(tuple(ops))


def _jointly(problem: Problem, block: Block) -> Iterator[str]:
    """Everything that a block needs, op by op, each taking one tick; the ops of the block share their start."""

    def start(op: Op) -> str:
        return f"|start[{block}]|" if op in block.ops else f"|start[{op}]|"

    yield f"(declare-const |start[{block}]| Int)"
    needed_ops = list(block.ops)
    seen = set(needed_ops)
    for op in needed_ops:
        for needed, precedence in earlier_ops(problem, op):
            if needed not in seen:
                seen.add(needed)
                needed_ops.append(needed)
                yield f"(declare-const {start(needed)} Int)"
            if not (needed in block.ops and _inside_backward(block, op, needed)):
                yield f"(assert (>= (- {start(op)} {start(needed)}) 1)) ; {op} needs {needed}: {precedence.why}"


def _circle(order: _Order, script: Script) -> tuple[tuple[Place, ...], tuple[Witness, ...]]:
    """The blocks of a least unsatisfiable core, each waiting for the next, and the same in words."""
    import networkx as nx

    solver = script.solver("Which of the waits cannot be met together?", order.if_assumed())
    if solver.ask(assumptions=[f"wait{index}" for index in range(len(order.waits))]) != "unsat":
        return (), ()
    waits = {(wait.before, wait.after): wait for wait in (order.waits[int(name.removeprefix("wait"))] for name in solver.core)}
    # Without negative lags only a circle is contradictory, so the core holds one, and nothing else where it is least.
    ring = [waits[edge] for edge in reversed(nx.find_cycle(nx.DiGraph(list(waits))))]
    turn = min((wait.after, index) for index, wait in enumerate(ring) if not wait.is_along)[1]
    ring = ring[turn:] + ring[:turn]
    return tuple(wait.after for wait in ring), (_in_words(order, [wait for wait in ring if not wait.is_along]),)


def _in_words(order: _Order, needs: list[_Wait]) -> Witness:
    """Who needs what, round the circle; going along one rank is passed over."""
    schedule, (rank, position) = order.schedule, needs[0].after
    steps = []
    for wait in needs:
        assert wait.needed is not None
        steps.append((schedule.place(*wait.after), schedule.text(order.blocks[wait.after]), schedule.spoken(wait.needed)))
    where, blocked, needed = steps[0]
    if len(needs) > 1:
        words = [f"{place} at {block} needs {op}" for place, block, op in steps]
        text = f"{len(needs)} blocks wait in a circle: {' -> '.join(words)} -> {where} at {blocked}"
    elif needs[0].before == needs[0].after:
        text = f"{where}: {blocked} needs {needed}, which is inside the same block"
    else:
        text = f"{where}: {blocked} needs {needed}, which runs later on the same rank; move it after {needed}"
    return Witness(text, rank, position, blocked)


def _makespan(order: _Order, script: Script, starts: Solver) -> int | None:
    """The least makespan with the real durations."""
    solver = starts
    if order.positive != order.spans:
        solver = script.solver("Starts of the blocks, with durations of 0 as they are", order.text(order.spans))
        if solver.ask() != "sat":
            return None

    def reach(least: int) -> int | None:
        return -solver.value("makespan") if solver.can(f"(assert (<= makespan {-least}))") else None

    low, high = climb(reach, -solver.value("makespan"), 1)
    return -low if low + 1 == high else None


class _Moment(NamedTuple):
    """From the start of a block plus a delay on, a weight counts."""

    place: Place
    delay: int
    weight: int


class _Count:
    """
    What some moments add up to at one time, at most, over all timelines.

    ``low`` was reached, at the moment ``time`` of the timeline found; ``high`` cannot be reached.
    """

    def __init__(self, order: _Order, moments: Iterable[_Moment]) -> None:
        self.order, self.moments = order, tuple(moments)
        self.low, self.high = 0, 1 + sum(moment.weight for moment in self.moments if moment.weight > 0)
        self.time = 0
        self.starting: tuple[Place, ...] = ()

    def see(self, solver: Solver) -> None:
        """Count along the timeline that the solver found last."""
        changes: Counter[int] = Counter()
        starts = {place: solver.value(self.order.names[place]) for place in {moment.place for moment in self.moments}}
        for place, delay, weight in self.moments:
            changes[starts[place] + delay] += weight
        total = 0
        for moment in sorted(changes):
            total += changes[moment]
            if total > self.low:
                self.low, self.time = total, moment
                self.starting = tuple(place for place, start in starts.items() if start == moment)

    def at_least(self, least: int) -> str:
        """At time t the weights of the moments that have passed add up to at least so much."""
        literals, weights = [], []
        for place, delay, weight in self.moments:
            passed = self.order.since(place, delay)
            literals.append(passed if weight > 0 else f"(not {passed})")
            weights.append(str(abs(weight)))
            least += max(0, -weight)
        return f"(assert ((_ pbge {least} {' '.join(weights)}) {' '.join(literals)}))"

    def settle(self, solver: Solver) -> None:
        """Raise ``low`` and lower ``high`` until they meet or time is up."""

        def reach(least: int) -> int | None:
            if not solver.can(self.at_least(least)):
                return None
            self.see(solver)
            assert self.low >= least, "the solver's timeline reaches what it said"
            return self.low

        _, self.high = climb(reach, self.low, self.high)


def _peaks(order: _Order, starts: Solver, limits: Limits) -> tuple[tuple[LimitAnswer, ...] | None, tuple[Fraction, ...] | None]:
    """Activations held: a forward takes at its start, a backward frees at its end."""
    scale = order.costs.steps_per_activation
    counts = [_Count(order, _held(order, rank)) for rank in range(len(order.schedule.order))]
    peaks = tuple(Fraction(count.low, scale) for count in counts) if _settled(counts, starts) else None
    answers = []
    for rank, count in enumerate(counts):
        limit = limits.activations_on(rank)
        if limit is not None:
            answers.append(_against(limit * scale, count, scale))
    return tuple(answers) if answers else None, peaks


def _held(order: _Order, rank: int) -> Iterator[_Moment]:
    """What the blocks of a rank take and free, and when."""
    for position, block in enumerate(order.schedule.order[rank]):
        steps = [order.costs.activation_steps(op) for op in block.ops]
        taken, freed = sum(step for step in steps if step > 0), sum(step for step in steps if step < 0)
        if taken:
            yield _Moment((rank, position), 0, taken)
        if freed:
            yield _Moment((rank, position), order.positive[rank, position], freed)


def _against(limit: Fraction | int, count: _Count, scale: int) -> LimitAnswer:
    if count.low > limit:
        return LimitAnswer("sat", Fraction(count.low, scale), max(count.starting)[1], count.time)
    return LimitAnswer("unsat" if count.high - 1 <= limit else "unknown")


def _waiting(order: _Order, starts: Solver) -> tuple[int, ...] | None:
    """Messages that have arrived and wait unused, on each rank."""
    counts = [_Count(order, _messages(order, rank)) for rank in range(len(order.schedule.order))]
    return tuple(count.low for count in counts) if _settled(counts, starts) else None


def _settled(counts: list[_Count], starts: Solver) -> bool:
    """Settle all counts, beginning with the timeline that is known; False where one stays open."""
    for count in counts:
        count.see(starts)
    for count in counts:
        count.settle(starts)
    return all(count.low + 1 == count.high for count in counts)


def _messages(order: _Order, rank: int) -> Iterator[_Moment]:
    """A message arrives a hop after its producer ends, and waits no longer when the block that reads it starts."""
    for wait in order.incoming[rank]:
        yield _Moment(wait.before, order.positive[wait.before] + wait.hop, 1)
        yield _Moment(wait.after, 0, -1)
