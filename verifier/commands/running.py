"""
The commands that execute schedules for real, ``run``, and that turn measured times into costs, ``costs``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from verifier.commands.options import DONE, REFUTED, examples, json_option, keep_input, print_json, source_options
from verifier.model import ScheduleError

if TYPE_CHECKING:
    from verifier.formats.source import Source
    from verifier.verify import Report

RUNTIMES = ("torch", "dualpipe")
FORMS = ("compute-only", "compute-comms")
"""As in ``verifier.runtimes``, named here so that the help text needs no import; a test keeps them equal."""


@click.command(
    epilog=examples(
        "verifier run dualpipev -P 4 -M 8 --on torch",
        "verifier run dualpipe -P 4 -M 8 --on dualpipe --steps 3",
        "verifier run table.csv --on torch --trace trace.json",
    )
)
@click.argument("source")
@source_options
@click.option(
    "--on",
    "runtime",
    required=True,
    type=click.Choice(RUNTIMES),
    help="PyTorch's pipelining runtime, or DeepSeek's DualPipe class.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="What torch is given. compute-only: it places the messages, default for one weight copy. compute-comms: the messages "
    "of the file, default where it has any, or else ours.",
)
@click.option("--steps", type=click.IntRange(min=1), default=1, metavar="N", help="Training steps (default 1).")
@click.option("--force", is_flag=True, help="Run also what is refuted.")
@click.option(
    "--timeout",
    type=click.IntRange(1, 86_400),
    default=20,
    metavar="SECONDS",
    help="Without any progress for so long it is a hang (default 20).",
)
@click.option(
    "--trace", metavar="FILE", help="Write when every part ran, also before a hang; for ui.perfetto.dev and for costs."
)
@json_option
def run(
    source: str,
    runtime: str,
    form: str | None,
    steps: int,
    force: bool,
    timeout: int,
    trace: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """
    Execute a schedule on this machine and compare its gradients.

    A process per rank trains a small model over gloo. Losses and every gradient are compared with a single process, live
    activations with the prediction. A hang ends by itself and says who waited for what. What verify refutes is not run, unless
    --force is given; a file's own messages are judged under the model ordered, which is what gloo does.
    """
    from verifier.formats import write_text
    from verifier.runtimes import run as execute
    from verifier.sources import UNDIVIDED, open_source, verdict

    if form is not None and runtime != "torch":
        raise ScheduleError(f"--format says what torch is given; {runtime} has one")
    keep_input([source], trace)
    subject = open_source(source, **given)
    table = _own_messages(subject) if runtime == "torch" and form != "compute-only" else None
    report = verdict(subject if table else replace(subject, program=None), solver="replay")
    if report.status == "refuted" and not force:
        return _refuse(report, as_json)
    if table and UNDIVIDED in report.notes:
        click.echo(f"{UNDIVIDED}; this run adds the marks", err=True)
    if subject.program and not table:
        click.echo(f"the messages of {source} are placed anew for {runtime}", err=True)
    done = execute(
        subject.schedule,
        on=runtime,
        form=form.replace("-", "_") if form else None,
        table=table,
        steps=steps,
        timeout=timeout,
    )
    if trace is not None and any(done.events):
        write_text(trace, done.trace())
    if as_json:
        print_json(done.as_json())
    else:
        click.echo(done.as_text())
    return DONE if done.passed else REFUTED


def _own_messages(source: Source) -> str | None:
    """The table of a source that says itself what is sent; None where it does not."""
    if source.program is None:
        return None
    from verifier.formats import torch_comms_csv
    from verifier.messages import with_marks

    return torch_comms_csv.dump_program(with_marks(source.program))


def _refuse(report: Report, as_json: bool) -> int:
    """Say why a schedule is not run, as ``verify`` would."""
    if as_json:
        print_json(report.as_json())
    else:
        from verifier.views.terminal import console, print_report

        print_report(console(), report)
    click.echo("refuted, so it was not run; --force runs it all the same", err=True)
    return REFUTED


@click.command(
    epilog=examples("verifier costs trace.json -o costs.toml", "verifier show dualpipe -P 8 -M 20 --costs costs.toml")
)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option(
    "--stages",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stages of the model, where a trace numbers those of two weight copies one after the other.",
)
@click.option("-o", "output", metavar="FILE", help="Where to write; standard output by default.")
@json_option
def costs(traces: tuple[str, ...], stages: int | None, output: str | None, as_json: bool) -> int:
    """
    Measured times to costs: per stage and kind the median, without the first of several steps.

    TRACE is what torch's profiler exports, one file per rank, plain or gzipped, or what run --trace writes.
    """
    from verifier.formats import write_text
    from verifier.formats.traces import load_traces

    keep_input(traces, output)
    measured = load_traces(traces, stages=stages)
    text = measured.as_toml(", ".join(Path(trace).name for trace in traces))
    if output is not None:
        write_text(output, text)
    if as_json:
        print_json(measured.as_json())
    elif output is None:
        click.echo(text, nl=False)
    return DONE
