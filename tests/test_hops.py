"""What hops cost in the long run: the least activations, orders that do with them, and the files in examples/hops."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.questions import bidirectional
from tests.strategies import v_shaped
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.formats import load
from verifier.hops import least_activations, room, spaced
from verifier.model import Limits, Problem, ScheduleError
from verifier.simulate import simulate
from verifier.solvers import cpsat
from verifier.solvers.questions import Question
from verifier.theorems.bubble import extended, prove_bubble_constant
from verifier.verify import verify

FILES = sorted(Path("examples/hops").glob("*.json"))
COSTS = {"F": 20, "I": 20, "W": 20, "FB": 50}


def growth(schedule, costs) -> Fraction:
    """Idle time that one more micro-batch adds to every rank: proved, for all larger numbers of micro-batches."""
    proof = prove_bubble_constant(schedule, costs)
    assert proof.status in ("proved", "refuted")
    (more,) = {Fraction(each) for each in proof.numbers["growth_per_microbatch"]}
    assert (proof.status == "proved") == (more == 0)
    return more


# ---------------------------------------------------------------------------------------------------------- the files


def test_there_are_files():
    assert [file.stem for file in FILES] == ["p4-a6", "p4-a8", "p8-a10", "p8-a12", "p8-a16"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_files_are_legal(file):
    source = load(file)
    assert file.stem == f"p{source.schedule.problem.ranks}-a{source.limits.activations}"
    assert verify(source.schedule, source.costs, source.limits, claims=source.claims, solver="replay").status == "proved"


@pytest.mark.parametrize(
    ("file", "hop"),
    [
        *((f"p4-a{activations}", hop) for activations in (6, 8) for hop in (1, 2, 4)),  # 5, 10 and 20 % of F
        *((f"p8-a{activations}", 2) for activations in (12, 16)),
        *(pytest.param(f"p8-a{a}", h, marks=pytest.mark.deep) for a in (10, 12, 16) for h in (1, 2, 4) if a == 10 or h != 2),
    ],
)
def test_files_grow_as_they_should(file, hop):
    source, costs = load(f"examples/hops/{file}.json"), CostModel.of(**COSTS, hop=hop)
    ranks, activations = source.schedule.problem.ranks, source.limits.activations
    more = growth(source.schedule, costs)
    assert more == hop * (2 * ranks - activations) / ranks
    assert (more == 0) == (activations >= least_activations(source.schedule.problem, costs))


@pytest.mark.parametrize(("file", "microbatches"), [("p4-a8", 20), ("p8-a16", 136)])
def test_what_does_not_grow_is_shorter_in_the_end(file, microbatches):
    schedule, costs = load(f"examples/hops/{file}.json").schedule, CostModel.of(**COSTS, hop=2)
    longer, dualpipe = extended(schedule, microbatches, costs), build_family("dualpipe", schedule.problem.ranks, microbatches)
    ours, theirs = (simulate(order, costs).timeline.makespan for order in (longer, dualpipe))
    assert ours < theirs
    assert ours - simulate(schedule, costs).timeline.makespan == 50 * (microbatches - schedule.problem.total_microbatches)


# ------------------------------------------------------------------------------------------------------------ the orders


@pytest.mark.parametrize("ranks", [4, 6, 8])
def test_what_a_hop_adds_to_dualpipe(ranks):
    schedule = build_family("dualpipe", ranks, 4 * ranks)
    for hop in (1, 4):
        assert growth(schedule, CostModel.of(**COSTS, hop=hop)) == hop * (1 - Fraction(1, ranks))


@pytest.mark.parametrize(("ranks", "activations"), [(p, a) for p in (2, 3, 4, 6) for a in range(p + 1, 2 * p + 1)])
def test_spaced_orders_grow_by_their_longest_run_without_room(ranks, activations):
    schedule = spaced(ranks, 6 * ranks, activations)
    runs = [len(run) + 1 for run in "".join("x" if spare else "." for spare in room(ranks, activations)).split("x")]
    assert set(simulate(schedule).peak_activations) == {activations}
    for costs in ({**COSTS, "hop": 2}, {"F": 10, "I": 12, "W": 9, "FB": 26, "hop": 5}):
        assert growth(schedule, CostModel.of(**costs)) == costs["hop"] * (1 - Fraction(1, max(runs)))


def test_a_hop_longer_than_a_pair_needs_the_next_activation():
    for hop, least in ((50, 8), (51, 11), (100, 11)):
        costs = CostModel.of(**COSTS, hop=hop)
        assert least_activations(bidirectional(4), costs) == least
        assert growth(spaced(4, 32, least), costs) == 0
        assert growth(spaced(4, 32, least - 1), costs) > 0


@given(st.integers(2, 7), st.integers(1, 12), st.integers(0, 9), st.integers(0, 60))
def test_spaced_orders_are_legal(ranks, half, more, hop):
    schedule = spaced(ranks, 2 * half, ranks + 1 + more)
    report = verify(schedule, CostModel.of(**COSTS, hop=hop), Limits(ranks + 1 + more, 2), solver="replay")
    assert report.status == "proved"


@pytest.mark.parametrize("sizes", [(1, 4, 3), (4, 7, 8), (4, 0, 8), (4, 8, 4)])
def test_sizes_out_of_range_are_refused(sizes):
    with pytest.raises(ScheduleError, match="expected P >= 2"):
        spaced(*sizes)


# ------------------------------------------------------------------------------------------------------------- the bound


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("hop", [0, 1, 3, 6, 7])
def test_no_kernel_of_pairs_does_with_less(ranks, hop):
    costs = CostModel.of(F=4, I=4, W=4, FB=6, hop=hop)
    least = least_activations(Problem((tuple(range(ranks)), tuple(reversed(range(ranks)))), (1, 1)), costs)
    for period in (1, 2, 3):
        assert not has_kernel_of_pairs(ranks, least - 1, 6, hop, period)
    assert has_kernel_of_pairs(ranks, least, 6, hop, 1)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("activations", "period", "least"),
    [
        *((5, period, "3/4") for period in range(1, 7)),
        *((6, period, "1/2") for period in (1, 2, 3)),
        (6, 5, "2/5"),
        *((7, period, "1/2") for period in (1, 2)),
        *((7, period, f"1/{period}") for period in (3, 4, 5, 6)),
    ],
)
def test_longer_kernels_of_four_ranks_grow_less(activations, period, least):
    idle = int(2 * period * 12 * Fraction(least))
    assert has_kernel_of_pairs(4, activations, 60, 12, period, idle)
    assert not has_kernel_of_pairs(4, activations, 60, 12, period, idle - 1)


def has_kernel_of_pairs(ranks: int, activations: int, pair: int, hop: int, period: int, idle: int = 0) -> bool:
    """
    Whether all ranks can repeat so many X0 and X1 with so much idle time, by a model that knows nothing of means and phases.

    A rank that has u more X1 than the backward of direction 0 that it runs, and v more X0 than that of direction 1, holds
    u + v + 1 activations. A rank's u is best not below that of a rank behind it, and its v not above, so with one limit for all
    ranks they are all alike: the wave goes up through the X0, and comes back through the X1 u + v places later.
    """
    from ortools.sat.python import cp_model

    model, round_time = cp_model.CpModel(), 2 * pair * period + idle
    far = 4 * ranks * (pair + hop) + round_time
    up, down = ([[model.new_int_var(0, far, "") for _ in range(period)] for _ in range(ranks)] for _ in range(2))
    model.add(up[0][0] == 0)
    for row in (*up, *down):
        for k in range(period):
            model.add((row[k + 1] if k + 1 < period else row[0] + round_time) >= row[k] + pair)
    for k in range(period):
        for rank in range(ranks - 1):
            model.add(up[rank + 1][k] >= up[rank][k] + pair + hop)
            model.add(down[rank][k] >= down[rank + 1][k] + pair + hop)
        model.add(down[-1][k] >= up[-1][k] + pair)
        rounds, place = divmod(k + activations - 1, period)
        model.add(up[0][place] + rounds * round_time >= down[0][k] + pair)
        for rank in range(ranks):
            for other in range(period):
                apart = down[rank][other] - up[rank][k] - round_time * model.new_int_var(-far, far, "")
                model.add(apart >= pair)
                model.add(apart <= round_time - pair)
    return cp_model.CpSolver().solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)


@pytest.mark.deep
@pytest.mark.parametrize(("activations", "makespans"), [(5, (97, 117, 138)), (6, (95, 115, 136)), (7, (95, 115, 135))])
def test_exact_optima_of_a_v_stop_growing_at_the_bound(activations, makespans):
    costs = CostModel.of(F=4, I=4, W=4, FB=10, hop=1)
    assert least_activations(Problem(v_shaped(2), (4,)), costs) == 7
    for microbatches, makespan in zip((4, 5, 6), makespans, strict=True):
        question = Question(Problem(v_shaped(2), (microbatches,)), costs, Limits(activations), makespan)
        assert cpsat.ask(question, seconds=60).status == "sat"
        below = Question(question.problem, costs, question.limits, makespan - 1)
        assert cpsat.ask(below, seconds=120).status == "unsat"


def test_only_links_with_a_hop_count():
    within = [[0, 0, 9, 9], [0, 0, 9, 9], [9, 9, 0, 0], [9, 9, 0, 0]]  # two ranks on each node
    assert least_activations(bidirectional(4), CostModel.of(**COSTS, hop=within)) == 6


@pytest.mark.parametrize(
    ("problem", "costs"),
    [
        (Problem(((0, 1, 2, 3),), (8,)), COSTS),
        (Problem(((0, 1, 0, 1),), (8,)), COSTS),
        (Problem(((0, 1), (0, 1)), (4, 4)), COSTS),
        (bidirectional(4), {**COSTS, "FB": 60}),
        (bidirectional(4), {**COSTS, "B": 30}),
        (bidirectional(4), {**COSTS, "F": [20, 20, 20, 30]}),
        (bidirectional(4), {**COSTS, "FF": 30}),
        (bidirectional(4), {**COSTS, "activation": 2}),
    ],
)
def test_where_the_argument_does_not_apply(problem, costs):
    assert least_activations(problem, CostModel.of(**costs)) is None
