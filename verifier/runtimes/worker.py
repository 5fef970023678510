"""
The processes of a trial run: ``python -m verifier.runtimes.worker DIRECTORY PROGRESS ALIVE``, started by ``harness``.

The first process imports torch once and forks one process per rank. When all have ended it trains the same model alone and
compares. Nothing here outlives the process that asked for the run: when that one is gone, the pipe ALIVE ends, and all leave.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from verifier.model import Block, Part, Problem, Schedule, text_of
from verifier.runtimes.trial import SAMPLES, WIDTH, batch, build_stage, descend, gradients, train_alone

Key = tuple[int, int, int]
"""Direction, stage, micro-batch."""


class Watch:
    """
    What one rank reports: which parts it has run, when, and how many activations it holds.

    An activation counts as long as autograd, or a weight part that waits in a queue, holds on to anything that its forward
    saved.
    """

    def __init__(self, rank: int, stages: int, progress: int) -> None:
        self.rank, self.stages, self.progress = rank, stages, progress
        self.held: Counter[Key] = Counter()
        self.live = self.peak = 0

    def say(self, words: str) -> None:
        """Tell the process that asked for the run; short lines arrive whole."""
        os.write(self.progress, f"{self.rank} {words}\n".encode())

    @contextlib.contextmanager
    def part(self, kind: str, direction: int, stage: int, microbatch: int) -> Iterator[None]:
        """Surround the computation of one part, without its messages."""
        name = text_of([Part(kind, direction, stage, microbatch)])
        key = (direction, stage, microbatch)
        hooks: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if kind == "F":
            hooks = saved_tensors_hooks(partial(Held, self, key), lambda held: held.tensor)
        start = time.perf_counter_ns()
        with hooks:
            yield
        end = time.perf_counter_ns()
        self.say(f"done {direction * self.stages + stage}{kind}{microbatch} {name} {start} {end}")


class Held:
    """Something that an activation consists of; counted until nobody refers to it."""

    def __init__(self, watch: Watch, key: Key, tensor: torch.Tensor | None = None) -> None:
        self.watch, self.key, self.tensor = watch, key, tensor
        watch.live += not watch.held[key]
        watch.held[key] += 1
        watch.peak = max(watch.peak, watch.live)

    def __del__(self) -> None:
        self.watch.held[self.key] -= 1
        self.watch.live -= not self.watch.held[self.key]


# ------------------------------------------------------------------------------------------------------------- one rank


def run_rank(job: dict[str, Any], directory: Path, rank: int, progress: int) -> None:
    """Train on one rank, and leave a record of it."""
    torch.set_num_threads(1)
    schedule = read_schedule(job)
    watch = Watch(rank, schedule.problem.stages, progress)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{directory}/rendezvous",
        rank=rank,
        world_size=schedule.problem.ranks,
        # The one who asked for the run notices a hang first; this is for the case that it cannot.
        timeout=timedelta(seconds=3 * job["timeout"] + 60),
    )
    held = schedule.problem.stages_on(rank)
    build = {"torch": torch_pipeline, "dualpipe": deepseek_pipeline}[job["on"]]
    modules, pipeline, row = build(job, schedule, rank, watch)
    Path(directory, f"row.{rank}").write_text("\n".join(row))
    watch.say("ready")
    record = []
    for step in range(job["steps"]):
        watch.say("step")
        losses = pipeline.step(*batch(schedule.problem.total_microbatches, step))
        before = {key: gradients(modules[key]) for key in held}
        descend(list(modules.values()))
        weights = {key: [parameter.detach().clone() for parameter in modules[key].parameters()] for key in held}
        record.append({"losses": [loss.item() for loss in losses], "gradients": before, "weights": weights})
    torch.save({"steps": record, "peak": watch.peak}, Path(directory, f"rank.{rank}"))
    # A rank that leaves while others still read from it could cut them off.
    dist.barrier()
    watch.say("finished")


def torch_pipeline(job: dict[str, Any], schedule: Schedule, rank: int, watch: Watch) -> tuple[Any, Any, list[str]]:
    """The modules, the pipeline, and what the rank will do in torch's words."""
    from verifier.runtimes.torch_runtime import CopyStage, TorchPipeline

    class WatchedStage(CopyStage):
        """Reports what it computes."""

        def _part(self, kind: str, microbatch: int) -> contextlib.AbstractContextManager[None]:
            return watch.part(kind, self.stage_index // self.stages, self.stage_index % self.stages, microbatch)

        def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
            with self._part("F", fwd_chunk_id):
                return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

        def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, full_backward: bool = True, **kwargs: Any) -> None:
            with self._part("B" if full_backward else "I", bwd_chunk_id):
                super().backward_one_chunk(bwd_chunk_id, *args, full_backward=full_backward, **kwargs)

        def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
            with self._part("W", bwd_chunk_id):
                super().backward_weight_one_chunk(bwd_chunk_id, last_backward=last_backward)

    modules = {key: build_stage(key[1]) for key in schedule.problem.stages_on(rank)}
    pipeline = TorchPipeline(
        schedule, modules, nn.functional.mse_loss, form=job["form"], table=job["table"], stage_class=WatchedStage
    )
    return modules, pipeline, [str(action) for action in pipeline.runtime.pipeline_order_with_comms[rank]]


