"""
The communication models, and the replay of a program under one of them.

How a program runs: a compute block waits for the block before it and for the receives of its own inputs, nothing else. A
receive is posted at its turn in the list, that is when the blocks before it are done; a send is issued at its turn. What a
message waits for besides is what the models differ in.

The verdict does not depend on how the ranks interleave. Which send a receive gets is fixed by the lists alone: by content, or
as the k-th of its link, since both ends keep their order. So every step waits for a fixed set of other steps, all of them, and
no step takes anything away from another: a Kahn network. What happens is then the same in every execution (see
:mod:`verifier.messages.waits`). With time-outs, polls or receives from any source it would not be so.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from verifier.costs import CostModel
from verifier.messages.links import End, Links, Match, inputs
from verifier.messages.program import Message, Program, Recv
from verifier.messages.waits import Waits
from verifier.model import Block, ScheduleError, Timeline


@dataclass(frozen=True)
class Model:
    """
    What a transport promises.

    Parameters
    ----------
    by_content
        Whether a receive gets what it asks for; else it gets the next message of its link, whatever that is.
    meets
        Whether a send waits for its receive.
    queue
        Which messages of a rank wait for one another: none, those of one peer, all, all in groups of neighbours in the list,
        or the list itself with its compute.
    meaning
        For people.
    """

    by_content: bool
    meets: bool
    queue: Literal["none", "peer", "all", "groups", "list"]
    meaning: str


MODELS = MappingProxyType(
    {
        "tagged": Model(True, False, "none", "matched by content; a send never blocks"),
        "ordered": Model(False, False, "none", "matched by position on each link; a send never blocks"),
        "pair": Model(False, True, "peer", "matched by position; all messages of two ranks, both ways, meet in list order"),
        "rank": Model(False, True, "all", "matched by position; all messages of a rank meet in list order"),
        "batched": Model(False, True, "groups", "matched by position; neighbouring messages of a list go as one group"),
        "blocking": Model(False, True, "list", "matched by position; the list itself waits for every message"),
    }
)
"""The communication models by name."""


def model_named(name: str) -> Model:
    """
    The communication model of that name.

    Raises
    ------
    ScheduleError
        If there is none.

    Examples
    --------
    >>> model_named("rank").queue
    'all'
    """
    if name not in MODELS:
        raise ScheduleError(f"unknown communication model '{name}'; expected one of {', '.join(MODELS)}")
    return MODELS[name]


Turn = tuple[int, int] | None
"""What a list itself waits for: an event, and how many ticks after it."""


class Replay:
    """
    What happens when the ranks execute their lists under a model.

    Parameters
    ----------
    program, model
        What runs, and the name of the model.
    costs
        How long blocks and hops take; None where only the order matters.

    Attributes
    ----------
    time, happened
        Of every event its earliest time, in ticks, and whether it ever happens.
    match
        The meetings and arrivals, by event.

    Notes
    -----
    Action number i has the event ``posted[i]`` at which a block starts or a message is posted (for a group: all of it), and
    ``done[i]``, at which a message is over for its own list, ``lag[i]`` ticks later. A meeting is one event of both ends.

    Examples
    --------
    >>> from verifier.model import Problem
    >>> program = Program.of(Problem(((0, 1),), (1,)), [["0F0", "0SEND_F0"], ["1F0"]])
    >>> [bool(happens) for happens in Replay(program, "rank").happened]
    [True, True, True, False]
    """

    def __init__(self, program: Program, model: str, costs: CostModel | None = None) -> None:
        self.program, self.model, self._costs = program, model_named(model), costs
        self.links = Links.of(program)
        actions = sum(map(len, program.actions))
        self._waits = Waits(actions)
        self.posted, self.done, self._lag = list(range(actions)), list(range(actions)), [0] * actions
        self.match: dict[int, Match] = {}
        self._closed: dict[int, int] = {}
        if self.model.queue == "groups":
            self._gather()
        for send, receive in self.links.by_content() if self.model.by_content else self.links.by_position():
            self._match(send, receive)
        for rank in range(len(program.actions)):
            self._walk(rank)
        self.time, order = self._waits.run()
        self.happened = bytearray(len(self.time))
        for event in order:
            self.happened[event] = 1
        self._order = order

    def unmet(self) -> dict[int, list[int]]:
        """For every event that never happens, what it waits for in vain."""
        return self._waits.unmet(self._order)

    def finished(self, rank: int, position: int) -> bool:
        """Whether a list gets past an action: a block has run, a message is over."""
        return bool(self.happened[self.done[self.links.first[rank] + position]])

    def _gather(self) -> None:
        """The messages of a group share the event at which they are posted and the one at which all are over."""
        before = -2
        for index, end in self.links.ends.items():
            if index == before + 1 and end.position > 0 and (end.rank, end.position) not in self.program.cuts:
                self.posted[index], self._closed[index] = self.posted[before], self._closed[before]
            else:
                self._closed[index] = self._waits.event()
            before = index

    def _match(self, send: End | None, receive: End | None) -> None:
        """What a message waits for at its other end."""
        waits, meets = self._waits, self.model.meets
        if send and not receive and not meets:
            return
        over = waits.event()
        self.match[over] = (send, receive)
        if not send or not receive:
            waits.never(over)
        if send and meets:
            waits.wait(over, on=self.posted[send.index])
            self._over(send, over)
        elif send:
            waits.wait(over, on=self.posted[send.index], lag=self._hop(send))
        if receive:
            waits.wait(over, on=self.posted[receive.index])
            self._over(receive, over)

    def _over(self, end: End, event: int) -> None:
        """Note when a message is over for the list of one of its ends."""
        hop = self._hop(end) if self.model.meets else 0
        if self._closed:
            self._waits.wait(self._closed[end.index], on=event, lag=hop)
            self.done[end.index] = self._closed[end.index]
        else:
            self.done[end.index], self._lag[end.index] = event, hop

    def _walk(self, rank: int) -> None:
        """Who waits for whom inside one list."""
        turn: Turn = None
        ahead: dict[int, int] = {}
        brought: dict[Message, int] = {}
        for index, action in enumerate(self.program.actions[rank], self.links.first[rank]):
            if isinstance(action, Block):
                self._take_turn(index, turn)
                for needed in inputs(self.program, rank, action):
                    source = brought.get(needed.message)
                    if source is not None:
                        self._waits.wait(index, on=self.done[source], lag=self._lag[source])
                turn = (index, self._costs.ticks(action) if self._costs else 0)
            elif (end := self.links.ends.get(index)) is not None:
                if self.posted[index] == index:
                    self._take_turn(index, turn)
                    self._line_up(end, ahead)
                if self.model.queue == "list":
                    turn = (self.done[index], self._lag[index])
                if isinstance(end.action, Recv):
                    brought.setdefault(end.message, index)

    def _take_turn(self, index: int, turn: Turn) -> None:
        if turn:
            self._waits.wait(index, on=turn[0], lag=turn[1])

    def _line_up(self, end: End, ahead: dict[int, int]) -> None:
        """Wait for the message ahead in the same queue; ``ahead[queue]`` is its number."""
        queue = self.model.queue
        if queue in ("none", "list"):
            return
        key = end.peer if queue == "peer" else -1
        if key in ahead:
            self._waits.wait(end.index, on=self.done[ahead[key]])
        ahead[key] = end.index

    def _hop(self, end: End) -> int:
        return self._costs.hop_ticks(*end.link) if self._costs else 0


def simulate_program(program: Program, costs: CostModel, model: str = "ordered") -> Timeline | None:
    """
    The compute blocks at their earliest start when the messages are real ones.

    A message sets off when its send has been issued and, in the models where both ends meet, when its receive has been posted;
    it takes the hop of its ranks, and its reader may then start. A queue (``pair``, ``rank``) fixes in which order messages set
    off, while several may be under way; a group (``batched``) opens when all of the group before it has arrived, and a
    reader waits for the whole group of its input; in ``blocking`` the list goes on when the message has arrived.

    Parameters
    ----------
    program
        What runs. Blocks wait for the block before them and for messages, not for other blocks of their rank.
    costs
        Durations and hops.
    model
        The name of the communication model.

    Returns
    -------
    Timeline or None
        None where some block never runs. Where a block gets another message than its own, it may start before its input is
        made: times mean something only for what :func:`verifier.messages.judge` finds nothing wrong with.

    Examples
    --------
    >>> from verifier.model import Problem
    >>> rows = [["0F0", "0SEND_F0", "0RECV_B0", "0B0"], ["1RECV_F0", "1F0", "1B0", "1SEND_B0"]]
    >>> program = Program.of(Problem(((0, 1),), (1,)), rows)
    >>> simulate_program(program, CostModel.of(hop="1/2"), "rank").makespan
    Fraction(7, 1)
    """
    replay = Replay(program, model, costs)
    places = [
        [index for index, action in enumerate(row, first) if isinstance(action, Block)]
        for row, first in zip(program.actions, replay.links.first, strict=True)
    ]
    if not all(replay.happened[index] for row in places for index in row):
        return None
    return Timeline(
        program.schedule,
        tuple(tuple(replay.time[index] for index in row) for row in places),
        tuple(tuple(costs.ticks(block) for block in row) for row in program.schedule.order),
        costs.ticks_per_unit,
    )
