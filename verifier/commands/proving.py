"""
The command ``prove``: statements for all micro-batches, all ranks and whole regions of costs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from verifier.commands.options import DONE, EXIT_CODES, costs_option, examples, json_option, print_json, source_options
from verifier.model import ScheduleError

if TYPE_CHECKING:
    from verifier.theorems.proof import Proof

BUBBLE = "bubble-constant"
AT_MOST = ("makespan-at-most", "bubble-at-most")
LOOPS = ("legal", "peak-activations", "makespan", "idle", "independence")


@click.command(
    epilog=examples(
        "verifier prove",
        "verifier prove dualpipe-makespan --second-opinion --evidence evidence",
        "verifier prove published-dualpipe-bubble --json",
        "verifier prove bubble-constant dualpipe -P 8",
        "verifier prove bubble-constant order.json --costs F=10,I=10,W=10,FB=30,hop=1",
        "verifier prove makespan specs/loops-early-1f1b.toml",
        "verifier prove makespan-at-most 710 dualpipe -P 8 -M 20 --costs F=9..11,I=10..14,W=8..9,FB=24..28",
    )
)
@click.argument("theorem", required=False)
@click.argument("about", nargs=-1, metavar="[X] [SOURCE]")
@source_options
@costs_option
@click.option("--fresh", is_flag=True, help="Find timelines and paths anew, instead of verifying those found before.")
@click.option("--evidence", "folder", metavar="DIR", help="Write certificates for python -m verifier.check DIR, and SMT-LIB 2.")
@click.option("--second-opinion", is_flag=True, help="Let cvc5 decide every condition too; proved only if it agrees.")
@json_option
def prove(
    theorem: str | None,
    about: tuple[str, ...],
    costs: str | None,
    fresh: bool,
    folder: str | None,
    second_opinion: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """
    Prove a THEOREM; without one, list them.

    bubble-constant is about a SOURCE: its kernel can run again any number of times without idle time being added. Of a family
    without -M a schedule is taken that is long enough for its kernel to show.

    makespan-at-most and bubble-at-most are about X and a SOURCE, for all costs in the ranges of --costs, such as F=9..11, or of
    a TOML file with them.

    legal, peak-activations, makespan, idle and independence are about the loops of your own in a spec, for all sizes: what they
    claim, or what they are seen to do. --costs gives one ratio of costs instead of all.

    In --json, "conditions" of "of" conditions hold, and "met" of them have hypotheses that some numbers fulfil; the others say
    that something never happens.
    """
    if costs is not None and not costs.strip():
        raise ScheduleError("--costs: empty; expected costs such as F=10,I=12,W=9,FB=26, or no --costs")
    if theorem is None:
        asked = {"--evidence": folder, "--second-opinion": second_opinion, "--fresh": fresh, "--costs": costs}
        asked |= {f"--{name}": value for name, value in given.items()}
        if more := [name for name, value in asked.items() if value]:
            raise ScheduleError(
                f"{more[0]}: no THEOREM to prove; expected one that verifier prove lists, such as 1f1b-makespan"
            )
        _list(as_json)
        return DONE
    if second_opinion:
        from verifier.theorems.opinion import cvc5_version

        cvc5_version()  # Before the work is done, not after it.
    if theorem == BUBBLE:
        proof = _about_source(about, costs, given)
    elif theorem in AT_MOST:
        proof = _about_costs(theorem, about, costs, given)
    elif theorem in LOOPS:
        if second_opinion or folder is not None:
            raise ScheduleError(f"{theorem}: loops of your own leave no evidence; expected no --evidence and --second-opinion")
        proof = _about_loops(theorem, about, costs, given)
    else:
        proof = _about_family(theorem, about, costs, fresh, given)
    if second_opinion:
        proof = _asked_again(proof)
    entry = {} if folder is None else {"evidence": _write(proof, folder)}
    if as_json:
        print_json({**proof.as_json(), **entry})
    else:
        _print(proof)
        for found in entry.values():
            _print_evidence(found)
    return EXIT_CODES[proof.status]


def _about_source(about: tuple[str, ...], costs: str | None, given: dict[str, Any]) -> Proof:
    from verifier.sources import is_family, judged_under, open_source
    from verifier.theorems.bubble import prove_bubble_constant

    if len(about) != 1:
        raise ScheduleError(f"{BUBBLE}: expected a SOURCE, for example: {BUBBLE} dualpipe -P 8")
    (source,) = about
    if is_family(source) and given["microbatches"] is None and given["ranks"] is not None:
        given = {**given, "microbatches": 4 * given["ranks"]}
    subject = judged_under(open_source(source, **given), costs=costs)
    return prove_bubble_constant(subject.schedule, subject.costs)


def _about_costs(theorem: str, about: tuple[str, ...], costs: str | None, given: dict[str, Any]) -> Proof:
    from verifier.sources import open_source
    from verifier.specs import read_ranges
    from verifier.theorems.boxes import Box, prove_at_most

    if len(about) != 2 or costs is None:
        raise ScheduleError(
            f"{theorem}: expected X, a SOURCE and --costs: {theorem} 700 order.json --costs F=9..11,I=10..14,W=8"
        )
    return prove_at_most(
        theorem, _bound(theorem, about[0]), open_source(about[1], **given).schedule, Box.parse(read_ranges(costs))
    )


def _bound(theorem: str, text: str) -> Fraction:
    """X; a share may be written in percent."""
    from verifier.model import exact

    if theorem == "bubble-at-most" and text.endswith("%"):
        return exact(text.removesuffix("%"), theorem) / 100
    return exact(text, theorem)


def _about_loops(theorem: str, about: tuple[str, ...], costs: str | None, given: dict[str, Any]) -> Proof:
    from verifier.specs import read_costs, read_spec
    from verifier.theorems.own import prove_own

    if len(about) != 1 or not about[0].endswith(".toml") or any(value is not None for value in given.values()):
        raise ScheduleError(
            f"{theorem}: expected a spec with [loops] and no sizes, such as own.toml; of a family it is gpipe-{theorem}"
        )
    loops = read_spec(about[0]).loops
    if loops is None:
        raise ScheduleError(f"{about[0]}: no table [loops]; expected the loops that every rank runs")
    try:
        with _watched() as watch:
            return prove_own(loops, theorem, read_costs(costs) if costs is not None else None, watch)
    except ScheduleError as error:
        raise ScheduleError(f"{about[0]}: {error}") from None


@contextmanager
def _watched() -> Iterator[Callable[[str], None]]:
    """Where standard error is a terminal, a line there that says what is being done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status("proving") as status:
        yield lambda text: status.update(f"proving: {escape(text)}")


