"""
The command ``verifier``: one small function per command, and how each of them speaks and ends.

Exit codes: 0 proved or done, 1 refuted or infeasible, 2 wrong use or unreadable input, 3 unknown, 130 interrupted. Whatever a
command needs is imported inside it, so that ``verifier --help`` answers at once.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from verifier import __version__
from verifier.model import ScheduleError, exact

if TYPE_CHECKING:
    from verifier.compare import Refusal, Row
    from verifier.costs import CostModel
    from verifier.families import Family
    from verifier.formats.source import Source

DONE, REFUTED, WRONG, UNKNOWN, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 130, 141

MODELS = ("tagged", "ordered", "pair", "rank", "batched", "blocking")
"""As in ``verifier.messages``, named here so that the help text needs no import; a test keeps them equal."""

EXIT_CODES = {"proved": DONE, "refuted": REFUTED, "unknown": UNKNOWN}

Command = TypeVar("Command", bound=Callable[..., Any])


class CommandLine(click.Group):
    """A group whose commands return their exit code, and whose errors are one line."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command line, say in one line what is wrong with it, and exit."""
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.ClickException as error:
            click.echo(_one_line(error), err=True)
            code = WRONG
        except click.Abort:
            code = INTERRUPTED
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what it printed is out before its exit code counts."""
        try:
            if isinstance(sys.stdout, io.TextIOWrapper):
                # A file name that is no text must not keep its verdict from being printed.
                sys.stdout.reconfigure(errors="backslashreplace")
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read our output has seen enough; Python would complain again when it closes the stream.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        except ScheduleError as error:
            raise click.ClickException(str(error)) from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(f"{where}{error.strerror or error}") from None
        return code


def _one_line(error: click.ClickException) -> str:
    """The message without the usage text that click would print above it."""
    message = " ".join(error.format_message().split())
    if len(message) > 500:
        message = f"{message[:400]} ... {message[-80:]}"
    if not isinstance(error, click.UsageError):
        return message
    path = error.ctx.command_path if error.ctx else "verifier"
    return f"{path}: {message} (see {path} --help)"


# ------------------------------------------------------------------------------------------------------ shared options


def source_options(command: Command) -> Command:
    """The options that say what SOURCE is; a command takes them as ``**given`` and hands them to ``open_source``."""
    for option in reversed(
        (
            click.option("-P", "ranks", type=int, metavar="N", help="Ranks, of a family."),
            click.option(
                "-M",
                "--microbatches",
                type=int,
                metavar="N",
                help="Micro-batches over all directions: of a family, or how many a file should have.",
            ),
            click.option("--stages-per-rank", type=int, metavar="N", help="Of the family interleaved (default 2)."),
            click.option(
                "--rule",
                type=click.Choice(["pytorch", "megatron"]),
                help="How interleaved groups micro-batches (default pytorch).",
            ),
            click.option(
                "--dialect", type=click.Choice(["modern", "legacy"]), help="legacy: a table in which B is the input backward."
            ),
            click.option(
                "--copies",
                type=click.Choice(["1", "2"]),
                help="2: a table whose stages are two weight copies laid end to end, as export writes DualPipe for torch.",
            ),
        )
    ):
        command = option(command)
    return command


costs_option = click.option(
    "--costs", metavar="COSTS", help="F=1,I=1,W=1,FB=3,hop=0; per stage F=[1,1,2]; or a TOML file with [costs]."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _examples(*lines: str) -> str:
    """The end of a help text; the mark keeps click from filling the lines."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def _print_json(written: object) -> None:
    click.echo(json.dumps(written))


# ------------------------------------------------------------------------------------------------------------- formats


def _to_json(source: Source) -> str:
    from verifier.formats import schedule_json

    return schedule_json.dump(source)


def _to_torch_csv(source: Source) -> str:
    from verifier.formats import torch_csv

    return torch_csv.dump(source.schedule)


