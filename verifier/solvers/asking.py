"""
How Z3 is asked: constraints as text, questions on top of them, a time for all, and a script of what was asked and answered.

Importing this module imports Z3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import z3


class Script:
    """
    Questions to Z3 within a time: what was asked so far, as a script that Z3 runs, and how long there is for more.

    >>> script = Script(seconds=10)
    >>> solver = script.solver("A number", "(declare-const n Int) (assert (>= n 3))")
    >>> solver.ask("(assert (< n 3))"), solver.ask("(assert (< n 4))"), solver.value("n")
    ('unsat', 'sat', 3)
    >>> print(script.text)
    ; A number
    (declare-const n Int) (assert (>= n 3))
    (push)
    (assert (< n 3))
    (check-sat) ; unsat
    (pop)
    (push)
    (assert (< n 4))
    (check-sat) ; sat
    (pop)
    """

    def __init__(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds
        self.solvers: list[Solver] = []
        # A context of our own: no answer depends on what the process asked Z3 before.
        self.context = z3.Context()

    @property
    def text(self) -> str:
        """All solvers' questions with their answers."""
        return "\n(reset)\n".join("\n".join(solver.lines) for solver in self.solvers) + "\n"

    def solver(self, title: str, *constraints: str) -> Solver:
        """A fresh solver that holds some constraints."""
        solver = Solver(self, title)
        solver.add(*constraints)
        self.solvers.append(solver)
        return solver


class Solver:
    """Z3 with constraints between differences that stay, and questions on top of them."""

    def __init__(self, script: Script, title: str) -> None:
        # All questions about DualPipe P=8 M=20 (282 blocks) take 0.2 s of processor time; with Z3's default for arithmetic, or
        # its preset QF_IDL, 2.2 s. Constraints come as text, since reading it takes 5 ms where z3.py's operators take 46 ms.
        self.script, self.z3 = script, z3.SimpleSolver(ctx=script.context)
        self.z3.set("arith.solver", 1)  # Bellman-Ford: all constraints are differences
        self.z3.set("random_seed", 0)
        self.z3.set("core.minimize", True)
        self.lines = [f"; {title}"]
        self.model: z3.ModelRef | None = None
        self.core: list[str] = []
        self.constants: dict[str, z3.ArithRef] = {}

    def add(self, *lines: str) -> None:
        """Add constraints for good."""
        text = "\n".join(lines)
        self.lines.append(text)
        self.z3.from_string(text)

    def ask(self, assertion: str = "", assumptions: Sequence[str] = ()) -> str:
        """
        ``sat``, ``unsat`` or ``unknown``: can all constraints, the assertion and the assumptions hold together?

        After ``sat`` there are values, after ``unsat`` the least core: assumptions that cannot hold together.
        """
        left = self.script.deadline - time.monotonic()
        if left <= 0:
            return "unknown"
        self.z3.set("timeout", 1 + round(left * 1000))
        self.z3.push()
        self.z3.from_string(assertion)
        answer = str(self.z3.check(*(z3.Bool(name, self.script.context) for name in assumptions)))
        if answer == "sat":
            self.model = self.z3.model()
        elif answer == "unsat":
            self.core = [str(name) for name in self.z3.unsat_core()]
        elif self.z3.reason_unknown() == "canceled" and time.monotonic() < self.script.deadline:
            raise KeyboardInterrupt  # Z3 takes the signal itself, and calls a time-out by the same name
        self.z3.pop()
        command = f"(check-sat-assuming ({' '.join(assumptions)}))" if assumptions else "(check-sat)"
        self.lines += ["(push)", assertion, f"{command} ; {answer}", "(pop)"]
        return answer

    def can(self, assertion: str) -> bool:
        """Whether all constraints and the assertion can hold; TimeoutError where that stays unknown."""
        answer = self.ask(assertion)
        if answer == "unknown":
            raise TimeoutError
        return answer == "sat"

    def value(self, name: str) -> int:
        """The value of a variable in the last ``sat``."""
        if name not in self.constants:
            self.constants[name] = z3.Int(name, self.script.context)
        assert self.model is not None
        return int(self.model.eval(self.constants[name], model_completion=True).as_long())


def climb(reach: Callable[[int], int | None], low: int, high: int) -> tuple[int, int]:
    """
    Raise ``low``, which can be reached, and lower ``high``, which cannot, until they meet or time is up.

    ``reach(k)`` gives a reached value that is at least k, or None where there is none; TimeoutError where time is up.

    >>> climb(lambda least: least if least <= 12 else None, low=0, high=100)
    (12, 13)
    """
    step = 1
    try:
        while low + 1 < high:
            wanted = min(low + step, high - 1)
            reached = reach(wanted)
            if reached is None:
                high, step = wanted, 1
            else:
                low, step = reached, 2 * step
    except TimeoutError:
        pass
    return low, high
