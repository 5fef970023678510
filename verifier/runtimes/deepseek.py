"""
DeepSeek's DualPipe class, driven by a schedule instead of its own fixed order.

Needs torch and the package ``dualpipe`` 1.0 (MIT licence). The class's own chunk methods compute. What differs from its
``step`` is who decides the order, that receives are posted in the sender's order, and that sends are awaited at the end only.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from dualpipe import DualPipe, WeightGradStore
from torch import nn

from verifier.formats.dualpipe_table import instructions
from verifier.model import Schedule, ScheduleError
from verifier.runtimes.local import check_fit, combine_gradients, share

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_INSTRUCTION = re.compile(r"(RECV_F|RECV_B|SEND_F|SEND_B|F|B|I)([01])")
_PAIR = re.compile(r"\((F|B)([01]);(F|B)([01])\)")


class SplitLinear(nn.Linear):
    """
    A linear layer whose weight gradient can run later, which is what the class needs to split a backward in I and W.

    Any layer whose weight part should move out of I has to be written this way; the others compute all of theirs in I.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - the name that torch gives it
        """Apply the layer."""
        return _SplitLinear.apply(input, self.weight, self.bias)


class _SplitLinear(torch.autograd.Function):
    """Hands the weight part of the backward to the class's queue while an I runs."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, weight: nn.Parameter, bias: nn.Parameter | None) -> torch.Tensor:
        ctx.save_for_backward(inputs)
        # Not saved as tensors: a hook on those could hand back a copy, which gathers no gradient.
        ctx.weight, ctx.bias = weight, bias
        return nn.functional.linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (inputs,) = ctx.saved_tensors
        weight, bias = ctx.weight, ctx.bias

        def weight_part() -> None:
            rows = gradient.flatten(0, -2)
            _accumulate(weight, rows.T @ inputs.flatten(0, -2))
            if bias is not None:
                _accumulate(bias, rows.sum(0))

        if WeightGradStore.enabled:
            WeightGradStore.put(weight_part)
        else:
            weight_part()
        return gradient @ weight if ctx.needs_input_grad[0] else None, None, None


def _accumulate(parameter: nn.Parameter, gradient: torch.Tensor) -> None:
    """Add to a parameter's gradient, as autograd would."""
    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)


