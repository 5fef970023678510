"""Z3 on all timelines of an order, against replay, counting, and an oracle for waiting messages that knows no time."""

import json
import re
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import networkx as nx
import pytest
import z3
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import MUTATIONS, costs, mutants, needed_by, replayed, schedules, shuffled
from verifier import rules
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.model import Block, Limits, Op, Part, Problem, Schedule
from verifier.simulate import simulate
from verifier.solvers import MAX_OPS
from verifier.solvers.asking import Solver
from verifier.solvers.smt import LimitAnswer, order_answers

DEEPSEEK = Path(__file__).parent / "data" / "deepseek"
UNIT = CostModel.of()


def ask(schedule, costs=UNIT, limits=None, seconds=60):
    return order_answers(schedule, costs, limits or Limits(), seconds=seconds)


def written(placement, microbatches, *rows):
    return Schedule(Problem(placement, microbatches), tuple(tuple(map(Block.parse, row.split())) for row in rows))


def recorded(name):
    source = json.loads((DEEPSEEK / f"{name}.json").read_text())
    rows = (" ".join(row) for row in source["order"])
    return written(tuple(map(tuple, source["placement"])), tuple(source["microbatches"]), *rows)


def agrees(schedule, costs=UNIT):
    """Z3's answers, each checked against replay or the rules."""
    answers, replay = ask(schedule, costs), simulate(schedule, costs)
    assert answers.timeline == ("unsat" if replay.timeline is None else "sat")
    assert answers.pairing == tuple((witness.rank, witness.position) for witness in rules.self_dependent(schedule))
    if replay.timeline is None:
        assert answers.makespan is answers.peaks is answers.waiting is None
        is_circle(schedule, answers)
    else:
        assert (answers.makespan, answers.peaks) == (replay.timeline.makespan_ticks, replay.peak_activations)
        assert answers.waiting == waiting(schedule)
        assert not answers.core
        assert not answers.witnesses
    return answers


def is_circle(schedule, answers):
    """Each block of the core waits for the next: it runs right after it, or reads what it makes."""
    first = first_runs(schedule)
    for (rank, position), before in zip(answers.core, answers.core[1:] + answers.core[:1], strict=True):
        needed = needed_by(schedule.problem, schedule.order[rank][position])
        assert before == (rank, position - 1) or before in {first.get(op) for op in needed}
    assert len(set(answers.core)) == len(answers.core)
    (witness,) = answers.witnesses
    assert (witness.rank, witness.position) == answers.core[0]


def first_runs(schedule):
    places = {}
    for rank, row in enumerate(schedule.order):
        for position, block in enumerate(row):
            for op in block.ops:
                places.setdefault(op, (rank, position))
    return places


def waiting(schedule):
    """
    The most messages that can wait on each rank, without any times.

    Hold the rank up before one of its blocks: all that does not come after that block can be over by then. Then everything
    waits that such a block made, on another rank, for this block or a later one of the rank.
    """
    first, graph, messages = first_runs(schedule), nx.DiGraph(), []
    for rank, row in enumerate(schedule.order):
        for position, block in enumerate(row):
            here = (rank, position)
            graph.add_node(here)
            if position:
                graph.add_edge((rank, position - 1), here)
            graph.add_edges_from((first[op], here) for op in needed_by(schedule.problem, block) if op in first)
            for op in block.ops:
                made_by = first.get(op._replace(stage=op.stage + {"F": -1, "I": 1, "W": 0}[op.kind]), here)
                if made_by[0] != rank and first[op] == here and op.stage < schedule.problem.stages:
                    messages.append((made_by, here))
    most = [0] * len(schedule.order)
    for rank, row in enumerate(schedule.order):
        for position in range(len(row)):
            held_up = nx.descendants(graph, (rank, position)) | {(rank, position)}
            waits = sum(r == rank and p >= position and source not in held_up for source, (r, p) in messages)
            most[rank] = max(most[rank], waits)
    return tuple(most)


# ------------------------------------------------------------------------------------------------ against replay, rules


@pytest.mark.parametrize(
    "name", ["dualpipe_P2_M6", "dualpipe_P4_M8", "dualpipe_P8_M20", "dualpipev_P4_M10", "dualpipev_P5_M13"]
)
def test_recorded_orders(name):
    agrees(recorded(name), CostModel.of(F=10, I=12, W=9, FB=26, hop=Fraction(1, 2)))


@given(st.data())
def test_legal_orders(data):
    schedule = data.draw(schedules())
    assert agrees(schedule, data.draw(costs(schedule.problem))).pairing == ()


@given(st.data())
def test_any_orders(data):
    schedule = data.draw(shuffled())
    agrees(schedule, data.draw(costs(schedule.problem)))


@given(st.sampled_from(sorted(MUTATIONS)).flatmap(mutants))
def test_faulty_orders(mutant):
    agrees(mutant.schedule)


