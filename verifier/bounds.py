"""
Lower bounds on the makespan that need no solver, each with its argument.

All of them hold for every schedule of the problem, and for mirror-symmetric ones too; folding a problem to half its ranks makes
some of them stronger, but only within that scope. They read a :class:`~verifier.search.strings.Board`: ranks with stages,
chains of stages, and which blocks take how long. Hop times, uneven stages, a B priced apart from I + W, partial release and any
set of allowed blocks are part of that description, so a bound says only where it does not apply.

Words used in the arguments: F* is the shortest block that contains a forward of that stage, I* the shortest that contains its
input backward. The *round trip* of a stage is the least time from the end of its forward to the start of its input backward.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import NamedTuple

from verifier.costs import CostModel
from verifier.model import Limits, Op, Problem
from verifier.search.strings import Board, Token

PLAIN_KINDS = frozenset({"F", "I", "W", "B", "F&B"})
"""Blocks that the arguments about one rank know of."""


@dataclass(frozen=True)
class Bound:
    """
    A number of ticks that no schedule beats, and why.

    Parameters
    ----------
    name
        Of the argument, as in :data:`BOUNDS`.
    ticks
        In ticks of the cost model.
    argument
        The numbers of this instance, for people.
    """

    name: str
    ticks: int
    argument: str


def bounds(
    problem: Problem,
    costs: CostModel,
    limits: Limits | None = None,
    blocks: Collection[str] | None = None,
    pairs: str = "opposite",
    *,
    mirrored: bool = False,
    objective: str = "makespan",
) -> list[Bound]:
    """
    All lower bounds that apply, the largest first.

    Parameters
    ----------
    blocks
        Kinds of blocks that may be used; None for all that have a price.
    pairs
        ``opposite``, or ``any`` where both parts of a pair may be of one direction.
    mirrored
        Bound mirror-symmetric schedules only.
    objective
        ``makespan``, or ``span-idle`` for the longest time from a rank's first start to its last end.

    Examples
    --------
    >>> both = Problem(((0, 1, 2, 3), (3, 2, 1, 0)), (4, 4))
    >>> best = bounds(both, CostModel.of(F=2, I=2, W=2, FB=4), Limits(5))[0]
    >>> best.name, best.ticks, best.argument
    ('one rank', 42, 'rank 2: at least 3 of 8 forwards run alone')
    """
    return board_bounds(Board(problem, costs, limits or Limits(), blocks, pairs == "any", mirrored), objective)


def board_bounds(board: Board, objective: str = "makespan") -> list[Bound]:
    """As :func:`bounds`, of a board."""
    times = Times(board)
    arguments = BOUNDS.values() if objective == "makespan" else (one_rank_span,)
    found = [bound for argue in arguments if (bound := argue(times)) is not None] or [Bound("none", 0, "no argument applies")]
    # Every start is a sum of durations and hops, so makespans are multiples of what divides them all.
    whole = [Bound(bound.name, -(-bound.ticks // board_grain(board)) * board_grain(board), bound.argument) for bound in found]
    return sorted(whole, key=lambda bound: -bound.ticks)


def board_grain(board: Board) -> int:
    """
    The greatest number of ticks that divides every duration and hop, and with them every makespan of a tight timeline.

    >>> board_grain(Board(Problem(((0, 1),), (2,)), CostModel.of(F=4, I=4, W=6, hop=2), Limits()))
    2
    """
    spans = [board.span(rank, token) for rank in range(board.ranks) for token in board.tokens]
    return gcd(*(span for span in spans if span > 0), *Times(board).up, *Times(board).down) or 1


# ---------------------------------------------------------------------------------------------- the times of a board


@dataclass(frozen=True)
class Times:
    """Shortest times of every stage of the chains of a board, in ticks; one list entry for each stage."""

    board: Board

    @cached_property
    def count(self) -> tuple[int, ...]:
        """Micro-batches of each stage."""
        return self.board.counts

    @cached_property
    def chains(self) -> tuple[range, ...]:
        """The stages of each chain that carries micro-batches."""
        length = self.board.problem.stages
        every = (range(chain * length, (chain + 1) * length) for chain in range(self.board.chains))
        return tuple(stages for stages in every if self.count[stages[0]])

    def chain_of(self, stage: int) -> range:
        """The chain that a stage belongs to."""
        return next(chain for chain in self.chains if stage in chain)

    def held(self, rank: int) -> list[int]:
        """Stages on a rank that carry micro-batches."""
        return [stage for stage in self.board.chain[rank] if self.count[stage]]

    @cached_property
    def up(self) -> tuple[int, ...]:
        """Hop from each stage to the next; 0 from the last."""
        length = self.board.problem.stages
        return tuple(self.board.lag(stage, 1) if (stage + 1) % length else 0 for stage in range(len(self.count)))

    @cached_property
    def down(self) -> tuple[int, ...]:
        """Hop from each stage to the one before; 0 from the first."""
        length = self.board.problem.stages
        return tuple(self.board.lag(stage, -1) if stage % length else 0 for stage in range(len(self.count)))

    def alone(self, stage: int, kind: str) -> int | None:
        """Duration of a single part, None where that block may not be used."""
        rank, slot = self.board.home[stage]
        span = self.board.span(rank, ((kind, slot),))
        return None if span < 0 else span

    def _containing(self, stage: int, kinds: str) -> list[int]:
        """Durations of the blocks that contain one of these kinds of a stage."""
        rank, slot = self.board.home[stage]
        fits: Callable[[Token], bool] = lambda token: any(part == (kind, slot) for part in token for kind in kinds)  # noqa: E731
        spans = [self.board.span(rank, token) for token in self.board.tokens if fits(token)]
        return [span for span in spans if span >= 0]

    @cached_property
    def forward(self) -> tuple[int, ...]:
        """F*."""
        return tuple(min(self._containing(stage, "F")) for stage in range(len(self.count)))

    @cached_property
    def gradient(self) -> tuple[int, ...]:
        """I*."""
        return tuple(min(self._containing(stage, "IB")) for stage in range(len(self.count)))

    @cached_property
    def backward(self) -> tuple[int, ...]:
        """Least time from the start of an input backward to the end of its weight backward."""
        return tuple(min([*self._containing(stage, "B"), *self._split(stage)], default=0) for stage in range(len(self.count)))

    def _split(self, stage: int) -> list[int]:
        """Least time of an input and a weight backward one after the other, whatever they are joined to."""
        inputs, weights = self._containing(stage, "I"), self._containing(stage, "W")
        return [min(inputs) + min(weights)] if inputs and weights else []

    @cached_property
    def can_split(self) -> bool:
        """Whether a weight backward can run apart, so that a rank may end with one."""
        return any(self._containing(stage, "W") for chain in self.chains for stage in chain)

    @cached_property
    def round_trip(self) -> tuple[int, ...]:
        """From the end of a stage's forward to the start of its input backward: F* up to the last stage, I* back, and hops."""
        trip = [0] * len(self.count)
        for chain in self.chains:
            for stage in reversed(chain[:-1]):
                above = stage + 1
                way = self.up[stage] + self.forward[above] + self.gradient[above] + self.down[above]
                trip[stage] = trip[above] + way
        return tuple(trip)

    @cached_property
    def drain(self) -> tuple[int, ...]:
        """From the end of a stage's input backward until the stages before it are done: I*, hops, the whole B of the first."""
        rest = [0] * len(self.count)
        for chain in self.chains:
            for stage in chain[1:]:
                below = stage - 1
                last = self.backward[below] if below == chain[0] else self.gradient[below] + rest[below]
                rest[stage] = self.down[stage] + last
        return tuple(rest)

    @cached_property
    def fill(self) -> tuple[int, ...]:
        """From 0 to the start of a stage's first forward, if no block before it is shorter than F*."""
        return self._sums(self.forward)

    def _sums(self, spans: tuple[int, ...]) -> tuple[int, ...]:
        reach = [0] * len(self.count)
        for chain in self.chains:
            for stage in chain[1:]:
                reach[stage] = reach[stage - 1] + spans[stage - 1] + self.up[stage - 1]
        return tuple(reach)

    @cached_property
    def first_pass(self) -> tuple[int, ...]:
        """
        As :attr:`fill`, but with forwards that run alone, or only with other forwards.

        Until some micro-batch has passed all its stages there is no backward that a forward could be joined to.
        """
        return self._sums(self.lone_forward)

    @cached_property
    def lone_forward(self) -> tuple[int, ...]:
        """Shortest block that contains a forward of a stage and no backward."""
        lone = []
        for stage in range(len(self.count)):
            rank, slot = self.board.home[stage]
            tokens = (token for token in self.board.tokens if ("F", slot) in token and {kind for kind, _ in token} == {"F"})
            lone.append(min(span for span in (self.board.span(rank, token) for token in tokens) if span >= 0))
        return tuple(lone)

    @cached_property
    def lone_gradient(self) -> tuple[int, ...]:
        """Least time that an input backward outside pairs takes, apart or in a full backward."""
        ways = ((self.alone(stage, "I"), self.alone(stage, "B")) for stage in range(len(self.count)))
        return tuple(min(span for span in way if span is not None) for way in ways)

    @cached_property
    def lone_backward(self) -> tuple[int, ...]:
        """Least time that a backward outside pairs takes: the shorter of B and I + W, of those that may be used."""
        least = []
        for stage in range(len(self.count)):
            whole, inputs, weights = (self.alone(stage, kind) for kind in "BIW")
            split = None if inputs is None or weights is None else inputs + weights
            least.append(min(span for span in (whole, split) if span is not None))
        return tuple(least)

    def finish(self, stage: int) -> int:
        """From the start of a backward outside pairs until it, its W and the stages before it are done."""
        return max(self.lone_backward[stage], self.lone_gradient[stage] + self.drain[stage])

    @cached_property
    def first_backward(self) -> int:
        """The earliest start of any backward: all forwards of its micro-batch ran before it, outside pairs with a backward."""
        return min(self.first_pass[chain[-1]] + self.lone_forward[chain[-1]] for chain in self.chains)

    def head(self, rank: int) -> int:
        """
        The earliest start of anything on a rank.

        Where the rank holds a stage of every chain no backward can run anywhere before its own first forward has ended, so
        the forwards that lead to it run alone.
        """
        stages = self.held(rank)
        passed_by_all = all(any(stage in chain for stage in stages) for chain in self.chains)
        return min((self.first_pass if passed_by_all else self.fill)[stage] for stage in stages)

    def earliest_backward(self, rank: int) -> int:
        """
        The earliest start of any backward on a rank.

        Take the micro-batch of the first one. If all its forwards ran without a backward, the last of them ended at
        :attr:`first_backward` or later. If one ran in a pair with a backward, that pair started then or later. After it I* of
        every later stage and the hops follow.
        """
        return self.first_backward + min(self._way_back(stage) for stage in self.held(rank))

    def _way_back(self, stage: int) -> int:
        """I* and hops from the last stage down to a stage."""
        above = range(stage + 1, self.chain_of(stage)[-1] + 1)
        return sum(self.gradient[other] + self.down[other] for other in above)

    def tail(self, rank: int) -> int:
        """Least time from a rank's last end to the makespan: 0 where it can end with a W, else the gradient has to drain."""
        return 0 if self.can_split else min(self.drain[stage] for stage in self.held(rank))


