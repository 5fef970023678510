"""
One search for all micro-batch counts: an order as prologue, kernel, epilogue.

On every rank the order has one place where its kernel is repeated: a stretch of blocks that runs the same number of forwards,
input backwards and weight gradients on each of its stages, so that the rank's memory and counts come back to where they were.
With good places the makespan grows by exactly the kernel's work for every repetition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from verifier.model import Problem, Schedule, ScheduleError
from verifier.search.strings import Board, Order, Token

KERNEL: Token = ()
"""Where the kernel stands in a string."""
WHOLE, PROLOGUE, EPILOGUE = range(3)
"""Parts of an order: all of it, what stands before its kernels, what stands behind them."""
LOOKS = 12
"""Moments of the timeline where the kernel is tried first."""
LONGEST = 24
"""Blocks of the longest kernel that is looked for in an order."""


@dataclass(frozen=True)
class KernelForm:
    """
    An order for every micro-batch count from a least one on.

    Parameters
    ----------
    board
        The problem without any repetition of the kernel.
    order
        With :data:`KERNEL` once in every row.
    kernels
        ``kernels[rank]``: what is repeated.
    microbatches
        Of each stage, that one repetition runs.
    """

    board: Board
    order: Order
    kernels: Order
    microbatches: int = 1

    def turns(self, problem: Problem) -> int:
        """
        Repetitions that make this the order of a problem.

        Raises
        ------
        ScheduleError
            If the problem has too few micro-batches, or the step does not divide what is missing.
        """
        base = self.board.problem
        more = {count - least for count, least in zip(problem.microbatches, base.microbatches, strict=True)}
        if problem.placement != base.placement or len(more) != 1 or min(more) < 0 or min(more) % self.microbatches:
            raise ScheduleError(
                f"micro-batches: the kernel makes {list(base.microbatches)}, and any multiple of {self.microbatches} more "
                f"in each direction; got {list(problem.microbatches)}"
            )
        return min(more) // self.microbatches

    def schedule(self, problem: Problem, name: str = "") -> Schedule:
        """The schedule of a problem with more micro-batches; errors as :meth:`turns`."""
        turns = self.turns(problem)
        return replace(self.board, problem=problem).decode(self.expanded(turns), name)

    def expanded(self, turns: int) -> Order:
        """The strings with every kernel written out."""
        return tuple(
            tuple(single for token in row for single in ((token,) if token else kernel * turns))
            for row, kernel in zip(self.order, self.kernels, strict=True)
        )

    def work(self) -> int:
        """Ticks that the busiest rank works in one repetition: no order grows by less."""
        board = self.board
        return max(sum(board.span(rank, token) for token in kernel) for rank, kernel in enumerate(self.kernels))

    def makespan(self, turns: int) -> int | None:
        """Ticks at so many repetitions; None if the ranks hang."""
        meter = _Meter(self.board, max(map(len, self.kernels)), self.microbatches, turns)
        return meter.measure(self.order, self.kernels)


class _Meter:
    """Makespans of orders of one board with so many repetitions of kernels up to some length."""

    def __init__(self, board: Board, longest: int, microbatches: int, turns: int) -> None:
        from verifier.search import anneal, arrays

        self._anneal, self._arrays, self.board, self.turns = anneal, arrays, board, turns
        self.tables = arrays.tables(board, [()] * board.ranks, microbatches * turns, room=longest * turns)
        self.state = arrays.state(board, self.tables, ())

    def load(self, rank: int, row: tuple[Token, ...], kernel: tuple[Token, ...]) -> bool:
        """Give a rank its string and its kernel; False if it could not run them even alone."""
        self._arrays.load_row(self.board, self.state, rank, row)
        self._arrays.load_kernel(self.board, self.tables, rank, kernel * self.turns)
        return bool(self._anneal.read_row(self.tables, self.state, rank, rank))

    def length(self) -> int | None:
        """Makespan of what was loaded."""
        found = self._anneal.begin(self.tables, self.state, WHOLE)
        return None if found == self._anneal.NEVER else int(found)

    def measure(self, order: Order, kernels: Order) -> int | None:
        for rank, (row, kernel) in enumerate(zip(order, kernels, strict=True)):
            if not self.load(rank, row, kernel):
                return None
        return self.length()

    def starts(self) -> list[list[int]]:
        """Start of every block that was measured last."""
        half = self.state.start[self.state.side[0]]
        return [half[rank, : self.state.size[rank]].tolist() for rank in range(self.board.ranks)]


Choice = tuple[int, tuple[Token, ...]]
"""A place in a rank's string, and what is repeated there."""


def known_kernels(board: Board) -> Iterator[Order]:
    """Kernels with one micro-batch of each stage: in pairs of a forward with a backward of the next stage, and in none."""
    for make in (_in_pairs, _apart, _whole):
        kernels = tuple(tuple(make(len(board.chain[rank]))) for rank in range(board.ranks))
        if all(board.span(rank, token) >= 0 for rank, kernel in enumerate(kernels) for token in kernel):
            yield kernels


def _in_pairs(slots: int) -> Iterator[Token]:
    return ((("F", slot), ("B", (slot + 1) % slots)) for slot in range(slots))


