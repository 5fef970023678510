"""
Evidence of a theorem: every condition with a certificate, in files that ``python -m verifier.check`` reads.

Where Z3 says that some conditions exclude one another, so that classes or relations are left out, that is certified too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path as FilePath
from typing import Any

from verifier.affine import Condition
from verifier.formats import write_text
from verifier.loops import Program
from verifier.theorems import guesses
from verifier.theorems.classes import Analysis
from verifier.theorems.conditions import Implication
from verifier.theorems.demands import DEMANDS
from verifier.theorems.farkas import certificate, rows_of
from verifier.theorems.finding import find_guesses
from verifier.theorems.paths import Path, choose_links
from verifier.theorems.proof import PROVED, REFUTED, Proof
from verifier.theorems.solving import counterexample, possible
from verifier.theorems.structure import Query
from verifier.theorems.theories import Theory

MANIFEST = "manifest.json"


class Recorder:
    """A book that writes a certificate for every condition, and down what was guessed."""

    def __init__(self) -> None:
        self.certificates: list[dict[str, Any] | None] = []
        self.excluded: list[dict[str, Any] | None] = []
        self.guessed: dict[str, Any] = {}
        self.ways: dict[str, dict[str, int]] = {}
        self._analyses: dict[tuple[str, tuple[Condition, ...]], Analysis] = {}

    def add(self, conditions: Iterable[Implication]) -> None:
        """Certify conditions; None stands for those that no certificate is found for."""
        self.certificates += [certificate(rows_of(condition)) for condition in conditions]

    def ask(self, queries: Callable[[], Iterable[Query]]) -> None:
        """What is not affine has no certificate."""

    def analysis(self, program: Program, domain: tuple[Condition, ...]) -> Analysis:
        """The classes, noting why others are left out."""
        key = program.name, domain
        if key not in self._analyses:
            self._analyses[key] = Analysis(program, domain, self._judge)
        return self._analyses[key]

    def _judge(self, conditions: Sequence[Condition]) -> bool:
        if possible(conditions):
            self.excluded.append(None)
            return True
        found = certificate(rows_of(Implication("", tuple(conditions), None)))
        # Without a certificate it counts as possible: then there are more conditions, not fewer.
        self.excluded.append(found)
        return found is None

    def guesses(self, theory: Theory, number: int, only: str | None = None) -> guesses.Guesses:
        """What was found before, or is found now."""
        known = guesses.load(theory.program.name, number)
        found = find_guesses(theory, theory.settings[number], known, only)
        self.guessed[str(number)] = guesses.written(found)
        return found

    def links(self, analysis: Analysis, path: Path, name: str) -> dict[str, int]:
        """The ways that hold at all sizes."""
        found = choose_links(analysis, path, name, lambda condition: counterexample(condition) is None)
        self.ways[f"{len(self.ways)} {name}"] = found
        return found


def certified(theory: Theory, kind: str) -> dict[str, Any]:
    """
    The evidence of a theorem about a family, as plain JSON values.

    Examples
    --------
    >>> from verifier.theorems.theories import THEORIES
    >>> evidence = certified(THEORIES[0], "makespan")
    >>> evidence["family"], None in evidence["certificates"]
    ('gpipe', False)
    """
    book = Recorder()
    for demand in DEMANDS[kind]:
        demand(theory, book)
    return {
        "kind": "theorem",
        "family": theory.name,
        "about": kind,
        "guesses": book.guessed,
        "links": book.ways,
        "excluded": book.excluded,
        "certificates": book.certificates,
    }


def write(proof: Proof, evidence: dict[str, Any], folder: str) -> None:
    """
    Write the evidence of one proof into a folder, and into the folder's list.

    Raises
    ------
    ScheduleError
        If the folder cannot be written to.
    """
    target = FilePath(folder)
    target.mkdir(parents=True, exist_ok=True)
    entries = json.loads((target / MANIFEST).read_text("utf-8")) if (target / MANIFEST).exists() else {}
    if proof.status in (PROVED, REFUTED) and evidence:
        write_text(target / f"{proof.theorem}.json", json.dumps(evidence, separators=(",", ":")) + "\n")
        entries[proof.theorem] = {"statement": proof.statement, "domain": proof.domain, "status": proof.status}
    write_text(target / MANIFEST, json.dumps(entries, indent=1, sort_keys=True) + "\n")
