"""
How long the blocks of each stage take, in whole microseconds: measured where the spec says so, else estimated from FLOP/s.

Estimated, for one micro-batch of t tokens, all divided by tensor parallelism T and by ``flops x reached``:

- F: FLOPs forwards. I: the same for matrix products, 2.5 times attention, and what is recomputed. W: matrix products.
- to F and to I of each layer two all-reduces of t x hidden x 2 bytes, each 2 (T-1)/T of it over ``inside``.
- to F and to I of a layer with experts its two all-to-alls, over ``between`` where experts lie on several nodes.
- where all is recomputed, to I what F sends once more: only the input of a layer is there.
- an overlapped pair takes the longer of its compute and its all-to-all (``overlap_all_to_all``), else F + B. B = I + W.

Measured chunks are scaled in proportion to their layers and tokens; layers of other kinds and the output are estimated and
added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from verifier.costs import CostModel
from verifier.model import ScheduleError
from verifier.planning.model import BACKWARD, WIDE, Layer, layers_of
from verifier.planning.spec import Chunk, PlanSpec


@dataclass(frozen=True)
class Span:
    """
    Durations of some layers for one micro-batch, in microseconds.

    Attributes
    ----------
    forward, inputs, weights
        Compute, and what is exposed of tensor parallelism.
    sent, sent_back
        The all-to-alls of a forward, and of a backward with what it runs again.
    measured
        How many measured layers there are besides.
    """

    forward: float = 0.0
    inputs: float = 0.0
    weights: float = 0.0
    sent: float = 0.0
    sent_back: float = 0.0
    measured: int = 0

    def __add__(self, other: Span) -> Span:
        """Of both."""
        return Span(
            self.forward + other.forward,
            self.inputs + other.inputs,
            self.weights + other.weights,
            self.sent + other.sent,
            self.sent_back + other.sent_back,
            self.measured + other.measured,
        )


def span_of(spec: PlanSpec, layer: Layer) -> Span:
    """
    One layer.

    >>> from verifier.planning.model import layers_of
    >>> from verifier.planning.spec import read_plan_spec
    >>> spec = read_plan_spec("specs/cluster-deepseek-v3.toml")
    >>> [span_of(spec, layers_of(spec)[index]).measured for index in (1, 4)]
    [0, 1]
    """
    repeated = "moe" if spec.model.experts else "dense"
    if spec.chunk and layer.kind == repeated:
        return Span(measured=1)
    cluster, tokens = spec.cluster, spec.tokens
    time = tokens * 1e6 / (cluster.flops * cluster.reached * spec.tp)
    reduced = 0.0
    if layer.kind in ("dense", "moe"):
        reduced = 2 * 2 * (spec.tp - 1) / spec.tp * tokens * spec.model.hidden * WIDE / cluster.inside * 1e6
    sent = (layer.dispatched + layer.combined) * tokens / spec.tp
    again = 2 if spec.recompute == "full" else 1
    group = spec.ep * spec.tp
    bandwidth = cluster.inside if group <= cluster.per_node else cluster.between
    return Span(
        forward=(layer.linear + layer.attention) * time + reduced,
        inputs=(layer.linear + BACKWARD * layer.attention + layer.repeated) * time + again * reduced,
        weights=layer.linear * time,
        sent=sent / bandwidth * 1e6,
        sent_back=again * sent / bandwidth * 1e6,
    )


def single(spec: PlanSpec, span: Span, kind: str) -> float:
    """
    Microseconds of F, I, W or B of some layers, alone on their rank.

    >>> from verifier.planning.spec import read_plan_spec
    >>> round(single(read_plan_spec("specs/cluster-deepseek-v3.toml"), Span(measured=2), "B"))
    57015
    """
    alone = {"F": span.forward + span.sent, "I": span.inputs + span.sent_back, "W": span.weights}
    estimated = alone["I"] + alone["W"] if kind == "B" else alone[kind]
    return estimated + _measured(spec, span, kind)


def pair(spec: PlanSpec, first: Span, second: Span) -> float:
    """
    Microseconds of a forward of the first layers together with a backward of the second.

    >>> from verifier.planning.spec import read_plan_spec
    >>> round(pair(read_plan_spec("specs/cluster-deepseek-v3.toml"), Span(measured=4), Span(measured=4)))
    130930
    """
    apart = single(spec, first, "F") + single(spec, second, "B")
    if not spec.overlap:
        return apart
    compute = first.forward + second.inputs + second.weights
    estimated = max(compute, first.sent + second.sent_back)
    if not spec.chunk:
        return estimated
    one = {kind: _measured(spec, Span(measured=1), kind) for kind in ("F", "B", "F&B")}
    share = one["F&B"] / (one["F"] + one["B"]) if one["F"] + one["B"] else 1.0
    return estimated + share * (first.measured * one["F"] + second.measured * one["B"])


def _measured(spec: PlanSpec, span: Span, kind: str) -> float:
    if spec.chunk is None:
        return 0.0
    return _prices(spec.chunk)[kind] * spec.chunk.unit * span.measured / spec.chunk.layers * spec.tokens / spec.chunk.tokens


def _prices(chunk: Chunk) -> dict[str, float]:
    """Durations of the chunk, in its unit."""
    return {kind: float(price) for kind, price in chunk.costs.prices.items() if isinstance(price, Fraction)}


def check_measured(spec: PlanSpec) -> None:
    """
    Refuse measured durations that would take more FLOP/s than an accelerator has at most: a wrong unit, mostly.

    Raises
    ------
    ScheduleError
        With the first block that is too short.

    Examples
    --------
    >>> from verifier.planning.spec import read_plan_spec
    >>> spec = read_plan_spec("specs/cluster-deepseek-v3.toml")
    >>> check_measured(spec)
    >>> check_measured(replace(spec, chunk=replace(spec.chunk, unit=1.0)))
    Traceback (most recent call last):
    verifier.model.ScheduleError: ...: chunk.costs: F takes 97.32 us, where 100 % of cluster.flops would take 20970 us; ...
    """
    chunk = spec.chunk
    if chunk is None:
        return
    layer = next(layer for layer in reversed(layers_of(spec)) if layer.kind in ("dense", "moe"))
    time = chunk.layers * chunk.tokens * 1e6 / (spec.cluster.flops * spec.tp)
    price = {kind: value * chunk.unit for kind, value in _prices(chunk).items()}
    forward, backward = layer.linear + layer.attention, 2 * layer.linear + BACKWARD * layer.attention
    blocks = {
        "F": (price["F"], forward),
        "B": (price["B"], backward),
        "I and W": (price["I"] + price["W"], backward),
        "FB": (price["F&B"], forward + backward),
    }
    for name, (taken, flops) in blocks.items():
        if taken < flops * time:
            raise ScheduleError(
                f"{spec.path}: chunk.costs: {name} takes {taken:g} us, where 100 % of cluster.flops would take "
                f"{flops * time:.4g} us; check chunk.unit, layers and tokens"
            )


def hop(spec: PlanSpec) -> float:
    """
    Microseconds until an activation has reached the next stage: between nodes, unless there is only one.

    >>> from verifier.planning.spec import read_plan_spec
    >>> round(hop(read_plan_spec("specs/cluster-deepseek-v3.toml")))
    1174
    """
    bandwidth = spec.cluster.between if spec.cluster.ranks > spec.cluster.per_node else spec.cluster.inside
    return spec.tokens * spec.model.hidden * WIDE / spec.tp / bandwidth * 1e6


def costs_of(spec: PlanSpec, stages: Sequence[Sequence[Layer]]) -> CostModel:
    """
    The costs of stages, for replay: microseconds, rounded to whole ones, and activations in whole kilobytes.

    >>> from verifier.planning.model import layers_of
    >>> from verifier.planning.spec import read_plan_spec
    >>> spec = read_plan_spec("specs/cluster-deepseek-v3.toml")
    >>> costs = costs_of(spec, [layers_of(spec)[4:8]])
    >>> [int(costs.prices[kind][0]) for kind in ("F", "B")], costs.activation[0]
    ([97320, 114030], Fraction(2644509, 1))
    """
    spans = [sum((span_of(spec, layer) for layer in stage), Span()) for stage in stages]
    prices: dict[str, object] = {kind: [round(single(spec, span, kind)) for span in spans] for kind in ("F", "I", "W", "B")}
    prices["FB"] = [[round(pair(spec, first, second)) for second in spans] for first in spans]
    kept = [round(kept_bytes(spec, stage) / 1e3) for stage in stages]
    return replace(CostModel.of(**prices, hop=round(hop(spec))), activation=tuple(map(Fraction, kept)))


def kept_bytes(spec: PlanSpec, stage: Sequence[Layer]) -> float:
    """
    Bytes that a stage keeps of one micro-batch.

    >>> from verifier.planning.model import layers_of
    >>> from verifier.planning.spec import read_plan_spec
    >>> spec = read_plan_spec("specs/cluster-deepseek-v3.toml")
    >>> round(kept_bytes(spec, layers_of(spec)[4:8]) / 1e9, 2)
    2.64
    """
    return sum(layer.kept for layer in stage) * spec.tokens / spec.tp
