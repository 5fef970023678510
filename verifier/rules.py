"""
What a legal schedule is, as data: precedences between ops, and the named rules.

The checker evaluates the rules on a schedule or its timeline; solvers build their constraints from :data:`PRECEDENCES`;
witnesses name the rule that is broken. This module knows nothing of ``simulate``: it says what must hold, not what happens.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from verifier.costs import CostModel
from verifier.model import Block, Limits, Op, Part, Problem, Schedule, Timeline, Witness, plain, ranges

MAX_WITNESSES = 10
"""Witnesses that a rule names before it only counts the rest."""


@dataclass(frozen=True)
class Precedence:
    """
    An op of kind ``later`` on stage s starts no earlier than the end of the op of kind ``earlier`` on stage s + ``offset``
    of the same direction and micro-batch, plus the hop between their ranks. No precedence where that stage does not exist.
    """

    later: str
    earlier: str
    offset: int
    why: str


PRECEDENCES = (
    Precedence("F", "F", -1, "it reads the activation"),
    Precedence("I", "F", 0, "it reads the saved activation"),
    Precedence("I", "I", +1, "it reads the gradient"),
    Precedence("W", "I", 0, "it reads the gradient of the output"),
)
"""All dependencies between ops. A loss is no op: the last stage's I needs its own F, as every I does."""


def earlier_ops(problem: Problem, op: Op) -> Iterator[tuple[Op, Precedence]]:
    """
    The ops that must end before an op starts, each with the precedence that says so.

    >>> problem = Problem(((0, 1),), (1,))
    >>> [str(earlier) for earlier, _ in earlier_ops(problem, Op("I", 0, 0, 0))]
    ['0F0', '1I0']
    """
    for precedence in PRECEDENCES:
        stage = op.stage + precedence.offset
        # An op of a stage that does not exist needs nothing: it is reported under `complete`.
        if precedence.later == op.kind and 0 <= stage < problem.stages and op.stage < problem.stages:
            yield Op(precedence.earlier, op.direction, stage, op.microbatch), precedence


@dataclass(frozen=True)
class Question:
    """What is judged: a schedule, the costs and limits it is judged under, and where it has one, a timeline."""

    schedule: Schedule
    costs: CostModel
    limits: Limits
    timeline: Timeline | None = None


@dataclass(frozen=True)
class Rule:
    """A named rule: its statement, and what breaks it."""

    name: str
    statement: str
    breaches: Callable[[Question], Iterator[Witness]]


def broken(rule: Rule, question: Question) -> tuple[Witness, ...]:
    """
    The witnesses that a rule is broken, at most :data:`MAX_WITNESSES` and then how many more; none where it holds.

    Examples
    --------
    >>> problem = Problem(((0,),), (2,))
    >>> schedule = Schedule(problem, (tuple(map(Block.parse, ["0F0", "0B0", "0F1", "0I1"])),))
    >>> for witness in broken(RULES["complete"], Question(schedule, CostModel.of(), Limits())):
    ...     print(witness)
    0W1 is missing; expected once, on rank 0
    """
    found = rule.breaches(question)
    witnesses = list(islice(found, MAX_WITNESSES))
    rest = sum(1 for _ in found)
    if rest:
        witnesses.append(Witness(f"... and {rest} more like these"))
    return tuple(witnesses)


# ------------------------------------------------------------------------------------------------------------- complete


def _complete(question: Question) -> Iterator[Witness]:
    schedule, problem = question.schedule, question.schedule.problem
    seen: dict[Op, tuple[int, int]] = {}
    for rank, row in enumerate(schedule.order):
        for position, block in enumerate(row):
            if any(_misplaced(schedule, op, rank, seen.get(op)) for op in block.ops):
                for part in block.parts:
                    for text, fault in _faults(schedule, part, rank, seen):
                        yield Witness(f"{schedule.place(rank, position)}: {fault}", rank, position, text)
            for op in block.ops:
                seen.setdefault(op, (rank, position))
    yield from _missing(schedule, problem, seen)


def _faults(schedule: Schedule, part: Part, rank: int, seen: Mapping[Op, tuple[int, int]]) -> Iterator[tuple[str, str]]:
    """What is wrong with a part at this place, and with what of it: a full backward is one thing where all of it is wrong."""
    ops = [Op(kind, *part[1:]) for kind in ("IW" if part.kind == "B" else part.kind)]
    whole = schedule.text(part)
    shared = {_misplaced(schedule, op, rank, seen.get(op), whole) for op in ops}
    names = [whole] if len(shared) == 1 else map(schedule.text, ops)
    for op, name in zip(ops, names, strict=False):
        fault = _misplaced(schedule, op, rank, seen.get(op), name)
        if fault:
            yield name, fault


