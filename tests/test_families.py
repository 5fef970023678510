"""The families: token for token the recorded orders, exact about what they refuse, quick at any size."""

import json
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.costs import CostModel
from verifier.families import FAMILIES, PLACEMENTS, build_family, placement
from verifier.model import ScheduleError
from verifier.simulate import simulate

DATA = Path(__file__).parent / "data"
TORCH = {"DualPipeV": "dualpipev", "ZBVZeroBubble": "zbv", "Interleaved1F1B": "interleaved", "GPipe": "gpipe"}


def tokens(schedule):
    return [list(map(str, row)) for row in schedule.order]


# ---------------------------------------- recorded orders


@pytest.mark.parametrize("path", sorted((DATA / "deepseek").glob("*.json")), ids=lambda path: path.stem)
def test_orders_recorded_from_the_reference_implementation(path):
    recorded = json.loads(path.read_text())
    schedule = build_family(path.stem.split("_")[0], recorded["ranks"], sum(recorded["microbatches"]))
    assert tokens(schedule) == recorded["order"]
    assert list(map(list, schedule.problem.placement)) == recorded["placement"]
    assert list(schedule.problem.microbatches) == recorded["microbatches"]


def torch_tables():
    for path in sorted((DATA / "torch").glob("*.csv")):
        match = re.fullmatch(r"Schedule(\w+)_P(\d+)_M(\d+)", path.stem)
        if match and match[1] in TORCH:
            yield pytest.param(TORCH[match[1]], int(match[2]), int(match[3]), path, id=path.stem)


@pytest.mark.parametrize(("family", "ranks", "microbatches", "path"), list(torch_tables()))
def test_tables_printed_by_torch(family, ranks, microbatches, path):
    rows = [line.split(",") for line in path.read_text().splitlines()]
    compute = [[cell.removesuffix("OVERLAP_F_B") for cell in row if cell and "REDUCE_GRAD" not in cell] for row in rows]
    assert tokens(build_family(family, ranks, microbatches)) == compute


def test_both_records_were_found():
    assert len(list((DATA / "deepseek").glob("*.json"))) == 23
    assert Counter(param.values[0] for param in torch_tables()) == {"dualpipev": 6, "zbv": 5, "interleaved": 4, "gpipe": 2}


# ---------------------------------------- figures


@pytest.mark.parametrize(
    ("family", "ranks", "microbatches", "makespan"),
    [
        ("gpipe", 4, 8, 33),
        ("1f1b", 4, 8, 33),
        ("1f1b", 8, 1, 24),
        ("1f1b", 4, 2, 15),
        ("zb1p", 4, 8, 27),
        ("zb2p", 4, 8, 27),
        ("zbv", 4, 8, 51),
        ("zbv", 4, 2, 22),
        ("interleaved", 4, 8, 57),
        ("chimera", 4, 4, 16),
        ("chimera", 4, 8, 32),
        ("chimera", 8, 8, 36),
        ("dualpipe", 8, 20, 66),
        ("dualpipev", 3, 7, 46),
    ],
)
def test_makespans_at_unit_costs(family, ranks, microbatches, makespan):
    assert simulate(build_family(family, ranks, microbatches)).timeline.makespan == makespan


def test_dualpipe_of_the_report():
    schedule = build_family("dualpipe", 8, 20)
    simulation = simulate(schedule)
    assert schedule.name == "dualpipe P=8 M=20"
    assert simulation.timeline.idle == (6,) * 8
    assert simulation.timeline.span_idle == (6, 5, 4, 3, 3, 4, 5, 6)
    assert simulation.peak_activations == (9,) * 8
    assert simulation.overlapped == (9, 10, 11, 11, 11, 11, 10, 9)
    cheaper = simulate(schedule, CostModel.of(F=2, I=2, W=2, FB=5)).timeline
    assert (cheaper.makespan, cheaper.idle) == (118, (7, 8, 9, 9, 9, 9, 8, 7))
    assert simulate(schedule, CostModel.of(F=10, I=12, W=9, FB=26)).timeline.makespan == 619


