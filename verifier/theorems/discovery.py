"""
Guesses: start times and critical paths for all sizes, fitted to a few sizes. Whatever is guessed here is verified elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from verifier.affine import Affine
from verifier.theorems.classes import Analysis, Costs, Job
from verifier.theorems.conditions import (
    AffineTimeline,
    Formula,
    Implication,
    Kink,
    Obligation,
    carried,
    obligations,
    relations,
    span,
)
from verifier.theorems.solving import counterexample

if TYPE_CHECKING:
    import z3

Sizes = Mapping[str, int]
Node = tuple[int, int, int]
"""A block at given sizes: class, rank, loop index."""
Edge = tuple[Node, Node]
ROUNDS = 12
"""Guesses that are made before a timeline is given up."""
FAR = 10_000
_DENOMINATORS = (1, 2, 3)


@dataclass(frozen=True, eq=False)
class Instance:
    """
    A loop program at given sizes, every block by its class.

    Attributes
    ----------
    sizes
        A number for each symbol but the rank.
    """

    analysis: Analysis
    sizes: Sizes

    @cached_property
    def order(self) -> tuple[tuple[Node, ...], ...]:
        """``order[rank][position]``."""
        return tuple(tuple(self._row(rank)) for rank in range(self.analysis.program.ranks.value(self.sizes)))

    def _row(self, rank: int) -> Iterator[Node]:
        analysis = self.analysis
        values = {**self.sizes, analysis.program.rank: rank}
        regime = next(n for n, each in enumerate(analysis.regimes) if all(c.holds(values) for c in each.where))
        for step, trips in enumerate(analysis.regimes[regime].trips):
            here = [(n, c) for n, c in enumerate(analysis.classes) if (c.regime, c.step) == (regime, step)]
            for index in range(trips.value(values)):
                inside = {**values, "i": index}
                yield from ((n, rank, index) for n, c in here if all(condition.holds(inside) for condition in c.domain))

    @cached_property
    def links(self) -> tuple[tuple[Node, Node, tuple[Job, Job]], ...]:
        """Producer and consumer of every F and I, and which job of the consumer reads which of the producer."""
        program = self.analysis.program
        makers: dict[tuple[str, int, int], tuple[Node, Job]] = {}
        for row in self.order:
            for node in row:
                values = self.values(node)
                for job, microbatch in self.analysis.classes[node[0]].microbatch.items():
                    makers[job[0], program.stages[job[1]].value(values), microbatch.value(values)] = node, job
        found = []
        for (kind, stage, number), (node, job) in makers.items():
            needed = [(kind, stage + (-1 if kind == "F" else 1), number)]
            needed += [("F", stage, number)] if kind == "I" else []
            found += [(makers[key][0], node, (job, makers[key][1])) for key in needed if key in makers]
        return tuple(found)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Program order between neighbours, then reads."""
        return (*(edge for row in self.order for edge in pairwise(row)), *((u, v) for u, v, _ in self.links))

    def ends(self, costs: Costs, prefer_order: bool = True) -> tuple[dict[Node, int], dict[Node, Node | None]] | None:
        """When blocks end at the earliest, and which other block each waits for to the last; None where they hang."""
        from graphlib import CycleError, TopologicalSorter

        before: dict[Node, list[tuple[Node, bool]]] = {node: [] for row in self.order for node in row}
        for row in self.order:
            for u, v in pairwise(row):
                before[v].append((u, prefer_order))
        for u, v, _ in self.links:
            before[v].append((u, not prefer_order))
        ends: dict[Node, int] = {}
        cause: dict[Node, Node | None] = {}
        try:
            for node in TopologicalSorter({v: [u for u, _ in others] for v, others in before.items()}).static_order():
                best = max(((ends[u], preferred, u) for u, preferred in before[node]), default=None)
                begin, cause[node] = (best[0], best[2]) if best else (0, None)
                ends[node] = begin + span(self.analysis.classes[node[0]], costs)
        except CycleError:
            return None
        return ends, cause

    def values(self, node: Node) -> dict[str, int]:
        """The numbers that expressions about a block speak of."""
        return {**self.sizes, self.analysis.program.rank: node[1], "i": node[2]}

    @cached_property
    def extreme_edges(self) -> frozenset[Edge]:
        """Edges that nearly entail all others where start times are affine: the outermost between two classes."""
        best: dict[tuple[int, int, int], tuple[int, Edge]] = {}
        for u, v in self.edges:
            for number, (a, b) in enumerate(_DIRECTIONS):
                far = a * v[1] + b * v[2]
                key = (u[0], v[0], number)
                if key not in best or far > best[key][0]:
                    best[key] = (far, (u, v))
        return frozenset(edge for _, edge in best.values())


