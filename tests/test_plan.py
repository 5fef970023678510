"""Plans: sizes against published models, memory by hand, orders against simulation, and the two clusters that are known."""

import dataclasses
import json
from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.cli import main
from verifier.costs import CostModel
from verifier.families import FAMILIES, placement
from verifier.formats import load
from verifier.model import Limits, ScheduleError
from verifier.planning import plan as planning
from verifier.planning.advice import fillings, published, reasons, second_copy
from verifier.planning.clock import makespan_and_busy
from verifier.planning.durations import Span, costs_of, pair, single, span_of
from verifier.planning.improve import improve
from verifier.planning.memory import peaks_of
from verifier.planning.model import flops_per_token, layers_of, parameters
from verifier.planning.plan import Choice, Plan, make_plan, orders_of, replay
from verifier.planning.report import FORMULAS, markdown, plan_json, ranking_row
from verifier.planning.rules import RULES, build
from verifier.planning.spec import SCHEDULES, PlanSpec, read_plan_spec
from verifier.planning.stages import balanced
from verifier.simulate import simulate
from verifier.specs import read_costs
from verifier.verify import verify

ROOT = Path(__file__).parents[1]
V3, DENSE, SMALL = (ROOT / "specs" / f"cluster-{name}.toml" for name in ("deepseek-v3", "dense-70b", "small-moe"))


@pytest.fixture(scope="module")
def v3() -> Plan:
    return make_plan(read_plan_spec(V3))


@pytest.fixture(scope="module")
def dense() -> Plan:
    return make_plan(read_plan_spec(DENSE))


@pytest.fixture(scope="module")
def small() -> Plan:
    return make_plan(read_plan_spec(SMALL))


def named(plan: Plan, name: str) -> Choice:
    return next(choice for choice in (*plan.fitting, *plan.out) if choice.name == name)


def changed(path: Path, folder: Path, *changes: tuple[str, str]) -> Path:
    """A copy of a spec with other text."""
    text = path.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    copy = folder / path.name
    copy.write_text(text)
    return copy


# ---------------------------------------- the two clusters


def test_deepseek_v3_has_dualpipe_on_16_ranks_among_the_first_three(v3: Plan) -> None:
    assert (v3.spec.ep, v3.spec.cluster.ranks) == (64, 2048)
    assert "dualpipe P=16" in [choice.name for choice in v3.fitting[:3]]
    assert named(v3, "dualpipe P=16").microbatches == 120


def test_deepseek_v3_memory_by_hand(v3: Plan) -> None:
    """A rank of DualPipe holds two stages of four MoE layers; every term from arXiv:2412.19437 with pencil and paper."""
    latent = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    expert = 3 * 7168 * 2048
    outside = latent + 7168 * 256 + expert
    layers = 8
    local = layers * (outside + 256 * expert / 64)
    # Per token: two residual inputs, compressed vectors, output of attention in BF16; row sums; 256 scores; what 8 experts read
    # in FP8, and their two halves, and those of the shared one.
    kept = 2 * 2 * 7168 + 2 * (1536 + 576 + 16384) + 4 * 128 + 4 * 256 + 8 * (7168 + 4096) + 4096
    by_hand = {
        "weights": 2 * local,
        "gradients": 4 * local,
        "optimizer": 8 * layers * (outside + 256 * expert) / (2 * 128),
        "activations": 17 * 4 * 4096 * kept,
    }
    memory = named(v3, "dualpipe P=16").memory
    assert memory is not None
    for term, value in by_hand.items():
        assert getattr(memory, term) == pytest.approx(value, rel=0.1), term
    assert memory.total == pytest.approx(sum(by_hand.values()) + 4e9, rel=0.02)


def test_deepseek_v3_hours_are_compared_with_what_was_published(v3: Plan) -> None:
    best = v3.fitting[0]
    assert v3.gpu_hours(best) == pytest.approx(180e3, rel=0.25)
    said = published(v3)
    assert f"{v3.gpu_hours(best) / 1e3:.0f} K" in said
    assert "180 K published (arXiv:2412.19437" in said
    assert "Left out" in said
    # A step by hand: 120 pairs of a chunk of four layers, at least, on every pipeline.
    assert best.step > 120 * 0.13093
    assert v3.gpu_hours(best) == pytest.approx(best.step * 2048 / (15360 * 4096) * 1e12 / 3600)


def test_dualpipe_is_two_halves_of_dualpipev(v3: Plan) -> None:
    half, whole = named(v3, "dualpipev P=8"), named(v3, "dualpipe P=16")
    assert half.step == pytest.approx(whole.step, rel=2e-3)
    assert half.memory is not None
    assert whole.memory is not None
    assert half.memory.total == pytest.approx(whole.memory.total, rel=1e-6)
    assert any("mirror image" in reason for reason in reasons(v3))


def test_what_breaks_is_named(v3: Plan) -> None:
    shallow = named(v3, "dualpipe P=8")
    assert [obstacle.term for obstacle in shallow.broken] == ["activations"]
    assert "of 80" in shallow.broken[0].text
    assert named(v3, "zbv P=32").broken[0].text == "layers: 64 stages for 61 layers"


def test_a_batch_with_too_few_microbatches() -> None:
    spec = dataclasses.replace(read_plan_spec(V3).with_batch(3072), depths=(16,), schedules=("1f1b", "dualpipe", "chimera"))
    plan = make_plan(spec)
    refused = named(plan, "dualpipe P=16")
    assert refused.broken[0].term == "micro-batches"
    assert refused.least_batch == 32 * 128
    assert "gives each of 128 pipelines 24" in refused.broken[0].text
    assert "from a batch of 4096 (M = 32)" in refused.broken[0].text
    assert named(plan, "1f1b P=16").microbatches == 24
    enough = make_plan(spec.with_batch(4096))
    assert named(enough, "dualpipe P=16").microbatches == 32
    assert not named(enough, "dualpipe P=16").broken


