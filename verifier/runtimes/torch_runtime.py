"""
PyTorch's pipelining runtime, driven by a schedule: one weight copy, or the two of DualPipe.

Needs torch 2.13 or newer. With one copy the runtime, ``torch.distributed.pipelining.schedules._PipelineScheduleRuntime``, and
its stages run unchanged; what they lack for two copies is in :class:`CopyStage` and :class:`CopyRuntime`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from verifier.formats import torch_comms_csv, torch_csv
from verifier.formats.torch_comms_csv import refuse_beyond_torch, stage_number
from verifier.model import Schedule
from verifier.runtimes.local import check_fit, combine_gradients, share

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class CopyStage(PipelineStage):
    """
    A stage of one weight copy in a chain that holds all copies one after the other.

    It is first or last within its copy, and hands nothing across the cut between two copies, even where torch sees two
    neighbouring stages on one rank. With a single copy it is torch's own stage.

    Parameters
    ----------
    module
        The layers of the stage.
    number
        The number in the whole chain.
    stages
        Stages of one copy.
    copies
        How many copies the chain holds.
    """

    def __init__(
        self,
        module: nn.Module,
        number: int,
        stages: int,
        copies: int,
        device: torch.device,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.stages = stages
        super().__init__(module, number, stages * copies, device, group=group)

    @property
    def is_first(self) -> bool:
        """Whether it reads the inputs."""
        return self.stage_index % self.stages == 0

    @property
    def is_last(self) -> bool:
        """Whether it ends in the loss."""
        return self.stage_index % self.stages == self.stages - 1

    def set_local_fwd_input(self, prev_stage_outputs: Any, mb_index: int) -> None:
        """Take an activation from the stage before it on this rank, unless that one belongs to the other copy."""
        if not self.is_first:
            super().set_local_fwd_input(prev_stage_outputs, mb_index)

    def get_local_bwd_output(self, mb_index: int) -> Any:
        """Hand a gradient to the stage before it on this rank, unless that one belongs to the other copy."""
        return () if self.is_first else super().get_local_bwd_output(mb_index)

    def set_local_bwd_input(self, next_stage_bwd_outputs: Any, mb_index: int) -> None:
        """Take a gradient from the stage after it on this rank, unless that one belongs to the other copy."""
        if not self.is_last:
            super().set_local_bwd_input(next_stage_bwd_outputs, mb_index)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """
        Run a weight backward; a copy's first stage does its whole backward here, since its inputs need no gradient.

        Torch knows this of stage 0 only.
        """
        if self.stage_index == 0 or not self.is_first or not self.has_backward or self.dw_builder is not None:
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward=last_backward)
            return
        inputs, _, outputs, gradients = self.backward_state.pop(bwd_chunk_id)
        everything = {"stage_output": outputs, "output_grads": gradients, "input_values": inputs}
        self.backward_maybe_with_nosync("full", everything, last_backward=last_backward)


class CopyRuntime(_PipelineScheduleRuntime):
    """
    The runtime for two weight copies.

    Torch looks up a loss for every backward of a rank that has a last stage, and complains if it is not there yet. In one
    chain it always is; a stage of the other copy may well be ahead.
    """

    def _maybe_get_loss(self, stage: Any, mb_index: int) -> torch.Tensor | None:
        return super()._maybe_get_loss(stage, mb_index) if stage.is_last else None


class TorchPipeline:
    """
    What one rank runs: its stages in torch's runtime, with every op and message where the schedule has it.

    Parameters
    ----------
    schedule
        A legal schedule for as many ranks as the group has.
    modules
        ``modules[direction, stage]`` for every stage of this rank, ``schedule.problem.stages_on(rank)``. The two copies of a
        stage must start equal.
    loss
        Called with an output and a target of one micro-batch.
    form
        ``compute_comms``: messages are placed by this package. ``compute_only``: by torch, one weight copy only.
    table
        The text of a table to run instead of the schedule's own, for experiments.
    mean
        Divide gradients by the number of micro-batches and average the copies, right for a loss that is a mean; else
        everything is added up.
    device, group
        Where this rank computes, and the pipeline's process group.
    stage_class
        What wraps a module.

    Raises
    ------
    ScheduleError
        If the schedule does not fit the group or the modules, or torch cannot execute it.

    Examples
    --------
    In a script that ``torchrun`` starts on every rank::

        schedule = build_family("dualpipe", 4, 8)
        modules = {key: build_stage(stage=key[1]) for key in schedule.problem.stages_on(rank)}
        pipeline = TorchPipeline(schedule, modules, torch.nn.functional.mse_loss)
        losses = pipeline.step(inputs, targets)
        optimizer.step()
    """

    def __init__(
        self,
        schedule: Schedule,
        modules: Mapping[tuple[int, int], nn.Module],
        loss: Loss,
        *,
        form: str = "compute_comms",
        table: str | None = None,
        mean: bool = True,
        device: torch.device | str = "cpu",
        group: dist.ProcessGroup | None = None,
        stage_class: type[CopyStage] = CopyStage,
    ) -> None:
        problem = schedule.problem
        rank = check_fit(schedule, modules, group)
        self.schedule, self.modules, self.mean, self.group = schedule, dict(modules), mean, group
        # Torch initializes a rank's stages in list order, and each waits for the one before it in the chain.
        numbers = sorted((stage_number(problem, *key), key) for key in problem.stages_on(rank))
        self.stages = [
            stage_class(modules[key], number, problem.stages, problem.directions, torch.device(device), group)
            for number, key in numbers
        ]
        runtime = _PipelineScheduleRuntime if problem.directions == 1 else CopyRuntime
        self.runtime = runtime(self.stages, problem.microbatches[0], loss_fn=loss, scale_grads=mean)
        if table is None:
            refuse_beyond_torch(schedule)
            table = torch_comms_csv.dump(schedule) if form == "compute_comms" else torch_csv.dump(schedule)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "schedule.csv")
            path.write_text(table, encoding="utf-8")
            self.runtime._load_csv(str(path), format=form)
        held = problem.stages_on(rank)
        self._reads = next((direction for direction, stage in held if stage == 0), None)
        self._judges = next((direction for direction, stage in held if stage == problem.stages - 1), None)

    def step(
        self, inputs: torch.Tensor | None = None, targets: torch.Tensor | None = None, *, combine: bool = True
    ) -> list[torch.Tensor]:
        """
        Forward and backward of one batch; afterwards every parameter of this rank has its gradient.

        Parameters
        ----------
        inputs, targets
            The whole batch along the first dimension, all micro-batches of direction 0 before those of direction 1. Ranks
            without a first stage need no inputs, ranks without a last stage no targets.
        combine
            Combine the gradients of the two copies; say False to accumulate over several steps, and True at the last.

        Returns
        -------
        The losses of the micro-batches whose last stage is on this rank, by micro-batch.
        """
        problem = self.schedule.problem
        losses: list[torch.Tensor] = []
        arguments = () if self._reads is None else (share(problem, inputs, self._reads, "inputs"),)
        judged: dict[str, Any] = {}
        if self._judges is not None:
            judged = {"target": share(problem, targets, self._judges, "targets"), "losses": losses}
        self.runtime.step(*arguments, return_outputs=False, **judged)
        if combine:
            combine_gradients(problem, self.modules, mean=self.mean, group=self.group)
        return losses
