import copy
import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.check.bubble import check_bubble
from verifier.check.conditions import EvidenceError
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.formats import load
from verifier.model import Block, Problem, Schedule, ScheduleError
from verifier.simulate import simulate
from verifier.sources import open_source
from verifier.theorems.bubble import extended, prove_bubble_constant, split_of
from verifier.theorems.periodic import Split, candidates, first_split, insert_kernels, splits
from verifier.verify import verify

CONSTANT = [("1f1b", 4, 8), ("zb1p", 4, 9), ("zb2p", 3, 8), ("zbv", 3, 8), ("dualpipe", 8, 20), ("dualpipev", 3, 7)]
CONSTANT += [("interleaved", 3, 12)]
GROWING = [("chimera", 4, 12, ""), ("1f1b", 4, 8, "F=10,I=10,W=10,hop=1"), ("dualpipe", 4, 10, "hop=1/3")]


def proved(family, ranks, microbatches, costs=""):
    return prove_bubble_constant(build_family(family, ranks, microbatches), CostModel.parse(costs or "F=1"))


@pytest.mark.parametrize(("family", "ranks", "microbatches"), CONSTANT)
def test_the_bubble_of_a_family_is_constant_and_the_checker_agrees(family, ranks, microbatches):
    proof = proved(family, ranks, microbatches)
    assert proof.status == "proved"
    assert proof.conditions == proof.discharged > 0
    assert check_bubble(json.loads(json.dumps(proof.evidence))).startswith("constant")


@pytest.mark.parametrize(("family", "ranks", "microbatches", "costs"), GROWING)
def test_a_growing_bubble_is_refuted_with_its_growth(family, ranks, microbatches, costs):
    proof = proved(family, ranks, microbatches, costs)
    assert proof.status == "refuted"
    assert check_bubble(json.loads(json.dumps(proof.evidence))).startswith("growing")
    split = split_of(build_family(family, ranks, microbatches), proof)
    # Circuits of at most 8 copies: over 8 periods the growth is exact once the start is over.
    early, late = (simulate(insert_kernels(split, k), CostModel.parse(costs or "F=1")).timeline.idle for k in (8, 16))
    growth = [(b - a) / 8 for a, b in zip(early, late, strict=True)]
    assert [Fraction(number) for number in proof.numbers["growth_per_period"]] == growth


def test_hop_time_makes_the_bubble_of_dualpipe_grow_as_measured():
    # Two overlapped pairs and hop (2 - 1/q) for two micro-batches, q = 4.
    assert proved("dualpipe", 8, 20, "hop=1").numbers["time_per_period"] == str(Fraction(6) + 2 - Fraction(1, 4))


@given(st.sampled_from(CONSTANT), st.integers(0, 5), st.tuples(*[st.integers(1, 9)] * 4))
def test_more_kernel_periods_do_what_the_theorem_says(size, periods, prices):
    family, ranks, microbatches = size
    f, i, w, more = prices
    costs = CostModel.of(F=f, I=i, W=w, FB=max(f, i + w) + more)
    schedule = build_family(family, ranks, microbatches)
    proof = prove_bubble_constant(schedule, costs)
    if proof.status != "proved":
        return
    longer = insert_kernels(split_of(schedule, proof), periods)
    report = verify(longer, costs, solver="replay")
    assert report.status == "proved"
    assert report.simulation.timeline.idle == simulate(schedule, costs).timeline.idle
    assert report.simulation.peak_activations == simulate(schedule, costs).peak_activations


@pytest.mark.parametrize(("family", "ranks", "microbatches"), CONSTANT)
def test_extending_a_family_gives_the_family(family, ranks, microbatches):
    period = first_split(build_family(family, ranks, microbatches)).microbatches_per_period
    more = microbatches + 3 * period
    assert extended(build_family(family, ranks, microbatches), more) == build_family(family, ranks, more)


def test_extending_says_what_is_wrong():
    with pytest.raises(ScheduleError, match="cannot be extended: each kernel period"):
        extended(open_source("specs/loops-early-1f1b.toml", ranks=2, microbatches=8).schedule, 12, CostModel.of(hop=9))
    with pytest.raises(ScheduleError, match=r"M = 11 micro-batches; expected 8 or 2, 4, \.\.\. more"):
        extended(build_family("dualpipe", 4, 8), 11)
    with pytest.raises(ScheduleError, match="M = 6"):
        extended(build_family("dualpipe", 4, 8), 6)
    with pytest.raises(ScheduleError, match="at least 0"):
        insert_kernels(first_split(build_family("1f1b", 2, 4)), -1)


def schedule_of(*rows, microbatches):
    placement = (tuple(range(len(rows))),)
    return Schedule(Problem(placement, (microbatches,)), tuple(tuple(map(Block.parse, row.split())) for row in rows), "own")


def test_directions_of_different_size_are_unknown():
    order = (tuple(Block.parse(text) for text in ("0F0", "0B0", "0F1", "0B1", "0F0'", "0B0'")),)
    proof = prove_bubble_constant(Schedule(Problem(((0,), (0,)), (2, 1)), order))
    assert (proof.status, proof.discharged) == ("unknown", 0)


def test_a_kernel_may_be_as_long_as_the_schedule():
    assert [split.period for split in splits(schedule_of("0F0 0F1 0B0 0B1", microbatches=2))] == [1, 2]
    assert candidates(schedule_of("0F0 0F1 0I1 0I0 0W1 0W0", microbatches=2), 1) is None


def test_an_illegal_schedule_is_refuted_by_its_own_fault():
    hanging = schedule_of("0B0 0F0", microbatches=1)
    proof = prove_bubble_constant(hanging)
    assert proof.status == "refuted"
    assert "not legal" in proof.witness[0]
    assert prove_bubble_constant(schedule_of("0F0", microbatches=1)).status == "refuted"


