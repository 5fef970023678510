"""
Laws that hold across modules, on random problems, costs and orders.

Their other side is the small replay in ``tests/strategies.py``, which shares no code with the simulation, the rules or Z3.
That files read back as they were written stands in ``test_formats.py``, where published claims hold in ``test_claims.py``,
and that every mutation is refuted in ``test_mutations.py``.
"""

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.strategies import (
    costs,
    mapped,
    microbatches_renamed,
    peaks,
    positives,
    problems,
    replayed,
    runs,
    schedules,
    shuffled,
    written_costs,
)
from verifier import rules
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.model import Limits, Problem, Schedule
from verifier.simulate import simulate
from verifier.verify import verify

few = settings(max_examples=max(10, settings().max_examples // 4))
"""For laws in which Z3 takes part."""


def statuses(report):
    return {name: judged.status for name, judged in report.properties.items()}


def some_limits(schedule):
    """Limits that one rank may break and another keep."""
    return Limits(activations=Fraction(2), weights=1)


# ------------------------------------------------------------------------ 1: simulation, rules and solver say the same


@given(st.data())
def test_simulation_has_a_timeline_exactly_when_the_ranks_get_to_their_ends(data):
    schedule = data.draw(shuffled())
    model = data.draw(costs(schedule.problem))
    expected = replayed(schedule, model)
    timeline = simulate(schedule, model).timeline
    if expected is None:
        assert timeline is None
    else:
        assert [[Fraction(start, timeline.ticks_per_unit) for start in row] for row in timeline.start] == expected


@given(st.data())
def test_the_earliest_timeline_breaks_no_rule(data):
    schedule = data.draw(schedules())
    model = data.draw(costs(schedule.problem))
    question = rules.Question(schedule, model, Limits(), simulate(schedule, model).timeline)
    assert not [witness for rule in rules.RULES.values() for witness in rules.broken(rule, question)]


@given(st.data())
@few
def test_z3_finds_a_timeline_exactly_when_there_is_one(data):
    schedule = data.draw(shuffled())
    model = data.draw(costs(schedule.problem))
    # Where makespan, peaks, pairs or the existence of a timeline differ, verify stops with a Disagreement.
    report = verify(schedule, model, some_limits(schedule), solver="z3")
    assert (report.properties["dependencies"].status == "proved") == runs(schedule)
    assert report.properties["dependencies"].method == "both"
    assert statuses(report) == statuses(verify(schedule, model, some_limits(schedule), solver="replay"))


@given(schedules())
def test_memory_follows_from_the_order_alone(schedule):
    assert list(simulate(schedule, CostModel.of()).peak_activations) == peaks(schedule)


@given(st.data())
def test_the_peak_is_the_least_limit_that_is_kept(data):
    schedule = data.draw(schedules())
    model = data.draw(costs(schedule.problem))
    highest = simulate(schedule, model).peak_activations
    assert verify(schedule, model, Limits(activations=highest), solver="replay").properties["activations"].status == "proved"
    rank = data.draw(st.sampled_from([rank for rank, peak in enumerate(highest) if peak]))
    below = tuple(peak - (other == rank) * Fraction(1, 100) for other, peak in enumerate(highest))
    judged = verify(schedule, model, Limits(activations=below), solver="replay").properties["activations"]
    assert judged.status == "refuted"
    assert {witness.rank for witness in judged.witnesses if witness.rank is not None} == {rank}


# ------------------------------------------------------------------------------------------------- 2: costs and makespan


@given(st.data())
def test_raising_a_cost_never_lowers_the_makespan(data):
    schedule = data.draw(schedules())
    written = data.draw(written_costs(schedule.problem, uniform=True))
    key = data.draw(st.sampled_from(["F", "I", "W", "FB", "hop"]))
    assume(key in written or key not in {"FB", "hop"})
    more = {**written, key: written.get(key, Fraction(1)) + data.draw(positives)}
    assert makespan(schedule, more) >= makespan(schedule, written)


@given(st.data())
def test_scaling_all_costs_scales_the_makespan(data):
    schedule = data.draw(schedules())
    written = data.draw(written_costs(schedule.problem))
    factor = data.draw(positives)
    full = {"F": Fraction(1), "I": Fraction(1), "W": Fraction(1), **written}
    scaled = {key: value if key in {"release", "activation"} else times(value, factor) for key, value in full.items()}
    assert makespan(schedule, scaled) == factor * makespan(schedule, full)


def makespan(schedule, written):
    return simulate(schedule, CostModel.of(**written)).timeline.makespan


def times(value, factor):
    return [times(item, factor) for item in value] if isinstance(value, list) else value * factor


# --------------------------------------------------------------------------------------------------------- 3: symmetries


@given(st.data())
def test_names_of_microbatches_do_not_matter(data):
    schedule = data.draw(shuffled())
    model = data.draw(costs(schedule.problem))
    renamed = microbatches_renamed(schedule, data.draw(st.randoms(use_true_random=False)))
    assert_same_verdict(schedule, renamed, model)


@given(st.data())
def test_mirrored_ranks_and_directions_give_mirrored_results(data):
    schedule = data.draw(shuffled())
    model = data.draw(costs(schedule.problem).filter(lambda model: isinstance(model.hop, Fraction)))
    problem, last = schedule.problem, schedule.problem.ranks - 1
    placement = tuple(tuple(last - rank for rank in row) for row in reversed(problem.placement))
    flipped = mapped(schedule, lambda op: op._replace(direction=problem.directions - 1 - op.direction))
    mirrored = Schedule(Problem(placement, problem.microbatches[::-1]), flipped.order[::-1])
    assert_same_verdict(schedule, mirrored, model, per_rank=lambda numbers: numbers[::-1])


@given(st.data())
def test_a_later_start_of_everything_changes_no_verdict(data):
    schedule = data.draw(schedules())
    model = data.draw(costs(schedule.problem))
    delay = data.draw(positives)
    starts = [[start + delay for start in row] for row in replayed(schedule, model)]
    report = verify(schedule, model, start=starts, solver="replay")
    assert statuses(report)["exclusive"] == statuses(report)["dependencies"] == "proved"


def assert_same_verdict(one, other, model, per_rank=lambda numbers: numbers):
    first, second = (verify(schedule, model, some_limits(one), solver="replay") for schedule in (one, other))
    assert statuses(first) == statuses(second)
    assert first.simulation.peak_activations == per_rank(second.simulation.peak_activations)
    timelines = first.simulation.timeline, second.simulation.timeline
    if None not in timelines:
        assert timelines[0].makespan == timelines[1].makespan
        assert timelines[0].idle == per_rank(timelines[1].idle)
        assert timelines[0].span_idle == per_rank(timelines[1].span_idle)


# ------------------------------------------------------------------------------------------------------------ 5: bounds


@given(st.data())
def test_no_schedule_is_shorter_than_its_work(data):
    """A rank works through its blocks one by one, and a micro-batch through its stages."""
    schedule = data.draw(schedules(problems(), join=0.0))
    model = data.draw(costs(schedule.problem, uniform=True))
    timeline = simulate(schedule, model).timeline
    busy = [sum(map(model.duration, row)) for row in schedule.order]
    assert timeline.idle == tuple(timeline.makespan - work for work in busy)
    assert all(0 <= span <= idle for span, idle in zip(timeline.span_idle, timeline.idle, strict=True))
    way = schedule.problem.stages * (model.prices["F"] + min(model.prices["I"], model.prices["B"]))
    assert timeline.makespan >= way


# ------------------------------------------------------------------------------- 8: the bubble does not grow with M


@pytest.mark.parametrize(
    ("name", "ranks", "microbatches"),
    [
        ("gpipe", 4, 4),
        ("1f1b", 4, 4),
        ("interleaved", 4, 8),
        ("zb1p", 4, 4),
        ("zb2p", 4, 7),
        ("zbv", 4, 7),
        ("dualpipe", 4, 8),
        ("dualpipe", 8, 16),
        ("dualpipev", 3, 6),
        ("dualpipev", 4, 8),
    ],
)
def test_the_bubble_stays_as_more_microbatches_come(name, ranks, microbatches):
    step = 2 if name != "interleaved" else ranks
    some, more = (simulate(build_family(name, ranks, count)).timeline for count in (microbatches, microbatches + step))
    assert some.idle == more.idle


@given(st.sampled_from([("dualpipe", 4, 8), ("dualpipe", 6, 12), ("dualpipev", 3, 7)]), st.data())
def test_dualpipes_bubble_stays_for_any_costs_with_worthwhile_pairs(size, data):
    forward, inputs, weights = (data.draw(positives) for _ in "FIW")
    pair = max(forward, inputs + weights) + data.draw(positives)
    model = CostModel.of(F=forward, I=inputs, W=weights, FB=pair)
    name, ranks, microbatches = size
    some, more = (simulate(build_family(name, ranks, count), model).timeline for count in (microbatches, microbatches + 2))
    assert some.idle == more.idle