# ------------------------------------------------------------------------------------------------------------ arguments


def one_microbatch(times: Times) -> Bound:
    """
    One micro-batch alone passes all stages and comes back.

    F* of every stage, then I* of every stage but the first, whose whole backward ends the path; and all hops. For the
    micro-batch whose backward starts first all forwards ran without a backward, which may be longer than F*.
    """
    back = {chain: times.drain[chain[-1]] + times.gradient[chain[-1]] for chain in times.chains if len(chain) > 1}
    whole = {chain: back.get(chain, times.backward[chain[0]]) for chain in times.chains}
    each = max(times.fill[chain[-1]] + times.forward[chain[-1]] + whole[chain] for chain in times.chains)
    first = min(times.first_pass[chain[-1]] + times.lone_forward[chain[-1]] + whole[chain] for chain in times.chains)
    return Bound("one micro-batch", max(each, first), "the way of one micro-batch through all stages and back")


def work(times: Times) -> Bound:
    """
    A rank has its head, its work and its tail.

    Every op costs at least its share of the shortest block that it can be in: all of it, or half where that is a pair. Weak,
    but it holds for every kind of pair.
    """
    best, where = 0, 0
    for rank in range(times.board.ranks):
        stages = times.held(rank)
        if stages:
            busy = sum(times.count[stage] * (_share(times, stage, "F") + _backward_share(times, stage)) for stage in stages)
            total = times.head(rank) + -(-busy // 2) + times.tail(rank)
            best, where = max((best, where), (total, rank))
    return Bound("work", best, f"rank {where}: its head, its work, its tail")


def _share(times: Times, stage: int, kind: str) -> int:
    """Twice the least time that a part costs its rank: a pair is shared by two."""
    rank, slot = times.board.home[stage]
    shares = []
    for token in times.board.tokens:
        span = times.board.span(rank, token)
        if (kind, slot) in token and span >= 0:
            shares.append(span if len(token) == 2 else 2 * span)
    return min(shares, default=-1)


def _backward_share(times: Times, stage: int) -> int:
    """Twice the least time that a backward costs its rank, whole or split."""
    whole, inputs, weights = (_share(times, stage, kind) for kind in "BIW")
    ways = ([whole] if whole >= 0 else []) + ([inputs + weights] if min(inputs, weights) >= 0 else [])
    return min(ways)


def capacity(times: Times) -> Bound | None:
    """
    Little's law for activations: what each holds its memory for, summed, fits below the limit times the makespan.

    An activation of a stage is held from the start of its forward to the end of its backward: at least F*, the round trip, and
    the backward (only to the end of the input backward where part of it is released then). A rank without a limit has no such
    bound; before the rank's head and in its tail nothing is held.
    """
    board = times.board
    own = times.gradient if board.costs.release else times.backward
    best: tuple[int, int] | None = None
    for rank in range(board.ranks):
        limit, stages = _steps(times, rank), times.held(rank)
        if not limit or not stages:
            continue
        held = sum(
            times.count[stage] * activation_size(board, stage) * (times.forward[stage] + times.round_trip[stage] + own[stage])
            for stage in stages
        )
        found = (times.head(rank) + -(-held // limit) + times.tail(rank), rank)
        best = max(best or found, found)
    return best and Bound("capacity", best[0], f"rank {best[1]}: what its activations hold, over the limit")


def activation_size(board: Board, stage: int) -> int:
    """Steps of memory that one forward of a stage of a chain takes."""
    return board.costs.activation_steps(Op("F", 0, stage % board.problem.stages, 0))


def one_rank(times: Times) -> Bound | None:
    """
    One rank: what must be idle before its first backward, its work, and what must be idle after its last forward.

    Let ``a`` of the rank's N forwards run outside pairs, so that N - a pairs exist and ``a`` backwards run outside pairs. The
    bound is the least over all possible ``a`` of the largest of three numbers.

    *Fill, work, drain.* The work is W(a) = sum(F + B) - saving (N - a), with B the shorter of B and I + W, and the saving of
    the best pair. Before the first backward only forwards run, all of them outside pairs, at most b = min(a, what memory
    holds), so with h the earliest backward that time is idle for at least max(head, h - b F). After the last forward only
    backwards outside pairs run, while the micro-batch of that forward makes its round trip and drains, g: idle for at least
    g - c B, c as b (as ``a`` where memory is released before the W). If b < N the two times are apart, and both idle times add.
    Else the part before the first forward is apart from the second.

    *In flight.* Count what is past its forward and before its backward. A pair takes one and adds one, so the count never
    exceeds ``a``, and while any block runs it is at most a - 1: during a forward outside pairs that one is not yet past, and
    during a pair, a backward or a later W one is past already. Every micro-batch is counted for its round trip, so
    sum(round trips) <= a idle + (a - 1) work, that is T >= head + (sum(round trips) + W(a)) / a.

    *Memory.* As in :func:`capacity`, but with a pair counted for what it holds: both its activations for all its time.

    With one stage of each direction on a rank ``a`` may be 1; where the stages of a chain lie together (V), the first
    micro-batch passes all of them before its first backward, so ``a`` is at least their number.

    Applies where blocks are F, I, W, B and F&B. Uneven stages: b F and c B are the largest such sums, the saving the best. It
    contains LB0 = min over a >= 2 of max(h, (q-1+a) F) + (M-a) FB + a B, and beats it where pairs are cheap.
    """
    return _largest(times, "one rank", lone_forwards)


def one_rank_span(times: Times) -> Bound | None:
    """
    As :func:`one_rank`, of the time from a rank's first start to its last end.

    Then nothing is idle before the first start, and nothing after the last end. The first backward of the rank comes a forward
    and a round trip after the first start, and after its last forward come a round trip and a backward.
    """
    return _largest(times, "one rank", lambda times, rank: lone_forwards(times, rank, spans=True))


def _largest(times: Times, name: str, of_rank: Callable[[Times, int], dict[int, int]]) -> Bound | None:
    """The largest, over the ranks, of the least that is possible on one."""
    if not PLAIN_KINDS.issuperset(times.board.kinds):
        return None
    least = [
        (*min((ticks, lone) for lone, ticks in of_rank(times, rank).items()), rank)
        for rank in range(times.board.ranks)
        if times.held(rank)
    ]
    ticks, lone, rank = max(least)
    forwards = sum(times.count[stage] for stage in times.held(rank))
    text = f"rank {rank}: its fill, its work, its drain"
    if lone < forwards:
        text = f"rank {rank}: at least {lone} of {forwards} forwards run alone"
    return Bound(name, ticks, text)


def lone_forwards(times: Times, rank: int, *, spans: bool = False) -> dict[int, int]:
    """
    For every possible number of forwards outside pairs on a rank, the bound of :func:`one_rank`.

    Where no pair saves time, only all forwards are listed: that bound is the least and holds for any number.
    """
    stages = times.held(rank)
    forwards = sum(times.count[stage] for stage in stages)
    least = times.lone_backward
    single = sum(times.count[stage] * (times.lone_forward[stage] + least[stage]) for stage in stages)
    pairs = _pairs(times, rank)
    saving = max([pair.saving for pair in pairs], default=0)
    most = min(sum(pair.most for pair in pairs), forwards) if saving > 0 else 0
    room, room_after = _room(times, rank, forwards)
    fills = _largest_sums([(times.lone_forward[stage], times.count[stage]) for stage in stages])
    drains = _largest_sums([(least[stage], times.count[stage]) for stage in stages])
    head, tail, earliest = times.head(rank), times.tail(rank), times.earliest_backward(rank)
    back = min(times.round_trip[stage] + times.finish(stage) for stage in stages)
    if spans:
        head, tail = 0, 0
        earliest = min(times.lone_forward[stage] + times.round_trip[stage] for stage in stages)
        back = min(times.round_trip[stage] + least[stage] for stage in stages)
    trips = sum(times.count[stage] * times.round_trip[stage] for stage in stages)
    held, limit = _held(times, stages), _steps(times, rank)
    more = min([pair.more for pair in pairs], default=0)

    def total(lone: int) -> int:
        busy = single - saving * (forwards - lone)
        before = min(lone, room)
        front = max(head, earliest - fills[before])
        rear = max(tail, back - drains[min(lone, room_after)])
        idle = front + rear if before < forwards else max(front + tail, head + rear)
        inside = -(-(trips + busy) // lone)
        if limit:
            inside = max(inside, -(-(held + more * (forwards - lone)) // limit))
        return max(busy + idle, head + inside + tail)

    return {lone: total(lone) for lone in range(max(_together(times, stages), forwards - most), forwards + 1)}


class _Pair(NamedTuple):
    """A way to join a forward and a backward on a rank."""

    saving: int
    """Ticks against the two apart."""
    more: int
    """What it holds beyond the two apart, in ticks times steps of memory."""
    most: int
    """How many there can be."""


def _pairs(times: Times, rank: int) -> list[_Pair]:
    """The ways to join a forward and a backward that a rank has."""
    board, stages, found = times.board, times.board.chain[rank], []
    for token in board.tokens:
        span = board.span(rank, token)
        if len(token) == 2 and span >= 0:
            forward, backward = (stages[slot] for _, slot in token)
            most = min(times.count[forward], times.count[backward])
            if most:
                lone = times.lone_forward[forward]
                more = activation_size(board, forward) * (span - lone)
                more += activation_size(board, backward) * (span - _own(times, backward))
                found.append(_Pair(lone + times.lone_backward[backward] - span, more, most))
    return found


def _own(times: Times, stage: int) -> int:
    """How long a backward outside pairs holds its activation, all of it."""
    return (times.lone_gradient if times.board.costs.release else times.lone_backward)[stage]


def _held(times: Times, stages: list[int]) -> int:
    """What the activations of a rank hold if nothing is paired, in ticks times steps of memory."""
    return sum(
        times.count[stage]
        * activation_size(times.board, stage)
        * (times.lone_forward[stage] + times.round_trip[stage] + _own(times, stage))
        for stage in stages
    )


def _steps(times: Times, rank: int) -> int | None:
    """The limit on activations of a rank in whole steps of memory."""
    limit = times.board.limits.activations_on(rank)
    return None if limit is None else int(limit * times.board.costs.steps_per_activation)


def _room(times: Times, rank: int, forwards: int) -> tuple[int, int]:
    """How many forwards can be in memory before the first backward, and how many backwards be left after the last forward."""
    limit = _steps(times, rank)
    smallest = min(activation_size(times.board, stage) for stage in times.held(rank))
    if limit is None or not smallest:
        return forwards, forwards
    room = min(forwards, max(1, limit // smallest))
    return room, forwards if times.board.costs.release else room


def _together(times: Times, stages: list[int]) -> int:
    """How many forwards a rank certainly runs before its first backward: all of one micro-batch."""
    counts = (sum(stage in chain for stage in stages) for chain in times.chains)
    return min(count for count in counts if count)


def _largest_sums(items: list[tuple[int, int]]) -> list[int]:
    """``sums[n]``: the largest sum of n of the numbers, given as (number, how often)."""
    sums = [0]
    for number, often in sorted(items, reverse=True):
        for _ in range(often):
            sums.append(sums[-1] + number)
    return sums


BOUNDS: dict[str, Callable[[Times], Bound | None]] = {
    "one rank": one_rank,
    "capacity": capacity,
    "one micro-batch": one_microbatch,
    "work": work,
}
"""Every argument by its name; of equal ones the first is named."""
