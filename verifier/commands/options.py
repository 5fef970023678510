"""
What the commands share: exit codes, options, and how a help text ends.

Exit codes: 0 proved or done, 1 refuted or infeasible, 2 wrong use or unreadable input, 3 unknown, 130 interrupted. Whatever a
command needs is imported inside it, so that ``verifier --help`` answers at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

DONE, REFUTED, WRONG, UNKNOWN, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 130, 141

EXIT_CODES = {"proved": DONE, "refuted": REFUTED, "unknown": UNKNOWN}

Command = TypeVar("Command", bound=Callable[..., Any])


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


class Seconds(click.FloatRange):
    """
    A time to spend, at least 0; what is no number at all compares with nothing, and would pass as a range.

    >>> Seconds(0, 10).convert("2.5", None, None)
    2.5
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number of seconds."""
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value} is no number of seconds.", param, ctx)
        return number


costs_option = click.option(
    "--costs", metavar="COSTS", help="F=1,I=1,W=1,FB=3,hop=0; per stage F=[1,1,2]; or a TOML file with [costs]."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def keep_input(inputs: Iterable[str | None], *outputs: str | None) -> None:
    """
    Refuse to write over what a command reads, be it under another name.

    >>> keep_input(["specs/sweep-ranks.toml"], "plan.md", None, "specs/../specs/sweep-ranks.toml")
    Traceback (most recent call last):
    verifier.model.ScheduleError: specs/../specs/sweep-ranks.toml: is what this command reads; expected another file to write
    """
    from verifier.formats.source import one_line
    from verifier.model import ScheduleError

    read = [text for text in inputs if text is not None]
    for output in outputs:
        if output is not None and any(_same_file(text, output) for text in read):
            raise ScheduleError(f"{one_line(str(output), 200)}: is what this command reads; expected another file to write")


def _same_file(given: str, output: str) -> bool:
    """Whether both are one ordinary file; what cannot be looked at is said by whoever reads or writes it."""
    try:
        return os.path.isfile(output) and os.path.samefile(given, output)
    except (OSError, ValueError):
        return False


def examples(*lines: str) -> str:
    """The end of a help text; the mark keeps click from filling the lines."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def print_json(written: object) -> None:
    """Print an object as one line of JSON."""
    click.echo(json.dumps(written))
