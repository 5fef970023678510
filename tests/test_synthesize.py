"""The shortest schedules: known optima with their certificates, exact small ones, refusals, budgets and interrupts."""

import json
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.enumeration import shortest
from tests.questions import COLUMNS, bidirectional, examples, least, questions
from verifier.bounds import bounds
from verifier.commands.synthesizing import PLACEMENTS
from verifier.commands.synthesizing import synthesize as command
from verifier.costs import CostModel
from verifier.families import PLACEMENTS as KNOWN_PLACEMENTS
from verifier.families import build_family, placement
from verifier.formats import load
from verifier.model import Limits, Problem, Schedule, ScheduleError
from verifier.search.strings import Board, fits_mirror
from verifier.solvers.questions import Question, ReplayError
from verifier.solvers.synthesis_smt import smtlib
from verifier.synthesize import Synthesis, synthesize
from verifier.verify import verify

SEQUENTIAL = Problem(placement("sequential", 4), (8,))


def is_legal(found: Synthesis, costs: CostModel, limits: Limits) -> bool:
    return verify(found.schedule, costs, limits, solver="replay").status == "proved"


def deep(*values: object):
    """A case that takes long: only where the profile asks for many examples."""
    return pytest.param(*values, marks=pytest.mark.deep)


@pytest.mark.parametrize(("column", "optimum"), [(0, 25), (1, 42), (2, 47), (3, 245), deep(4, 1564)])
def test_two_copies_on_four_ranks(column, optimum):
    costs, limits = CostModel.of(**COLUMNS[column]), Limits(5)
    found = synthesize(bidirectional(4), costs, limits)
    assert (found.status, found.value) == ("optimal", optimum)
    assert is_legal(found, costs, limits)
    met_by_bound = bounds(bidirectional(4), costs, limits)[0].ticks == optimum
    assert (found.certificate.kind == "bound") == met_by_bound
    assert found.scope == ("all" if met_by_bound else "mirrored")


@pytest.mark.parametrize(
    ("cap", "column", "optimum"),
    [
        *((2, 0, 33), (2, 2, 66), deep(2, 3, 349), deep(2, 4, 2741)),
        *((4, 0, 25), (4, 2, 49), deep(4, 3, 254), deep(4, 4, 1800)),
        *((6, 0, 25), (6, 2, 47), deep(6, 3, 243), deep(6, 4, 1564)),
    ],
)
def test_other_limits(cap, column, optimum):
    found = synthesize(bidirectional(4), CostModel.of(**COLUMNS[column]), Limits(cap), scope="mirrored")
    assert (found.status, found.value) == ("optimal", optimum)


HOP = {"F": 4, "I": 4, "W": 4, "FB": 10, "hop": 1}


@pytest.mark.parametrize(
    ("problem", "prices", "cap", "optimum"),
    [(bidirectional(2, 8), HOP, 4, 87), deep(bidirectional(4), COLUMNS[0], 2, 32), deep(bidirectional(4), COLUMNS[2], 2, 64)],
)
def test_symmetry_is_given_up_where_it_is_known_to_lose(problem, prices, cap, optimum):
    found = synthesize(problem, CostModel.of(**prices), Limits(cap))
    assert (found.status, found.value, found.scope) == ("optimal", optimum, "all")
    assert synthesize(problem, CostModel.of(**prices), Limits(cap), scope="mirrored").value > optimum


@pytest.mark.parametrize(("column", "optimum"), [(0, 38), (1, 64), deep(2, 71), deep(3, 371)])
def test_two_copies_on_six_ranks(column, optimum):
    found = synthesize(bidirectional(6), CostModel.of(**COLUMNS[column]), Limits(7), budget=120)
    assert (found.status, found.value) == ("optimal", optimum)


@pytest.mark.parametrize(("cap", "optimum"), list(zip(range(1, 6), (72, 41, 31, 27, 27), strict=True)))
def test_one_copy(cap, optimum):
    found = synthesize(SEQUENTIAL, limits=Limits(cap))
    assert (found.status, found.value, found.scope) == ("optimal", optimum, "all")


@pytest.mark.parametrize(("cap", "optimum"), [(1, 96), (4, 33), (3, 39)])
def test_backwards_that_cannot_be_split(cap, optimum):
    found = synthesize(SEQUENTIAL, limits=Limits(cap), blocks=("F", "B"))
    assert (found.status, found.value) == ("optimal", optimum)
    assert {block.kind for row in found.schedule.order for block in row} == {"F", "B"}


