"""Schedules side by side: equal terms, and numbers that stand for the same model."""

import json
from fractions import Fraction

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from verifier.cli import main
from verifier.compare import Refusal, compare
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.model import Block, Problem, Schedule, ScheduleError
from verifier.simulate import simulate

NAMES = ("dualpipe", "dualpipev", "1f1b")


def test_the_published_comparison():
    rows = [compare(build_family(name, 8, 20)) for name in NAMES]
    assert [row.makespan for row in rows] == [66, 67, 81]
    assert [set(row.idle) for row in rows] == [{6}, {7}, {21}]
    assert [set(row.weights) for row in rows] == [{Fraction(2, 8)}, {Fraction(1, 8)}, {Fraction(1, 8)}]
    assert [max(row.simulation.peak_activations) for row in rows] == [9, Fraction(17, 2), 8]
    assert [sum(row.simulation.overlapped) for row in rows] == [82, 163, 0]


def test_per_stage_gives_the_raw_numbers():
    row = compare(build_family("dualpipev", 4, 10), per="stage")
    raw = simulate(build_family("dualpipev", 4, 10))
    assert (row.makespan, row.idle) == (raw.timeline.makespan, raw.timeline.idle)
    assert row.weights == (2, 2, 2, 2)


@given(st.sampled_from(["gpipe", "1f1b", "interleaved", "zb1p", "zbv", "dualpipev"]), st.integers(1, 3), st.integers(1, 3))
def test_every_rank_is_busy_as_long_as_its_share_of_the_model_takes(name, ranks, rounds):
    """On one weight copy a rank does 1/P of the model for every micro-batch, whatever its stages and the order."""
    costs = CostModel.of(F=3, I="7/2", W=2)
    microbatches = 2 * ranks * rounds
    row = compare(build_family(name, ranks, microbatches), costs)
    busy = row.makespan - max(row.idle)
    assert busy == microbatches * Fraction(17, 2)
    assert row.utilisation == busy / row.makespan


def test_hops_are_not_scaled():
    fast, slow = (compare(build_family("zbv", 2, 4), CostModel.of(hop=hop)).makespan for hop in (0, 10))
    assert slow - fast >= 20


def test_lists_of_costs_are_scaled_too():
    schedule = build_family("dualpipev", 1, 2)
    even = compare(schedule, CostModel.of(F=2, activation=3))
    listed = compare(schedule, CostModel.of(F=[2, 2], FB=4, activation=[3, 3]))
    assert listed.makespan == even.makespan
    assert listed.simulation.peak_activations == even.simulation.peak_activations


def test_json_is_exact():
    written = compare(build_family("dualpipev", 8, 20)).as_json()
    assert written["schedule"] == "dualpipev P=8 M=20"
    assert (written["makespan"], written["idle_worst"], written["idle_mean"]) == (67, 7, 7)
    assert written["weights"] == ["1/8"] * 8
    assert written["utilisation"] == "60/67"
    assert written["peak_activations"][0] == "17/2"
    assert "note" not in written


def test_own_costs_that_are_not_used_are_named():
    schedule = build_family("1f1b", 2, 2)
    assert compare(schedule, own_costs=CostModel.of(F=2)).as_json()["note"]
    assert not compare(schedule, own_costs=CostModel.of()).note


def test_wrong_orders_are_not_compared():
    wrong = Schedule(Problem(((0,),), (1,)), ((Block.parse("0F0"),),), "wrong")
    with pytest.raises(ScheduleError, match="refuted: "):
        compare(wrong)
    with pytest.raises(ScheduleError, match="expected 2 numbers, one per stage"):
        compare(build_family("1f1b", 2, 2), CostModel.of(F=[1, 2, 3]))


def test_a_refusal_says_why():
    assert Refusal("dualpipe", "why").as_json() == {"schedule": "dualpipe", "refused": "why"}


def test_gpu_hours_go_with_the_inverse_of_the_busy_share():
    slow, quick = (compare(build_family(name, 8, 16)) for name in ("1f1b", "dualpipe"))
    freed = Fraction("0.18") - quick.hours(Fraction("0.18"), slow)
    assert freed == Fraction("0.18") * (1 - slow.utilisation / quick.utilisation)
    assert quick.hours(Fraction(1), quick) == 1


def test_gpu_hours_on_the_command_line_are_an_estimate_of_the_first():
    words = ["compare", "dualpipe", "chimera", "1f1b", "-P", "8", "-M", "18", "--gpu-hours", "0.18"]
    text = CliRunner().invoke(main, words, env={"COLUMNS": "140"}).output
    assert "GPU hours are an estimate: 0.18 times the busy share of dualpipe P=8 M=18" in text
    rows = json.loads(CliRunner().invoke(main, [*words, "--json"]).output)["schedules"]
    # 60 slots against 75, of the same work.
    assert [row.get("estimated_gpu_hours") for row in rows] == ["9/50", None, "9/40"]
    refused = CliRunner().invoke(main, [*words[:-1], "many"])
    assert refused.exit_code == 2
    assert "--gpu-hours" in refused.output
