"""What the lists of a program say about each other: links, ends of messages, and which receive gets which send."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verifier.messages.program import Message, Program, Recv, Send
from verifier.model import Block


class End:
    """One end of a message: a send or a receive, where it stands, and the other rank. Compared by identity."""

    __slots__ = ("action", "index", "message", "peer", "position", "rank")

    def __init__(self, action: Send | Recv, rank: int, position: int, peer: int, index: int) -> None:
        self.action, self.message = action, action.message
        self.rank, self.position, self.peer, self.index = rank, position, peer, index

    @property
    def link(self) -> tuple[int, int]:
        """From the sending to the receiving rank."""
        return (self.rank, self.peer) if isinstance(self.action, Send) else (self.peer, self.rank)


Match = tuple[End | None, End | None]
"""A send and the receive that gets it; None where one of them has no other."""


@dataclass(frozen=True)
class Links:
    """
    A program taken apart: numbered actions, ends of messages, links.

    Attributes
    ----------
    first
        ``first[rank] + position`` numbers the actions of all ranks.
    ends
        All sends and receives by their number; those that no other rank can be the peer of are left out.
    sent, received
        ``sent[a, b]`` and ``received[a, b]`` are the sends and the receives of the link from a to b, in list order.
    """

    first: tuple[int, ...]
    ends: dict[int, End]
    sent: dict[tuple[int, int], list[End]]
    received: dict[tuple[int, int], list[End]]

    @classmethod
    def of(cls, program: Program) -> Links:
        """
        Take a program apart, in time linear in its actions.

        Examples
        --------
        >>> from verifier.model import Problem
        >>> program = Program.of(Problem(((0, 1),), (2,)), [["0SEND_F0", "0SEND_F1"], ["1RECV_F1", "1RECV_F0"]])
        >>> [str(end.action) for end in Links.of(program).received[0, 1]]
        ['1RECV_F1', '1RECV_F0']
        """
        links = cls(tuple(_first(program)), {}, {}, {})
        for rank, row in enumerate(program.actions):
            for position, action in enumerate(row):
                if not isinstance(action, (Send, Recv)):
                    continue
                peer = program.peer(action)
                if peer is None or peer == rank:
                    continue
                index = links.first[rank] + position
                links.ends[index] = end = End(action, rank, position, peer, index)
                if isinstance(action, Send):
                    links.sent.setdefault((rank, peer), []).append(end)
                else:
                    links.received.setdefault((peer, rank), []).append(end)
        return links

    def by_position(self) -> Iterator[Match]:
        """The k-th send of a link with its k-th receive."""
        for link in self._pairs():
            sends, receives = self.sent.get(link, []), self.received.get(link, [])
            for k in range(max(len(sends), len(receives))):
                yield (sends[k] if k < len(sends) else None), (receives[k] if k < len(receives) else None)

    def by_content(self) -> Iterator[Match]:
        """A send with the receive that asks for it; the k-th with the k-th where one content travels more than once."""
        for link in self._pairs():
            waiting: dict[Message, list[End]] = {}
            for receive in reversed(self.received.get(link, [])):
                waiting.setdefault(receive.message, []).append(receive)
            for send in self.sent.get(link, []):
                asking = waiting.get(send.message)
                yield send, (asking.pop() if asking else None)
            for left in waiting.values():
                yield from ((None, receive) for receive in reversed(left))

    def _pairs(self) -> list[tuple[int, int]]:
        return sorted(self.sent.keys() | self.received.keys())


def inputs(program: Program, rank: int, block: Block) -> Iterator[Recv]:
    """
    The receives that a block needs: one for every input that another rank makes.

    >>> from verifier.model import Problem
    >>> program = Program.of(Problem(((0, 1, 1),), (1,)), [[], []])
    >>> [str(receive) for receive in inputs(program, 1, Block.parse("1F0"))]
    ['1RECV_F0']
    """
    placement, last = program.problem.placement, program.problem.stages - 1
    for kind, direction, stage, microbatch in block.ops:
        if kind == "W" or not (direction < len(placement) and stage <= last):
            continue
        other = stage - 1 if kind == "F" else stage + 1
        if 0 <= other <= last and placement[direction][other] != rank:
            yield Recv("F" if kind == "F" else "B", direction, stage, microbatch)


def _first(program: Program) -> Iterator[int]:
    total = 0
    for row in program.actions:
        yield total
        total += len(row)
