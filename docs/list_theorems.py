"""
Write docs/theorems.md anew: what ``verifier prove`` lists, how it is proved, and what was counted and measured.

``--measure`` proves everything first and keeps the numbers in docs/theorems.json.
"""

import json
import sys
from pathlib import Path

from click.testing import CliRunner

from verifier.commands.proving import prove
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.sources import open_source
from verifier.theorems.bubble import prove_bubble_constant
from verifier.theorems.ideas import idea
from verifier.theorems.statements import THEOREMS

PAGE, NUMBERS = (Path(__file__).with_name(f"theorems.{ending}") for ending in ("md", "json"))
TIMES = (1, 3, 10, 30, 100)
"""Seconds; a class of times is below one of them."""
RANKS = (2, 4, 8)
HOPS = ("1/10", "1/2", "1")
OWN = "specs/loops-early-1f1b.toml"
HEAD = """# Theorems

What `verifier prove` lists; written by `docs/list_theorems.py`.

`verifier prove NAME` proves one again. `--evidence DIR` writes its conditions as SMT-LIB 2, for any solver, and with
certificates, which `python -m verifier.check DIR` verifies without one; `--second-opinion` lets cvc5 decide them too.

A full backward B is I + W, r is the rank, and hops between ranks take no time, unless something else is said. A published
formula may well be refuted, with a counterexample. Conditions are implications between affine inequalities for all whole
numbers; times were taken on two shared cores. In `--json` and the manifest of evidence, `met` counts the conditions whose
hypotheses some numbers fulfil; the others say that something never happens, as in a case that no size falls into.
Every theorem about makespan, idle time or peaks rests on legality: its conditions show that no rank hangs at any size.

The orders of `dualpipe-paired` and `zbv-mirrored` are no families; they are written as loops in
[specs/loops-dualpipe-paired.toml](../specs/loops-dualpipe-paired.toml) and
[specs/loops-zbv-mirrored.toml](../specs/loops-zbv-mirrored.toml), for `verifier show` and `verifier verify` at any P and M.
"""


def listed() -> str:
    """The page."""
    entries = json.loads(CliRunner().invoke(prove, ["--json"], standalone_mode=False).output)
    numbers = json.loads(NUMBERS.read_text("utf-8"))
    return "\n".join([HEAD, *(_entry(entry, numbers.get(entry["theorem"], "")) for entry in entries), _hops()])


def _entry(entry: dict[str, str], numbers: str) -> str:
    name = entry["theorem"]
    kind, family = (THEOREMS[name].kind, THEOREMS[name].theory.name) if name in THEOREMS else (name, "")
    how = idea("published", "") if name.startswith("published") else idea(kind, family)
    parts = [f"## {name}", _sentence(entry["statement"]), f"Where: {entry['domain']}."]
    parts += [f"Source: {entry['source']}."] if entry["source"] else []
    parts += [how.replace("*", "\\*"), f"Verdict: {numbers}."] if numbers else [how.replace("*", "\\*")]
    parts += [f"Again: `verifier prove {name} --evidence DIR && python -m verifier.check DIR`"] if name in THEOREMS else []
    return "\n\n".join(parts) + "\n"


def _sentence(text: str) -> str:
    """With a capital, a full stop, and nothing that Markdown would take for a mark."""
    return f"{text[0].upper()}{text[1:]}.".replace("*", "\\*")


def _hops() -> str:
    """What hops cost, for fixed numbers of ranks: a table of theorems of `bubble-constant`."""
    names = ["1f1b", OWN, "zb1p", "zb2p", "zbv", "dualpipe", "dualpipev"]
    rows = [f"| {' | '.join(['', *(f'P = {ranks}, hop {hop}' for ranks in RANKS for hop in HOPS)])} |"]
    rows.append("|---" * (1 + len(RANKS) * len(HOPS)) + "|")
    rows += [
        f"| {_linked(name)} | {' | '.join(_growth(name, ranks, hop) for ranks in RANKS for hop in HOPS)} |" for name in names
    ]
    return HOPS_TEXT + "\n" + "\n".join(rows) + "\n"


HOPS_TEXT = """## What a hop costs per micro-batch

With a hop time the bubble may grow with M. By how much, for a fixed P and every M from 4P on, is what
`verifier prove bubble-constant FAMILY -P N --costs F=1,hop=X` decides; here at F = I = W = 1, FB = 3: time by which each
further micro-batch adds to the idle time of every rank, each entry proved by a timeline and a circuit of blocks. 1F1B and
DualPipeV lose 2(P-1)/P hops per micro-batch, DualPipe (P-1)/P; ZB-H2, ZBV and 1F1B with twice the warm-up none of these.
"""


def _linked(name: str) -> str:
    return f"[early 1f1b](../{name})" if name == OWN else name


def _growth(name: str, ranks: int, hop: str) -> str:
    if name == OWN:
        schedule = open_source(name, ranks=ranks, microbatches=4 * ranks).schedule
    else:
        schedule = build_family(name, ranks, 4 * ranks)
    proof = prove_bubble_constant(schedule, CostModel.of(hop=hop))
    growth = proof.numbers["growth_per_microbatch"]
    assert isinstance(growth, list), "one number per rank"
    assert len(set(growth)) == 1, "a kernel keeps all ranks equally busy"
    return str(growth[0])


def measured() -> dict[str, str]:
    """What proving each theorem came to."""
    found = {}
    for name in THEOREMS:
        outcome = json.loads(CliRunner().invoke(prove, [name, "--json"], standalone_mode=False).output)
        below = next(limit for limit in TIMES if outcome["seconds"] < limit)
        about = "about the corrected formula " if name.startswith("published") else ""
        found[name] = f"{outcome['status']}; {outcome['conditions']} of {outcome['of']} conditions {about}hold, below {below} s"
    return found


if __name__ == "__main__":
    if "--measure" in sys.argv:
        NUMBERS.write_text(json.dumps(measured(), indent=1) + "\n", "utf-8")
    PAGE.write_text(listed(), "utf-8")
