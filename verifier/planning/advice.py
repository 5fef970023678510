"""
What a plan recommends, and why: in sentences, each with the numbers that it rests on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verifier.model import counted
from verifier.planning.durations import Span, pair, single, span_of
from verifier.planning.memory import local_parameters
from verifier.planning.model import layers_of
from verifier.planning.plan import OVERLAPPING, Choice, Plan, Run, orders_of, replay
from verifier.planning.rules import RULES
from verifier.planning.spec import PlanSpec

CLOSE = 0.01
"""Steps that differ by less than this share are not told apart by estimates."""


def figure(value: float, digits: int) -> str:
    """
    A number with so many digits behind the point, or with three significant ones where it is below 1.

    >>> figure(19.208, 2), figure(0.001234, 2), figure(0.21, 2), figure(0, 2)
    ('19.21', '0.00123', '0.210', '0.00')
    """
    return f"{value:.{digits}f}" if value >= 1 or not value else f"{value:#.3g}"


@dataclass(frozen=True)
class SecondCopy:
    """
    What a second copy of the weights adds to the average rank, in bytes.

    Attributes
    ----------
    weights, gradients
        With the routed experts shared out over ``ep`` ranks.
    unsharded
        The weights without expert and tensor parallelism: what a dense model of as many parameters takes.
    """

    depth: int
    weights: float
    gradients: float
    unsharded: float

    @property
    def ratio(self) -> float:
        """How many times as much it would be unsharded."""
        return self.unsharded / self.weights

    def as_json(self) -> dict[str, object]:
        """In bytes."""
        return {
            "depth": self.depth,
            "weights": round(self.weights),
            "gradients": round(self.gradients),
            "unsharded_weights": round(self.unsharded),
            "ratio": round(self.ratio, 3),
        }


def second_copy(spec: PlanSpec, depth: int) -> SecondCopy:
    """
    The price of two directions at a depth: parameters of the model over P, T and, for routed experts, E.

    Examples
    --------
    >>> from verifier.planning.spec import read_plan_spec
    >>> extra = second_copy(read_plan_spec("specs/cluster-deepseek-v3.toml"), 16)
    >>> round(extra.weights / 1e9, 1), round(extra.unsharded / 1e9, 1), round(extra.ratio)
    (3.4, 83.9, 25)
    """
    layers = layers_of(spec)
    shared, expert = (count / depth for count in local_parameters(spec, layers))
    local, precision = shared + expert, spec.precision
    unsharded = sum(layer.shared + layer.expert for layer in layers) / depth
    return SecondCopy(depth, local * precision.weights, local * precision.gradients, unsharded * precision.weights)


def reasons(plan: Plan) -> tuple[str, ...]:
    """
    Why the first choice is recommended; empty where nothing fits.

    Examples
    --------
    >>> from verifier.planning.plan import make_plan
    >>> from verifier.planning.spec import read_plan_spec
    >>> print(reasons(make_plan(read_plan_spec("specs/cluster-small-moe.toml")))[0])
    a pair of 3 layers takes 42.9 ms where F and B one after the other take 45.9 ms: 6.6% of the time hides under compute
    """
    return tuple(_reasons(plan)) if plan.fitting else ()


def _reasons(plan: Plan) -> Iterator[str]:
    best = plan.fitting[0]
    if best.depth == 1:
        yield "all layers fit on one rank, which neither waits for others nor sends activations"
    else:
        yield _pairs(plan.spec, best)
    plain = next((choice for choice in plan.fitting if choice.family not in OVERLAPPING), None)
    if plain and best.family in OVERLAPPING:
        yield f"the fastest without overlapped pairs, {plain.name}, {_slower(plain, best)}"
    other = next((choice for choice in plan.fitting if choice.copies != best.copies), None)
    copies = {1: "one weight copy", 2: "two weight copies"}
    if other:
        assert other.memory is not None, "it fits"
        assert best.memory is not None, "it fits"
        same = (
            "it holds as much"
            if abs(other.memory.total - best.memory.total) < 1e8
            else (f"it holds {other.memory.total / 1e9:.1f} GB where this holds {best.memory.total / 1e9:.1f}")
        )
        yield f"the fastest with {copies[other.copies]}, {other.name}, {_slower(other, best)}; {same}{_halves(other, best)}"
    else:
        yield f"nothing with {copies[3 - best.copies]} fits"
    for choice in plan.out:
        if choice.family == best.family and choice.depth < best.depth:
            yield f"{choice.name}, which is shallower, does not fit: {choice.broken[-1]}"
    close = [choice.name for choice in plan.fitting[1:] if choice.step < best.step * (1 + CLOSE)]
    if close:
        yield f"{', '.join(close)}: within {CLOSE:.0%}, which estimates do not tell apart; choose among them by memory or habit"


def _halves(other: Choice, best: Choice) -> str:
    """DualPipe on twice the ranks is DualPipeV mirrored; ``verifier.families`` builds both from the same loops."""
    depths = {choice.family: choice.depth for choice in (other, best)}
    if depths.get("dualpipe") != 2 * depths.get("dualpipev", 0):
        return ""
    return "; both run the same orders: DualPipe on 2P ranks is DualPipeV on P ranks and its mirror image"


def _slower(other: Choice, best: Choice) -> str:
    share = other.step / best.step - 1
    return "takes as long" if share < 5e-4 else f"takes {share:.1%} longer"


def _pairs(spec: PlanSpec, best: Choice) -> str:
    """What overlapping gains, on a chunk of the average stage's layers of the kind that repeats."""
    layers = layers_of(spec)[1:-1]
    count = max(1, round(len(layers) / len(best.layers)))
    span = sum((span_of(spec, layers[-1]) for _ in range(count)), Span())
    apart, joined = single(spec, span, "F") + single(spec, span, "B"), pair(spec, span, span)
    times = f"{figure(joined / 1e3, 1)} ms where F and B one after the other take {figure(apart / 1e3, 1)} ms"
    if joined < apart * (1 - 1e-3):
        used = "" if best.family in OVERLAPPING else "; yet the bubble and the memory of schedules that make pairs cost more"
        return (
            f"a pair of {counted(count, 'layer')} takes {times}: {1 - joined / apart:.1%} of the time hides under compute{used}"
        )
    return f"a pair of {counted(count, 'layer')} would take {times}: there is nothing to overlap, so the smallest bubble wins"