def deepseek_pipeline(job: dict[str, Any], schedule: Schedule, rank: int, watch: Watch) -> tuple[Any, Any, list[str]]:
    """As for torch."""
    from dualpipe import WeightGradStore

    from verifier.formats.dualpipe_table import spelled_out
    from verifier.formats.torch_comms_csv import cell
    from verifier.runtimes.deepseek import DeepSeekPipeline, SplitLinear

    problem = schedule.problem

    class WatchedPipeline(DeepSeekPipeline):
        """Reports what it computes."""

        def _forward_compute_chunk(self, phase: int) -> None:
            direction, stage = held[self._direction(phase)]
            with watch.part("F", direction, stage, self.current_f_chunk_id[direction]):
                super()._forward_compute_chunk(phase)

        def _backward_compute_chunk(self, phase: int, enable_zb: bool = False) -> None:
            direction, stage = held[self._direction(phase)]
            microbatch = self.current_b_chunk_id[direction]
            with watch.part("I" if enable_zb else "B", direction, stage, microbatch):
                super()._backward_compute_chunk(phase, enable_zb)
            if enable_zb:
                waiting.append((direction, stage, microbatch))
                # Lives as long as the entry of the queue, which keeps what the weight part needs.
                entry = WeightGradStore.funcs_queue.queue[-1]
                entry.append(partial(id, Held(watch, waiting[-1])))

        def _weight_chunk(self) -> None:
            with watch.part("W", *waiting.pop(0)):
                super()._weight_chunk()

    held, waiting = problem.stages_on(rank), list[Key]()
    modules = {key: build_stage(key[1], SplitLinear) for key in held}

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(output, target) / problem.total_microbatches

    pipeline = WatchedPipeline(schedule, modules, loss, shape=(SAMPLES, WIDTH), dtype=torch.float64, rows=job["table"])
    return modules, pipeline, [cell(problem, action) for action in spelled_out(problem, rank, pipeline.instructions)]


def read_schedule(job: dict[str, Any]) -> Schedule:
    """The schedule of a job, from tokens."""
    problem = Problem(tuple(map(tuple, job["placement"])), tuple(job["microbatches"]))
    return Schedule(problem, tuple(tuple(map(Block.parse, row)) for row in job["order"]))


# ------------------------------------------------------------------------------------------------------------ comparison


