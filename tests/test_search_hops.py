"""Local search and list scheduling take the hop of the way that a message goes."""

from verifier.costs import CostModel
from verifier.model import Limits, Problem
from verifier.search.improve import improve
from verifier.simulate import simulate


def test_a_hop_is_the_one_from_maker_to_reader():
    problem = Problem(((0, 1, 2),), (4,))
    uphill = CostModel.of(hop=[[0, 3, 0], [0, 0, 2], [0, 0, 0]])  # forwards travel, gradients do not
    found = improve(problem, uphill, Limits(3), evaluations=2000)
    timeline = simulate(found.schedule, uphill).timeline
    assert timeline.makespan_ticks == found.ticks
    assert timeline.start[2][0] == 7