def _there_are(count: int, thing: str, ending: str = "s") -> str:
    """How many of a thing there are."""
    return f"there is 1 {thing}" if count == 1 else f"there are {count} {thing}{ending}"


def _misplaced(schedule: Schedule, op: Op, rank: int, before: tuple[int, int] | None, name: str = "") -> str:
    """What is wrong with an op, by the name given, at this place: out of range, on another's rank, or there already."""
    problem = schedule.problem
    if not problem.holds(op):
        if op.direction >= problem.directions:
            return f"{name} belongs to a second direction; the placement has one"
        if op.stage >= problem.stages:
            return f"{name}: stage {op.stage} is out of range; {_there_are(problem.stages, 'stage')}"
        return f"{name}: micro-batch {schedule.microbatch_name(op.direction, op.microbatch)} is out of range; " + (
            _there_are(problem.microbatches[op.direction], "micro-batch", "es")
            + (f" in direction {op.direction}" if problem.directions > 1 else "")
        )
    if problem.placement[op.direction][op.stage] != rank:
        return f"{name} runs on rank {rank}; stage {op.stage} lives on rank {problem.placement[op.direction][op.stage]}"
    if before is not None:
        block = schedule.order[before[0]][before[1]]
        inside = f"in {schedule.text(block)} " if schedule.text(block) != name else ""
        return f"{name} runs a second time; it ran {inside}at {schedule.place(*before)}"
    return ""


def _missing(schedule: Schedule, problem: Problem, seen: dict[Op, tuple[int, int]]) -> Iterator[Witness]:
    """Absent ops: whole micro-batches together, then op by op."""
    present = Counter((op.direction, op.microbatch) for op in seen if problem.holds(op))
    whole = 3 * problem.stages
    for direction, count in enumerate(problem.microbatches):
        partly = [m for m in range(count) if 0 < present[direction, m] < whole]
        absent = [m for m in range(count) if not present[direction, m]]
        if absent:
            names = [schedule.microbatch_name(direction, m) for m in absent]
            ops = len(absent) * problem.stages
            stages = f"all {problem.stages} stages" if problem.stages > 1 else "stage 0"
            yield Witness(
                f"micro-batch{'es' if len(names) > 1 else ''} {ranges(sorted(names))} of {problem.total_microbatches} "
                f"missing on {stages} ({ops} F and {ops} backwards)"
            )
        for microbatch in partly:
            for stage in range(problem.stages):
                kinds = [kind for kind in "FIW" if Op(kind, direction, stage, microbatch) not in seen]
                # A micro-batch that lost its whole backward is said once, as B.
                for kind in ["B" if kinds[-2:] == ["I", "W"] else "", *kinds]:
                    if kind and not (kind in "IW" and kinds[-2:] == ["I", "W"]):
                        name = schedule.text(Part(kind, direction, stage, microbatch))
                        rank = problem.placement[direction][stage]
                        yield Witness(f"{name} is missing; expected once, on rank {rank}", rank, None, name)


# --------------------------------------------------------------------------------------------- dependencies, exclusive


def _dependencies(question: Question) -> Iterator[Witness]:
    """On a timeline: every op starts no earlier than the ends of the ops it needs, plus the hop."""
    timeline, schedule, problem = question.timeline, question.schedule, question.schedule.problem
    if timeline is None:
        return
    finer = timeline.ticks_per_unit // question.costs.ticks_per_unit
    first: dict[Op, tuple[int, int]] = {}
    for rank, row in enumerate(schedule.order):
        for position, block in enumerate(row):
            for op in block.ops:
                first.setdefault(op, (rank, position))
    for rank, row in enumerate(schedule.order):
        for position, block in enumerate(row):
            start = timeline.start[rank][position]
            for op in block.ops:
                for earlier, precedence in earlier_ops(problem, op):
                    place = first.get(earlier)
                    if place is None or (place == (rank, position) and _joined(block, op, earlier)):
                        continue
                    hop = question.costs.hop_ticks(place[0], rank) * finer
                    ready = timeline.start[place[0]][place[1]] + timeline.duration[place[0]][place[1]] + hop
                    if start < ready:
                        yield Witness(
                            f"{schedule.place(rank, position)}: {schedule.text(op)} starts at {_time(timeline, start)}, before "
                            f"{_time(timeline, ready)} when {schedule.text(earlier)} can reach it ({precedence.why})",
                            rank,
                            position,
                            schedule.text(block),
                        )


