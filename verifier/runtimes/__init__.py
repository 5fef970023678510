"""
Real runtimes that execute a schedule: PyTorch's pipelining runtime and DeepSeek's DualPipe class.

A training script uses :class:`verifier.runtimes.torch_runtime.TorchPipeline` or
:class:`verifier.runtimes.deepseek.DeepSeekPipeline`, which need torch. :func:`run` tries a schedule out on this machine.
"""

from verifier.runtimes.harness import RunReport, run

__all__ = ["RunReport", "run"]
