"""Orders for every number of micro-batches: what is proved of them holds by replay, and what is not proved is not said."""

import json
from fractions import Fraction

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.questions import COLUMNS, bidirectional
from verifier.all_microbatches.finding import synthesize_for_all
from verifier.all_microbatches.result import ForAll
from verifier.commands.synthesizing import synthesize as command
from verifier.costs import CostModel
from verifier.families import placement
from verifier.formats import load
from verifier.model import Limits, Problem
from verifier.simulate import simulate
from verifier.theorems.bubble import extended
from verifier.verify import verify


def line(found: ForAll, microbatches: int) -> Fraction:
    return found.offset + found.slope * microbatches


@pytest.mark.parametrize(
    ("column", "offset", "gap"), list(zip(COLUMNS[:4], (1, 10, 7, 37), (0, 0, 1, 5), strict=True)), ids=str
)
def test_the_shortest_schedules_of_four_ranks_are_ones_for_all_sizes(column, offset, gap):
    costs, limits = CostModel.of(**column), Limits(5)
    found = synthesize_for_all(bidirectional(4), costs, limits)
    assert found.proof.status == "proved"
    assert found.schedule is found.shortest.schedule
    assert (found.step, found.slope, found.offset) == (2, column["FB"], offset)
    assert found.bound_slope == column["FB"]
    assert set(found.gaps) == {gap}
    for microbatches in (8, 10, 22, 64):
        longer = extended(found.schedule, microbatches, costs)
        report = verify(longer, costs, limits, solver="replay")
        assert report.status == "proved"
        assert report.simulation.timeline.makespan == line(found, microbatches)


def test_an_order_with_a_kernel_is_looked_for_where_the_shortest_has_none():
    costs, limits = CostModel.of(F=97, I=112, W=35, B=114, FB=131), Limits(5)
    found = synthesize_for_all(bidirectional(4), costs, limits, budget=5)
    assert found.proof.status == "proved"
    assert found.slope == 131
    assert verify(extended(found.schedule, 40, costs), costs, limits, solver="replay").simulation.timeline.makespan == line(
        found, 40
    )


def test_a_hop_makes_the_bubble_grow():
    costs = CostModel.of(F=4, I=4, W=4, FB=10, hop=1)
    found = synthesize_for_all(Problem(placement("v", 2), (4,)), costs, Limits(5), budget=6)
    assert found.slope >= 10
    assert (found.proof.status == "proved") == (found.offset is not None)
    assert len(found.sizes) == 4
    if found.proof.status == "refuted":
        assert "in the long run" in list(found.sentences())[-2]


def test_one_copy():
    found = synthesize_for_all(Problem(placement("sequential", 4), (8,)), limits=Limits(4))
    assert (found.proof.status, found.step, found.slope, found.offset) == ("proved", 1, 3, 3)


def test_unequal_directions_are_unknown():
    found = synthesize_for_all(Problem(bidirectional(4).placement, (3, 2)), limits=Limits(5), budget=1.5)
    assert found.proof.status == "unknown"
    assert (found.slope, found.offset) == (None, None)
    assert len(found.sizes) == 1
    assert "unknown" in list(found.sentences())[-1]


def test_limits_that_nothing_meets():
    found = synthesize_for_all(bidirectional(4), limits=Limits(0))
    assert found.schedule is None
    assert list(found.sentences()) == [found.shortest.sentence()]
    assert found.as_json() == {"status": "unknown"}


@settings(max_examples=8)
@given(st.tuples(*[st.integers(1, 6)] * 3), st.integers(0, 4), st.sampled_from(("v", "sequential", "bidirectional")))
def test_what_is_proved_holds(durations, gain, name):
    forward, inputs, weights = durations
    costs = CostModel.of(F=forward, I=inputs, W=weights, FB=max(forward + inputs + weights - gain, max(durations)))
    rows = placement(name, 2)
    found = synthesize_for_all(Problem(rows, (4,) * len(rows)), costs, Limits(5), budget=2)
    first = found.sizes[0]
    assert first.makespan == simulate(found.schedule, costs).timeline.makespan
    for size in found.sizes:
        assert size.makespan >= size.lower_bound
    if found.proof.status == "proved":
        longer = first.microbatches + 7 * found.step
        assert simulate(extended(found.schedule, longer, costs), costs).timeline.makespan == line(found, longer)


def test_command(tmp_path):
    output = tmp_path / "order.json"
    words = ["--placement", "v", "-P", "2", "-M", "4", "--activations", "5", "--no-catalogue", "--all-microbatches"]
    said = CliRunner().invoke(command, [*words, "-o", str(output)], standalone_mode=False)
    assert said.return_value == 0
    assert "makespan 6 M + 1 for all M = 4, 5, 6, ..., with the same peaks: proved" in said.output
    source = load(output)
    assert source.certificate["all_microbatches"]["status"] == "proved"
    assert source.certificate["status"] == "optimal"
    written = json.loads(CliRunner().invoke(command, [*words, "--json"], standalone_mode=False).output)
    about = written["all_microbatches"]
    assert (written["makespan"], about["step"], about["slope"], about["offset"]) == (25, 1, 6, 1)
    assert [size["makespan"] for size in about["sizes"]] == [25, 31, 37, 55]


def test_command_is_about_the_makespan():
    words = ["--placement", "v", "-P", "2", "-M", "4", "--all-microbatches", "--objective", "span-idle"]
    result = CliRunner().invoke(command, words, standalone_mode=False)
    assert "--all-microbatches: is about the makespan" in str(result.exception)


def test_an_interrupt_keeps_the_shortest(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("verifier.all_microbatches.repeating.prove_bubble_constant", interrupted)
    output = tmp_path / "order.json"
    words = ["--placement", "v", "-P", "2", "-M", "4", "--activations", "5", "--all-microbatches", "-o", str(output)]
    result = CliRunner().invoke(command, words, standalone_mode=False)
    assert result.return_value == 130
    assert "makespan 25" in result.output
    assert load(output).certificate["status"] == "optimal"
