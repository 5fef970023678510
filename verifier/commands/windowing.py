"""
The command ``window``: inside one overlapped block, computing beside communication.
"""

from __future__ import annotations

import click

from verifier.commands.options import DONE, INTERRUPTED, REFUTED, Seconds, examples, json_option, keep_input, print_json


@click.command(
    epilog=examples(
        "verifier window specs/chunk-deepseek-v3.toml",
        "verifier window specs/chunk-deepseek-v3.toml --order best -o costs.toml",
        "verifier window chunk.toml --order my-order.txt --json",
        "verifier verify dualpipe -P 8 -M 20 --costs costs.toml",
    )
)
@click.argument("spec")
@click.option(
    "--order",
    metavar="ORDER",
    help="The order of issue: a name in the spec such as published, best, a list of steps, or a file with one "
    "(default: published where the spec has it, else best).",
)
@click.option(
    "--sms",
    type=int,
    metavar="N",
    help="Multiprocessors for communication, where the spec says with how many it was measured: an estimate.",
)
@click.option(
    "--shuffles",
    type=click.IntRange(0, 100_000),
    default=300,
    show_default=True,
    metavar="N",
    help="Orders to draw at random, for comparison.",
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of the random orders.")
@click.option(
    "--budget",
    type=Seconds(0, 1_000_000),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for the solver at most, where a bound does not settle what is best.",
)
@click.option("-o", "output", metavar="FILE", help="Write the durations as a cost model, for --costs.")
@json_option
def window(
    spec: str,
    order: str | None,
    sms: int | None,
    shuffles: int,
    seed: int,
    budget: float,
    output: str | None,
    as_json: bool,
) -> int:
    """
    The inside of a chunk: what hides what when a forward and a backward run as one block.

    SPEC gives the components of a layer with their times, each on the compute or the communication stream. Both streams run
    their steps in the order of issue. Said are the durations of F, I, W, B and F&B, what communication is hidden, where each
    all-to-all lies and what covers it, and the best order with its bound. An order that is wrong is refuted.
    """
    from rich.console import Console

    from verifier.formats import write_text
    from verifier.window.orders import find_order
    from verifier.window.reading import read_chunk
    from verifier.window.study import study

    keep_input([spec, order], output)
    read = read_chunk(spec)
    if order is None:
        order = "published" if "published" in read.orders else "best"
    chosen = None if order == "best" else find_order(order, read.orders, read.chunk)
    with Console(stderr=True).status("looking for the best order of issue"):
        found = study(read, chosen, sms=sms, shuffles=shuffles, seed=seed, budget=budget)
    if output is not None and not found.faults:
        write_text(output, found.as_toml())
    if as_json:
        print_json(found.as_json())
    else:
        from verifier.views.terminal import console
        from verifier.window.printing import print_study

        print_study(console(), found)
    if found.faults:
        return REFUTED
    return INTERRUPTED if found.interrupted else DONE
