"""
Public bug reports and files with their right answers (``tests/data/cases``; the source of each is named beside it).

The answers were derived by hand or by a separate reference, so they are an oracle that shares nothing with this package.
Only the compute part of each case is judged here.
"""

import re
from fractions import Fraction
from pathlib import Path

import pytest

from verifier import rules
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.formats import load
from verifier.model import Block, Limits, Op, Problem, Schedule, ScheduleError
from verifier.simulate import simulate
from verifier.verify import verify

CASES = Path(__file__).parent / "data" / "cases"
PYTORCH = "pytorch__test_distributed_pipelining_artifacts_"
DUALPIPEV = f"{PYTORCH}dualpipev_4rank_10mb__a2af973f.csv"
FREED_AT_I = CostModel.of(release=1)


def from_file(name, **options):
    return load(CASES / name, **options).schedule


@pytest.fixture
def from_rows(tmp_path):
    """Read rows as a table that a person saved."""

    def read(*rows, **options):
        path = tmp_path / "case.csv"
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")
        return load(path, **options).schedule

    return read


def proved(schedule, costs=None):
    """The simulation of a schedule that both ways prove."""
    report = verify(schedule, costs)
    assert report.status == "proved", report.properties
    return report.simulation


def refuted(schedule, rule, costs=None):
    """What the witnesses of a broken rule say, as one text."""
    judged = verify(schedule, costs).properties[rule]
    assert judged.status == "refuted"
    return "\n".join(map(str, judged.witnesses))


def makespan_and_idle(simulation):
    timeline = simulation.timeline
    assert len(set(timeline.idle)) == 1, timeline.idle
    return timeline.makespan, timeline.idle[0]


def peaks(schedule, costs=None):
    return list(simulate(schedule, costs or CostModel.of()).peak_activations)


def waiting_weights(schedule):
    """Per rank, the most weight gradients that are put off at one time."""
    most = []
    for row in schedule.order:
        waiting = highest = 0
        for block in row:
            waiting += (block.kind == "I") - (block.kind == "W")
            highest = max(highest, waiting)
        most.append(highest)
    return most


# -------------------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize(
    ("pair", "makespan", "idle"),
    [(3, 66, [6, 6, 6, 6]), ("5/2", 59, [Fraction(7, 2), 4, Fraction(9, 2), Fraction(9, 2)]), (2, 52, [1, 2, 3, 3])],
)
def test_c03_pytorchs_dualpipev(pair, makespan, idle):
    """pytorch/pytorch, dualpipev_4rank_10mb.csv."""
    simulation = proved(from_file(DUALPIPEV), CostModel.of(FB=pair))
    assert simulation.timeline.makespan == makespan
    assert list(simulation.timeline.idle) == idle
    assert list(simulation.overlapped) == [9, 10, 11, 11]
    assert list(simulation.peak_activations) == [9, 9, 9, 9]


def assert_is_zb1p_table(schedule):
    simulation = proved(schedule)
    assert makespan_and_idle(simulation) == (49, 1)
    assert list(simulation.peak_activations) == [4, 4]


def test_c04_empty_cells_are_no_ops():
    """pytorch/pytorch, zb1p_2rank_2stagep_compute.csv."""
    schedule = from_file(f"{PYTORCH}zb1p_2rank_2stagep_compute__a8e954a5.csv")
    assert_is_zb1p_table(schedule)
    assert [len(row) for row in schedule.order] == [48, 48]
    assert peaks(schedule, FREED_AT_I) == [4, 3]
    assert waiting_weights(schedule) == [1, 2]


def test_c05_the_older_dialect():
    """pytorch/pytorch, an older version of the same file, where B was the backward for the input."""
    name = f"{PYTORCH}zb1p_2rank_2stagep_compute__15380b18_legacyB.csv"
    text = refuted_source(CASES / name)
    assert "dialect" in text
    assert len(text.splitlines()) == 1
    assert_is_zb1p_table(from_file(name, dialect="legacy"))


def refuted_source(path):
    source = load(path)
    judged = verify(source.schedule, suspicion=source.suspicion).properties["complete"]
    assert judged.status == "refuted"
    return "\n".join(map(str, judged.witnesses))


def test_c07_ragged_rows_with_sends_and_receives():
    """pytorch/pytorch, zb1p_2rank_2stagep_comms.csv."""
    schedule = from_file(f"{PYTORCH}zb1p_2rank_2stagep_comms__bf69c149.csv")
    assert_is_zb1p_table(schedule)
    assert {block.kind for block in schedule.order[0]} == {"F", "B"}