def _apart(slots: int) -> Iterator[Token]:
    return (((kind, slot),) for slot in range(slots) for kind in "FIW")


def _whole(slots: int) -> Iterator[Token]:
    return (((kind, slot),) for slot in range(slots) for kind in "FB")


def found_kernels(board: Board, order: Order, kernels: Order) -> KernelForm | None:
    """
    Repeat given kernels where the ranks run them already, at the first such place of each; None where a rank has none.

    Examples
    --------
    >>> from verifier.costs import CostModel
    >>> from verifier.families import build_family
    >>> from verifier.model import Limits
    >>> schedule, longer = build_family("dualpipe", 4, 12), build_family("dualpipe", 4, 100)
    >>> board = Board(schedule.problem, CostModel.of(), Limits(5))
    >>> form = found_kernels(board, board.encode(schedule), next(known_kernels(board)))
    >>> form.schedule(longer.problem).order == longer.order
    True
    """
    places = [
        next((at for at in range(len(row)) if row[at : at + len(kernel)] == kernel), None)
        for row, kernel in zip(order, kernels, strict=True)
    ]
    if None in places or not all(kernels):
        return None
    rows = (_with_kernel(row, at) for row, at in zip(order, places, strict=True) if at is not None)
    return KernelForm(board, tuple(rows), kernels)


def place_kernels(board: Board, order: Order, kernels: Order, turns: int) -> KernelForm | None:
    """
    Repeat given kernels in an order, at one moment of its timeline on all ranks; None where the ranks would hang.

    The moment is the one that lengthens the order least at so many turns; :func:`settled` then looks at each rank.
    """
    options = [[(at, kernel) for at in range(len(row) + 1)] for row, kernel in zip(order, kernels, strict=True)]
    return _place(board, order, options, turns, 1)


def own_kernels(board: Board, order: Order, turns: int, microbatches: int) -> KernelForm | None:
    """As :func:`place_kernels`, of stretches of the order itself that run so many micro-batches of each stage."""
    options = [list(_stretches(row, len(board.chain[rank]), microbatches)) for rank, row in enumerate(order)]
    return _place(board, order, options, turns, microbatches)


def settled(form: KernelForm, turns: int) -> KernelForm:
    """
    A form with its kernels at the places of each rank that lengthen it least: one rank at a time, as long as that helps.
    """
    board, rows = form.board, [tuple(token for token in row if token != KERNEL) for row in form.order]
    meter = _Meter(board, max(map(len, form.kernels)), form.microbatches, turns)
    chosen = [row.index(KERNEL) for row in form.order]
    length = meter.measure(form.order, form.kernels)
    assert length is not None, "a form has a timeline"
    improved = True
    while improved:
        improved = False
        for rank, row in enumerate(rows):
            for at in range(len(row) + 1):
                meter.load(rank, _with_kernel(row, at), form.kernels[rank])
                found = meter.length()
                if found is not None and found < length:
                    length, chosen[rank], improved = found, at, True
            meter.load(rank, _with_kernel(row, chosen[rank]), form.kernels[rank])
    return replace(form, order=tuple(map(_with_kernel, rows, chosen)))


def _stretches(row: tuple[Token, ...], slots: int, microbatches: int) -> Iterator[Choice]:
    """From every place the shortest stretch that runs as many of each kind of op of each slot."""
    goal = [microbatches] * (3 * slots)
    for begin in range(len(row)):
        counts = [0] * (3 * slots)
        for end in range(begin, min(len(row), begin + LONGEST * microbatches)):
            for kind, slot in row[end]:
                for letter in "IW" if kind == "B" else kind:
                    counts["FIW".index(letter) * slots + slot] += 1
            if counts == goal:
                yield begin, row[begin : end + 1]
            if max(counts) > microbatches or counts == goal:
                break


def _place(board: Board, order: Order, options: list[list[Choice]], turns: int, microbatches: int) -> KernelForm | None:
    longest = max((len(kernel) for row in options for _, kernel in row), default=0)
    meter = _Meter(board, longest, microbatches, turns)
    legal = [
        [(at, kernel) for at, kernel in row if meter.load(rank, _with_kernel(order[rank], at), kernel)]
        for rank, row in enumerate(options)
    ]
    plain = _Meter(board, 0, 0, 0)
    if not all(legal) or plain.measure(order, ((),) * board.ranks) is None:
        return None
    starts = plain.starts()
    latest = max(begin for row in starts for begin in row)
    best: tuple[int, KernelForm] | None = None
    for look in range(1, LOOKS):
        chosen = [_nearest(row, [*begins, latest], latest * look // LOOKS) for row, begins in zip(legal, starts, strict=True)]
        placed = tuple(_with_kernel(row, at) for row, (at, _) in zip(order, chosen, strict=True))
        form = KernelForm(board, placed, tuple(kernel for _, kernel in chosen), microbatches)
        length = meter.measure(placed, form.kernels)
        if length is not None and (best is None or length < best[0]):
            best = length, form
    return best and best[1]


def _nearest(options: list[Choice], starts: list[int], moment: int) -> Choice:
    return min(options, key=lambda choice: abs(starts[choice[0]] - moment))


def _with_kernel(row: tuple[Token, ...], at: int) -> tuple[Token, ...]:
    return (*row[:at], KERNEL, *row[at:])
