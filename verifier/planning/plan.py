"""
Every pipeline depth with every schedule: what it needs, whether it fits, and how long a step takes.

The pipeline's part of a step is the makespan of the real order under the estimated or measured durations, replayed. Orders of
more than twice ``FULL`` ops are replayed at three smaller numbers of micro-batches 2P apart, and continued along a straight
line, which is an estimate; where the two differences are not equal, the result says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from verifier.costs import CostModel
from verifier.families import placement
from verifier.model import Schedule, counted
from verifier.planning.clock import makespan_and_busy
from verifier.planning.durations import check_measured, costs_of, kept_bytes, pair, single, span_of
from verifier.planning.memory import TERMS, Memory, memory_of, peaks_of, sync_seconds
from verifier.planning.model import Layer, flops_per_token, layers_of
from verifier.planning.rules import NO_PIPELINE, RULES, build
from verifier.planning.spec import PlanSpec
from verifier.planning.stages import balanced

FULL = 12_000
"""Ops of the largest order that is replayed in the place of a longer one; it takes about a tenth of a second."""
PLACEMENTS = {
    "interleaved": "interleaved",
    "zbv": "v",
    "dualpipev": "v",
    "dualpipe": "bidirectional",
    "chimera": "bidirectional",
}
"""Where a schedule's stages live; the others have one stage on each rank."""
OVERLAPPING = ("dualpipe", "dualpipev")


@dataclass(frozen=True)
class Run:
    """
    How long a pipeline takes for one step.

    Attributes
    ----------
    seconds, bubble
        Makespan, and the share of ranks times makespan that is idle.
    method
        How it was found.
    """

    seconds: float
    bubble: float
    method: str


