"""
Evidence: files from which others can check a proof again.

For each theorem a folder gets ``NAME.smt2``, its conditions for any SMT solver, and ``NAME.json``, what ``python -m
verifier.check`` needs to check them without one: every condition with a certificate, and what was guessed. ``manifest.json``
says what is what. Where Z3 says that conditions exclude one another, so that classes or relations are left out, that is a
condition too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path as FilePath
from typing import Any

from verifier import __version__
from verifier.affine import Condition
from verifier.check.covering import name_of
from verifier.check.sentences import NOT_CHECKED, count_certificates, not_covered, said
from verifier.check.subjects import key_of
from verifier.formats import write_text
from verifier.loops import Program
from verifier.model import ScheduleError
from verifier.theorems import guesses
from verifier.theorems.classes import Analysis
from verifier.theorems.conditions import Implication, Statement
from verifier.theorems.demands import DEMANDS
from verifier.theorems.farkas import certificate, rows_of
from verifier.theorems.finding import find_guesses
from verifier.theorems.paths import Path, choose_links
from verifier.theorems.proof import PROVED, REFUTED, Proof
from verifier.theorems.smtlib import Script, script
from verifier.theorems.solving import counterexample, possible
from verifier.theorems.statements import THEOREMS
from verifier.theorems.theories import THEORIES, Theory

MANIFEST = "manifest.json"
FAMILY_THEOREMS = frozenset(f"{theorem.theory.name}-{theorem.kind}" for theorem in THEOREMS.values())
"""Of the others the conditions are those of the theorem that corrects them."""


@dataclass
class Collector:
    """
    A book that keeps all conditions, and what was guessed, and decides nothing.

    Attributes
    ----------
    statements
        The conditions.
    left_out
        Why classes and relations are left out.
    guessed
        Per part of the sizes, as plain JSON values.
    """

    statements: list[Statement] = field(default_factory=list)
    left_out: list[Implication] = field(default_factory=list)
    guessed: dict[str, Any] = field(default_factory=dict)
    _analyses: dict[tuple[str, tuple[Condition, ...]], Analysis] = field(default_factory=dict)

    def add(self, conditions: Iterable[Statement]) -> None:
        """Keep conditions."""
        self.statements += conditions

    def analysis(self, program: Program, domain: tuple[Condition, ...]) -> Analysis:
        """The classes, noting why others are left out."""
        key = program.name, domain
        if key not in self._analyses:
            self._analyses[key] = Analysis(program, domain, self._judge)
        return self._analyses[key]

    def _judge(self, conditions: Sequence[Condition]) -> bool:
        if possible(conditions):
            return True
        self.left_out.append(Implication("left out", tuple(conditions), None))
        return False

    def guesses(self, theory: Theory, number: int, only: str | None = None) -> guesses.Guesses:
        """What was found before, or is found now."""
        known = guesses.load(theory.program.name, number)
        found = find_guesses(theory, theory.settings[number], known, only)
        before = guesses.read(self.guessed.get(str(number), {"paths": {}, "regions": {}}))
        merged = guesses.Guesses({**before.paths, **found.paths}, {**before.regions, **found.regions})
        self.guessed[str(number)] = guesses.written(merged)
        return found

    def links(self, analysis: Analysis, path: Path, name: str) -> dict[str, int]:
        """The ways that hold at all sizes."""
        return choose_links(analysis, path, name, lambda condition: counterexample(condition) is None)

    @property
    def all(self) -> list[Statement]:
        """All conditions, each once, those that say what is left out first."""
        return list(dict.fromkeys([*self.left_out, *self.statements]))


@cache
def collected(family: str, kind: str) -> Collector:
    """
    The conditions of a theorem about a family of :data:`THEORIES`, with the timelines and paths that are known.

    Examples
    --------
    >>> found = collected("gpipe", "makespan")
    >>> len(found.statements), len(found.all)
    (121, 115)
    """
    theory = next(theory for theory in THEORIES if theory.name == family)
    book = Collector()
    for demand in DEMANDS[kind]:
        demand(theory, book)
    return book


@cache
def certified(family: str, kind: str) -> dict[str, Any]:
    """
    What the checker needs about a theorem, as plain JSON values.

    ``uncertified`` names the conditions for which no certificate is found; the checker will not accept those.

    Examples
    --------
    >>> evidence = certified("gpipe", "makespan")
    >>> evidence["family"], evidence["uncertified"]
    ('gpipe', [])
    """
    book = collected(family, kind)
    certificates: dict[str, Any] = {}
    uncertified = []
    for statement in book.all:
        rows, options = rows_of(statement)
        if (name := name_of(rows, options)) not in certificates:
            found = certificate(rows, options)
            if found is None:
                uncertified.append(statement.name)
            else:
                certificates[name] = found
    return {
        "kind": "theorem",
        "family": family,
        "about": kind,
        "guesses": book.guessed,
        "uncertified": uncertified,
        "certificates": certificates,
    }


@dataclass(frozen=True)
class Evidence:
    """
    What can be written about one proof.

    Attributes
    ----------
    checked
        What ``check`` reads.
    script
        The conditions for solvers; None where the proof asked none.
    """

    checked: Mapping[str, Any]
    script: Script | None = None

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What neither of them shows, for people."""
        return tuple(not_covered(self.checked, self.script is not None))


