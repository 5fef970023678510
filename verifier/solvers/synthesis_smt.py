"""
Answers by Z3 to the questions of synthesis, and the claim that nothing shorter exists as SMT-LIB 2 text.

Z3 is asked in the order encoding, as clauses that it reads from one file: building the same formula term by term takes longer
than deciding it. The claim is written in difference logic instead, a few readable lines for every op, for any SMT solver.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from verifier.model import Schedule
from verifier.solvers.choices import Choices, Hold, Part, Start
from verifier.solvers.encoding import Encoding
from verifier.solvers.questions import Answer, Question, believed
from verifier.solvers.race import Stop

if TYPE_CHECKING:
    import z3

NAME = "Z3"
OPENING = "; Is there a "
"""First words of a claim as text."""
SIZE_PER_SECOND, MOST = 500_000, 3_000_000
"""
About what is written in a second, as :func:`_size` counts: a question that would take all its time is not begun, nor one that
would keep whoever interrupts it waiting.
"""


def ask(question: Question, *, seconds: float = 60.0, implied: bool = True, stop: Stop | None = None) -> Answer:
    """
    Ask Z3 whether a schedule within the horizon exists.

    Parameters
    ----------
    seconds
        Of the wall clock; afterwards the answer is unknown.
    implied
        Add clauses that follow from the rest.
    stop
        Ends the search from another thread.

    Raises
    ------
    ReplayError
        If replay refuses the schedule that came back.

    Examples
    --------
    >>> from verifier.costs import CostModel
    >>> from verifier.model import Limits, Problem
    >>> question = Question(Problem(((0, 1),), (2,)), CostModel.of(), Limits(2), horizon=6)
    >>> ask(question).status
    'unsat'
    """
    import z3

    begin, until = time.thread_time(), time.monotonic() + seconds
    if question.objective != "makespan":
        return Answer("unknown", NAME, 0.0, reason="asked about the makespan only")
    choices = Choices(question)
    if _size(choices) > min(SIZE_PER_SECOND * seconds, MOST):
        return Answer("unknown", NAME, 0.0, reason="too many clauses")
    encoding = Encoding(choices, implied)
    solver = _read(encoding)
    # Interrupts are for whoever waits for the answer; Z3 would take them for itself.
    solver.set("ctrl_c", False)
    solver.set("timeout", max(1, int(1000 * (until - time.monotonic()))))
    if stop is not None:
        stop.calls(solver.ctx.interrupt)
    status = solver.check()
    spent = time.thread_time() - begin
    if status == z3.unsat:
        return Answer("unsat", NAME, spent)
    if status != z3.sat:
        return Answer("unknown", NAME, spent, reason=f"no answer in {seconds:g} s")
    return believed(question, _schedule(encoding, solver.model()), NAME, spent)


def _size(choices: Choices) -> int:
    """How large the order encoding is, about twice its number of clauses."""
    held = [len(choices.holds(rank)) * (choices.limit(rank) or 0) for rank in range(choices.board.ranks)]
    return choices.horizon * (2 * len(choices.all) + 2 * sum(held) + 30 * len(choices.each))


def _read(encoding: Encoding) -> z3.Solver:
    """A solver that has read the clauses."""
    import z3

    # A context of its own: Z3 may run beside another thread that uses it.
    solver = z3.SolverFor("QF_FD", ctx=z3.Context())
    with tempfile.NamedTemporaryFile("w", suffix=".dimacs") as file:
        file.write(encoding.dimacs())
        file.flush()
        solver.from_file(file.name)
    return solver


def _schedule(encoding: Encoding, model: z3.ModelRef) -> Schedule:
    """The schedule of a model; Z3 names the variables of a DIMACS file k!1, k!2 and so on."""
    import z3

    true = {int(str(name)[2:]) for name in model.decls() if z3.is_true(model[name])}
    chosen = (choice for choice, literal in zip(encoding.choices.all, encoding.chosen, strict=True) if literal in true)
    return encoding.choices.schedule((choice, encoding.moment(choice.parts[0].start, true)) for choice in chosen)


# --------------------------------------------------------------------------------------------------- the claim as text


def smtlib(question: Question) -> str:
    """
    The question in SMT-LIB 2, in difference logic: a solver that answers ``unsat`` confirms that no such schedule exists.

    Examples
    --------
    >>> from verifier.costs import CostModel
    >>> from verifier.model import Limits, Problem
    >>> text = smtlib(Question(Problem(((0,),), (1,)), CostModel.of(), Limits(), 2, blocks=("F", "B")))
    >>> print(text.splitlines()[-2])
    (assert (=> |run[0B0]| (<= (+ |start[0I0]| 2) 2)))
    """
    choices = Choices(question)
    kind = "mirror-symmetric schedule" if question.mirrored else "schedule"
    lines = [
        f"{OPENING}{kind} of at most {choices.horizon} ticks (each {question.grain} of the cost model's)?",
        f"; placement {question.problem.placement}, micro-batches {question.problem.microbatches}",
        "; Names: stage, kind, micro-batch; of a mirror-symmetric schedule direction 0 stands for both.",
        "(set-logic QF_LIA)",
        *(f"(declare-const |{start}| Int)" for start in choices.starts),
        *(f"(declare-const |{choice}| Bool)" for choice in choices.all),
    ]
    parts = (_starts(choices), _blocks(choices), _waits(choices), _apart(choices), _memory(choices), _within(choices))
    lines += [f"(assert {text})" for part in parts for text in part]
    return "\n".join([*lines, "(check-sat)"]) + "\n"


def _starts(choices: Choices) -> Iterator[str]:
    """Nothing starts before 0."""
    return (f"(<= 0 |{start}|)" for start in choices.starts)


def _runs(choices: Choices, part: Part) -> list[str]:
    return [f"|{choices.all[index]}|" for index in choices.of[part]]


def _any(texts: list[str]) -> str:
    return "false" if not texts else texts[0] if len(texts) == 1 else f"(or {' '.join(texts)})"


def _blocks(choices: Choices) -> Iterator[str]:
    """Every part runs in one block; a backward as one part, or split in two; the parts of a pair start together."""
    for stage, k in choices.each:
        forward, whole, inputs, weights = (_runs(choices, Part(kind, stage, k)) for kind in "FBIW")
        yield _any(forward)
        yield _any(whole + inputs)
        yield f"(= {_any(inputs)} {_any(weights)})"
        for group in (forward, whole + inputs, whole + weights):
            yield from (f"(not (and {one} {other}))" for one, other in combinations(group, 2))
    for choice in choices.all:
        if len(choice.parts) == 2:
            yield f"(=> |{choice}| (= |{choice.parts[0].start}| |{choice.parts[1].start}|))"


def _waits(choices: Choices) -> Iterator[str]:
    """Every start comes after the ends that it waits for."""
    for wait in choices.waits():
        split = _any(_runs(choices, Part("W", wait.later.stage, wait.later.k)))
        for part in wait.parts:
            for index in choices.of[part]:
                span = choices.all[index].span + wait.lag
                runs = f"|{choices.all[index]}|"
                when = f"(and {runs} {split})" if wait.when_split else runs
                yield f"(=> {when} (<= (+ |{part.start}| {span}) |{wait.later}|))"


def _apart(choices: Choices) -> Iterator[str]:
    """Of two blocks that run on a rank one ends before the other starts."""
    for rank in range(choices.board.ranks):
        for (_, one), (_, other) in combinations(choices.on(rank), 2):
            if not set(one.parts) & set(other.parts):
                a, b = (f"|{choice.parts[0].start}|" for choice in (one, other))
                apart = f"(or (<= (+ {a} {one.span}) {b}) (<= (+ {b} {other.span}) {a}))"
                yield f"(=> (and |{one}| |{other}|) {apart})"


def _memory(choices: Choices) -> Iterator[str]:
    """When a forward starts, what its rank then holds is within the limit."""
    for rank in range(choices.board.ranks):
        holds = choices.holds(rank)
        for stage in choices.times.held(rank) if holds else []:
            for k in range(choices.times.count[stage]):
                now = f"|{Start('F', stage, k)}|"
                held = " ".join(f"(ite {_held(choices, hold, now)} {hold.steps} 0)" for hold in holds)
                yield f"(<= (+ {held} 0) {choices.limit(rank)})"


def _held(choices: Choices, hold: Hold, now: str) -> str:
    """Whether memory is held at a moment: its forward has started, its release has not come."""
    ends = []
    for part in {Part("B", hold.stage, hold.k), Part(hold.until, hold.stage, hold.k)}:
        for index in choices.of[part]:
            choice = choices.all[index]
            ends.append(f"(and |{choice}| (< {now} (+ |{part.start}| {choice.span})))")
    return f"(and (<= |{Start('F', hold.stage, hold.k)}| {now}) {_any(sorted(ends))})"


def _within(choices: Choices) -> Iterator[str]:
    """Every block ends within the horizon."""
    for choice in choices.all:
        yield f"(=> |{choice}| (<= (+ |{choice.parts[0].start}| {choice.span}) {choices.horizon}))"
