"""
The model that trial runs train: small, deterministic, in double precision, and its training in a single process.

Inputs, weights and targets differ for every micro-batch, stage and step, so that a message in the wrong place cannot go unseen.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

WIDTH = 6
SAMPLES = 2
"""Per micro-batch."""
LEARNING_RATE = 0.1


def build_stage(stage: int, linear: type[nn.Linear] = nn.Linear) -> nn.Module:
    """
    A stage of the model; the same stage is always built with the same weights.

    Parameters
    ----------
    stage
        Which one.
    linear
        The class of its layer.

    Examples
    --------
    >>> torch.equal(build_stage(3)[0].weight, build_stage(3)[0].weight)
    True
    """
    layer = linear(WIDTH, WIDTH, dtype=torch.float64)
    generator = torch.Generator().manual_seed(stage)
    with torch.no_grad():
        # Close to a rotation, so that neither activations nor gradients fade over many stages.
        square = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
        layer.weight.copy_(torch.linalg.qr(square).Q * 1.2)
        layer.bias.copy_(torch.randn(WIDTH, generator=generator, dtype=torch.float64) * 0.1)
    return nn.Sequential(layer, nn.Tanh())


def batch(microbatches: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Inputs and targets of all micro-batches of one training step.

    >>> batch(4, step=0)[0].shape
    torch.Size([8, 6])
    """
    generator = torch.Generator().manual_seed(1000 + step)
    inputs, targets = torch.randn(2, microbatches * SAMPLES, WIDTH, generator=generator, dtype=torch.float64)
    return inputs, targets


def descend(modules: Sequence[nn.Module]) -> None:
    """Take one step of gradient descent and forget the gradients."""
    with torch.no_grad():
        for module in modules:
            for parameter in module.parameters():
                parameter -= LEARNING_RATE * parameter.grad
                parameter.grad = None


def gradients(module: nn.Module) -> dict[str, torch.Tensor]:
    """The gradient of every parameter, by name."""
    return {name: parameter.grad.clone() for name, parameter in module.named_parameters() if parameter.grad is not None}


def train_alone(stages: int, microbatches: int, steps: int) -> list[tuple[float, list[dict[str, torch.Tensor]]]]:
    """
    Train the whole model in this process, without a pipeline.

    Returns
    -------
    For every step the loss and ``gradients[stage]``.

    Examples
    --------
    >>> (loss, gradients), = train_alone(stages=2, microbatches=4, steps=1)
    >>> len(gradients), sorted(gradients[0])
    (2, ['0.bias', '0.weight'])
    """
    model = nn.Sequential(*(build_stage(stage) for stage in range(stages)))
    record = []
    for step in range(steps):
        inputs, targets = batch(microbatches, step)
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        record.append((loss.item(), [gradients(module) for module in model]))
        descend(list(model))
    return record
