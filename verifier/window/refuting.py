"""
A second opinion: Z3 on whether any order of issue is shorter than the best one that CP-SAT knows of.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from time import monotonic

from verifier.solvers.questions import Answer
from verifier.solvers.race import Stop, race
from verifier.window.bound import heads, tails
from verifier.window.chunk import RESOURCES, Step, Task

NAME = "Z3"


def shorter(tasks: Mapping[Step, Task], horizon: int, *, seconds: float) -> Answer:
    """
    Whether an order of issue lets everything be done within a horizon, in ticks.

    Raises
    ------
    KeyboardInterrupt
        After the solver has stopped.

    Examples
    --------
    >>> send, mlp = Step("combine", "I", 0), Step("mlp", "I", 0)
    >>> tasks = {send: Task(send, "communication", 6, ()), mlp: Task(mlp, "compute", 5, (send,))}
    >>> shorter(tasks, 10, seconds=10).status, shorter(tasks, 11, seconds=10).status
    ('unsat', 'sat')
    """
    text = question(tasks, horizon)

    def ask(stop: Stop) -> Answer:
        import z3

        begin = monotonic()
        context = z3.Context()
        solver = z3.SolverFor("QF_IDL", ctx=context)
        # Interrupts are for whoever waits for the answer; Z3 would take them for itself.
        solver.set("ctrl_c", False)
        solver.set("timeout", 1 + round(seconds * 1000))
        stop.calls(context.interrupt)
        solver.from_string(text)
        answer = str(solver.check())
        return Answer(answer, NAME, monotonic() - begin, reason="" if answer != "unknown" else f"no answer in {seconds:g} s")

    return race([ask])


def question(tasks: Mapping[Step, Task], horizon: int) -> str:
    """
    The question as SMT-LIB.

    Examples
    --------
    >>> print(question({Step("mlp", "F", 0): Task(Step("mlp", "F", 0), "compute", 5, ())}, 4))
    (set-logic QF_IDL)
    (declare-const |start[mlp(F)0]| Int)
    (assert (>= |start[mlp(F)0]| 0))
    (assert (<= |start[mlp(F)0]| -1))
    """
    name = {step: f"|start[{step}]|" for step in tasks}
    head, tail = heads(tasks), tails(tasks)
    lines = ["(set-logic QF_IDL)"]
    for step, task in tasks.items():
        lines.append(f"(declare-const {name[step]} Int)")
        # A step lies behind the longest chain of its needs, and before the longest chain of what needs it.
        lines.append(f"(assert (>= {name[step]} {head[step]}))")
        lines.append(f"(assert (<= {name[step]} {horizon - task.ticks - tail[step]}))")
        # It starts once what it needs is done.
        lines.extend(f"(assert {_behind(name[step], name[needs], tasks[needs].ticks)})" for needs in task.needs)
    for resource in RESOURCES:
        row = [task for task in tasks.values() if task.resource == resource]
        # Of two steps on one resource either comes behind the other.
        for one, other in combinations(row, 2):
            first, second = name[one.step], name[other.step]
            lines.append(f"(assert (or {_behind(second, first, one.ticks)} {_behind(first, second, other.ticks)}))")
    return "\n".join(lines)


def _behind(later: str, earlier: str, ticks: int) -> str:
    return f"(>= (- {later} {earlier}) {ticks})"
