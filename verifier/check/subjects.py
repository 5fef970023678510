"""What evidence about one schedule is about: the schedule itself, so that no other name can be put on it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from verifier.check.order import read_schedule
from verifier.families import FAMILIES, build_family
from verifier.model import Schedule, ScheduleError

_NAME = re.compile(r"(\S+) P=(\d{1,9}).* M=(\d{1,9})", re.ASCII)
SHOWN = 12
"""Digits of a digest in a file's name."""


def key_of(evidence: Mapping[str, Any]) -> str:
    """
    The name of an entry and its files: another one for another schedule, other costs or another bound.

    Examples
    --------
    >>> schedule = {"placement": [[0]], "microbatches": [1], "order": [["0F0", "0B0"]]}
    >>> key_of({"kind": "bubble-constant", "schedule": schedule, "costs": {"F": 1}})
    'bubble-constant-...'
    """
    about = [evidence["kind"], evidence["schedule"], evidence["costs"], evidence.get("bound")]
    return f"{evidence['kind']}-{_digest(about)[:SHOWN]}"


def subject(written: Mapping[str, Any], name: str = "") -> str:
    """
    A schedule in words that can be checked: the name of a family's schedule if it is that, else its digest and sizes.

    Parameters
    ----------
    written
        The schedule of the evidence.
    name
        What it is said to be.

    Raises
    ------
    EvidenceError
        If it is no complete schedule.

    Examples
    --------
    >>> schedule = {"placement": [[0]], "microbatches": [1], "order": [["0F0", "0B0"]]}
    >>> subject(schedule, "gpipe P=1 M=1")
    'gpipe P=1 M=1'
    >>> subject(schedule, "gpipe P=1 M=2")
    'the order P=1 M=1 with sha256 21aaafaedabfb6b72b458e9a363e7de7c5a30bb2aabb0b14a59f7640dbbdf5a7'
    """
    problem, order = read_schedule(written)
    # Only of the sizes that stand in the evidence, so that a name makes no work.
    sizes = (problem.ranks, problem.total_microbatches)
    found = _NAME.fullmatch(name)
    if found and found[1] in FAMILIES and (int(found[2]), int(found[3])) == sizes:
        for each in _variants(found[1], *sizes, problem.stages // problem.ranks):
            if (each.name, each.problem, each.order) == (name, problem, order):
                return name
    rows = [[str(block) for block in row] for row in order]
    digest = _digest({"placement": problem.placement, "microbatches": problem.microbatches, "order": rows})
    return f"the order P={sizes[0]} M={sizes[1]} with sha256 {digest}"


def _variants(family: str, ranks: int, microbatches: int, stages_per_rank: int) -> Iterator[Schedule]:
    for rule in ("pytorch", "megatron") if "rule" in FAMILIES[family].options else ("pytorch",):
        try:
            yield build_family(family, ranks, microbatches, stages_per_rank=max(1, stages_per_rank), rule=rule)
        except ScheduleError:
            continue


def _digest(value: object) -> str:
    return sha256(json.dumps(value, separators=(",", ":"), sort_keys=True).encode()).hexdigest()
