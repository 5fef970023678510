"""
Whether the bubble of a given schedule stays the same for every number of micro-batches.

The statement is about the schedules S_k that :func:`periodic.insert_kernels` makes, for all k >= 0: complete, free of deadlock,
with the same peaks, and with exactly as much idle time on every rank as S_0.

The argument
------------
*Complete*: ``periodic._renumbers``; one equation between sets of micro-batches, from which every k follows by adding it up.

*Peaks*: one kernel period takes and frees the same activations, so each copy repeats the profile of the kernel of S_0.

*Timelines for all k*. Let x be start times for the blocks of S_0, and T a number. In S_k give a block in front of the copies
its own time x, the j-th copy of a kernel block x + j T, and a block behind the copies x + k T. All orders along a rank and all
reads between two blocks u and v become inequalities

    x_v + j_v T >= x_u + j_u T + lag(u, v),

whose truth depends on u, v and j_v - j_u alone. For one job and its producer, let n be the period, and let (K + 1) n exceed
the largest micro-batch that either has in front of the copies minus the smallest that either has in or behind the kernel. Then
for k >= K the inequalities of S_{k+1} are among those of S_k. For a micro-batch b either both blocks are also in S_k at the
same times, since neither is among the last copies nor behind them; or both are in S_k for b - n, T earlier, since neither is in
front of the first copies. K rules out that one block forbids the first and the other the second. Along a rank all k >= 1 give
the inequalities of S_1. So finitely many inequalities, those of S_0 to S_K, hold for all k.

If they hold for x ending at the makespan of S_0, then makespan(S_k) <= makespan(S_0) + k T. If they hold under unit costs, for
any T and x, then no S_k has a circle of waiting blocks, whatever the costs are.

*Paths for all k*. Take a path of some S_b that runs through blocks in front of the copies and kernel copies, then through
kernel copies from copy j of a block to copy j + p of the same block, then through kernel copies and blocks behind them. Its
middle part can be run again; so for k = b, b + p, b + 2p, ... there is a path of S_k that is longer by the middle part each
time. A path bounds the makespan from below.

The bubble is constant where T is the busy time of a period on every rank and both bounds meet. It grows by exactly T minus
the busy time per period where the bounds have the same slope T.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from verifier.costs import CostModel
from verifier.model import Schedule, ScheduleError, plain
from verifier.simulate import simulate
from verifier.theorems.pattern import Edge, HangsError, Path, Pattern, path_along_rank, path_around, potentials, slope
from verifier.theorems.periodic import Split, candidates, insert_kernels, splits, with_window
from verifier.theorems.proof import PROVED, REFUTED, UNKNOWN, Proof, written_order
from verifier.verify import verify

NAME = "bubble-constant"
STATEMENT = "k more kernel periods keep the schedule legal and its peaks, and add exactly zero idle time on every rank"
SAMPLES = 3
"""Periods that are added and simulated before anything is claimed about all of them."""
UNIT = CostModel.of()
WHAT_TO_DO = "give more micro-batches, or an order made for all of them: verifier synthesize --all-microbatches"


def prove_bubble_constant(schedule: Schedule, costs: CostModel | None = None) -> Proof:
    """
    Prove that more kernel periods add no idle time, or refute it with the growth.

    Parameters
    ----------
    schedule
        Any order, preferably one in which something repeats.
    costs
        Default F = I = W = 1, FB = 3, no hop time.

    Returns
    -------
    Refuted with ``growth_per_period`` (one number per rank, in the unit of the costs) and ``growth_per_microbatch``, or
    unknown where the schedule has no kernel.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> prove_bubble_constant(build_family("dualpipe", 4, 10)).status
    'proved'
    >>> proof = prove_bubble_constant(build_family("1f1b", 4, 8), CostModel.of(F=10, I=10, W=10, hop=1))
    >>> proof.status, proof.numbers["growth_per_microbatch"]
    ('refuted', ['3/2', '3/2', '3/2', '3/2'])
    """
    began = time.perf_counter()
    costs = costs or CostModel.of()
    proof = _illegal(schedule, costs) or _best(schedule, costs)
    return replace(proof, seconds=time.perf_counter() - began)


def extended(schedule: Schedule, microbatches: int, costs: CostModel | None = None) -> Schedule:
    """
    The same schedule for more micro-batches, its bubble unchanged.

    Parameters
    ----------
    microbatches
        M over all directions.

    Raises
    ------
    ScheduleError
        If the bubble is not proved constant, or M is no whole number of kernel periods away.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> extended(build_family("dualpipe", 4, 8), 12) == build_family("dualpipe", 4, 12)
    True
    """
    proof = prove_bubble_constant(schedule, costs)
    if proof.status != PROVED:
        raise ScheduleError(f"{schedule.name}: cannot be extended: {proof.witness[0]}")
    split = split_of(schedule, proof)
    have, step = schedule.problem.total_microbatches, split.microbatches_per_period
    periods, rest = divmod(microbatches - have, step)
    if rest or periods < 0:
        raise ScheduleError(
            f"{schedule.name}: M = {microbatches} micro-batches; expected {have} or {step}, {2 * step}, ... more"
        )
    longer = insert_kernels(split, periods)
    report = verify(longer, costs, solver="replay")
    assert report.status == PROVED, "the theorem says that it is legal"
    return replace(longer, name=f"{schedule.name}, extended to M={microbatches}")


def split_of(schedule: Schedule, proof: Proof) -> Split:
    """The split that a proof is about."""
    windows = proof.evidence["windows"]
    assert isinstance(windows, list), "written by this module"
    return Split(schedule, int(str(proof.evidence["period"])), tuple((start, end) for start, end in windows))


# ---------------------------------------- which kernel


@dataclass(frozen=True)
class _Attempt:
    """
    One split, and what its kernel takes per period: ``growth[rank]`` is T minus the busy time, in ticks.

    ``free`` is a timeline under unit costs, which no circle of waiting blocks would have.
    """

    split: Split
    pattern: Pattern
    per_copy: Fraction
    circuit: tuple[Edge, ...]
    free: dict[str, object]

    @property
    def growth(self) -> tuple[Fraction, ...]:
        return tuple(self.per_copy - self.pattern.busy(rank) for rank in range(len(self.pattern.first)))


def _attempt(split: Split, costs: CostModel) -> _Attempt | None:
    """None where more periods hang."""
    unit, pattern = Pattern(split, UNIT), Pattern(split, costs)
    try:
        unit_slope, _ = slope(unit)
        start = potentials(unit, unit_slope)
        return None if start is None else _Attempt(split, pattern, *slope(pattern), _timeline(unit_slope, start))
    except HangsError:
        return None


def _best(schedule: Schedule, costs: CostModel) -> Proof:
    """
    The first kernel with a constant bubble; else the verdict on the shortest that the order holds twice on every rank.

    What a kernel that stands there once would cost is no property of the order, so that nothing is refuted by it.
    """
    found = False
    for split in splits(schedule):
        repeats = _repeats(split)
        attempt = _moved(split, costs)
        proof = _judged(attempt, costs) if attempt else None
        if proof and (repeats or proof.status == PROVED):
            return proof
        found = found or proof is not None
        if repeats:
            # A longer kernel would be several of these.
            break
    reason = (
        "nothing in this order repeats: no kernel stands there twice on every rank"
        if found
        else "no period: no stretch of every rank's order runs all its jobs equally often and can be run again"
    )
    return _unknown(f"{reason}; {WHAT_TO_DO}")


def _repeats(split: Split) -> bool:
    """Whether the schedule itself holds the kernel twice on every rank."""
    found = candidates(split.schedule, split.period) or ()
    return all(each[0].choices > end - start for each, (start, end) in zip(found, split.windows, strict=True))


def _moved(split: Split, costs: CostModel) -> _Attempt | None:
    """The split with the least growth that moving one rank's kernel after the other leads to."""
    best = _attempt(split, costs)
    for rank, choices in enumerate(candidates(split.schedule, split.period) or ()):
        for choice in choices[1:]:
            if best and not any(best.growth):
                return best
            other = _attempt(with_window(best.split if best else split, rank, choice.window), costs)
            if other and (best is None or other.per_copy < best.per_copy):
                best = other
    return best