def compare(job: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Hold what the ranks recorded against training alone."""
    problem = read_schedule(job).problem
    ranks = [torch.load(directory / f"rank.{rank}") for rank in range(problem.ranks)]
    alone = train_alone(problem.stages, problem.total_microbatches, job["steps"])
    losses, worst, copies_equal = [], (-1.0, ""), True
    for step, (_, reference) in enumerate(alone):
        records = [rank["steps"][step] for rank in ranks]
        found = [loss for record in records for loss in record["losses"]]
        # DeepSeek's class adds losses up, and each was divided beforehand.
        losses.append(sum(found) / (len(found) if job["on"] == "torch" else 1))
        for record in records:
            for (direction, stage), by_name in record["gradients"].items():
                for name, expected in reference[stage].items():
                    place = f"step {step}, stage {stage}{chr(39) * direction}, {name}"
                    worst = max(worst, (relative_error(by_name.get(name), expected), place))
        copies_equal &= same_copies([record["weights"] for record in records])
    return {
        "gradient_error": worst[0],
        "worst": worst[1],
        "losses": losses,
        "reference_losses": [loss for loss, _ in alone],
        "copies_equal": copies_equal if problem.directions > 1 else None,
        "peak_activations": [rank["peak"] for rank in ranks],
    }


def relative_error(found: torch.Tensor | None, expected: torch.Tensor) -> float:
    """Distance from what is expected as a share of it; an absent gradient is as wrong as zero."""
    return 1.0 if found is None else ((found - expected).norm() / expected.norm()).item()


def same_copies(held: list[dict[tuple[int, int], list[torch.Tensor]]]) -> bool:
    """Whether both copies of every stage are equal bit for bit."""
    weights = {key: parameters for rank in held for key, parameters in rank.items()}
    return all(
        torch.equal(one, other)
        for (direction, stage), parameters in weights.items()
        if direction == 1
        for one, other in zip(weights[0, stage], parameters, strict=True)
    )


# ------------------------------------------------------------------------------------------------------------- processes


def fork_rank(job: dict[str, Any], directory: Path, rank: int, progress: int, alive: int) -> int:
    """Start the process of one rank; it never returns into this function's caller."""
    process = os.fork()
    if process:
        return process
    threading.Thread(target=leave_when_alone, args=(alive,), daemon=True).start()
    code = 1
    try:
        run_rank(job, directory, rank, progress)
        code = 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, it goes into the report
        traceback.print_exc()
        Path(directory, f"error.{rank}").write_text(f"{type(error).__name__}: {str(error).strip()}".splitlines()[0])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # No clean-up at exit: it would wait for ranks that may hang.
        os._exit(code)


def leave_when_alone(alive: int) -> None:
    """End this process when the one that asked for the run is gone."""
    os.read(alive, 1)
    os._exit(3)


def await_ranks(processes: list[int], directory: Path, alive: int) -> bool:
    """Wait for all ranks; False as soon as one fails. If the run is abandoned, nothing stays behind."""
    while processes:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process:
            processes.remove(process)
            if status:
                return False
        elif select.select([alive], [], [], 0.02)[0]:
            kill(processes)
            shutil.rmtree(directory, ignore_errors=True)
            os._exit(3)
    return True


def kill(processes: list[int]) -> None:
    """End processes at once and wait until they are gone."""
    for process in processes:
        os.kill(process, signal.SIGKILL)
    for process in processes:
        os.waitpid(process, 0)


def main(directory: Path, progress: int, alive: int) -> int:
    """Run a job; 0 if every rank came through."""
    job = json.loads(Path(directory, "job.json").read_text())
    # Imported before the fork, so that every rank has it for free.
    if job["on"] == "torch":
        import verifier.runtimes.torch_runtime
    else:
        import verifier.runtimes.deepseek  # noqa: F401
    processes = [fork_rank(job, directory, rank, progress, alive) for rank in range(1 + max(map(max, job["placement"])))]
    if not await_ranks(processes, directory, alive):
        # The others learn of it a moment later and would leave their own complaint; the first one counts.
        kill(processes)
        return 1
    Path(directory, "result.json").write_text(json.dumps(compare(job, directory)))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
