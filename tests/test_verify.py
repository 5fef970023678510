"""Verdicts: what each rule says, in which words, and that the ways to a verdict agree where an order is odd."""

from fractions import Fraction

import pytest
from hypothesis import given

from tests.strategies import schedules
from verifier import verify as module
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.model import Block, Limits, Origin, Problem, Schedule, ScheduleError
from verifier.rules import RULES, Question, broken, peaks
from verifier.simulate import shortest_circle, simulate
from verifier.verify import DisagreementError, numbers, verify

CHAIN = ((0, 1),)


def order_of(*rows, placement=CHAIN, microbatches=(1,), origin=None):
    """A schedule from the words of its rows."""
    return Schedule(
        Problem(placement, microbatches), tuple(tuple(map(Block.parse, row.split())) for row in rows), origin=origin
    )


def witnesses(report, name):
    """The witnesses of one property, as text."""
    return [str(witness) for witness in report.properties[name].witnesses]


# ------------------------------------------------------------------------------------------------------------- complete


def test_what_is_absent_is_named_once():
    report = verify(order_of("0F0 0I0", "1F0 1B0 1F2", microbatches=(2,)))
    assert witnesses(report, "complete") == [
        "rank 1, position 2: 1F2: micro-batch 2 is out of range; there are 2 micro-batches",
        "micro-batch 1 of 2 missing on all 2 stages (2 F and 2 backwards)",
        "0W0 is missing; expected once, on rank 0",
    ]


def test_a_second_run_says_where_the_first_was():
    report = verify(order_of("0F0 0B0 0W0", "1F0 1B0"))
    assert witnesses(report, "complete") == ["rank 0, position 2: 0W0 runs a second time; it ran in 0B0 at rank 0, position 1"]


def test_a_full_backward_is_one_thing_where_all_of_it_is_wrong():
    twice = verify(order_of("0F0 0B0 0B0", "1F0 1B0"))
    assert witnesses(twice, "complete") == ["rank 0, position 2: 0B0 runs a second time; it ran at rank 0, position 1"]
    astray = verify(order_of("0F0 1B0 0B0", "1F0"))
    assert witnesses(astray, "complete") == ["rank 0, position 1: 1B0 runs on rank 0; stage 1 lives on rank 1"]
    half = verify(order_of("0F0 0I0 0W0 (0F1;0B0) 0B1", "1F0 1F1 1B0 1B1", microbatches=(2,)))
    assert witnesses(half, "complete") == [
        "rank 0, position 3: 0I0 runs a second time; it ran at rank 0, position 1",
        "rank 0, position 3: 0W0 runs a second time; it ran at rank 0, position 2",
    ]


def test_a_wrong_rank_is_named_with_the_right_one():
    report = verify(order_of("0F0 1F0 0B0", "1B0"))
    assert witnesses(report, "complete") == ["rank 0, position 1: 1F0 runs on rank 0; stage 1 lives on rank 1"]


def test_many_faults_end_in_a_count():
    problem = Problem(((0,),), (30,))
    schedule = Schedule(problem, (tuple(Block.parse(f"0F{m}") for m in range(30)),))
    found = broken(RULES["complete"], Question(schedule, CostModel.of(), Limits()))
    assert len(found) == 11
    assert str(found[-1]) == "... and 20 more like these"


def test_a_suspicion_takes_the_place_of_what_follows_from_it():
    report = verify(order_of("0F0 0B0 0W0", "1F0 1B0 1W0"), suspicion="an older dialect")
    assert witnesses(report, "complete") == ["an older dialect"]
    assert witnesses(verify(order_of("0F0 0B0", "1F0 1B0"), suspicion="an older dialect"), "complete") == []


# --------------------------------------------------------------------------------------------------- orders that are odd


def test_backwards_without_forwards_hold_nothing():
    schedule = order_of("0B0 0B1 0F2", placement=((0,),), microbatches=(3,))
    report = verify(schedule, limits=Limits(activations=1), solver="z3")
    assert report.properties["activations"].status == "proved"
    assert report.simulation.peak_activations == (0,)
    assert peaks(Question(schedule, CostModel.of(), Limits(), report.simulation.timeline)) == (0,)


def test_an_op_of_no_stage_holds_nobody_up():
    report = verify(order_of("0F0 0B0", "1F0 1B0 2I0 2F0"), solver="z3")
    assert report.properties["complete"].status == "refuted"
    assert report.properties["dependencies"].status == "proved"


def test_ranks_without_blocks_are_only_incomplete():
    report = verify(order_of("0F0", "", "2F0", placement=((0, 1, 2),)), solver="z3")
    assert report.properties["dependencies"].status == "proved"
    assert report.simulation.timeline.makespan == 1
    assert numbers(report.simulation)["span_idle"] == [0, 0, 0]


