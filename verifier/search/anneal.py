"""
The compiled part of the search: longest paths over strings of tokens, changes of strings, annealing.

Everything is whole numbers in arrays. An *item* is the result of a forward (numbers below half) or of an input backward of one
stage and micro-batch; a *node* is one block of one rank. Each rank has two rows: its current string and a candidate.
All that is compiled stands in this one file, since a file is what the compiler's cache is renewed by; it is imported only where
a search starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import numba
import numba.extending
import numpy as np

from verifier.search.kernels import EPILOGUE, PROLOGUE

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Ints = np.ndarray[Any, np.dtype[np.int64]]

F, B, I, W = range(4)  # noqa: E741
NEVER = 2**62
"""Makespan of strings that hang."""
SHIFT, SWAP, JOIN, SPLIT = range(4)
REACH = 8
"""How far a token is shifted, and how far its partner is looked for."""
SWAP_REACH = 6


FROM_PYTHON = ("read_row", "begin", "anneal")
"""What is called from outside; the rest need not be, which takes a quarter off the time to compile."""


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile at the first call, and keep the result on disk."""
    njit: Any = numba.njit  # its stubs do not know the last two options
    inner = function.__name__ not in FROM_PYTHON
    compile_it = njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=inner)
    return cast(Callable[Arguments, Result], compile_it(function))


intrinsic: Callable[[Any], Callable[[Any], Any]] = numba.extending.intrinsic  # its stubs know nothing of calls


