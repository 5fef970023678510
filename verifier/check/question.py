"""The SMT-LIB 2 question of a bound on the makespan, compared with the one that the checker would ask."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from verifier.check.conditions import rational, require
from verifier.check.order import Rows, earliest, edges
from verifier.check.scripts import commands
from verifier.costs import CostModel

Fact = tuple[object, ...]


def check_question(text: str, stages: int, rows: Rows, costs: tuple[CostModel, CostModel], bound: Fraction) -> None:
    """
    Check what a text asks: can durations between those of two costs break the earliest timeline of the second, or the bound?

    Raises
    ------
    EvidenceError
        If it asks for less or more, or for something else.

    Examples
    --------
    >>> from verifier.model import Block
    >>> text = "(set-logic QF_LRA)(assert (or false))(check-sat)"
    >>> check_question(text, 1, ((Block.parse("0F0"),),), (CostModel.of(), CostModel.of(F=2)), Fraction(2))
    Traceback (most recent call last):
    verifier.check.conditions.EvidenceError: not covered: the SMT-LIB 2 text declares the durations of all blocks
    """
    declared: list[object] = []
    ranges: list[Fact] = []
    (first, *middle), late, last = _parts(text)
    require(first == ["set-logic", "QF_LRA"] and last == ["check-sat"], "the SMT-LIB 2 text asks once, about real numbers")
    for command in middle:
        match command:
            case ["declare-const", name, "Real"]:
                declared.append(name)
            case ["assert", ["<=", low, name, high]] if name in declared:
                ranges.append((_real(low), name, _real(high)))
            case _:
                require(False, "the SMT-LIB 2 text gives ranges, and no more")
    blocks = [_takes(block) for row in rows for block in row]
    require(sorted(map(str, declared)) == sorted(blocks), "the SMT-LIB 2 text declares the durations of all blocks")
    low, high = costs
    known = {(_time(low, low.ticks(b)), _takes(b), _time(high, high.ticks(b))) for row in rows for b in row}
    require(set(ranges) == known, "the SMT-LIB 2 text gives the ranges of all durations")
    said = {_fact(each) for each in late if each != "false"}
    require(said == set(_late(stages, rows, high, bound)), "the SMT-LIB 2 text asks about all waits and the bound")


def _parts(text: str) -> tuple[list[Any], list[Any], Any]:
    """Logic and ranges; what is asked; the last command."""
    found = list(commands(text))
    require(len(found) > 2, "the SMT-LIB 2 text asks about all waits and the bound")
    *front, asked, last = found
    match asked:
        case ["assert", ["or", *late]]:
            return front, late, last
    require(False, "the SMT-LIB 2 text asks about all waits and the bound")
    return [], [], last


def _late(stages: int, rows: Rows, costs: CostModel, bound: Fraction) -> Iterator[Fact]:
    """Every end that may be beyond the bound, and every wait that may take too long."""
    begin = earliest(stages, rows, costs)
    for (rank, at), ticks in begin.items():
        yield ">", _time(costs, ticks), _takes(rows[rank][at]), bound
    for u, v, lag in edges(stages, rows, costs):
        block = rows[u[0]][u[1]]
        hop = lag - costs.ticks(block)
        yield "<", _time(costs, begin[v]), _time(costs, begin[u] + hop), _takes(block)


def _fact(term: object) -> Fact:
    match term:
        case [">", ["+", start, name], bound]:
            return ">", _real(start), name, _real(bound)
        case ["<", start, ["+", begin, name]]:
            return "<", _real(start), _real(begin), name
    require(False, "the SMT-LIB 2 text compares ends with starts and the bound")
    return ()


def _takes(block: object) -> str:
    return f"|{block} takes|"


def _time(costs: CostModel, ticks: int) -> Fraction:
    return Fraction(ticks, costs.ticks_per_unit)


def _real(term: object) -> Fraction:
    """``3.0`` or ``(/ 7.0 2.0)``."""
    match term:
        case ["/", str() as left, str() as right] if left.endswith(".0") and right.endswith(".0"):
            return rational(f"{left[:-2]}/{right[:-2]}", "a time")
        case str() if term.endswith(".0"):
            return rational(term[:-2], "a time")
    require(False, "times are numbers")
    return Fraction(0)