@dataclass(frozen=True)
class Filling:
    """The bubble of a schedule with so many micro-batches."""

    microbatches: int
    batch: int
    run: Run


def fillings(plan: Plan, choice: Choice) -> tuple[Filling, ...]:
    """
    How the bubble falls with the batch: from the least number of micro-batches on, and at the plan's.

    Examples
    --------
    >>> from verifier.planning.plan import make_plan
    >>> from verifier.planning.spec import read_plan_spec
    >>> plan = make_plan(read_plan_spec("specs/cluster-small-moe.toml"))
    >>> [(filling.microbatches, filling.batch) for filling in fillings(plan, plan.fitting[0])]
    [(8, 32), (16, 64), (32, 128), (64, 256)]
    """
    spec, rule = plan.spec, RULES[choice.family]
    least = rule.nearest(choice.depth, choice.depth)
    counts = {least, 2 * least, choice.microbatches, 2 * choice.microbatches}
    assert choice.costs is not None, "it fits"
    found = []
    for count in sorted(count for count in counts if rule.accepts(choice.depth, count)):
        orders = orders_of(choice.family, choice.depth, count, spec.stages_per_rank)
        found.append(Filling(count, count * choice.dp * spec.microbatch, replay(orders, count, choice.costs)))
    return tuple(found)


def published(plan: Plan) -> str:
    """
    How the estimate compares with what was published, and what it leaves out; empty where nothing is to compare.

    Examples
    --------
    >>> from verifier.planning.plan import make_plan
    >>> from verifier.planning.spec import read_plan_spec
    >>> published(make_plan(read_plan_spec("specs/cluster-small-moe.toml")))
    ''
    """
    spec = plan.spec
    if not (plan.fitting and spec.published):
        return ""
    best = plan.fitting[0]
    hours, part = plan.gpu_hours(best) / 1e3, spec.cluster.ranks * 1e12 / plan.tokens / 3600 / 1e3
    assert best.run is not None, "it fits"
    idle, sync = best.run.seconds * best.run.bubble * part, best.sync * part
    share = hours * 1e3 / spec.published - 1
    return (
        f"{hours:.0f} K accelerator hours per trillion tokens (busy {hours - idle - sync:.0f} K, bubble {idle:.0f} K, "
        f"gradients {sync:.0f} K) are {abs(share):.0%} {'below' if share < 0 else 'above'} the {spec.published / 1e3:.0f} K "
        f"published ({spec.published_source}). {LEFT_OUT}"
    )


LEFT_OUT = (
    "Left out: the optimizer's own time, input, evaluation, checkpoints, failures and restarts, stragglers and waiting for "
    "peers beyond what was measured, uneven experts, multi-token prediction, smaller batches at the beginning. On the other "
    "side, gradients and weights are taken to be sent without overlap."
)