@dataclass(frozen=True)
class Obstacle:
    """
    Why a choice is out.

    Attributes
    ----------
    term
        What breaks it: a term of the memory, ``micro-batches``, ``layers`` or ``ranks``.
    short, text
        In a few words, and in full.
    """

    term: str
    short: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Choice:
    """
    A schedule at a depth.

    Attributes
    ----------
    family, depth, dp
        The schedule (``none`` where there is no pipeline), P, and how many such pipelines there are.
    microbatches
        M of a step: of the batch, or where the schedule does not take so few, the least that it takes.
    layers
        ``layers[stage]``: the first layer of a stage and the one behind its last; 0 is the embedding.
    costs
        Per stage, in microseconds and kilobytes.
    memory
        Of the rank that needs most.
    broken
        Why it is out; empty where it fits.
    least_batch
        The smallest batch, in sequences, not below the spec's, that the schedule takes.
    run, sync
        The pipeline, and seconds for gradients and weights; None where it is out.
    """

    family: str
    depth: int
    dp: int
    microbatches: int
    layers: tuple[tuple[int, int], ...] = ()
    costs: CostModel | None = field(default=None, repr=False)
    memory: Memory | None = None
    broken: tuple[Obstacle, ...] = ()
    least_batch: int = 0
    run: Run | None = None
    sync: float = 0.0

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.family} P={self.depth}" if self.depth > 1 else "no pipeline"

    @property
    def copies(self) -> int:
        """Weight copies of each stage."""
        return 2 if PLACEMENTS.get(self.family) == "bidirectional" else 1

    @property
    def step(self) -> float:
        """Seconds of a step."""
        assert self.run is not None, "asked of what fits"
        return self.run.seconds + self.sync

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """``placement[direction][stage]``."""
        per_rank = max(1, len(self.layers) // self.depth)
        return placement(PLACEMENTS.get(self.family, "sequential"), self.depth, per_rank)


@dataclass(frozen=True)
class Plan:
    """
    All choices.

    Attributes
    ----------
    fitting
        The best first: by the time of a step, then by memory, then by weight copies.
    out
        What does not fit.
    """

    spec: PlanSpec
    fitting: tuple[Choice, ...]
    out: tuple[Choice, ...]

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.spec.batch * self.spec.model.sequence

    def gpu_hours(self, choice: Choice, tokens: float = 1e12) -> float:
        """Accelerator hours for so many tokens, if every step takes as long as this one."""
        return choice.step * self.spec.cluster.ranks * tokens / self.tokens / 3600

    def utilisation(self, choice: Choice) -> float:
        """FLOPs of the model as a share of the peak FLOPs of all accelerators during a step."""
        return flops_per_token(self.spec) * self.tokens / (choice.step * self.spec.cluster.ranks * self.spec.cluster.flops)


def make_plan(spec: PlanSpec, on_progress: Callable[[int, int], None] = lambda done, total: None) -> Plan:
    """
    Try every depth with every schedule.

    Parameters
    ----------
    on_progress
        Called with how many choices are done, of how many.

    Examples
    --------
    >>> from verifier.planning.spec import read_plan_spec
    >>> plan = make_plan(read_plan_spec("specs/cluster-small-moe.toml"))
    >>> plan.fitting[0].name
    'dualpipev P=4'
    """
    layers = layers_of(spec)
    check_measured(spec)
    pairs = [(depth, family) for depth in spec.depths for family in (spec.schedules if depth > 1 else (NO_PIPELINE,))]
    choices = []
    for done, (depth, family) in enumerate(pairs):
        on_progress(done, len(pairs))
        choices.append(_choice(spec, layers, family, depth))
    fitting = sorted((choice for choice in choices if not choice.broken), key=_order)
    return Plan(spec, tuple(fitting), tuple(choice for choice in choices if choice.broken))


def _order(choice: Choice) -> tuple[float, float, int, int]:
    assert choice.memory is not None, "it fits"
    return round(choice.step, 6), choice.memory.total, choice.copies, choice.depth


def _choice(spec: PlanSpec, layers: Sequence[Layer], family: str, depth: int) -> Choice:
    """One schedule at one depth, with everything that is in its way."""
    dp = spec.cluster.ranks // (depth * spec.tp)
    broken = list(_layout(spec, family, depth, dp))
    if broken:
        return Choice(family, depth, dp, 0, broken=tuple(broken))
    share, rule = dp * spec.microbatch, RULES[family]
    microbatches = rule.nearest(depth, -(-spec.batch // share))
    least_batch = microbatches * share
    where = placement(PLACEMENTS.get(family, "sequential"), depth, _per_rank(spec, family))
    cut = balanced([_weight(spec, layer, family) for layer in layers], where)
    held = [layers[begin:end] for begin, end in cut]
    costs = costs_of(spec, held)
    orders = orders_of(family, depth, microbatches, spec.stages_per_rank)
    memory = memory_of(spec, held, orders[0], _peaks(orders, microbatches, [kept_bytes(spec, stage) for stage in held]))
    too_much = tuple(_too_much(spec, memory))
    if least_batch != spec.batch:
        broken.append(_too_few(spec, family, share, (least_batch, microbatches), too_much))
    broken += too_much
    choice = Choice(family, depth, dp, microbatches, cut, costs, memory, tuple(broken), least_batch)
    if broken:
        return choice
    problem = orders[0].problem
    sync = max(
        sync_seconds(spec, [layer for _, stage in problem.stages_on(rank) for layer in held[stage]], choice.copies, depth)
        for rank in range(depth)
    )
    return replace(choice, run=replay(orders, microbatches, costs), sync=sync)


def _layout(spec: PlanSpec, family: str, depth: int, dp: int) -> Iterator[Obstacle]:
    """What speaks against it before anything is computed."""
    stages = depth * _per_rank(spec, family)
    if stages > spec.model.layers:
        short = f"{stages} stages for {spec.model.layers} layers"
        yield Obstacle("layers", short, f"layers: {short}")
    if dp % spec.ep:
        short = f"{dp} data-parallel ranks are no multiple of {spec.ep}-way expert parallelism"
        yield Obstacle("ranks", short, f"ranks: {short}")
    if depth % 2 and PLACEMENTS.get(family) == "bidirectional":
        short = f"two directions need an even number of ranks, not {depth}"
        yield Obstacle("ranks", short, f"ranks: {short}")


def _too_few(spec: PlanSpec, family: str, share: int, least: tuple[int, int], too_much: tuple[Obstacle, ...]) -> Obstacle:
    """A batch that the schedule does not take, and the next one that it takes, with what is in its way there."""
    have, at = str(Fraction(spec.batch, share)), f"a batch of {least[0]} (M = {least[1]})"
    text = f"micro-batches: a batch of {spec.batch} gives each of {counted(share // spec.microbatch, 'pipeline')} {have}, "
    text += f"{family} takes {RULES[family].sizes}; "
    if too_much:
        return Obstacle("micro-batches", f"M = {have}", f"{text}at {at} it breaks memory, too")
    return Obstacle("micro-batches", f"M = {have}, fits from {at}", f"{text}it fits from {at}")


def _per_rank(spec: PlanSpec, family: str) -> int:
    """Stages of one direction on a rank."""
    return {"interleaved": spec.stages_per_rank, "zbv": 2, "dualpipev": 2}.get(family, 1)


def _weight(spec: PlanSpec, layer: Layer, family: str) -> int:
    """What stages are balanced by: a layer's forward and backward, as a pair where the schedule makes pairs."""
    span = span_of(spec, layer)
    return round(pair(spec, span, span) if family in OVERLAPPING else single(spec, span, "F") + single(spec, span, "B"))


def orders_of(family: str, depth: int, microbatches: int, stages_per_rank: int = 2) -> tuple[Schedule, ...]:
    """
    The order of a schedule; or where it is long, three short ones that tell how it goes on.

    Raises
    ------
    ScheduleError
        If the schedule does not exist for these sizes.

    Examples
    --------
    >>> [order.name for order in orders_of("1f1b", 4, 10_001)]
    ['1f1b P=4 M=977', '1f1b P=4 M=985', '1f1b P=4 M=993']
    """
    stages = depth * {"interleaved": stages_per_rank, "zbv": 2, "dualpipev": 2}.get(family, 1)
    step = 2 * depth
    counts: tuple[int, ...] = (microbatches,)
    if 3 * stages * microbatches > 2 * FULL:
        # As long as they may be, since with hops the last of several rhythms can set in late; but never shorter than filled.
        affordable = FULL // (3 * stages) // step * step + microbatches % step - step
        last = max(affordable, 4 * step + microbatches % step)
        if last + step < microbatches:
            counts = (last - 2 * step, last - step, last)
    return tuple(build(family, depth, count, stages_per_rank) for count in counts)


def _peaks(orders: Sequence[Schedule], microbatches: int, kept: Sequence[float]) -> tuple[float, ...]:
    """Peaks of a long order from those of short ones: they stay, or grow evenly where all activations are held."""
    peaks = [peaks_of(order, kept) for order in orders[:2]]
    if len(peaks) == 1:
        return peaks[0]
    first, second = (order.problem.total_microbatches for order in orders[:2])
    periods = (microbatches - first) / (second - first)
    return tuple(one + periods * (other - one) for one, other in zip(*peaks, strict=True))


def _too_much(spec: PlanSpec, memory: Memory) -> Iterator[Obstacle]:
    """Which term breaks the limit, if one does."""
    if memory.total <= spec.cluster.memory:
        return
    largest = max(TERMS, key=lambda term: float(getattr(memory, term)))
    listed = ", ".join(f"{term} {getattr(memory, term) / 1e9:.1f}" for term in TERMS)
    need = f"{memory.total / 1e9:.1f} GB of {spec.cluster.memory / 1e9:g}"
    yield Obstacle(
        largest,
        f"{memory.total / 1e9:.0f} GB, {largest} {getattr(memory, largest) / 1e9:.0f}",
        f"memory: rank {memory.rank} needs {need}, most of it {largest} ({listed})",
    )


def replay(orders: Sequence[Schedule], microbatches: int, costs: CostModel) -> Run:
    """
    How long a pipeline takes.

    Parameters
    ----------
    orders
        As :func:`orders_of` gives them.
    costs
        In whole microseconds, per stage.

    Examples
    --------
    >>> from verifier.costs import CostModel
    >>> costs = CostModel.of(F=1000, I=1000, W=1000, FB=3000)
    >>> run = replay(orders_of("1f1b", 4, 8), 8, costs)
    >>> run.seconds, round(run.bubble, 4), run.method
    (0.033, 0.2727, 'replayed')
    >>> replay(orders_of("1f1b", 4, 100_000), 100_000, costs).seconds
    300.009
    """
    ranks = orders[0].problem.ranks
    found = [makespan_and_busy(order, costs) for order in orders]
    if len(found) == 1:
        ((makespan, busy),) = found
        return Run(makespan / 1e6, 1 - busy / (ranks * makespan), "replayed")
    (first, busy_first), (second, _), (third, busy_third) = found
    counts = [order.problem.total_microbatches for order in orders]
    periods = Fraction(microbatches - counts[0], counts[1] - counts[0])
    length = third + (periods - 2) * (third - second)
    work = busy_first + periods * (busy_third - busy_first) / 2
    method = f"replayed at M = {', '.join(map(str, counts))}, continued along a line"
    if third - second != second - first:
        method += " that these do not lie on exactly"
    return Run(float(length) / 1e6, float(1 - work / (ranks * length)), method)