def _joined(block: Block, op: Op, earlier: Op) -> bool:
    """Whether the two are the I and the W of one full backward, inside which I comes first."""
    if op.kind != "W":
        return False
    return any(part.kind == "B" and part[1:] == op[1:] == earlier[1:] for part in block.parts)


def _exclusive(question: Question) -> Iterator[Witness]:
    """On a timeline: no block of a rank starts before the block before it ends."""
    timeline, schedule = question.timeline, question.schedule
    if timeline is None:
        return
    for rank, (starts, spans) in enumerate(zip(timeline.start, timeline.duration, strict=True)):
        free = 0
        for position, (start, span) in enumerate(zip(starts, spans, strict=True)):
            if start < free:
                text = schedule.text(schedule.order[rank][position])
                yield Witness(
                    f"{schedule.place(rank, position)}: {text} starts at {_time(timeline, start)}, "
                    f"while the rank is busy until {_time(timeline, free)}",
                    rank,
                    position,
                    text,
                )
            free = max(free, start + span)


def _time(timeline: Timeline, ticks: int) -> int | str:
    return plain(Fraction(ticks, timeline.ticks_per_unit))


# -------------------------------------------------------------------------------------------------------------- pairing


def _pairing(question: Question) -> Iterator[Witness]:
    """In every overlapped block neither part needs the other, and the costs price that kind of pair."""
    schedule = question.schedule
    for rank, row in enumerate(schedule.order):
        for position, block in enumerate(row):
            if "&" in block.kind and not question.costs.prices_kind(block.kind):
                text, key = schedule.text(block), block.kind.replace("&", "")
                fault = f"the costs give no price for {block.kind}; give costs.{key} or run the two apart"
                yield Witness(f"{schedule.place(rank, position)}: {text}: {fault}", rank, position, text)
    yield from self_dependent(schedule)


def self_dependent(schedule: Schedule) -> Iterator[Witness]:
    """Every overlapped block one part of which needs the other, with the chain of needs."""
    for rank, row in enumerate(schedule.order):
        for position, block in enumerate(row):
            chain = self_need(schedule.problem, block)
            if chain:
                text, words = schedule.text(block), " needs ".join(schedule.spoken(op) for op in chain)
                yield Witness(
                    f"{schedule.place(rank, position)}: {text}: {words}, which is inside the same block", rank, position, text
                )


def self_need(problem: Problem, block: Block) -> tuple[Op, ...]:
    """
    The chain by which one part of a block needs the other, through any ranks; empty where neither does.

    Precedences never leave a micro-batch, so only parts of one micro-batch can need each other.

    >>> problem = Problem(((0, 1),), (3,))
    >>> [str(op) for op in self_need(problem, Block.parse("(0F2;0B2)"))]
    ['0I2', '1I2', '1F2', '0F2']
    """
    if "&" not in block.kind:
        return ()
    first, second = block.parts
    if (first.direction, first.microbatch) != (second.direction, second.microbatch):
        return ()
    for part, other in ((first, second), (second, first)):
        inside, wanted = _ops_of(part), _ops_of(other)
        chain = _chain(problem, inside, wanted)
        if chain:
            return chain
    return ()


def _ops_of(part: Part) -> tuple[Op, ...]:
    return tuple(Op(kind, *part[1:]) for kind in ("IW" if part.kind == "B" else part.kind))


def _chain(problem: Problem, sources: Iterable[Op], wanted: tuple[Op, ...]) -> tuple[Op, ...]:
    """The shortest chain of needs from one of the sources to one of the wanted ops, found breadth first."""
    chains: list[tuple[Op, ...]] = [(op,) for op in sources]
    seen = set(sources)
    for chain in chains:
        for earlier, _ in earlier_ops(problem, chain[-1]):
            if earlier in wanted:
                # Through ops outside the block where there are any: that is what people can check.
                return _with_detour(problem, chain, earlier)
            if earlier not in seen:
                seen.add(earlier)
                chains.append((*chain, earlier))
    return ()