def test_the_least_that_chimera_placement_allows():
    found = synthesize(bidirectional(4, 4), blocks=("F", "B"))
    assert (found.status, found.value, found.scope, found.certificate.kind) == ("optimal", 16, "all", "bound")
    assert synthesize(bidirectional(4, 4)).value == 13


@pytest.mark.parametrize(("column", "optimum"), [(0, 25), (1, 42), (2, 47), deep(3, 245), deep(4, 1564)])
def test_all_schedules_where_asked(column, optimum):
    costs = CostModel.of(**COLUMNS[column])
    found = synthesize(bidirectional(4), costs, Limits(5), scope="all", budget=120)
    assert (found.status, found.value, found.scope, found.scope_bound) == ("optimal", optimum, "all", None)
    assert found.lower_bound == optimum


def test_symmetry_is_left_where_it_has_no_room():
    """With one activation a rank cannot hold its micro-batch and the mirror image of it."""
    for ranks, budget in ((2, 10), (8, 1)):
        found = synthesize(bidirectional(ranks), limits=Limits(1), budget=budget)
        assert found.status in ("optimal", "feasible")
        assert is_legal(found, CostModel.of(), Limits(1))
    with pytest.raises(ScheduleError, match="room for a micro-batch of each direction"):
        synthesize(bidirectional(2), limits=Limits(1), scope="mirrored")


def test_symmetry_is_left_where_pairs_are_short():
    problem, costs = bidirectional(2, 4), CostModel.of(F=1, I=3, W=9, FB=1)
    assert synthesize(problem, costs).value == 23
    mirrored = synthesize(problem, costs, scope="mirrored")
    assert (mirrored.value, mirrored.scope) == (28, "mirrored")
    assert mirrored.lower_bound <= 23 < mirrored.scope_bound == 28


def test_larger_sizes_meet_the_bound():
    found = synthesize(bidirectional(8, 20), limits=Limits(9))
    assert (found.status, found.value, found.certificate.kind) == ("optimal", 63, "bound")
    assert synthesize(Problem(placement("sequential", 8), (16,)), limits=Limits(8)).value == 55


@pytest.mark.deep
@pytest.mark.parametrize(("ranks", "excess"), [(8, (0, 0, 2, 10)), (16, (0, 0, 3, 17))])
@pytest.mark.parametrize("column", range(4))
@pytest.mark.parametrize("long", [False, True])
def test_the_gap_stays_the_same_for_more_microbatches(ranks, excess, column, long):
    problem, costs = bidirectional(ranks, 512 if long else 8 * ranks), CostModel.of(**COLUMNS[column])
    found = synthesize(problem, costs, Limits(ranks + 1), budget=60)
    assert found.gap <= excess[column]
    assert is_legal(found, costs, Limits(ranks + 1))


@pytest.mark.deep
@pytest.mark.parametrize("column", [0, 1])
def test_the_largest_sizes_meet_the_bound(column):
    found = synthesize(bidirectional(32, 512), CostModel.of(**COLUMNS[column]), Limits(33))
    assert (found.status, found.certificate.kind) == ("optimal", "bound")


@pytest.mark.parametrize("microbatches", [1, 2, 3, deep(5)])
def test_v_placement_on_half_the_ranks_has_the_same_optimum(microbatches):
    costs = CostModel.of(F=3, I=4, W=2, FB=8)
    _same_on_half_the_ranks(4, microbatches, costs, Limits(5))


@examples(8, 150)
@given(
    st.sampled_from((2, 4)),
    st.integers(1, 3),
    st.fixed_dictionaries({kind: st.integers(1, 6) for kind in ("F", "I", "W", "FB")}),
    st.integers(0, 3),
)
def test_v_placements_have_the_optima_of_mirrored_schedules(ranks, microbatches, prices, more):
    _same_on_half_the_ranks(ranks, microbatches, CostModel.of(**prices), Limits(2 + more))


