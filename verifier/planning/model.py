"""
What the parts of a model hold, compute, keep and send: parameters, FLOPs, bytes of activations, bytes of all-to-all.

All formulas are for one rank's micro-batch before tensor parallelism divides them. A product of matrices takes two FLOPs per
parameter and token forwards, the same again for the gradient of its input and for that of its weights. Causal attention
takes sequence x heads x (size of a key + size of a value) FLOPs per token forwards; its backward repeats the product of
queries and keys, so that it takes 2.5 times as much (arXiv:2307.08691, section 3.1.2), none of it for weights.

Activations are counted per tensor that the backward reads, after arXiv:2205.05198 with two differences: attention keeps its
output and a sum per row instead of its scores, and MLPs are gated. ``selective`` recomputes normalisations, the activation
function and the up-projections of latent attention, as arXiv:2412.19437, section 3.2.3 does; ``full`` keeps the input of a
layer only and runs its forward again.
"""

from __future__ import annotations

from dataclasses import dataclass

from verifier.planning.spec import Attention, Model, PlanSpec

WIDE = 2
"""Bytes of an element that is not kept narrower: of the residual stream, of what attention reads and gives."""
SCORE = 4
"""Bytes of a logit, of a router's score, of the sum that attention keeps per row and head."""
BACKWARD = 2.5
"""FLOPs of attention's backward per FLOP of its forward."""


@dataclass(frozen=True)
class Layer:
    """
    A part of the model that is never cut: a layer, the embedding or the output.

    Attributes
    ----------
    kind
        ``dense``, ``moe``, ``embedding`` or ``output``.
    shared, expert
        Parameters that every rank of its stage holds, and those of all its routed experts.
    active
        Parameters that a token is multiplied with.
    linear, attention, repeated
        FLOPs forwards per token: of matrix products, of attention's core, and of what ``recompute`` runs again.
    kept
        Bytes that it keeps per token from forward to backward.
    dispatched, combined
        Bytes per token of the two all-to-alls.
    """

    kind: str
    shared: int
    expert: int = 0
    active: int = 0
    linear: float = 0.0
    attention: float = 0.0
    repeated: float = 0.0
    kept: float = 0.0
    dispatched: float = 0.0
    combined: float = 0.0


def layers_of(spec: PlanSpec) -> tuple[Layer, ...]:
    """
    The embedding, every layer, and the output, in this order.

    Examples
    --------
    >>> from verifier.planning.spec import read_plan_spec
    >>> layers = layers_of(read_plan_spec("specs/cluster-deepseek-v3.toml"))
    >>> [layer.kind for layer in layers[:5]], layers[-1].kind
    (['embedding', 'dense', 'dense', 'dense', 'moe'], 'output')
    >>> round(sum(layer.shared + layer.expert for layer in layers) / 1e9)
    671
    """
    model = spec.model
    dense = _layer(spec, moe=False)
    moe = _layer(spec, moe=True) if model.experts else dense
    first = model.experts.dense_layers if model.experts else model.layers
    # An output that shares the embedding's matrix lives on another rank than it, and so holds a copy of its own all the same.
    output = Layer(
        "output",
        model.vocabulary * model.hidden + model.hidden,
        active=model.vocabulary * model.hidden,
        linear=2 * model.vocabulary * model.hidden,
        kept=WIDE * model.hidden + SCORE * model.vocabulary,
    )
    return (
        Layer("embedding", model.vocabulary * model.hidden),
        *(dense if index < first else moe for index in range(model.layers)),
        output,
    )


def parameters(spec: PlanSpec) -> tuple[int, int]:
    """
    Parameters of the model, and how many of them are active for a token (the embedding left out).

    >>> from verifier.planning.spec import read_plan_spec
    >>> [round(count / 1e9, 1) for count in parameters(read_plan_spec("specs/cluster-deepseek-v3.toml"))]
    [671.0, 36.6]
    """
    layers = layers_of(spec)
    twice = layers[0].shared if spec.model.tied else 0
    return sum(layer.shared + layer.expert for layer in layers) - twice, sum(layer.active for layer in layers)


def flops_per_token(spec: PlanSpec) -> float:
    """
    FLOPs of a forward and a backward of the whole model, without what is recomputed.

    >>> from verifier.planning.spec import read_plan_spec
    >>> f"{flops_per_token(read_plan_spec('specs/cluster-deepseek-v3.toml')):.3g}"
    '2.5e+11'
    """
    return sum(3 * (layer.linear + layer.attention) for layer in layers_of(spec))


