"""
What a person has to know beside an exported file: how its runtime takes it, which settings go with it, what it will not do.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.formats import program_json
from verifier.formats.source import Source
from verifier.messages import Program
from verifier.model import Problem


def notes(source: Source, target: str, file: str = "FILE") -> tuple[str, ...]:
    """
    The notes that go with an export.

    Parameters
    ----------
    source
        What was exported.
    target
        The format, by its name in ``export --to``; most need no notes.
    file
        What the exported file is called.

    References
    ----------
    PyTorch 2.13, torch/distributed/pipelining/schedules.py; pytorch/torchtitan, torchtitan/distributed/pipeline_parallel.py.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> for line in notes(Source(build_family("zbv", 4, 8), "family"), "torch-csv", "zbv.csv"):
    ...     print(line)
    torch: _PipelineScheduleRuntime(stages, 8, loss_fn=...), then _load_csv("zbv.csv", format="compute_only")
    torchtitan: pipeline_parallel_schedule_csv = "zbv.csv"
    torchtitan: pipeline_parallel_schedule = "ZBVZeroBubble" (for its placement: stages r and 7-r on rank r)
    torchtitan: pipeline_parallel_degree = 4
    torchtitan: local_batch_size = 8 x pipeline_parallel_microbatch_size; it builds the runtime with scale_grads=False
    """
    about = {
        "torch-csv": _torch_csv,
        "torch-comms-csv": _torch_comms_csv,
        "dualpipe-table": _dualpipe_table,
        "program": _program,
        "program-batched": _program,
    }
    return tuple(about[target](source, file)) if target in about else ()


def _torch_csv(source: Source, file: str) -> Iterator[str]:
    problem = source.schedule.problem
    yield _load(problem, file, "compute_only")
    if problem.total_microbatches < problem.stages == problem.ranks:
        yield "torch: Schedule1F1B refuses fewer micro-batches than stages; the runtime that loads this table takes them"
    yield from _torchtitan(problem, file)
    if _overlaps(source):
        yield f"{_OVERLAP}; torchtitan registers one for its own DualPipeV only"
    if source.program:
        yield "the source's messages are not in the file: torch places its own; torch-comms-csv keeps them"


def _torch_comms_csv(source: Source, file: str) -> Iterator[str]:
    problem = source.schedule.problem
    if problem.directions == 1:
        yield _load(problem, file, "compute_comms")
        yield "torchtitan loads tables without messages only; use torch-csv there"
    else:
        yield (
            f"two weight copies: stage s of direction 1 is torch's stage {problem.stages}+s of {2 * problem.stages}, and "
            f"{problem.microbatches[0]} micro-batches flow through each copy"
        )
        yield (
            "torch's own stages would take both copies for one model: run the schedule with "
            "verifier.runtimes.torch_runtime.TorchPipeline, as examples/train_torch.py does"
        )
    if _overlaps(source):
        yield _OVERLAP
    if source.program and source.format == program_json.FORMAT and _has_groups(source.program):
        yield "torch posts messages one by one: the groups of the source are gone; verify the file with --messages rank"


def _has_groups(program: Program) -> bool:
    """Whether messages stand side by side, and so go as one group where groups are known, or were kept from that."""
    return bool(program.cuts) or any(len(group) > 1 for rank in range(program.problem.ranks) for group in program.groups(rank))


def _dualpipe_table(source: Source, _file: str) -> Iterator[str]:
    yield (
        "DeepSeek's class has an order of its own: to follow this one, run the schedule with "
        "verifier.runtimes.deepseek.DeepSeekPipeline, as examples/train_deepseek.py does"
    )
    if source.program:
        yield "the source's messages were placed anew"


def _program(source: Source, file: str) -> Iterator[str]:
    yield f"examples/interpret_program.py shows the loop that runs {file}"
    if source.program is None:
        yield "its messages are right under every communication model: with tags or without, buffered or not, grouped or not"


def _load(problem: Problem, file: str, form: str) -> str:
    runtime = f"_PipelineScheduleRuntime(stages, {problem.total_microbatches}, loss_fn=...)"
    return f'torch: {runtime}, then _load_csv("{file}", format="{form}")'


def _overlaps(source: Source) -> bool:
    return any(block.kind == "F&B" for row in source.schedule.order for block in row)


_OVERLAP = "torch: OVERLAP_F_B cells run one part after the other unless a function is registered for them"


def _torchtitan(problem: Problem, file: str) -> Iterator[str]:
    """Its settings, all of the table [parallelism] but local_batch_size."""
    style = _style(problem)
    if style is None:
        yield (
            "torchtitan cannot place these stages: it knows stage s on rank s mod P, and a V. Hand the stages of each rank to "
            "_PipelineScheduleRuntime yourself"
        )
        return
    yield f'torchtitan: pipeline_parallel_schedule_csv = "{file}"'
    yield f"torchtitan: pipeline_parallel_schedule = {style}"
    degree = f"torchtitan: pipeline_parallel_degree = {problem.ranks}"
    per_rank = problem.stages // problem.ranks
    yield degree if per_rank <= 2 else f"{degree}, pipeline_parallel_layers_per_stage = layers / {problem.stages}"
    yield (
        f"torchtitan: local_batch_size = {problem.total_microbatches} x pipeline_parallel_microbatch_size; "
        "it builds the runtime with scale_grads=False"
    )


def _style(problem: Problem) -> str | None:
    """The schedule that makes torchtitan place stages as the problem does; None where none does."""
    (placement,), ranks = problem.placement, problem.ranks
    if problem.stages == ranks and placement == tuple(range(ranks)):
        return '"1F1B" (for its placement: stage r on rank r)'
    if placement == (*range(ranks), *reversed(range(ranks))):
        return f'"ZBVZeroBubble" (for its placement: stages r and {2 * ranks - 1}-r on rank r)'
    if problem.stages % ranks == 0 and placement == tuple(stage % ranks for stage in range(problem.stages)):
        return f'"Interleaved1F1B" (for its placement: stages r, r+{ranks}, ... on rank r)'
    return None
