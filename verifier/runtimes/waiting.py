"""Who waits for what: from the ranks' lists, and the parts that each has run, to lines that a person understands."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from verifier.model import Problem

_WORD = re.compile(r"(\d+)([A-Z_]+?)(\d*)")

Message = tuple[str, int, int]
"""Kind (F or B), producing stage, micro-batch; stages numbered through all weight copies."""


def explain(problem: Problem, rows: Sequence[Sequence[str]], done: Sequence[Collection[str]]) -> list[str]:
    """
    Say of every rank that has not finished what it stands at, and why that does not go on.

    Messages of a pair of ranks are matched by position, so the n-th receive waits until n sends have been made.

    Parameters
    ----------
    problem
        Where the stages are.
    rows
        ``rows[rank]``: torch's cells, in the order in which the rank runs them.
    done
        ``done[rank]``: the parts that it has run, such as ``3F0``, each side of an overlapped block on its own.

    Examples
    --------
    >>> rows = [["0F0", "0RECV_B0", "0B0"], ["1RECV_F0", "1F0", "1B0", "1SEND_B0"]]
    >>> for line in explain(Problem(((0, 1),), (1,)), rows, [{"0F0"}, set()]):
    ...     print(line)
    rank 0 waits at 0B0 for 1SEND_B0, its receive 1 from rank 1, which has sent 0 so far and stands at 1F0
    rank 1 waits at 1F0 for 0SEND_F0, its receive 1 from rank 0, which sends 0 in all
    """
    traffic = _Traffic(problem, rows, done)
    return [line for rank in range(problem.ranks) for line in traffic.lines(rank)]


@dataclass(frozen=True)
class _Stand:
    """Where a rank stands: the position in its list, and the part there that it has not run; its end if there is none."""

    position: int
    part: str | None


class _Traffic:
    """The lists of all ranks, and how far they have come."""

    def __init__(self, problem: Problem, rows: Sequence[Sequence[str]], done: Sequence[Collection[str]]) -> None:
        self.problem, self.rows = problem, rows
        self.stands = [_stand(row, ran) for row, ran in zip(rows, done, strict=True)]

    def lines(self, rank: int) -> Iterator[str]:
        stand = self.stands[rank]
        if stand.part is None:
            yield from self._unreceived(rank)
            return
        needed = self._needed(rank, stand.part)
        if needed is None:
            yield f"rank {rank} stands at {stand.part}, which waits for no message"
            return
        message, peer = needed
        before = self.rows[rank][: stand.position]
        receives = [found for word in before if (found := _received(word)) and self._home(found) == peer]
        name = f"{message[1]}SEND_{message[0]}{message[2]}"
        if message not in receives:
            yield f"rank {rank} stands at {stand.part} without having asked rank {peer} for {name}"
            return
        number = receives.index(message) + 1
        sender = self._sender(peer, rank, number)
        yield f"rank {rank} waits at {stand.part} for {name}, its receive {number} from rank {peer}, {sender}"

    def _sender(self, peer: int, rank: int, number: int) -> str:
        """How the other end of a receive stands."""
        sent = len(self._sends(peer, rank, self.rows[peer][: self.stands[peer].position]))
        total = len(self._sends(peer, rank, self.rows[peer]))
        if total < number:
            return f"which sends {total} in all"
        return f"which has sent {sent} so far and stands at {self.stands[peer].part or 'its end'}"

    def _unreceived(self, rank: int) -> Iterator[str]:
        """A rank that has run everything waits until its sends are taken."""
        for peer in range(self.problem.ranks):
            total = len(self._sends(rank, peer, self.rows[rank]))
            position = self.stands[peer].position
            taken = len([m for word in self.rows[peer][:position] if (m := _received(word)) and self._home(m) == rank])
            if taken < total and peer != rank:
                yield f"rank {rank} is through and waits for rank {peer} to receive message {taken + 1} of {total}"

    def _needed(self, rank: int, part: str) -> tuple[Message, int] | None:
        """The message that a part reads, and the rank that makes it."""
        stage, kind, microbatch = _parsed(part)
        stages = self.problem.stages
        if kind == "W" or (stage % stages == (0 if kind == "F" else stages - 1)):
            return None
        message = ("F", stage - 1, microbatch) if kind == "F" else ("B", stage + 1, microbatch)
        peer = self._home(message)
        return None if peer == rank else (message, peer)

    def _sends(self, rank: int, peer: int, row: Sequence[str]) -> list[Message]:
        """What a part of a rank's list sends to another."""
        sent = (_sent(word) for word in row)
        return [message for message in sent if message and self._reader(message) == peer and rank != peer]

    def _home(self, message: Message) -> int:
        return self._rank_of(message[1])

    def _reader(self, message: Message) -> int:
        return self._rank_of(message[1] + (1 if message[0] == "F" else -1))

    def _rank_of(self, stage: int) -> int:
        return self.problem.placement[stage // self.problem.stages][stage % self.problem.stages]


def _stand(row: Sequence[str], ran: Collection[str]) -> _Stand:
    for position, word in enumerate(row):
        for part in re.findall(r"\d+[FBIW]\d+", word):
            if part not in ran:
                return _Stand(position, part)
    return _Stand(len(row), None)


def _parsed(word: str) -> tuple[int, str, int]:
    match = _WORD.fullmatch(word)
    return (int(match[1]), match[2], int(match[3] or -1)) if match else (-1, "", -1)


def _sent(word: str) -> Message | None:
    """The message of a send."""
    stage, action, microbatch = _parsed(word)
    return (action[-1], stage, microbatch) if action.startswith("SEND_") else None


def _received(word: str) -> Message | None:
    """The message of a receive."""
    stage, action, microbatch = _parsed(word)
    return (action[-1], stage + (-1 if action == "RECV_F" else 1), microbatch) if action.startswith("RECV_") else None