def test_c08_peak_depends_on_when_memory_is_freed():
    """pytorch/torchtitan, test/assets/4-rank.csv, two versions."""
    modern = from_file("torchtitan__test_assets_4-rank__c58c4fbf.csv")
    simulation = proved(modern)
    assert makespan_and_idle(simulation) == (39, 3)
    assert list(simulation.peak_activations) == [12, 12, 12, 12]
    assert peaks(modern, FREED_AT_I) == [12, 12, 10, 7]
    assert waiting_weights(modern) == [5, 5, 7, 10]
    legacy = "torchtitan__test_assets_4-rank__38268836.csv"
    assert "dialect" in refuted_source(CASES / legacy)
    assert from_file(legacy, dialect="legacy") == modern


CUSTOM = "torchtitan__tests_assets_custom_schedule__91fa6065.csv"


def test_c10_declared_microbatches():
    """pytorch/torchtitan, tests/assets/custom_schedule.csv."""
    simulation = proved(from_file(CUSTOM, microbatches=8))
    assert makespan_and_idle(simulation) == (50, 2)
    assert list(simulation.peak_activations) == [16, 16]
    missing = refuted(from_file(CUSTOM, microbatches=16), "complete")
    assert "8..15" in missing
    assert "32 F and 32 backwards" in missing
    beyond = refuted(from_file(CUSTOM, microbatches=4), "complete")
    assert re.search(r"micro-batch [4-7] is out of range", beyond)


@pytest.mark.parametrize("name", ["BOM_CRLF", "spaces_trailing_commas_blank_line"])
def test_c11_what_spreadsheets_do_to_a_table(name):
    """pytorch/pytorch#142009 and #142211."""
    assert from_file(f"derived__custom_schedule_{name}.csv") == from_file(CUSTOM)


REJECTED = [
    "2BW0", "0WAIT_REDUCE_GRAD", "0F0x", "0F 0", "0F0;1B0", "0F-1", "0BACKWARD1", "0SEND_F", "None", "F0", "0f0", "-1F0",
    "(0F0", "0B0)OVERLAP_F_B",
]  # fmt: skip


@pytest.mark.parametrize("cell", REJECTED)
def test_c12_a_malformed_cell_is_refused(cell, from_rows):
    """torch 2.13.0 reads several of these as something else, since its pattern is not anchored."""
    with pytest.raises(ScheduleError, match=re.escape(cell)) as caught:
        from_rows(f"0F0,,{cell},0B0")
    assert "rank 0" in str(caught.value)
    assert re.search(r"(cell|column) 2\b", str(caught.value))
    assert "\n" not in str(caught.value)


def test_c12_what_people_write_is_accepted(from_rows):
    assert from_rows(" 0F0 , 0B0").order[0] == (Block.parse("0F0"), Block.parse("0B0"))
    assert from_rows("(0F0;1B0)OVERLAP_F_B").order[0] == (Block.parse("(0F0;1B0)"),)


# ------------------------------------------------------------------------------------------------------------ families


@pytest.mark.parametrize(
    ("family", "ranks", "microbatches", "makespan", "peak"),
    [
        ("1f1b", 8, 1, 24, [1] * 8),
        ("1f1b", 4, 2, 15, [2, 2, 2, 1]),
        ("1f1b", 4, 4, 21, [4, 3, 2, 1]),
        ("gpipe", 4, 2, 15, [2, 2, 2, 2]),
        ("gpipe", 1, 1, 3, [1]),
    ],
)
def test_c17_fewer_microbatches_than_ranks(family, ranks, microbatches, makespan, peak):
    """pytorch/torchtitan#775, pytorch/PiPPy#1064, huggingface/nanotron#347."""
    simulation = proved(build_family(family, ranks, microbatches))
    assert simulation.timeline.makespan == makespan
    assert list(simulation.peak_activations) == peak


def test_c17_the_bubble_of_one_microbatch():
    assert simulate(build_family("1f1b", 8, 1)).timeline.bubble_ratio == Fraction(7, 8)


