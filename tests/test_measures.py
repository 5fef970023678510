"""When the ranks are busy: windows against a count tick by tick, and where a stuck order stops."""

from fractions import Fraction
from itertools import groupby

from hypothesis import given

from tests.strategies import schedules
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.measures import all_busy, reached, steady, whole, windows_json
from verifier.model import Block, Problem, Schedule
from verifier.simulate import simulate


def timeline(name, ranks, microbatches, **costs):
    return simulate(build_family(name, ranks, microbatches), CostModel.of(**costs)).timeline


def ticks(line):
    """``busy[tick]``: the ranks that work in that tick."""
    busy = [set() for _ in range(line.makespan_ticks)]
    for rank, (starts, spans) in enumerate(zip(line.start, line.duration, strict=True)):
        for start, span in zip(starts, spans, strict=True):
            for tick in range(start, start + span):
                busy[tick].add(rank)
    return busy


@given(schedules())
def test_windows_agree_with_a_count_tick_by_tick(schedule):
    line = simulate(schedule).timeline
    busy = ticks(line)
    ranks = len(line.start)
    longest, since = (0, 0), 0
    for full, run in groupby(busy, key=lambda working: len(working) == ranks):
        length = len(list(run))
        if full and length > longest[1] - longest[0]:
            longest = (since, since + length)
        since += length
    window = all_busy(line)
    assert (window is None) == (longest == (0, 0))
    if window is not None:
        assert (window.start, window.end) == longest
        assert window.overall == 1
    assert whole(line).overall == 1 - line.bubble_ratio
    calm = steady(line)
    if calm is not None:
        inside = busy[int(calm.start) : int(calm.end)]
        assert calm.busy == tuple(sum(rank in working for working in inside) for rank in range(ranks))


def test_windows_of_the_schedule_that_the_report_draws():
    line = timeline("dualpipe", 8, 20)
    busy, calm = all_busy(line), steady(line)
    # The middle ranks start last, at 3; all end together. Of 63 * 8 ticks from then on 36 are idle.
    assert (busy.start, busy.end, calm.start, calm.end) == (23, 40, 3, 66)
    assert calm.overall == Fraction(13, 14)
    assert calm.utilisation[3] == Fraction(60, 63)


def test_windows_are_in_the_unit_of_the_costs():
    line = timeline("1f1b", 2, 4, F="1/10", I="1/10", W="1/10")
    assert windows_json(line)["no_rank_idles"] == {"from": "2/5", "to": "6/5"}
    assert windows_json(line)["steady"]["from"] == "1/10"


def test_there_may_be_no_window_at_all():
    line = timeline("1f1b", 4, 1)
    assert all_busy(line) is None
    assert windows_json(line)["no_rank_idles"] is None
    empty = Schedule(Problem(((0, 1),), (1,)), ((Block.parse("0F0"),), ()))
    assert steady(simulate(empty).timeline) is None
    assert windows_json(None) == {"whole": None, "steady": None, "no_rank_idles": None}


def test_nothing_that_takes_time_has_no_windows():
    empty = Schedule(Problem(((0,),), (1,)), ((),))
    assert whole(simulate(empty).timeline) is None


def test_blocks_without_duration_do_not_join_stretches():
    line = timeline("1f1b", 2, 2, F=0, I=0, W=1)
    assert (all_busy(line).start, all_busy(line).end) == (1, 2)


@given(schedules())
def test_a_schedule_that_runs_is_reached_to_its_end(schedule):
    assert reached(simulate(schedule)) == tuple(map(len, schedule.order))