def test_zb2p_never_idles_inside_a_span():
    assert simulate(build_family("zb2p", 4, 8)).timeline.span_idle == (0, 0, 0, 0)


def test_large_dualpipe():
    simulation = simulate(build_family("dualpipe", 64, 512))
    assert simulation.timeline.makespan == 1598
    assert set(simulation.peak_activations) == {65}


# ---------------------------------------- every family, every size


def sizes(family, draw):
    """Sizes that a family accepts."""
    ranks = draw(st.integers(1, 5))
    microbatches = draw(st.integers(1, 12))
    if family == "dualpipev":
        return ranks, microbatches + 2 * ranks
    if family == "dualpipe":
        return 2 * ranks, 2 * microbatches + 4 * ranks
    if family == "chimera":
        return 2 * ranks, 2 * ranks * draw(st.integers(1, 4))
    if family == "interleaved":
        return ranks, ranks * microbatches
    return ranks, microbatches


@given(st.data(), st.sampled_from(sorted(FAMILIES)))
def test_orders_are_complete_and_run(data, family):
    ranks, microbatches = sizes(family, data.draw)
    schedule = build_family(family, ranks, microbatches)
    ops = Counter(op for row in schedule.order for block in row for op in block.ops)
    assert ops == Counter(schedule.problem.ops())
    assert simulate(schedule).timeline is not None
    assert schedule.problem.placement == placement(FAMILIES[family].placement, ranks)
    assert schedule.problem.total_microbatches == microbatches


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 12), st.sampled_from(["pytorch", "megatron"]))
def test_interleaved_with_any_number_of_stages(ranks, stages_per_rank, rounds, rule):
    schedule = build_family("interleaved", ranks, ranks * rounds, stages_per_rank=stages_per_rank, rule=rule)
    assert schedule.problem.stages == ranks * stages_per_rank
    assert simulate(schedule).timeline is not None


def test_one_stage_per_rank_is_1f1b_with_more_in_flight():
    interleaved = simulate(build_family("interleaved", 4, 8, stages_per_rank=1))
    assert interleaved.timeline.makespan == 33
    assert interleaved.peak_activations == (7, 5, 3, 1)


def test_rules_agree_where_p_divides_m():
    assert build_family("interleaved", 4, 8, rule="megatron") == build_family("interleaved", 4, 8)
    assert build_family("interleaved", 4, 10).order[0] != build_family("interleaved", 4, 12).order[0]


@given(st.integers(1, 5), st.integers(0, 10))
def test_dualpipe_is_its_own_mirror_and_its_half_is_dualpipev(half, more):
    whole, folded = build_family("dualpipe", 2 * half, 4 * half + 2 * more), build_family("dualpipev", half, 2 * half + more)
    mirrored = [[token.replace("'", "") if "'" in token else token + "'" for token in row] for row in split(whole)[::-1]]
    assert mirrored == split(whole)
    assert [[token.replace("'", "") for token in row] for row in split(whole)[:half]] == split(folded)


def split(schedule):
    """The parts of all blocks, one token each."""
    return [[part for token in row for part in token.strip("()").split(";")] for row in tokens(schedule)]


# ---------------------------------------- what is refused


@pytest.mark.parametrize(
    ("family", "ranks", "microbatches", "error"),
    [
        ("dualpip", 4, 8, "unknown family 'dualpip'; did you mean 'dualpipe' or 'dualpipev'?"),
        ("ring", 4, 8, f"unknown family 'ring'; expected one of {', '.join(FAMILIES)}"),
        ("dualpipe", 7, 20, "dualpipe: P = 7 ranks; the two directions need an even P, such as 8"),
        ("dualpipe", 8, 14, "dualpipe: M = 14 micro-batches; expected an even number of at least 2 P = 16"),
        ("dualpipe", 8, 17, "dualpipe: M = 17 micro-batches; expected an even number of at least 2 P = 16"),
        ("dualpipev", 2, 3, "dualpipev: M = 3 micro-batches; expected at least 2 P = 4"),
        ("dualpipev", 8, 8, "dualpipev: M = 8 micro-batches; expected at least 2 P = 16"),
        ("chimera", 3, 3, "chimera: P = 3 ranks; the two directions need an even P, such as 4"),
        ("chimera", 4, 6, "chimera: M = 6 micro-batches; expected a multiple of P = 4, such as 4 or 8"),
        ("chimera", 4, 2, "chimera: M = 2 micro-batches; expected a multiple of P = 4, such as 4"),
        ("interleaved", 2, 7, "interleaved: M = 7 micro-batches; expected a multiple of max(1, M // P) = 3, such as 6 or 8"),
    ],
)
def test_refusals_say_what_would_be_right(family, ranks, microbatches, error):
    with pytest.raises(ScheduleError) as caught:
        build_family(family, ranks, microbatches)
    assert str(caught.value) == error