@pytest.mark.parametrize(
    ("ranks", "microbatches", "makespan", "idle", "peak"),
    [
        (4, 2, 22, 10, [3, 4, 4, 4]),
        (4, 7, 45, 3, [8, 8, 8, 8]),
        (4, 8, 51, 3, [8, 8, 8, 8]),
        (2, 4, 25, 1, None),
        (1, 1, 6, 0, None),
    ],
)
def test_c19_zbv_below_its_pattern_size(ranks, microbatches, makespan, idle, peak):
    """pytorch/pytorch#142084."""
    simulation = proved(build_family("zbv", ranks, microbatches))
    assert makespan_and_idle(simulation) == (makespan, idle)
    assert peak is None or list(simulation.peak_activations) == peak
    if microbatches == 8:
        assert simulation.timeline.span_idle == (0, 0, 0, 0)


def test_c33_weight_copies():
    """deepseek-ai/DualPipe#17: the comparison is per number of stages."""
    held = {}
    for family, ranks, microbatches in [("dualpipe", 8, 16), ("dualpipev", 4, 8), ("zbv", 4, 8), ("1f1b", 8, 8)]:
        problem = build_family(family, ranks, microbatches).problem
        copies = {len(problem.stages_on(rank)) for rank in range(ranks)}
        assert len(copies) == len(set(rules.replication(problem))) == 1
        held[family] = (copies.pop(), rules.replication(problem)[0])
        assert problem.stages == 8
    assert held == {"dualpipe": (2, 2), "dualpipev": (2, 1), "zbv": (2, 1), "1f1b": (1, 1)}


@pytest.mark.parametrize(("ranks", "microbatches", "expected"), [(3, 6, (40, 4, 7)), (3, 7, (46, 4, 7)), (1, 2, (12, 0, 3))])
def test_c34_dualpipev_takes_odd_numbers(ranks, microbatches, expected):
    """torch 2.13.0 accepts the same."""
    simulation = proved(build_family("dualpipev", ranks, microbatches), CostModel.of(FB=3))
    assert set(simulation.peak_activations) == {expected[2]}
    assert makespan_and_idle(simulation) == expected[:2]


@pytest.mark.parametrize(("ranks", "microbatches", "least"), [(2, 3, 4), (8, 8, 16)])
def test_c34_dualpipev_refuses_too_few_microbatches(ranks, microbatches, least):
    """marin-community/marin#8739."""
    with pytest.raises(ScheduleError, match=rf"\b{least}\b"):
        build_family("dualpipev", ranks, microbatches)


def test_c35_a_claim_that_is_one_too_high():
    """deepspeedai/DeepSpeed#2800."""
    schedule = build_family("1f1b", 4, 8)
    simulation = proved(schedule)
    assert simulation.timeline.makespan == 33
    assert list(simulation.peak_activations) == [4, 3, 2, 1]
    assert verify(schedule, claims={"peak_activations": [4, 3, 2, 1]}).status == "proved"
    assert verify(schedule, claims={"peak_activations": [5, 4, 3, 1]}).properties["claims"].status == "refuted"


@pytest.mark.parametrize(
    ("family", "makespan", "idle", "peak", "blocks"),
    [
        ("zb1p", 1599, 63, 64, 98_304),
        ("interleaved", 3261, 189, 191, 131_072),
        ("dualpipe", 1598, 62, 65, 40_898),
    ],
)
def test_c40_very_large_schedules_keep_to_closed_forms(family, makespan, idle, peak, blocks):
    """Sizes as in sail-sg/zero-bubble-pipeline-parallelism#21."""
    schedule = build_family(family, 64, 512)
    assert sum(map(len, schedule.order)) == blocks
    simulation = simulate(schedule)
    assert makespan_and_idle(simulation) == (makespan, idle)
    assert simulation.peak_activations[0] == peak
    assert family == "interleaved" or set(simulation.peak_activations) == {peak}


def test_c40_very_large_file():
    simulation = proved(from_file("derived__1F1B_P64_M512.csv"))
    assert makespan_and_idle(simulation) == (1725, 189)
    assert list(simulation.peak_activations) == list(range(64, 0, -1))


# --------------------------------------------------------------------------------------------------------- what is wrong


def test_c20_counts_that_cancel_out(from_rows):
    """torch 2.13.0 adds up the backwards per stage, and accepts this."""
    text = refuted(from_rows("0F0,0F1,0B0,0I0,0W0", "1F0,1F1,1B0,1I0,1W0"), "complete")
    for stage in (0, 1):
        assert f"{stage}B1 is missing" in text
        assert re.search(rf"\b{stage}[BIW]0\b.* a second time", text)


