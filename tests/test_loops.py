"""Loop programs: what a program may say, and what unrolling makes of it."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.affine import greatest, least, symbols
from verifier.families import DUALPIPE, GPIPE, ONE_F_ONE_B, ZB1P, ZB2P, ZBV
from verifier.loops import Item, Program, loop, unroll
from verifier.model import ScheduleError

P, M, r, i = symbols("P M r i")


def program(*loops, phases=1, domain=(M >= 0,)):
    return Program("test", "r", P, M, P * phases, (r, 2 * P - 1 - r)[:phases], domain, loops)


def text(blocks):
    return [" ".join(f"{kind}{phase}.{number}" for kind, phase, number in block) for block in blocks]


def run(*loops, phases=1, ranks=1, microbatches=3, rank=0):
    return text(unroll(program(*loops, phases=phases), {"P": ranks, "M": microbatches}, rank))


# ---------------------------------------- unrolling


def test_micro_batches_follow_by_counting():
    assert run(loop(2, "F0"), loop(1, "I0", "F0"), loop(2, "I0")) == ["F0.0", "F0.1", "I0.0", "F0.2", "I0.1", "I0.2"]


def test_phases_count_apart():
    assert run(loop(2, "F0", "F1"), loop(1, "F0&B1"), phases=2) == ["F0.0", "F1.0", "F0.1", "F1.1", "F0.2 B1.0"]


def test_a_full_backward_leaves_no_w_behind():
    assert run(loop(1, "I0", "B0", "I0"), loop(2, "W")) == ["I0.0", "B0.1", "I0.2", "W0.0", "W0.2"]


def test_a_w_takes_the_oldest_of_its_phase_or_of_all():
    body = ["I0", "I1", "I0"]
    assert run(loop(1, *body), loop(3, "W"), phases=2)[3:] == ["W0.0", "W1.0", "W0.1"]
    assert run(loop(1, *body, "W1"), loop(2, "W"), phases=2)[3:] == ["W1.0", "W0.0", "W0.1"]
    assert run(loop(1, *body, "W0", "W", "W"), phases=2)[3:] == ["W0.0", "W1.0", "W0.1"]


def test_guards_choose_per_iteration():
    first = i <= 0
    body = (Item.parse("F0", first), Item.parse("B1", first), Item.parse("F0&B1", first.negated))
    assert run(loop(M, *body), phases=2) == ["F0.0", "B1.0", "F0.1 B1.1", "F0.2 B1.2"]
    assert run(loop(M, Item.parse("W", i >= M))) == []


def test_trip_counts_depend_on_the_rank_and_are_clamped():
    warmup = least(M, P - 1 - r)
    assert [len(run(loop(warmup, "F0"), ranks=4, microbatches=2, rank=rank)) for rank in range(4)] == [2, 2, 1, 0]
    assert run(loop(greatest(0, M - 5), "F0")) == []


@pytest.mark.parametrize(
    ("loops", "error"),
    [
        ((loop(M - 5, "F0"),), r"test, step 1: M-5 is negative at P=1, M=3, r=0"),
        ((loop(1, "F0"), loop(1, "W")), r"test, step 2: W has nothing to do"),
        ((loop(1, "I1", "W0"),), r"test, step 1: W0 has nothing to do"),
    ],
)
def test_what_cannot_be_unrolled(loops, error):
    with pytest.raises(ScheduleError, match=error):
        run(*loops, phases=2)


@pytest.mark.parametrize(
    ("sizes", "rank", "error"),
    [({"P": 2, "M": -1}, 0, "M >= 0"), ({"P": 2, "M": 1}, 2, r"P >= r\+1"), ({"P": 2, "M": 1}, -1, "r >= 0")],
)
def test_sizes_outside_the_domain_are_refused(sizes, rank, error):
    with pytest.raises(ScheduleError, match=f"test: {error} does not hold at"):
        unroll(program(), sizes, rank)


# ---------------------------------------- construction


@pytest.mark.parametrize("wrong", ["", "F", "G0", "F2", "F0&", "F0&B1&B0", "B", "W0 ", "f0"])
def test_items_that_are_none(wrong):
    with pytest.raises(ScheduleError, match="is not an item such as F0"):
        Item.parse(wrong)


def test_a_guard_may_not_change_the_counts():
    with pytest.raises(ScheduleError, match="a guard decides which F or I run"):
        loop(M, Item.parse("F0", i >= r))
    with pytest.raises(ScheduleError, match="a guard decides"):
        loop(M, Item.parse("F0", i >= r), Item.parse("F0", i <= r))
    each = loop(M, Item.parse("I0", i >= r), Item.parse("B0", i < r), Item.parse("W", i >= r))
    assert each.per_iteration == {("I", 0): 1}


def test_symbols_must_be_known():
    with pytest.raises(ScheduleError, match="test, step 2: unknown symbol x; expected"):
        program(loop(M, "F0"), loop(symbols("x")[0], "B0"))
    with pytest.raises(ScheduleError, match="step 1: unknown symbol i;"):
        program(loop(i, "F0"))
    with pytest.raises(ScheduleError, match="step 1: unknown symbol y"):
        program(loop(M, Item.parse("W", i >= symbols("y")[0])))
    with pytest.raises(ScheduleError, match="step 2: expected phases below 1"):
        program(loop(M, "F0"), loop(M, "F1"))


# ---------------------------------------- the families' programs


def sizes_of(each, small, more):
    """Sizes in the domain of a program: ``small`` ranks, and ``more`` micro-batches than the least."""
    if each is DUALPIPE:
        return {"q": small, "m": 2 * small + more}
    return {"P": small, "M": (2 * small - 1 if each is ZBV else 1) + more}


@given(st.sampled_from([GPIPE, ONE_F_ONE_B, ZB1P, ZB2P, ZBV, DUALPIPE]), st.integers(1, 6), st.integers(0, 14))
def test_programs_are_complete_and_in_order(each, small, more):
    sizes = sizes_of(each, small, more)
    microbatches = each.microbatches.value(sizes)
    for rank in range(small):
        jobs = [job for block in unroll(each, sizes, rank) for job in block]
        kinds = Counter((job.kind, job.phase) for job in jobs)
        for phase in range(len(each.stages)):
            assert kinds["F", phase] == kinds["I", phase] + kinds["B", phase] == microbatches
            assert kinds["I", phase] == kinds["W", phase]
            for kind in "FW":
                numbers = [job.microbatch for job in jobs if (job.kind, job.phase) == (kind, phase)]
                assert numbers == sorted(numbers)


@given(st.sampled_from([(ZB1P, 1), (ZB2P, 2)]), st.integers(1, 6), st.integers(1, 16))
def test_zero_bubble_loops_are_the_rule_in_words(paced, ranks, microbatches):
    """For every i: the next F if any is left, I_i, and W of i minus the lag; then the remaining W."""
    each, pace = paced
    for rank in range(ranks):
        warmup, lag = min(microbatches, pace * (ranks - 1 - rank)), pace * rank
        words = [f"F0.{k}" for k in range(warmup)]
        for k in range(microbatches):
            words += [f"F0.{warmup + k}"] if warmup + k < microbatches else []
            words += [f"I0.{k}"] + ([f"W0.{k - lag}"] if k >= lag else [])
        words += [f"W0.{k}" for k in range(max(0, microbatches - lag), microbatches)]
        assert text(unroll(each, {"P": ranks, "M": microbatches}, rank)) == words


def test_a_program_reads_as_in_the_literature():
    lines = str(DUALPIPE).splitlines()
    assert lines[:3] == [
        "dualpipe, folded: rank h of q runs, of 2q stages, h in phase 0, 2q-h-1 in phase 1",
        "m micro-batches in each phase",
        "where q >= 1, m >= 2q",
    ]
    assert [line.split(maxsplit=2) for line in lines[4:]] == [
        ["1", "2(q-h-1)", "F0"],
        ["2", "h+1", "F0, F1"],
        ["3", "q-h-1", "I1, W, F1"],
        ["4", "m-2q+h+1", "F0 if h+1 >= q+i, B1 if h+1 >= q+i, F0&B1 if q+i >= h+2, F1&B0"],
        ["5", "q-h-1", "B1, F1&B0"],
        ["6", "h+1", "B1 if h >= 2i, I1 if 2i >= h+1, B0 if h >= 2i+1, I0 if 2i >= h"],
        ["7", "q-h-1", "W, I0"],
        ["8", "h+1", "W"],
    ]


def test_a_missing_loop_is_not_repaired():
    shorter = replace(GPIPE, loops=GPIPE.loops[:1])
    assert text(unroll(shorter, {"P": 1, "M": 2}, 0)) == ["F0.0", "F0.1"]


def test_op_classes_of_dualpipe():
    assert sum(len(each.body) for each in DUALPIPE.loops) == 19