@given(st.data())
def test_the_makespan_is_that_of_a_replay_without_graph(data):
    schedule = data.draw(schedules())
    model = data.draw(costs(schedule.problem))
    starts = replayed(schedule, model)
    ends = [
        start + model.duration(block)
        for row, blocks in zip(starts, schedule.order, strict=True)
        for start, block in zip(row, blocks, strict=True)
    ]
    assert ask(schedule, model).makespan == max(ends) * model.ticks_per_unit


def test_durations_of_any_size():
    schedule = build_family("1f1b", 3, 4)
    for size in (10**9, 10**17):
        agrees(schedule, CostModel.of(F=size, I=size + 1, W=size - 7, hop=Fraction(size, 2)))


# -------------------------------------------------------------------------------------------------------------- circles


def test_a_circle_over_two_ranks_is_told_as_replay_tells_it():
    rows = ("0F0 0B0 0F1 0B1", "1F1 1F0 1B1 1B0"), ("0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0")
    for variant in rows:
        answers = agrees(written(((0, 1),), (2,), *variant))
        assert str(answers.witnesses[0]) == (
            "2 blocks wait in a circle: rank 0, position 1 at 0B0 needs 1B0 -> "
            "rank 1, position 0 at 1F1 needs 0F1 -> rank 0, position 1 at 0B0"
        )


def test_a_circle_along_one_rank():
    answers = agrees(written(((0,),), (1,), "0F0 0W0 0I0"))
    assert (
        str(answers.witnesses[0]) == "rank 0, position 1: 0W0 needs 0I0, which runs later on the same rank; move it after 0I0"
    )
    assert answers.core == ((0, 1), (0, 2))


def test_a_pair_that_needs_itself_has_no_timeline():
    answers = agrees(written(((0, 1),), (3,), "0F0 0F1 (0F2;0B2) 0B0 0B1", "1F0 1B0 1F1 1B1 1F2 1B2"))
    assert answers.pairing == ((0, 2),)
    assert (0, 2) in answers.core


def test_a_pair_that_needs_itself_round_a_v():
    schedule = recorded("dualpipev_P4_M10")
    text = " ".join(map(str, schedule.order[0]))
    assert "(0F7;7B3)" in text
    row = re.sub(r" 7B7( |$)", r" 7B3\1", text).replace("(0F7;7B3)", "(0F7;7B7)")
    rows = (row, *(" ".join(map(str, blocks)) for blocks in schedule.order[1:]))
    answers = agrees(written(schedule.problem.placement, schedule.problem.microbatches, *rows))
    assert answers.pairing == ((0, row.split().index("(0F7;7B7)")),)


@given(st.data())
def test_pairing_is_decided_by_data_alone(data):
    placement = data.draw(st.sampled_from((((0, 1, 1, 0),), ((0, 1, 0, 1),), ((0, 1), (1, 0)))))
    problem = Problem(placement, (2,) * len(placement))
    directions, stages = st.integers(0, len(placement) - 1), st.integers(0, problem.stages - 1)
    parts = st.builds(Part, st.sampled_from("FBIW"), directions, stages, st.integers(0, 1))
    both = data.draw(
        st.lists(parts, min_size=2, max_size=2, unique=True).filter(lambda both: len(ops_of(both)) == len(set(ops_of(both))))
    )
    block = Block(ops_of(both))
    answers = ask(Schedule(problem, ((block,), ())))
    assert answers.pairing == (((0, 0),) if rules.self_need(problem, block) else ())


def ops_of(parts):
    return tuple(Op(kind, *part[1:]) for part in parts for kind in ("IW" if part.kind == "B" else part.kind))


# ----------------------------------------------------------------------------------------------------------- activations


def test_a_limit_that_no_timeline_exceeds_and_one_that_some_does():
    schedule = recorded("dualpipe_P4_M8")
    assert ask(schedule, limits=Limits(activations=5)).activations == (LimitAnswer("unsat"),) * 4
    answers = ask(schedule, limits=Limits(activations=(5, 4, 5, 5))).activations
    assert [answer.status for answer in answers] == ["unsat", "sat", "unsat", "unsat"]
    assert answers[1].value == 5
    assert "F" in schedule.order[1][answers[1].position].kind


@given(st.data())
def test_the_block_named_brings_the_rank_above_its_limit(data):
    schedule = data.draw(schedules())
    model = data.draw(costs(schedule.problem))
    limit = data.draw(st.sampled_from((Fraction(0), Fraction(1), Fraction(3, 2), Fraction(3))))
    answers, replay = ask(schedule, model, Limits(activations=limit)), simulate(schedule, model)
    for rank, answer in enumerate(answers.activations):
        peak = replay.peak_activations[rank]
        if peak <= limit:
            assert answer == LimitAnswer("unsat")
        else:
            held = Fraction(replay.held_steps[rank][answer.position], model.steps_per_activation)
            assert (answer.status, answer.value) == ("sat", peak)
            assert held == peak