def test_where_nothing_runs_there_is_nothing_to_say_of_time():
    report = verify(order_of("", ""), solver="z3")
    assert report.status == "refuted"
    assert numbers(report.simulation)["bubble_ratio"] == 0


@given(schedules())
def test_start_times_of_the_earliest_timeline_are_accepted(schedule):
    timeline = simulate(schedule).timeline
    start = [[Fraction(time, timeline.ticks_per_unit) for time in row] for row in timeline.start]
    report = verify(schedule, start=start, solver="replay")
    assert report.properties["exclusive"].status == report.properties["dependencies"].status == "proved"


# ------------------------------------------------------------------------------------------- dependencies and exclusive


def test_a_circle_over_ranks_names_each_step():  # C21
    for second in ("1F1 1F0 1B1 1B0", "1F1 1B1 1F0 1B0"):
        report = verify(order_of("0F0 0B0 0F1 0B1", second, microbatches=(2,)))
        assert witnesses(report, "dependencies") == [
            "2 blocks wait in a circle: rank 0, position 1 at 0B0 needs 1B0 -> rank 1, position 0 at 1F1 needs 0F1 "
            "-> rank 0, position 1 at 0B0"
        ]
        assert report.as_json()["makespan"] is None


def test_the_shortest_circle_is_found_among_long_ones():
    ring = {rank: ((rank + 1) % 1000,) for rank in range(1000)}
    assert len(shortest_circle(ring)) == 1000
    assert shortest_circle({**ring, 500: (501, 499)}) == [499, 500]
    assert shortest_circle({**ring, 700: (700,)}) == [700]


def test_given_start_times_are_judged():
    schedule = order_of("0F0 0B0", "1F0 1B0")
    late = [[Fraction(0), Fraction(4)], [Fraction(1), Fraction(2)]]
    assert verify(schedule, start=late).properties["dependencies"].status == "proved"
    early = [[Fraction(0), Fraction(7, 2)], [Fraction(1), Fraction(3, 2)]]
    report = verify(schedule, start=early)
    assert witnesses(report, "exclusive") == ["rank 1, position 1: 1B0 starts at 3/2, while the rank is busy until 2"]
    assert witnesses(report, "dependencies") == [
        "rank 1, position 1: 1I0 starts at 3/2, before 2 when 1F0 can reach it (it reads the saved activation)"
    ]
    with pytest.raises(ScheduleError, match="one time per block"):
        verify(schedule, start=late[:1])


def test_hops_count_for_given_start_times():
    start = [[Fraction(0), Fraction(6)], [Fraction(2), Fraction(3)]]
    assert verify(order_of("0F0 0B0", "1F0 1B0"), CostModel.of(hop=1), start=start).status == "proved"
    report = verify(order_of("0F0 0B0", "1F0 1B0"), CostModel.of(hop="3/2"), start=start)
    assert witnesses(report, "dependencies")[0].startswith("rank 0, position 1: 0I0 starts at 6, before 13/2 when 1I0")


def test_a_pair_that_reads_its_own_forward_breaks_dependencies_on_any_timeline():
    schedule = order_of("(0F0;0B0)", placement=((0,),))
    timeline = simulate(order_of("0F0", placement=((0,),))).timeline
    question = Question(schedule, CostModel.of(), Limits(), type(timeline)(schedule, ((0,),), ((3,),)))
    assert [str(witness)[:42] for witness in broken(RULES["dependencies"], question)] == [
        "rank 0, position 0: 0I0 starts at 0, befor"
    ]


# --------------------------------------------------------------------------------------------- pairing, memory, weights


def test_a_pair_of_one_microbatch_needs_itself():  # C22
    rows = ("0F0 0F1 (0F2;0B2) 0B0 0B1", "1F0 1B0 1F1 1B1 1F2 1B2")
    report = verify(order_of(*rows, microbatches=(3,)))
    chain = "rank 0, position 2: (0F2;0B2): 0B2 needs 1B2 needs 1F2 needs 0F2, which is inside the same block"
    assert witnesses(report, "pairing") == witnesses(report, "dependencies") == [chain]


def test_a_kind_of_pair_needs_a_price():
    schedule = order_of("0F0 (0F1;0I0) 0W0 0B1", placement=((0,),), microbatches=(2,))
    assert "the costs give no price for F&I" in witnesses(verify(schedule), "pairing")[0]
    report = verify(schedule, CostModel.parse("F&I=3/2"))
    assert (report.status, report.simulation.timeline.makespan) == ("proved", Fraction(11, 2))


