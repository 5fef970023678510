"""
Train a small model on a schedule with DeepSeek's DualPipe class (package ``dualpipe``).

One process per rank; the schedule is a file with DualPipe's placement, for example a synthesized one that is shorter than the
class's own order:

    verifier synthesize --placement bidirectional -P 4 -M 8 --activations 5 -o best.json
    torchrun --standalone --nproc-per-node 4 examples/train_deepseek.py best.json
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

from verifier.formats import load
from verifier.runtimes.deepseek import DeepSeekPipeline, SplitLinear

WIDTH, SAMPLES, STEPS = 32, 4, 3
"""Of a layer; per micro-batch; of the optimizer."""


def build_stage(stage: int) -> nn.Module:
    """A slice of the model; both copies of a stage must start equal, so its weights depend on its number alone."""
    torch.manual_seed(stage)
    return nn.Sequential(SplitLinear(WIDTH, WIDTH), nn.Tanh())


def main(path: str) -> None:
    """Train for a few steps on this rank."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    schedule = load(path).schedule
    problem, rank = schedule.problem, dist.get_rank()

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        # The class adds up what it is given; this makes it the mean over all micro-batches.
        return nn.functional.mse_loss(output, target) / problem.total_microbatches

    modules = {(direction, stage): build_stage(stage).to(device) for direction, stage in problem.stages_on(rank)}
    pipeline = DeepSeekPipeline(schedule, modules, loss, shape=(SAMPLES, WIDTH))
    optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.1)

    torch.manual_seed(1000)
    inputs = torch.randn(problem.total_microbatches * SAMPLES, WIDTH, device=device)
    targets = torch.tanh(inputs.roll(1, dims=1))
    for step in range(STEPS):
        optimizer.zero_grad()
        losses = pipeline.step(inputs, targets)
        optimizer.step()
        if losses:
            total = torch.stack(losses).mean() * problem.total_microbatches
            print(f"step {step}, rank {rank}: mean loss of {len(losses)} micro-batches {total:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