def script_of(proof: Proof) -> Script | None:
    """
    The conditions of a proof for solvers; None where it asked none.

    Examples
    --------
    >>> from verifier.theorems.statements import prove
    >>> len(script_of(prove("gpipe-legal")).checks)
    48
    """
    theorem = THEOREMS.get(proof.theorem)
    if theorem is not None:
        title = [proof.theorem, proof.statement, f"where: {proof.domain}"]
        if theorem.name not in FAMILY_THEOREMS:
            corrected = THEOREMS[f"{theorem.theory.name}-{theorem.kind}"]
            title = [f"{proof.theorem}, the corrected one:", corrected.statement, f"where: {corrected.domain}"]
        return script(title, collected(theorem.theory.name, theorem.kind).all)
    if "smt2" in proof.evidence:
        return Script(str(proof.evidence["smt2"]), ("durations in their ranges keep the timeline of the greatest costs",))
    return None


def evidence_of(proof: Proof) -> Evidence | None:
    """
    All that can be written about a proof; None where that is nothing.

    Examples
    --------
    >>> from verifier.theorems.statements import prove
    >>> evidence_of(prove("gpipe-legal")).not_covered
    ()
    >>> evidence_of(Proof("gpipe-legal", "", "", "unknown", 1, 0, 0.0))
    """
    if proof.status not in (PROVED, REFUTED):
        return None
    theorem = THEOREMS.get(proof.theorem)
    if theorem is None:
        checked = {key: value for key, value in proof.evidence.items() if key != "smt2"}
    elif proof.theorem in FAMILY_THEOREMS:
        checked = certified(theorem.theory.name, theorem.kind) if proof.status == PROVED else {}
    else:
        family = theorem.theory.name
        checked = {"kind": "published", "family": family, **proof.evidence, "corrected": certified(family, theorem.kind)}
    return Evidence(checked, script_of(proof)) if checked else None


def write(proof: Proof, evidence: Evidence, folder: str) -> dict[str, object]:
    """
    Write the evidence of one proof into a folder, and into the folder's manifest.

    Evidence about a schedule is named after its digest, too, so that another schedule, other costs or another bound have a
    place of their own; and its statement names the schedule only if that is a family's.

    Returns
    -------
    What the manifest says about it.

    Raises
    ------
    ScheduleError
        If the folder cannot be written to, or has a manifest that is none.
    """
    target = FilePath(folder)
    target.mkdir(parents=True, exist_ok=True)
    listed = _listed(target / MANIFEST)
    text = json.dumps(evidence.checked, separators=(",", ":")) + "\n"
    about_schedule = "schedule" in evidence.checked
    name = key_of(json.loads(text)) if about_schedule else proof.theorem
    entry: dict[str, object] = {
        "statement": said(evidence.checked, proof.statement) if about_schedule else proof.statement,
        "domain": proof.domain,
        "status": proof.status,
        NOT_CHECKED: {
            "conditions": proof.conditions,
            "met": proof.numbers.get("met"),
            "second opinion": proof.numbers.get("second_opinion"),
            "versions": _versions(),
        },
    }
    if evidence.script is not None:
        entry["smt2"] = {
            **_written(target / f"{name}.smt2", evidence.script.text),
            "checks": len(evidence.script.checks),
            "expected": "unsat",
        }
    entry["certificates"] = {**_written(target / f"{name}.json", text), "certificates": count_certificates(evidence.checked)}
    entry["not covered"] = list(evidence.not_covered)
    listed[name] = entry
    write_text(target / MANIFEST, json.dumps(listed, indent=1, sort_keys=True) + "\n")
    return entry


def _listed(path: FilePath) -> dict[str, object]:
    """What a manifest that is there already says."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ScheduleError(f"{path}: no manifest of evidence; expected an empty folder, or one with evidence")
    return found


def _written(path: FilePath, text: str) -> dict[str, object]:
    write_text(path, text)
    return {"file": path.name, "sha256": sha256(text.encode("utf-8")).hexdigest()}


def _versions() -> dict[str, str]:
    """Of what took part."""
    found = {"verifier": __version__}
    for package in ("z3-solver", "cvc5"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
