"""
A second opinion: cvc5 decides every condition again, from the SMT-LIB 2 text that evidence is written in.

It shares no code with Z3, and what it reads is what anybody else would read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from verifier.model import ScheduleError
from verifier.theorems.smtlib import Script

MILLISECONDS = 20_000
"""How long one condition may take; they take milliseconds."""
SHOWN = 3
"""Conditions that are named where cvc5 does not confirm."""


@dataclass(frozen=True)
class Opinion:
    """
    What cvc5 said; conditions are counted once that a prover may meet several times.

    Attributes
    ----------
    version
        Of cvc5.
    conditions, confirmed
        How many it was asked about, and how many it confirmed.
    disputed, undecided
        The names of those that it refuted, and of those that it gave up on.
    seconds
        Of the clock.
    """

    version: str
    conditions: int
    confirmed: int
    disputed: tuple[str, ...]
    undecided: tuple[str, ...]
    seconds: float

    def as_json(self) -> dict[str, object]:
        """Plain JSON values."""
        return {
            "solver": f"cvc5 {self.version}",
            "conditions": self.conditions,
            "confirmed": self.confirmed,
            "disputed": list(self.disputed),
            "undecided": list(self.undecided),
            "seconds": round(self.seconds, 3),
        }

    @property
    def agrees(self) -> bool:
        """Whether every condition was confirmed."""
        return self.confirmed == self.conditions

    def objections(self) -> tuple[str, ...]:
        """Why a theorem does not count as proved, for people; nothing where cvc5 agrees."""
        found = [f"cvc5 refutes: {name}" for name in self.disputed] + [f"cvc5 gives up on: {name}" for name in self.undecided]
        more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        return (*found[:SHOWN], *more)

    def __str__(self) -> str:
        return f"cvc5 {self.version} confirms {self.confirmed} of {self.conditions} conditions, {self.seconds:.1f} s"


def cvc5_version() -> str:
    """
    Which cvc5 there is.

    Raises
    ------
    ScheduleError
        If it is not installed.

    Examples
    --------
    >>> from importlib.util import find_spec
    >>> found = cvc5_version() if find_spec("cvc5") else "1.4.2"
    >>> found.split(".")[0]
    '1'
    """
    try:
        import cvc5
    except ImportError:
        raise ScheduleError("second opinion: cvc5 is not installed; expected pip install '.[second-opinion]'") from None
    return str(cvc5.__version__)


def second_opinion(script: Script) -> Opinion:
    """
    Ask cvc5.

    Raises
    ------
    ScheduleError
        If cvc5 is not installed.

    Examples
    --------
    >>> from importlib.util import find_spec
    >>> from verifier.affine import symbols
    >>> from verifier.theorems.conditions import Implication
    >>> from verifier.theorems.smtlib import script
    >>> x, = symbols("x")
    >>> asked = script([], [Implication("small", (x >= 1,), x - 1), Implication("large", (x >= 1,), x - 2)])
    >>> if find_spec("cvc5"):
    ...     found = second_opinion(asked)
    ...     assert (found.agrees, found.objections()) == (False, ("cvc5 refutes: large",))
    """
    version = cvc5_version()
    began = time.perf_counter()
    said = list(zip(script.checks, answers(script.text), strict=True))
    named = {word: tuple(name for name, answer in said if answer == word) for word in ("sat", "unsat")}
    others = tuple(name for name, answer in said if answer not in named)
    taken = time.perf_counter() - began
    return Opinion(version, len(said), len(named["unsat"]), named["sat"], others, taken)


def answers(text: str) -> list[str]:
    """
    What cvc5 says to each check of an SMT-LIB 2 text.

    Examples
    --------
    >>> from importlib.util import find_spec
    >>> if find_spec("cvc5"):
    ...     assert answers("(set-logic QF_LIA) (declare-const x Int) (assert (< x x)) (check-sat)") == ["unsat"]
    """
    import cvc5

    solver = cvc5.Solver(cvc5.TermManager())
    solver.setOption("incremental", "true")
    solver.setOption("tlimit-per", str(MILLISECONDS))
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "conditions")
    symbols, found = parser.getSymbolManager(), []
    while not (command := parser.nextCommand()).isNull():
        said = command.invoke(solver, symbols).strip()
        if command.getCommandName() == "check-sat":
            found.append(said)
    return found
