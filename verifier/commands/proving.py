"""
The command ``prove``: statements for all micro-batches, all ranks and whole regions of costs.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from verifier.commands.options import DONE, EXIT_CODES, costs_option, examples, json_option, print_json, source_options
from verifier.model import ScheduleError

if TYPE_CHECKING:
    from verifier.theorems.proof import Proof

BUBBLE = "bubble-constant"


@click.command(
    epilog=examples(
        "verifier prove",
        "verifier prove dualpipe-makespan",
        "verifier prove published-dualpipe-bubble --json",
        "verifier prove bubble-constant dualpipe -P 8",
        "verifier prove bubble-constant order.json --costs F=10,I=10,W=10,FB=30,hop=1",
    )
)
@click.argument("theorem", required=False)
@click.argument("source", required=False)
@source_options
@costs_option
@click.option("--fresh", is_flag=True, help="Find timelines and paths anew, instead of verifying those found before.")
@click.option("--evidence", "folder", metavar="DIR", help="Write what python -m verifier.check DIR checks again.")
@json_option
def prove(
    theorem: str | None,
    source: str | None,
    costs: str | None,
    fresh: bool,
    folder: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """
    Prove a THEOREM; without one, list them.

    bubble-constant is about a SOURCE: its kernel can run again any number of times without idle time being added. Of a family
    without -M a schedule is taken that is long enough for its kernel to show.
    """
    if theorem is None:
        _list(as_json)
        return DONE
    if theorem == BUBBLE:
        proof = _about_source(source, costs, given)
    else:
        proof = _about_family(theorem, source, costs, fresh, given)
    if folder is not None:
        _write(proof, folder)
    if as_json:
        print_json(proof.as_json())
    else:
        _print(proof)
    return EXIT_CODES[proof.status]


def _about_source(source: str | None, costs: str | None, given: dict[str, Any]) -> Proof:
    from verifier.sources import is_family, judged_under, open_source
    from verifier.theorems.bubble import prove_bubble_constant

    if source is None:
        raise ScheduleError(f"{BUBBLE}: expected a SOURCE, for example: {BUBBLE} dualpipe -P 8")
    if is_family(source) and given["microbatches"] is None and given["ranks"] is not None:
        given = {**given, "microbatches": 4 * given["ranks"]}
    subject = judged_under(open_source(source, **given), costs=costs)
    return prove_bubble_constant(subject.schedule, subject.costs)


def _about_family(theorem: str, source: str | None, costs: str | None, fresh: bool, given: dict[str, Any]) -> Proof:
    from verifier.theorems.statements import THEOREMS
    from verifier.theorems.statements import prove as prove_by_name

    if theorem not in THEOREMS:
        close = get_close_matches(theorem[:60], [*THEOREMS, BUBBLE], n=2)
        hint = f"did you mean {' or '.join(close)}?" if close else "verifier prove lists them"
        raise ScheduleError(f"unknown theorem '{theorem[:60]}'; {hint}")
    if source is not None or costs is not None or any(value is not None for value in given.values()):
        raise ScheduleError(f"{theorem}: is about all sizes and its own costs; expected no SOURCE, sizes or --costs")
    return prove_by_name(theorem, fresh=fresh)


def _write(proof: Proof, folder: str) -> None:
    """Evidence of what was proved: what a proof brings along, else certificates that are worked out now."""
    from verifier.theorems.evidence import certified, write
    from verifier.theorems.statements import THEOREMS

    evidence = dict(proof.evidence)
    if proof.theorem in THEOREMS and proof.status == "proved":
        theorem = THEOREMS[proof.theorem]
        evidence = certified(theorem.theory, theorem.kind)
    write(proof, evidence, folder)


def _list(as_json: bool) -> None:
    from verifier.theorems.bubble import STATEMENT
    from verifier.theorems.statements import THEOREMS

    rows = [(each.name, each.statement, each.domain, each.source) for each in THEOREMS.values()]
    rows.append((BUBBLE, STATEMENT, "a given schedule and costs, all k >= 0", ""))
    if as_json:
        print_json([dict(zip(("theorem", "statement", "domain", "source"), row, strict=True)) for row in rows])
        return
    for name, statement, domain, origin in rows:
        click.echo(f"{name}\n    {statement}\n    where: {domain}" + (f"\n    source: {origin}" if origin else ""))


def _print(proof: Proof) -> None:
    click.echo(f"{proof.theorem}: {proof.status}\n{proof.statement}\nwhere: {proof.domain}")
    click.echo(f"{proof.discharged} of {proof.conditions} conditions hold, {proof.seconds:.1f} s")
    for line in proof.witness:
        click.echo(f"- {line}")
    for name, value in proof.numbers.items():
        if value is not None and name != "kernel":
            click.echo(f"{name.replace('_', ' ')}: {_shown(value)}")


def _shown(value: object) -> str:
    if not isinstance(value, list):
        return str(value)
    return str(value[0]) if len(set(map(str, value))) == 1 else ", ".join(map(str, value))
