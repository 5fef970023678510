"""Traces read back: slices against the simulation, tracks without overlaps, arrows that begin and end at slices."""

import json
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import costs, schedules
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.formats.trace_json import dump
from verifier.model import Block, Problem, Schedule, ScheduleError
from verifier.simulate import reads, simulate


def events(trace, phase):
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def nanoseconds(microseconds):
    return round(microseconds * 1000)


def per_track(trace):
    """``tracks[pid, tid]``: (begin, end, event) in nanoseconds, sorted."""
    tracks = defaultdict(list)
    for event in events(trace, "X"):
        begin = nanoseconds(event["ts"])
        tracks[event["pid"], event["tid"]].append((begin, begin + nanoseconds(event["dur"]), event))
    return {track: sorted(slices, key=lambda item: item[:2]) for track, slices in tracks.items()}


def check(schedule, model):
    """Everything that must hold of the trace of any schedule."""
    trace = json.loads(dump(schedule, model))
    simulation = simulate(schedule, model)
    tracks = per_track(trace)
    scale = 1000 * trace["otherData"]["microseconds per unit"]
    for slices in tracks.values():
        assert all(earlier[1] <= later[0] for earlier, later in pairwise(slices))
    for rank, row in enumerate(schedule.order):
        compute = [event for event in events(trace, "X") if event["pid"] == rank and event["cat"] == "compute"]
        assert [event["name"] for event in compute] == [str(block) for block in row]
        busy = Fraction(sum(nanoseconds(event["dur"]) for event in compute), scale)
        assert busy == simulation.timeline.makespan - simulation.timeline.idle[rank]
        assert [nanoseconds(event["ts"]) * simulation.timeline.ticks_per_unit for event in compute] == [
            start * scale for start in simulation.timeline.start[rank]
        ]
        held = [event["args"]["activations"] for event in events(trace, "C") if event["pid"] == rank]
        assert max(held) == pytest.approx(float(simulation.peak_activations[rank]))
        assert held[-1] == 0
    check_arrows(trace, tracks)
    return trace


def check_arrows(trace, tracks):
    """Each arrow has two ends; at each a slice that takes time is open, and the first makes what the second reads."""
    ends = defaultdict(dict)
    for phase in "sf":
        for event in events(trace, phase):
            assert phase not in ends[event["id"]]
            ends[event["id"]][phase] = event
    for pair in ends.values():
        found = []
        for phase in "sf":
            moment = nanoseconds(pair[phase]["ts"])
            slices = tracks[pair[phase]["pid"], pair[phase]["tid"]]
            [bound] = [item for item in slices if item[0] <= moment < item[1]]
            assert bound[2]["cat"] == pair[phase]["cat"]
            found.append(bound)
        (_, sent, producer), (begin, _, reader) = found
        assert sent <= begin
        made, read = Block.parse(producer["name"]).ops, Block.parse(reader["name"]).ops
        assert any(needed in made for op in read for needed in reads(op, 1 << 30))
    assert all(event.get("bp") == "e" for event in events(trace, "f"))


@pytest.mark.parametrize(("name", "ranks", "microbatches"), [("1f1b", 4, 8), ("dualpipe", 8, 20), ("zbv", 4, 8)])
def test_traces_of_the_families(name, ranks, microbatches):
    schedule = build_family(name, ranks, microbatches)
    trace = check(schedule, CostModel.of(F=10, I=12, W=9, FB=26, hop="5/2"))
    kinds = {event["args"]["kind"]: event["cat"] for event in events(trace, "X") if event["tid"] == 0}
    assert set(kinds.values()) == {"compute"}
    assert kinds.keys() == {block.kind for row in schedule.order for block in row}


@given(st.data())
def test_traces_of_any_schedule(data):
    schedule = data.draw(schedules())
    check(schedule, data.draw(costs(schedule.problem)))


def test_messages_have_tracks_of_their_own_named_by_what_they_carry():
    trace = json.loads(dump(build_family("1f1b", 2, 2), CostModel.of(hop=2)))
    messages = [
        (event["name"], event["pid"], event["tid"], event["ts"], event["dur"])
        for event in events(trace, "X")
        if event["cat"] == "message"
    ]
    assert messages == [
        ("0F0 to rank 1", 0, 1, 1, 2),
        ("0F1 to rank 1", 0, 2, 2, 2),
        ("1B0 to rank 0", 1, 1, 6, 2),
        ("1B1 to rank 0", 1, 1, 9, 2),
    ]
    names = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events(trace, "M") if event["name"] == "thread_name"
    }
    assert (names[0, 0], names[0, 1], names[0, 2]) == ("compute", "messages", "messages, track 2")


def test_every_dependency_has_an_arrow():
    schedule = build_family("dualpipe", 4, 8)
    trace = json.loads(dump(schedule))
    # F and I of every stage but the last hand on; besides each I reads its F, and each split W its I.
    split = sum(block.kind == "W" for row in schedule.order for block in row)
    own, handed = 8 * 4, 8 * 3 * 2
    assert len(events(trace, "s")) == len(events(trace, "f")) == own + handed + split


def test_whole_units_are_microseconds_and_thirds_stay_exact():
    whole = json.loads(dump(build_family("1f1b", 2, 2), CostModel.of(F="1/2")))
    assert whole["otherData"]["microseconds per unit"] == 1
    assert next(event["dur"] for event in events(whole, "X")) == 0.5
    thirds = json.loads(dump(build_family("1f1b", 2, 2), CostModel.of(F="1/3")))
    assert thirds["otherData"]["microseconds per unit"] == 3
    assert next(event["args"]["duration"] for event in events(thirds, "X") if event["cat"] == "compute") == "1/3"


def test_dumping_is_deterministic_and_names_stay_text():
    schedule = build_family("dualpipe", 4, 8)
    named = Schedule(schedule.problem, schedule.order, '</script>"\n')
    assert dump(named) == dump(named)
    assert json.loads(dump(named))["otherData"]["schedule"] == '</script>"\n'


def test_what_cannot_be_drawn_is_refused_in_a_line():
    order = ((Block.parse("0B0"), Block.parse("0F0")),)
    with pytest.raises(ScheduleError, match="trace: no timeline exists: rank 0, position 0"):
        dump(Schedule(Problem(((0,),), (1,)), order))
    with pytest.raises(ScheduleError, match="use rounder costs"):
        dump(build_family("1f1b", 2, 2), CostModel.of(F="123456789123456789"))
