"""
Our own format, ``pipeline-program/1``: what every rank computes, sends and receives, as JSON, for any trainer to interpret.

``pipeline-program-1.schema.json`` in this folder describes it to others, ``examples/interpret_program.py`` runs it. A rank
comes to its actions in list order:

=======================  =====================================================================================
``0F3``, ``7B0'``        compute: stage, kind (F, I, W or B), micro-batch, and a prime for the second weight copy
``(0F7;7B3')``           two of them overlapped
``0SEND_F3``             hand the activation of stage 0 to the rank of the next stage; ``1SEND_B3`` a gradient to stage 0
``1RECV_F3``             post the receive of the activation that stage 1 reads; computing it waits for it
``["0SEND_F3", ...]``    messages that are posted together, as one batch
``0REDUCE_GRAD``         a mark for the trainer: stage 0 has all its weight gradients; also UNSHARD and RESHARD
=======================  =====================================================================================
"""

from __future__ import annotations

import json
from typing import Any

from verifier.costs import CostModel
from verifier.formats import json_text
from verifier.formats.source import Source
from verifier.messages.program import Action, Program, Recv, Send, parse_action
from verifier.model import Origin, ScheduleError

FORMAT = "pipeline-program/1"

# -------------------------------------------------------------------------------------------------------------- reading


def of_json(written: Any, *, microbatches: int | None = None) -> Source:
    """
    The program in a file, and its compute part as the schedule.

    The cell of an action, which witnesses name, is its place in the list of its rank, counted from 0, members of groups one by
    one.

    Parameters
    ----------
    written, microbatches
        As in :func:`verifier.formats.schedule_json.of_json`.

    Raises
    ------
    ScheduleError
        Likewise.

    Examples
    --------
    >>> source = of_json(json_text.parsed('''{"format": "pipeline-program/1", "ranks": 2, "placement": [[0, 1]],
    ...     "microbatches": [1], "actions":
    ...     [["0F0", ["0SEND_F0", "0RECV_B0"], "0B0"], ["1RECV_F0", "1F0", "1B0", "1SEND_B0"]]}'''))
    >>> print(*source.program.actions[0])
    0F0 0SEND_F0 0RECV_B0 0B0
    """
    json_text.check_shape(written, FORMAT)
    problem = json_text.problem(written, microbatches, "actions")
    rows = [
        [_item(item, rank, position) for position, item in enumerate(json_text.listed(row, f"actions[{rank}]"))]
        for rank, row in enumerate(written["actions"])
    ]
    lengths = (sum(len(item) if isinstance(item, list) else 1 for item in row) for row in rows)
    origin = Origin(cells=tuple(tuple(range(length)) for length in lengths))
    program = Program.of(problem, rows, written.get("name", ""), origin)
    return Source(program.schedule, FORMAT, json_text.costs(written, problem), program=program)


def _item(item: object, rank: int, position: int) -> Action | list[Action]:
    """An action, or a group of messages."""
    place = ("actions", rank, position)
    if isinstance(item, list):
        return [json_text.word(word, _message, "a message such as 0SEND_F3 or 1RECV_B3", place) for word in item]
    return json_text.word(item, parse_action, "an action such as 0F3, 0SEND_F3, 1RECV_B3 or 0REDUCE_GRAD", place)


def _message(text: str) -> Action:
    action = parse_action(text)
    if not isinstance(action, Send | Recv):
        raise ScheduleError(f"{text} is no message; a group holds sends and receives")
    return action


# -------------------------------------------------------------------------------------------------------------- writing


def dump(program: Program, *, costs: CostModel | None = None, groups: bool = False) -> str:
    """
    The text of a program file; equal programs give equal bytes, and :func:`of_json` gives the same program back.

    Parameters
    ----------
    program
        What to write.
    costs
        What it was made for, if that is of interest.
    groups
        Whether to write every group of messages as one. Without it they are written only where neighbouring messages are more
        than one group.

    Examples
    --------
    >>> from verifier.model import Problem
    >>> program = Program.of(Problem(((0, 1),), (1,)), [["0SEND_F0", "0RECV_B0"], ["1RECV_F0", "1SEND_B0"]])
    >>> print(dump(program, groups=True), end="")
    {
     "format": "pipeline-program/1",
     "ranks": 2,
     "placement": [[0, 1]],
     "microbatches": [1],
     "actions": [
      [["0SEND_F0", "0RECV_B0"]],
      [["1RECV_F0", "1SEND_B0"]]
     ]
    }
    """
    entries = json_text.head(FORMAT, program.name, program.problem)
    entries["actions"] = json_text.rows(_row(program, rank, groups) for rank in range(program.problem.ranks))
    if costs:
        entries["costs"] = json.dumps(costs.as_written())
    return json_text.whole_text(entries)


def _row(program: Program, rank: int, groups: bool) -> list[object]:
    """The list of one rank, with groups where they are asked for or where leaving them out would join two of them."""
    row: list[object] = []
    position = 0
    for group in program.groups(rank):
        words = [str(action) for action in group]
        end = position + len(group)
        parted = (rank, position) in program.cuts or (rank, end) in program.cuts
        row += [words] if parted or (groups and len(words) > 1) else words
        position = end
    return row
