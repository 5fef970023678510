"""
Placing messages: from the order of the compute blocks to programs with sends and receives.

Both lowerings put blocks and messages of all ranks into one total order, in which each message stands after its producer and
before its consumer, and let both ends list it at that point. The list of every rank is then a part of that order. Whatever a
model makes an action wait for (the block before it, the message ahead in its queue, the other end, the rest of its group) never
stands later, when a group counts as posted at its first message and as over at its last. So no circle can form, and links agree
position by position: such a program is clean under every model. Which total order it is decides how much messages hold up.
Receives that are deferred afterwards leave that order, and with it the guarantee.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NoReturn

from verifier.costs import CostModel
from verifier.messages.links import inputs
from verifier.messages.program import Action, Mark, Message, Program, Recv, Send
from verifier.messages.waits import Waits
from verifier.model import Block, Op, Origin, Schedule, ScheduleError

_Key = tuple[str, int, int, int]
"""An op: kind, direction, stage, micro-batch."""


def lower(schedule: Schedule, costs: CostModel | None = None, *, marks: bool = False) -> Program:
    """
    Place the messages of a schedule where they hold up nothing, clean under every communication model.

    The total order is that of the blocks' ends in the earliest timeline. A receive thus stands before the block that its rank
    runs when the message sets off, and behind whatever its rank had finished by then. Under ``tagged``, ``ordered``, ``pair``
    and ``rank`` each message therefore sets off the moment it is made: with the same costs the makespan is that without
    messages.

    Parameters
    ----------
    schedule
        Any order that has a timeline. What is missing from it gets no messages.
    costs
        What the timeline is made with; default F = I = W = 1, FB = 3, no hop time. The verdict does not depend on them.
    marks
        Whether to add UNSHARD, RESHARD and REDUCE_GRAD, as torch's compute+comms format wants them.

    Raises
    ------
    ScheduleError
        If the ranks hang in this order already without messages.

    Notes
    -----
    Linear in the number of blocks, but for sorting them.

    Examples
    --------
    >>> from verifier.model import Problem
    >>> order = ((Block.parse("0F0"), Block.parse("0B0")), (Block.parse("1F0"), Block.parse("1B0")))
    >>> program = lower(Schedule(Problem(((0, 1),), (1,)), order))
    >>> [" ".join(map(str, row)) for row in program.actions]
    ['0F0 0SEND_F0 0RECV_B0 0B0', '1RECV_F0 1F0 1B0 1SEND_B0']
    """
    placing = _Placing(schedule, marks)
    for rank in range(len(schedule.order)):
        placing.marks(rank)
    for rank in _by_end(schedule, costs or CostModel.of()):
        placing.step(rank)
        placing.marks(rank)
    return placing.program()


def lower_torch(schedule: Schedule, *, deferred: bool = False) -> Program:
    """
    The program that torch's pipelining runtime makes of a compute-only schedule.

    In turns, rank 0 first, every rank takes its next action if it has its inputs; a message stands right after its producer
    at both ends. Marks take turns as blocks do.

    Parameters
    ----------
    schedule
        Any order that has a timeline.
    deferred
        Then put off each receive until its block needs it, or until a send to the same rank if that is the higher rank.

    Raises
    ------
    ScheduleError
        If the ranks hang in this order.

    References
    ----------
    PyTorch 2.13, torch/distributed/pipelining/schedules.py: how a compute-only table is prepared with communication; the option
    ``defer_pp_recv``.

    Examples
    --------
    >>> from verifier.model import Problem
    >>> order = ((Block.parse("0F0"), Block.parse("0B0")), (Block.parse("1F0"), Block.parse("1B0")))
    >>> program = lower_torch(Schedule(Problem(((0, 1),), (1,)), order))
    >>> print(" ".join(map(str, program.actions[1])))
    1UNSHARD 1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD 1RESHARD
    """
    placing = _Placing(schedule, marks=True)
    _in_turns(placing)
    program = placing.program()
    return _defer(program) if deferred else program


def with_marks(program: Program) -> Program:
    """
    A program with torch's marks where a lowering would put them, its messages where they are, each for itself.

    Only marks of a kind that the program has none of are added: tables of torch before 2.13 have no REDUCE_GRAD, without which
    its runtime does not divide gradients by the number of micro-batches.

    Examples
    --------
    >>> from verifier.model import Problem
    >>> program = Program.of(Problem(((0, 1),), (1,)), [["0F0", "0SEND_F0", "0RECV_B0", "0B0"], []])
    >>> print(*with_marks(program).actions[0])
    0UNSHARD 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD 0RESHARD
    """
    present = {action.kind for row in program.actions for action in row if isinstance(action, Mark)}
    woven = []
    for row, blocks in zip(program.actions, program.schedule.order, strict=True):
        marked = _marked(blocks, program.problem.microbatches)
        woven.append(tuple(_woven(row, [item for item in marked if isinstance(item, Block) or item.kind not in present])))
    return Program(program.problem, tuple(woven), program.name)


def _woven(row: Sequence[Action], marked: Sequence[Block | Mark]) -> Iterator[Action]:
    """What is in one list besides blocks, among the blocks and marks of another with the same blocks."""
    rest = iter(marked)
    for action in row:
        if isinstance(action, Block):
            for item in rest:
                yield item
                if isinstance(item, Block):
                    break
        else:
            yield action
    yield from rest


# ------------------------------------------------------------------------------------------------- both ends at once


class _Placing:
    """Lists that grow along a total order: a block puts its messages into the lists of both ends."""

    def __init__(self, schedule: Schedule, marks: bool) -> None:
        self.schedule = schedule
        self.rows: list[list[Block | Mark]] = [
            _marked(row, schedule.problem.microbatches) if marks else list(row) for row in schedule.order
        ]
        self.placed = [0] * len(self.rows)
        self.lists: list[list[Action]] = [[] for _ in self.rows]
        self.made: set[_Key] = set()
        placement = schedule.problem.placement
        self.present: set[_Key] = {
            op
            for rank, row in enumerate(schedule.order)
            for block in row
            for op in block.ops
            if schedule.problem.holds(op) and placement[op.direction][op.stage] == rank
        }

    def step(self, rank: int) -> None:
        """Place the next block or mark of a rank, and the messages of what the block makes."""
        item = self.rows[rank][self.placed[rank]]
        self.placed[rank] += 1
        self.lists[rank].append(item)
        if isinstance(item, Block):
            for op in item.ops:
                if op.kind != "W" and op not in self.made:
                    self.made.add(op)
                    self._message(rank, op)

    def marks(self, rank: int) -> None:
        """Place the marks that come next on a rank."""
        row = self.rows[rank]
        while self.placed[rank] < len(row) and isinstance(row[self.placed[rank]], Mark):
            self.step(rank)

    def program(self) -> Program:
        """The program of what was placed."""
        schedule = self.schedule
        origin = Origin(schedule.origin.microbatches) if schedule.origin else None
        return Program(schedule.problem, tuple(map(tuple, self.lists)), schedule.name, origin)

    def _message(self, rank: int, op: Op) -> None:
        """Send a result to the rank that reads it, if it is another and reads it at all."""
        kind, direction, stage, microbatch = op
        reader = stage + 1 if kind == "F" else stage - 1
        if op in self.present and (kind, direction, reader, microbatch) in self.present:
            peer = self.schedule.problem.placement[direction][reader]
            if peer != rank:
                send = Send("F" if kind == "F" else "B", direction, stage, microbatch)
                self.lists[rank].append(send)
                self.lists[peer].append(send.counterpart)


def _handed(op: Op) -> _Key:
    """The op of the neighbouring stage whose result an F or I reads; one that is out of range is nobody's."""
    kind, direction, stage, microbatch = op
    return (kind, direction, stage - 1 if kind == "F" else stage + 1, microbatch)


