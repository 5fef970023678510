"""
What a rank holds, term by term.

For the stages of a rank, with s their parameters outside routed experts and e those of their experts, T-way tensor, E-way
expert and D-way data parallelism, and c copies of each stage (two directions: 2):

- local parameters: (s + e/E) / T
- weights and gradients: local parameters times their bytes (ZeRO-3 and ZeRO-2 divide them as the optimizer)
- optimizer: s / (T D c) + e / (T D c) parameters times its bytes under ZeRO-1, else those of the local parameters
- activations: the peak of the real order, each stage weighted by what it keeps; full recompute adds one layer kept in full

The ranks that share an optimizer are all that hold the same stage, those of the other direction included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from verifier.model import Schedule
from verifier.planning.model import Layer, kept_per_token
from verifier.planning.spec import PlanSpec

TERMS = ("weights", "gradients", "optimizer", "activations", "reserve")


@dataclass(frozen=True)
class Memory:
    """
    Bytes on one rank, by term.

    >>> Memory(0, 10e9, 20e9, 5e9, 30e9, 4e9).total
    69000000000.0
    """

    rank: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    reserve: float

    @property
    def total(self) -> float:
        """All terms."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.reserve

    def as_json(self) -> dict[str, object]:
        """In bytes."""
        return {"rank": self.rank, **{term: round(getattr(self, term)) for term in TERMS}, "total": round(self.total)}


def local_parameters(spec: PlanSpec, layers: Sequence[Layer]) -> tuple[float, float]:
    """
    Parameters of some layers that a rank holds: outside routed experts, and of them.

    >>> from verifier.planning.model import layers_of
    >>> from verifier.planning.spec import read_plan_spec
    >>> spec = read_plan_spec("specs/cluster-deepseek-v3.toml")
    >>> [round(count / 1e6) for count in local_parameters(spec, layers_of(spec)[4:8])]
    [932, 705]
    """
    return (
        sum(layer.shared for layer in layers) / spec.tp,
        sum(layer.expert for layer in layers) / (spec.tp * spec.ep),
    )


def memory_of(spec: PlanSpec, stages: Sequence[Sequence[Layer]], schedule: Schedule, peaks: Sequence[float]) -> Memory:
    """
    The rank that needs most.

    Parameters
    ----------
    stages
        The layers of each stage.
    schedule
        Which stages a rank holds; its micro-batches do not matter.
    peaks
        Bytes of activations at the peak of each rank.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.planning.model import layers_of
    >>> from verifier.planning.spec import read_plan_spec
    >>> spec = read_plan_spec("specs/cluster-deepseek-v3.toml")
    >>> layers = layers_of(spec)[4:8]
    >>> memory = memory_of(spec, [layers] * 16, build_family("dualpipe", 16, 32), [17 * 2.64e9] * 16)
    >>> [round(getattr(memory, term) / 1e9, 1) for term in TERMS]
    [6.5, 13.1, 2.9, 44.9, 4.0]
    """
    problem = schedule.problem
    copies = len(problem.placement)
    dp = spec.cluster.ranks // (problem.ranks * spec.tp)
    precision, zero = spec.precision, spec.zero
    full_layer = max(kept_per_token(replace(spec, recompute="none"), moe=moe) for moe in _kinds(spec))
    again = full_layer * spec.tokens / spec.tp if spec.recompute == "full" else 0.0
    memories = []
    for rank in range(problem.ranks):
        held = [layer for _, stage in problem.stages_on(rank) for layer in stages[stage]]
        shared, expert = local_parameters(spec, held)
        sharded = shared / (dp * copies) + expert / (dp * copies / spec.ep)
        local = shared + expert
        memories.append(
            Memory(
                rank,
                (sharded if zero >= 3 else local) * precision.weights,
                (sharded if zero >= 2 else local) * precision.gradients,
                (sharded if zero >= 1 else local) * precision.optimizer,
                peaks[rank] + again,
                spec.cluster.reserve,
            )
        )
    return max(memories, key=lambda memory: memory.total)


def _kinds(spec: PlanSpec) -> tuple[bool, ...]:
    return (True, False) if spec.model.experts and spec.model.experts.dense_layers else (spec.model.experts is not None,)


def peaks_of(schedule: Schedule, kept: Sequence[float]) -> tuple[float, ...]:
    """
    The most that each rank keeps while it runs its order, in the unit of ``kept[stage]``.

    An activation is held from the start of F to the end of W, as in a simulation; it follows from the order alone.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> peaks_of(build_family("1f1b", 4, 8), [1, 1, 1, 1])
    (4.0, 3.0, 2.0, 1.0)
    """
    peaks = []
    for row in schedule.order:
        live = most = 0.0
        for block in row:
            live += sum(kept[op.stage] for op in block.ops if op.kind == "F")
            most = max(most, live)
            live -= sum(kept[op.stage] for op in block.ops if op.kind == "W")
        peaks.append(most)
    return tuple(peaks)


def sync_seconds(spec: PlanSpec, memory_rank: Sequence[Layer], copies: int, depth: int) -> float:
    """
    Seconds to combine gradients over all ranks that hold the same stages, and to hand out weights, none of it overlapped.

    With n such ranks, (n-1)/n of the local gradients are sent, and of the local weights under ZeRO (without it, of the
    gradients once more). An upper estimate: much of it can lie under the last backwards.

    Examples
    --------
    >>> from verifier.planning.model import layers_of
    >>> from verifier.planning.spec import read_plan_spec
    >>> spec = read_plan_spec("specs/cluster-deepseek-v3.toml")
    >>> round(sync_seconds(spec, layers_of(spec)[4:8], 2, 16), 2)
    0.17
    """
    dp = spec.cluster.ranks // (depth * spec.tp)
    bandwidth = spec.cluster.between if spec.cluster.ranks > spec.cluster.per_node else spec.cluster.inside
    each = spec.precision.gradients + (spec.precision.weights if spec.zero else spec.precision.gradients)
    shared, expert = local_parameters(spec, memory_rank)
    holders = (dp * copies, dp * copies / spec.ep)
    sent = sum(count * (n - 1) / n for count, n in zip((shared, expert), holders, strict=True) if n > 1)
    return sent * each / bandwidth