def _same_on_half_the_ranks(ranks: int, microbatches: int, costs: CostModel, limits: Limits) -> None:
    two = synthesize(bidirectional(ranks, 2 * microbatches), costs, limits, scope="mirrored", budget=20)
    v = synthesize(Problem(placement("v", ranks // 2), (microbatches,)), costs, limits, budget=20)
    for one, other in ((two, v), (v, two)):
        assert (one.scope_bound or one.lower_bound) <= other.value
    if two.status == v.status == "optimal":
        assert two.value == v.value


@examples(20, 400)
@given(questions(max_work=4))
def test_tiny_problems_against_all_orders_there_are(question):
    optimum = shortest(question.problem, question.costs, question.limits, question.blocks, question.pairs, most=20_000)
    found = _exactly(question)
    if optimum is None:
        return
    assert found.value * question.costs.ticks_per_unit >= optimum
    # What solvers make of blocks without duration may be refused by replay; then the gap stays open.
    if found.status == "optimal" or question.costs.prices.get("F&B") != 0:
        assert (found.status, found.value * question.costs.ticks_per_unit) == ("optimal", optimum)


@examples(10, 200)
@given(questions(max_work=10))
def test_small_problems_are_solved_exactly(question):
    optimum = least(question)
    found = _exactly(question)
    if optimum is not None:
        assert found.value * question.costs.ticks_per_unit >= optimum
        if found.status == "optimal":
            assert found.value * question.costs.ticks_per_unit == optimum


SIZES = [
    (name, ranks, microbatches)
    for name in ("sequential", "interleaved", "v", "bidirectional")
    for ranks in (2, 3, 4, 5)
    for microbatches in (1, 2, 3, 4, 5, 6)
]


@pytest.mark.parametrize(("name", "ranks", "microbatches"), [size if size[1] * size[2] <= 4 else deep(*size) for size in SIZES])
def test_every_placement_is_solved_exactly(name, ranks, microbatches):
    rows = placement(name, ranks)
    counts = (microbatches,) if len(rows) == 1 else (-(-microbatches // 2), microbatches // 2)
    draw = Random(f"{name} {ranks} {microbatches}")
    costs = CostModel.of(**{kind: draw.randint(1, 5) for kind in "FIW"}, FB=draw.randint(3, 12), hop=draw.randint(0, 2))
    limits = Limits(2 + draw.randint(0, ranks))
    question = Question(Problem(rows, counts), costs, limits, 0)
    found, optimum = _exactly(question), least(question)
    assert found.lower_bound <= found.value
    if optimum is not None:
        assert (found.status, found.value) == ("optimal", optimum)


def _exactly(question: Question) -> Synthesis:
    """What a search among all schedules gives; legal in any case."""
    found = synthesize(
        question.problem, question.costs, question.limits, blocks=question.blocks, pairs=question.pairs, scope="all", budget=20
    )
    assert is_legal(found, question.costs, question.limits)
    return found


@examples(6, 100)
@given(st.sampled_from((2, 3, 4)), st.integers(1, 6), st.sampled_from(("sequential", "v", "bidirectional")), st.integers(0, 2))
def test_odd_numbers_and_few_microbatches(ranks, microbatches, name, hop):
    rows = placement(name, ranks)
    counts = (microbatches,) if len(rows) == 1 else (-(-microbatches // 2), microbatches // 2)
    costs = CostModel.of(F=2, I=3, W=1, FB=5, hop=hop)
    found = synthesize(Problem(rows, counts), costs, Limits(ranks + 2), budget=0.6)
    assert found.status in ("optimal", "feasible")
    assert found.lower_bound <= found.value
    assert is_legal(found, costs, Limits(ranks + 2))


def test_span_objective():
    found = synthesize(SEQUENTIAL, limits=Limits(6), objective="span-idle")
    assert (found.status, found.value) == ("optimal", 25)
    assert found.as_json()["longest_span"] == 25


@pytest.mark.parametrize(
    ("problem", "limits", "said"),
    [
        (bidirectional(4), Limits(0), "limit is 0"),
        (Problem(placement("v", 2), (3,)), Limits(1), "limit is 1"),
        (bidirectional(4), Limits(5, 1), "2 weight copies; the limit is 1"),
    ],
)
def test_limits_that_nothing_meets_are_refused_with_the_reason(problem, limits, said):
    found = synthesize(problem, limits=limits)
    assert found.status == "infeasible"
    assert said in found.reason
    assert said in found.sentence()
    assert found.as_json()["reason"] == found.reason


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"scope": "half"}, "scope: expected"),
        ({"pairs": "none"}, "pairs: expected"),
        ({"objective": "speed"}, "objective: expected"),
        ({"scope": "mirrored"}, "mirror image"),
        ({"blocks": ("F", "I")}, "blocks: expected"),
        ({"limits": Limits((1, 2))}, "limits.activations"),
    ],
)
def test_wrong_use(written, said):
    with pytest.raises(ScheduleError, match=said):
        synthesize(SEQUENTIAL, **written)


@pytest.mark.parametrize("cap", [2, 3, 9])
def test_a_short_budget_gives_a_legal_schedule_and_its_gap(cap):
    costs, limits = CostModel.of(**COLUMNS[3]), Limits(cap)
    found = synthesize(bidirectional(8), costs, limits, budget=0.2)
    assert found.status == "feasible"
    assert found.gap > 0
    assert found.certificate is None
    assert is_legal(found, costs, limits)
    assert "lower bound" in found.sentence()


def test_what_solvers_cannot_close_is_left_to_local_search():
    costs, limits = CostModel.of(**COLUMNS[2]), Limits(9)
    found = synthesize(bidirectional(8), costs, limits, budget=2.5)
    assert 94 <= found.value <= 98, "DualPipe's own order needs 98"
    assert is_legal(found, costs, limits)


def test_progress_and_interrupts():
    told: list[tuple[Fraction, ...]] = []

    def tell(*news: Fraction) -> None:
        told.append(news)
        raise KeyboardInterrupt

    found = synthesize(bidirectional(4), CostModel.of(**COLUMNS[3]), Limits(5), on_progress=tell)
    assert found.interrupted
    assert found.status == "feasible"
    assert told == [(found.value, found.lower_bound, found.gap)]


def test_an_interrupt_of_the_local_search_ends_all(monkeypatch):
    """The local search hands over what it has when it is interrupted; that must not look like the end of its turn."""
    import verifier.synthesize as module

    def interrupted(*args, **kwargs):
        return replace(improve(*args, **{**kwargs, "seconds": None, "evaluations": 1000}), interrupted=True)

    improve = module.improve
    monkeypatch.setattr(module, "improve", interrupted)
    costs = CostModel.of(F=10, I=12, W=9, FB=26, hop=1)
    found = synthesize(bidirectional(8, 20), costs, Limits(9), budget=20)
    assert found.interrupted
    assert is_legal(found, costs, Limits(9))


def test_local_search_never_gets_more_than_the_time_that_is_left(monkeypatch):
    """Its turns double; the last one begins with less time than its turn would be."""
    import verifier.synthesize as module

    search = module._Search(Question(bidirectional(4, 10), CostModel.of(**COLUMNS[3]), Limits(5), 0), 5.0, 0, lambda *_: None)
    search.offer(build_family("dualpipe", 4, 10))
    given: list[float] = []

    def noted(*args, seconds, **kwargs):
        given.append(seconds)
        raise ImportError

    monkeypatch.setattr(module, "improve", noted)
    search._improve(100.0, 0)
    assert given[0] <= 5.0


def test_what_is_known_already_is_taken():
    costs, limits = CostModel.of(**COLUMNS[2]), Limits(5)
    best = synthesize(bidirectional(4), costs, limits).schedule
    told: list[Fraction] = []
    again = synthesize(
        bidirectional(4),
        costs,
        limits,
        seeds=[build_family("1f1b", 4, 8), best],
        on_progress=lambda value, *_: told.append(value),
    )
    assert set(told) == {47}
    assert again.schedule == best


def test_a_seed_that_is_not_symmetric_widens_the_scope():
    problem, costs = bidirectional(2, 4), CostModel.of()
    row = synthesize(problem, costs, scope="all").schedule
    lopsided = Schedule(problem, (row.order[0], _serial(problem)))
    assert fits_mirror(problem, costs, Limits())
    found = synthesize(problem, costs, seeds=[lopsided])
    assert found.scope == "all"


def _serial(problem: Problem) -> tuple:
    from verifier.search.seeds import one_at_a_time, usable

    board = Board(problem, CostModel.of(), Limits())
    return board.decode(usable(one_at_a_time(board), board)).order[1]


def test_solvers_that_contradict_each_other_stop_the_program(monkeypatch):
    from verifier.solvers import synthesis_smt
    from verifier.solvers.questions import Answer

    best = synthesize(SEQUENTIAL, limits=Limits(3)).schedule
    monkeypatch.setattr(synthesis_smt, "ask", lambda *_, **__: Answer("sat", "Z3", 0.0, best))
    with pytest.raises(ReplayError, match="contradicts"):
        synthesize(SEQUENTIAL, limits=Limits(3))


def test_the_claim_is_what_the_solvers_refuted():
    found = synthesize(SEQUENTIAL, limits=Limits(3))
    assert found.claim.horizon == 30
    assert "at most 30 ticks" in smtlib(found.claim)
    assert synthesize(SEQUENTIAL, limits=Limits(4)).claim is None


def test_blocks_that_take_no_time_leave_no_claim():
    """They could wait for one another at one moment, which replay refuses and the text does not."""
    found = synthesize(bidirectional(2, 2), CostModel.of(F=5, I=3, W=0, FB=0))
    assert (found.status, found.value, found.claim) == ("optimal", 16, None)


def test_larger_costs_of_a_tick_change_nothing():
    halves = {key: Fraction(value, 2) for key, value in COLUMNS[2].items()}
    found = synthesize(bidirectional(4), CostModel.of(**halves), Limits(5))
    assert found.value == Fraction(47, 2)
    assert found.as_json()["makespan"] == "47/2"


# ------------------------------------------------------------------------------------------------------------- command


def run(*words: str):
    return CliRunner().invoke(command, words, standalone_mode=False)


def test_command_writes_schedule_and_claim(tmp_path):
    file = tmp_path / "best.json"
    words = ["--placement", "sequential", "-P", "4", "-M", "8", "--activations", "3", "-o", str(file), "--json"]
    said = run(*words)
    assert said.return_value == 0
    written = json.loads(said.stdout)
    assert (written["status"], written["makespan"], written["scope"], written["file"]) == ("optimal", 31, "all", str(file))
    source = load(file)
    assert source.certificate["lower_bound"] == 31
    assert verify(source.schedule, source.costs, source.limits, claims=source.claims).status == "proved"
    assert "(check-sat)" in file.with_suffix(".smt2").read_text()


def test_cvc5_confirms_that_nothing_is_shorter(tmp_path):
    pytest.importorskip("cvc5")
    from verifier.theorems.opinion import answers

    file = tmp_path / "best.json"
    words = "--placement v -P 2 -M 3 --activations 3 --costs F=2,I=3,W=2,hop=1 --json -o"
    said = json.loads(run(*words.split(), str(file)).stdout)
    assert (said["status"], said["makespan"]) == ("optimal", 56)
    assert answers(file.with_suffix(".smt2").read_text()) == ["unsat"]


def test_command_speaks_to_people():
    said = run("--placement", "bidirectional", "-P", "2", "-M", "3", "--costs", "F=1,I=2,W=1", "--budget", "10")
    assert said.return_value == 0
    assert said.stdout.startswith("optimal: makespan")


def test_command_refuses():
    assert run("--placement", "v", "-P", "2", "-M", "3", "--activations", "1").return_value == 1
    for words in (["-P", "2"], [], ["--placement", "v", "-P", "2", "-M", "x"], ["--placement", "v", "-P", "2", "-M", "1,2"]):
        assert isinstance(run(*words).exception, ScheduleError)


def test_command_keeps_problems_and_claims_apart(tmp_path):
    spec, file, claim = tmp_path / "problem.toml", tmp_path / "best.json", tmp_path / "best.smt2"
    spec.write_text('[problem]\nplacement = "sequential"\nranks = 4\nmicrobatches = 8\n')
    for words in (["-M", "5"], ["-P", "5"], ["--placement", "v"]):
        assert "has a problem; expected no --placement" in str(run("--spec", str(spec), *words).exception)
    assert "names in .smt2" in str(run("--spec", str(spec), "-o", str(claim)).exception)
    small = ("--placement", "sequential", "-P", "4", "-M", "8", "-o", str(file))
    assert run(*small, "--activations", "3").return_value == 0
    assert claim.exists()
    assert run(*small, "--activations", "4").return_value == 0
    assert not claim.exists(), "what was refuted before is no claim about this schedule"
    claim.write_text("; mine\n")
    assert run(*small, "--activations", "4").return_value == 0
    assert claim.read_text() == "; mine\n"


def test_command_reads_a_spec(tmp_path):
    spec = tmp_path / "problem.toml"
    spec.write_text('[problem]\nplacement = "sequential"\nranks = 4\nmicrobatches = 8\n[limits]\nactivations = 2\n')
    said = run("--spec", str(spec), "--json")
    assert json.loads(said.stdout)["makespan"] == 41


def test_command_knows_the_placements():
    assert tuple(KNOWN_PLACEMENTS) == PLACEMENTS


def test_results_are_frozen():
    with pytest.raises(AttributeError):
        replace(Synthesis("unknown", reason="no time")).status = "optimal"
