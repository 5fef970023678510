"""
Bounds on a given order for uncertain costs: every cost is a range, and the bound holds whatever is measured inside.

The arguments
-------------
*Makespan*. It is the longest path through the order and the data, over lags that are durations and hops. No lag is negative,
so a longer duration never shortens a path: the greatest makespan is the one under the greatest costs, the upper corner. That
holds also where every single block takes its own time within the range of its kind. As a second way Z3 is asked whether some
real durations within their ranges break the timeline of the upper corner; its waits come from ``rules``, not from the
simulation. Where none do, that timeline is one for all costs, and the earliest timelines end no later.

*Bubble*. The bubble is 1 - busy / (P makespan). For costs common to a kind, busy is linear in the ranges' values and the
makespan is convex, being a maximum of sums. So the costs at which the bubble is at most c, busy >= (1 - c) P makespan, form a
convex set. If it holds all corners of the box then it holds the box: the greatest bubble is at a corner. All are simulated.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from verifier.costs import PAIRS, CostModel
from verifier.model import Block, Op, Schedule, ScheduleError, Timeline, exact, plain
from verifier.rules import earlier_ops
from verifier.simulate import simulate
from verifier.solvers import MAX_OPS
from verifier.theorems.proof import PROVED, REFUTED, UNKNOWN, Proof, written_order
from verifier.verify import verify

MAKESPAN, BUBBLE = "makespan-at-most", "bubble-at-most"
STATEMENTS = {
    MAKESPAN: "whatever each block takes within the range of its kind, the makespan is at most X",
    BUBBLE: "whatever each kind of block takes within its range, the bubble is at most the share X of ranks times makespan",
}
MAX_RANGES = 10
"""A box with k ranges has 2^k corners."""
SECONDS = 60.0
_RANGE = re.compile(r"([^,=\[\]]+?)\.\.([^,=\[\]]+)")


@dataclass(frozen=True)
class Box:
    """
    Costs of which some are ranges: the text that a person wrote, cut at its ranges.

    Examples
    --------
    >>> box = Box.parse("F=9..11,I=10,W=[8..9,8..9]")
    >>> box.at(0), box.at(1)
    ('F=9,I=10,W=[8,8]', 'F=11,I=10,W=[9,9]')
    >>> len(list(box.corners()))
    8
    """

    text: str
    ranges: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str) -> Box:
        """
        Read costs such as ``F=9..11,I=10,FB=24..28``.

        Raises
        ------
        ScheduleError
            If a range is empty, or the costs are not monotone in it.
        """
        ranges = tuple((low.strip(), high.strip()) for low, high in _RANGE.findall(text))
        for low, high in ranges:
            if exact(low, f"costs: {low}..{high}") > exact(high, f"costs: {low}..{high}"):
                raise ScheduleError(f"costs: {low}..{high}: expected the smaller number first")
        box = cls(text, ranges)
        if ranges:
            _refuse_what_is_not_monotone(box)
        return box

    def at(self, *choice: int) -> str:
        """The costs at a corner, written: 0 for the low end of a range and 1 for the high one, once for all or one for each."""
        ends = iter(choice * len(self.ranges) if len(choice) == 1 else choice)
        return _RANGE.sub(lambda found: found[1 + next(ends)].strip(), self.text)

    def corners(self) -> Iterator[str]:
        """The costs at every corner, each once."""
        for choice in product((0, 1), repeat=len(self.ranges)):
            yield self.at(*choice) if choice else self.text


def _refuse_what_is_not_monotone(box: Box) -> None:
    """Where raising one cost lowers a duration, the upper corner is not the worst."""
    keys = set(re.findall(r"(\w+(?:&\w+)?)\s*=", box.text))
    low, high = CostModel.parse(box.at(0)), CostModel.parse(box.at(1))
    backward = any(low.prices[kind] != high.prices[kind] for kind in "BIW")
    if backward and "B" in keys and len(keys & {"I", "W"}) == 1:
        raise ScheduleError(
            "costs: of B, I and W in ranges, two do not give the third; expected I and W, B alone, or all three"
        )
    low, high = CostModel.parse(box.at(0)), CostModel.parse(box.at(1))
    if (low.release, low.activation) != (high.release, high.activation):
        raise ScheduleError("costs: release and activation take no time; expected one value, no range")
    for kind in PAIRS:
        written = keys & {kind, kind.replace("&", ""), kind[::-1], kind[::-1].replace("&", "")}
        if not written or isinstance(low.prices[kind], tuple):
            continue
        for part in kind.split("&"):
            if isinstance(low.prices[part], tuple) and low.prices[part] != high.prices[part]:
                raise ScheduleError(
                    f"costs.{kind}: one price for pairs of uneven stages whose costs are ranges; expected a table, one per pair"
                )


def prove_at_most(name: str, bound: Fraction, schedule: Schedule, box: Box) -> Proof:
    """
    Prove a bound for all costs in a box, or refute it with the worst of them.

    Parameters
    ----------
    name
        ``makespan-at-most`` or ``bubble-at-most``.
    bound
        In the unit of the costs, or as a share.

    Raises
    ------
    ScheduleError
        If the costs do not fit the schedule, or the box has too many corners to look at each.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> box = Box.parse("F=9..11,I=10..14,W=8..9,FB=24..28")
    >>> proof = prove_at_most("makespan-at-most", Fraction(800), build_family("dualpipe", 8, 20), box)
    >>> proof.status, proof.numbers["worst"], proof.numbers["best"]
    ('proved', 677, 558)
    """
    began = time.perf_counter()
    proof = _illegal(schedule, box) or (_makespan if name == MAKESPAN else _bubble)(bound, schedule, box)
    statement = f"{schedule.name}: {sentence(name, bound)}"
    proof = replace(proof, theorem=name, statement=statement, domain=box.text, seconds=time.perf_counter() - began)
    if "worst" not in proof.numbers:
        return proof
    evidence = {
        "kind": name,
        "schedule": written_order(schedule),
        "costs": box.text,
        "bound": plain(bound),
        "status": proof.status,
    }
    return replace(proof, evidence={**evidence, **proof.evidence})


def sentence(name: str, bound: Fraction) -> str:
    """
    What is said of a schedule.

    Examples
    --------
    >>> sentence("bubble-at-most", Fraction(1, 10))
    'whatever each kind of block takes within its range, the bubble is at most the share 1/10 of ranks times makespan'
    """
    return STATEMENTS[name].replace("share X", f"share {plain(bound)}").replace("at most X", f"at most {plain(bound)}")


def _illegal(schedule: Schedule, box: Box) -> Proof | None:
    """A verdict where the schedule itself cannot be what the statement is about."""
    for end in (0, 1):
        CostModel.parse(box.at(end)).check(schedule.problem)
    report = verify(schedule, CostModel.parse(box.at(1)), solver="replay")
    for name in ("complete", "dependencies", "pairing"):
        if witnesses := report.properties[name].witnesses:
            return _proof(REFUTED, 1, 0, f"the schedule itself is not legal: {witnesses[0]}")
    return None


def _proof(status: str, conditions: int, discharged: int, *witness: str, **numbers: object) -> Proof:
    return Proof("", "", "", status, conditions, discharged, 0.0, witness, numbers)


def _timeline(schedule: Schedule, costs: str) -> Timeline:
    timeline = simulate(schedule, CostModel.parse(costs)).timeline
    assert timeline is not None, "what hangs was refused"
    return timeline


# ---------------------------------------- makespan


def _makespan(bound: Fraction, schedule: Schedule, box: Box) -> Proof:
    """The makespan at both ends of the box; the upper one is what is to be bounded."""
    low, high = _timeline(schedule, box.at(0)), _timeline(schedule, box.at(1))
    numbers = {"worst": plain(high.makespan), "worst_costs": box.at(1), "best": plain(low.makespan)}
    if high.makespan > bound:
        text = f"at {box.at(1)} the makespan is {plain(high.makespan)}, {plain(high.makespan - bound)} above"
        return _proof(REFUTED, 1, 0, text, **numbers)
    if 3 * schedule.problem.stages * schedule.problem.total_microbatches > MAX_OPS:
        return _proof(PROVED, 1, 1, **numbers, second_way="none: too many ops for Z3")
    conditions, question = _question(bound, high, box)
    answer = _asked(question)
    if answer == "unknown":
        return _proof(UNKNOWN, conditions, 0, "Z3 gave up on the timeline of the greatest costs", **numbers)
    assert answer == "unsat", "the simulation and the rules disagree on what a block waits for"
    proof = _proof(PROVED, conditions, conditions, **numbers, second_way="Z3, for all real durations in their ranges")
    return replace(proof, evidence={"smt2": question})


def _asked(question: str) -> str:
    """What Z3 says."""
    import z3

    solver = z3.SimpleSolver()
    solver.set("timeout", int(1000 * SECONDS))
    solver.from_string(question)
    return str(solver.check())


def _question(bound: Fraction, timeline: Timeline, box: Box) -> tuple[int, str]:
    """How many waits there are; whether durations in their ranges break one, or the bound, at fixed starts, in SMT-LIB 2."""
    low, high = CostModel.parse(box.at(0)), CostModel.parse(box.at(1))
    schedule, unit = timeline.schedule, timeline.ticks_per_unit
    place = {op: (rank, at) for rank, row in enumerate(schedule.order) for at, block in enumerate(row) for op in block.ops}
    start = [[Fraction(ticks, unit) for ticks in row] for row in timeline.start]
    ranges, late = [], []
    for rank, row in enumerate(schedule.order):
        for at, block in enumerate(row):
            takes = f"|{block} takes|"
            ranges.append(f"(declare-const {takes} Real)")
            ranges.append(f"(assert (<= {_number(low.duration(block))} {takes} {_number(high.duration(block))}))")
            late.append(f"(> (+ {_number(start[rank][at])} {takes}) {_number(bound)})")
            for before, hop in _waits(schedule, high, place, rank, at):
                earlier, begin = schedule.order[before[0]][before[1]], start[before[0]][before[1]] + hop
                late.append(f"(< {_number(start[rank][at])} (+ {_number(begin)} |{earlier} takes|))")
    lines = [
        _comment(f"{schedule.name}: {sentence(MAKESPAN, bound)}"),
        _comment(f"where: {box.text}"),
        "; checks: 1; unsat confirms: no durations make a block or the end later than under the greatest costs",
        "(set-logic QF_LRA)",
        *ranges,
        "(assert (or",
        *(f"        {text}" for text in late),
        "        false))",
        "(check-sat)",
    ]
    return len(late), "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    """One line, whatever a file calls its schedule: a second line would be a command to the solver."""
    return "; " + "".join(letter if letter.isprintable() else " " for letter in text)


def _number(value: Fraction) -> str:
    """A real number, not negative."""
    return f"{value.numerator}.0" if value.denominator == 1 else f"(/ {value.numerator}.0 {value.denominator}.0)"


def _waits(
    schedule: Schedule, costs: CostModel, place: dict[Op, tuple[int, int]], rank: int, at: int
) -> Iterator[tuple[tuple[int, int], Fraction]]:
    """What a block waits for: the block before it on its rank, and those that make what it reads, each with its hop."""
    block = schedule.order[rank][at]
    if at:
        yield (rank, at - 1), Fraction(0)
    for op in block.ops:
        for needed, _ in earlier_ops(schedule.problem, op):
            before = place[needed]
            if before != (rank, at) or not _inside_backward(block, op):
                yield before, Fraction(costs.hop_ticks(before[0], rank), costs.ticks_per_unit)


def _inside_backward(block: Block, op: Op) -> bool:
    """Whether the op is the W of a full backward in this block, whose I comes first inside."""
    return op.kind == "W" and any(part.kind == "B" and part[1:] == op[1:] for part in block.parts)


# ---------------------------------------- bubble


def _bubble(bound: Fraction, schedule: Schedule, box: Box) -> Proof:
    """The bubble at every corner."""
    if len(box.ranges) > MAX_RANGES:
        raise ScheduleError(f"costs: {len(box.ranges)} ranges make too many corners; expected at most {MAX_RANGES}")
    corners = list(box.corners())
    bubbles = [_timeline(schedule, corner).bubble_ratio for corner in corners]
    worst = max(bubbles)
    at = corners[bubbles.index(worst)]
    numbers = {"worst": plain(worst), "worst_costs": at, "corners": len(corners)}
    if worst <= bound:
        return _proof(PROVED, len(corners), len(corners), **numbers)
    held = sum(bubble <= bound for bubble in bubbles)
    return _proof(REFUTED, len(corners), held, f"at {at} the bubble is {plain(worst)}, {plain(worst - bound)} above", **numbers)