class DeepSeekPipeline(DualPipe):
    """
    What one rank runs: its two stages in DeepSeek's class, in the order of a schedule.

    Parameters
    ----------
    schedule
        A legal schedule with the placement of DualPipe; see ``verifier.formats.dualpipe_table`` for what the class can do.
    modules
        ``modules[direction, stage]`` for the two stages of this rank. The two copies of a stage must start equal.
    loss
        Called with an output and a target of one micro-batch. Losses and gradients are added up, so a mean has to be divided
        by ``schedule.problem.total_microbatches``.
    shape, dtype
        What flows between stages, for one micro-batch.
    rows
        Instructions of this rank to run instead of the schedule's own, for experiments.

    Raises
    ------
    ScheduleError
        If the schedule does not fit the group or the modules, or the class cannot execute it.
    """

    def __init__(
        self,
        schedule: Schedule,
        modules: Mapping[tuple[int, int], nn.Module],
        loss: Loss,
        *,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
        rows: Sequence[Sequence[str]] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        rank = check_fit(schedule, modules, group)
        self.instructions = (rows or instructions(schedule))[rank]
        held = schedule.problem.stages_on(rank)
        pair = (modules[held[0]], modules[held[1]])
        device = next(pair[0].parameters()).device
        _accept_both_spellings(type(pair[0]))
        # The class insists on the current CUDA device, which a CPU run has not.
        with mock.patch("torch.cuda.current_device", return_value=device):
            super().__init__(pair, process_group=group)
        self.schedule, self.loss, self.combined = schedule, loss, {key: modules[key] for key in held}
        self.buffer = {"size": tuple(shape), "dtype": dtype, "device": device}
        self._arriving: dict[tuple[str, int], deque[dist.Work]] = defaultdict(deque)
        self._leaving: deque[tuple[dist.Work, list[torch.Tensor]]] = deque()

    def step(
        self, inputs: torch.Tensor | None = None, targets: torch.Tensor | None = None, *, combine: bool = True
    ) -> list[torch.Tensor]:
        """
        Forward and backward of one batch; afterwards every parameter of this rank has its gradient.

        Parameters
        ----------
        inputs, targets
            The whole batch along the first dimension, all micro-batches of direction 0 before those of direction 1. Only the
            first and the last rank need them.
        combine
            Combine the gradients of the two copies; say False to accumulate over several steps, and True at the last.

        Returns
        -------
        The losses of the micro-batches whose last stage is on this rank, by micro-batch.
        """
        self.forward_only = self.return_outputs = False
        self._reset_states()
        labels: tuple[list[tuple[torch.Tensor]], ...] = ([], [])
        self.criterion, self.labels = self.loss, labels
        problem = self.schedule.problem
        for direction, stage in self.combined:
            count = problem.microbatches[direction]
            if stage == 0 and count:
                chunks = share(problem, inputs, direction, "inputs").chunk(count)
                self.input_chunks[direction].extend((chunk,) for chunk in chunks)
            if stage == problem.stages - 1 and count:
                chunks = share(problem, targets, direction, "targets").chunk(count)
                labels[direction].extend((chunk,) for chunk in chunks)
        for instruction in self.instructions:
            self._run(instruction)
        self._finish_sends(wait=True)
        losses = self.loss_chunks
        self._reset_states()
        if combine:
            combine_gradients(problem, self.combined, mean=False, group=self.group)
        return losses

    def _run(self, instruction: str) -> None:
        """One instruction of the table."""
        if instruction == "W":
            self._weight_chunk()
        elif match := _INSTRUCTION.fullmatch(instruction):
            action, phase = match[1], int(match[2])
            if action.startswith("RECV"):
                self._receive(action[-1], phase)
            elif action.startswith("SEND"):
                self._send(action[-1], phase)
            else:
                self._compute(action, phase)
        elif match := _PAIR.fullmatch(instruction):
            self._await(match[1], int(match[2]))
            self._await(match[3], int(match[4]))
            phases = {match[1]: int(match[2]), match[3]: int(match[4])}
            self._forward_backward_compute_chunk(phases["F"], phases["B"])
        else:
            raise ScheduleError(f'"{instruction}" is no instruction such as F0, B1, I0, W, (F0;B1), SEND_F0 or RECV_B1')

    def _compute(self, kind: str, phase: int) -> None:
        self._await(kind, phase)
        if kind == "F":
            self._forward_compute_chunk(phase)
        else:
            self._backward_compute_chunk(phase, enable_zb=kind == "I")

    def _direction(self, phase: int) -> int:
        return phase ^ self.is_in_second_half

    def _await(self, kind: str, phase: int) -> None:
        """Wait for what the next chunk of a phase reads; the ends of the pipeline read nothing from others."""
        direction = self._direction(phase)
        kind = "F" if kind == "F" else "B"
        at_end = (self.is_first_rank, self.is_last_rank)[direction if kind == "F" else 1 - direction]
        if at_end:
            return
        if not self._arriving[kind, direction]:
            raise ScheduleError(f"rank {self.rank}: {kind}{phase} comes before its RECV_{kind}{phase}")
        self._arriving[kind, direction].popleft().wait()

    def _peer(self, kind: str, direction: int, *, sending: bool) -> int:
        """The neighbour at the other end of a message: activations flow up the ranks in direction 0, gradients down."""
        upwards = (kind == "F") != (direction == 1)
        peer: int = self.next_rank if upwards == sending else self.prev_rank
        return peer

    def _receive(self, kind: str, phase: int) -> None:
        """Post the receive of the next activation or gradient."""
        direction = self._direction(phase)
        tensor = torch.empty(**self.buffer, requires_grad=kind == "F")
        chunks = self.input_chunks if kind == "F" else self.output_grad_chunks
        chunks[direction].append([tensor])
        peer = self._peer(kind, direction, sending=False)
        self._arriving[kind, direction].append(_post(dist.irecv, tensor, peer, self.group))

    def _send(self, kind: str, phase: int) -> None:
        """Send the next activation or gradient; an activation's memory is let go once it has left, as the class does."""
        direction = self._direction(phase)
        if kind == "F":
            chunks, counts = self.output_chunks, self.current_send_f_chunk_id
        else:
            chunks, counts = self.input_grad_chunks, self.current_send_b_chunk_id
        tensors = chunks[direction][counts[direction]]
        counts[direction] += 1
        peer = self._peer(kind, direction, sending=True)
        for tensor in tensors:
            self._leaving.append((_post(dist.isend, tensor, peer, self.group), tensors if kind == "F" else []))
        self._finish_sends(wait=False)

    def _finish_sends(self, *, wait: bool) -> None:
        """Let go of what has left."""
        while self._leaving and (wait or self._leaving[0][0].is_completed()):
            work, tensors = self._leaving.popleft()
            work.wait()
            for tensor in tensors:
                tensor.data = tensor.new_empty(0)


def _post(action: Callable[..., Any], tensor: torch.Tensor, peer: int, group: dist.ProcessGroup) -> dist.Work:
    """Start one message in the group's own communicator."""
    return dist.batch_isend_irecv([dist.P2POp(action, tensor, group=group, group_peer=peer)])[0]


def _accept_both_spellings(kind: type) -> None:
    """The hook for overlapped blocks lost a letter in the package and has it in the repository; a module may have either."""
    names = ("overlaped_forward_backward", "overlapped_forward_backward")
    for present, absent in (names, names[::-1]):
        if hasattr(kind, present) and not hasattr(kind, absent):
            setattr(kind, absent, inspect.getattr_static(kind, present))
