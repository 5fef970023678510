"""
Synthesis against what one would write first, on the same problems in one run: a plain interval model in CP-SAT, a plain model
of integer starts and disjunctions in Z3, and a rule of thumb for one weight copy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from time import perf_counter

import pytest

from tests.questions import COLUMNS, bidirectional
from verifier.costs import CostModel
from verifier.families import placement
from verifier.model import Block, Limits, Op, Problem, Schedule
from verifier.search.improve import improve
from verifier.simulate import simulate
from verifier.solvers import cpsat, synthesis_smt
from verifier.solvers.questions import Question
from verifier.synthesize import synthesize
from verifier.verify import verify

PATIENCE = 12.0
"""Seconds that every method has for a problem; one that is not done by then counts with all of them."""


def one_copy(ranks: int, microbatches: int) -> Problem:
    return Problem(placement("sequential", ranks), (microbatches,))


CASES = {
    "one copy P=4 M=8, cap 3": (one_copy(4, 8), CostModel.of(), Limits(3), 31),
    "two copies P=2 M=6, FB=5": (bidirectional(2, 6), CostModel.of(**COLUMNS[2]), Limits(3), None),
    "two copies P=4 M=6, FB=3": (bidirectional(4, 6), CostModel.of(**COLUMNS[0]), Limits(5), None),
    "two copies P=4 M=8, FB=5": (bidirectional(4), CostModel.of(**COLUMNS[2]), Limits(5), 47),
    "two copies P=4 M=8, 10,12,9,26": (bidirectional(4), CostModel.of(**COLUMNS[3]), Limits(5), 245),
}


# ------------------------------------------------------------------------------------------------------ the plain models


@dataclass(frozen=True)
class Model:
    """What a plain model is about: ops, where and how long they are, which may be joined, who reads whom."""

    problem: Problem
    costs: CostModel

    @property
    def ops(self) -> Iterator[Op]:
        for direction, count in enumerate(self.problem.microbatches):
            for kind, stage, number in product("FIW", range(self.problem.stages), range(count)):
                yield Op(kind, direction, stage, number)

    def rank(self, op: Op) -> int:
        return self.problem.placement[op.direction][op.stage]

    def ticks(self, *ops: Op) -> int:
        return self.costs.ticks(Block(ops))

    @property
    def joins(self) -> Iterator[tuple[Op, Op, Op]]:
        """Forwards with input and weight backwards of the other direction on their rank."""
        for first, second in product(self.ops, self.ops):
            opposite = (first.kind, second.kind) == ("F", "I") and first.direction != second.direction
            if opposite and self.rank(first) == self.rank(second):
                yield first, second, second._replace(kind="W")

    @property
    def reads(self) -> Iterator[tuple[Op, Op, int]]:
        """Who makes what whom reads, and the hop between them."""
        for op in self.ops:
            needs = {
                "F": [op._replace(stage=op.stage - 1)] if op.stage else [],
                "I": [
                    op._replace(kind="F"),
                    *([op._replace(stage=op.stage + 1)] if op.stage + 1 < self.problem.stages else []),
                ],
                "W": [op._replace(kind="I")],
            }[op.kind]
            for need in needs:
                yield need, op, self.costs.hop_ticks(self.rank(need), self.rank(op))


def by_intervals(problem: Problem, costs: CostModel, limits: Limits) -> int | None:
    """The least makespan by a textbook model in CP-SAT; None where its time runs out."""
    from ortools.sat.python import cp_model

    plain, model = Model(problem, costs), cp_model.CpModel()
    far = sum(plain.ticks(op) for op in plain.ops)
    start = {op: model.new_int_var(0, far, "") for op in plain.ops}
    end = {op: model.new_int_var(0, far, "") for op in plain.ops}
    joined = {ops: model.new_bool_var("") for ops in plain.joins}
    alone = {op: model.new_bool_var("") for op in plain.ops}
    rows: list[list[object]] = [[] for _ in range(problem.ranks)]
    for op in plain.ops:
        model.add_exactly_one(alone[op], *(literal for ops, literal in joined.items() if op in ops))
        span = model.new_optional_fixed_size_interval_var(start[op], plain.ticks(op), alone[op], "")
        model.add(end[op] == start[op] + plain.ticks(op)).only_enforce_if(alone[op])
        rows[plain.rank(op)].append(span)
    for ops, literal in joined.items():
        rows[plain.rank(ops[0])].append(
            model.new_optional_fixed_size_interval_var(start[ops[0]], plain.ticks(*ops), literal, "")
        )
        for op in ops:
            model.add(start[op] == start[ops[0]]).only_enforce_if(literal)
            model.add(end[op] == start[op] + plain.ticks(*ops)).only_enforce_if(literal)
    for need, op, hop in plain.reads:
        model.add(start[op] >= end[need] + hop).only_enforce_if(
            [literal.Not() for ops, literal in joined.items() if need in ops and op in ops]
        )
    for rank, row in enumerate(rows):
        model.add_no_overlap(row)
        held = [op for op in plain.ops if op.kind == "F" and plain.rank(op) == rank]
        spans = [
            model.new_interval_var(start[op], model.new_int_var(0, far, ""), end[op._replace(kind="W")], "") for op in held
        ]
        model.add_cumulative(spans, [1] * len(spans), int(limits.activations))
    makespan = model.new_int_var(0, far, "")
    model.add_max_equality(makespan, list(end.values()))
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = PATIENCE, 2
    return int(solver.objective_value) if solver.solve(model) == cp_model.OPTIMAL else None


def by_disjunctions(problem: Problem, costs: CostModel, limits: Limits) -> int | None:
    """The least makespan by integer starts and disjunctions in Z3; None where its time runs out."""
    import z3

    solver = z3.Optimize()
    least = solver.minimize(_disjunctions(solver, Model(problem, costs), limits))
    return solver.lower(least).as_long() if solver.check() == z3.sat else None


def below_by_disjunctions(question: Question) -> str:
    """Whether the same model has a schedule within the horizon."""
    import z3

    solver = z3.Solver()
    solver.add(_disjunctions(solver, Model(question.problem, question.costs), question.limits) <= question.horizon)
    return str(solver.check())


def _disjunctions(solver, plain: Model, limits: Limits):
    """The makespan, constrained by the problem."""
    import z3

    start = {op: z3.Int(f"start[{op}]") for op in plain.ops}
    partner: dict[Op, list[tuple[z3.BoolRef, tuple[Op, ...]]]] = {op: [] for op in plain.ops}
    for ops in plain.joins:
        literal = z3.Bool(f"joined[{ops}]")
        solver.add(z3.Implies(literal, z3.And(*(start[op] == start[ops[0]] for op in ops[1:]))))
        for op in ops:
            partner[op].append((literal, ops))
    end = {}
    for op in plain.ops:
        solver.add(start[op] >= 0, z3.AtMost(*(literal for literal, _ in partner[op]), 1) if partner[op] else True)
        length: object = z3.IntVal(plain.ticks(op))
        for literal, ops in partner[op]:
            length = z3.If(literal, plain.ticks(*ops), length)
        end[op] = start[op] + length

    def together(one: Op, other: Op) -> list[z3.BoolRef]:
        return [literal for literal, ops in partner[one] if other in ops]

    for need, op, hop in plain.reads:
        solver.add(z3.Or(start[op] >= end[need] + hop, *together(need, op)))
    for one, other in combinations(plain.ops, 2):
        if plain.rank(one) == plain.rank(other):
            solver.add(z3.Or(end[one] <= start[other], end[other] <= start[one], *together(one, other)))
    for op in plain.ops:
        if op.kind == "F":
            live = [
                z3.If(z3.And(start[other] <= start[op], end[other._replace(kind="W")] > start[op]), 1, 0)
                for other in plain.ops
                if other.kind == "F" and plain.rank(other) == plain.rank(op)
            ]
            solver.add(z3.Sum(live) <= int(limits.activations))
    makespan = z3.Int("makespan")
    solver.add(*(makespan >= time for time in end.values()))
    solver.set("timeout", int(1000 * PATIENCE))
    return makespan


def ours(problem: Problem, costs: CostModel, limits: Limits) -> int | None:
    found = synthesize(problem, costs, limits, scope="all", budget=PATIENCE)
    return int(found.value * costs.ticks_per_unit) if found.status == "optimal" else None


def timed(method, *asked: object) -> tuple[float, int | None]:
    begin = perf_counter()
    optimum = method(*asked)
    return perf_counter() - begin if optimum is not None else PATIENCE, optimum


@pytest.fixture(autouse=True, scope="module")
def _imported_and_compiled():
    """What every run needs once is not measured."""
    improve(bidirectional(2, 4), CostModel.of(**COLUMNS[2]), Limits(3), evaluations=1000)
    synthesize(bidirectional(2, 2), CostModel.of(**COLUMNS[2]), Limits(3))


def test_time_to_a_proved_optimum():
    total = dict.fromkeys((ours, by_intervals, by_disjunctions), 0.0)
    print(f"\n{'seconds to a proved optimum (all schedules)':45}{'ours':>8}{'CP-SAT':>10}{'Z3':>10}")
    for name, (problem, costs, limits, known) in CASES.items():
        cells = []
        for method in total:
            seconds, optimum = timed(method, problem, costs, limits)
            total[method] += seconds
            known = known or optimum
            assert optimum in (None, known)
            cells.append(f"{'over ' if optimum is None else ''}{seconds:.1f}")
        print(f"{name:45}{cells[0]:>8}{cells[1]:>10}{cells[2]:>10}")
    ratios = {method.__name__: total[method] / total[ours] for method in total}
    print(f"in all: CP-SAT takes {ratios['by_intervals']:.1f} times as long, Z3 {ratios['by_disjunctions']:.1f} times")
    assert min(ratios.values()) >= 1


# -------------------------------------------------------------------------------------------------------- the encodings


@pytest.mark.parametrize(("cap", "optimum"), [(2, 41), (3, 31), (4, 27)])
def test_encodings(cap, optimum):
    """One tick less is refuted by CP-SAT on intervals, by Z3 on the order encoding, and by Z3 on integer differences."""
    below, seconds = Question(one_copy(4, 8), CostModel.of(), Limits(cap), optimum - 1), {}
    asks = {
        "intervals": lambda: cpsat.ask(below, seconds=PATIENCE).status,
        "order encoding": lambda: synthesis_smt.ask(below, seconds=PATIENCE).status,
        "differences": lambda: below_by_disjunctions(below),
    }
    for name, ask in asks.items():
        begin = perf_counter()
        status = ask()
        seconds[name] = perf_counter() - begin
        assert status == "unsat" or (name == "differences" and status == "unknown")
    print(f"\ncap {cap}, one tick less: " + ", ".join(f"{name} {time:.2f} s" for name, time in seconds.items()))


# ------------------------------------------------------------------------------------------------------ a rule of thumb


def test_against_a_rule_of_thumb():
    """Makespans for one weight copy, beside the best that the rule comes to over its choices."""
    print(f"\n{'makespan, one copy':30}{'ours':>6}{'rule':>6}{'bound':>7}")
    for ranks, microbatches, cap, prices in (
        (4, 8, 4, {}),
        (4, 8, 6, {}),
        (4, 8, 4, {"F": 10, "I": 12, "W": 9, "hop": 1}),
        (8, 16, 8, {}),
        (8, 16, 12, {"F": 10, "I": 12, "W": 9, "hop": 1}),
        (8, 24, 8, {"F": 10, "I": 14, "W": 7}),
    ):
        problem, costs, limits = one_copy(ranks, microbatches), CostModel.of(**prices), Limits(cap)
        found = synthesize(problem, costs, limits, budget=PATIENCE)
        rule = min(
            _makespan(rule_of_thumb(problem, costs, cap, *choice), costs, limits) for choice in product((False, True), repeat=2)
        )
        text = f"P={ranks} M={microbatches} cap {cap} {','.join(map(str, prices.values()))}"
        print(f"{text:30}{found.value!s:>6}{rule!s:>6}{found.lower_bound!s:>7}")
        assert found.value <= rule


def _makespan(schedule: Schedule, costs: CostModel, limits: Limits) -> Fraction:
    assert verify(schedule, costs, limits, solver="replay").status == "proved"
    return simulate(schedule, costs).timeline.makespan


def rule_of_thumb(problem: Problem, costs: CostModel, cap: int, eager: bool, skips: bool) -> Schedule:
    """
    After the heuristic that "Zero Bubble Pipeline Parallelism" (arXiv:2401.10241, section 3.1) describes in words.

    Before the first backward a rank runs as many forwards as memory holds (``eager``: even one that delays the backward). Then
    a backward as soon as its gradient is there, and a forward in turn with it; a weight backward where neither is there for at
    least W, or where memory is full. A rank is at least a forward ahead of the next; where it is more than one ahead,
    ``skips`` puts off the next forward. What is left at the end are weight backwards.
    """
    ranks, count, hop = problem.ranks, problem.microbatches[0], costs.hop_ticks(0, 1)
    length = {kind: costs.ticks(Block((Op(kind, 0, 0, 0),))) for kind in "FIW"}
    done = {kind: [0] * ranks for kind in "FIW"}
    ends: dict[tuple[str, int, int], int] = {}
    clock, last = [0] * ranks, [""] * ranks
    rows: list[list[Block]] = [[] for _ in range(ranks)]

    def arrival(kind: str, rank: int) -> int | None:
        """When the next op of a kind can start; None if what it reads has not been made."""
        number = done[kind][rank]
        if number == count or (kind == "W" and number == done["I"][rank]) or (kind == "I" and number == done["F"][rank]):
            return None
        if kind == "W" or (kind, rank) == ("F", 0):
            return clock[rank]
        if (kind, rank) == ("I", ranks - 1):
            return max(clock[rank], ends["F", rank, number])
        made = ends.get((kind, rank + (1 if kind == "I" else -1), number))
        return None if made is None else max(clock[rank], made + hop)

    def choice(rank: int) -> tuple[int, str] | None:
        """Start and kind of what a rank runs next."""
        times = {kind: time for kind in "FIW" if (time := arrival(kind, rank)) is not None}
        if "F" in times and done["F"][rank] - done["W"][rank] >= cap:
            del times["F"]
            if "I" not in times and "W" in times:
                return times["W"], "W"
        ahead = done["F"][rank] - done["F"][rank + 1] if rank + 1 < ranks else 0
        if skips and "F" in times and ahead > 1 and "I" in times and last[rank]:
            del times["F"]
        if "F" in times and "I" in times and not eager and times["F"] + length["F"] > times["I"] and last[rank] != "I":
            del times["F"]
        best = min(times, key=lambda kind: (times[kind] + (kind == "W") * length["W"], kind == last[rank], kind), default=None)
        return None if best is None else (times[best], best)

    while sum(done["W"]) < ranks * count:
        rank, (start, kind) = min(
            ((rank, found) for rank in range(ranks) if (found := choice(rank)) is not None),
            key=lambda item: (item[1][0], item[0]),
        )
        number = done[kind][rank]
        clock[rank] = ends[kind, rank, number] = start + length[kind]
        rows[rank].append(Block((Op(kind, 0, rank, number),)))
        done[kind][rank] += 1
        last[rank] = kind if kind != "W" else last[rank]
    return Schedule(problem, tuple(map(tuple, rows)), "rule of thumb")