@intrinsic
def borrowed(typing: Any, arrays: Any) -> Any:
    """
    A tuple whose arrays do not count who uses them, so the caller must keep them.

    Counting is atomic, and took half of the time: a view or a tuple that goes into a function is counted twice.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (value,) = arguments
        for k, kind in enumerate(arrays.types):
            if isinstance(kind, numba.types.Array):
                array = context.make_array(kind)(context, builder, builder.extract_value(value, k))
                array.meminfo = array.meminfo.type(None)
                value = builder.insert_value(value, array._getvalue(), k)
        return value

    return arrays(arrays), code


class Tables(NamedTuple):
    """What does not change during a search; see Board for the words."""

    slots: int
    part: Ints  # [token, side] -> kind * slots + slot, or -1
    kind: Ints  # [token, side] -> kind, or -1
    slot: Ints  # [token, side] -> slot
    pair: Ints  # [part, part] -> token, or -1
    span: Ints  # [rank, token] -> ticks, or -1 where the token may not be used
    stage: Ints  # [rank, slot] -> stage of the chain, or -1
    steps: Ints  # [stage, kind] -> steps that F takes, and that B, I, W free
    cap: Ints  # [rank] -> steps
    spans: int  # 1 where a rank's time counts from its first start, 0 where it counts from the start of all
    kernel: Ints  # [rank, k] -> the tokens that the token one past the last stands for
    per_stage: int  # items of a stage; forwards of all stages come first, then input backwards
    reads: Ints  # [item] -> item of the neighbouring stage that it is made from, or -1
    reader: Ints  # [item] -> item that is made from it, or -1
    lag: Ints  # [item] -> ticks from the end of what it reads
    maker: Ints  # [item] -> rank


class State(NamedTuple):
    """Strings, and what follows from them. Rows 0..ranks-1 and ranks..2 ranks-1 are the two rows of each rank."""

    row: Ints  # [rank] -> the row that is current
    token: Ints  # [row, position]
    size: Ints  # [row] -> tokens
    first: Ints  # [row, position] -> its first node
    length: Ints  # [row] -> nodes
    source: Ints  # [row, node] -> position of its token
    make: Ints  # [row, node, side] -> item or -1
    span: Ints  # [row, node]
    work: Ints  # [row] -> sum of spans
    peak: Ints  # [row] -> most steps of activations held
    pairs: Ints  # [row] -> tokens of two parts
    side: Ints  # [0] -> which half of start and end belongs to the current strings; the other is the candidate's
    start: Ints  # [half, rank, node]
    end: Ints  # [half, item]
    tail: Ints  # [rank, node] longest path behind the end of the node, in the current strings
    place: Ints  # [item] -> node that makes it, in the current strings
    sequence: Ints  # [k, 0 rank | 1 node], an order in which the candidate can run
    heap: Ints  # [5, rank] scratch
    counts: Ints  # [kind, slot] scratch
    use: Ints  # [rank] -> the row that a candidate takes
    path: Ints  # [k, 0 rank | 1 position] of a critical path
    held: Ints  # [row] -> steps of activations held behind it
    low: Ints  # [row] -> first position that may change
    read: Ints  # [rank, 0 nodes | 1 held | 2 work | 3 peak | 4 pairs] of the string before that position
    read_counts: Ints  # [rank, kind, slot], likewise
    run: Ints  # [rank, 0 nodes | 1 clock | 2 work] of what runs before anything that may change
    run_end: Ints  # [item], likewise; -1 for the others


@compiled
def fill(row: Ints, value: int) -> None:
    """What ``row[:] = value`` does, which takes long to compile."""
    for k in range(row.shape[0]):
        row[k] = value


@compiled
def put(row: Ints, other: Ints) -> None:
    """What ``row[:] = other`` does."""
    for k in range(row.shape[0]):
        row[k] = other[k]


@compiled
def read_row(t: Tables, s: State, rank: int, row: int) -> bool:  # noqa: C901 - a call for every node would cost more than the node
    """Work out what each node of a row makes; False where order or memory forbid it."""
    counts = s.counts
    for kind in range(4):
        put(counts[kind], s.read_counts[rank, kind])
    backwards = t.reads.shape[0] // 2
    before = s.read[rank]
    node, held, work, peak, pairs = before[0], before[1], before[2], before[3], before[4]
    kernel = t.span.shape[1]
    for position in range(s.low[row], s.size[row]):
        s.first[row, position] = node
        token = s.token[row, position]
        repeat = t.kernel.shape[1] if token == kernel else 1
        for k in range(repeat):
            single = t.kernel[rank, k] if token == kernel else token
            if single < 0:
                break
            span = t.span[rank, single]
            if span < 0:
                return False
            s.source[row, node] = position
            s.span[row, node] = span
            work += span
            freed = 0
            # The second part first: what it needs must have been there before the block.
            for side in range(1, -1, -1):
                s.make[row, node, side] = -1
                kind, slot = t.kind[single, side], t.slot[single, side]
                if kind < 0:
                    continue
                stage = t.stage[rank, slot]
                if kind == F:
                    held += t.steps[stage, F]
                    s.make[row, node, side] = stage * t.per_stage + counts[F, slot]
                    counts[F, slot] += 1
                    continue
                freed += t.steps[stage, kind]
                if kind == W:
                    if counts[W, slot] >= counts[I, slot]:
                        return False
                    counts[W, slot] += 1
                    continue
                done = counts[B, slot]
                if done >= counts[F, slot]:
                    return False
                counts[B, slot] += 1
                if kind == I:
                    counts[I, slot] += 1
                s.make[row, node, side] = backwards + stage * t.per_stage + done
            if held > peak:
                peak = held
            if t.part[single, 1] >= 0:
                pairs += 1
            held -= freed
            node += 1
    s.length[row], s.held[row], s.work[row], s.peak[row], s.pairs[row] = node, held, work, peak, pairs
    return bool(peak <= t.cap[rank])


@compiled
def makespan(t: Tables, s: State, use: Ints, limit: int) -> int:  # noqa: C901 - as above
    """
    Longest path where rank r runs row use[r]: NEVER if the ranks hang or it is above the limit.

    Fills the candidate's half of start and end, and sequence.
    """
    ranks = s.row.shape[0]
    half = 1 - s.side[0]
    ends, reads, lag = s.end[half], t.reads, t.lag
    put(ends, s.run_end)
    at, free, left, waits, ready = s.heap[0], s.heap[1], s.heap[2], s.heap[3], s.heap[4]
    for rank in range(ranks):
        at[rank], free[rank] = s.run[rank, 0], s.run[rank, 1]
        left[rank] = s.work[use[rank]] - s.run[rank, 2]
        waits[rank] = -1
        ready[rank] = ranks - 1 - rank
    count, unfinished, latest, done = ranks, ranks, 0, 0
    while count:
        count -= 1
        rank = ready[count]
        row = use[rank]
        node, clock, rest, length = at[rank], free[rank], left[rank], s.length[row]
        make, spans, starts = s.make[row], s.span[row], s.start[half, rank]
        while node < length:
            begin = clock
            blocked = False
            for side in range(2):
                item = make[node, side]
                if item >= 0 and reads[item] >= 0:
                    end = ends[reads[item]]
                    if end < 0:
                        waits[rank] = reads[item]
                        blocked = True
                        break
                    end += lag[item]
                    if end > begin:
                        begin = end
            if blocked:
                break
            starts[node] = begin
            if begin + rest - t.spans * starts[0] > limit:
                return NEVER
            s.sequence[done, 0] = rank
            s.sequence[done, 1] = node
            done += 1
            span = spans[node]
            clock = begin + span
            rest -= span
            for side in range(2):
                item = make[node, side]
                if item >= 0:
                    ends[item] = clock
                    if t.reader[item] >= 0:
                        other = t.maker[t.reader[item]]
                        if waits[other] == item:
                            waits[other] = -1
                            ready[count] = other
                            count += 1
            node += 1
        at[rank], free[rank], left[rank] = node, clock, rest
        if node == length:
            unfinished -= 1
            latest = max(latest, clock - t.spans * starts[0] if length else 0)
    return NEVER if unfinished else latest


@compiled
def note_places(s: State, row: int) -> None:
    """Note which node of a current row makes each of its items, where that may have changed."""
    for node in range(s.read[row % s.row.shape[0], 0], s.length[row]):
        for side in range(2):
            if s.make[row, node, side] >= 0:
                s.place[s.make[row, node, side]] = node


@compiled
def take(t: Tables, s: State, use: Ints) -> None:
    """Make the candidate that was measured last the current strings; work out places and tails."""
    s.side[0] = 1 - s.side[0]
    total = 0
    for rank in range(s.row.shape[0]):
        row = use[rank]
        total += s.length[row] - s.run[rank, 0]
        if row != s.row[rank]:
            s.row[rank] = row
            note_places(s, row)
    for k in range(total - 1, -1, -1):
        rank, node = s.sequence[k, 0], s.sequence[k, 1]
        row = s.row[rank]
        if node + 1 == s.length[row]:
            tail = -t.spans * s.start[s.side[0], rank, 0]
        else:
            tail = s.span[row, node + 1] + s.tail[rank, node + 1]
        for side in range(2):
            item = s.make[row, node, side]
            if item >= 0 and t.reader[item] >= 0:
                reader = t.reader[item]
                other, place = t.maker[reader], s.place[reader]
                tail = max(tail, t.lag[reader] + s.span[s.row[other], place] + s.tail[other, place])
        s.tail[rank, node] = tail


@compiled
def estimate(t: Tables, s: State, rank: int, row: int) -> int:
    """
    Longest path through the nodes that differ between a rank's candidate row and its current one, from old heads and tails.

    Exact but for paths that leave the rank and come back inside the window.
    """
    old, now = s.row[rank], s.side[0]
    starts, heads, ends = s.start[now, rank], s.start[1 - now, rank], s.end[now]
    low, high, old_high = s.low[row], s.size[row], s.size[old]
    while low < high and low < old_high and s.token[row, low] == s.token[old, low]:
        low += 1
    while high > low and old_high > low and s.token[row, high - 1] == s.token[old, old_high - 1]:
        high -= 1
        old_high -= 1
    node = s.first[row, low] if low < s.size[row] else s.length[row]
    stop = s.first[row, high] if high < s.size[row] else s.length[row]
    old_stop = s.length[old] - (s.length[row] - stop)
    clock = starts[node - 1] + s.span[old, node - 1] if node else 0
    for k in range(node, stop):
        for side in range(2):
            item = s.make[row, k, side]
            if item >= 0 and t.reads[item] >= 0:
                clock = max(clock, ends[t.reads[item]] + t.lag[item])
        heads[k] = clock
        clock += s.span[row, k]
    after = s.span[old, old_stop] + s.tail[rank, old_stop] if old_stop < s.length[old] else -t.spans * starts[0]
    longest = clock + after
    for k in range(stop - 1, node - 1, -1):
        for side in range(2):
            item = s.make[row, k, side]
            if item >= 0 and t.reader[item] >= 0:
                reader = t.reader[item]
                other, place = t.maker[reader], s.place[reader]
                after = max(after, t.lag[reader] + s.span[s.row[other], place] + s.tail[other, place])
        after += s.span[row, k]
        longest = max(longest, heads[k] + after)
    return int(longest)


@compiled
def critical_path(t: Tables, s: State, latest: int, path: Ints) -> int:
    """
    Write rank and position of the tokens of one critical path, picked at random among equals; returns how many.

    The path ends where what cannot change begins.
    """
    starts, ends = s.start[s.side[0]], s.end[s.side[0]]
    rank, ties = -1, 0
    for other in range(s.row.shape[0]):
        last = s.length[s.row[other]] - 1
        if last >= 0 and starts[other, last] + s.span[s.row[other], last] - t.spans * starts[other, 0] == latest:
            ties += 1
            if np.random.randint(ties) == 0:
                rank = other
    node = s.length[s.row[rank]] - 1
    count = 0
    while count == 0 or node >= s.run[rank, 0]:
        row, begin = s.row[rank], starts[rank, node]
        position = s.source[row, node]
        if count == 0 or path[count - 1, 0] != rank or path[count - 1, 1] != position:
            path[count, 0], path[count, 1] = rank, position
            count += 1
        cause, ties = -1, 0
        if node > 0 and starts[rank, node - 1] + s.span[row, node - 1] == begin:
            cause, ties = -2, 1
        for side in range(2):
            item = s.make[row, node, side]
            if item >= 0 and t.reads[item] >= 0 and ends[t.reads[item]] + t.lag[item] == begin:
                ties += 1
                if np.random.randint(ties) == 0:
                    cause = t.reads[item]
        if cause == -1:
            return count
        if cause == -2:
            node -= 1
        else:
            node = s.place[cause]
            rank = t.maker[cause]
    return count


@compiled
def pull(s: State, row: int, position: int) -> int:
    """Take a token out of a row."""
    tokens = s.token[row]
    token = tokens[position]
    last = s.size[row] - 1
    for k in range(position, last):
        tokens[k] = tokens[k + 1]
    s.size[row] = last
    return int(token)


@compiled
def push(s: State, row: int, position: int, token: int) -> None:
    """Put a token into a row, at its end at the latest."""
    tokens = s.token[row]
    size = s.size[row]
    position = min(position, size)
    for k in range(size, position, -1):
        tokens[k] = tokens[k - 1]
    tokens[position] = token
    s.size[row] = size + 1


@compiled
def near(s: State, row: int, position: int, token: int, reach: int) -> int:
    """The nearest place of a token around a position, or -1."""
    for away in range(1, reach + 1):
        for place in (position + away, position - away):
            if s.low[row] <= place < s.size[row] and s.token[row, place] == token:
                return place
    return -1


@compiled
def split(t: Tables, s: State, row: int, position: int, far: int, choice: int) -> bool:
    """A pair into its two parts, a full backward into I and W, or both in one step."""
    slots = t.slots
    token = s.token[row, position]
    if token >= t.part.shape[0]:
        return False
    first, second = t.part[token, 0], t.part[token, 1]
    if second < 0:
        return _split_backward(slots, s, row, position, abs(far))
    if choice & 1:
        first, second = second, first
    s.token[row, position] = first
    behind = min(position + 1 + (abs(far) if choice & 2 else 0), s.size[row])
    push(s, row, behind, second)
    if choice & 4:
        _split_backward(slots, s, row, position if first // slots == B else behind, choice // 8)
    return True


@compiled
def _split_backward(slots: int, s: State, row: int, position: int, away: int) -> bool:
    token = s.token[row, position]
    if token // slots != B:
        return False
    s.token[row, position] = I * slots + token % slots
    push(s, row, position + 1 + away, W * slots + token % slots)
    return True


@compiled
def join(t: Tables, s: State, rank: int, row: int, position: int, far: int, choice: int) -> bool:
    """A single part and another near it into one token; the W behind an I comes along where that makes it a pair."""
    slots = t.slots
    part = s.token[row, position]
    if part >= 4 * slots:
        return False
    if part // slots == I and choice & 1:
        weight = near(s, row, position, W * slots + part % slots, 2 * REACH)
        if weight >= 0:
            s.token[row, position] = B * slots + part % slots
            pull(s, row, weight)
        return weight >= 0
    step = 1 if far > 0 else -1
    for away in range(1, REACH + 1):
        for other in (position + step * away, position - step * away):
            single = s.low[row] <= other < s.size[row] and s.token[row, other] < 4 * slots
            if single and _join_two(t, s, rank, row, position, other, choice & 2 > 0):
                return True
    return False


@compiled
def _join_two(t: Tables, s: State, rank: int, row: int, one: int, two: int, at_one: bool) -> bool:
    slots = t.slots
    first, second = s.token[row, one], s.token[row, two]
    where, gone = (one, two) if at_one else (two, one)
    pair = t.pair[first, second]
    if pair >= 0 and t.span[rank, pair] >= 0:
        s.token[row, where] = pair
        pull(s, row, gone)
        return True
    if (first // slots == I) == (second // slots == I):
        return False
    backward = one if first // slots == I else two
    slot = s.token[row, backward] % slots
    pair = t.pair[B * slots + slot, second if backward == one else first]
    if pair < 0 or t.span[rank, pair] < 0:
        return False
    weight = near(s, row, backward, W * slots + slot, 2 * REACH)
    if weight < 0 or weight == gone:
        return False
    s.token[row, where] = pair
    pull(s, row, max(gone, weight))
    pull(s, row, min(gone, weight))
    return True


@compiled
def change(t: Tables, s: State, rank: int, position: int, kind: int, far: int, choice: int) -> bool:
    """Write a changed string of a rank to its candidate row; False where this kind of change does not apply."""
    old = s.row[rank]
    ranks = s.row.shape[0]
    row = rank + ranks if old == rank else rank
    size = s.size[old]
    target = position + far
    if position < s.low[row] or (kind <= SWAP and not s.low[row] <= target < size):
        return False
    s.size[row] = size
    for k in range(s.low[row], size):
        s.token[row, k] = s.token[old, k]
    if kind == SHIFT:
        push(s, row, target, pull(s, row, position))
    elif kind == SWAP:
        s.token[row, position], s.token[row, target] = s.token[old, target], s.token[old, position]
    elif kind == SPLIT:
        if not split(t, s, row, position, far, choice):
            return False
    elif not join(t, s, rank, row, position, far, choice):
        return False
    return read_row(t, s, rank, row)


@compiled
def matching(t: Tables, s: State, rank: int, position: int, other: int, later: int) -> int:
    """On another rank, the token that does what one does here, some micro-batches later; -1 if there is none."""
    row = s.row[rank]
    node = s.first[row, position]
    item = max(s.make[row, node, 0], s.make[row, node, 1])
    if item < 0:
        return -1
    half = t.reads.shape[0] // 2
    base = 0 if item < half else half
    stage, number = (item - base) // t.per_stage, (item - base) % t.per_stage + later
    slot = 0
    while t.stage[rank, slot] != stage:
        slot += 1
    stage = t.stage[other, slot]
    if stage < 0 or not 0 <= number < t.per_stage:
        return -1
    place = s.source[s.row[other], s.place[base + stage * t.per_stage + number]]
    return place if s.token[s.row[other], place] == s.token[row, position] else -1


@compiled
def begin(t: Tables, s: State, part: int) -> int:
    """
    Read the current strings and work out what follows from them; their length, NEVER where they cannot run.

    Of an epilogue that is to change, all that runs without it is worked out here, once, and not again with every candidate.
    """
    fill(s.low, 0)
    fill(s.read.ravel(), 0)
    fill(s.read_counts.ravel(), 0)
    fill(s.run.ravel(), 0)
    fill(s.run_end, -1)
    for rank in range(s.row.shape[0]):
        if not read_row(t, s, rank, s.row[rank]):
            return NEVER
        note_places(s, s.row[rank])
    put(s.use, s.row)
    length = makespan(t, s, s.use, NEVER)
    if length < NEVER:
        take(t, s, s.use)
        if part == EPILOGUE:
            freeze(t, s)
    return length


@compiled
def freeze(t: Tables, s: State) -> None:
    """Let nothing change in the current strings but what stands behind the kernels."""
    ranks, kernel = s.row.shape[0], t.span.shape[1]
    for rank in range(ranks):
        row, read = s.row[rank], s.read[rank]
        other, size = row + ranks if row == rank else rank, s.size[row]
        put(s.token[other], s.token[row])
        low = 0
        while low < size and s.token[row, low] != kernel:
            low += 1
        low = min(low + 1, size)
        for each in (other, row):
            s.size[each] = low
            read_row(t, s, rank, each)
            s.low[each] = low
        s.size[row] = size
        read[0], read[1], read[2], read[3], read[4] = s.length[row], s.held[row], s.work[row], s.peak[row], s.pairs[row]
        for kind in range(4):
            put(s.read_counts[rank, kind], s.counts[kind])
    # The strings end here behind their kernels: as far as they run now, nothing behind can hold them up.
    makespan(t, s, s.use, NEVER)
    half = 1 - s.side[0]
    put(s.run_end, s.end[half])
    for rank in range(ranks):
        run, row = s.run[rank], s.row[rank]
        run[0], run[1] = s.heap[0, rank], s.heap[1, rank]
        for node in range(run[0]):
            run[2] += s.span[row, node]
        read_row(t, s, rank, row)
    makespan(t, s, s.use, NEVER)
    put(s.start[1 - half].ravel(), s.start[half].ravel())
    take(t, s, s.use)


@compiled
def try_change(t: Tables, s: State, use: Ints, rank: int, position: int) -> int:
    """
    Make candidate rows by a random change at a token, on its rank or at the matching tokens of ranks around it as well.

    Returns 0 if it does not apply, 1 if one rank has a candidate, 2 if several may have.
    """
    ranks = s.row.shape[0]
    draw = np.random.randint(10)
    kind = SHIFT if draw < 4 else SWAP if draw < 6 else JOIN if draw < 8 else SPLIT
    far = (np.random.randint(SWAP_REACH if kind == SWAP else REACH) + 1) * (1 if np.random.randint(2) else -1)
    choice = np.random.randint(64)
    low = high = rank
    later = 0
    if ranks > 1 and np.random.randint(4) == 0:
        low, high = max(0, rank - np.random.randint(ranks)), min(ranks - 1, rank + np.random.randint(ranks))
        later = np.random.randint(3) - 1
    for other in range(low, high + 1):
        where = position if other == rank else matching(t, s, rank, position, other, later * (other - rank))
        if where >= 0:
            if not change(t, s, other, where, kind, far, choice):
                return 0
            use[other] = other + ranks if s.row[other] == other else other
    return 1 if low == high else 2


@compiled
def stands_before_kernel(t: Tables, s: State, rank: int, position: int) -> bool:
    """Whether a token is one of the prologue."""
    tokens, at = s.token[s.row[rank]], 0
    while at < position and tokens[at] != t.span.shape[1]:
        at += 1
    return bool(tokens[at] != t.span.shape[1])


@compiled
def anneal(
    t: Tables,
    s: State,
    seed: int,
    tried: int,
    stop: int,
    total: int,
    hot: float,
    cold: float,
    target: int,
    part: int,
    tidying: bool,
    best: Ints,
    size: Ints,
) -> tuple[int, int]:
    """
    Try changes number tried..stop-1 of a run that cools geometrically over ``total`` changes.

    Changes are made on critical paths, in one part of the strings, to shorten them; or when ``tidying`` anywhere, to lower the
    burden of an order that is within the target. Returns the changes tried and the least length; ``best`` and ``size`` get the
    strings that have it, but what was tidied are the current strings.
    """
    t, s = borrowed(t), borrowed(s)
    np.random.seed(seed)
    now = begin(t, s, part)
    path = s.path
    on_path = critical_path(t, s, now, path) if now < NEVER else 0
    use = s.use
    put(use, s.row)
    lowest, least = NEVER, burden(s, use)
    while now < NEVER:
        if now < lowest and not tidying:
            lowest = now
            for rank in range(s.row.shape[0]):
                put(best[rank], s.token[s.row[rank]])
                size[rank] = s.size[s.row[rank]]
        if tried >= stop or (lowest <= target and not tidying):
            break
        tried += 1
        if tidying:
            rank = np.random.randint(s.row.shape[0])
            if s.size[s.row[rank]] == 0:
                continue
            position = np.random.randint(s.size[s.row[rank]])
        else:
            pick = np.random.randint(on_path)
            rank, position = path[pick, 0], path[pick, 1]
            if np.random.randint(4) == 0:
                position = min(max(position + np.random.randint(7) - 3, 0), s.size[s.row[rank]] - 1)
            if part == PROLOGUE and not stands_before_kernel(t, s, rank, position):
                continue
        changed = try_change(t, s, use, rank, position)
        limit = target
        if not tidying:
            limit = now + int(-hot * (cold / hot) ** (tried / total) * math.log(1.0 - np.random.random()))
        worth = changed == 2 or (changed == 1 and estimate(t, s, rank, use[rank]) <= limit)
        if worth and (not tidying or burden(s, use) <= least):
            length = makespan(t, s, use, limit)
            if length < NEVER:
                now, least = length, burden(s, use)
                take(t, s, use)
                on_path = critical_path(t, s, now, path)
                continue
        put(use, s.row)
    return tried, lowest


@compiled
def burden(s: State, use: Ints) -> int:
    """Squares of the ranks' peaks, before fewer pairs."""
    total = 0
    for rank in range(use.shape[0]):
        total += s.peak[use[rank]] ** 2 * s.sequence.shape[0] - s.pairs[use[rank]]
    return total
