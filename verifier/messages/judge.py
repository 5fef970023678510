"""
What is wrong with the messages of a program under a named communication model.

Three kinds of faults. Of the lists: a block without a receive for its input, a result sent before it is made, a message of
which one end is missing, sent twice, or not due at all; they count in every model. Of matching by position: a receive that gets
another message than it asks for, which no runtime notices. And ranks that wait in a circle.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.messages.faults import Lists
from verifier.messages.links import End, Links
from verifier.messages.program import Mark, Program
from verifier.messages.replay import Replay
from verifier.model import Block, Witness


def judge(program: Program, model: str) -> tuple[Witness, ...]:
    """
    Why a program's messages fail under a model; nothing where they do not.

    Parameters
    ----------
    program
        With compute blocks, their inputs are judged too; without any, the messages alone.
    model
        One of :data:`verifier.messages.MODELS`.

    Returns
    -------
    tuple
        The first fault of each kind on each rank or link, with the number of those after it; then a circle of waiting ranks, if
        there is one. ``position`` of a witness counts the actions of the rank's list.

    Raises
    ------
    ScheduleError
        If there is no such model.

    Notes
    -----
    Linear in the number of actions.

    Examples
    --------
    >>> from verifier.model import Problem
    >>> both_send_first = [["0SEND_F1", "0RECV_B0"], ["1SEND_B0", "1RECV_F1"]]
    >>> program = Program.of(Problem(((0, 1),), (2,)), both_send_first)
    >>> judge(program, "ordered")
    ()
    >>> print(*judge(program, "rank"))
    2 ranks wait in a circle: rank 0, position 0 at 0SEND_F1 (link 0->1, message 1) needs 1RECV_F1
    -> rank 1, position 0 at 1SEND_B0 (link 1->0, message 1) needs 0RECV_B0 -> rank 0, position 0 at 0SEND_F1
    """
    replay = Replay(program, model)
    lists = Lists(program, replay.links)
    astray = tuple(lists.astray())
    if astray:
        return astray  # these have no other end, so the rest cannot be judged either
    found = [*lists.absent_inputs(), *lists.sent_before_made()] if program.computes else []
    found += lists.one_sided()
    if not replay.model.by_content:
        found += lists.mismatches()
    found += _circle(replay, lists)
    assert found or all(replay.happened), "what never happens has a witness"
    return tuple(found)


def reduces(program: Program) -> bool:
    """Whether any mark says where weight gradients are complete."""
    return any(isinstance(action, Mark) and action.kind == "REDUCE_GRAD" for row in program.actions for action in row)


def judge_marks(program: Program) -> tuple[Witness, ...]:
    """
    Why a program's marks are wrong, whatever the communication model; nothing where they are not.

    Examples
    --------
    >>> from verifier.model import Problem
    >>> program = Program.of(Problem(((0,),), (2,)), [["0F0", "0B0", "0REDUCE_GRAD", "0F1", "0B1"]])
    >>> print(*judge_marks(program))
    rank 0, position 2: 0REDUCE_GRAD: gradients are added later; move it behind 0B1 (rank 0, position 4)
    """
    return tuple(Lists(program, Links.of(program)).misplaced_marks())


# ---------------------------------------------------------------------------------------------------------- circles


def _circle(replay: Replay, lists: Lists) -> Iterator[Witness]:
    """
    The ranks that wait for one another, each with the message that it stands at.

    From a message that is posted and never over, go to its other end, which is never posted, and to the message that this end
    waits behind. Where this comes back, there is a circle; a message without other end leads nowhere and is told elsewhere.
    """
    if all(replay.happened):
        return
    heads = _Heads(replay)
    seen: set[int] = set()
    shortest: list[End] = []
    for start in heads.all():
        trail: list[End] = []
        end: End | None = start
        while end and end.index not in seen:
            seen.add(end.index)
            trail.append(end)
            end = heads.after(end)
        if end in trail:
            circle = trail[trail.index(end) :]
            if not shortest or len(circle) < len(shortest):
                shortest = circle
    if shortest:
        turn = min(range(len(shortest)), key=lambda k: shortest[k].rank)
        yield _circle_witness(replay, lists, heads, shortest[turn:] + shortest[:turn])


class _Heads:
    """The messages that are posted and never over: where the ranks stand."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._unmet = replay.unmet()
        self._event = {
            end.index: event for event in replay.match.keys() & self._unmet.keys() for end in replay.match[event] if end
        }
        self._found: dict[int, End] = {}

    def all(self) -> list[End]:
        """In the order of ranks and lists."""
        ends = self._replay.links.ends
        return [ends[index] for index in sorted(self._event) if self._replay.happened[self._replay.posted[index]]]

    def other(self, head: End) -> End | None:
        """The end that a head is matched with."""
        send, receive = self._replay.match[self._event[head.index]]
        return receive if head is send else send

    def after(self, head: End) -> End | None:
        """The message that the other end of a head waits behind; None where it has no other end."""
        other = self.other(head)
        return self._behind(self._replay.posted[other.index], other.rank) if other else None

    def _behind(self, event: int, rank: int) -> End:
        """Go down a rank's own list from what cannot happen there to the message that holds it up."""
        path: list[int] = []
        while True:
            if event in self._found:
                own = self._found[event]
                break
            if event in self._replay.match:
                own = next(end for end in self._replay.match[event] if end and end.rank == rank)
                if self._replay.happened[self._replay.posted[own.index]]:
                    break
                event = self._replay.posted[own.index]
            else:
                path.append(event)
                event = self._unmet[event][0]
        self._found.update(dict.fromkeys(path, own))
        return own


def _circle_witness(replay: Replay, lists: Lists, heads: _Heads, circle: list[End]) -> Witness:
    program = replay.program
    steps, here = [], []
    for end in circle:
        blocked = next((f"; {program.text(block)} waits" for block in _blocked(replay, end.rank)), "")
        other = heads.other(end)
        assert other is not None, "a circle goes on from every head"
        here.append(f"{program.place(end.rank, end.position)} at {program.text(end.action)}")
        steps.append(f"{here[-1]} ({lists.where(end)}{blocked}) needs {program.text(other.action)}")
    first, ranks = circle[0], len({end.rank for end in circle})
    text = f"{ranks} ranks wait in a circle: {' -> '.join([*steps, here[0]])}"
    return Witness(text, first.rank, first.position, program.text(first.action))


def _blocked(replay: Replay, rank: int) -> Iterator[Block]:
    """The blocks of a rank that never run."""
    for position, action in enumerate(replay.program.actions[rank]):
        if isinstance(action, Block) and not replay.finished(rank, position):
            yield action
