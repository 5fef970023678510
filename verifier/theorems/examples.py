"""
Sizes at which a person's loops are not legal or do not hold what they claim: the least of them, found by running the loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from verifier.affine import Affine, Extreme
from verifier.families import build_program
from verifier.formats.loop_text import OwnLoops
from verifier.loops import Program, unroll
from verifier.model import ScheduleError
from verifier.theorems.claiming import most_held, sizes_of
from verifier.theorems.finding import analysis_of
from verifier.theorems.ledger import Failure
from verifier.theorems.solving import point, possible
from verifier.verify import verify

MOST_RANKS, MOST_SIZES, MOST_BLOCKS = 5, 40, 4000
"""What is run before anything is proved, and the greatest point of a solver that is run."""


def least_illegal(own: OwnLoops) -> str | None:
    """
    Where the loops are not legal: the least of small sizes, with rank and block; None where nothing is seen.

    Examples
    --------
    >>> from verifier.formats.loop_text import read_loops
    >>> least_illegal(read_loops({"steps": [["M", "F0"], ["M", "I0"], ["M-1", "W"]]}))
    'P=1, M=1: 0W0 is missing; expected once, on rank 0'
    """
    for sizes in _least_sizes(own.program):
        if wrong := _illegal(own, sizes):
            return f"{written(own.program, sizes)}: {wrong}"
    for sizes in _of_each_case(own.program):
        if _illegal(own, sizes):
            smaller = _smaller(own, sizes)
            return f"{written(own.program, smaller)}: {_illegal(own, smaller)}"
    return None


def _smaller(own: OwnLoops, sizes: dict[str, int]) -> dict[str, int]:
    """Sizes that are still wrong, and no longer where one of them is one less."""
    for name in map(str, (own.program.microbatches, own.program.ranks)):
        less = {**sizes, name: sizes[name] - 1}
        if all(condition.holds(less) for condition in own.program.domain) and _illegal(own, less):
            return _smaller(own, less)
    return sizes


def _least_sizes(program: Program) -> Iterator[dict[str, int]]:
    """A few sizes of few ranks, the least first."""
    ranks, microbatches = map(str, (program.ranks, program.microbatches))
    found = [each for each in sizes_of(program) if each[ranks] <= MOST_RANKS]
    yield from map(dict, sorted(found, key=lambda each: (each[ranks] + each[microbatches], each[ranks]))[:MOST_SIZES])


def _of_each_case(program: Program) -> Iterator[dict[str, int]]:
    """For each case of min and max sizes at which every loop runs more than once, if there are, and not too often."""
    analysis = analysis_of(program, ())
    for regime in analysis.regimes:
        inside = (*analysis.assumptions, *regime.where)
        often = [trips >= 2 for trips in regime.trips if trips.symbols and possible((*inside, trips >= 2))]
        for more in (often, ()):
            found = point((*inside, *more))
            if found is None:
                continue
            sizes = {name: found.get(name, 0) for name in analysis.sizes}
            if program.depth.value(sizes) * program.microbatches.value(sizes) <= MOST_BLOCKS:
                yield sizes
            break


def _illegal(own: OwnLoops, sizes: Mapping[str, int]) -> str | None:
    """What is wrong at some sizes."""
    program = own.program
    try:
        for rank in range(program.ranks.value(sizes)):
            unroll(program, sizes, rank)
    except ScheduleError as error:
        return str(error)
    copies = 2 if own.placement == "bidirectional" else 1
    ranks, microbatches = (copies * each.value(sizes) for each in (program.ranks, program.microbatches))
    report = verify(build_program(program, own.placement, ranks, microbatches), solver="replay")
    for name in ("complete", "pairing", "dependencies"):
        if witnesses := report.properties[name].witnesses:
            return str(witnesses[0])
    return None


def least_other_peak(own: OwnLoops) -> str | None:
    """
    The least size at which a rank holds another number of activations than claimed; None where none is seen or claimed.
    """
    if own.peak is None:
        return None
    program = own.program
    for sizes in _least_sizes(program):
        for rank in range(program.ranks.value(sizes)):
            if wrong := _other(program, own.peak, {**sizes, program.rank: rank}):
                return wrong
    return None


def other_peak(own: OwnLoops, claimed: Affine | Extreme, failed: Mapping[str, int]) -> str | None:
    """The same at a point that a solver found, unless it is too large to be run."""
    program = own.program
    names = {*program.ranks.symbols, *program.microbatches.symbols, program.rank}
    values = {name: failed.get(name, 0) for name in names}
    blocks = len(program.stages) * program.microbatches.value(values)
    return _other(program, claimed, values) if blocks <= MOST_BLOCKS else None


def _other(program: Program, claimed: Affine | Extreme, values: Mapping[str, int]) -> str | None:
    held, said = most_held(program, values), claimed.value(values)
    sizes = {name: number for name, number in values.items() if name != program.rank}
    if held == said:
        return None
    return f"{written(program, sizes)}: rank {values[program.rank]} holds {held} activations at most, not {said}"


def written(program: Program, sizes: Mapping[str, int]) -> str:
    """
    Sizes for people, ranks first.

    Examples
    --------
    >>> from verifier.families import GPIPE
    >>> written(GPIPE, {"M": 3, "P": 2})
    'P=2, M=3'
    """
    return ", ".join(f"{name}={sizes[name]}" for name in map(str, (program.ranks, program.microbatches)))


_PLAIN = {
    "no I waits for W": "not every I is followed by its W",
    "has an I": "a W runs that has no I to follow",
    ": trips": "a count of a step is negative",
    ": all ": "a rank does not run as many as there are micro-batches",
    "joins opposite phases": "the parts of an overlapped block have the same phase",
    "leave no rank out": "no case of min and max fits a rank",
    "are left out": "sizes are left out",
}


def plainly(failure: Failure) -> str:
    """
    What a condition that fails says of the loops.

    Examples
    --------
    >>> plainly(Failure("regime 0: no I waits for W", {"M": 50, "P": 1, "r": 0}))
    'M=50, P=1, r=0: not every I is followed by its W (regime 0: no I waits for W)'
    """
    said = next((text for part, text in _PLAIN.items() if part in failure.name), "")
    where = ", ".join(f"{name}={value}" for name, value in failure.point.items())
    return f"{where}: {said} ({failure.name})" if said else str(failure)
