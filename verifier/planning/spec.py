"""
What a plan starts from: cluster, model, batch, other parallelism, and measured durations where there are some.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from verifier.costs import CostModel
from verifier.formats.source import one_line
from verifier.model import ScheduleError
from verifier.planning.tables import Table
from verifier.specs import in_file, known_keys, read_costs_and_unit, read_toml

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb1p", "zbv", "dualpipe", "dualpipev", "chimera")
RECOMPUTE = ("none", "selective", "full")
UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}
"""Microseconds of the units of time that measured costs may have."""

MOST_LAYERS = 1000
"""Of a model; cutting the layers into stages takes their square."""

_TABLES = ("cluster", "model", "batch", "parallelism", "precision", "chunk", "plan", "expect")


@dataclass(frozen=True)
class Cluster:
    """
    The accelerators.

    Attributes
    ----------
    flops, reached
        Peak FLOP/s of one accelerator, and the share of it that its compute kernels reach.
    memory, reserve
        Bytes of one accelerator, and what is not for tensors of the model: buffers, fragmentation, the runtime.
    inside, between
        Bytes per second that one accelerator sends inside a node, and between nodes.
    """

    name: str
    ranks: int
    per_node: int
    flops: float
    reached: float
    memory: float
    reserve: float
    inside: float
    between: float


@dataclass(frozen=True)
class Attention:
    """Multi-head attention with grouped keys and values (``gqa``), or latent (``mla``); sizes per head."""

    kind: str
    head: int
    value: int
    kv_heads: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    rope: int = 0


@dataclass(frozen=True)
class Experts:
    """
    The mixture of experts of every layer after the first ``dense_layers``.

    Attributes
    ----------
    active
        Routed experts that a token visits.
    nodes
        Nodes that a token is sent to at most; 0 where its routing has no such limit.
    """

    routed: int
    shared: int
    active: int
    intermediate: int
    dense_layers: int
    nodes: int


@dataclass(frozen=True)
class Model:
    """A decoder with gated MLPs; ``intermediate`` is the width of those of its dense layers."""

    name: str
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    sequence: int
    intermediate: int
    tied: bool
    attention: Attention
    experts: Experts | None


@dataclass(frozen=True)
class Precision:
    """
    Bytes: of a parameter, of its gradient, of its optimizer state (master weight included), and of an element in what is
    kept of a linear layer's input; and of an element that is dispatched to an expert, and of one that comes back.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float
    dispatch: float
    combine: float


@dataclass(frozen=True)
class Chunk:
    """
    Measured durations of one chunk of the model's repeated layers, for one micro-batch.

    Attributes
    ----------
    costs
        F, I, W, B and FB, in ``unit`` microseconds.
    layers, tokens
        What was measured: so many layers (MoE layers where the model has some), for so many tokens per rank.
    file
        Where the costs were read from; None where the spec has them itself.
    """

    costs: CostModel
    unit: float
    layers: int
    tokens: int
    source: str
    file: str | None = None