def test_refusals_of_interleaved_options():
    with pytest.raises(ScheduleError, match="interleaved, rule megatron: M = 10 micro-batches; expected a multiple of P = 4"):
        build_family("interleaved", 4, 10, rule="megatron")
    with pytest.raises(ScheduleError, match="unknown rule 'megatorn'; did you mean 'megatron'"):
        build_family("interleaved", 4, 8, rule="megatorn")
    with pytest.raises(ScheduleError, match="interleaved: 0 stages per rank; expected at least 1"):
        build_family("interleaved", 4, 8, stages_per_rank=0)


def test_every_suggestion_is_accepted():
    for ranks, microbatches in [(2, 7), (3, 7), (4, 9), (3, 10), (5, 23)]:
        try:
            build_family("interleaved", ranks, microbatches)
        except ScheduleError as error:
            for number in re.search(r"such as (\d+) or (\d+)", str(error)).groups():
                build_family("interleaved", ranks, int(number))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("ranks", "microbatches", "error"),
    [
        (0, 8, "{}: 0 ranks; expected at least 1"),
        (-4, 8, "{}: -4 ranks; expected at least 1"),
        (4, 0, "{}: 0 micro-batches; expected at least 1"),
        (4, -8, "{}: -8 micro-batches; expected at least 1"),
        (10**9, 8, "more than 10000000 ops, the limit"),
        (4, 10**30, "more than 10000000 ops, the limit"),
    ],
)
def test_impossible_sizes_are_refused_at_once(family, ranks, microbatches, error):
    before = time.process_time()
    with pytest.raises(ScheduleError) as caught:
        build_family(family, ranks, microbatches)
    assert time.process_time() - before < 0.01
    assert error.format(family) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_long_name_is_cut():
    with pytest.raises(ScheduleError) as caught:
        build_family("dual\n" * 100_000, 4, 8)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


# ---------------------------------------- placements


def test_placements_by_name():
    assert list(PLACEMENTS) == ["sequential", "interleaved", "v", "bidirectional"]
    assert placement("sequential", 3) == ((0, 1, 2),)
    assert placement("interleaved", 2, 3) == ((0, 1, 0, 1, 0, 1),)
    assert placement("v", 2) == ((0, 1, 1, 0),)
    assert placement("v", 2, 3) == ((0, 1, 1, 0, 0, 1),)
    assert placement("bidirectional", 3) == ((0, 1, 2), (2, 1, 0))


@pytest.mark.parametrize(
    ("name", "ranks", "error"),
    [
        ("sequental", 4, "unknown placement 'sequental'; did you mean 'sequential'?"),
        ("v", 0, "placement v: 0 ranks; expected at least 1"),
        ("bidirectional", 10**12, "placement bidirectional: 2000000000000 stages and 1 micro-batches make more than"),
    ],
)
def test_placements_that_are_none(name, ranks, error):
    with pytest.raises(ScheduleError, match=re.escape(error)):
        placement(name, ranks)


def test_families_are_described():
    assert list(FAMILIES) == ["gpipe", "1f1b", "interleaved", "zb1p", "zb2p", "zbv", "chimera", "dualpipe", "dualpipev"]
    for name, family in FAMILIES.items():
        assert family.name == name
        assert family.placement in PLACEMENTS
        assert family.conditions
        assert family.description
        assert family.claims
    assert FAMILIES["dualpipe"].program is FAMILIES["dualpipev"].program
