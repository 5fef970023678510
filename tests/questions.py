"""
Random questions of synthesis that are small enough to be answered exactly, and their exact answers.
"""

from dataclasses import replace
from fractions import Fraction

from hypothesis import assume
from hypothesis import strategies as st

from tests.strategies import costs, problems
from verifier.model import Limits, Op, Problem, ScheduleError
from verifier.search.improve import require_room
from verifier.search.seeds import one_at_a_time, usable
from verifier.solvers import cpsat
from verifier.solvers.questions import Question, measure

COLUMNS = (
    {"F": 1, "I": 1, "W": 1, "FB": 3},
    {"F": 2, "I": 2, "W": 2, "FB": 4},
    {"F": 2, "I": 2, "W": 2, "FB": 5},
    {"F": 10, "I": 12, "W": 9, "FB": 26},
    {"F": 76, "I": 116, "W": 35, "FB": 129},
)
"""Costs whose optima are known; the last stands for chunks that pay exposed all-to-all when they run alone."""

BLOCKS = (None, None, ("F", "B"), ("F", "B", "F&B"), ("F", "I", "W"))


def bidirectional(ranks: int, microbatches: int | None = None) -> Problem:
    half = ranks if microbatches is None else microbatches // 2
    return Problem((tuple(range(ranks)), tuple(reversed(range(ranks)))), (half, half))


@st.composite
def questions(draw: st.DrawFn, max_work: int = 10) -> Question:
    """A question without a horizon; ``max_work`` is about stages times micro-batches."""
    problem = draw(problems(max_ranks=3, max_microbatches=4).filter(lambda p: p.stages * p.total_microbatches <= max_work))
    model = draw(costs(problem))
    need = max(
        sum(
            (model.activation_change(Op("F", d, stage, 0)) for owner, stage in problem.stages_on(rank) if owner == d),
            Fraction(0),
        )
        for rank in range(problem.ranks)
        for d in range(problem.directions)
    )
    limits = Limits(draw(st.sampled_from((None, need, need + 1, need + 2))))
    question = Question(problem, model, limits, 0, draw(st.sampled_from(BLOCKS)), draw(st.sampled_from(("opposite", "any"))))
    try:
        require_room(problem, model, limits)
    except ScheduleError:
        assume(False)
    return question


def upper(question: Question) -> int:
    """What one micro-batch after the other needs."""
    order = usable(one_at_a_time(question.board), question.board)
    found = measure(question.board.decode(order), question.costs, question.objective)
    assert found is not None
    return found


def least(question: Question, *, implied: bool = False) -> int | None:
    """The exact optimum by a plain interval model; None where that takes more than a few seconds."""
    best = upper(question)
    while True:
        answer = cpsat.ask(replace(question, horizon=best - question.grain), seconds=5, implied=implied)
        if answer.status != "sat":
            return best if answer.status == "unsat" else None
        best = measure(answer.schedule, question.costs, question.objective)