@dataclass(frozen=True)
class PlanSpec:
    """
    All that a plan is made from.

    Attributes
    ----------
    batch, microbatch
        Sequences of a step over the whole cluster, and of one micro-batch.
    training_tokens
        Of the whole run; 0 where nobody says.
    ep, tp, zero
        Expert parallelism inside the data-parallel ranks; tensor parallelism with sequence parallelism, innermost; the stage of
        ZeRO.
    depths
        Pipeline depths to consider.
    published, published_source
        Accelerator hours per trillion tokens to compare with; 0 where there are none.
    notes
        What is strange about the spec, or is not counted, for people.
    """

    path: str
    cluster: Cluster
    model: Model
    precision: Precision
    batch: int
    microbatch: int
    training_tokens: float
    ep: int
    tp: int
    zero: int
    recompute: str
    overlap: bool
    chunk: Chunk | None
    schedules: tuple[str, ...]
    depths: tuple[int, ...]
    stages_per_rank: int
    published: float
    published_source: str
    notes: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Of one micro-batch."""
        return self.microbatch * self.model.sequence

    def with_batch(self, batch: int) -> PlanSpec:
        """The same with another batch."""
        return replace(self, batch=batch)


def read_plan_spec(path: str | Path) -> PlanSpec:
    """
    Read what a plan starts from.

    Raises
    ------
    ScheduleError
        If it cannot be read, is no TOML, has an unknown key or a value that does not fit.

    Examples
    --------
    >>> spec = read_plan_spec("specs/cluster-deepseek-v3.toml")
    >>> spec.cluster.ranks, spec.model.experts.routed, spec.ep
    (2048, 256, 64)
    """
    with in_file(path) as shown:
        return _plan_spec(shown, Path(path).parent, read_toml(Path(path)))


def _plan_spec(shown: str, folder: Path, tables: dict[str, object]) -> PlanSpec:
    known_keys(tables, _TABLES, "")
    for name in ("cluster", "model", "batch"):
        if name not in tables:
            raise ScheduleError(f"{name}: missing; expected tables [cluster], [model] and [batch]")
    cluster, model = _cluster(tables["cluster"]), _model(tables["model"])
    batch = Table(tables["batch"], "batch", ("sequences", "microbatch", "training_tokens"))
    other = Table(tables.get("parallelism", {}), "parallelism", ("ep", "tp", "zero", "recompute", "overlap_all_to_all"))
    plan = Table(tables.get("plan", {}), "plan", ("schedules", "depths", "stages_per_rank"))
    expect = Table(tables.get("expect", {}), "expect", ("gpu_hours_per_trillion_tokens", "source"))
    microbatch, recompute = batch.whole("microbatch", 1), other.text("recompute", "none", RECOMPUTE)
    spec = PlanSpec(
        path=shown,
        cluster=cluster,
        model=model,
        precision=_precision(tables.get("precision", {})),
        batch=batch.whole("sequences"),
        microbatch=microbatch,
        training_tokens=batch.amount("training_tokens", 0, zero=True),
        ep=other.whole("ep", 1),
        tp=other.whole("tp", 1),
        zero=other.whole("zero", 1, least=0),
        recompute=recompute,
        overlap=other.flag("overlap_all_to_all", True),
        chunk=_chunk(tables["chunk"], folder, microbatch * model.sequence, recompute) if "chunk" in tables else None,
        schedules=plan.texts("schedules", SCHEDULES),
        depths=plan.wholes("depths"),
        stages_per_rank=plan.whole("stages_per_rank", 2, least=2),
        published=expect.amount("gpu_hours_per_trillion_tokens", 0, zero=True),
        published_source=expect.label("source"),
    )
    _check(spec)
    spec = replace(spec, notes=tuple(_notes(spec)))
    return spec if spec.depths else replace(spec, depths=_depths(spec))


def _check(spec: PlanSpec) -> None:
    """What the tables have to agree on."""
    cluster, experts = spec.cluster, spec.model.experts
    if spec.zero > 3:
        raise ScheduleError(f"parallelism.zero: expected 0, 1, 2 or 3, got {spec.zero}")
    if cluster.ranks % spec.tp or spec.tp > cluster.per_node:
        raise ScheduleError(
            f"parallelism.tp: expected a divisor of {cluster.ranks} ranks within a node of {cluster.per_node}, got {spec.tp}"
        )
    if experts is None and spec.ep > 1:
        raise ScheduleError("parallelism.ep: the model has no experts; expected 1")
    if experts and experts.routed % spec.ep:
        raise ScheduleError(f"parallelism.ep: expected a divisor of {experts.routed} routed experts, got {spec.ep}")
    for depth in spec.depths:
        if cluster.ranks % (depth * spec.tp):
            raise ScheduleError(
                f"plan.depths: {depth} stages times {spec.tp}-way tensor parallelism do not divide {cluster.ranks} ranks"
            )


def _depths(spec: PlanSpec) -> tuple[int, ...]:
    """Powers of two that the ranks are a multiple of, from no pipeline at all up to a stage per layer."""
    groups = spec.cluster.ranks // spec.tp
    depths = (1 << power for power in range(20))
    return tuple(depth for depth in depths if groups % depth == 0 and depth <= min(spec.model.layers, 64))


def _notes(spec: PlanSpec) -> Iterator[str]:
    """What a person should know of the numbers."""
    cluster = spec.cluster
    if cluster.per_node > cluster.ranks:
        yield f"all {cluster.ranks} ranks are in one node of {cluster.per_node}, so that nothing goes between nodes"
    if spec.zero >= 2:
        sent = "gradients are sent" if spec.zero == 2 else "gradients are sent and weights gathered"
        yield f"ZeRO-{spec.zero}: {sent} for every micro-batch, but once a step is counted; steps take longer than said"
    if spec.chunk:
        forward, backward, pair = (spec.chunk.costs.as_written()[key] for key in ("F", "B", "FB"))
        if Fraction(str(pair)) < max(Fraction(str(forward)), Fraction(str(backward))):
            halves = f"F = {forward}, B = {backward}"
            yield f"the measured pair, FB = {pair}, is shorter than the longer of its halves, {halves}; check chunk.costs"


def _cluster(written: object) -> Cluster:
    sizes = ("name", "ranks", "per_node", "flops", "reached")
    table = Table(written, "cluster", (*sizes, "memory_gb", "reserve_gb", "inside_gb", "between_gb"))
    cluster = Cluster(
        name=table.label("name"),
        ranks=table.whole("ranks", least=2),
        per_node=table.whole("per_node"),
        flops=table.amount("flops", least=1e9, most=1e18, example="989e12"),
        reached=table.amount("reached", least=0.001, most=1, example="0.5"),
        memory=table.amount("memory_gb", least=0.1, most=10_000, example="80") * 1e9,
        reserve=table.amount("reserve_gb", 4, zero=True, most=10_000) * 1e9,
        inside=table.amount("inside_gb", least=0.001, most=100_000, example="450") * 1e9,
        between=table.amount("between_gb", least=0.001, most=100_000, example="50") * 1e9,
    )
    if cluster.reserve >= cluster.memory:
        most = f"less than the {cluster.memory / 1e9:g} GB of memory_gb"
        raise ScheduleError(f"cluster.reserve_gb: expected {most}, got {cluster.reserve / 1e9:g}")
    if cluster.ranks > cluster.per_node and cluster.ranks % cluster.per_node:
        raise ScheduleError(f"cluster.ranks: expected a multiple of the {cluster.per_node} of a node, got {cluster.ranks}")
    return cluster


def _model(written: object) -> Model:
    keys = ("name", "layers", "hidden", "heads", "vocabulary", "sequence", "intermediate", "tied", "attention", "experts")
    table = Table(written, "model", keys)
    layers = table.whole("layers")
    if layers > MOST_LAYERS:
        raise ScheduleError(f"model.layers: expected at most {MOST_LAYERS}, got {layers}")
    heads = table.whole("heads")
    experts = _experts(table, layers) if "experts" in table else None
    return Model(
        name=table.label("name"),
        layers=layers,
        hidden=table.whole("hidden"),
        heads=heads,
        vocabulary=table.whole("vocabulary"),
        sequence=table.whole("sequence"),
        intermediate=table.whole("intermediate", None if experts is None or experts.dense_layers else 1),
        tied=table.flag("tied", False),
        attention=_attention(table, heads),
        experts=experts,
    )


def _attention(model: Table, heads: int) -> Attention:
    table = model.table("attention", ("kind", "head", "value", "kv_heads", "q_rank", "kv_rank", "rope"))
    kind = table.text("kind", None, ("gqa", "mla"))
    head = table.whole("head")
    for key in ("kv_heads",) if kind == "mla" else ("value", "q_rank", "kv_rank", "rope"):
        if key in table:
            raise ScheduleError(f"model.attention.{key}: not a size of {kind}; expected nothing here")
    if kind == "gqa":
        kv_heads = table.whole("kv_heads", heads)
        if heads % kv_heads:
            raise ScheduleError(f"model.attention.kv_heads: expected a divisor of {heads} heads, got {kv_heads}")
        return Attention(kind, head, head, kv_heads=kv_heads)
    return Attention(
        kind,
        head,
        table.whole("value"),
        q_rank=table.whole("q_rank"),
        kv_rank=table.whole("kv_rank"),
        rope=table.whole("rope", least=0),
    )


def _experts(model: Table, layers: int) -> Experts:
    table = model.table("experts", ("routed", "shared", "active", "intermediate", "dense_layers", "nodes"))
    experts = Experts(
        routed=table.whole("routed"),
        shared=table.whole("shared", 0, least=0),
        active=table.whole("active"),
        intermediate=table.whole("intermediate"),
        dense_layers=table.whole("dense_layers", 0, least=0),
        nodes=table.whole("nodes", 0, least=0),
    )
    if experts.active > experts.routed:
        raise ScheduleError(f"model.experts.active: expected at most the {experts.routed} routed, got {experts.active}")
    if experts.dense_layers >= layers:
        raise ScheduleError(f"model.experts.dense_layers: expected fewer than {layers} layers, got {experts.dense_layers}")
    return experts


def _precision(written: object) -> Precision:
    table = Table(written, "precision", ("weights", "gradients", "optimizer", "activations", "dispatch", "combine"))
    defaults = {"weights": 2, "gradients": 4, "optimizer": 12, "activations": 2, "dispatch": 2, "combine": 2}
    return Precision(**{key: table.amount(key, default, most=64) for key, default in defaults.items()})


def _chunk(written: object, folder: Path, tokens: int, recompute: str) -> Chunk:
    table = Table(written, "chunk", ("costs", "unit", "layers", "tokens", "recompute", "source"))
    measured = table.text("recompute", recompute, RECOMPUTE)
    if measured != recompute:
        raise ScheduleError(
            f"chunk.recompute: measured with {measured}, but parallelism.recompute is {recompute}; expected the same"
        )
    text = table.text("costs")
    file = str(folder / text) if text.endswith(".toml") else None
    try:
        costs, said = read_costs_and_unit(file or text)
    except ScheduleError as error:
        raise ScheduleError(f"chunk.costs: {error}") from None
    for kind in ("F", "I", "W", "B", "F&B"):
        if isinstance(costs.prices[kind], tuple):
            raise ScheduleError(f"chunk.costs: {kind}: expected one number, of one chunk")
    unit = UNITS[_unit(table, said, text)]
    return Chunk(costs, unit, table.whole("layers"), table.whole("tokens", tokens), table.label("source"), file)


def _unit(table: Table, said: str, file: str) -> str:
    """The unit of the costs: what the file says of itself, or else the spec; they must not differ."""
    if said and said not in UNITS:
        expected = ", ".join(UNITS)
        raise ScheduleError(
            f'chunk.costs: {one_line(file, 100)} is in "{one_line(said, 40)}"; expected a unit of time, one of {expected}'
        )
    unit = table.text("unit", said or None, tuple(UNITS))
    if said and unit != said:
        raise ScheduleError(f"chunk.unit: {unit}, but {one_line(file, 100)} is in {said}; expected the same, or no chunk.unit")
    return unit
