"""
What is wrong with the lists of a program by themselves, whatever the ranks' pace.

Of each kind only the first on a rank or link is told, with the number of those after it: one slip early in a list puts all
that follows out of step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from verifier.messages.links import End, Links, inputs
from verifier.messages.program import Mark, Message, Program, Recv, Send
from verifier.model import Block, Witness


class _Told:
    """The first witness on each rank or link, and how many more there are; the others are not even worded."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._count: Counter[tuple[object, ...]] = Counter()
        self.witness: dict[tuple[object, ...], Witness] = {}

    def is_first(self, *key: object) -> bool:
        """Count one more."""
        self._count[key] += 1
        return self._count[key] == 1

    def __iter__(self) -> Iterator[Witness]:
        for key, witness in self.witness.items():
            more = self._count[key] - 1
            yield replace(witness, text=f"{witness.text} ({more} more on this {self._where})") if more else witness


class Lists:
    """
    The lists of a program, to be asked for their faults; every question is answered in time linear in the actions.

    Parameters
    ----------
    program, links
        The program, and itself taken apart.

    Examples
    --------
    >>> from verifier.model import Problem
    >>> program = Program.of(Problem(((0, 1),), (2,)), [["0SEND_F0", "0SEND_F1"], ["1RECV_F1"]])
    >>> lists = Lists(program, Links.of(program))
    >>> print(*lists.one_sided())
    link 0->1, message 1: 0SEND_F0 (rank 0, position 0) is never received; expected 1RECV_F0 on rank 1
    >>> print(*lists.mismatches())
    link 0->1, message 1: sent 0SEND_F0, expected 1RECV_F1 (rank 1, position 0)
    """

    def __init__(self, program: Program, links: Links) -> None:
        self._program, self._links = program, links
        sides = (*links.sent.values(), *links.received.values())
        self._number = {end.index: number for side in sides for number, end in enumerate(side, 1)}

    def where(self, end: End) -> str:
        """The link of a message and its number there, counted from 1."""
        return f"link {end.link[0]}->{end.link[1]}, message {self._number[end.index]}"

    def astray(self) -> Iterator[Witness]:
        """Messages that no other rank of the problem could be the peer of."""
        program, told = self._program, _Told("rank")
        for rank, row in enumerate(program.actions):
            for position, action in enumerate(row):
                if isinstance(action, (Send, Recv)) and (wrong := self._wrong_place(rank, action)) and told.is_first(rank):
                    text = program.text(action)
                    told.witness[rank,] = Witness(f"{program.place(rank, position)}: {text}: {wrong}", rank, position, text)
        return iter(told)

    def absent_inputs(self) -> Iterator[Witness]:
        """Blocks that would read an input which no receive before them has brought."""
        told = _Told("rank")
        for rank, row in enumerate(self._program.actions):
            brought: set[Message] = set()
            for position, action in enumerate(row):
                if isinstance(action, Recv):
                    brought.add(action.message)
                elif isinstance(action, Block):
                    for needed in inputs(self._program, rank, action):
                        if needed.message not in brought and told.is_first(rank):
                            told.witness[rank,] = self._absent(rank, position, needed)
        return iter(told)

    def sent_before_made(self) -> Iterator[Witness]:
        """Sends that no block before them has made the content of."""
        told = _Told("rank")
        for rank, row in enumerate(self._program.actions):
            made: set[Message] = set()
            for position, action in enumerate(row):
                if isinstance(action, Block):
                    made.update(("F" if op.kind == "F" else "B", *op[1:]) for op in action.ops if op.kind != "W")
                elif isinstance(action, Send) and action.message not in made and told.is_first(rank):
                    end, text = self._links.ends[self._links.first[rank] + position], self._program.text(action)
                    maker = f"the {'forward' if action.kind == 'F' else 'backward'} of stage {action.stage}"
                    wrong = f"{text} ({self._place(end)}) stands before {maker} that makes it; move it after that"
                    told.witness[rank,] = Witness(f"{self.where(end)}: {wrong}", rank, position, text)
        return iter(told)

    def misplaced_marks(self) -> Iterator[Witness]:
        """
        Marks of stages that are not here, and REDUCE_GRAD anywhere but once behind the last weight gradient of its stage.

        Torch divides the gradients of a stage where its REDUCE_GRAD stands. A program without any promises nothing about it.
        """
        program, told = self._program, _Told("rank")
        reduces = any(isinstance(action, Mark) and action.kind == "REDUCE_GRAD" for row in program.actions for action in row)
        for rank, row in enumerate(program.actions):
            here = set(program.problem.stages_on(rank))
            last: dict[tuple[int, int], int] = {}
            marks: dict[tuple[int, int], int] = {}
            for position, action in enumerate(row):
                if isinstance(action, Block):
                    last.update(((op.direction, op.stage), position) for op in action.ops if op.kind == "W")
                elif isinstance(action, Mark):
                    stage, wrong = (action.direction, action.stage), ""
                    if stage not in here:
                        wrong = f"stage {action.stage} is not on this rank; remove it"
                    elif action.kind == "REDUCE_GRAD" and marks.setdefault(stage, position) != position:
                        wrong = f"stands there a second time, after {program.place(rank, marks[stage])}; remove it"
                    if wrong and told.is_first(rank):
                        told.witness[rank,] = self._mark(rank, position, wrong)
            for stage, position in last.items() if reduces else ():
                marked = marks.get(stage)
                if (marked is None or marked < position) and stage in here and told.is_first(rank):
                    text = program.text(Mark("REDUCE_GRAD", *stage))
                    behind = f"behind {program.text(row[position])} ({program.place(rank, position)})"
                    if marked is None:
                        told.witness[rank,] = Witness(f"rank {rank}: {text} is missing; expected {behind}", rank, None, text)
                    else:
                        told.witness[rank,] = self._mark(rank, marked, f"gradients are added later; move it {behind}")
        return iter(told)

    def one_sided(self) -> Iterator[Witness]:
        """Messages of which one end is missing, and those that travel more than once."""
        told = _Told("link")
        seen: set[Message] = set()
        for send, receive in self._links.by_content():
            end = send or receive
            assert end is not None, "a pair has at least one end"
            if end.message in seen:
                if told.is_first("again", *end.link):
                    told.witness["again", *end.link] = self._one(end, "repeats a message; expected it once")
            elif not receive:
                if told.is_first("sent", *end.link):
                    told.witness["sent", *end.link] = self._one(end, f"is never received; expected {self._other(end)}")
            elif not send and told.is_first("received", *end.link):
                told.witness["received", *end.link] = self._one(end, f"is never sent; expected {self._other(end)}")
            seen.add(end.message)
        return iter(told)

    def mismatches(self) -> Iterator[Witness]:
        """Receives that get something else when matched by position, which no runtime notices."""
        told = _Told("link")
        for send, receive in self._links.by_position():
            if send and receive and send.message != receive.message and told.is_first(*send.link):
                sent, expected = self._program.text(send.action), self._program.text(receive.action)
                text = f"{self.where(receive)}: sent {sent}, expected {expected} ({self._place(receive)})"
                told.witness[send.link] = Witness(text, receive.rank, receive.position, expected)
        return iter(told)

    # ----------------------------------------------------------------------------------------------------- wording

    def _wrong_place(self, rank: int, action: Send | Recv) -> str | None:
        problem = self._program.problem
        if action.direction >= problem.directions:
            return f"there is no direction {action.direction} in the problem; remove it"
        if action.stage >= problem.stages:
            return f"there is no stage {action.stage} in the problem; expected 0 to {problem.stages - 1}"
        if (home := problem.placement[action.direction][action.stage]) != rank:
            return f"stage {action.stage} is on rank {home}; move it there"
        peer = self._program.peer(action)
        if peer is None:
            return f"stage {action.stage} is the {'first' if action.other_stage < 0 else 'last'}; remove it"
        if peer == rank:
            return f"stage {action.other_stage} is on the same rank, so nothing is sent; remove it"
        return None

    def _absent(self, rank: int, position: int, needed: Recv) -> Witness:
        """A block without its input: its receive stands after it, or nowhere."""
        program = self._program
        block, receive = program.text(program.actions[rank][position]), program.text(needed)
        reader = f"{block} ({program.place(rank, position)})"
        later = next((p for p, action in enumerate(program.actions[rank]) if action == needed), None)
        if later is None:
            what = "activation" if needed.kind == "F" else "gradient"
            text = (
                f"link {program.peer(needed)}->{rank}: nothing brings the {what} that {reader} reads; put {receive} before it"
            )
        else:
            end = self._links.ends[self._links.first[rank] + later]
            text = f"{self.where(end)}: {receive} ({self._place(end)}) stands after {reader}, which reads it; move it before"
        return Witness(text, rank, position, block)

    def _mark(self, rank: int, position: int, wrong: str) -> Witness:
        text = self._program.text(self._program.actions[rank][position])
        return Witness(f"{self._program.place(rank, position)}: {text}: {wrong}", rank, position, text)

    def _one(self, end: End, wrong: str) -> Witness:
        text = self._program.text(end.action)
        return Witness(f"{self.where(end)}: {text} ({self._place(end)}) {wrong}", end.rank, end.position, text)

    def _other(self, end: End) -> str:
        return f"{self._program.text(end.action.counterpart)} on rank {end.peer}"

    def _place(self, end: End) -> str:
        return self._program.place(end.rank, end.position)
