"""
Random questions of synthesis that are small enough to be answered exactly, and their exact answers.
"""

from dataclasses import replace
from fractions import Fraction

from hypothesis import assume, settings
from hypothesis import strategies as st

from tests.strategies import costs, problems
from verifier.model import Limits, Op, Problem, ScheduleError
from verifier.search.improve import require_room
from verifier.search.seeds import usable
from verifier.search.strings import Token, fits_mirror
from verifier.solvers import cpsat
from verifier.solvers.questions import Question, measure, refusal

COLUMNS = (
    {"F": 1, "I": 1, "W": 1, "FB": 3},
    {"F": 2, "I": 2, "W": 2, "FB": 4},
    {"F": 2, "I": 2, "W": 2, "FB": 5},
    {"F": 10, "I": 12, "W": 9, "FB": 26},
    {"F": 76, "I": 116, "W": 35, "FB": 129},
)
"""Costs whose optima are known; the last stands for chunks that pay exposed all-to-all when they run alone."""

BLOCKS = (None, None, ("F", "B"), ("F", "B", "F&B"), ("F", "I", "W"))


def examples(quick: int, deep: int = 200) -> settings:
    """How many random examples: few of those that take long, and more where the profile asks for many."""
    return settings(max_examples=deep if settings.default.max_examples > 100 else quick)


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


def mirrored(question: Question) -> Question | None:
    """
    The same among mirror-symmetric schedules; None where there are none.

    While a rank holds a micro-batch its mirror rank holds another, so a rank needs room for one of each of its stages.
    """
    if not fits_mirror(question.problem, question.costs, question.limits):
        return None
    folded = replace(question, mirrored=True)
    board = folded.board
    roomy = all(sum(board.steps(stage, "F") for stage in row) <= board.cap(rank) for rank, row in enumerate(board.chain))
    return folded if roomy else None


def upper(question: Question) -> int:
    """What one micro-batch after the other needs, one direction after the other: legal wherever anything is."""
    board = question.board
    rows = []
    for row in board.chain:
        tokens: list[Token] = []
        for chain in range(board.chains):
            slots = [slot for slot, stage in enumerate(row) if stage // question.problem.stages == chain]
            once = [(("F", slot),) for slot in slots] + [((kind, slot),) for slot in reversed(slots) for kind in "IW"]
            tokens += once * question.problem.microbatches[chain]
        rows.append(tuple(tokens))
    schedule = board.decode(usable(tuple(rows), board))
    found = measure(schedule, question.costs, question.objective)
    assert found is not None
    assert refusal(replace(question, mirrored=False, horizon=found), schedule) is None
    return found


def least(question: Question, *, implied: bool = False) -> int | None:
    """The exact optimum by a plain interval model; None where that takes more than a few seconds."""
    best = upper(question)
    while True:
        answer = cpsat.ask(replace(question, horizon=best - question.grain), seconds=5, implied=implied)
        if answer.status != "sat":
            return best if answer.status == "unsat" else None
        best = measure(answer.schedule, question.costs, question.objective)
