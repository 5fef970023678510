"""
The command ``verifier``: how it speaks and ends, and which commands it has.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import click

from verifier import __version__
from verifier.commands.export import export
from verifier.commands.judging import compare, families, show, verify
from verifier.commands.options import BROKEN_PIPE, DONE, INTERRUPTED, WRONG, examples
from verifier.commands.planning import plan
from verifier.commands.proving import prove
from verifier.commands.running import costs, run
from verifier.commands.serving import serve
from verifier.commands.sweeping import sweep
from verifier.commands.synthesizing import synthesize
from verifier.commands.windowing import window
from verifier.model import ScheduleError


class CommandLine(click.Group):
    """A group whose commands return their exit code, and whose errors are one line."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command line, say in one line what is wrong with it, and exit."""
        if sys.stdout is None or sys.stderr is None:
            # A stream that was closed before we started is one that nobody reads.
            sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
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


@click.group(
    cls=CommandLine,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=examples(
        "verifier show dualpipe -P 8 -M 20",
        "verifier verify dualpipe -P 8 -M 20 --activations 9 --weights 2",
        "verifier verify schedule.csv --microbatches 16 --json",
        "verifier compare dualpipe dualpipev 1f1b -P 8 -M 20",
        "verifier synthesize --placement bidirectional -P 4 -M 8 --activations 5 -o best.json",
        "verifier prove dualpipe-makespan",
    ),
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> int:
    """
    Verify and synthesize pipeline-parallel training schedules, and prove statements about them.

    SOURCE is a file (a PyTorch table, or JSON: pipeline-schedule/1 or pipeline-program/1; - is standard input), a spec (.toml),
    or a family with its sizes.

    Exit codes: 0 proved or done, 1 refuted, 2 wrong use or unreadable input, 3 unknown, 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    return DONE


for command in (families, show, verify, compare, export, synthesize, prove, plan, run, costs, sweep, serve, window):
    main.add_command(command)
