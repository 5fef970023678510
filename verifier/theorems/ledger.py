"""The conditions of one theorem: put to Z3 one by one, counted, and kept as evidence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from verifier.affine import Condition
from verifier.loops import Program
from verifier.theorems.classes import Analysis
from verifier.theorems.conditions import OneOf, Statement
from verifier.theorems.finding import analysis_of, find_guesses
from verifier.theorems.guesses import Guesses, load
from verifier.theorems.paths import Path, choose_links
from verifier.theorems.solving import SECONDS, UndecidedError, counterexample, expression
from verifier.theorems.theories import Theory

if TYPE_CHECKING:
    import z3


@dataclass(frozen=True)
class Failure:
    """A condition that does not hold, and a point at which it does not."""

    name: str
    point: dict[str, int]

    def __str__(self) -> str:
        return f"{self.name}: fails at {', '.join(f'{name}={value}' for name, value in self.point.items())}"


@dataclass
class Ledger:
    """
    Conditions and what came of them.

    Attributes
    ----------
    conditions, met
        How many there are, and how many of them have hypotheses that some numbers fulfil: the others say that something
        never happens.
    failures
        Those that do not hold.
    fresh
        Find timelines and paths anew, instead of verifying those that were found before.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> from verifier.theorems.conditions import Implication
    >>> x, = symbols("x")
    >>> ledger = Ledger()
    >>> ledger.add([Implication("small", (x >= 1,), x - 1), Implication("large", (x >= 1,), x - 2)])
    >>> ledger.conditions, ledger.met, str(ledger.failures[0])
    (2, 2, 'large: fails at x=1')
    """

    fresh: bool = False
    conditions: int = 0
    met: int = 0
    failures: list[Failure] = field(default_factory=list)
    _solvers: dict[tuple[Condition, ...], tuple[z3.Solver, bool]] = field(default_factory=dict)

    @property
    def solver(self) -> str:
        """Who decides, with its version."""
        import z3

        return f"Z3 {z3.get_version_string()}"

    def analysis(self, program: Program, domain: tuple[Condition, ...]) -> Analysis:
        """The classes of a program, worked out once."""
        return analysis_of(program, domain)

    def guesses(self, theory: Theory, number: int, only: str | None = None) -> Guesses:
        """
        What was found before, or found now.

        Raises
        ------
        NotFoundError
            If some is not found.
        """
        known = Guesses() if self.fresh else load(theory.program.name, number)
        return find_guesses(theory, theory.settings[number], known, only)

    def links(self, analysis: Analysis, path: Path, name: str) -> dict[str, int]:
        """The ways that hold at all sizes."""
        return choose_links(analysis, path, name, lambda condition: counterexample(condition) is None)

    def take(self, other: Ledger) -> None:
        """Count what another ledger counted."""
        self.conditions += other.conditions
        self.met += other.met
        self.failures += other.failures

    def add(self, conditions: Iterable[Statement]) -> None:
        """
        Put conditions to Z3.

        Raises
        ------
        UndecidedError
            If it gives up on one.
        """
        for condition in conditions:
            self._put(condition)

    def _put(self, condition: Statement) -> None:
        import z3

        self.conditions += 1
        solver, can_be_met = self._under(condition.given)
        self.met += can_be_met
        solver.push()
        if isinstance(condition, OneOf):
            for option in condition.options:
                solver.add(z3.Or([expression(each.expression) < 0 for each in option]))
        elif condition.then is not None:
            solver.add(expression(condition.then) < 0)
        answer = solver.check()
        if answer == z3.unknown:
            raise UndecidedError(f"{condition.name}: {solver.reason_unknown()}")
        if answer == z3.sat:
            model = solver.model()
            point = {str(name): model[name].as_long() for name in model.decls() if z3.is_int_value(model[name])}
            self.failures.append(Failure(condition.name, dict(sorted(point.items()))))
        solver.pop()

    def _under(self, given: tuple[Condition, ...]) -> tuple[z3.Solver, bool]:
        """A solver that knows the hypotheses, and whether they can be met; many conditions share theirs."""
        import z3

        if given not in self._solvers:
            solver = z3.SimpleSolver()
            solver.set("timeout", int(1000 * SECONDS))
            solver.add([expression(each.expression) >= 0 for each in dict.fromkeys(given)])
            self._solvers[given] = solver, solver.check() == z3.sat
        return self._solvers[given]
