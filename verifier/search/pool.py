"""Annealing runs on one board, and the pool of orders that they start from and add to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import NamedTuple

from verifier.search import anneal, arrays
from verifier.search.anneal import NEVER, Ints, State
from verifier.search.kernels import WHOLE
from verifier.search.seeds import Found
from verifier.search.strings import Board, Order

HEATS, COLD = (0.02, 0.05, 0.1, 0.3), 0.01
"""Temperatures at the start and at the end of a run, in units of the average single part."""
PART_HEATS, KEPT_HEATS = (0.03, 0.04, 0.05, 0.06), (0.02, 0.03, 0.04, 0.05)
"""
Constant temperatures of runs on one part of an order with a kernel, from its start and from what was found: what is good about
an order should survive. Measured with P = 16: many short runs at such heats find what long ones, or those that cool, do not.
"""
POOL, PART_POOL = 6, 12
"""Orders that are kept to go on from, and seeds that are tried."""
RUN, LEAST_RUN = 150, 2_000
"""Changes tried in the shortest run, per block of the order and at least."""
ROUND = 2
"""Runs that start from the same pool."""
PART_RUN = 8
"""How many times the shortest run the longest one on one part is."""
TIDY_RUN = 300
"""Changes tried in the last pass for fewer activations, per block of the order."""
SLICE = 20_000
"""Changes between two looks at the clock."""


class _Run(NamedTuple):
    """A run that is to be made."""

    source: Found
    hot: float
    cold: float
    length: int
    seed: int
    part: int


class Pool:
    """
    The best orders of a board.

    Parameters
    ----------
    board
        The problem.
    starts
        Named orders; those that hang or break a limit are left out.
    kernels, microbatches
        On rank r the empty token of an order stands for ``kernels[r]``, which runs so many micro-batches of each stage.
    spans
        Whether a rank's time counts from its first start.
    seed
        Of the random choices.
    """

    def __init__(
        self,
        board: Board,
        starts: Iterable[tuple[str, Order]],
        *,
        kernels: Order = (),
        microbatches: int = 0,
        spans: bool = False,
        seed: int = 0,
    ) -> None:
        self.board, self.random, self.spent = board, Random(seed), 0
        self.tables = arrays.tables(board, kernels, microbatches, spans=spans)
        self.state = arrays.state(board, self.tables, ())
        self.starts = sorted(self._measured(starts), key=lambda found: found.ticks)[:POOL]
        self.kept = list(self.starts)
        self._lengths, self._stopped = luby(), False
        units = [
            max(0, board.span(rank, ((kind, slot),)))
            for rank, row in enumerate(board.chain)
            for slot in range(len(row))
            for kind in "FB"
        ]
        self._unit = sum(units) / len(units) * 2 / 3 or 1.0

    def _measured(self, starts: Iterable[tuple[str, Order]]) -> Iterator[Found]:
        for name, order in starts:
            arrays.load(self.board, self.state, order)
            ticks = int(anneal.begin(self.tables, self.state, WHOLE))
            if ticks < NEVER:
                yield Found(ticks, name, order)

    @property
    def best(self) -> Found:
        """The shortest order."""
        return self.kept[0]

    def search(self, evaluations: int, target: int, due: Callable[[], bool], part: int = WHOLE) -> None:
        """
        Annealing runs until the target is met, so many changes are tried in all, or ``due`` says that it is time.

        Runs come in rounds whose members start from the same pool, side by side; so the result does not depend on the cores.

        Parameters
        ----------
        part
            WHOLE, PROLOGUE or EPILOGUE: where orders are changed. A search of one part starts from the best order.
        """
        self._stopped, until = False, self.spent + evaluations
        if part != WHOLE:
            self.starts, self._lengths = [self.best], growing()
        with ThreadPoolExecutor(min(ROUND, os.cpu_count() or 1)) as workers:
            while self.best.ticks > target and self.spent < until and not due():
                runs = [self._plan(until - self.spent, part) for _ in range(ROUND)]
                states = [arrays.copied(self.state) for _ in runs]
                done = [workers.submit(self._run, run, state, target, due) for run, state in zip(runs, states, strict=True)]
                try:
                    results = [future.result() for future in done]
                except BaseException:
                    self._stopped = True
                    raise
                for run, (tried, found) in zip(runs, results, strict=True):
                    self.spent += tried
                    self._keep(found, run)

    def _plan(self, most: int, part: int) -> _Run:
        """What the next run starts from, how hot and how long."""
        fresh = self.random.random() < 0.5
        kept = self.kept if part == WHOLE else [found for found in self.kept if found.ticks == self.best.ticks]
        source = self.random.choice(self.starts if fresh else kept)
        heat = self.random.choice(HEATS if part == WHOLE else PART_HEATS if fresh else KEPT_HEATS) * self._unit
        cold = min(heat, COLD * self._unit) if part == WHOLE else heat
        length = min(most, max(LEAST_RUN, RUN * sum(map(len, source.order))) * next(self._lengths))
        return _Run(source, heat, cold, length, self.random.getrandbits(30), part)

    def _run(self, run: _Run, state: State, target: int, due: Callable[[], bool]) -> tuple[int, Found]:
        """Anneal; how many changes were tried, and the best order met."""
        arrays.load(self.board, state, run.source.order)
        rows = slice(self.board.ranks)
        best, size = state.token[rows].copy(), state.size[rows].copy()
        found, done = run.source, 0
        while done < run.length and found.ticks > target and not self._stopped and not due():
            stop = min(run.length, done + SLICE)
            done, ticks = anneal.anneal(
                self.tables,
                state,
                run.seed + done,
                done,
                stop,
                run.length,
                run.hot,
                run.cold,
                target,
                run.part,
                False,
                best,
                size,
            )
            if ticks < found.ticks:
                found = Found(int(ticks), run.source.start, self._order(best, size))
        return done, found

    def _keep(self, found: Found, run: _Run) -> None:
        """Keep an order if it is among the best; after a change of one part in place of its source, so that lines differ."""
        if any(found.order == other.order for other in self.kept):
            return
        if run.part != WHOLE and run.source in self.kept[1:] and found.ticks <= run.source.ticks:
            self.kept.remove(run.source)
        self.kept.append(found)
        self.kept.sort(key=lambda other: other.ticks)
        del self.kept[POOL if run.part == WHOLE else PART_POOL :]

    def tidy(self, tries: int, due: Callable[[], bool]) -> None:
        """Give the best order fewer activations, and then more pairs, without making it longer, by at most so many changes."""
        t, s, best = self.tables, self.state, self.best
        arrays.load(self.board, s, best.order)
        tries, done = min(tries, TIDY_RUN * sum(map(len, best.order))), 0
        while done < tries and not due():
            stop, key = min(tries, done + SLICE), self.random.getrandbits(30)
            done, _ = anneal.anneal(t, s, key, done, stop, tries, 1.0, 1.0, best.ticks, WHOLE, True, s.token, s.size)
        self.spent += done
        # It may have become shorter, too.
        self.kept[0] = Found(int(anneal.begin(t, s, WHOLE)), best.start, self._order(s.token[s.row], s.size[s.row]))

    def _order(self, tokens: Ints, sizes: Ints) -> Order:
        names = (*self.board.tokens, ())
        return tuple(
            tuple(names[code] for code in row[:size]) for row, size in zip(tokens.tolist(), sizes.tolist(), strict=True)
        )


def growing() -> Iterator[int]:
    """
    Lengths that double with every round up to the longest, so that a small budget sees the end of a run, too.

    Examples
    --------
    >>> from itertools import islice
    >>> list(islice(growing(), 12))
    [1, 1, 2, 2, 4, 4, 8, 8, 8, 8, 8, 8]
    """
    length = 1
    while True:
        yield from (length,) * ROUND
        length = min(2 * length, PART_RUN)


def luby() -> Iterator[int]:
    """
    Lengths for restarts: 1, 1, 2, 1, 1, 2, 4, ...: as good as any, up to a logarithm, where nothing is known of the landscape.

    Examples
    --------
    >>> from itertools import islice
    >>> list(islice(luby(), 15))
    [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]

    References
    ----------
    Luby, Sinclair, Zuckerman, "Optimal speedup of Las Vegas algorithms", 1993.
    """
    power = 1
    yield 1
    while True:
        # The sequence up to here once more, then twice its last power.
        yield from _luby(power)
        power *= 2
        yield power


def _luby(power: int) -> Iterator[int]:
    if power > 1:
        yield from _luby(power // 2)
        yield from _luby(power // 2)
    yield power