def test_c20_double_forward_and_a_hole(from_rows):
    assert "0F0 runs a second time" in refuted(from_rows("0F0,0F0,0F1,0B0,0B1"), "complete")
    hole = refuted(from_rows("0F0,0F2,0B0,0B2", microbatches=2), "complete")
    assert "micro-batch 2 is out of range" in hole
    assert "micro-batch 1" in hole


@pytest.mark.parametrize("second", ["1F1,1F0,1B1,1B0", "1F1,1B1,1F0,1B0"])
def test_c21_a_circle_over_two_ranks(second, from_rows):
    """torch 2.13.0 looks at each rank alone, and accepts this."""
    text = refuted(from_rows("0F0,0B0,0F1,0B1", second), "dependencies")
    assert re.search(r"rank 0, cell 1 at 0B0 needs 1[BI]0", text)
    assert "rank 1, cell 0 at 1F1 needs 0F1" in text
    assert text.startswith("2 blocks wait in a circle")


def test_c22_a_pair_that_needs_itself(from_rows):
    """pytorch/torchtitan#1682: both halves of a pair run together."""
    schedule = from_rows("0F0,0F1,(0F2;0B2)OVERLAP_F_B,0B0,0B1", "1F0,1B0,1F1,1B1,1F2,1B2")
    for rule in ("pairing", "dependencies"):
        text = refuted(schedule, rule)
        assert re.search(r"0[BI]2 needs 1[BI]2 needs 1F2 needs 0F2, which is inside the same block", text)
        assert "rank 0, cell 2" in text


def test_c22_a_pair_that_needs_itself_through_the_turn_of_a_v(from_rows):
    text = (CASES / DUALPIPEV).read_text(encoding="utf-8")
    head, tail = text.split("(0F7;7B3)OVERLAP_F_B", 1)
    rows = f"{head}(0F7;7B7)OVERLAP_F_B{tail.replace('7B7', '7B3', 1)}".splitlines()
    schedule = from_rows(*rows)
    assert "7F7" in refuted(schedule, "pairing")
    assert "(0F7;7B7)" in refuted(schedule, "dependencies")


def test_c24_weight_gradient_first():
    """pytorch/pytorch, dualpipev_4rank_10mb.csv with one edit."""
    text = refuted(from_file("derived__dualpipev_W_before_I.csv"), "dependencies")
    assert "rank 0, cell 8: 7W0 needs 7I0" in text


def test_c24_missing_weight_gradient_leaves_the_makespan():
    report = verify(from_file("derived__dualpipev_missing_0W9_trailing_comma.csv"))
    (witness,) = report.properties["complete"].witnesses
    assert "0W9 is missing" in witness.text
    assert report.simulation.timeline.makespan == 66
    assert {name for name, judged in report.properties.items() if judged.status == "refuted"} == {"complete"}


def test_c24_harmless_exchange_is_slower(from_rows):
    rows = (CASES / DUALPIPEV).read_text(encoding="utf-8").splitlines()
    assert "5F0,2F3,5F1" in rows[2]
    rows[2] = rows[2].replace("5F0,2F3,5F1", "5F1,2F3,5F0")
    assert proved(from_rows(*rows)).timeline.makespan == 69


def test_c25_neighbouring_stages_on_one_rank(from_rows):
    neighbours = proved(from_rows("0F0,1F0,,,4F0,4B0,,,1B0,0B0", ",,2F0,3F0,,,3B0,2B0,,"))
    assert neighbours.timeline.makespan == 15
    assert list(neighbours.timeline.idle) == [6, 9]
    assert list(neighbours.peak_activations) == [3, 2]


def test_c25_split_backwards(from_rows):
    schedule = from_rows("0F0,0F1,2F0,2F1,,2I0,2W0,0I0,2I1,0W0,0I1,2W1,0W1", ",1F0,1F1,3F0,3I0,3F1,1I0,3I1,3W0,1I1,1W0,3W1,1W1")
    assert makespan_and_idle(proved(schedule)) == (13, 1)
    assert peaks(schedule) == [4, 4]
    assert peaks(schedule, FREED_AT_I) == [4, 3]
    assert waiting_weights(schedule) == [2, 3]


def test_c25_sends_and_receives_are_no_compute(from_rows):
    schedule = from_rows(
        "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1", "1RECV_F0,1RECV_F1,1F0,1F1,1B0,1B1,1SEND_B0,1SEND_B1"
    )
    assert [list(map(str, row)) for row in proved(schedule).schedule.order] == [
        ["0F0", "0F1", "0B0", "0B1"],
        ["1F0", "1F1", "1B0", "1B1"],
    ]