def test_a_batch_that_pipelines_cannot_share_out() -> None:
    plan = make_plan(dataclasses.replace(read_plan_spec(V3).with_batch(15361), depths=(16,), schedules=("1f1b",)))
    assert plan.out[0].least_batch == 121 * 128
    assert not plan.fitting


def test_dense_70b_prefers_one_copy(dense: Plan) -> None:
    assert dense.spec.cluster.ranks == 64
    best = dense.fitting[0]
    assert best.copies == 1
    assert best.family == "zbv"
    assert best.step < min(choice.step for choice in dense.fitting if choice.copies == 2)
    assert "nothing to overlap" in reasons(dense)[0]
    # Two copies at the same depth do not even fit.
    assert named(dense, f"dualpipe P={best.depth}").broken


def test_a_second_copy_is_small_with_experts(v3: Plan, dense: Plan) -> None:
    moe, plain = second_copy(v3.spec, 16), second_copy(dense.spec, 8)
    assert plain.unsharded == pytest.approx(70.55e9 / 8 * 2, rel=0.01)
    assert moe.unsharded == pytest.approx(671e9 / 16 * 2, rel=0.01)
    assert moe.weights == pytest.approx((653.9e9 / 64 + 17.1e9) / 16 * 2, rel=0.01)
    assert moe.ratio == pytest.approx(24.5, rel=0.01)
    # The dense model is a tenth of the other, and its second copy takes five times as much.
    assert plain.unsharded / moe.weights == pytest.approx(5.2, rel=0.02)
    assert "24.5" in markdown(v3)


def test_plan_without_measured_durations(v3: Plan) -> None:
    """From FLOP/s and bandwidths alone pairs still win, and compute is what the trace says within a fifth."""
    spec = dataclasses.replace(v3.spec, chunk=None, depths=(8, 16), schedules=("1f1b", "zbv", "dualpipe", "dualpipev"))
    plan = make_plan(spec)
    assert plan.fitting[0].family in ("dualpipe", "dualpipev")
    chunk = sum((span_of(spec, layers_of(spec)[index]) for index in range(4, 8)), Span())
    for estimated, measured in ((chunk.forward, 35.9), (chunk.inputs, 58.6), (chunk.weights, 35.1)):
        assert estimated / 1e3 == pytest.approx(measured, rel=0.2)
    # All-to-all at full bandwidth is well below what was measured with waiting for peers, and the report says so.
    assert 0.3 < chunk.sent / 1e3 / (4 * (6.69 + 8.68)) < 0.55
    assert any("waiting for peers" in formula for formula in FORMULAS)


# ---------------------------------------- sizes and durations


MIXTRAL = """
[cluster]
ranks = 8
per_node = 8
flops = 989e12
reached = 0.5
memory_gb = 80
inside_gb = 450
between_gb = 50
[model]
layers = 32
hidden = 4096
heads = 32
vocabulary = 32000
sequence = 4096
[model.attention]
kind = "gqa"
head = 128
kv_heads = 8
[model.experts]
routed = 8
active = 2
intermediate = 14336
[batch]
sequences = 64
"""
LLAMA = (
    ("vocabulary = 32000", "vocabulary = 128256\nintermediate = 14336"),
    ("[model.experts]\nrouted = 8\nactive = 2\nintermediate = 14336\n", ""),
)


def test_parameters_of_published_models(tmp_path: Path, v3: Plan, dense: Plan) -> None:
    mixtral, llama = tmp_path / "mixtral.toml", tmp_path / "llama.toml"
    mixtral.write_text(MIXTRAL)
    text = MIXTRAL
    for old, new in LLAMA:
        text = text.replace(old, new)
    llama.write_text(text)
    assert parameters(v3.spec)[0] == pytest.approx(671e9, rel=1e-3)
    assert parameters(v3.spec)[1] + 7168 * 129280 == pytest.approx(37e9, rel=0.02)
    assert parameters(dense.spec)[0] == pytest.approx(70.55e9, rel=1e-3)
    # arXiv:2401.04088: 47B parameters, 13B active; arXiv:2407.21783: 8.03B.
    total, active = parameters(read_plan_spec(mixtral))
    assert total == pytest.approx(46.7e9, rel=2e-3)
    assert active + 32000 * 4096 == pytest.approx(12.9e9, rel=5e-3)
    assert parameters(read_plan_spec(llama))[0] == pytest.approx(8.03e9, rel=1e-3)


def test_flops_are_six_per_active_parameter_and_attention(dense: Plan) -> None:
    # Norms multiply one by one: they are no products of matrices.
    linear = 6 * (parameters(dense.spec)[1] - 80 * 2 * 8192)
    attention = 3 * 80 * 4096 * 64 * 256
    assert flops_per_token(dense.spec) == pytest.approx(linear + attention)


def test_measured_durations_keep_their_ratio(v3: Plan) -> None:
    chunk = Span(measured=4)
    assert single(v3.spec, chunk, "F") == pytest.approx(97_320)
    assert pair(v3.spec, chunk, chunk) == pytest.approx(130_930)
    assert pair(v3.spec, Span(measured=2), Span(measured=2)) == pytest.approx(130_930 / 2)
    apart = dataclasses.replace(v3.spec, overlap=False)
    assert pair(apart, chunk, chunk) == pytest.approx(97_320 + 114_030)


def test_measured_durations_are_those_of_the_window(tmp_path: Path, v3: Plan) -> None:
    """The spec repeats what ``verifier window`` says, and takes its file as well."""
    written = tmp_path / "window.toml"
    result = CliRunner().invoke(main, ["window", str(ROOT / "specs/chunk-deepseek-v3.toml"), "-o", str(written)])
    assert result.exit_code == 0, result.output
    assert v3.spec.chunk is not None
    assert read_costs(str(written)).prices == v3.spec.chunk.costs.prices
    text = 'costs = "F=97.32,I=111.64,W=35.08,B=114.03,FB=130.93"'
    spec = read_plan_spec(changed(V3, tmp_path, (text, 'costs = "window.toml"')))
    assert spec.chunk is not None
    assert spec.chunk.costs.prices == v3.spec.chunk.costs.prices