def test_release_at_i_lowers_the_peak():  # C08
    late_w = order_of("0F0 0I0 0F1 0I1 0W0 0W1", placement=((0,),), microbatches=(2,))
    assert verify(late_w, limits=Limits(activations=1)).status == "refuted"
    assert verify(late_w, CostModel.of(release=1), Limits(activations=1)).status == "proved"
    assert verify(late_w, CostModel.of(release="1/2")).simulation.peak_activations == (Fraction(3, 2),)


def test_the_first_block_over_the_limit_is_named_even_in_a_deadlock():
    report = verify(order_of("0F0 0F1 0F2 0W0 0I0 0B1 0B2", placement=((0,),), microbatches=(3,)), limits=Limits(activations=1))
    assert report.properties["dependencies"].status == "refuted"
    assert witnesses(report, "activations") == [
        "rank 0, position 1: 0F1 brings the live activations to 2 and later 3; the limit is 1"
    ]


def test_limits_may_differ_by_rank():
    schedule = build_family("1f1b", 4, 8)
    assert verify(schedule, limits=Limits(activations=(4, 3, 2, 1))).status == "proved"
    report = verify(schedule, limits=Limits(activations=(4, 3, 1, 1), weights=(1, 1, 1, 0)))
    assert [witness.rank for witness in report.properties["activations"].witnesses] == [2]
    assert witnesses(report, "weights") == ["rank 3 holds 1 weight copy (stages 3); the limit is 0"]
    with pytest.raises(ScheduleError, match="expected one number or 4"):
        verify(schedule, limits=Limits(activations=(4, 3)))


# ------------------------------------------------------------------------------------------------- claims and the whole


def test_claims_are_compared_number_by_number():
    schedule = build_family("dualpipe", 4, 8)
    assert verify(schedule, claims={"makespan": 26, "idle": 2, "overlapped": [3] * 4, "source": "x"}).status == "proved"
    report = verify(schedule, claims={"makespan": "51/2", "idle": [2, 2, 2]})
    assert witnesses(report, "claims") == [
        "claims.makespan: expected 51/2, found 26",
        "claims.idle: expected [2, 2, 2], found [2, 2, 2, 2]",
    ]
    hangs = order_of("0W0 0I0 0F0", "1F0 1B0")
    assert witnesses(verify(hangs, claims={"makespan": 3}), "claims") == ["claims.makespan: expected 3; no timeline exists"]


def test_numbers_are_exact_and_whole_where_they_can_be():
    written = verify(build_family("1f1b", 2, 2), CostModel.of(F="1/3", B=2)).as_json()
    assert (written["makespan"], written["idle"]) == (7, ["7/3", "7/3"])


def test_places_are_those_of_the_file():
    origin = Origin(((4, 7),), ((0, 3, 5, 6),))
    schedule = order_of("0F0 0W0 0I0 0F1", placement=((0,),), microbatches=(2,), origin=origin)
    report = verify(schedule)
    assert witnesses(report, "dependencies")[0].startswith("rank 0, cell 3: 0W4 needs 0I4")
    assert report.as_json()["properties"]["dependencies"]["witness"][0]["cell"] == 3


def test_a_contradiction_stops_the_program(monkeypatch):
    schedule = build_family("1f1b", 2, 2)
    answers = module._ask_z3(schedule, CostModel.of(), Limits(), "z3")
    lying = type(answers)(**{**answers.__dict__, "makespan": answers.makespan - 1})
    monkeypatch.setattr(module, "_ask_z3", lambda *_: lying)
    with pytest.raises(DisagreementError, match="least makespan in ticks: replay says 9, Z3 says 8") as caught:
        verify(schedule)
    assert "(check-sat)" in str(caught.value)


def test_the_second_way_is_asked_while_it_is_quick():
    small, large = build_family("1f1b", 4, 8), build_family("1f1b", 16, 32)
    assert verify(small).properties["dependencies"].method == "both"
    assert verify(large).properties["dependencies"].method == "replay"
    assert verify(small, solver="replay").waiting is None
    assert verify(small).waiting == (4, 4, 3, 2)


def test_numbers_are_of_the_given_start_times_where_they_hold():
    schedule = order_of("0F0 0B0", placement=((0,),))
    late = verify(schedule, start=[[Fraction(0), Fraction(10)]], claims={"makespan": 12})
    assert (late.status, late.as_json()["makespan"]) == ("proved", 12)
    assert late.notes == ("numbers are of the given start times; at its earliest the order ends at 3",)
    broken_times = verify(schedule, start=[[Fraction(0), Fraction(1, 2)]])
    assert (broken_times.status, broken_times.as_json()["makespan"]) == ("refuted", 3)