# ---------------------------------------- verdicts


def _illegal(schedule: Schedule, costs: CostModel) -> Proof | None:
    """A verdict where the schedule itself cannot be what the statement is about."""
    report = verify(schedule, costs, solver="replay")
    for name in ("complete", "dependencies", "pairing"):
        if witnesses := report.properties[name].witnesses:
            return Proof(NAME, STATEMENT, "k >= 0", REFUTED, 1, 0, 0.0, (f"the schedule itself is not legal: {witnesses[0]}",))
    if len(set(schedule.problem.microbatches)) > 1:
        return _unknown("the directions have different numbers of micro-batches")
    return None


def _unknown(reason: str) -> Proof:
    return Proof(NAME, STATEMENT, "k >= 0", UNKNOWN, 1, 0, 0.0, (reason,))


def _judged(attempt: _Attempt, costs: CostModel) -> Proof:
    """Constant, growing, or neither shown."""
    limit = Fraction(_makespan(attempt.split.schedule, costs))
    evidence = {
        "kind": NAME,
        "schedule": written_order(attempt.split.schedule),
        "costs": costs.as_written(),
        "period": attempt.split.period,
        "windows": [list(window) for window in attempt.split.windows],
        "free": attempt.free,
        "makespan": plain(limit),
    }
    conditions = 2 * len(attempt.pattern.edges) + 2 * len(attempt.split.windows) + 1
    if any(attempt.growth):
        return _growing(attempt, costs, evidence, conditions)
    start = potentials(attempt.pattern, attempt.per_copy, limit)
    path = path_along_rank(attempt.pattern)
    if start is None or path.length != limit + attempt.per_copy:
        return _uneven(attempt, costs)
    evidence |= {"timed": _timeline(attempt.per_copy, start), "paths": [_path(path)], "claim": "constant"}
    numbers = _numbers(attempt, costs)
    return Proof(NAME, _said(attempt, costs), "k >= 0", PROVED, conditions, conditions, 0.0, (), numbers, evidence)


