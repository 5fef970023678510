"""
The second way to judge messages: the question as order constraints for Z3. Nothing of replay is used here.

A clean execution exists exactly when every action can be given a moment such that all constraints hold: a circle of waiting is
a circle of "later than", which no moments satisfy.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from verifier.messages.program import Program, Recv, Send
from verifier.messages.replay import Model, model_named
from verifier.model import Block

if TYPE_CHECKING:
    import z3

_Place = tuple[int, int]
"""Rank and position in its list."""


def decide(program: Program, model: str, seconds: float = 20) -> bool | None:
    """
    Whether the messages of a program are clean under a model, as Z3 sees it.

    Parameters
    ----------
    program
        Quick up to some thousand actions.
    model
        One of :data:`verifier.messages.MODELS`.
    seconds
        For the solver.

    Returns
    -------
    bool or None
        None where the solver did not answer in time.

    Raises
    ------
    ScheduleError
        If there is no such model.

    Examples
    --------
    >>> from verifier.model import Problem
    >>> program = Program.of(Problem(((0, 1),), (2,)), [["0SEND_F1", "0RECV_B0"], ["1SEND_B0", "1RECV_F1"]])
    >>> decide(program, "ordered"), decide(program, "rank")
    (True, False)
    """
    import z3

    solver = z3.SolverFor("QF_IDL")
    solver.set("timeout", round(seconds * 1000))
    solver.add(*_Question(program, model_named(model)).constraints())
    deadline = time.monotonic() + seconds
    answer = solver.check()
    if answer == z3.unknown and solver.reason_unknown() == "canceled" and time.monotonic() < deadline:
        raise KeyboardInterrupt  # Z3 takes the signal itself, and calls a time-out by the same name
    return None if answer == z3.unknown else bool(answer == z3.sat)


class _Question:
    """The moments of a program's actions and what must hold of them."""

    def __init__(self, program: Program, model: Model) -> None:
        self.program, self.model = program, model
        self.transfers = {
            (rank, position): action
            for rank, row in enumerate(program.actions)
            for position, action in enumerate(row)
            if isinstance(action, (Send, Recv))
        }
        self.posted = {place: self._moment("posted", place) for place in self.transfers}
        self.over = {
            (rank, position): self._moment("over", (rank, position))
            for rank, row in enumerate(program.actions)
            for position in range(len(row))
        }
        if model.queue == "groups":
            self._share()

    def _moment(self, what: str, place: _Place) -> z3.ArithRef:
        import z3

        rank, position = place
        return z3.Int(f"{what}[{self.program.text(self.program.actions[rank][position])}, rank {rank}, {position}]")

    def _share(self) -> None:
        """The messages of a group are posted together and over together."""
        for rank, position in self.transfers:
            if (rank, position - 1) in self.transfers and (rank, position) not in self.program.cuts:
                self.posted[rank, position] = self.posted[rank, position - 1]
                self.over[rank, position] = self.over[rank, position - 1]

    def constraints(self) -> Iterator[z3.BoolRef]:
        """Everything that a clean execution satisfies."""
        import z3

        for holds in (self._all_at_home(), self._each_once(), self._in_step(), self._made_before_sent()):
            yield z3.BoolVal(holds)
        for rank in range(len(self.program.actions)):
            yield from self._in_list_order(rank)
            yield from self._after_inputs(rank)
            yield from self._queued(rank)
        yield from self._exchanged()

    # ------------------------------------------------------------------------------------------ without any moments

    def _all_at_home(self) -> bool:
        """Each end is on the rank of its stage, and its other end on another rank."""
        problem = self.program.problem
        return all(
            action.direction < problem.directions
            and action.stage < problem.stages
            and problem.placement[action.direction][action.stage] == rank
            and self.program.peer(action) not in (None, rank)
            for (rank, _), action in self.transfers.items()
        )

    def _each_once(self) -> bool:
        """Every message is sent once and received once."""
        sent = Counter(action.message for action in self.transfers.values() if isinstance(action, Send))
        received = Counter(action.message for action in self.transfers.values() if isinstance(action, Recv))
        return sent == received and all(count == 1 for count in sent.values())

    def _in_step(self) -> bool:
        """Both ends of a link name the same messages in the same order, where position decides."""
        if self.model.by_content:
            return True
        lists: dict[tuple[str, int, int | None], list[object]] = {}
        for (rank, _), action in self.transfers.items():
            peer = self.program.peer(action)
            key = ("sent", rank, peer) if isinstance(action, Send) else ("received", peer if peer is not None else -1, rank)
            lists.setdefault(key, []).append(action.message)
        return all(lists.get(("received", *key[1:])) == lists.get(("sent", *key[1:])) for key in lists)

    def _made_before_sent(self) -> bool:
        """Where blocks are listed, a result is sent after the block that makes it."""
        return not self.program.computes or all(
            any(
                isinstance(before, Block)
                and any((op.kind if op.kind == "F" else "B", *op[1:]) == action.message for op in before.ops if op.kind != "W")
                for before in self.program.actions[rank][:position]
            )
            for (rank, position), action in self.transfers.items()
            if isinstance(action, Send)
        )

    # -------------------------------------------------------------------------------------------------- with moments

    def _in_list_order(self, rank: int) -> Iterator[z3.BoolRef]:
        """A block comes after the block before it; so does a message. In a blocking list everything comes after everything."""
        before: z3.ArithRef | None = None
        for position, action in enumerate(self.program.actions[rank]):
            place = (rank, position)
            if place in self.transfers:
                yield self.over[place] >= self.posted[place]
            elif not isinstance(action, Block):
                continue
            if before is not None:
                yield (self.posted[place] if place in self.transfers else self.over[place]) > before
            if isinstance(action, Block) or self.model.queue == "list":
                before = self.over[place]

    def _after_inputs(self, rank: int) -> Iterator[z3.BoolRef]:
        """A block comes after a receive, listed before it, of each of its inputs from another rank."""
        import z3

        placement, stages = self.program.problem.placement, self.program.problem.stages
        for position, block in enumerate(self.program.actions[rank]):
            if not isinstance(block, Block):
                continue
            for op in block.ops:
                made_on = op.stage + {"F": -1, "I": 1, "W": stages}[op.kind]
                known = op.direction < len(placement) and op.stage < stages
                if not known or not 0 <= made_on < stages or placement[op.direction][made_on] == rank:
                    continue
                needed = Recv("F" if op.kind == "F" else "B", op.direction, op.stage, op.microbatch)
                bringing = [p for p in range(position) if self.transfers.get((rank, p)) == needed]
                yield z3.Or([self.over[rank, position] > self.over[rank, p] for p in bringing])

    def _queued(self, rank: int) -> Iterator[z3.BoolRef]:
        """A message is posted when those ahead of it in its queue are over."""
        if self.model.queue not in ("peer", "all", "groups"):
            return
        ahead: dict[int | None, _Place] = {}
        for place, action in self.transfers.items():
            if place[0] != rank:
                continue
            queue = self.program.peer(action) if self.model.queue == "peer" else None
            if queue in ahead and self.posted[place] is not self.posted[ahead[queue]]:
                yield self.posted[place] > self.over[ahead[queue]]
            ahead[queue] = place

    def _exchanged(self) -> Iterator[z3.BoolRef]:
        """What is received was sent; in models where both ends meet they do so while both are posted."""
        import z3

        receiving = {action.message: place for place, action in self.transfers.items() if isinstance(action, Recv)}
        for place, action in self.transfers.items():
            if not isinstance(action, Send) or action.message not in receiving:
                continue
            other = receiving[action.message]
            if not self.model.meets:
                yield self.over[place] == self.posted[place]
                yield self.over[other] > self.posted[place]
                continue
            meeting = z3.Int(f"meet[{self.program.text(action)}]")
            yield meeting >= self.posted[place]
            yield meeting >= self.posted[other]
            yield self.over[place] >= meeting
            yield self.over[other] >= meeting
