"""
SMT-LIB 2 text, read back: which conditions a solver is asked about, so that none of those that there have to be is missing.

A solver that answers ``unsat`` to every check of the text has then confirmed all that the checker demands. So nothing is read
that a solver might read otherwise: no other characters, commands, logic or sorts than the product writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from verifier.affine import Affine
from verifier.check.blocks import denied
from verifier.check.conditions import require
from verifier.check.covering import in_order, name_of, options_in_order

_TOKEN = re.compile(r"(?P<skipped>[ \n]+|;[^\n]*)|\|[ -{}~]*\||[()]|[\w<>=*+./-]+", re.ASCII)
_SYMBOL = re.compile(r"[A-Za-z][\w.]*", re.ASCII)
_RESERVED = frozenset(("and", "assert", "distinct", "div", "false", "ite", "let", "mod", "not", "or", "true", "xor"))


class Asked(NamedTuple):
    """What one check is about, with its name as of certificates: can rows all be at least 0, and none of some options hold?"""

    name: str
    rows: list[Affine]
    options: list[list[Affine]]


def asked(text: str) -> tuple[Asked, ...]:
    """
    What the checks of a text are about, in their order.

    Raises
    ------
    EvidenceError
        If the text holds anything but conjunctions of affine comparisons with 0, and their negations, of declared symbols.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> x, = symbols("x")
    >>> text = "(push 1) (assert (>= x 0)) (assert (< (+ (* 2 x) 1) 0)) (check-sat) (pop 1)"
    >>> (found,) = asked(f"(set-logic QF_LIA) (declare-const x Int) {text}")
    >>> found.name == name_of(in_order([x, -2 * x - 2]))
    True
    """
    found: list[Asked] = []
    levels: list[list[list[object]]] = [[]]
    declared: set[str] = set()
    first, *others = list(commands(text)) or [[]]
    require(first == ["set-logic", "QF_LIA"], "the text is in the logic QF_LIA")
    for command in others:
        match command:
            case ["declare-const", str() as name, "Int"]:
                new = levels == [[]] and not found and name not in declared | _RESERVED and _SYMBOL.fullmatch(name) is not None
                require(new, f"{name} is declared once, in front of all else")
                declared.add(name)
            case ["push", "1"]:
                levels.append([])
            case ["pop", "1"] if len(levels) > 1:
                levels.pop()
            case ["assert", list() as claim]:
                levels[-1].append(claim)
            case ["check-sat"]:
                found.append(_asked([claim for level in levels for claim in level], declared))
            case _:
                require(False, f"{str(command[0])[:40] if command else '()'} belongs in a text of conditions")
    require(len(levels) == 1, "a text leaves every level")
    return tuple(found)


def commands(text: str) -> Iterator[list[object]]:
    """
    One list for each command of a text; comments are left out.

    Raises
    ------
    EvidenceError
        If there are characters of which readers may think differently, such as a carriage return that ends a comment.

    Examples
    --------
    >>> list(commands("(assert (< |a b| 1.0)) ; done"))
    [['assert', ['<', '|a b|', '1.0']]]
    """
    require(
        all(letter == "\n" or letter.isprintable() for letter in text), "a text has no control characters but ends of lines"
    )
    stack: list[list[object]] = [[]]
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        require(match is not None, f"{text[at]!r} belongs in a text of conditions")
        assert match is not None, "required"
        at, token = match.end(), match[0]
        if match["skipped"]:
            continue
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
            require(len(stack) > 1, "a text consists of commands")
            stack[-1].append(token)
    require(stack == [[]], "brackets close what they open")


def _asked(claims: list[list[object]], declared: set[str]) -> Asked:
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
    for row in (*rows, *(row for option in options for row in option)):
        require(row.symbols <= declared, "every symbol is declared")
    ordered, choices = in_order(rows), options_in_order(options)
    return Asked(name_of(ordered, choices), ordered, choices)


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
