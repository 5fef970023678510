"""CP-SAT and Z3 answer the same questions: against one another, with and without what is implied, and against known optima."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.questions import COLUMNS, bidirectional, examples, least, mirrored, questions, upper
from verifier.bounds import board_bounds
from verifier.costs import CostModel
from verifier.families import build_family, placement
from verifier.model import Block, Limits, Problem, Schedule
from verifier.solvers import cpsat, synthesis_smt
from verifier.solvers.choices import Choices
from verifier.solvers.encoding import Encoding
from verifier.solvers.questions import Answer, Question, ReplayError, believed, measure, refusal
from verifier.solvers.race import Stop, race

SOLVERS = {"CP-SAT": cpsat.ask, "Z3": synthesis_smt.ask}


def one_copy(horizon: int, cap: int | None = None, **written: object) -> Question:
    return Question(Problem(placement("sequential", 4), (8,)), CostModel.of(), Limits(cap), horizon, **written)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("cap", "optimum"), [(1, 72), (3, 31), (4, 27)])
def test_optima_of_one_copy(solver, cap, optimum):
    assert SOLVERS[solver](one_copy(optimum, cap)).status == "sat"
    assert SOLVERS[solver](one_copy(optimum - 1, cap)).status == "unsat"


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("column", "optimum"), [(0, 25), (1, 42), (2, 47)])
def test_optima_of_two_copies(solver, column, optimum):
    question = Question(bidirectional(4), CostModel.of(**COLUMNS[column]), Limits(5), optimum, mirrored=True)
    answer = SOLVERS[solver](question)
    assert answer.status == "sat"
    assert measure(answer.schedule, question.costs, "makespan") <= optimum
    assert SOLVERS[solver](replace(question, horizon=optimum - 1)).status == "unsat"


def test_symmetry_can_lose_where_pairs_are_short():
    question = Question(bidirectional(2, 4), CostModel.of(F=1, I=3, W=9, FB=1), Limits(), 23)
    assert cpsat.ask(question).status == "sat"
    assert cpsat.ask(replace(question, mirrored=True, horizon=27)).status == "unsat"
    assert synthesis_smt.ask(replace(question, mirrored=True, horizon=28)).status == "sat"


@pytest.mark.parametrize(
    ("problem", "prices", "cap", "least"),
    [
        (bidirectional(2, 8), {"F": 4, "I": 4, "W": 4, "FB": 10, "hop": 1}, 4, 87),
        pytest.param(bidirectional(4), {}, 2, 32, marks=pytest.mark.deep),
    ],
)
def test_symmetry_can_lose_where_pairs_are_long_too(problem, prices, cap, least):
    """With a hop, as both directions need a link at the same times; and where memory is short."""
    question = Question(problem, CostModel.of(**prices), Limits(cap), least)
    assert cpsat.ask(question, seconds=120).status == "sat"
    assert cpsat.ask(replace(question, mirrored=True), seconds=120).status == "unsat"


def test_pairs_of_one_direction_can_win():
    question = Question(bidirectional(4), CostModel.of(**COLUMNS[2]), Limits(4), 48, mirrored=True)
    assert cpsat.ask(question).status == "unsat"
    assert cpsat.ask(replace(question, pairs="any")).status == "sat"


@examples(12)
@given(questions(max_work=8), st.booleans())
def test_solvers_agree(question, symmetric):
    question = (symmetric and mirrored(question)) or question
    optimum = least(question)
    if optimum is not None:
        for horizon, expected in ((optimum, "sat"), (optimum - question.grain, "unsat")):
            for ask in SOLVERS.values():
                answer = ask(replace(question, horizon=horizon), seconds=5)
                assert answer.status in (expected, "unknown"), answer


@examples(8)
@given(questions(max_work=3))
def test_first_in_first_out_loses_nothing(question):
    optimum = least(question)
    free = replace(question, fifo=False)
    if optimum is not None:
        for ask in SOLVERS.values():
            assert ask(replace(free, horizon=optimum), seconds=2).status in ("sat", "unknown")
            assert ask(replace(free, horizon=optimum - question.grain), seconds=2).status in ("unsat", "unknown")


@examples(8)
@given(questions(max_work=6))
def test_what_is_implied_changes_no_answer(question):
    optimum = least(question)
    if optimum is not None:
        for ask in SOLVERS.values():
            assert ask(replace(question, horizon=optimum), seconds=2, implied=False).status in ("sat", "unknown")
            below = replace(question, horizon=optimum - question.grain)
            assert ask(below, seconds=2, implied=True).status in ("unsat", "unknown")


@pytest.mark.parametrize(("cap", "optimum"), [(4, 27), (6, 25), (8, 24)])
def test_span_objective(cap, optimum):
    question = one_copy(optimum, cap, objective="span-idle")
    answer = cpsat.ask(question)
    assert answer.status == "sat"
    assert measure(answer.schedule, question.costs, "span-idle") <= optimum
    assert synthesis_smt.ask(question).status == "unknown"


def test_the_span_of_an_order_is_over_all_its_timelines():
    schedule = build_family("zb2p", 4, 8)
    assert measure(schedule, CostModel.of(), "span-idle") == 24
    assert measure(schedule, CostModel.of(), "makespan") == 27


def test_a_hint_is_a_schedule_like_any_other():
    schedule = build_family("dualpipe", 4, 8)
    question = Question(schedule.problem, CostModel.of(), Limits(5), 26, mirrored=True)
    assert cpsat.ask(question, hint=schedule).status == "sat"


def test_time_out_is_unknown():
    question = Question(bidirectional(8), CostModel.of(**COLUMNS[3]), Limits(9), 495, mirrored=True)
    assert cpsat.ask(question, seconds=0.01).status == "unknown"
    assert synthesis_smt.ask(question, seconds=0.01).reason == "too many clauses"


def test_a_schedule_that_replay_refuses_is_not_believed():
    schedule = build_family("1f1b", 2, 3)
    question = Question(schedule.problem, CostModel.of(), Limits(1), 12)
    with pytest.raises(ReplayError, match="the limit is 1"):
        believed(question, schedule, "nobody", 0.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"blocks": ("F", "I", "W")}, "a block of kind B"),
        ({"horizon": 11}, "needs 12 ticks"),
        ({"problem": Problem(((0, 1),), (4,))}, "another problem"),
    ],
)
def test_refusals_say_why(change, said):
    schedule = build_family("1f1b", 2, 3)
    question = replace(Question(schedule.problem, CostModel.of(), Limits(), 12), **change)
    assert said in refusal(question, schedule)


def test_pairs_of_one_direction_are_refused_unless_asked_for():
    problem = Problem(((0,),), (2,))
    schedule = Schedule(problem, (tuple(map(Block.parse, ["0F0", "(0F1;0B0)", "0B1"])),))
    question = Question(problem, CostModel.of(), Limits(), 6)
    assert "of one direction" in refusal(question, schedule)
    assert refusal(replace(question, pairs="any"), schedule) is None


def test_clauses_are_written_as_dimacs():
    encoding = Encoding(Choices(one_copy(12, 2)))
    first, *rest = encoding.dimacs().splitlines()
    assert first == f"p cnf {len(encoding.names)} {len(rest)}"
    assert all(line.endswith(" 0") for line in rest)


# ---------------------------------------------------------------------------------------------------- the claim as text

SMALL_CLAIMS = [
    Question(Problem(((0, 1),), (2,)), CostModel.of(), Limits(2), 7),
    Question(Problem(((0, 1), (1, 0)), (1, 1)), CostModel.of(F=1, I=3, W=4, FB=1), Limits(3), 14),
    Question(Problem(((0, 1, 1, 0),), (2,)), CostModel.of(F=2, I=1, W=1, FB=3, hop=1), Limits(3), 16),
    Question(Problem(((0, 1),), (3,)), CostModel.of(release="1/2"), Limits(2), 11, blocks=("F", "I", "W")),
]


@pytest.mark.parametrize("question", SMALL_CLAIMS)
def test_claims_are_confirmed_by_two_readers(question):
    cvc5 = pytest.importorskip("cvc5")
    best = least(question)
    for horizon, expected in ((best, "sat"), (best - question.grain, "unsat")):
        text = synthesis_smt.smtlib(replace(question, horizon=horizon))
        assert _by_z3(text) == expected
        assert _by_cvc5(cvc5, text) == expected


def _by_z3(text: str) -> str:
    import z3

    solver = z3.Solver()
    solver.from_string(text)
    return str(solver.check())


def _by_cvc5(cvc5, text: str) -> str:
    solver = cvc5.Solver(cvc5.TermManager())
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "claim")
    said = ""
    while not (command := parser.nextCommand()).isNull():
        said = command.invoke(solver, parser.getSymbolManager()) or said
    return said.strip()


# ----------------------------------------------------------------------------------------------------------- races


def test_the_first_answer_stops_the_others():
    from threading import Event

    asleep = Event()

    def slow(stop: Stop) -> Answer:
        stop.calls(asleep.set)
        asleep.wait(10)
        return Answer("unknown", "slow", 0.0)

    assert race([slow, lambda stop: Answer("sat", "quick", 0.0)]).who == "quick"
    assert asleep.is_set()


def test_a_solver_that_answers_in_time_runs_alone():
    def never(stop: Stop) -> Answer:
        raise AssertionError("was not to be started")

    assert race([lambda stop: Answer("unsat", "quick", 0.0), never], stagger=5.0).who == "quick"


def test_errors_of_a_solver_are_raised():
    def wrong(stop: Stop) -> Answer:
        raise ReplayError("no")

    with pytest.raises(ReplayError):
        race([wrong])


def test_nobody_knows():
    assert race([lambda stop: Answer("unknown", "nobody", 0.0)] * 2).status == "unknown"


def test_plain_upper_bound_is_one_microbatch_after_the_other():
    assert upper(one_copy(0)) == 72


# ------------------------------------------------------------------------------------------------------ held instances


@st.composite
def held_instances(draw: st.DrawFn) -> Question:
    """Costs that nobody tuned for: pairs between the longer of their parts and both one after the other."""
    ranks = draw(st.sampled_from((4, 4, 4, 6)))
    forward, gradient, weight = (draw(st.integers(1, 20)) for _ in range(3))
    pair = draw(st.integers(max(forward, gradient + weight), forward + gradient + weight))
    costs = CostModel.of(F=forward, I=gradient, W=weight, FB=pair)
    problem = bidirectional(ranks, draw(st.sampled_from((ranks, ranks + 2, 2 * ranks))))
    return Question(problem, costs, Limits(ranks + draw(st.integers(0, 3))), 0, mirrored=True)


@pytest.mark.deep
@settings(max_examples=500)
@given(held_instances())
def test_solvers_agree_on_held_instances(question):
    best = upper(question)
    bound = board_bounds(question.board)[0].ticks
    while True:
        horizon = best - question.grain
        first = cpsat.ask(replace(question, horizon=horizon), seconds=10)
        if first.status != "sat":
            break
        best = measure(first.schedule, question.costs, "makespan")
        assert best >= bound
    second = synthesis_smt.ask(replace(question, horizon=horizon), seconds=10)
    assert "unknown" in (first.status, second.status) or first.status == second.status
    met = synthesis_smt.ask(replace(question, horizon=best), seconds=10)
    assert met.status in ("sat", "unknown")
