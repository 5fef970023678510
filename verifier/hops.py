"""
What hops cost in the long run, and how many activations pay for them.

Where a forward and a backward of the two directions are shorter in one block than apart, only a steady state of such pairs
without a pause between them takes FB per micro-batch. With hops between the ranks that needs more activations than DualPipe's
P + 1: :func:`least_activations` says how many at least, for any order; :func:`spaced` is an order that does with so many.

Words: X0 is a pair of a forward of direction 0 with a backward of direction 1, X1 the other one. Ranks that lie next to one
another in the pipeline have a *link*.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from verifier.costs import CostModel
from verifier.model import Block, Op, Problem, Schedule, ScheduleError

PRICED = {"F", "I", "W", "B", "F&B"}
"""Blocks that the argument knows of."""


def least_activations(problem: Problem, costs: CostModel) -> int | None:
    """
    Activations without which idle time grows with the number of micro-batches, whatever the order.

    P + 1 + sum(c) for two copies, 2P + 1 + 2 sum(c) for a V, where the sums run over the P - 1 links, and c is the sum of the
    hops of a link, there and back, over 2 FB, rounded up: 0 without hops, 1 for any hop up to FB. Take one schedule for each M,
    all of them within M FB plus a constant (for a V, 2 M FB): every rank holds so many for all large M.

    Parameters
    ----------
    problem
        Placement ``bidirectional`` or ``v``; what it says of micro-batches plays no part.
    costs
        Alike for all stages.

    Returns
    -------
    None where the argument does not apply: for another placement, for stages that differ, where pairs of other kinds have a
    price, or where a pair saves nothing: FB >= F + min(B, I + W), or FB = 0. Pairs join opposite directions (in a V: the
    rank's two stages), as ``synthesize`` makes them by default.

    Notes
    -----
    *Only pairs.* A forward outside pairs costs its rank F + min(B, I + W) - FB > 0 more than M FB. So the number of blocks
    other than pairs is bounded, as is the idle time; times are whole ticks, so the number of pauses is bounded too. For large M
    there is a time as long as one likes in which every rank runs pairs, one right behind the other. What is live, on the way
    and waiting, and the phases of the ranks, take finitely many values; some state comes twice, and what is between the two
    can be repeated for ever. As the state is the same, X0 and X1 are equally frequent on each rank.

    *Counting.* Let the ranks have the starts of their X0 and X1, in units of FB. On a link from rank r to the next, let U be
    the mean time from an X0 on r to the X0 next door that reads what it sent, and D the same for X1 on the way back. All X0 and
    X1 of a rank together start at its phase + 0, 1, 2, ..., half of them each. So the mean start of its X0 and that of its X1
    add up to twice the phase and an odd number, up to multiples of 2 (counting from another X0 adds 2). With d the difference
    of the phases of both ranks, U - D is 2 d and an even number. (What is read by whom makes no difference to means.) Each
    single way up is d and a whole number, at least some a; each way back is -d and a whole number, at least some b; no way is
    shorter than 1 and its hop, so a + b >= 2 + (hop there + hop back) / FB. Let U = d + a + x and D = -d + b + y with
    x, y >= 0; then a - b + x - y is even. So if a + b is odd, x + y >= 1. Either way U + D is at least the least even number
    that is not below 2 + (hop there + hop back) / FB, which is 2 + 2 c.

    *Holding.* For two copies, an activation of direction 0 on rank r is held for U + D of all links behind r, one FB from the
    last forward to the first backward, and the FB of its last block; one of direction 1 for U + D of the links before r, and
    as much. An X0 starts every 2 FB, so on the mean half of that sum is live: half of sum(2 + 2 c) + 4, that is
    P + 1 + sum(c). In a V the first stage of a rank waits for the way to the turn and back, the whole way to rank 0 and back,
    and four times FB, the second for the way to rank 0 and back and twice FB: half of 2 sum(2 + 2 c) + 6 is
    2P + 1 + 2 sum(c). The peak is not below the mean.

    Examples
    --------
    >>> both, costs = Problem(((0, 1, 2, 3), (3, 2, 1, 0)), (4, 4)), {"F": 20, "I": 20, "W": 20, "FB": 50}
    >>> [least_activations(both, CostModel.of(**costs, hop=hop)) for hop in (0, 1, 50, 51)]
    [5, 8, 8, 11]
    >>> least_activations(Problem(((0, 1, 1, 0),), (4,)), CostModel.of(**costs, hop=1))
    7
    """
    links, pair = _links(problem), _saving_pair(costs)
    if links is None or pair is None:
        return None
    more = sum(-(-(costs.hop_ticks(a, b) + costs.hop_ticks(b, a)) // (2 * pair)) for a, b in links)
    return problem.ranks + 1 + more if problem.directions == 2 else 2 * problem.ranks + 1 + 2 * more


def _links(problem: Problem) -> list[tuple[int, int]] | None:
    """Neighbours in the pipeline, from its start; None for a placement that is neither two copies nor a V."""
    rows = problem.placement
    if problem.directions == 2 and rows[0] == rows[1][::-1] and len(set(rows[0])) == problem.stages == problem.ranks:
        return list(pairwise(rows[0]))
    half = rows[0][: problem.stages // 2]
    if problem.directions == 1 and rows[0] == half + half[::-1] and len(set(half)) == len(half) == problem.ranks:
        return list(pairwise(half))
    return None


def _saving_pair(costs: CostModel) -> int | None:
    """FB in ticks where a pair of alike stages is shorter than its parts, and nothing else can be joined."""
    alike = all(isinstance(price, Fraction) for price in costs.prices.values()) and costs.activation == 1
    if not alike or not set(costs.prices) <= PRICED:
        return None
    forward, gradient, weight, whole, pair = (
        costs.ticks(Block.parse(text)) for text in ("0F0", "0I0", "0W0", "0B0", "(0F1;0B0)")
    )
    return pair if 0 < pair < forward + min(whole, gradient + weight) else None


def room(ranks: int, activations: int) -> tuple[int, ...]:
    """
    Activations more than P + 1, spread over the links so that the longest run of links without any is as short as can be.

    Examples
    --------
    >>> room(4, 6), room(8, 10), room(4, 8), room(4, 9)
    ((0, 1, 0), (0, 0, 0, 1, 0, 0, 0), (1, 1, 1), (1, 2, 1))
    """
    links, more = ranks - 1, activations - ranks - 1
    whole, rest = divmod(max(0, more), links) if links else (0, 0)
    cuts = {ranks * k // (rest + 1) for k in range(1, rest + 1)}
    return tuple(whole + (link + 1 in cuts) for link in range(links))


def spaced(ranks: int, microbatches: int, activations: int) -> Schedule:
    """
    DualPipe's wave of pairs with time to spare on the links.

    Both directions start a micro-batch every 2 FB; on a link with room c a pair starts 1 + c pairs after its neighbour's, so
    that c FB are left for a hop, each way. Every rank alternates X0 and X1.

    With room on every link, hops up to that, and F and B no longer than FB, one slot of FB after the other is a timeline. So M
    micro-batches take at most M FB and a constant, whatever M. A run of k ranks whose links have no room goes around in 2 k
    pairs and 2 (k - 1) hops, while k micro-batches of each direction pass: idle time grows by hop (1 - 1/k) per micro-batch.

    Parameters
    ----------
    ranks
        P, at least 2.
    microbatches
        M over both directions, even.
    activations
        At least P + 1, which is all that DualPipe needs; it is the peak where M is not too small. See :func:`room`.

    Raises
    ------
    ScheduleError
        If a size is out of range.

    Examples
    --------
    >>> from verifier.simulate import simulate
    >>> costs = CostModel.of(F=20, I=20, W=20, FB=50, hop=2)
    >>> small, large = (simulate(spaced(4, size, 8), costs) for size in (40, 42))
    >>> large.timeline.makespan - small.timeline.makespan, max(large.peak_activations)
    (Fraction(100, 1), Fraction(8, 1))
    """
    if ranks < 2 or microbatches < 2 or microbatches % 2 or activations < ranks + 1:
        raise ScheduleError(
            f"spaced: P = {ranks}, M = {microbatches}, {activations} activations; expected P >= 2, M even and at least 2, "
            f"and P + 1 activations or more"
        )
    ways = [1 + spare for spare in room(ranks, activations)]
    problem = Problem((tuple(range(ranks)), tuple(reversed(range(ranks)))), (microbatches // 2,) * 2)
    order = tuple(_row(rank, ways, microbatches // 2) for rank in range(ranks))
    return Schedule(problem, order, f"spaced P={ranks} M={microbatches}, {activations} activations")


def _row(rank: int, ways: Sequence[int], microbatches: int) -> tuple[Block, ...]:
    """One rank's blocks, by the slots of FB in which a pipeline that was always full would run them."""
    before, behind, whole = sum(ways[:rank]), sum(ways[rank:]), sum(ways)
    # Direction 1 starts a slot later where X0 and X1 would meet in one slot; a backward waits for the slot of its kind.
    late = 1 - whole % 2
    turns = [whole + 1 + (whole + 1 - late) % 2, late + whole + 1 + (whole + 1 + late) % 2]
    slots: dict[int, list[Op]] = {}
    for direction, stage, there, back in ((0, rank, before, behind), (1, len(ways) - rank, late + behind, before)):
        for number in range(microbatches):
            slots.setdefault(there + 2 * number, []).append(Op("F", direction, stage, number))
            backward = [Op(kind, direction, stage, number) for kind in "IW"]
            slots.setdefault(turns[direction] + back + 2 * number, []).extend(backward)
    return tuple(Block(tuple(sorted(slots[slot], key=lambda op: op.kind != "F"))) for slot in sorted(slots))