def test_c36_warmup_beyond_the_batch(from_rows):
    """Victarry/PP-Schedule-Visualization, 1F1B without clamping."""
    rows = ["0F0,0F1,0F2,0B0,0B1", "1F0,1F1,1B0,1B1", "2F0,2F1,2B0,2B1", "3F0,3B0,3F1,3B1"]
    text = refuted(from_rows(*rows, microbatches=2), "complete")
    assert "rank 0, cell 2: 0F2: micro-batch 2 is out of range" in text
    clamped = proved(build_family("1f1b", 4, 2))
    assert clamped.timeline.makespan == 15
    assert list(clamped.peak_activations) == [2, 2, 2, 1]


@pytest.mark.parametrize(("family", "makespan"), [("1f1b", 33), ("zb1p", 27)])
def test_c36_totals_of_another_simulator(family, makespan):
    assert proved(build_family(family, 4, 8)).timeline.makespan == makespan


# --------------------------------------------------------------------------------------------- orders given by their loop


def megatron(warmup, *, ranks=4, rounds=2, microbatches=8):
    """Interleaved 1F1B with any number of warm-up forwards."""
    problem = Problem((tuple(range(ranks)) * rounds,), (microbatches,))
    total = microbatches * rounds

    def step(rank, index, kind):
        turn = index // ranks % rounds
        stage = rank + ranks * (turn if kind == "F" else rounds - 1 - turn)
        return one_block(kind, stage, index // (ranks * rounds) * ranks + index % ranks)

    return Schedule(problem, tuple(one_forward_one_backward(warmup(rank), total, rank, step) for rank in range(ranks)))


def one_block(kind, stage, microbatch):
    return Block(tuple(Op(single, 0, stage, microbatch) for single in ("IW" if kind == "B" else kind)))


def one_forward_one_backward(warmup, total, rank, step):
    """Forwards to warm up, then a forward and a backward in turn, then the backwards that are left."""
    warmup = min(warmup, total)
    row = [step(rank, index, "F") for index in range(warmup)]
    for index in range(total):
        if warmup + index < total:
            row.append(step(rank, warmup + index, "F"))
        row.append(step(rank, index, "B"))
    return tuple(row)


@pytest.mark.parametrize(
    ("warmup", "makespans", "peak"),
    [
        (lambda rank: 2 * (3 - rank) + 4, [57, Fraction(121, 2), 64, 71], [11, 9, 7, 5]),
        (lambda rank: 3 - rank + 4, [57, Fraction(129, 2), 72, 87], [8, 7, 6, 5]),
    ],
    ids=["A", "B"],
)
def test_c26_twice_the_warmup_pays_only_with_latency(warmup, makespans, peak):
    """NVIDIA/Megatron-LM#169 and #675."""
    schedule = megatron(warmup)
    hops = [CostModel.of(hop=hop) for hop in ("0", "1/4", "1/2", "1")]
    assert [proved(schedule, costs).timeline.makespan for costs in hops] == makespans
    assert peaks(schedule) == peak


def test_c26_too_short_a_warmup_hangs():
    report = verify(megatron(lambda rank: 2 * (3 - rank)))
    judged = report.properties["dependencies"]
    assert judged.status == "refuted"
    # All four ranks are stuck; the shortest circle is rank 2 alone.
    assert "rank 2, position 3: 6B0 needs 6F0" in judged.witnesses[-1].text


def one_f_one_b(warmups, microbatches=8):
    problem = Problem((tuple(range(len(warmups))),), (microbatches,))

    def step(rank, index, kind):
        return one_block(kind, rank, index)

    rows = [one_forward_one_backward(warmup, microbatches, rank, step) for rank, warmup in enumerate(warmups)]
    return Schedule(problem, tuple(rows))


@pytest.mark.parametrize(
    ("warmups", "makespan", "peak"),
    [
        ((3, 2, 1, 0), 33, [4, 3, 2, 1]),
        ((2, 1, 0, 0), 54, [3, 2, 1, 1]),
        ((4, 3, 2, 1), 33, [5, 4, 3, 2]),
        ((2, 2, 1, 0), 48, [3, 3, 2, 1]),
        ((0, 0, 0, 0), 96, [1, 1, 1, 1]),
    ],
)
def test_c38_a_wrong_warmup_is_slow_but_not_wrong(warmups, makespan, peak):
    """pytorch/PiPPy#957 and #1052."""
    simulation = proved(one_f_one_b(warmups))
    assert simulation.timeline.makespan == makespan
    assert list(simulation.peak_activations) == peak


def test_c38_the_bubble_of_a_short_warmup():
    assert simulate(one_f_one_b((2, 1, 0, 0))).timeline.bubble_ratio == Fraction(5, 9)


# ------------------------------------------------------------------------------------------------------ two weight copies


def test_c37_a_batch_that_is_half_there(from_rows):
    """ParCIS/Chimera#3: with two stages the printed schedule does not grow."""
    rows = ["0F0,1F1,1B1,0B0", "0F1,1F0,1B0,0B1"]
    missing = refuted(from_rows(*rows, microbatches=4), "complete")
    assert "2..3" in missing or "2, 3" in missing
    assert makespan_and_idle(proved(from_rows(*rows, microbatches=2))) == (6, 0)
    slow = proved(from_rows("0F0,1F1,1B1,0B0", "1F0,0F1,0B1,1B0", microbatches=2))
    assert slow.timeline.makespan == 12


def test_c37_chimeras_table(from_rows):
    """hpcaitech/ColossalAI#1684; micro-batches 2 and 3 run through the second copy."""
    first, second = "0F0,0F1,3F2,3B2,3F3,3B3,0B0,0B1", "1F0,2F2,1F1,2F3,2B2,1B0,2B3,1B1"
    mirrored = [re.sub(r"\d(?=,|$)", lambda m: str((int(m[0]) + 2) % 4), row) for row in (second, first)]
    schedule = from_rows(first, second, *mirrored)
    simulation = proved(schedule)
    assert makespan_and_idle(simulation) == (16, 4)
    assert list(simulation.peak_activations) == [3, 4, 4, 3]
    assert schedule.problem == build_family("chimera", 4, 4).problem
    assert simulate(build_family("chimera", 4, 4)).timeline.makespan == 16


def test_c37_chimera_needs_an_even_number_of_stages():
    with pytest.raises(ScheduleError, match="even"):
        build_family("chimera", 3, 3)


def test_a_table_of_two_copies_is_dualpipe():
    """The file writes dualpipe P=4 M=8 with micro-batches 4 to 7 as the second direction."""
    schedule = from_file("derived__DualPipe_P4_M8_bidirectional.csv")
    assert schedule == build_family("dualpipe", 4, 8)
    assert makespan_and_idle(proved(schedule)) == (26, 2)


# --------------------------------------------------------------------------------------------------------- uneven stages


def doubled(stage):
    work = [1, 1, 1, 1]
    work[stage] = 2
    return CostModel.of(F=work, I=work, W=work)


@pytest.mark.parametrize(
    ("family", "costs", "makespan", "idle"),
    [
        ("1f1b", CostModel.of(), 33, [9, 9, 9, 9]),
        ("zb1p", CostModel.of(), 27, [3, 3, 3, 3]),
        ("1f1b", doubled(-1), 57, [33, 33, 33, 9]),
        ("zb1p", doubled(-1), 51, [27, 27, 27, 3]),
        ("1f1b", doubled(0), 51, [3, 27, 27, 27]),
        ("zb1p", doubled(0), 48, [0, 24, 24, 24]),
    ],
)
def test_c39_a_slow_last_stage_costs_more_than_a_slow_first(family, costs, makespan, idle):
    """pytorch/torchtitan#680 and #2093."""
    timeline = proved(build_family(family, 4, 8), costs).timeline
    assert timeline.makespan == makespan
    assert list(timeline.idle) == idle


def test_c39_two_ways_to_measure_a_bubble():
    """InternLM/InternEvo#282."""
    assert list(simulate(build_family("zb1p", 4, 8)).timeline.span_idle) == [3, 2, 1, 0]


def test_limits_of_the_cases():
    """DualPipe's table 2: two weight copies and P + 1 activations."""
    schedule = build_family("dualpipe", 8, 20)
    assert verify(schedule, limits=Limits(Fraction(9), 2)).status == "proved"
    below = verify(schedule, limits=Limits(Fraction(8), 2)).properties["activations"]
    assert below.status == "refuted"
    assert all(witness.op and witness.rank is not None for witness in below.witnesses[:8])
