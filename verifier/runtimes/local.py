"""What one rank of a pipeline needs besides a runtime: its modules, its share of the batch, the gradients of both copies."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import nn

from verifier.model import Problem, Schedule, ScheduleError

_TAG = 1
"""Where the transport knows tags, a receive that a faulty schedule left behind must not swallow a gradient."""


def check_fit(schedule: Schedule, modules: Mapping[tuple[int, int], nn.Module], group: dist.ProcessGroup | None = None) -> int:
    """
    Find the rank of this process, provided that the group and the modules are those that the schedule asks for.

    Raises
    ------
    ScheduleError
        If the group has another size, or the modules are for other stages.
    """
    problem, rank, size = schedule.problem, dist.get_rank(group), dist.get_world_size(group)
    if size != problem.ranks:
        raise ScheduleError(f"the schedule is for {problem.ranks} ranks, the process group has {size}")
    expected = problem.stages_on(rank)
    if set(modules) != set(expected):
        raise ScheduleError(f"rank {rank}: expected modules for (direction, stage) {list(expected)}, got {sorted(modules)}")
    return rank


def share(problem: Problem, batch: torch.Tensor | None, direction: int, name: str) -> torch.Tensor:
    """
    Cut out the part of a batch that flows through one direction.

    Parameters
    ----------
    batch
        All micro-batches of direction 0, then those of direction 1, along the first dimension.
    name
        What to call the batch in an error.

    Raises
    ------
    ScheduleError
        If there is no batch, or it cannot be cut into micro-batches of equal size.

    Examples
    --------
    >>> share(Problem(((0, 1), (1, 0)), (2, 2)), torch.arange(4), 1, "inputs").tolist()
    [2, 3]
    """
    total = problem.total_microbatches
    if batch is None or len(batch) % total:
        got = "none" if batch is None else f"one of {len(batch)}"
        raise ScheduleError(
            f"{name}: this rank holds an end of the pipeline and needs a batch for {total} equal micro-batches, got {got}"
        )
    sizes = [len(batch) // total * count for count in problem.microbatches]
    return batch.split(sizes)[direction]


def combine_gradients(
    problem: Problem,
    modules: Mapping[tuple[int, int], nn.Module],
    *,
    mean: bool = True,
    group: dist.ProcessGroup | None = None,
) -> None:
    """
    Give both copies of every stage the same gradient; every rank calls it after the last backward, before the optimizer.

    Nothing happens where there is one copy.

    Parameters
    ----------
    problem
        Where the copies live.
    modules
        ``modules[direction, stage]`` for every stage of this rank.
    mean
        Average the copies, right if each copy's gradient is a mean over its own micro-batches; else add them.
    group
        The pipeline's process group; the default one if None.

    Notes
    -----
    A parameter without a gradient counts as zero. Both sides add the same two numbers, so copies that were equal stay equal
    bit for bit.
    """
    if problem.directions < 2:
        return
    mine = [(stage, direction) for direction, stage in modules]
    exchanged: list[tuple[nn.Parameter, torch.Tensor]] = []
    messages: list[dist.P2POp] = []
    # Both ranks of a pair list their shared stages in the same order, since messages are matched by position.
    for stage, direction in sorted(mine):
        peer = problem.placement[1 - direction][stage]
        if (1 - direction, stage) in modules:
            if direction == 0:
                _combine_here(modules[0, stage], modules[1, stage])
            continue
        for parameter in _trained(modules[direction, stage]):
            theirs = torch.empty_like(parameter)
            exchanged.append((parameter, theirs))
            for action, tensor in ((dist.isend, _gradient(parameter)), (dist.irecv, theirs)):
                messages.append(dist.P2POp(action, tensor, group=group, tag=_TAG, group_peer=peer))
    for work in dist.batch_isend_irecv(messages) if messages else ():
        work.wait()
    for parameter, theirs in exchanged:
        _gradient(parameter).add_(theirs)
    if mean:
        for module in modules.values():
            for parameter in _trained(module):
                _gradient(parameter).div_(2)


def _combine_here(first: nn.Module, second: nn.Module) -> None:
    """Both copies of a stage on one rank."""
    for one, other in zip(_trained(first), _trained(second), strict=True):
        total = _gradient(one).add_(_gradient(other))
        _gradient(other).copy_(total)


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    """The gradient, which from here on exists."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