def _reads(op: Op) -> tuple[_Key, ...]:
    """Every op whose result an op reads."""
    kind, direction, stage, microbatch = op
    if kind == "F":
        return (_handed(op),)
    if kind == "I":
        return (("F", direction, stage, microbatch), _handed(op))
    return (("I", direction, stage, microbatch),)


# -------------------------------------------------------------------------------------------------- the total orders


def _by_end(schedule: Schedule, costs: CostModel) -> Iterator[int]:
    """
    The ranks of all blocks in the order of the blocks' earliest ends.

    Blocks that take no time can end together with what they wait for, so ties keep the order in which replay came past.
    """
    blocks = [(rank, block) for rank, row in enumerate(schedule.order) for block in row]
    producer: dict[_Key, int] = {}
    for index, (_, block) in enumerate(blocks):
        for op in block.ops:
            producer.setdefault(op, index)
    span = [costs.ticks(block) for _, block in blocks]
    waits = Waits(len(blocks))
    for index, (rank, block) in enumerate(blocks):
        if index and blocks[index - 1][0] == rank:
            waits.wait(index, on=index - 1, lag=span[index - 1])
        for op, before in zip(block.ops, (None, *block.ops), strict=False):
            if op.kind == "W" and before == ("I", *op[1:]):
                continue  # a full backward waits for nothing inside itself
            for needed in _reads(op):
                source = producer.get(needed)
                if source is not None:
                    waits.wait(index, on=source, lag=span[source] + costs.hop_ticks(blocks[source][0], rank))
    start, happened = waits.run()
    if len(happened) < len(blocks):
        ran = [0] * len(schedule.order)
        for index in happened:
            ran[blocks[index][0]] += 1
        _refuse(schedule, ran)
    for index in sorted(happened, key=lambda index: start[index] + span[index]):
        yield blocks[index][0]


