"""
What every rank's list says: compute blocks, sends, receives and opaque marks, in order.

A program may come from a file or from :mod:`verifier.messages.lowering`. It may be wrong; judging it is another matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from verifier.model import MAX_DIGITS, Block, Origin, Problem, Schedule, ScheduleError

Message = tuple[str, int, int, int]
"""What travels: kind (F an activation, B a gradient), direction, producing stage, micro-batch."""


@dataclass(frozen=True, slots=True)
class Send:
    """
    Hand a result to the rank of the next stage (F) or of the stage before (B).

    Parameters
    ----------
    kind
        ``"F"`` for an activation, ``"B"`` for a gradient.
    direction, stage, microbatch
        The op whose result it is: a send is named by the producing stage.

    Examples
    --------
    >>> str(Send("F", 0, 1, 3)), Send("F", 0, 1, 3).other_stage
    ('1SEND_F3', 2)
    """

    kind: str
    direction: int
    stage: int
    microbatch: int

    @property
    def other_stage(self) -> int:
        """The receiving stage."""
        return self.stage + 1 if self.kind == "F" else self.stage - 1

    @property
    def message(self) -> Message:
        """What travels."""
        return (self.kind, self.direction, self.stage, self.microbatch)

    @property
    def counterpart(self) -> Recv:
        """The receive that this send is meant for."""
        return Recv(self.kind, self.direction, self.other_stage, self.microbatch)

    def __str__(self) -> str:
        return _text(self, "SEND_" + self.kind, self.microbatch)


@dataclass(frozen=True, slots=True)
class Recv:
    """
    Take the input of a forward (F) or of a backward (B) from the rank that makes it.

    Parameters
    ----------
    kind
        ``"F"`` for an activation, ``"B"`` for a gradient.
    direction, stage, microbatch
        The op that reads it: a receive is named by the receiving stage.

    Examples
    --------
    >>> str(Recv("B", 1, 1, 3)), Recv("B", 1, 1, 3).message
    ("1RECV_B3'", ('B', 1, 2, 3))
    """

    kind: str
    direction: int
    stage: int
    microbatch: int

    @property
    def other_stage(self) -> int:
        """The producing stage."""
        return self.stage - 1 if self.kind == "F" else self.stage + 1

    @property
    def message(self) -> Message:
        """What is meant to arrive."""
        return (self.kind, self.direction, self.other_stage, self.microbatch)

    @property
    def counterpart(self) -> Send:
        """The send that this receive is meant for."""
        return Send(self.kind, self.direction, self.other_stage, self.microbatch)

    def __str__(self) -> str:
        return _text(self, "RECV_" + self.kind, self.microbatch)


MARKS = ("UNSHARD", "RESHARD", "REDUCE_GRAD")


@dataclass(frozen=True, slots=True)
class Mark:
    """
    Something that a runtime does about a stage's weights; no verdict looks into it.

    >>> str(Mark("REDUCE_GRAD", 0, 3))
    '3REDUCE_GRAD'
    """

    kind: str
    direction: int
    stage: int

    def __str__(self) -> str:
        return _text(self, self.kind, "")


Transfer = Send | Recv
Action = Block | Send | Recv | Mark


def _text(action: Send | Recv | Mark, word: str, microbatch: int | str) -> str:
    return f"{action.stage}{word}{microbatch}" + "'" * action.direction


_TRANSFER = re.compile(r"(\d{1,9})(SEND|RECV)_([FB])(\d{1,9})('?)", re.ASCII)
_MARK = re.compile(rf"(\d{{1,9}})({'|'.join(MARKS)})('?)", re.ASCII)


def parse_action(text: str) -> Action:
    """
    Read ``1SEND_F3``, ``1RECV_B3'``, ``3RESHARD`` or a block such as ``0F3`` or ``(0F7;7B3')``.

    Raises
    ------
    ScheduleError
        If the text is anything else.

    Examples
    --------
    >>> parse_action("1RECV_B3'")
    Recv(kind='B', direction=1, stage=1, microbatch=3)
    >>> parse_action("1RECV_B")
    Traceback (most recent call last):
    verifier.model.ScheduleError: "1RECV_B" is not an action such as 0F3, (0F7;7B3'), 1SEND_F3, 1RECV_B3 or 3UNSHARD
    """
    if match := _TRANSFER.fullmatch(text):
        which: type[Send] | type[Recv] = Send if match[2] == "SEND" else Recv
        return which(match[3], len(match[5]), int(match[1]), int(match[4]))
    if match := _MARK.fullmatch(text):
        return Mark(match[2], len(match[3]), int(match[1]))
    try:
        return Block.parse(text)
    except ScheduleError:
        shown = text if len(text) <= 2 * MAX_DIGITS else text[: 2 * MAX_DIGITS - 3] + "..."
        message = f'"{shown}" is not an action such as 0F3, (0F7;7B3\'), 1SEND_F3, 1RECV_B3 or 3UNSHARD'
        raise ScheduleError(message) from None


def _action(item: Action | str) -> Action:
    return parse_action(item) if isinstance(item, str) else item


def _are_messages(actions: Sequence[Action]) -> bool:
    """Whether two actions are there and both are messages."""
    return len(actions) == 2 and all(isinstance(action, Transfer) for action in actions)


@dataclass(frozen=True)
class Program:
    """
    The lists that the ranks execute.

    Parameters
    ----------
    problem
        Which rank holds which stage; the peer of every message follows from it.
    actions
        ``actions[rank][position]``, in list order. Without any compute block a program is judged on its messages alone.
    name
        For people; not part of what the program is.
    origin
        How the file that it was read from wrote it; ``origin.cells[rank][position]`` is about actions here.
    cuts
        (rank, position) of messages that begin a group of their own although a message stands right before them. Without cuts
        neighbouring messages of a list are one group; only the model ``batched`` asks.

    Raises
    ------
    ScheduleError
        If there is not one list per rank, or a cut is not between two messages.

    Examples
    --------
    >>> program = Program.of(Problem(((0, 1),), (1,)), [["0F0", "0SEND_F0", "0RECV_B0", "0B0"], ["1RECV_F0", "1F0"]])
    >>> program.peer(program.actions[0][1]), program.place(0, 1)
    (1, 'rank 0, position 1')
    """

    problem: Problem
    actions: tuple[tuple[Action, ...], ...]
    name: str = field(default="", compare=False)
    origin: Origin | None = field(default=None, compare=False, repr=False)
    cuts: frozenset[tuple[int, int]] = frozenset()

    def __post_init__(self) -> None:
        if len(self.actions) != self.problem.ranks:
            raise ScheduleError(f"expected one list per rank, {self.problem.ranks} lists; got {len(self.actions)}")
        for rank, position in self.cuts:
            if not _are_messages(self.actions[rank][max(position - 1, 0) : position + 1]):
                raise ScheduleError(f"rank {rank}, position {position}: a cut stands between two messages")

    @classmethod
    def of(
        cls,
        problem: Problem,
        rows: Iterable[Iterable[Action | str | Sequence[Action | str]]],
        name: str = "",
        origin: Origin | None = None,
    ) -> Program:
        """
        A program from lists of actions, or of their texts; a list inside a list is a group of messages.

        Raises
        ------
        ScheduleError
            If a text is no action, or there is not one list per rank.

        Examples
        --------
        >>> problem = Problem(((0, 1),), (1,))
        >>> Program.of(problem, [[["0SEND_F0"], ["0RECV_B0"]], [["1RECV_F0", "1SEND_B0"]]]).cuts
        frozenset({(0, 1)})
        """
        lists: list[tuple[Action, ...]] = []
        cuts: set[tuple[int, int]] = set()
        for rank, row in enumerate(rows):
            actions: list[Action] = []
            after_group = False
            for item in row:
                if isinstance(item, str | Action):
                    more, is_group = [_action(item)], False
                else:
                    more, is_group = [_action(word) for word in item], True
                if (is_group or after_group) and _are_messages([*actions[-1:], *more[:1]]):
                    cuts.add((rank, len(actions)))
                actions += more
                after_group = is_group
            lists.append(tuple(actions))
        return cls(problem, tuple(lists), name, origin, frozenset(cuts))

    def groups(self, rank: int) -> Iterator[tuple[Action, ...]]:
        """
        The list of a rank in steps: every run of neighbouring messages that no cut parts, and every other action by itself.

        >>> program = Program.of(Problem(((0, 1),), (1,)), [["0F0", "0SEND_F0", "0RECV_B0", "0B0"], []])
        >>> [" ".join(map(str, group)) for group in program.groups(0)]
        ['0F0', '0SEND_F0 0RECV_B0', '0B0']
        """
        group: list[Action] = []
        for position, action in enumerate(self.actions[rank]):
            if group and ((rank, position) in self.cuts or not _are_messages([group[-1], action])):
                yield tuple(group)
                group = []
            group.append(action)
        if group:
            yield tuple(group)

    @cached_property
    def schedule(self) -> Schedule:
        """The compute part: what is left without messages and marks."""
        kept = [[position for position, action in enumerate(row) if isinstance(action, Block)] for row in self.actions]
        order = tuple(
            tuple(action for action in row if isinstance(action, Block))  # the type checker wants to see it again
            for row in self.actions
        )
        origin = self.origin
        if origin and origin.cells:
            cells = tuple(tuple(row[p] for p in positions) for row, positions in zip(origin.cells, kept, strict=True))
            origin = Origin(origin.microbatches, cells)
        return Schedule(self.problem, order, self.name, origin)

    @cached_property
    def computes(self) -> bool:
        """Whether there is any compute block."""
        return any(self.schedule.order)

    def peer(self, transfer: Transfer) -> int | None:
        """The rank at the other end, or None where there is no such stage."""
        other, placement = transfer.other_stage, self.problem.placement
        if not 0 <= transfer.direction < len(placement) or not 0 <= other < self.problem.stages:
            return None
        return placement[transfer.direction][other]

    def text(self, action: Action) -> str:
        """An action in the words of the source: its own micro-batch numbers where it had some."""
        if isinstance(action, Block):
            return self.schedule.text(action)
        if not (self.origin and self.origin.microbatches):
            return str(action)
        if isinstance(action, Mark):
            return f"{action.stage}{action.kind}"
        word = "SEND_" if isinstance(action, Send) else "RECV_"
        return f"{action.stage}{word}{action.kind}{self.schedule.microbatch_name(action.direction, action.microbatch)}"

    def place(self, rank: int, position: int) -> str:
        """Where an action stands, for people: its place in the list, or its cell where the source is a table."""
        cells = self.origin.cells if self.origin else None
        return f"rank {rank}, position {position}" if cells is None else f"rank {rank}, cell {cells[rank][position]}"