def test_weights_in_another_order_than_their_inputs_are_renumbered_too():
    row = "0F0 0F1 0I0 0I1 0W1 0W0 0F2 0F3 0I2 0I3 0W3 0W2"
    schedule = schedule_of(row, microbatches=4)
    proof = prove_bubble_constant(schedule)
    assert proof.status == "proved"
    assert split_of(schedule, proof).period == 2
    assert check_bubble(proof.evidence).startswith("constant")


# ---------------------------------------- the checker can say no


def tampered(change):
    evidence = copy.deepcopy(dict(proved("dualpipe", 4, 10, "F=2,I=3,W=2,FB=6").evidence))
    evidence = json.loads(json.dumps(evidence))
    change(evidence)
    return evidence


def swap_rows(evidence):
    order = evidence["schedule"]["order"]
    order[0], order[3] = order[3], order[0]


CHANGES = {
    "a start": lambda e: e["timed"]["start"].__setitem__(9, e["timed"]["start"][9] + 50),
    "a free start": lambda e: e["free"]["start"].__setitem__(9, 0),
    "a negative start": lambda e: e["timed"]["start"].__setitem__(0, -1),
    "T": lambda e: e["timed"].__setitem__("per_copy", e["timed"]["per_copy"] - 1),
    "the makespan": lambda e: e.__setitem__("makespan", e["makespan"] - 1),
    "a larger makespan": lambda e: e.__setitem__("makespan", e["makespan"] + 1),
    "a window": lambda e: e["windows"].__setitem__(0, [0, 2]),
    "the period": lambda e: e.__setitem__("period", 2),
    "the costs": lambda e: e["costs"].__setitem__("F", 3),
    "a missing op": lambda e: e["schedule"]["order"][1].pop(),
    "two rows": swap_rows,
    "a path": lambda e: e["paths"][0]["nodes"].pop(3),
    "its middle": lambda e: e["paths"][0].__setitem__("middle", [0, 1]),
    "no path": lambda e: e.__setitem__("paths", []),
    "the claim": lambda e: e.__setitem__("claim", "growing"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_checker_refuses_evidence_that_was_tampered_with(change):
    with pytest.raises((EvidenceError, ValueError)):
        check_bubble(tampered(change))


def test_the_checker_accepts_the_untouched_evidence():
    assert check_bubble(tampered(lambda evidence: None)).startswith("constant")


def test_a_split_knows_its_kernel():
    split = first_split(build_family("dualpipe", 4, 10))
    assert isinstance(split, Split)
    assert split.moved(2).schedule == insert_kernels(split, 2)
    assert [str(block) for block in split.moved(1).kernel(0)] == ["(0F4;3B2')", "(3F3';0B1)"]


# ---------------------------------------- synthesized schedules, and what hops do

FOUND = Path(__file__).parents[1] / "generated_schedules"


@pytest.mark.parametrize(
    "name",
    [
        "bidirectional-p04-m016-F1-I1-W1-FB3-a5",
        "bidirectional-p04-m016-F10-I12-W9-FB26-a5",
        "bidirectional-p08-m064-F2-I2-W2-FB5-a9",
        "bidirectional-p08-m064-F76-I116-W35-FB129-a9",
    ],
)
def test_a_synthesized_schedule_with_a_kernel_is_proved_and_extended(name):
    source = load(FOUND / f"{name}.json")
    schedule = source.schedule
    proof = prove_bubble_constant(schedule, source.costs)
    assert proof.status == "proved"
    # Both directions get as many.
    assert (proof.numbers["microbatches_per_period"], split_of(schedule, proof).period) == (2, 1)
    longer = extended(schedule, schedule.problem.total_microbatches + 10, source.costs)
    assert longer.problem.microbatches == tuple(count + 5 for count in schedule.problem.microbatches)
    assert simulate(longer, source.costs).timeline.idle == simulate(schedule, source.costs).timeline.idle


@pytest.mark.parametrize(("family", "microbatches"), [("gpipe", 16), ("1f1b", 2), ("1f1b", 1)])
def test_a_kernel_that_stands_there_once_refutes_nothing(family, microbatches):
    proof = prove_bubble_constant(build_family(family, 4, microbatches))
    assert proof.status == "unknown"
    assert "nothing in this order repeats" in proof.witness[0]
    assert "--all-microbatches" in proof.witness[0]


@pytest.mark.parametrize("ranks", [2, 4, 6])
@pytest.mark.parametrize("hop", ["1/10", "1"])
@pytest.mark.parametrize(
    ("family", "hops"),
    [
        ("1f1b", lambda p: Fraction(2 * (p - 1), p)),
        ("dualpipe", lambda p: Fraction(p - 1, p)),
        ("dualpipev", lambda p: Fraction(2 * (p - 1), p)),
        ("zb2p", lambda p: Fraction(0)),
        ("zbv", lambda p: Fraction(0)),
    ],
)
def test_hops_cost_what_the_page_says(family, hops, ranks, hop):
    proof = proved(family, ranks, 4 * ranks, f"F=1,hop={hop}")
    assert {Fraction(growth) for growth in proof.numbers["growth_per_microbatch"]} == {hops(ranks) * Fraction(hop)}
    assert proof.status == ("refuted" if hops(ranks) else "proved")


def test_an_earlier_start_hides_the_hops():
    schedule = open_source("specs/loops-early-1f1b.toml", ranks=4, microbatches=16).schedule
    assert prove_bubble_constant(schedule, CostModel.of(F=10, I=10, W=10, hop=15)).status == "proved"
    assert prove_bubble_constant(schedule, CostModel.of(F=10, I=10, W=10, hop=16)).status == "refuted"