def attention_parameters(model: Model) -> int:
    """Of one layer, its normalisations included."""
    a, hidden, heads = model.attention, model.hidden, model.heads
    norms = _norm_parameters(model)
    if a.kind == "gqa":
        return norms + hidden * a.head * 2 * (heads + a.kv_heads)
    down = hidden * (a.q_rank + a.kv_rank + a.rope)
    return norms + down + _up_projections(a, heads) + heads * a.value * hidden


def _norm_parameters(model: Model) -> int:
    """Of one layer: before attention and before the MLP, and of latent attention's compressed vectors."""
    return 2 * model.hidden + model.attention.q_rank + model.attention.kv_rank


def _up_projections(a: Attention, heads: int) -> int:
    """What latent attention multiplies its compressed vectors with."""
    return a.q_rank * heads * (a.head + a.rope) + a.kv_rank * heads * (a.head + a.value) if a.kind == "mla" else 0


def _layer(spec: PlanSpec, *, moe: bool) -> Layer:
    model, experts = spec.model, spec.model.experts
    a = model.attention
    attention = attention_parameters(model)
    core = model.sequence * model.heads * (a.head + a.rope + a.value)
    if moe:
        assert experts is not None, "asked where there are experts"
        one = 3 * model.hidden * experts.intermediate
        router = model.hidden * experts.routed
        shared, expert = attention + router + experts.shared * one, experts.routed * one
        active = shared + experts.active * one
        sent = model.hidden * _copies_sent(spec)
    else:
        shared, expert = attention + 3 * model.hidden * model.intermediate, 0
        active, sent = shared, 0.0
    # A normalisation multiplies a token with its weights one by one; that is no product of matrices.
    linear = 2.0 * (active - _norm_parameters(model))
    repeated = {"none": 0.0, "selective": 2.0 * _up_projections(a, model.heads), "full": linear + core}[spec.recompute]
    return Layer(
        "moe" if moe else "dense",
        shared,
        expert,
        active,
        linear,
        core,
        repeated,
        kept_per_token(spec, moe=moe),
        sent * spec.precision.dispatch,
        sent * spec.precision.combine,
    )


def _copies_sent(spec: PlanSpec) -> float:
    """
    How many copies of a token leave a rank on its slowest network: one per expert inside a node, else one per other node.

    A node passes a token on to its experts; a routing that is limited to some nodes sends to at most so many.
    """
    experts, cluster = spec.model.experts, spec.cluster
    assert experts is not None, "asked where there are experts"
    group = spec.ep * spec.tp
    if spec.ep == 1:
        return 0.0
    if group <= cluster.per_node:
        return experts.active * (spec.ep - 1) / spec.ep
    nodes = -(-group // cluster.per_node)
    return min(experts.nodes or nodes, experts.active, nodes) * (nodes - 1) / nodes


def kept_per_token(spec: PlanSpec, *, moe: bool) -> float:
    """
    Bytes that a layer keeps per token between its forward and its backward.

    Experts are taken to be visited evenly; what they read is kept where they live.

    >>> from verifier.planning.spec import read_plan_spec
    >>> kept_per_token(read_plan_spec("specs/cluster-deepseek-v3.toml"), moe=True)
    161408.0
    """
    model, narrow = spec.model, spec.precision.activations
    if spec.recompute == "full":
        return WIDE * model.hidden
    everything = spec.recompute == "none"
    mlp = _kept_by_experts(spec, everything) if moe else narrow * model.intermediate * (3 if everything else 2)
    norms = 2 * narrow * model.hidden if everything else 0
    return 2 * WIDE * model.hidden + norms + _kept_by_attention(model, everything) + mlp


def _kept_by_attention(model: Model, everything: bool) -> float:
    """Queries, keys and values (or of latent attention the compressed vectors they are made from), and output with row sums."""
    a, heads = model.attention, model.heads
    if a.kind == "gqa":
        read = heads * a.head + 2 * a.kv_heads * a.head
    else:
        made = heads * (2 * (a.head + a.rope) + a.value) if everything else 0
        read = a.q_rank + a.kv_rank + a.rope + made
    return WIDE * (read + heads * a.value) + SCORE * heads


def _kept_by_experts(spec: PlanSpec, everything: bool) -> float:
    """Router scores; what each visited expert reads, its gate and up halves, and their product unless it is recomputed."""
    experts, narrow = spec.model.experts, spec.precision.activations
    assert experts is not None, "asked where there are experts"
    halves = experts.intermediate * (3 if everything else 2)
    routed = experts.active * (spec.model.hidden + halves)
    return SCORE * experts.routed + narrow * (routed + experts.shared * halves)