@pytest.mark.parametrize("path", [V3, DENSE, SMALL])
def test_recompute_trades_memory_for_time(path: Path) -> None:
    spec = read_plan_spec(path)
    kept, times = [], []
    for recompute in ("none", "selective", "full"):
        other = dataclasses.replace(spec, recompute=recompute, chunk=None)
        layer = layers_of(other)[-2]
        kept.append(layer.kept)
        times.append(span_of(other, layer).inputs)
    assert kept == sorted(kept, reverse=True)
    assert len(set(kept)) == 3
    assert times == sorted(times)


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_zero_saves_memory(zero: int) -> None:
    spec = dataclasses.replace(read_plan_spec(SMALL), depths=(4,), schedules=("1f1b",))
    less, more = (make_plan(dataclasses.replace(spec, zero=stage)) for stage in (zero + 1, zero))
    one, other = (named(plan, "1f1b P=4").memory for plan in (less, more))
    assert one is not None
    assert other is not None
    assert one.total < other.total


def test_two_copies_double_weights_but_not_the_optimizer(dense: Plan) -> None:
    one, two = named(dense, "1f1b P=8").memory, named(dense, "chimera P=8").memory
    assert one is not None
    assert two is not None
    assert two.weights == pytest.approx(2 * one.weights, rel=0.15)
    assert two.optimizer == pytest.approx(one.optimizer, rel=0.15)


# ---------------------------------------- orders


@st.composite
def orders(draw: st.DrawFn) -> tuple[str, int, int, CostModel]:
    """A family's order with costs that differ by stage and pair."""
    family = draw(st.sampled_from(SCHEDULES))
    ranks = draw(st.sampled_from([2, 4, 6]))
    microbatches = RULES[family].nearest(ranks, draw(st.integers(1, 13)))
    stages = build(family, ranks, microbatches).problem.stages
    times = st.lists(st.integers(1, 9), min_size=stages, max_size=stages)
    table = st.lists(st.lists(st.integers(1, 19), min_size=stages, max_size=stages), min_size=stages, max_size=stages)
    prices = {kind: draw(times) for kind in ("F", "I", "W")}
    extra = [a + b + draw(st.integers(0, 2)) for a, b in zip(prices["I"], prices["W"], strict=True)]
    costs = CostModel.of(**prices, B=extra, FB=draw(table), hop=draw(st.integers(0, 3)), activation=draw(times))
    return family, ranks, microbatches, costs


@settings(max_examples=40)
@given(orders())
def test_the_clock_agrees_with_simulation(drawn: tuple[str, int, int, CostModel]) -> None:
    family, ranks, microbatches, costs = drawn
    schedule = build(family, ranks, microbatches)
    run = simulate(schedule, costs)
    assert run.timeline is not None
    assert makespan_and_busy(schedule, costs) == (run.timeline.makespan_ticks, sum(map(sum, run.timeline.duration)))
    assert isinstance(costs.activation, tuple)
    assert peaks_of(schedule, [float(size) for size in costs.activation]) == tuple(map(float, run.peak_activations))


def test_the_clock_hears_a_deadlock() -> None:
    schedule = build("1f1b", 2, 2)
    late = dataclasses.replace(schedule, order=(schedule.order[0][::-1], schedule.order[1]))
    with pytest.raises(ValueError, match="hang"):
        makespan_and_busy(late, CostModel.of())


@pytest.mark.parametrize("family", SCHEDULES)
def test_rules_are_those_of_the_families(family: str) -> None:
    rule = RULES[family]
    for ranks in (2, 4):
        for microbatches in range(1, 4 * ranks + 1):
            try:
                build(family, ranks, microbatches)
                exists = True
            except ScheduleError:
                exists = False
            assert rule.accepts(ranks, microbatches) == exists, (ranks, microbatches)
            nearest = rule.nearest(ranks, microbatches)
            assert rule.accepts(ranks, nearest)
            assert not any(rule.accepts(ranks, count) for count in range(microbatches, nearest))
    assert planning.PLACEMENTS.get(family, "sequential") == FAMILIES[family].placement