_DIRECTIONS = [(a, b) for a in (-3, -1, 0, 1, 3) for b in (-2, -1, 0, 1, 2) if a or b]


# ---------------------------------------- timelines


class TimelineFit:
    """
    Looks for affine start times under one ray that respect some instances and end by a limit there.

    Parameters
    ----------
    analysis, ray, limit, kink
        As of the timeline; ``limit`` leaves out what is carried.
    instances
        What to begin with, small and large; :meth:`learn` adds the points where a guess turned out wrong.
    """

    def __init__(
        self, analysis: Analysis, ray: Costs, limit: Formula, instances: Sequence[Instance], kink: Kink | None = None
    ) -> None:
        import z3

        self.analysis, self.ray, self.limit, self.kink = analysis, ray, limit, kink
        self.symbols = (analysis.program.rank, "i", *analysis.sizes)
        self._relations = relations(analysis)
        names = {(relation.earlier, relation.later): relation.name for relation in self._relations}
        self._solver = z3.SolverFor("QF_LRA")
        self._unknowns = {
            (number, symbol): z3.Real(f"{ray} {number} {symbol}")
            for number in range(len(analysis.classes))
            for symbol in ("", *self.symbols)
        }
        for instance in instances:
            for u, v in instance.extreme_edges:
                self._wait(instance, names[u[0], v[0]], u, v)
            for row in filter(None, instance.order):
                self._solver.add(self.begin(instance, row[0]) >= 0)
                self._end(instance, row[-1])

    def solve(self) -> tuple[AffineTimeline, ...]:
        """Start times for all that is known so far: rounded to simple numbers, and exact. Empty where there are none."""
        import z3

        if self._solver.check() != z3.sat:
            return ()
        model = self._solver.model()
        exact = [
            [
                Fraction(model.eval(self._unknowns[number, symbol], model_completion=True).as_fraction())
                for symbol in ("", *self.symbols)
            ]
            for number in range(len(self.analysis.classes))
        ]
        rounded = [[[number.limit_denominator(most) for number in row] for row in exact] for most in _DENOMINATORS]
        return tuple(AffineTimeline.of(self.ray, self.symbols, rows) for rows in (*rounded, exact))

    def learn(self, condition: Obligation, point: Mapping[str, int]) -> None:
        """Respect a condition at a point where a guess failed it."""
        rank = self.analysis.program.rank
        instance = Instance(self.analysis, {symbol: point.get(symbol, 0) for symbol in self.analysis.sizes})
        values = {**instance.sizes, rank: point.get(rank, 0)}
        v = (condition.later, values[rank], point.get("i", 0))
        if condition.relation is not None:
            relation = condition.relation
            u = (relation.earlier, relation.rank.value(values), point.get("j", 0))
            self._wait(instance, relation.name, u, v)
        elif condition.is_end:
            self._end(instance, v)
        else:
            self._solver.add(self.begin(instance, v) >= 0)

    def _wait(self, instance: Instance, name: str, u: Node, v: Node) -> None:
        more = carried(self.kink, name, self.ray, u[0], v[0]).value(instance.sizes)
        self._solver.add(self.slack(instance, u, v) + more >= 0)

    def _end(self, instance: Instance, node: Node) -> None:
        name = f"end {self.analysis.classes[node[0]].name}"
        more = carried(self.kink, name, self.ray, node[0], None).value(instance.sizes)
        self._solver.add(self.room(instance, node) + more >= 0)

    def slack(self, instance: Instance, u: Node, v: Node) -> z3.ArithRef:
        """By how much v starts after the end of u, in unknown coefficients."""
        return self.begin(instance, v) - self.begin(instance, u) - span(self.analysis.classes[u[0]], self.ray)

    def room(self, instance: Instance, node: Node) -> z3.ArithRef:
        """By how much a block ends before the limit."""
        end = self.begin(instance, node) + span(self.analysis.classes[node[0]], self.ray)
        return self.limit.along(self.ray).value(instance.sizes) - end

    def begin(self, instance: Instance, node: Node) -> z3.ArithRef:
        """When a block starts."""
        import z3

        values = {**instance.values(node), "": 1}
        return z3.Sum([values[symbol] * self._unknowns[node[0], symbol] for symbol in ("", *self.symbols) if values[symbol]])


