"""
SMT-LIB 2 text, read back: which conditions a solver is asked about, so that none of those that there have to be is missing.

A solver that answers ``unsat`` to every check of the text has then confirmed all that the checker demands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from verifier.affine import Affine
from verifier.check.blocks import denied
from verifier.check.conditions import require
from verifier.check.covering import in_order, name_of, options_in_order

_TOKEN = re.compile(r"[()]|[^\s()]+")
_SKIPPED = ("set-logic", "declare-const")


def asked(text: str) -> frozenset[str]:
    """
    The names, as of certificates, of what the checks of a text are about.

    Raises
    ------
    EvidenceError
        If the text holds anything but conjunctions of affine comparisons with 0, and their negations.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> x, = symbols("x")
    >>> text = "(declare-const x Int) (assert (>= x 0)) (push 1) (assert (< (+ (* 2 x) 1) 0)) (check-sat) (pop 1)"
    >>> asked(text) == {name_of(in_order([x, -2 * x - 2]))}
    True
    """
    found: set[str] = set()
    levels: list[list[list[object]]] = [[]]
    for command in _commands(text):
        match command:
            case ["push", "1"]:
                levels.append([])
            case ["pop", "1"] if len(levels) > 1:
                levels.pop()
            case ["assert", list() as claim]:
                levels[-1].append(claim)
            case ["check-sat"]:
                found.add(_name([claim for level in levels for claim in level]))
            case [str() as word, *_]:
                require(word in _SKIPPED, f"{word} belongs in a text of conditions")
            case _:
                require(False, "the text holds commands")
    return frozenset(found)


def _commands(text: str) -> Iterator[list[object]]:
    """One list for each command; comments are left out."""
    stack: list[list[object]] = [[]]
    for token in _TOKEN.findall(re.sub(r";.*", "", text)):
        if token == "(":
            stack.append([])
        elif token == ")":
            require(len(stack) > 1, "brackets close what they open")
            done = stack.pop()
            if len(stack) == 1:
                yield done
            else:
                stack[-1].append(done)
        else:
            stack[-1].append(token)
    require(stack == [[]], "brackets close what they open")


def _name(claims: list[list[object]]) -> str:
    rows: list[Affine] = []
    options: list[list[Affine]] = []
    for claim in claims:
        match claim:
            case ["not", "true"]:
                options.append([])
            case ["not", ["and", *parts]]:
                options.append([_row(part) for part in parts])
            case ["not", part]:
                options.append([_row(part)])
            case _:
                rows.append(_row(claim))
    return name_of(in_order(rows), options_in_order(options))


def _row(claim: object) -> Affine:
    """A comparison with 0, as what is at least 0."""
    match claim:
        case [">=", left, "0"]:
            return _number(left)
        case ["<", left, "0"]:
            return denied(_number(left))
    require(False, f"{claim} is a comparison with 0")
    return Affine()


def _number(term: object) -> Affine:
    match term:
        case str() if term.isdecimal():
            return Affine((), int(term))
        case str():
            return Affine(((term, 1),))
        case ["-", str() as number] if number.isdecimal():
            return Affine((), -int(number))
        case ["*", factor, str() as name]:
            return _number(factor).constant * Affine(((name, 1),))
        case ["+", *parts]:
            return sum(map(_number, parts), Affine())
    require(False, f"{term} is a sum of products")
    return Affine()
