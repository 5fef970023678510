"""
Timelines and paths that were found before, kept as data so that a proof only has to verify them.

Nothing depends on what the file says: a wrong entry makes a condition fail, a missing one is found anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

from verifier.affine import Affine
from verifier.theorems.conditions import AffineTimeline, Formula, Kink
from verifier.theorems.paths import Path, Segment, Stop

Bound = tuple[Formula, Kink | None, tuple[AffineTimeline, ...]]


@dataclass
class Guesses:
    """Of one theory and one part of its sizes: paths by formula, and per region the bound, what is carried, and timelines."""

    paths: dict[int, Path] = field(default_factory=dict)
    regions: dict[str, Bound] = field(default_factory=dict)


@lru_cache(maxsize=1)
def _file() -> dict[str, Any]:
    found = json.loads(files("verifier.theorems").joinpath("guesses.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict), "written by this module"
    return found


def load(program: str, number: int) -> Guesses:
    """
    What is known for a program and the part of its sizes with this number; empty where nothing is.

    Examples
    --------
    >>> sorted(load("1f1b", 0).paths), load("no such program", 0)
    ([0], Guesses(paths={}, regions={}))
    """
    return read(_file().get(f"{program} {number}", {"paths": {}, "regions": {}}))


def read(written: dict[str, Any]) -> Guesses:
    """Guesses from plain JSON values."""
    paths = {int(k): tuple(map(_segment, path)) for k, path in written["paths"].items()}
    return Guesses(paths, {name: _bound(bound) for name, bound in written["regions"].items()})


def written(guesses: Guesses) -> dict[str, Any]:
    """
    Guesses as plain JSON values.

    >>> from verifier.affine import symbols
    >>> P, t = symbols("P t")
    >>> known = Guesses({0: (Segment((Stop(3, P - 1 - t, t),), P - 1),)})
    >>> read(written(known)) == known
    True
    """
    paths = {
        str(k): [{"trips": _numbers(s.trips), "stops": [[b, _numbers(r), _numbers(i)] for b, r, i in s.stops]} for s in path]
        for k, path in guesses.paths.items()
    }
    return {"paths": paths, "regions": {name: _written_bound(bound) for name, bound in guesses.regions.items()}}


def _written_bound(bound: Bound) -> dict[str, Any]:
    limit, kink, timelines = bound
    carried = kink and {
        "options": [list(map(_numbers, option.parts)) for option in kink.options],
        "carriers": sorted(kink.carriers),
        "chosen": {name: k for name, k in kink.chosen.items() if k != kink.default},
        "default": kink.default,
    }
    return {
        "limit": list(map(_numbers, limit.parts)),
        "kink": carried,
        "timelines": [
            {"ray": list(each.ray), "scale": each.scale, "starts": list(map(_numbers, each.starts))} for each in timelines
        ],
    }


def _bound(written: dict[str, Any]) -> Bound:
    carried = written["kink"]
    kink = carried and Kink(
        tuple(map(_formula, carried["options"])), frozenset(carried["carriers"]), carried["chosen"], carried["default"]
    )
    timelines = tuple(
        AffineTimeline(tuple(each["ray"]), each["scale"], tuple(map(_affine, each["starts"]))) for each in written["timelines"]
    )
    return _formula(written["limit"]), kink, timelines


def _formula(written: Sequence[dict[str, int]]) -> Formula:
    return Formula(*map(_affine, written))


def _segment(written: dict[str, Any]) -> Segment:
    stops = tuple(Stop(block, _affine(rank), _affine(place)) for block, rank, place in written["stops"])
    return Segment(stops, _affine(written["trips"]))


def _numbers(value: Affine) -> dict[str, int]:
    """An affine expression; the constant has no name."""
    return {**({"": value.constant} if value.constant else {}), **dict(value.terms)}


def _affine(written: dict[str, int]) -> Affine:
    return Affine(tuple((name, c) for name, c in written.items() if name), written.get("", 0))