def find_timeline(fit: TimelineFit, rounds: int = ROUNDS) -> AffineTimeline | None:
    """
    Guess, look for points where the guess is wrong, and guess again.

    Returns
    -------
    A timeline that no point was found against, or None where some sizes allow none.
    """
    for _ in range(rounds):
        guesses = fit.solve()
        for timeline in guesses:
            wrong = _wrong(fit, timeline)
            if not wrong:
                return timeline
        if not guesses:
            return None
        for condition, points in wrong:
            for point in points:
                fit.learn(condition, point)
    return None


def _wrong(fit: TimelineFit, timeline: AffineTimeline) -> list[tuple[Obligation, list[dict[str, int]]]]:
    """Conditions that a guess fails, with a point nearby and where there is one a point far away, which says more of slopes."""
    found = []
    for condition in obligations(fit.analysis, timeline, fit.limit, fit.kink):
        given, name = condition.implication.given, condition.implication.name
        if near := counterexample(condition.implication):
            far = sum((Affine(((symbol, 1),)) for symbol in fit.analysis.sizes), Affine()) >= FAR
            distant = counterexample(Implication(name, (*given, far), condition.implication.then))
            found.append((condition, [near, distant] if distant else [near]))
    return found


def choose_options(
    analysis: Analysis,
    limit: Formula,
    rays: Sequence[Costs],
    instances: Sequence[Instance],
    options: tuple[Formula, ...],
    carriers: frozenset[int],
) -> Kink | None:
    """
    Which option stands for X in each relation into a carrier, such that all rays can be fitted together.

    Relations between classes that are never neighbours are given the option that most others have.
    """
    import z3

    solver = z3.Solver()
    names = {(relation.earlier, relation.later): relation.name for relation in relations(analysis)}
    literals: dict[str, list[z3.BoolRef]] = {}
    for ray in rays:
        fit = TimelineFit(analysis, ray, limit, (), None)
        for instance in instances:
            values = [option.along(ray).value(instance.sizes) for option in options]
            for u, v in instance.extreme_edges:
                slack = fit.slack(instance, u, v)
                if (u[0] in carriers) == (v[0] in carriers):
                    solver.add(slack >= 0)
                elif v[0] in carriers:
                    name = names[u[0], v[0]]
                    which = literals.setdefault(name, [z3.Bool(f"{name} {k}") for k in range(len(options))])
                    solver.add([z3.Implies(literal, slack + x >= 0) for literal, x in zip(which, values, strict=True)])
                else:
                    return None
            for row in filter(None, instance.order):
                solver.add(fit.begin(instance, row[0]) >= 0)
                solver.add(fit.room(instance, row[-1]) + (0 if row[-1][0] in carriers else max(values)) >= 0)
    solver.add([z3.Or(which) for which in literals.values()])
    found = [kept for k in range(len(options)) if (kept := _prefer(solver, literals, k))]
    if not found:
        return None
    chosen = max(found, key=lambda each: max(map(list(each.values()).count, range(len(options))), default=0))
    common = max(range(len(options)), key=list(chosen.values()).count)
    return Kink(options, carriers, chosen, common)


def _prefer(solver: z3.Solver, literals: Mapping[str, Sequence[z3.BoolRef]], preferred: int) -> dict[str, int]:
    """A choice for each relation, the preferred one wherever those before it leave room for it; empty where there is none."""
    import z3

    solver.push()
    for which in literals.values():
        solver.push()
        solver.add(which[preferred])
        kept = solver.check() == z3.sat
        solver.pop()
        if kept:
            solver.add(which[preferred])
    answer = solver.check()
    model = solver.model() if answer == z3.sat else None
    solver.pop()
    if model is None:
        return {}

    def choice(which: Sequence[z3.BoolRef]) -> int:
        return min(
            range(len(which)), key=lambda k: (not z3.is_true(model.eval(which[k], model_completion=True)), k != preferred)
        )

    return {name: choice(which) for name, which in literals.items()}
