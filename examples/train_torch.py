"""
Train a small model on a schedule with PyTorch's pipelining runtime.

One process per rank; the schedule is a file, here an export of the DualPipe order with its two weight copies:

    verifier export dualpipe -P 4 -M 8 --to json -o dualpipe.json
    torchrun --standalone --nproc-per-node 4 examples/train_torch.py dualpipe.json

Any other schedule for as many ranks will do, with one weight copy or two, from a family or synthesized.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

from verifier.formats import load
from verifier.runtimes.torch_runtime import TorchPipeline

WIDTH, SAMPLES, STEPS = 32, 4, 3
"""Of a layer; per micro-batch; of the optimizer."""


def build_stage(stage: int) -> nn.Module:
    """A slice of the model; both copies of a stage must start equal, so its weights depend on its number alone."""
    torch.manual_seed(stage)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


def main(path: str) -> None:
    """Train for a few steps on this rank."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    schedule = load(path).schedule
    problem, rank = schedule.problem, dist.get_rank()

    modules = {(direction, stage): build_stage(stage).to(device) for direction, stage in problem.stages_on(rank)}
    pipeline = TorchPipeline(schedule, modules, nn.functional.mse_loss, device=device)
    parameters = [parameter for module in modules.values() for parameter in module.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    # Every rank may make the whole batch; only the ends of the pipeline look at it.
    torch.manual_seed(1000)
    inputs = torch.randn(problem.total_microbatches * SAMPLES, WIDTH, device=device)
    targets = torch.tanh(inputs.roll(1, dims=1))
    for step in range(STEPS):
        optimizer.zero_grad()
        losses = pipeline.step(inputs, targets)
        optimizer.step()
        if losses:
            print(f"step {step}, rank {rank}: mean loss of {len(losses)} micro-batches {torch.stack(losses).mean():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
