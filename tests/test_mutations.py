"""
The mutation table: each kind of fault is refuted by the rule that it breaks, with a witness that leads to the place.

Faults and reorderings are made by ``tests/strategies.py``, which knows nothing of the rules that judge them here.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import MUTATIONS, REORDERINGS, mutants, reordered, schedules
from verifier.model import Limits
from verifier.verify import verify


@pytest.mark.parametrize("kind", MUTATIONS)
@given(data=st.data())
def test_a_mutation_is_refuted_by_the_rule_that_it_breaks(kind, data):
    mutant = data.draw(mutants(kind))
    report = verify(mutant.schedule, limits=mutant.limits, solver="replay")
    assert report.status == "refuted"
    broken = report.properties[mutant.rule]
    assert broken.status == "refuted", mutant
    assert any(mutant.is_named_by(witness) for witness in broken.witnesses), (mutant, broken.witnesses)


@given(st.sampled_from(list(MUTATIONS)).flatmap(mutants))
@settings(max_examples=settings().max_examples // 2)
def test_both_ways_refute_a_mutation(mutant):
    report = verify(mutant.schedule, limits=mutant.limits, solver="z3")
    assert report.properties[mutant.rule].status == "refuted"


@pytest.mark.parametrize("kind", REORDERINGS)
@given(data=st.data())
def test_a_harmless_reordering_is_still_proved(kind, data):
    report = verify(data.draw(reordered(kind)), solver="replay")
    assert report.status == "proved", report.properties


@given(schedules())
def test_what_can_be_done_one_by_one_is_proved(schedule):
    problem = schedule.problem
    limits = Limits(weights=tuple(len(problem.stages_on(rank)) for rank in range(problem.ranks)))
    assert verify(schedule, limits=limits, solver="replay").status == "proved"
