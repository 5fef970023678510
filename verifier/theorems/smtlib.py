"""
Conditions as SMT-LIB 2 text, in standard operators only: any solver for linear arithmetic can decide them again.

One text holds the conditions of one theorem. Each is one ``(check-sat)``, asked of its hypotheses and the negation of what
follows, so that the answer ``unsat`` confirms it. Conditions with the same hypotheses stand together, so that these are
asserted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from verifier.affine import Affine, Condition
from verifier.theorems.conditions import OneOf, Statement


class Script(NamedTuple):
    """A text, and the name of what each of its checks is about, in order."""

    text: str
    checks: tuple[str, ...]


def script(title: Sequence[str], statements: Iterable[Statement]) -> Script:
    """
    All conditions of a theorem.

    Parameters
    ----------
    title
        Lines for people, which stand in front.

    Examples
    --------
    >>> from verifier.affine import symbols
    >>> from verifier.theorems.conditions import Implication
    >>> x, y = symbols("x y")
    >>> print(script(["a sum"], [Implication("sum", (x >= 1, y >= 2), x + y - 3)]).text)
    ; a sum
    ; checks: 1; each answer unsat confirms a condition, for whole numbers of any size
    (set-logic QF_LIA)
    (declare-const x Int)
    (declare-const y Int)
    (push 1)
    (assert (>= (+ x (- 1)) 0))
    (assert (>= (+ y (- 2)) 0))
    (push 1) ; sum
    (assert (< (+ x y (- 3)) 0))
    (check-sat)
    (pop 1)
    (pop 1)
    <BLANKLINE>
    """
    groups: dict[tuple[Condition, ...], list[Statement]] = {}
    for statement in statements:
        groups.setdefault(tuple(dict.fromkeys(statement.given)), []).append(statement)
    names = sorted({name for given, group in groups.items() for name in _symbols(given, group)})
    checks = tuple(statement.name for group in groups.values() for statement in group)
    lines = [
        *(f"; {line}" for line in title),
        f"; checks: {len(checks)}; each answer unsat confirms a condition, for whole numbers of any size",
        "(set-logic QF_LIA)",
        *(f"(declare-const {name} Int)" for name in names),
    ]
    for given, group in groups.items():
        lines += ["(push 1)", *(f"(assert {_holds(condition)})" for condition in given)]
        for statement in group:
            lines += [f"(push 1) ; {statement.name}", *(f"(assert {text})" for text in _denied(statement))]
            lines += ["(check-sat)", "(pop 1)"]
        lines.append("(pop 1)")
    return Script("\n".join(lines) + "\n", checks)


def _symbols(given: Sequence[Condition], group: Sequence[Statement]) -> Iterable[str]:
    for condition in given:
        yield from condition.expression.symbols
    for statement in group:
        if isinstance(statement, OneOf):
            for option in statement.options:
                for condition in option:
                    yield from condition.expression.symbols
        elif statement.then is not None:
            yield from statement.then.symbols


def _denied(statement: Statement) -> list[str]:
    """What must contradict the hypotheses; nothing, where they must contradict one another."""
    if isinstance(statement, OneOf):
        return [f"(not {_all(option)})" for option in statement.options]
    return [] if statement.then is None else [f"(< {_number(statement.then)} 0)"]


def _all(conditions: Sequence[Condition]) -> str:
    texts = [_holds(condition) for condition in conditions]
    return "true" if not texts else texts[0] if len(texts) == 1 else f"(and {' '.join(texts)})"


def _holds(condition: Condition) -> str:
    return f"(>= {_number(condition.expression)} 0)"


def _number(value: Affine) -> str:
    """A sum of products; SMT-LIB writes -2 as (- 2)."""
    terms = [name if c == 1 else f"(* {_whole(c)} {name})" for name, c in value.terms]
    terms += [_whole(value.constant)] if value.constant or not terms else []
    return terms[0] if len(terms) == 1 else f"(+ {' '.join(terms)})"


def _whole(number: int) -> str:
    return str(number) if number >= 0 else f"(- {-number})"