@pytest.mark.parametrize("family", SCHEDULES)
def test_long_orders_continue_as_they_are(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line through three short orders meets the long one, with hops and uneven stages too."""
    microbatches = 512
    stages = build(family, 4, 8).problem.stages
    costs = CostModel.of(
        F=[20 + stage % 3 for stage in range(stages)], I=[25] * stages, W=[12] * stages, FB=[[50] * stages] * stages, hop=3
    )
    direct = replay(orders_of(family, 4, microbatches), microbatches, costs)
    monkeypatch.setattr(planning, "FULL", 1800)
    short = orders_of(family, 4, microbatches)
    assert len(short) == 3
    continued = replay(short, microbatches, costs)
    assert continued.seconds == pytest.approx(direct.seconds, rel=1e-12)
    assert continued.bubble == pytest.approx(direct.bubble, rel=1e-9)
    assert "continued along a line" in continued.method
    assert "not lie" not in continued.method


def test_a_huge_batch_is_planned_at_once() -> None:
    families = ("gpipe", "zbv", "dualpipev")
    spec = dataclasses.replace(read_plan_spec(SMALL).with_batch(16 * 10**9), depths=(4,), schedules=families)
    plan = make_plan(spec)
    best = plan.fitting[0]
    assert best.microbatches == 16 * 10**9 // best.dp
    assert best.run is not None
    assert best.run.bubble < 0.2
    gpipe = named(plan, "gpipe P=4")
    assert gpipe.memory is not None
    assert gpipe.memory.activations > 1e17


def test_closed_forms_hold_where_stages_are_alike() -> None:
    """The proved makespans: 1F1B (M+P-1)(F+B); DualPipe as in the theorem dualpipe-makespan."""
    costs = CostModel.of(F=10, I=12, W=9, FB=26)
    assert replay(orders_of("1f1b", 8, 20), 20, costs).seconds == (20 + 7) * 31 / 1e6
    q = 4
    exact = (20 - q - 2) * 26 + 2 * q * 10 + (q + 2) * 12 + 3 * 9 + max(q * 10, (q - 1) * 12) + (q - 1) * 12
    assert replay(orders_of("dualpipe", 8, 20), 20, costs).seconds == exact / 1e6


# ---------------------------------------- stages


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9), min_size=3, max_size=9), st.integers(1, 5))
def test_the_longest_stage_is_least_and_the_rest_even(costs: list[int], stages: int) -> None:
    layers = len(costs) - 2
    if stages > layers:
        with pytest.raises(ScheduleError, match=f"{stages} stages for {layers} layers"):
            balanced(costs, placement("sequential", stages))
        return
    cut = balanced(costs, placement("sequential", stages))
    assert [begin for begin, _ in cut] == [0, *(end for _, end in cut[:-1])]
    assert cut[-1][1] == len(costs)

    def worth(bounds: tuple[int, ...]) -> tuple[int, int]:
        parts = [sum(costs[begin:end]) for begin, end in pairwise(bounds)]
        return max(parts), sum(part * part for part in parts)

    every = ((0, *(place + 1 for place in inner), len(costs)) for inner in combinations(range(1, layers), stages - 1))
    assert worth((0, *(end for _, end in cut))) == min(map(worth, every))


def test_short_stages_go_where_they_relieve() -> None:
    """Eleven equal layers and a long output on four ranks of a V: no rank runs more than three layers or a layer and it."""
    costs = [0, *[10] * 11, 8]
    cut = balanced(costs, placement("v", 4))
    loads = [sum(sum(costs[slice(*cut[stage])]) for stage in (rank, 7 - rank)) for rank in range(4)]
    assert (sum(loads), max(loads)) == (118, 30)


# ---------------------------------------- specs


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ranks = 16", "rank = 16", "cluster.rank: unknown key; did you mean ranks?"),
        ("ranks = 16", "ranks = 1", "cluster.ranks: expected a whole number of at least 2, got 1"),
        ("ranks = 16", "ranks = 15", "cluster.ranks: expected a multiple of the 8 of a node, got 15"),
        ("reached = 0.5", "reached = 5", "cluster.reached: expected a number such as 0.5, from 0.001 to 1, got 5"),
        ("reached = 0.5", "", "cluster.reached: missing; expected a number such as 0.5, from 0.001 to 1"),
        ("flops = 300e12", 'flops = "fast"', "cluster.flops: expected a number such as 989e12, from 1e+09 to 1e+18, got fast"),
        ("flops = 300e12", "flops = nan", "cluster.flops: expected a number such as 989e12, from 1e+09 to 1e+18, got nan"),
        ("layers = 24", f"layers = {'9' * 30}", "model.layers: expected a whole number of at least 1, got a number too large"),
        ("layers = 24", "layers = 1001", "model.layers: expected at most 1000, got 1001"),
        ("layers = 24", "layers = true", "model.layers: expected a whole number of at least 1, got True"),
        ('kind = "gqa"', 'kind = "mha"', "model.attention.kind: expected one of gqa, mla, got mha"),
        ('kind = "gqa"', 'kind = "mla"', "model.attention.value: missing; expected a whole number of at least 1"),
        ('kind = "gqa"', 'kind = "gqa"\nrope = 64', "model.attention.rope: not a size of gqa; expected nothing here"),
        ('kind = "gqa"', 'kind = "gqa"\nkv_heads = 3', "model.attention.kv_heads: expected a divisor of 16 heads, got 3"),
        ("active = 6", "active = 65", "model.experts.active: expected at most the 64 routed, got 65"),
        ("dense_layers = 1", "dense_layers = 24", "model.experts.dense_layers: expected fewer than 24 layers, got 24"),
        ("ep = 4", "ep = 5", "parallelism.ep: expected a divisor of 64 routed experts, got 5"),
        ("ep = 4", "tp = 16", "parallelism.tp: expected a divisor of 16 ranks within a node of 8, got 16"),
        ("zero = 1", "zero = 4", "parallelism.zero: expected 0, 1, 2 or 3, got 4"),
        (
            'recompute = "selective"',
            'recompute = "some"',
            "parallelism.recompute: expected one of none, selective, full, got some",
        ),
        ("depths = [2, 4]", "depths = [3]", "plan.depths: 3 stages times 1-way tensor parallelism do not divide 16 ranks"),
        ("depths = [2, 4]", "depths = [2, 0]", "plan.depths: expected whole numbers of at least 1, got 0"),
        ("depths = [2, 4]", "depths = []", "plan.depths: an empty list; expected some whole numbers, or no such key"),
        ("depths = [2, 4]", "depths = [4, 2, 4]", "plan.depths: 4 is there twice; expected it once"),
        ("flops = 300e12", "flops = 312", "cluster.flops: expected a number such as 989e12, from 1e+09 to 1e+18, got 312"),
        (
            "flops = 300e12",
            "flops = 1e-200",
            "cluster.flops: expected a number such as 989e12, from 1e+09 to 1e+18, got 1e-200",
        ),
        ("reached = 0.5", "reached = 1e-9", "cluster.reached: expected a number such as 0.5, from 0.001 to 1, got 1e-9"),
        ("memory_gb = 40", "memory_gb = 80e9", "cluster.memory_gb: expected a number such as 80, from 0.1 to 10000, got 80e9"),
        ("memory_gb = 40", "memory_gb = 4", "cluster.reserve_gb: expected less than the 4 GB of memory_gb, got 4"),
        (
            "inside_gb = ",
            "inside_gb = 300e9 #",
            "cluster.inside_gb: expected a number such as 450, from 0.001 to 100000, got 300e9",
        ),
        (
            "between_gb = ",
            "between_gb = 1e-9 #",
            "cluster.between_gb: expected a number such as 50, from 0.001 to 100000, got 1e-9",
        ),
        ("depths = [2, 4]", "schedules = 3", "plan.schedules: expected a list of text, got 3"),
        ("flops = 300e12", "flops = true", "cluster.flops: expected a number such as 989e12, from 1e+09 to 1e+18, got True"),
        ("zero = 1", "overlap_all_to_all = 1", "parallelism.overlap_all_to_all: expected true or false, got 1"),
        (
            "[plan]",
            '[chunk]\ncosts = "F=1"\nunit = "ms"\nlayers = 1\nrecompute = "full"\n[plan]',
            "chunk.recompute: measured with full, but parallelism.recompute is selective; expected the same",
        ),
        ("depths = [2, 4]", "depths = 2", "plan.depths: expected a list of whole numbers, got 2"),
        ("depths = [2, 4]", 'schedules = ["zb9"]', "plan.schedules: expected some of gpipe, 1f1b, interleaved, zb1p, zbv"),
        ("[plan]", "[planned]", "planned: unknown key; did you mean plan?"),
        ("[batch]", "[[batch]]", "batch: expected a table [batch]"),
        ("[plan]", '[chunk]\ncosts = "F=fast"\nunit = "ms"\nlayers = 1\n[plan]', "chunk.costs: costs.F: expected a number"),
        (
            "[plan]",
            '[chunk]\ncosts = "F=[1,2]"\nunit = "ms"\nlayers = 1\n[plan]',
            "chunk.costs: F: expected one number, of one chunk",
        ),
        ("[plan]", '[chunk]\ncosts = "none.toml"\nunit = "ms"\nlayers = 1\n[plan]', "cannot be read: no such file"),
        ("[plan]", '[chunk]\ncosts = "F=1"\nunit = "h"\nlayers = 1\n[plan]', "chunk.unit: expected one of us, ms, s, got h"),
        ("[cluster]", "[cluster", "not TOML"),
    ],
)
def test_what_is_wrong_in_a_spec_is_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    result = CliRunner().invoke(main, ["plan", str(changed(SMALL, tmp_path, (old, new)))])
    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert said in result.output
    assert str(tmp_path / SMALL.name) in result.output


@pytest.mark.parametrize("table", ["cluster", "model", "batch"])
def test_a_table_that_has_to_be_there(tmp_path: Path, table: str) -> None:
    path = changed(SMALL, tmp_path, (f"[{table}]", f"[{table}s]"))
    with pytest.raises(ScheduleError):
        read_plan_spec(path)


def test_depths_are_found_where_none_are_given(tmp_path: Path) -> None:
    assert read_plan_spec(changed(SMALL, tmp_path, ("depths = [2, 4]", ""))).depths == (1, 2, 4, 8, 16)


def test_expert_parallelism_needs_its_ranks() -> None:
    spec: PlanSpec = dataclasses.replace(read_plan_spec(SMALL), depths=(8,), schedules=("dualpipe",))
    assert make_plan(spec).out[0].broken[0].text == "ranks: 2 data-parallel ranks are no multiple of 4-way expert parallelism"


def test_two_directions_need_an_even_depth(tmp_path: Path) -> None:
    path = changed(SMALL, tmp_path, ("ranks = 16", "ranks = 24"), ("ep = 4", "ep = 8"), ("[2, 4]", "[3]"))
    plan = make_plan(read_plan_spec(path))
    assert named(plan, "dualpipe P=3").broken[0].term == "ranks"
    assert not named(plan, "dualpipev P=3").broken


# ---------------------------------------- what is measured, and what cannot be


CHUNK = '[chunk]\ncosts = "{}"\n{}layers = 1\n[plan]'


@pytest.mark.parametrize(("name", "unit"), [("ms", 1000), ("us", 1), ("s", 1_000_000)])
def test_the_unit_of_a_file_of_costs_counts(tmp_path: Path, name: str, unit: int) -> None:
    (tmp_path / "costs.toml").write_text(f'[costs]\nunit = "{name}"\nF = 90\nI = 90\nW = 90\nB = 180\nFB = 250\n')
    for said in ("", f'unit = "{name}"\n'):
        spec = read_plan_spec(changed(SMALL, tmp_path, ("[plan]", CHUNK.format("costs.toml", said))))
        assert single(spec, Span(measured=1), "F") == 90 * unit
    other = "us" if name == "ms" else "ms"
    with pytest.raises(ScheduleError, match=rf"chunk\.unit: {other}, but costs\.toml is in {name}; expected the same"):
        read_plan_spec(changed(SMALL, tmp_path, ("[plan]", CHUNK.format("costs.toml", f'unit = "{other}"\n'))))


def test_a_unit_that_is_none_of_time_is_refused(tmp_path: Path) -> None:
    (tmp_path / "costs.toml").write_text('[costs]\nunit = "furlongs"\nF = 90\n')
    with pytest.raises(ScheduleError, match=r'costs\.toml is in "furlongs"; expected a unit of time, one of us, ms, s'):
        read_plan_spec(changed(SMALL, tmp_path, ("[plan]", CHUNK.format("costs.toml", 'unit = "ms"\n'))))


def test_a_window_in_microseconds_is_no_plan_in_milliseconds(tmp_path: Path) -> None:
    """What ``window -o`` writes carries its unit, so that it cannot be taken for another."""
    chunk = tmp_path / "chunk.toml"
    chunk.write_text((ROOT / "specs/chunk-deepseek-v3.toml").read_text().replace('unit = "ms"', 'unit = "us"'))
    result = CliRunner().invoke(main, ["window", str(chunk), "-o", str(tmp_path / "costs.toml")])
    assert result.exit_code == 0, result.output
    text = 'costs = "F=97.32,I=111.64,W=35.08,B=114.03,FB=130.93"'
    path = changed(V3, tmp_path, (text, 'costs = "costs.toml"'))
    result = CliRunner().invoke(main, ["plan", str(path)])
    assert (result.exit_code, result.output) == (
        2,
        f"{path}: chunk.unit: ms, but costs.toml is in us; expected the same, or no chunk.unit\n",
    )
    path = changed(V3, tmp_path, (text, 'costs = "costs.toml"'), ('unit = "ms"\n', ""))
    result = CliRunner().invoke(main, ["plan", str(path)])
    assert result.exit_code == 2
    assert "chunk.costs: F takes 97.32 us, where 100 % of cluster.flops would take 2" in result.output


@pytest.mark.parametrize(
    ("costs", "block"),
    [
        ("F=0,I=0,W=0,FB=0", "F takes 0 us"),
        ("F=0,I=90,W=90,FB=270", "F takes 0 us"),
        ("F=90,B=0,FB=90", "B takes 0 us"),
        ("F=90,B=180,I=1/100,W=1/100,FB=250", "I and W takes 20 us"),
        ("F=90,I=90,W=90,FB=1/10", "FB takes 100 us"),
    ],
)
def test_durations_above_the_peak_are_refused(tmp_path: Path, costs: str, block: str) -> None:
    path = changed(SMALL, tmp_path, ("[plan]", CHUNK.format(costs, 'unit = "ms"\n')))
    result = CliRunner().invoke(main, ["plan", str(path)])
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert f"{path}: chunk.costs: {block}, where 100 % of cluster.flops would take" in result.output


def test_what_is_at_the_peak_is_allowed(tmp_path: Path) -> None:
    """The least times are those of the FLOPs, by hand: a layer of the model with all its FLOPs at the peak."""
    spec = read_plan_spec(SMALL)
    layer = layers_of(spec)[-2]
    flops = (layer.linear + layer.attention, layer.linear + 2.5 * layer.attention, layer.linear)
    times = [value * 4096 / 300e12 * 1e6 for value in flops]
    for factor, good in ((1.001, True), (0.999, False)):
        forward, inputs, weights = (round(time * factor, 6) for time in times)
        costs = f"F={forward},I={inputs},W={weights}"
        read = read_plan_spec(changed(SMALL, tmp_path, ("[plan]", CHUNK.format(costs, 'unit = "us"\n'))))
        if good:
            assert make_plan(read).utilisation(make_plan(read).fitting[0]) < 1
        else:
            with pytest.raises(ScheduleError, match="100 % of cluster"):
                make_plan(read)


def test_a_pair_shorter_than_its_longer_half_is_said(tmp_path: Path) -> None:
    path = changed(SMALL, tmp_path, ("[plan]", CHUNK.format("F=90,I=90,W=90,FB=170", 'unit = "ms"\n')))
    result = CliRunner().invoke(main, ["plan", str(path)], env={"COLUMNS": "200"})
    assert "note: the measured pair, FB = 170, is shorter than the longer of its halves, F = 90, B = 180" in result.output
    assert read_plan_spec(changed(SMALL, tmp_path, ("[plan]", CHUNK.format("F=90,I=90,W=90", 'unit = "ms"\n')))).notes == ()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_traffic_of_zero_that_is_not_counted_is_said(tmp_path: Path, stage: int) -> None:
    path = changed(SMALL, tmp_path, ("zero = 1", f"zero = {stage}"))
    report = tmp_path / "plan.md"
    result = CliRunner().invoke(main, ["plan", str(path), "-o", str(report)], env={"COLUMNS": "200"})
    for text in (result.output, report.read_text()):
        assert (f"ZeRO-{stage}: gradients are sent" in text) == (stage >= 2)
    assert len(json.loads(CliRunner().invoke(main, ["plan", str(path), "--json"]).output)["notes"]) == (stage >= 2)


def test_full_recompute_sends_again_what_the_forward_sent() -> None:
    """Only a layer's input is there: its all-to-alls and the all-reduces of tensor parallelism run again in the backward."""
    small = read_plan_spec(SMALL)
    for spec in (small, dataclasses.replace(small, tp=2), dataclasses.replace(read_plan_spec(DENSE), tp=8)):
        none, full = (dataclasses.replace(spec, recompute=recompute) for recompute in ("none", "full"))
        for index in (1, -2):
            kept, again = span_of(none, layers_of(none)[index]), span_of(full, layers_of(full)[index])
            assert again.forward == kept.forward
            assert again.sent == kept.sent == kept.sent_back == again.sent_back / 2
            assert again.inputs == pytest.approx(kept.inputs + kept.forward)
            assert single(full, again, "I") == pytest.approx(single(none, kept, "I") + single(none, kept, "F"))
    assert any("with full recompute both once more to I" in formula for formula in FORMULAS)


def test_activations_of_a_layer_with_experts_are_those_of_the_formula() -> None:
    """Term by term as the report says it, with pencil and paper: recompute = selective, 2 bytes everywhere."""
    spec = read_plan_spec(SMALL)
    model, experts = spec.model, spec.model.experts
    assert experts is not None
    read = model.heads * model.attention.head * 2 + 2 * model.attention.kv_heads * model.attention.head
    halves = 2 * experts.intermediate
    by_hand = 2 * 2 * model.hidden + 2 * read + 4 * model.heads
    by_hand += 2 * (experts.active * (model.hidden + halves) + experts.shared * halves) + 4 * experts.routed
    assert layers_of(spec)[-2].kept == by_hand
    assert any("a score per routed expert (4 bytes)" in formula for formula in FORMULAS)


# ---------------------------------------- no pipeline, and what does not fit


def test_no_pipeline_is_a_row_to_compare_with(tmp_path: Path) -> None:
    spec = read_plan_spec(SMALL)
    plan = make_plan(dataclasses.replace(spec, depths=(1, 2), schedules=("1f1b", "zbv")))
    assert [choice.name for choice in plan.out if choice.depth == 1] == ["no pipeline"]
    model = dataclasses.replace(spec.model, layers=4, hidden=1024, experts=None, intermediate=4096)
    tiny = dataclasses.replace(spec, model=model, ep=1, depths=(1, 2))
    plan = make_plan(tiny)
    (alone,) = (choice for choice in plan.fitting if choice.depth == 1)
    assert (alone.family, alone.dp, alone.microbatches, alone.copies) == ("none", 16, 8, 1)
    assert alone.run is not None
    assert alone.run.bubble == 0
    assert alone.costs is not None
    (forward,), (backward,) = (alone.costs.prices[kind] for kind in ("F", "B"))  # type: ignore[misc]
    assert alone.run.seconds == 8 * float(forward + backward) / 1e6  # type: ignore[operator]
    assert alone.memory is not None
    assert alone.memory.weights == 2 * parameters(tiny)[0]
    path = changed(SMALL, tmp_path, ("depths = [2, 4]", "depths = [1]"), ("memory_gb = 40", "memory_gb = 400"))
    report = tmp_path / "plan.md"
    result = CliRunner().invoke(
        main, ["plan", str(path), "--synthesize", "--budget", "1", "-o", str(report)], env={"COLUMNS": "120"}
    )
    assert result.exit_code == 0, result.output
    assert "recommended: no pipeline" in result.output
    assert "second weight copy" not in result.output
    assert "**no pipeline** with 8 micro-batches in each of 16 pipelines" in report.read_text()
    assert json.loads(CliRunner().invoke(main, ["plan", str(path), "--json"]).output)["second_copy"] == []


def test_a_batch_is_named_only_where_it_would_fit(v3: Plan) -> None:
    for batch in (3072, 15361):
        spec = v3.spec.with_batch(batch)
        plan = make_plan(dataclasses.replace(spec, depths=(8, 16)))
        few = [choice for choice in plan.out if choice.broken[0].term == "micro-batches"]
        assert {len(choice.broken) for choice in few} == {1, 2}
        for choice in few:
            first, *others = choice.broken
            assert ("fits from" in first.short) == ("it fits from" in first.text) == (not others)
            found = make_plan(dataclasses.replace(spec.with_batch(choice.least_batch), depths=(choice.depth,)))
            assert (choice.name in [other.name for other in found.fitting]) == (not others)
            assert f"a batch of {choice.least_batch} (M = {choice.microbatches})" in first.text
            if others:
                assert first.text.endswith("it breaks memory, too")


def test_a_share_of_a_micro_batch_is_a_fraction(v3: Plan) -> None:
    plan = make_plan(dataclasses.replace(v3.spec.with_batch(7), depths=(16,), schedules=("1f1b",)))
    assert plan.out[0].broken[0].short == "M = 7/128, fits from a batch of 128 (M = 1)"


def test_small_steps_have_their_digits(tmp_path: Path) -> None:
    spec = read_plan_spec(SMALL)
    model = dataclasses.replace(spec.model, layers=4, hidden=256, vocabulary=1000, sequence=128, experts=None, intermediate=512)
    plan = make_plan(dataclasses.replace(spec, model=model, ep=1, depths=(1, 2), batch=32))
    for choice in plan.fitting:
        assert float(ranking_row(plan, choice)[3]) == pytest.approx(choice.step, rel=0.01)
    assert "about 0.00 s" not in markdown(plan)
    assert " 0.0 | " not in markdown(plan).partition("## Costs per stage")[2].partition("keeps GB")[2].partition("##")[0]


def test_a_name_is_one_line(tmp_path: Path) -> None:
    path = changed(SMALL, tmp_path, ('name = "16 accelerators on 2 nodes"', 'name = """two\nlines"""'))
    result = CliRunner().invoke(main, ["plan", str(path)], env={"COLUMNS": "120"})
    assert "two\\nlines" in result.output.splitlines()[0]


def test_nothing_is_written_over_what_was_read(tmp_path: Path) -> None:
    costs = tmp_path / "costs.toml"
    costs.write_text('[costs]\nunit = "ms"\nF = 90\nI = 90\nW = 90\n')
    path = changed(SMALL, tmp_path, ("[plan]", CHUNK.format("costs.toml", "")))
    for words in (["-o", str(path)], ["-o", str(costs)], ["--synthesize", "--schedule", str(path)]):
        before = path.read_text(), costs.read_text()
        result = CliRunner().invoke(main, ["plan", str(path), *words])
        assert (result.exit_code, result.output) == (
            2,
            f"{words[-1]}: is what this command reads; expected another file to write\n",
        )
        assert (path.read_text(), costs.read_text()) == before
    both = ["-o", str(tmp_path / "x"), "--synthesize", "--schedule", str(tmp_path / "x")]
    assert CliRunner().invoke(main, ["plan", str(path), *both]).exit_code == 2


@pytest.mark.parametrize("budget", ["-1", "nan", "inf"])
def test_a_budget_is_a_time(budget: str) -> None:
    result = CliRunner().invoke(main, ["plan", str(SMALL), "--synthesize", "--budget", budget])
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert "--budget" in result.output


def test_a_part_of_a_node_is_explained(tmp_path: Path) -> None:
    path = changed(SMALL, tmp_path, ("per_node = 8", "per_node = 32"))
    result = CliRunner().invoke(main, ["plan", str(path)], env={"COLUMNS": "200"})
    assert "note: all 16 ranks are in one node of 32, so that nothing goes between nodes" in result.output


# ---------------------------------------- reports and the command


def test_report_says_everything(v3: Plan) -> None:
    text = markdown(v3)
    for heading in ("Recommendation", "Ranking", "What does not fit", "Memory of the fullest rank", "Costs per stage"):
        assert f"## {heading}" in text
    assert "| dualpipe | 16 | 120 |" in text
    assert "estimates" in text
    assert all(formula in text for formula in FORMULAS)
    assert "14.8 trillion tokens: about 2.5" in text
    # Every row of a table has as many cells as its head.
    for before, row in pairwise(text.splitlines()):
        assert not (before.startswith("|") and row.startswith("|")) or before.count("|") == row.count("|")


def test_fillings_show_the_bubble_shrink(v3: Plan) -> None:
    shares = [filling.run.bubble for filling in fillings(v3, v3.fitting[0])]
    assert shares == sorted(shares, reverse=True)
    assert [filling.batch for filling in fillings(v3, v3.fitting[0])] == [4096, 8192, 15360, 30720]


def test_json(v3: Plan) -> None:
    written = json.loads(json.dumps(plan_json(v3)))
    assert written["recommended"] == v3.fitting[0].name
    assert written["durations"] == "measured"
    assert len(written["choices"]) + len(written["does_not_fit"]) == 4 * len(SCHEDULES)
    for choice in written["choices"]:
        assert choice["memory"]["total"] <= 80e9
        assert len(choice["costs"]["F"]) == len(choice["layers"])
        # The costs of the JSON give the numbers of the JSON.
        if (choice["schedule"], choice["ranks"]) == ("dualpipe", 16):
            schedule = build("dualpipe", 16, choice["microbatches"])
            timeline = simulate(schedule, CostModel.of(**choice["costs"])).timeline
            assert timeline is not None
            assert float(timeline.makespan) / 1e6 == pytest.approx(choice["pipeline_seconds"])
            assert float(timeline.bubble_ratio) == pytest.approx(choice["bubble_ratio"], abs=1e-6)


def test_command(tmp_path: Path) -> None:
    report = tmp_path / "plan.md"
    result = CliRunner().invoke(main, ["plan", str(SMALL), "-o", str(report), "--top", "2"], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    assert "recommended: " in result.output
    assert "more that fit (--top)" in result.output
    assert report.read_text().startswith("# Pipeline plan: small MoE")
    written = json.loads(CliRunner().invoke(main, ["plan", str(SMALL), "--batch", "256", "--json"]).output)
    assert written["tokens_per_step"] == 256 * 4096


def test_command_where_nothing_fits(tmp_path: Path) -> None:
    path = changed(SMALL, tmp_path, ("memory_gb = 40", "memory_gb = 5"))
    report = tmp_path / "plan.md"
    result = CliRunner().invoke(main, ["plan", str(path), "--synthesize", "-o", str(report)])
    assert result.exit_code == 1
    assert "what does not fit (5 GB)" in result.output
    assert "Nothing fits" in report.read_text()
    written = json.loads(CliRunner().invoke(main, ["plan", str(path), "--json"]).output)
    assert written["recommended"] is None
    with pytest.raises(ScheduleError, match="nothing fits"):
        improve(make_plan(read_plan_spec(path)))


def test_schedule_goes_with_synthesize() -> None:
    result = CliRunner().invoke(main, ["plan", str(SMALL), "--schedule", "x.json"])
    assert result.exit_code == 2
    assert "--schedule goes with --synthesize" in result.output


def test_synthesis_replaces_the_schedule(tmp_path: Path) -> None:
    path = changed(SMALL, tmp_path, ("sequences = 128", "sequences = 32"), ("depths = [2, 4]", "depths = [4]"))
    written = tmp_path / "schedule.json"
    result = CliRunner().invoke(
        main, ["plan", str(path), "--synthesize", "--budget", "3", "--schedule", str(written), "--json"]
    )
    assert result.exit_code == 0, result.output
    said = json.loads(result.output)["synthesis"]
    plan = make_plan(read_plan_spec(path))
    best = plan.fitting[0]
    assert best.run is not None
    assert best.memory is not None
    assert said["family_seconds"] == pytest.approx(best.run.seconds)
    assert said["seconds"] < said["family_seconds"]
    # What was written is legal, as long as was said, and within what memory is left for activations.
    source = load(written)
    left = 40e9 - (best.memory.total - best.memory.activations)
    costs = dataclasses.replace(source.costs or CostModel.of(), activation=best.costs.activation if best.costs else Fraction(1))
    judged = verify(source.schedule, costs, Limits(Fraction(int(left / 1e3))), solver="replay")
    assert judged.status == "proved"
    assert judged.simulation.timeline is not None
    assert float(judged.simulation.timeline.makespan) / 1e6 == pytest.approx(said["seconds"])


def test_synthesis_of_a_long_schedule_searches_a_short_one(small: Plan) -> None:
    best = small.fitting[0]
    assert best.costs is not None
    microbatches = 512
    run = replay(orders_of(best.family, best.depth, microbatches), microbatches, best.costs)
    plan = Plan(small.spec, (dataclasses.replace(best, microbatches=microbatches, run=run),), ())
    found = improve(plan, budget=2.0)
    assert found.microbatches == RULES[best.family].nearest(best.depth, 2 * best.depth)
    assert found.seconds is not None
    assert found.seconds <= found.family_seconds
    assert f"M = {found.microbatches}" in found.sentence()
    if found.continued is None:
        assert "keep the family's order there" in found.sentence()
        return
    # Nothing is said of a longer schedule that it would not do.
    judged = verify(found.continued, best.costs, solver="replay")
    assert judged.status == "proved"
    assert found.continued.problem.total_microbatches == microbatches
    assert judged.simulation.timeline is not None
    assert float(judged.simulation.timeline.makespan) / 1e6 == found.continued_seconds
    assert found.helps == (float(judged.simulation.timeline.makespan) / 1e6 < run.seconds)


def test_costs_of_stages_are_whole_microseconds(v3: Plan) -> None:
    costs = costs_of(v3.spec, [layers_of(v3.spec)[4:8], layers_of(v3.spec)[8:11]])
    assert costs.ticks_per_unit == 1
    assert costs.hop == round(4096 * 7168 * 2 / 50e9 * 1e6)