def _with_detour(problem: Problem, chain: tuple[Op, ...], wanted: Op) -> tuple[Op, ...]:
    """Replace a direct need of the own forward by the way of the data, over the later stages and back."""
    if len(chain) > 1 or (chain[0].kind, wanted.kind) != ("I", "F") or chain[0].stage == problem.stages - 1:
        return (*chain, wanted)
    _, direction, stage, microbatch = chain[0]
    above = range(stage + 1, problem.stages)
    back = tuple(Op("I", direction, s, microbatch) for s in above)
    return (*chain, *back, *(Op("F", direction, s, microbatch) for s in reversed(above)), wanted)


# -------------------------------------------------------------------------------------------------- activations, weights


def _activations(question: Question) -> Iterator[Witness]:
    """On a timeline: at no time does a rank hold more activations than its limit, counted by time."""
    timeline, schedule = question.timeline, question.schedule
    if timeline is None:
        return
    for rank, row in enumerate(schedule.order):
        limit = question.limits.activations_on(rank)
        if limit is None:
            continue
        scale = question.costs.steps_per_activation
        over = [(position, held) for position, held in _live(question, timeline, rank) if held > limit * scale]
        if over:
            # The first block over the limit is the one to move; the most that is held says how far off the rank is.
            position, held = over[0]
            most = max(held for _, held in over)
            text, more = schedule.text(row[position]), f" and later {plain(Fraction(most, scale))}" if most > held else ""
            reached = f"{text} brings the live activations to {plain(Fraction(held, scale))}{more}"
            yield Witness(
                f"{schedule.place(rank, position)}: {reached}; the limit is {plain(limit)}",
                rank,
                position,
                text,
            )


def peaks(question: Question) -> tuple[Fraction, ...]:
    """Most activations that each rank holds at any time of the timeline, in stage units."""
    timeline = question.timeline
    assert timeline is not None
    scale = question.costs.steps_per_activation
    return tuple(
        Fraction(max((0, *(held for _, held in _live(question, timeline, rank)))), scale)
        for rank in range(len(question.schedule.order))
    )


def _live(question: Question, timeline: Timeline, rank: int) -> Iterator[tuple[int, int]]:
    """Per forward in order of time: the block that starts it, and what the rank then holds, in steps."""
    costs = question.costs
    events: list[tuple[int, int, int, int]] = []
    for position, block in enumerate(question.schedule.order[rank]):
        start = timeline.start[rank][position]
        end = start + timeline.duration[rank][position]
        taken = freed = 0
        for op in block.ops:
            steps = costs.activation_steps(op)
            taken, freed = (taken + steps, freed) if op.kind == "F" else (taken, freed + steps)
        # At one moment the blocks of a rank follow each other in their order, and a block takes before it frees.
        if taken:
            events.append((start, position, 0, taken))
        if freed:
            events.append((end, position, 1, freed))
    held = 0
    for _, position, frees, steps in sorted(events):
        held += steps
        if not frees:
            yield position, held


def _weights(question: Question) -> Iterator[Witness]:
    """Every rank holds at most its limit of (direction, stage) weight copies."""
    problem = question.schedule.problem
    for rank in range(problem.ranks):
        limit, held = question.limits.weights_on(rank), problem.stages_on(rank)
        if limit is not None and len(held) > limit:
            noun = "copy" if len(held) == 1 else "copies"
            copies = ", ".join(f"{stage}{chr(39) * direction}" for direction, stage in held)
            yield Witness(f"rank {rank} holds {len(held)} weight {noun} (stages {copies}); the limit is {limit}", rank)


def replication(problem: Problem) -> tuple[int, ...]:
    """
    On how many ranks each stage's weights lie.

    >>> replication(Problem(((0, 1), (1, 0)), (1, 1)))
    (2, 2)
    """
    holders: dict[int, set[int]] = defaultdict(set)
    for row in problem.placement:
        for stage, rank in enumerate(row):
            holders[stage].add(rank)
    return tuple(len(holders[stage]) for stage in range(problem.stages))


RULES = {
    rule.name: rule
    for rule in (
        Rule(
            "complete",
            "F, I and W of every direction, stage and micro-batch exactly once, on the rank of the placement",
            _complete,
        ),
        Rule("dependencies", "every op starts after the ops it needs have ended and their results have arrived", _dependencies),
        Rule("exclusive", "one block at a time per rank", _exclusive),
        Rule(
            "pairing",
            "the parts of an overlapped block do not need one another, and the costs price that kind of block",
            _pairing,
        ),
        Rule("activations", "live activations of a rank within its limit", _activations),
        Rule("weights", "weight copies of a rank within its limit", _weights),
    )
}
