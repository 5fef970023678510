"""Why there is a bubble: explanations against hand-checked ones, chains against the timeline that they explain."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import costs, schedules
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.gaps import gaps, last, why
from verifier.model import Block, Problem, Schedule
from verifier.simulate import simulate


def explained(name, ranks, microbatches, **prices):
    """``explained[rank]``: its gaps in words."""
    simulation = simulate(build_family(name, ranks, microbatches), CostModel.of(**prices))
    return [[why(simulation, gap).partition(f"rank {gap.rank} idles from ")[2] for gap in row] for row in gaps(simulation)]


# Each of these was worked out by hand from the published figures, not copied from what the program says.


def test_the_bubble_of_1f1b_is_the_way_down_and_up_the_pipeline():
    assert explained("1f1b", 4, 8) == [
        [
            "4 to 10: 0B0 needs 1B0 on rank 1 (8 to 10); 1B0 needs 2B0 on rank 2 (6 to 8); 2B0 needs 3B0 on rank 3 (4 to 6)",
            "24 to 25: 0B5 needs 1B5 on rank 1 (23 to 25)",
            "27 to 28: 0B6 needs 1B6 on rank 1 (26 to 28)",
            "30 to 31: 0B7 needs 1B7 on rank 1 (29 to 31)",
        ],
        [
            "0 to 1: 1F0 needs 0F0 on rank 0 (0 to 1)",
            "4 to 8: 1B0 needs 2B0 on rank 2 (6 to 8); 2B0 needs 3B0 on rank 3 (4 to 6)",
            "25 to 26: 1B6 needs 2B6 on rank 2 (24 to 26)",
            "28 to 29: 1B7 needs 2B7 on rank 2 (27 to 29)",
            "31 to 33: it is done; the last to end is 0B7 on rank 0 (31 to 33)",
        ],
        [
            "0 to 2: 2F0 needs 1F0 on rank 1 (1 to 2); 1F0 needs 0F0 on rank 0 (0 to 1)",
            "4 to 6: 2B0 needs 3B0 on rank 3 (4 to 6)",
            "26 to 27: 2B7 needs 3B7 on rank 3 (25 to 27)",
            "29 to 33: it is done; the last to end is 0B7 on rank 0 (31 to 33); 0B7 needs 1B7 on rank 1 (29 to 31)",
        ],
        [
            "0 to 3: 3F0 needs 2F0 on rank 2 (2 to 3); 2F0 needs 1F0 on rank 1 (1 to 2); 1F0 needs 0F0 on rank 0 (0 to 1)",
            "27 to 33: it is done; the last to end is 0B7 on rank 0 (31 to 33); 0B7 needs 1B7 on rank 1 (29 to 31); "
            "1B7 needs 2B7 on rank 2 (27 to 29)",
        ],
    ]


def test_the_bubble_of_dualpipe_waits_for_forwards_inside_pairs_of_the_neighbour():
    found = explained("dualpipe", 4, 8)
    assert found[0] == [
        "10 to 11: (3F2';0B0) needs 2F2' in (2F2';1B0) on rank 1 (8 to 11)",
        "16 to 17: (3F3';0B1) needs 2F3' in (2F3';1B1) on rank 1 (14 to 17)",
    ]
    assert found[1] == ["0 to 1: 1F0 needs 0F0 on rank 0 (0 to 1)", "21 to 22: 2I3' needs 3B3' on rank 0 (20 to 22)"]
    assert found[2] == ["0 to 1: 1F0' needs 0F0' on rank 3 (0 to 1)", "21 to 22: 2I3 needs 3B3 on rank 3 (20 to 22)"]
    assert found[3] == [
        "10 to 11: (3F2;0B0') needs 2F2 in (2F2;1B0') on rank 2 (8 to 11)",
        "16 to 17: (3F3;0B1') needs 2F3 in (2F3;1B1') on rank 2 (14 to 17)",
    ]


def test_time_on_the_way_is_part_of_the_reason():
    assert explained("1f1b", 2, 3, hop="1/2") == [
        [
            "2 to 5: 0B0 needs 1B0 on rank 1 (2.5 to 4.5) and 0.5 on the way; 1B0 needs 1F0 on rank 1 (1.5 to 2.5)",
            "10 to 12: 0B2 needs 1B2 on rank 1 (9.5 to 11.5) and 0.5 on the way",
        ],
        [
            "0 to 1.5: 1F0 needs 0F0 on rank 0 (0 to 1) and 0.5 on the way",
            "7.5 to 8.5: 1F2 needs 0F2 on rank 0 (7 to 8) and 0.5 on the way",
            "11.5 to 14: it is done; the last to end is 0B2 on rank 0 (12 to 14); "
            "0B2 needs 1B2 on rank 1 (9.5 to 11.5) and 0.5 on the way",
        ],
    ]


def test_a_chain_goes_on_along_a_busy_rank():
    # Rank 1 has its input for 1B0 in time, and does 1F1 first.
    rows = (("0F0", "0F1", "0B0", "0B1"), ("1F0", "1F1", "1B0", "1B1"))
    order = tuple(tuple(map(Block.parse, row)) for row in rows)
    simulation = simulate(Schedule(Problem(((0, 1),), (2,)), order))
    assert why(simulation, gaps(simulation)[0][0]) == (
        "rank 0 idles from 2 to 5: 0B0 needs 1B0 on rank 1 (3 to 5); 1B0 runs after 1F1 on rank 1 (2 to 3)"
    )


@pytest.mark.parametrize(("name", "ranks", "microbatches"), [("gpipe", 4, 8), ("zbv", 4, 8), ("dualpipe", 8, 20)])
def test_gaps_of_the_families_add_up_to_their_bubble(name, ranks, microbatches):
    simulation = simulate(build_family(name, ranks, microbatches))
    assert tuple(sum(gap.end - gap.begin for gap in row) for row in gaps(simulation)) == simulation.timeline.idle


@given(st.data())
def test_chains_lead_without_a_break_from_the_end_of_a_gap_to_its_beginning(data):
    schedule = data.draw(schedules())
    simulation = simulate(schedule, data.draw(costs(schedule.problem)))
    start = [tick for row in simulation.timeline.start for tick in row]
    found = gaps(simulation)
    assert tuple(
        Fraction(sum(gap.end - gap.begin for gap in row), simulation.timeline.ticks_per_unit) for row in found
    ) == tuple(simulation.timeline.idle)
    for gap in (gap for row in found for gap in row):
        assert start[gap.chain[-1]] <= gap.begin < gap.end
        assert all(start[node] > gap.begin for node in gap.chain[:-1])
        for node, cause in pairwise(gap.chain):
            assert start[cause] + simulation.graph.edges[cause, node]["lag"] == start[node]
        told = why(simulation, gap)
        for node in (gap.chain[0], gap.chain[-1]):
            rank, position = simulation.where(node)
            assert schedule.text(schedule.order[rank][position]) in told


def test_blocks_that_a_busy_rank_runs_are_named_together():
    assert explained("zbv", 4, 8)[0] == [
        "48 to 51: it is done; the last to end is 3W7 on rank 3 (50 to 51); 3W7 runs after 3W5 to 3W6 on rank 3 (48 to 50)"
    ]


def test_ranks_that_hang_have_no_gaps():
    rows = (("0F0", "0B0", "0F1", "0B1"), ("1F1", "1F0", "1B1", "1B0"))
    order = tuple(tuple(map(Block.parse, row)) for row in rows)
    simulation = simulate(Schedule(Problem(((0, 1),), (2,)), order))
    assert gaps(simulation) == ((), ())
    assert last(simulation) == ""