def _growing(attempt: _Attempt, costs: CostModel, evidence: dict[str, object], conditions: int) -> Proof:
    """Both bounds with the same slope, which is not the busy time of a period."""
    start = potentials(attempt.pattern, attempt.per_copy)
    copies = sum(d for _, _, d, _ in attempt.circuit)
    paths = [path_around(attempt.pattern, attempt.circuit, more) for more in range(copies)]
    most = max(attempt.growth)
    rank = attempt.growth.index(most)
    unit = costs.ticks_per_unit
    around = " -> ".join(_place(attempt, u) for u, *_ in attempt.circuit)
    per = "copy" if copies == 1 else f"{copies} copies"
    witness = (
        f"each kernel period ({attempt.split.microbatches_per_period} micro-batches) adds "
        f"{plain(most / unit)} to the idle time of rank {rank}",
        f"{around} -> again takes {plain(attempt.per_copy * copies / unit)} for every {per} of the kernel, "
        f"of which rank {rank} is busy for {plain(Fraction(attempt.pattern.busy(rank) * copies, unit))}",
    )
    if start is None:
        return _uneven(attempt, costs)
    evidence |= {"timed": _timeline(attempt.per_copy, start), "paths": list(map(_path, paths)), "claim": "growing"}
    numbers = _numbers(attempt, costs)
    return Proof(NAME, _said(attempt, costs), "k >= 0", REFUTED, conditions, conditions, 0.0, witness, numbers, evidence)


def _uneven(attempt: _Attempt, costs: CostModel) -> Proof:
    """The bubble stays the same in the long run but not from the start, or the bounds do not meet."""
    sizes = [_makespan(insert_kernels(attempt.split, periods), costs) for periods in range(SAMPLES + 1)]
    for periods, size in enumerate(sizes):
        change = Fraction(size - sizes[0] - periods * attempt.per_copy, costs.ticks_per_unit)
        if change:
            text = f"{periods} kernel periods more change the idle time of every rank by {plain(change)}"
            return Proof(NAME, STATEMENT, "k >= 0", REFUTED, 1, 0, 0.0, (text,), _numbers(attempt, costs))
    return _unknown("the bounds for all k do not meet, though no change was seen")


def _makespan(schedule: Schedule, costs: CostModel) -> int:
    timeline = simulate(schedule, costs).timeline
    assert timeline is not None, "attempts that hang were sorted out"
    return timeline.makespan_ticks


# ---------------------------------------- what is said and written


def _said(attempt: _Attempt, costs: CostModel) -> str:
    name = attempt.split.schedule.name
    return f"{name}: {STATEMENT}; a kernel period serves {attempt.split.microbatches_per_period} micro-batches"


def _numbers(attempt: _Attempt, costs: CostModel) -> dict[str, object]:
    unit, per_period = costs.ticks_per_unit, attempt.split.microbatches_per_period
    return {
        "microbatches_per_period": per_period,
        "time_per_period": plain(attempt.per_copy / unit),
        "growth_per_period": [plain(growth / unit) for growth in attempt.growth],
        "growth_per_microbatch": [plain(growth / unit / per_period) for growth in attempt.growth],
        "kernel": [
            [attempt.split.schedule.text(block) for block in attempt.split.kernel(rank)] for rank in range(len(attempt.growth))
        ],
    }


def _place(attempt: _Attempt, number: int) -> str:
    rank = attempt.pattern.rank[number]
    position = number - attempt.pattern.first[rank]
    schedule = attempt.split.schedule
    return f"rank {rank} {schedule.text(schedule.order[rank][position])}"


def _timeline(per_copy: Fraction, start: Sequence[int]) -> dict[str, object]:
    """Start times in ticks, over the denominator of T."""
    return {"per_copy": plain(per_copy), "denominator": per_copy.denominator, "start": list(start)}


def _path(path: Path) -> dict[str, object]:
    return {
        "base": path.base,
        "nodes": [list(node) for node in path.nodes],
        "middle": list(path.middle),
        "copies": path.copies,
        "length": path.length,
    }
