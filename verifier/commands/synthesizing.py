"""
The command ``synthesize``: the shortest schedule of a problem, and why nothing is shorter.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from verifier.commands.options import (
    DONE,
    INTERRUPTED,
    REFUTED,
    UNKNOWN,
    Seconds,
    costs_option,
    examples,
    json_option,
    keep_input,
    print_json,
)
from verifier.model import ScheduleError, plain

if TYPE_CHECKING:
    from verifier.all_microbatches.result import ForAll
    from verifier.costs import CostModel
    from verifier.model import Limits, Problem, Schedule
    from verifier.synthesize import Synthesis

PLACEMENTS = ("sequential", "interleaved", "v", "bidirectional")
"""As in ``verifier.families``, named here so that the help text needs no import; a test keeps them equal."""

CLAIM = ".smt2"
"""Of the file with what solvers refuted."""
EXIT_CODES = {"optimal": DONE, "feasible": DONE, "infeasible": REFUTED, "unknown": UNKNOWN}


@click.command(
    epilog=examples(
        "verifier synthesize --placement bidirectional -P 4 -M 8 --activations 5",
        "verifier synthesize --placement sequential -P 4 -M 8 --activations 3 --blocks F,B --json",
        "verifier synthesize --spec problem.toml --budget 300 -o schedule.json",
        "verifier synthesize --placement v -P 4 -M 8 --activations 9 --all-microbatches -o kernel.json",
    )
)
@click.option("--spec", metavar="SPEC", help="The problem, its costs and limits in one TOML file.")
@click.option("--placement", type=click.Choice(PLACEMENTS), help="Where the stages live.")
@click.option("-P", "ranks", type=int, metavar="N", help="Ranks.")
@click.option("-M", "--microbatches", metavar="N", help="Micro-batches over all directions, or N,N for each direction.")
@click.option("--stages-per-rank", type=int, default=2, show_default=True, metavar="N", help="Of interleaved and v.")
@costs_option
@click.option("--activations", metavar="N", help="Most activations that a rank may hold: one number, or N,N,... per rank.")
@click.option("--weights", metavar="N", help="Most weight copies (stages) that a rank may hold: one number, or N,N,...")
@click.option("--blocks", metavar="KINDS", help="Kinds of blocks to use, such as F,B or F,B,F&B (default: all with a price).")
@click.option(
    "--pairs",
    type=click.Choice(["opposite", "any"]),
    default="opposite",
    show_default=True,
    help="What an overlapped pair may join: micro-batches of opposite directions (in V: of the rank's other stage), or any.",
)
@click.option(
    "--scope",
    type=click.Choice(["auto", "mirrored", "all"]),
    default="auto",
    show_default=True,
    help="Among which schedules it has to be the shortest; mirrored: those that are their own mirror image.",
)
@click.option(
    "--objective",
    type=click.Choice(["makespan", "span-idle"]),
    default="makespan",
    show_default=True,
    help="span-idle: the longest time from a rank's first start to its last end.",
)
@click.option(
    "--budget", type=Seconds(0, 10**9), default=60.0, show_default=True, metavar="SECONDS", help="Time to take at most."
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of the local search.")
@click.option(
    "--all-microbatches",
    is_flag=True,
    help="An order for all larger M, too: with a kernel that can run again, and a proof of what each M takes.",
)
@click.option("--no-catalogue", is_flag=True, help="Search anew, without the schedules that were found before.")
@click.option(
    "-o", "output", metavar="FILE", help="Write the schedule, and what solvers refuted beside it (best.smt2 for best.json)."
)
@json_option
def synthesize(
    spec: str | None,
    placement: str | None,
    ranks: int | None,
    microbatches: str | None,
    stages_per_rank: int,
    costs: str | None,
    activations: str | None,
    weights: str | None,
    blocks: str | None,
    pairs: str,
    scope: str,
    objective: str,
    budget: float,
    seed: int,
    all_microbatches: bool,
    no_catalogue: bool,
    output: str | None,
    as_json: bool,
) -> int:
    """
    The shortest schedule that exists, with a certificate; or the best found, with its gap.

    Of equally short ones that with the lower peak of activations is preferred, then the one with more overlapped pairs. An
    interrupt gives the best found so far. Where the catalogue has the problem, the search starts from it, and what solvers said
    there is reported as recorded.
    """
    from verifier.specs import limits_of, limits_over, read_costs, read_spec

    keep_input([spec, costs], output)
    if output is not None and Path(output).suffix == CLAIM:
        raise ScheduleError(
            f"-o: {output}: names in {CLAIM} are for the claim that is written beside the schedule; expected another"
        )
    given = None if spec is None else read_spec(spec)
    unnamed = placement is None and ranks is None and microbatches is None
    if given and given.problem and not unnamed:
        raise ScheduleError(f"synthesize: {spec} has a problem; expected no --placement, -P or -M beside it")
    problem = _problem(placement, ranks, microbatches, stages_per_rank) if not unnamed else given.problem if given else None
    if problem is None:
        raise ScheduleError("synthesize: expected --spec with a problem, or --placement with -P and -M")
    model = read_costs(costs) if costs is not None else given.costs if given else None
    limits = limits_over(limits_of(activations, weights), given.limits if given else None)
    if all_microbatches and objective != "makespan":
        raise ScheduleError("--all-microbatches: is about the makespan; expected no other --objective")
    options: dict[str, Any] = {
        "blocks": None if blocks is None else tuple(kind.strip() for kind in blocks.split(",")),
        "pairs": pairs,
        "scope": scope,
        "budget": budget,
        "seed": seed,
        "on_progress": _progress,
    }
    if not no_catalogue:
        options |= _known(problem, model, limits, options["blocks"], pairs, objective)
    if all_microbatches:
        return _for_all(problem, model, limits, options, output, as_json)
    from verifier.synthesize import synthesize as search

    found = search(problem, model, limits, objective=objective, **options)
    if output is not None and found.schedule is not None:
        _write(found, output, model, limits)
    if as_json:
        print_json(found.as_json(output if found.schedule is not None else None))
    else:
        click.echo(found.sentence())
        _show(found.schedule, model)
    return INTERRUPTED if found.interrupted else EXIT_CODES[found.status]


def _known(
    problem: Problem,
    costs: CostModel | None,
    limits: Limits,
    blocks: tuple[str, ...] | None,
    pairs: str,
    objective: str,
) -> dict[str, Any]:
    """What the catalogue has; what solvers said there is about its own blocks, pairs and objective."""
    from verifier.catalogue.lookup import known
    from verifier.costs import CostModel

    found = known(problem, costs or CostModel.of(), limits)
    same = blocks is None and pairs == "opposite" and objective == "makespan"
    return {"seeds": found.seeds, "recorded": found.recorded if same else None}


def _for_all(
    problem: Problem,
    costs: CostModel | None,
    limits: Limits,
    options: dict[str, Any],
    output: str | None,
    as_json: bool,
) -> int:
    """The order for all larger numbers of micro-batches."""
    from verifier.all_microbatches.finding import synthesize_for_all

    found = synthesize_for_all(problem, costs, limits, **options)
    shortest = found.shortest
    if output is not None and found.schedule is not None:
        _write_for_all(found, output, costs, limits)
    elif output is not None and shortest.schedule is not None:
        _write(shortest, output, costs, limits)  # interrupted before anything larger was looked at
    if as_json:
        file = output if shortest.schedule is not None else None
        print_json({**shortest.as_json(file), "all_microbatches": found.as_json()})
    else:
        for sentence in found.sentences():
            click.echo(sentence)
        _show(found.schedule or shortest.schedule, costs)
    return INTERRUPTED if found.interrupted else EXIT_CODES[shortest.status]


def _problem(placement: str | None, ranks: int | None, microbatches: str | None, stages_per_rank: int) -> Problem:
    """The problem of the options; an odd number of micro-batches gives direction 0 one more."""
    from verifier.families import placement as place
    from verifier.model import Problem

    if placement is None or ranks is None or microbatches is None:
        raise ScheduleError("synthesize: expected --placement, -P and -M together")
    rows = place(placement, ranks, stages_per_rank)
    counts = [_count(word) for word in microbatches.split(",")]
    if len(counts) == 1:
        counts = [-(-counts[0] // 2), counts[0] // 2] if len(rows) == 2 else counts
    if len(counts) != len(rows):
        raise ScheduleError(f"-M: expected one number, or {len(rows)}, one per direction; got {len(counts)}")
    return Problem(rows, tuple(counts))


def _count(word: str) -> int:
    if not word.strip().isascii() or not word.strip().isdigit() or len(word) > 9:
        raise ScheduleError(f'-M: expected a whole number such as 8, got "{word[:40]}"')
    return int(word)


def _progress(best: Fraction, bound: Fraction, gap: Fraction) -> None:
    if sys.stderr.isatty():
        click.echo(f"best {plain(best)}, bound {plain(bound)}, gap {plain(gap)}", err=True)


def _write(found: Synthesis, output: str, costs: CostModel | None, limits: Limits) -> None:
    """The schedule with its certificate, and the claim that nothing is shorter for any SMT solver to read."""
    from verifier.costs import CostModel
    from verifier.formats import schedule_json, write_text

    assert found.schedule is not None
    claims = {"makespan": found.as_json()["makespan"]}
    certificate = found.as_json_certificate()
    text = schedule_json.dump(
        found.schedule, costs=costs or CostModel.of(), limits=limits, claims=claims, certificate=certificate
    )
    write_text(output, text)
    beside = Path(output).with_suffix(CLAIM)
    if found.claim is not None:
        from verifier.solvers.synthesis_smt import smtlib

        write_text(beside, smtlib(found.claim))
    else:
        _drop_claim(beside)


def _drop_claim(file: Path) -> None:
    """Remove what an earlier search wrote here: it is about another schedule."""
    from verifier.solvers.synthesis_smt import OPENING

    try:
        with file.open(encoding="utf-8") as text:
            ours = text.read(len(OPENING)) == OPENING
    except (OSError, UnicodeDecodeError):
        return
    if ours:
        file.unlink()


def _write_for_all(found: ForAll, output: str, costs: CostModel | None, limits: Limits) -> None:
    """The order from which longer ones follow; the certificate of the shortest schedule is its own only if it is that."""
    from verifier.costs import CostModel
    from verifier.formats import schedule_json, write_text

    assert found.schedule is not None
    certificate: dict[str, object] = {"all_microbatches": found.as_json()}
    if found.schedule is found.shortest.schedule:
        certificate |= found.shortest.as_json_certificate()
    claims = {"makespan": plain(found.sizes[0].makespan)}
    text = schedule_json.dump(
        found.schedule, costs=costs or CostModel.of(), limits=limits, claims=claims, certificate=certificate
    )
    write_text(output, text)


def _show(schedule: Schedule | None, costs: CostModel | None) -> None:
    """The schedule, as ``show`` prints it."""
    if schedule is not None:
        from verifier.verify import verify
        from verifier.views.terminal import console, print_show

        click.echo()
        print_show(console(), verify(schedule, costs, solver="replay"))
