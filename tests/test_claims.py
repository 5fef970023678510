"""Published claims hold exactly where we say that they hold; simulation is the judge."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.costs import CostModel
from verifier.families import FAMILIES, build_family
from verifier.simulate import simulate

SIZES = {
    "chimera": [(2, 2), (2, 6), (4, 4), (4, 12), (6, 6), (6, 12)],
    "interleaved": [(1, 1), (2, 1), (2, 2), (2, 4), (3, 2), (3, 3), (3, 4), (3, 6), (4, 8), (4, 10)],
    "dualpipe": [(2, 4), (2, 10), (4, 8), (4, 14), (6, 12), (6, 20), (8, 16), (8, 20)],
    "dualpipev": [(1, 2), (1, 5), (2, 4), (2, 7), (3, 6), (3, 10), (4, 8), (4, 11)],
}
STRAIGHT = [(ranks, microbatches) for ranks in range(1, 5) for microbatches in range(1, 10)]


def measured(quantity, schedule, costs):
    simulation = simulate(schedule, costs)
    if quantity == "activations":
        return {max(simulation.peak_activations)}
    if quantity == "weights":
        return {len(schedule.problem.stages_on(rank)) for rank in range(schedule.problem.ranks)}
    return set(simulation.timeline.idle if quantity == "idle" else simulation.timeline.span_idle)


def agrees(claim, schedule, costs):
    problem = schedule.problem
    return measured(claim.quantity, schedule, costs) == {claim.value(problem.ranks, problem.total_microbatches, costs)}


@st.composite
def costs_of(draw, stages):
    """All sorts of costs, often plain ones, of which the claims speak."""
    number = st.integers(0, 5)
    f, i, w = draw(st.tuples(number, number, number).filter(any))
    if draw(st.booleans()):
        f = i
    written = {"F": f, "I": i, "W": w}
    choice = draw(st.integers(0, 9))
    if choice < 3:
        written["FB"] = draw(st.integers(max(f, i + w), f + i + w))
    elif choice == 3:
        written["hop"] = Fraction(1, 4)
    elif choice == 4:
        written["B"] = i + w + 1
    elif choice == 5:
        written["F"] = [f, *[f + 1] * (stages - 1)]
    elif choice == 6:
        written |= {"release": Fraction(1, 2), "activation": 2}
    return CostModel.of(**written)


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=60)
@given(st.data())
def test_claims_hold_where_we_say(name, data):
    ranks, microbatches = data.draw(st.sampled_from(SIZES.get(name, STRAIGHT)))
    schedule = build_family(name, ranks, microbatches)
    costs = data.draw(costs_of(schedule.problem.stages))
    for claim in FAMILIES[name].claims:
        if claim.holds(ranks, microbatches, costs):
            assert agrees(claim, schedule, costs)


OUTSIDE = [
    CostModel.of(),
    CostModel.of(F=4, I=1, W=3, hop=1),
    CostModel.of(F=1, I=2, W=3),
    CostModel.of(release="1/2", activation=2),
]


@pytest.mark.parametrize("name", FAMILIES)
def test_claims_fail_somewhere_else(name):
    cases = [(build_family(name, *size), costs) for size in SIZES.get(name, STRAIGHT) for costs in OUTSIDE]
    for claim in FAMILIES[name].claims:
        inside, wrong = 0, 0
        for schedule, costs in cases:
            holds = claim.holds(schedule.problem.ranks, schedule.problem.total_microbatches, costs)
            inside += holds
            wrong += not holds and not agrees(claim, schedule, costs)
        assert inside
        assert wrong or claim.domain == "everywhere"


@pytest.mark.parametrize(("name", "ranks", "microbatches"), [("dualpipe", 6, 12), ("dualpipe", 4, 10), ("dualpipev", 3, 7)])
def test_where_the_published_dualpipe_bubble_is_exact_and_nowhere_else(name, ranks, microbatches):
    """Decided both ways wherever an overlapped pair takes at least as long as its longer part."""
    schedule, claim = build_family(name, ranks, microbatches), FAMILIES[name].claims[0]
    verdicts = set()
    for f, i, w in product(range(4), repeat=3):
        for pair in range(max(f, i + w, 1), f + i + w + 1):
            costs = CostModel.of(F=f, I=i, W=w, FB=pair)
            verdicts.add(claim.holds(ranks, microbatches, costs))
            assert claim.holds(ranks, microbatches, costs) == agrees(claim, schedule, costs)
    assert verdicts == {True, False}


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 2), (3, 3), (3, 5), (4, 8)])
def test_where_the_zb1p_bubble_is_exact_and_nowhere_else(ranks, microbatches):
    schedule, claim = build_family("zb1p", ranks, microbatches), FAMILIES["zb1p"].claims[0]
    for f, i, w in product(range(4), repeat=3):
        if f or i or w:
            costs = CostModel.of(F=f, I=i, W=w)
            assert claim.holds(ranks, microbatches, costs) == agrees(claim, schedule, costs) == (w <= min(f, i))


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ({"F": 1, "I": 1, "W": 1, "FB": 3}, {4: (2, True), 6: (4, True), 8: (6, True)}),
        ({"F": 1, "I": 1, "W": 1, "FB": 2}, {4: (1, True), 6: (2, False), 8: (3, False)}),
        ({"F": 2, "I": 2, "W": 2, "FB": 5}, {4: (3, True), 6: (6, False), 8: (9, False)}),
        ({"F": 10, "I": 12, "W": 9, "FB": 26}, {4: (20, False), 6: (40, False), 8: (60, False)}),
    ],
)
def test_published_dualpipe_bubbles(costs, expected):
    claim, model = FAMILIES["dualpipe"].claims[0], CostModel.of(**costs)
    for ranks, (value, holds) in expected.items():
        assert claim.value(ranks, 2 * ranks, model) == value
        assert claim.holds(ranks, 2 * ranks, model) == holds


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 9))
def test_interleaved_claims_for_any_number_of_stages(ranks, stages_per_rank, rounds):
    microbatches, costs = ranks * rounds, CostModel.of(F=2, B=3)
    schedule = build_family("interleaved", ranks, microbatches, stages_per_rank=stages_per_rank)
    for claim in FAMILIES["interleaved"].claims:
        if claim.holds(ranks, microbatches, costs, stages_per_rank):
            value = claim.value(ranks, microbatches, costs, stages_per_rank)
            assert measured(claim.quantity, schedule, costs) == {value}


def test_uneven_stages_are_valued_at_their_mean_and_never_covered():
    claim, costs = FAMILIES["1f1b"].claims[0], CostModel.of(F=[1, 1, 1, 3], B=2)
    assert claim.value(4, 8, costs) == 3 * (Fraction(3, 2) + 2)
    assert not claim.holds(4, 8, costs)
    assert claim.holds(4, 8, CostModel.of(F=[1, 1, 1, 1], B=[2, 2, 2, 2]))


def test_every_claim_names_its_source():
    for family in FAMILIES.values():
        assert [claim.quantity for claim in family.claims][1:] == ["activations", "weights"]
        for claim in family.claims:
            assert claim.source.startswith(("arXiv:", "deepseek-ai/DualPipe"))
            assert claim.formula