def _about_family(theorem: str, about: tuple[str, ...], costs: str | None, fresh: bool, given: dict[str, Any]) -> Proof:
    from verifier.theorems.statements import THEOREMS
    from verifier.theorems.statements import prove as prove_by_name

    if theorem not in THEOREMS:
        close = get_close_matches(theorem[:60], [*THEOREMS, BUBBLE, *AT_MOST, *LOOPS], n=2)
        hint = f"did you mean {' or '.join(close)}?" if close else "verifier prove lists them"
        raise ScheduleError(f"unknown theorem '{theorem[:60]}'; {hint}")
    if about or costs is not None or any(value is not None for value in given.values()):
        raise ScheduleError(f"{theorem}: is about all sizes and its own costs; expected no SOURCE, sizes or --costs")
    return prove_by_name(theorem, fresh=fresh)


def _asked_again(proof: Proof) -> Proof:
    """The proof with cvc5's opinion of its conditions; where cvc5 does not confirm them all, it is none."""
    from verifier.theorems.evidence import script_of
    from verifier.theorems.opinion import second_opinion

    script = script_of(proof)
    if script is None:
        raise ScheduleError(f"{proof.theorem}: {proof.status} without a solver; expected no --second-opinion")
    opinion = second_opinion(script)
    numbers = {**proof.numbers, "second_opinion": opinion.as_json()}
    if opinion.agrees:
        return replace(proof, numbers=numbers)
    doubtful = "corrected_status" if "corrected_status" in numbers and proof.status == "refuted" else ""
    if doubtful:
        # The counterexample stands; what is said to be right does not.
        numbers[doubtful] = "unknown"
    return replace(
        proof, status="refuted" if doubtful else "unknown", numbers=numbers, witness=(*proof.witness, *opinion.objections())
    )


def _write(proof: Proof, folder: str) -> dict[str, Any] | None:
    """Write evidence of what was decided; what the manifest says of it."""
    from verifier.theorems.evidence import evidence_of, write

    evidence = evidence_of(proof)
    return None if evidence is None else write(proof, evidence, folder)


def _list(as_json: bool) -> None:
    from verifier.theorems.boxes import STATEMENTS
    from verifier.theorems.bubble import STATEMENT
    from verifier.theorems.statements import THEOREMS

    rows = [(each.name, each.statement, each.domain, each.source) for each in THEOREMS.values()]
    rows.append((BUBBLE, STATEMENT, "a given schedule and costs, all k >= 0", ""))
    rows += [(name, statement, "a given schedule and ranges of costs", "") for name, statement in STATEMENTS.items()]
    if as_json:
        print_json([dict(zip(("theorem", "statement", "domain", "source"), row, strict=True)) for row in rows])
        return
    for name, statement, domain, origin in rows:
        click.echo(f"{name}\n    {statement}\n    where: {domain}" + (f"\n    source: {origin}" if origin else ""))


def _print(proof: Proof) -> None:
    click.echo(f"{proof.theorem}: {proof.status}\n{proof.statement}\nwhere: {proof.domain}")
    click.echo(f"{_counted(proof)}, {proof.seconds:.1f} s")
    for line in proof.witness:
        click.echo(f"- {line}")
    for name, value in proof.numbers.items():
        if value is not None and name not in ("kernel", "met"):
            click.echo(f"{name.replace('_', ' ')}: {_shown(value)}")


def _counted(proof: Proof) -> str:
    """What the conditions say: all that it comes to where it is proved, else no more than what was looked at."""
    held = f"{proof.discharged} of {proof.conditions} conditions"
    never = proof.conditions - int(str(proof.numbers.get("met", proof.conditions)))
    if proof.status == "proved":
        return f"{held} hold" + (f", {never} of them since they never apply" if never else "")
    if proof.status == "refuted":
        return "refuted by an example" if not proof.discharged else f"refuted by what follows; {held} that were looked at hold"
    return f"not decided; {held} that were looked at hold, which is not enough" if proof.discharged else "not decided"


def _print_evidence(entry: dict[str, Any] | None) -> None:
    """The files, and what they do not show."""
    if entry is None:
        click.echo("evidence: none, for this verdict nothing can be written that others could check")
        return
    if smt2 := entry.get("smt2"):
        click.echo(f"evidence: {smt2['file']}, for any SMT solver; checks: {smt2['checks']}")
    click.echo(f"evidence: {entry['certificates']['file']}, for python -m verifier.check")
    for text in entry["not covered"]:
        click.echo(f"evidence: {text}")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return f"{value['solver']} confirms {value['confirmed']} of {value['conditions']} conditions, {value['seconds']} s"
    if not isinstance(value, list):
        return str(value)
    return str(value[0]) if len(set(map(str, value))) == 1 else ", ".join(map(str, value))
