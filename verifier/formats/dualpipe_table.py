"""
Op tables for DeepSeek's DualPipe class (package ``dualpipe``), which runs its own fixed order otherwise.

One row per rank. The digit of an instruction is the *phase* that the class's methods take: the direction on the first half of
the ranks, the other one on the second half (deepseek-ai/DualPipe, ``dualpipe/dualpipe.py``).

======================  =============================================================================
``RECV_F0``, ``RECV_B0``  post the receive of the next activation or gradient of phase 0, in the sender's order
``F0``, ``B0``, ``I0``    next forward, full backward, or input backward, whose weight part joins the queue
``(F0;B1)``               forward and full backward overlapped
``W``                     the oldest weight part in the queue
``SEND_F0``, ``SEND_B0``  send what was computed; awaited at the end of the step
======================  =============================================================================
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Sequence

from verifier.messages import Recv, Send, lower, parse_action
from verifier.messages.program import Action
from verifier.model import Block, Part, Problem, Schedule, ScheduleError, text_of

FORMAT = "dualpipe-table/1"


def dump(schedule: Schedule) -> str:
    """
    The table of a schedule as a JSON file.

    Raises
    ------
    ScheduleError
        If the ranks hang in this order, or the class could not execute it; see :func:`refuse_beyond_dualpipe`.

    Examples
    --------
    >>> order = tuple(tuple(map(Block.parse, row.split())) for row in ("0F0 1F0' 1B0' 0B0", "0F0' 1F0 1B0 0B0'"))
    >>> json.loads(dump(Schedule(Problem(((0, 1), (1, 0)), (1, 1)), order)))["table"][0]
    ['F0', 'SEND_F0', 'RECV_F1', 'F1', 'B1', 'SEND_B1', 'RECV_B0', 'B0']
    """
    head: dict[str, object] = {"format": FORMAT, "name": schedule.name, "ranks": schedule.problem.ranks}
    head["microbatches"] = list(schedule.problem.microbatches)
    rows = ",\n".join("  " + json.dumps(row) for row in instructions(schedule))
    return json.dumps(head, indent=1)[:-2] + f',\n "table": [\n{rows}\n ]\n}}\n'


def instructions(schedule: Schedule) -> tuple[tuple[str, ...], ...]:
    """
    ``instructions[rank]`` of a schedule, with messages where they are clean under every communication model.

    Raises
    ------
    ScheduleError
        As :func:`dump`.
    """
    refuse_beyond_dualpipe(schedule)
    program = lower(schedule)
    return tuple(
        tuple(_instruction(action, second_half=rank >= schedule.problem.ranks // 2) for action in row)
        for rank, row in enumerate(program.actions)
    )


def spelled_out(problem: Problem, rank: int, row: Sequence[str]) -> tuple[Action, ...]:
    """
    What the instructions of a rank stand for: the class counts the micro-batches of a phase, a reader wants to see them.

    Examples
    --------
    >>> problem = Problem(((0, 1), (1, 0)), (2, 2))
    >>> print(*spelled_out(problem, 1, ["F0", "SEND_F0", "RECV_F1", "F1", "(F0;B1)"]))
    0F0' 0SEND_F0' 1RECV_F0 1F0 (0F1';1B0)
    """
    stage = dict(problem.stages_on(rank))
    second_half = rank >= problem.ranks // 2
    count: Counter[tuple[str, int]] = Counter()
    waiting: deque[Part] = deque()

    def word(instruction: str) -> str:
        if instruction == "W":
            return text_of([waiting.popleft()])
        action, direction = instruction[:-1], int(instruction[-1]) ^ second_half
        queue = ("B" if action == "I" else action, direction)
        part = Part(action, direction, stage[direction], count[queue])
        count[queue] += 1
        if action == "I":
            waiting.append(part._replace(kind="W"))
        return text_of([part])

    words = (re.sub(r"[A-Z_]+[01]|W", lambda match: word(match[0]), instruction) for instruction in row)
    return tuple(map(parse_action, words))


def refuse_beyond_dualpipe(schedule: Schedule) -> None:
    """
    Refuse what the class could not execute.

    Raises
    ------
    ScheduleError
        If the placement is not bidirectional; micro-batches of a direction overtake one another in F or in the backward; a
        pair is not an F with a full B; or W do not leave in the order in which their I ran.
    """
    problem = schedule.problem
    straight = tuple(range(problem.ranks))
    if problem.ranks < 2:
        raise ScheduleError("dualpipe: expected at least 2 ranks; the class keeps one list of losses per rank")
    if problem.placement != (straight, straight[::-1]):
        raise ScheduleError(
            f"dualpipe: expected stage s of direction 0 on rank s and of direction 1 on rank {problem.ranks - 1} - s, "
            f"got {[list(row) for row in problem.placement]}; use torch-comms-csv"
        )
    for rank, row in enumerate(schedule.order):
        _refuse_row(schedule, rank, row)


def _refuse_row(schedule: Schedule, rank: int, row: tuple[Block, ...]) -> None:
    following: dict[tuple[str, int], int] = {}
    waiting: deque[Part] = deque()
    for position, block in enumerate(row):
        place = schedule.place(rank, position)
        if "&" in block.kind and block.kind != "F&B":
            raise ScheduleError(
                f"{place}: the class overlaps a forward with a full backward only, not {schedule.text(block)}. Use program"
            )
        for part in block.parts:
            if part.kind == "W":
                _refuse_overtaking_weight(schedule, place, part, waiting)
                continue
            queue = ("F" if part.kind == "F" else "backward", part.direction)
            expected = following.get(queue, 0)
            if part.microbatch != expected:
                raise ScheduleError(
                    f"{place}: {schedule.text(part)} runs where the class takes micro-batch {expected}; it runs the "
                    "micro-batches of a direction in ascending order. Use torch-comms-csv or program"
                )
            following[queue] = expected + 1
            if part.kind == "I":
                waiting.append(part._replace(kind="W"))


def _refuse_overtaking_weight(schedule: Schedule, place: str, part: Part, waiting: deque[Part]) -> None:
    oldest = waiting.popleft() if waiting else None
    if part != oldest:
        due = f"{schedule.text(oldest)} is due" if oldest else "no weight part waits"
        raise ScheduleError(
            f"{place}: {schedule.text(part)} runs where {due}; the class keeps weight parts in one queue. Use torch-comms-csv"
        )


def _instruction(action: Action, *, second_half: bool) -> str:
    """One instruction."""
    if isinstance(action, Block):
        words = [part.kind + ("" if part.kind == "W" else str(part.direction ^ second_half)) for part in action.parts]
        return words[0] if len(words) == 1 else f"({';'.join(words)})"
    assert isinstance(action, Send | Recv), "the lowering was asked for no marks"
    return f"{'SEND' if isinstance(action, Send) else 'RECV'}_{action.kind}{action.direction ^ second_half}"