def test_a_pair_holds_both_its_forward_and_its_backward():
    schedule = written(((0, 1, 1, 0),), (2,), "0F0 3F0 (0F1;3B0) 0B0 3F1 3B1 0B1", "1F0 2F0 2B0 1B0 1F1 2F1 2B1 1B1")
    assert ask(schedule).peaks[0] == 3


def test_what_takes_no_time_still_has_its_turn():
    # At one moment all is over; yet the first forward's activation is gone before the second one's comes.
    schedule = written(((0,),), (2,), "0F0 0I0 0W0 0F1 0I1 0W1")
    model = CostModel.of(F=0, I=0, W=1, release=1)
    answers = agrees(schedule, model)
    assert (answers.makespan, answers.peaks) == (2, (1,))


def test_a_rank_that_frees_what_it_never_took_holds_nothing():
    assert ask(written(((0,),), (3,), "0B0 0B1 0F2")).peaks == (0,)


# --------------------------------------------------------------------------------------------------------------- waiting


def test_waiting_messages_of_1f1b():
    assert ask(build_family("1f1b", 4, 8)).waiting == (4, 4, 3, 2)


def test_a_message_within_a_rank_does_not_wait():
    assert ask(written(((0, 0),), (1,), "0F0 1F0 1B0 0B0")).waiting == (0,)


def test_a_message_waits_once_although_it_is_read_twice():
    assert ask(written(((0, 1),), (1,), "0F0", "1F0 1B0 1F0")).waiting == (0, 1)


def test_waiting_does_not_depend_on_times():
    schedule = build_family("zbv", 3, 5)
    expected = waiting(schedule)
    for model in (UNIT, CostModel.of(F=0, I=5, W=0), CostModel.of(hop=[[0, 9, 1], [0, 0, 0], [7, 2, 0]])):
        assert ask(schedule, model).waiting == expected


# ----------------------------------------------------------------------------------------------- time, script, and names


def test_without_time_nothing_is_guessed():
    answers = ask(recorded("dualpipe_P4_M8"), limits=Limits(activations=1), seconds=0)
    assert answers.timeline == "unknown"
    assert answers.makespan is answers.pairing is answers.activations is answers.peaks is answers.waiting is None


def test_what_time_allows_is_kept(monkeypatch):
    # Time is up as soon as a timeline is known.
    monkeypatch.setattr(Solver, "can", lambda solver, assertion: (_ for _ in ()).throw(TimeoutError))
    answers = ask(recorded("dualpipe_P4_M8"), limits=Limits(activations=(1, 5, 1, 5)))
    assert answers.timeline == "sat"
    assert answers.makespan is answers.peaks is answers.waiting is None
    # The timeline at hand already exceeds two limits; that none exceeds the others has not been shown.
    assert [answer.status for answer in answers.activations] == ["sat", "unknown", "sat", "unknown"]


def test_an_interrupt_stops_it():
    program = """
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.model import Limits
from verifier.solvers.asking import Solver
from verifier.solvers.smt import order_answers

schedule = build_family("zbv", 16, 64)
print("now", flush=True)
order_answers(schedule, CostModel.of(), Limits(), seconds=60)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "now\n"
    time.sleep(1)
    # Python loses an interrupt that meets it in a finalizer, so people press the key again.
    for _ in range(20):
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=1)
            break
        except subprocess.TimeoutExpired:
            continue
    assert process.returncode == -signal.SIGINT


def test_the_script_says_the_same_when_it_is_run():
    for schedule in (recorded("dualpipe_P2_M6"), written(((0, 1),), (2,), "0F0 0B0 0F1 0B1", "1F1 1F0 1B1 1B0")):
        script = ask(schedule, CostModel.of(W=0)).smtlib
        said = re.findall(r"\(check-sat.*\) ; (\w+)", script)
        assert z3.Z3_eval_smtlib2_string(z3.Context().ref(), script).split() == said
        assert len(said) > 1


def test_variables_are_named_by_their_blocks():
    script = ask(written(((0,), (0,)), (1, 1), "0F0 0F0' (0F0;0B0') 0F0")).smtlib
    for name in ("start[0F0]", "start[0F0']", "start[(0F0;0B0')]", "start[0F0 on rank 0 at 3]"):
        assert f"(declare-const |{name}| Int)" in script


def test_answers_are_the_same_every_time():
    schedule = written(((0, 1),), (3,), "0F0 0F1 (0F2;0B2) 0B0 0B1", "1F0 1B0 1F1 1B1 1F2 1B2")
    assert ask(schedule) == ask(schedule)
    assert ask(recorded("dualpipe_P4_M8")) == ask(recorded("dualpipe_P4_M8"))


def test_orders_that_are_asked_about_unbidden_include_the_published_ones():
    assert sum(len(block.ops) for row in recorded("dualpipev_P8_M20").order for block in row) <= MAX_OPS