def _in_turns(placing: _Placing) -> None:
    """Every rank in turn places its next block or mark, if what the block reads from other stages is there."""
    rows, placed = placing.rows, placing.placed
    left = sum(map(len, rows))
    while left:
        before = left
        for rank, row in enumerate(rows):
            if placed[rank] < len(row) and _ready(placing, row[placed[rank]]):
                placing.step(rank)
                left -= 1
        if left == before:
            ran = [sum(isinstance(item, Block) for item in row[:count]) for row, count in zip(rows, placed, strict=True)]
            _refuse(placing.schedule, ran)


def _ready(placing: _Placing, item: Block | Mark) -> bool:
    """Whether the inputs of a block that other stages make have been made."""
    if isinstance(item, Mark):
        return True
    needed = (_handed(op) for op in item.ops if op.kind != "W")
    return all(key in placing.made or key not in placing.present for key in needed)


def _refuse(schedule: Schedule, ran: Sequence[int]) -> NoReturn:
    """Say where an order hangs; ``ran[rank]`` blocks of a rank run."""
    for rank, (row, position) in enumerate(zip(schedule.order, ran, strict=True)):
        if position < len(row):
            place, block = schedule.place(rank, position), schedule.text(row[position])
            raise ScheduleError(f"{place}: {block} never runs in this order; messages need an order that does not hang")
    raise AssertionError("an order that hangs has a block that never runs")


# ------------------------------------------------------------------------------------------ marks, deferred receives

_AHEAD = 3
"""Stages whose weights torch gathers at a time."""


def _marked(row: Sequence[Block], microbatches: Sequence[int]) -> list[Block | Mark]:
    """
    A rank's blocks with torch's marks.

    The weights of the next three stages in use are gathered and others freed; a stage's gradients are reduced after its last W.
    """
    reduced: Counter[tuple[int, int]] = Counter()
    marked: list[Block | Mark] = []
    gathered: list[tuple[int, int]] = []
    for block, wanted in zip(row, _next_stages(row), strict=True):
        marked += [Mark("RESHARD", *stage) for stage in gathered if stage not in wanted]
        marked += [Mark("UNSHARD", *stage) for stage in wanted if stage not in gathered]
        gathered = sorted(wanted)
        marked.append(block)
        for op in block.ops:
            if op.kind == "W":
                stage = (op.direction, op.stage)
                reduced[stage] += 1
                if op.direction < len(microbatches) and reduced[stage] == microbatches[op.direction]:
                    marked.append(Mark("REDUCE_GRAD", *stage))
    return marked + [Mark("RESHARD", *stage) for stage in gathered]


def _next_stages(row: Sequence[Block]) -> list[list[tuple[int, int]]]:
    """For every block the first few different (direction, stage) pairs from there on, in the order of use."""
    coming: list[tuple[int, int]] = []
    found = []
    for block in reversed(row):
        own = list(dict.fromkeys((op.direction, op.stage) for op in block.ops))
        coming = own + [stage for stage in coming if stage not in own]
        found.append(coming[:_AHEAD])
    return found[::-1]


def _defer(program: Program) -> Program:
    """Put off the receives of every list."""
    return replace(program, actions=tuple(tuple(_deferred(program, rank, row)) for rank, row in enumerate(program.actions)))


def _deferred(program: Program, rank: int, row: Sequence[Action]) -> Iterator[Action]:
    """A list in which a receive waits for the block that needs it, or for a send to its rank if that rank is higher."""
    waiting: dict[Message, Recv] = {}
    for action in row:
        if isinstance(action, Recv):
            waiting[action.message] = action
            continue
        due: list[Message] = []
        if isinstance(action, Block):
            due = [needed.message for needed in inputs(program, rank, action) if needed.message in waiting]
        elif isinstance(action, Send):
            peer = program.peer(action)
            if peer is not None and rank < peer:
                due = [message for message, receive in waiting.items() if program.peer(receive) == peer]
        yield from (waiting.pop(message) for message in due)
        yield action
    yield from waiting.values()
