"""What a manifest says, as somebody reads it: it must be what is checked, but for what stands under ``not checked``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from verifier.check.conditions import rational, require, whole
from verifier.check.subjects import key_of, subject
from verifier.model import MAX_OPS
from verifier.theorems.boxes import STATEMENTS, sentence
from verifier.theorems.bubble import NAME as BUBBLE_CONSTANT
from verifier.theorems.bubble import STATEMENT
from verifier.theorems.statements import THEOREMS

NOT_CHECKED = "not checked"
"""What stands there only whoever proved something can know: how the prover counts, solvers' opinions, versions."""


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
    else:
        require(name == key_of(evidence), f"{name}: the name is of the kind and digest of the evidence")
        require(statement == said(evidence, statement), statement)
        constant = evidence["kind"] == BUBBLE_CONSTANT
        require(domain == ("k >= 0" if constant else evidence["costs"]), f"{statement}, where: {domain}")
        true = ("proved" if evidence["claim"] == "constant" else "refuted") if constant else evidence["status"]
        require(status == true, f"{name}: {status}")


def said(evidence: Mapping[str, Any], statement: str) -> str:
    """
    What evidence about a schedule says, of a name only if it is that of the schedule.

    Parameters
    ----------
    statement
        What it is said to say.

    Raises
    ------
    EvidenceError
        If there is no such kind of evidence.

    Examples
    --------
    >>> schedule = {"placement": [[0]], "microbatches": [1], "order": [["0F0", "0B0"]]}
    >>> evidence = {"kind": "makespan-at-most", "schedule": schedule, "bound": "7"}
    >>> said(evidence, f"gpipe P=1 M=1{sentence_of(evidence)}")
    'gpipe P=1 M=1: whatever each block takes within the range of its kind, the makespan is at most 7'
    """
    words = sentence_of(evidence)
    return subject(evidence["schedule"], statement.removesuffix(words)) + words


def sentence_of(evidence: Mapping[str, Any]) -> str:
    """
    What is said of the schedule.

    Raises
    ------
    EvidenceError
        If there is no such kind of evidence.

    Examples
    --------
    >>> sentence_of({"kind": "bubble-at-most", "bound": "1/2"}).split(",")[1]
    ' the bubble is at most the share 1/2 of ranks times makespan'
    """
    if evidence["kind"] == BUBBLE_CONSTANT:
        served = whole(evidence["period"], 1, MAX_OPS, "the period") * len(evidence["schedule"]["placement"])
        return f": {STATEMENT}; a kernel period serves {served} micro-batches"
    require(evidence["kind"] in STATEMENTS, "there is such a kind of evidence")
    return f": {sentence(evidence['kind'], rational(evidence['bound'], 'the bound'))}"


def check_counts(name: str, entry: Mapping[str, Any], evidence: Mapping[str, Any], checks: int) -> None:
    """
    Check that an entry names its files and counts what is in them, and says what they do not cover.

    Parameters
    ----------
    checks
        Of the SMT-LIB 2 text.

    Raises
    ------
    EvidenceError
        If it says something else.
    """
    lists = {"certificates": {"file": f"{name}.json", "certificates": count_certificates(evidence)}}
    if "smt2" in entry:
        lists["smt2"] = {"file": f"{name}.smt2", "checks": checks, "expected": "unsat"}
    for key, true in lists.items():
        written = {word: value for word, value in entry[key].items() if word != "sha256"}
        require(_same(written, true), f"{key} of the manifest are as it says")
    require(_same(entry["not covered"], not_covered(evidence, "smt2" in entry)), "the manifest says what is not covered")
    known = {"statement", "domain", "status", "not covered", NOT_CHECKED, *lists}
    require(set(entry) <= known, f"the manifest says what is not checked under {NOT_CHECKED}")


def count_certificates(evidence: Mapping[str, Any]) -> int:
    """
    How many certificates evidence holds.

    Examples
    --------
    >>> count_certificates({"kind": "published", "corrected": {"certificates": {"a": {"sum": []}}}})
    1
    """
    return len(evidence.get("corrected", evidence).get("certificates", ()))


def not_covered(evidence: Mapping[str, Any], asks: bool) -> list[str]:
    """
    What evidence does not show, for people.

    Parameters
    ----------
    asks
        Whether there is an SMT-LIB 2 text.

    Examples
    --------
    >>> not_covered({"kind": "bubble-constant"}, False)
    ['no SMT-LIB 2: decided without a solver, and checked without one']
    """
    if evidence["kind"] not in ("theorem", "published"):
        return [] if asks else ["no SMT-LIB 2: decided without a solver, and checked without one"]
    again = evidence["kind"] == "published" and evidence["counterexample"] is not None
    lacking = [f"no certificate: {name}" for name in evidence.get("corrected", evidence)["uncertified"]]
    return (["no SMT-LIB 2 for the counterexample: it is run again"] if again else []) + lacking


def _same(written: object, true: object) -> bool:
    """Equal as JSON, where 1 is not true."""
    return json.dumps(written, sort_keys=True) == json.dumps(true, sort_keys=True)
