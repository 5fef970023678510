"""
List scheduling: a legal order for any placement and any limits that one micro-batch fits into.

Ranks work through time; a rank that is free takes the best block whose inputs are there. A forward is taken only if afterwards
every micro-batch can still be finished, oldest first, with the activations that are left: so memory can never lock up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import product

from verifier.search.strings import Board, Order, Token


@dataclass(frozen=True)
class Taste:
    """
    What a free rank prefers.

    Parameters
    ----------
    backward_first
        Of a forward and a backward that are both ready, whether the backward goes first.
    split
        Whether I and W run apart where both ways are allowed; W then fills gaps.
    deep_first
        Of two forwards or two backwards, whether the one further along its way goes first.
    patience
        Weight gradients that may wait on a rank before they go before forwards.
    """

    backward_first: bool = True
    split: bool = True
    deep_first: bool = True
    patience: int = 1_000_000

    def __str__(self) -> str:
        """What an order made with it is called."""
        words = ["backwards" if self.backward_first else "forwards", "deep" if self.deep_first else "shallow"]
        late = "" if not self.split or self.patience > 2 else f", at most {self.patience} W waiting"
        return f"list scheduling, {' and '.join(words)} first{', split' if self.split else ''}{late}"


TASTES = tuple(
    Taste(backward, split, deep, patience)
    for backward, split, deep, patience in product((True, False), (True, False), (True, False), (0, 2, 1_000_000))
    if split or patience
)


def greedy(board: Board, taste: Taste = TASTES[0]) -> Order:
    """
    A legal order by list scheduling.

    Notes
    -----
    Time n log n in the number n of blocks, times the micro-batches in flight where memory is tight.

    Examples
    --------
    >>> from verifier.costs import CostModel
    >>> from verifier.model import Limits, Problem
    >>> board = Board(Problem(((0, 1),), (3,)), CostModel.of(), Limits(1))
    >>> [board.name(token) for token in greedy(board)[1]]
    ['F0', 'I0', 'W0', 'F0', 'I0', 'W0', 'F0', 'I0', 'W0']
    """
    return _Run(board, taste).order()


class _Run:
    """The state of one pass through time."""

    def __init__(self, board: Board, taste: Taste) -> None:
        self.board, self.taste = board, taste
        stages = len(board.home)
        self.forwards: list[list[int]] = [[] for _ in range(stages)]
        """Ends of the forwards of each stage, then of its input backwards."""
        self.backwards: list[list[int]] = [[] for _ in range(stages)]
        self.waiting: list[deque[int]] = [deque() for _ in range(stages)]
        self.freed: list[list[int]] = [[0] * count for count in board.counts]
        """Steps of its activation that each micro-batch has given back, by stage."""
        self.free = [0] * board.ranks
        self.held = [0] * board.ranks
        self.rows: list[list[Token]] = [[] for _ in range(board.ranks)]
        self.spans = [
            {token: span for token in board.tokens if (span := board.span(rank, token)) >= 0} for rank in range(board.ranks)
        ]
        self.takes = [board.steps(stage, "F") for stage in range(stages)]
        self.frees = [{kind: board.steps(stage, kind) for kind in "BIW"} for stage in range(stages)]
        self.events: list[tuple[int, int]] = [(0, rank) for rank in range(board.ranks)]

    def order(self) -> Order:
        while self.events:
            clock, rank = heappop(self.events)
            if self.free[rank] <= clock:
                token = self._choose(rank, clock)
                if token:
                    self._run(rank, token, clock)
        return tuple(map(tuple, self.rows))

    # ---------------------------------------------------------------------------------------------------- what is ready

    def _forward_ready(self, stage: int, clock: int) -> bool:
        done = len(self.forwards[stage])
        if done == self.board.counts[stage]:
            return False
        if stage % self.board.problem.stages == 0:
            return True
        made = self.forwards[stage - 1]
        return done < len(made) and made[done] + self.board.lag(stage - 1, 1) <= clock

    def _backward_ready(self, stage: int, clock: int) -> bool:
        done = len(self.backwards[stage])
        own = self.forwards[stage]
        if done >= len(own) or own[done] > clock:
            return False
        if stage % self.board.problem.stages == self.board.problem.stages - 1:
            return True
        made = self.backwards[stage + 1]
        return done < len(made) and made[done] + self.board.lag(stage + 1, -1) <= clock

    def _choose(self, rank: int, clock: int) -> Token | None:
        chain = self.board.chain[rank]
        slots = range(len(chain))
        forward = [slot for slot in slots if self._forward_ready(chain[slot], clock) and self._fits(rank, chain[slot])]
        backward = [slot for slot in slots if self._backward_ready(chain[slot], clock)]
        waiting = [slot for slot in slots if self.waiting[chain[slot]]]
        for slots_ready in (forward, backward):
            slots_ready.sort(key=lambda slot: chain[slot] % self.board.problem.stages, reverse=self.taste.deep_first)
        ready = {"F": forward, "B": backward, "I": backward, "W": waiting}
        return min(self._candidates(rank, ready), key=lambda found: found[0], default=(0, None))[1]

    def _candidates(self, rank: int, ready: dict[str, list[int]]) -> Iterator[tuple[tuple[int, int], Token]]:
        """Blocks that could run now, each with its place in the taste's preference."""
        taste, spans = self.taste, self.spans[rank]
        late = sum(len(self.waiting[stage]) for stage in self.board.chain[rank]) > taste.patience
        forward, backward = (2, 1) if taste.backward_first else (1, 2)
        place = {"F": forward, "I": backward, "B": backward, "W": 0 if late else 3}
        for token, span in spans.items():
            ranks_of_slots = [ready[kind].index(slot) if slot in ready[kind] else -1 for kind, slot in token]
            if -1 in ranks_of_slots:
                continue
            if len(token) == 2:
                alone = sum(spans.get((part,), span) for part in token)
                if span <= alone and token[0] != token[1]:
                    yield (-1 if span < alone else 0, sum(ranks_of_slots)), token
                continue
            kind, slot = token[0]
            other = {"I": "B", "B": "I"}.get(kind)
            if other and ((other, slot),) in spans and (kind == "I") != taste.split:
                continue
            yield (place[kind], ranks_of_slots[0]), token

    # ----------------------------------------------------------------------------------------------------------- memory

    def _fits(self, rank: int, stage: int) -> bool:
        """Whether a forward leaves room to finish every micro-batch, oldest first."""
        cap = self.board.cap(rank)
        left = cap - self.held[rank] - self.takes[stage]
        if left < 0:
            return False
        chain = self.board.chain[rank]
        if left >= sum(self.takes[at] for at in chain):
            return True
        done = [len(self.forwards[at]) + (at == stage) for at in chain]
        last = max(done)
        first = min(self.waiting[at][0] if self.waiting[at] else len(self.backwards[at]) for at in chain)
        for microbatch in range(first, last):
            for direction in range(self.board.chains):
                held = need = 0
                for slot, at in enumerate(chain):
                    if at // self.board.problem.stages == direction and microbatch < self.board.counts[at]:
                        if microbatch < done[slot]:
                            held += self.takes[at] - self.freed[at][microbatch]
                        else:
                            need += self.takes[at]
                if need > left:
                    return False
                left += held
        return True

    # -------------------------------------------------------------------------------------------------------------- run

    def _run(self, rank: int, token: Token, clock: int) -> None:
        end = clock + self.spans[rank][token]
        self.rows[rank].append(token)
        self.free[rank] = end
        heappush(self.events, (end, rank))
        for kind, slot in reversed(token):
            stage = self.board.chain[rank][slot]
            self._finish(stage, kind, end)
            self.held[rank] += self.takes[stage] if kind == "F" else -self.frees[stage][kind]
            towards = 1 if kind == "F" else -1
            if kind != "W" and 0 <= stage % self.board.problem.stages + towards < self.board.problem.stages:
                heappush(self.events, (end + self.board.lag(stage, towards), self.board.home[stage + towards][0]))

    def _finish(self, stage: int, kind: str, end: int) -> None:
        if kind == "F":
            self.forwards[stage].append(end)
            return
        if kind == "W":
            number = self.waiting[stage].popleft()
        else:
            number = len(self.backwards[stage])
            self.backwards[stage].append(end)
            if kind == "I":
                self.waiting[stage].append(number)
        self.freed[stage][number] += self.frees[stage][kind]