def _to_torch_comms_csv(source: Source) -> str:
    from verifier.formats import torch_comms_csv

    return torch_comms_csv.dump(source.schedule)


def _to_dualpipe_table(source: Source) -> str:
    from verifier.formats import dualpipe_table

    return dualpipe_table.dump(source.schedule)


EXPORTERS: dict[str, Callable[[Source], str]] = {
    "json": _to_json,
    "torch-csv": _to_torch_csv,
    "torch-comms-csv": _to_torch_comms_csv,
    "dualpipe-table": _to_dualpipe_table,
}
"""What ``export`` can write, by the name of the format."""


# ------------------------------------------------------------------------------------------------------------ commands


@click.group(
    cls=CommandLine,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=_examples(
        "verifier show dualpipe -P 8 -M 20",
        "verifier verify dualpipe -P 8 -M 20 --activations 9 --weights 2",
        "verifier verify schedule.csv --microbatches 16 --json",
        "verifier compare dualpipe dualpipev 1f1b -P 8 -M 20",
    ),
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> int:
    """
    Verify pipeline-parallel training schedules.

    SOURCE is a file (a PyTorch table or pipeline-schedule/1 JSON), a spec (.toml), or a family with its sizes.

    Exit codes: 0 proved or done, 1 refuted, 2 wrong use or unreadable input, 3 unknown, 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    return DONE


@main.command()
@json_option
def families(as_json: bool) -> int:
    """The families, their sizes, and published claims."""
    from verifier.families import FAMILIES

    if as_json:
        _print_json([_family_json(family) for family in FAMILIES.values()])
    else:
        from verifier.views.terminal import console, print_families

        print_families(console(), list(FAMILIES.values()))
    return DONE


def _family_json(family: Family) -> dict[str, object]:
    return {
        "name": family.name,
        "description": family.description,
        "conditions": family.conditions,
        "placement": family.placement,
        "claims": [
            {"quantity": claim.quantity, "formula": claim.formula, "domain": claim.domain, "source": claim.source}
            for claim in family.claims
        ],
    }


@main.command(epilog=_examples("verifier show dualpipe -P 8 -M 20", "verifier show zbv -P 4 -M 8 --costs F=10,I=12,W=9 --json"))
@click.argument("source")
@source_options
@costs_option
@click.option("--from", "since", metavar="TIME", help="Draw the ranks from this time on.")
@click.option("--to", "until", metavar="TIME", help="Draw the ranks up to this time.")
@json_option
def show(source: str, costs: str | None, since: str | None, until: str | None, as_json: bool, **given: Any) -> int:
    """What every rank does when; makespan, idle time, peaks."""
    from verifier.sources import judged_under, open_source
    from verifier.verify import verify as judge

    subject = judged_under(open_source(source, **given), costs=costs)
    report = judge(subject.schedule, subject.costs, suspicion=subject.suspicion, solver="replay", notes=subject.notes)
    if as_json:
        from verifier.measures import windows_json
        from verifier.verify import numbers

        _print_json({**numbers(report.simulation), **windows_json(report.simulation.timeline)})
    else:
        from verifier.views.terminal import console, print_show

        stretch = [None if time is None else exact(time, name) for name, time in (("--from", since), ("--to", until))]
        print_show(console(), report, *stretch)
    return DONE if report.simulation.timeline else REFUTED


@main.command(
    epilog=_examples(
        "verifier verify dualpipe -P 8 -M 20 --activations 9 --weights 2",
        "verifier verify schedule.csv --spec specs/dualpipev-p4-m10.toml",
    )
)
@click.argument("source")
@source_options
@click.option("--spec", metavar="SPEC", help="The problem, costs, limits and expectations to judge against.")
@costs_option
@click.option("--activations", metavar="N", help="Most activations that a rank may hold: one number, or N,N,... per rank.")
@click.option("--weights", metavar="N", help="Most weight copies (stages) that a rank may hold: one number, or N,N,...")
@click.option(
    "--messages",
    "models",
    multiple=True,
    type=click.Choice(MODELS),
    metavar="MODEL",
    help=f"Judge the messages under a communication model, or several: {', '.join(MODELS)}.",
)
@click.option(
    "--solver",
    type=click.Choice(["auto", "z3", "replay"]),
    default="auto",
    help="auto: replay, and Z3 as a second way while it is quick; z3: both; replay: replay alone.",
)
@json_option
def verify(
    source: str,
    spec: str | None,
    costs: str | None,
    activations: str | None,
    weights: str | None,
    models: tuple[str, ...],
    solver: str,
    as_json: bool,
    **given: Any,
) -> int:
    """Judge a schedule by every rule; a refuted one with the place."""
    from verifier.sources import judged_under, open_source
    from verifier.specs import read_spec
    from verifier.verify import verify as judge

    against = read_spec(spec) if spec is not None else None
    subject = judged_under(open_source(source, **given), spec=against, costs=costs, activations=activations, weights=weights)
    report = judge(
        subject.schedule,
        subject.costs,
        subject.limits,
        start=subject.start,
        claims=subject.claims,
        suspicion=subject.suspicion,
        models=models,
        program=subject.program,
        solver=solver,
        notes=subject.notes,
    )
    if as_json:
        _print_json(report.as_json())
    else:
        from verifier.views.terminal import console, print_report

        print_report(console(), report)
    return EXIT_CODES[report.status]


@main.command(epilog=_examples("verifier compare dualpipe dualpipev 1f1b -P 8 -M 20"))
@click.argument("sources", nargs=-1, required=True, metavar="FAMILY-OR-FILE...")
@source_options
@costs_option
@click.option(
    "--per",
    type=click.Choice(["model", "stage"]),
    default="model",
    help="model: one model for all, so a rank with two stages has two half stages; stage: each in its own stage units.",
)
@json_option
def compare(sources: tuple[str, ...], costs: str | None, per: str, as_json: bool, **given: Any) -> int:
    """A table of schedules side by side."""
    from verifier.compare import Refusal, Row
    from verifier.costs import CostModel
    from verifier.specs import read_costs

    model = read_costs(costs) if costs is not None else CostModel.of()
    rows = [_compared(source, model, per, given) for source in sources]
    if as_json:
        _print_json({"per": per, "costs": model.as_written(), "schedules": [row.as_json() for row in rows]})
    elif any(isinstance(row, Row) for row in rows):
        from verifier.views.terminal import console, print_comparison

        print_comparison(console(), rows, model, per)
    else:
        raise ScheduleError("; ".join(row.reason for row in rows if isinstance(row, Refusal)))
    return DONE if any(isinstance(row, Row) for row in rows) else WRONG


def _compared(source: str, costs: CostModel, per: str, given: dict[str, Any]) -> Row | Refusal:
    """A row of the comparison, or why there is none: the others are still worth seeing."""
    from verifier.compare import Refusal, compare
    from verifier.sources import fitting, open_source

    try:
        subject = open_source(source, **fitting(source, given))
        return compare(subject.schedule, costs, per, own_costs=subject.costs)
    except ScheduleError as error:
        return Refusal(source, str(error))


@main.command(epilog=_examples("verifier export dualpipev -P 4 -M 10 --to torch-csv -o schedule.csv"))
@click.argument("source")
@source_options
@costs_option
@click.option("--to", "target", required=True, type=click.Choice(list(EXPORTERS)), help="The format to write.")
@click.option("-o", "output", metavar="FILE", help="Where to write; standard output by default.")
def export(source: str, costs: str | None, target: str, output: str | None, **given: Any) -> int:
    """Write a schedule in the format of a runtime."""
    from verifier.formats import write_text
    from verifier.sources import judged_under, open_source

    text = EXPORTERS[target](judged_under(open_source(source, **given), costs=costs))
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)
    return DONE
