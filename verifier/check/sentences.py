"""The sentences of a manifest, as somebody reads them: they must be those of what is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verifier.check.conditions import rational, require
from verifier.theorems.boxes import sentence
from verifier.theorems.bubble import STATEMENT
from verifier.theorems.statements import THEOREMS


def check_sentences(name: str, entry: Mapping[str, Any], evidence: Mapping[str, Any]) -> None:
    """
    Check statement, domain and status of an entry; ``instances`` compares the formulas in sentences with those of theorems.

    Parameters
    ----------
    entry
        What the manifest says.

    Raises
    ------
    EvidenceError
        If it says something else than the evidence is about.

    Examples
    --------
    >>> entry = {"statement": "gpipe never idles", "domain": "all P and M", "status": "proved"}
    >>> check_sentences("gpipe-legal", entry, {"kind": "theorem"})
    Traceback (most recent call last):
    verifier.check.conditions.EvidenceError: not covered: gpipe never idles
    """
    statement, domain, status = entry["statement"], entry["domain"], entry["status"]
    if evidence["kind"] in ("theorem", "published"):
        require(name in THEOREMS and statement == THEOREMS[name].statement, statement)
        require(domain == THEOREMS[name].domain, f"{statement}, where: {domain}")
        refuted = evidence["kind"] == "published" and evidence["counterexample"] is not None
        require(status == ("refuted" if refuted else "proved"), f"{name}: {status}")
    elif evidence["kind"] == "bubble-constant":
        require(name == evidence["kind"] and STATEMENT in statement, statement)
        require(status == ("proved" if evidence["claim"] == "constant" else "refuted"), f"{name}: {status}")
    else:
        said = sentence(evidence["kind"], rational(evidence["bound"], "the bound"))
        require(name == evidence["kind"] and statement.endswith(f": {said}"), statement)
        require(domain == evidence["costs"] and status == evidence["status"], f"{statement}, where: {domain}")
