"""
Compute+comms tables for PyTorch's pipelining runtime, for one weight copy or two.

One row per rank, every send and receive a cell of its own: the grammar of ``torch.distributed.pipelining.schedules`` (torch
2.13), format ``compute_comms``. Two weight copies become one chain of twice as many stages that is cut in the middle: stage s
of direction d is torch's stage ``d * stages + s``, and no message crosses the cut.
"""

from __future__ import annotations

from verifier.costs import CostModel
from verifier.messages import Program, Send, lower
from verifier.messages.program import Action, Mark
from verifier.model import Block, Problem, Schedule, ScheduleError


def dump(schedule: Schedule, costs: CostModel | None = None) -> str:
    r"""
    The table of a schedule, with messages where they are clean under every communication model and, with these costs, hold up
    nothing.

    Raises
    ------
    ScheduleError
        If the ranks hang in this order, or torch's runtime could not execute it; see :func:`refuse_beyond_torch`.

    Examples
    --------
    >>> order = ((Block.parse("0F0"), Block.parse("0B0")),)
    >>> dump(Schedule(Problem(((0,),), (1,)), order))
    '0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD\n'
    """
    return dump_program(lower(schedule, costs, marks=True))


def dump_program(program: Program) -> str:
    r"""
    The table of a program whose messages are placed already.

    A line feed ends every line, and no line is blank, since torch counts a blank one as a rank.

    Raises
    ------
    ScheduleError
        If torch's runtime could not execute it; see :func:`refuse_beyond_torch`.

    Examples
    --------
    >>> problem = Problem(((0, 1), (1, 0)), (1, 1))
    >>> rows = [["0F0", "0SEND_F0", "1RECV_F0'", "1F0'"], ["0F0'", "0SEND_F0'", "1RECV_F0", "1F0"]]
    >>> dump_program(Program.of(problem, rows))
    '0F0,0SEND_F0,3RECV_F0,3F0\n2F0,2SEND_F0,1RECV_F0,1F0\n'
    """
    refuse_beyond_torch(program.schedule)
    return "".join(",".join(cell(program.problem, action) for action in row) + "\n" for row in program.actions)


def cell(problem: Problem, action: Action) -> str:
    """
    What torch writes for an action.

    Examples
    --------
    >>> problem = Problem(((0, 1), (1, 0)), (2, 2))
    >>> cell(problem, Block.parse("(0F1;1B0')")), cell(problem, Send("B", 1, 1, 0))
    ('(0F1;3B0)OVERLAP_F_B', '3SEND_B0')
    """
    if isinstance(action, Block):
        words = [f"{stage_number(problem, *part[1:3])}{part.kind}{part.microbatch}" for part in action.parts]
        return words[0] if len(words) == 1 else f"({';'.join(words)})OVERLAP_F_B"
    stage = stage_number(problem, action.direction, action.stage)
    if isinstance(action, Mark):
        return f"{stage}{action.kind}"
    return f"{stage}{'SEND' if isinstance(action, Send) else 'RECV'}_{action.kind}{action.microbatch}"


def stage_number(problem: Problem, direction: int, stage: int) -> int:
    """
    The number that torch knows a stage by: the second weight copy follows the first.

    >>> stage_number(Problem(((0, 1), (1, 0)), (2, 2)), 1, 0)
    2
    """
    return direction * problem.stages + stage


# ------------------------------------------------------------------------------------------------------------------ limits


def refuse_beyond_torch(schedule: Schedule) -> None:
    """
    Refuse what torch's runtime would not execute, or would execute wrongly without a word.

    Raises
    ------
    ScheduleError
        If a rank computes nothing; a pair is not of a forward and a backward; a last stage forwards micro-batches out of order
        (torch keeps the losses in the order in which they come, and looks them up by micro-batch); or, with two weight copies,
        their micro-batches differ in number or their ends share a rank.

    Examples
    --------
    >>> order = (tuple(map(Block.parse, "0F1 0F0 0B0 0B1".split())),)
    >>> refuse_beyond_torch(Schedule(Problem(((0,),), (2,)), order))
    Traceback (most recent call last):
    verifier.model.ScheduleError: torch: 0F1 runs where torch takes the loss of micro-batch 0; number the micro-batches in the
    order in which the last stage forwards them
    """
    problem = schedule.problem
    for rank, row in enumerate(schedule.order):
        if not row:
            raise ScheduleError(f"torch: rank {rank} computes nothing, and a table has no line for it. Use program or json")
        for position, block in enumerate(row):
            if "&" in block.kind and block.kind not in ("F&B", "F&I"):
                place, text = schedule.place(rank, position), schedule.text(block)
                raise ScheduleError(
                    f"torch: {place}: {text} is not a forward with a backward, the only pair there is. Use program"
                )
    for direction in range(problem.directions):
        _refuse_unsorted_losses(schedule, direction)
    if problem.directions > 1:
        _refuse_uneven_copies(problem)


def _refuse_unsorted_losses(schedule: Schedule, direction: int) -> None:
    problem, last = schedule.problem, schedule.problem.stages - 1
    ops = (op for block in schedule.order[problem.placement[direction][last]] for op in block.ops)
    forwards = (op for op in ops if op[:3] == ("F", direction, last))
    for expected, op in enumerate(forwards):
        if op.microbatch != expected:
            raise ScheduleError(
                f"torch: {schedule.text(op)} runs where torch takes the loss of micro-batch "
                f"{schedule.microbatch_name(direction, expected)}; number the micro-batches in the order in which the last "
                "stage forwards them"
            )


def _refuse_uneven_copies(problem: Problem) -> None:
    """Torch's runtime has one number of micro-batches, and one batch per rank."""
    if len(set(problem.microbatches)) > 1:
        counts = list(problem.microbatches)
        raise ScheduleError(
            f"torch: expected as many micro-batches in both directions, got {counts}. Use program or dualpipe-table"
        )
    for end, name in ((0, "first"), (-1, "last")):
        ranks = {row[end] for row in problem.placement}
        if len(ranks) == 1:
            raise ScheduleError(
                f"torch: both directions have their {name} stage on rank {ranks.pop()}; place them apart, or use program"
            )
