"""
Loop programs as people write them in a spec: what ``str`` prints of counts, guards and blocks, read back.

::

    [loops]
    name = "early 1f1b"
    placement = "sequential"
    where = ["M >= 2P"]
    steps = [
        ["2(P-r-1)", "F0"],
        ["M-2P+2r+2", "F0, B0"],
        ["2(P-r-1)", "B0"],
    ]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verifier.affine import Affine, Condition, Extreme, affine, symbols
from verifier.families import LAYOUTS, program_on
from verifier.formats.source import one_line
from verifier.loops import Item, Loop, Program
from verifier.model import ScheduleError

KEYS = ("name", "placement", "where", "costs", "steps", "makespan", "peak_activations")
COSTS = ("F", "I", "W", "FB")
MAX_TEXT, MAX_DIGITS, MAX_STEPS, MAX_ITEMS, MAX_CASES = 200, 6, 40, 40, 64
"""What a program of a person stays within; cases are those that the guards of one loop tell apart."""
_TOKEN = re.compile(r"\s*(\d+|[A-Za-z]+|[-+*(),])", re.ASCII)
_COMPARED = re.compile(r"<=|>=|==|=|<|>")


@dataclass(frozen=True)
class OwnLoops:
    """
    A loop program from a spec, and what is said about it.

    Attributes
    ----------
    program, placement
        The loops, and where stages live.
    costs
        Conditions on F, I, W and FB under which the makespan is spoken of.
    makespan
        Claimed: formulas whose greatest it is, each as the number of F, I, W and FB. Empty where nothing is claimed.
    peak
        Claimed: most activations of a rank; None where nothing is claimed.
    """

    program: Program
    placement: str
    costs: tuple[Condition, ...] = ()
    makespan: tuple[tuple[Affine, ...], ...] = ()
    peak: Affine | Extreme | None = None


def read_loops(table: Mapping[str, object]) -> OwnLoops:
    """
    Read the table ``[loops]`` of a spec.

    Raises
    ------
    ScheduleError
        If something is missing, no text, or not of this language; one line that says where.

    Examples
    --------
    >>> own = read_loops({"name": "own", "steps": [["M", "F0"], ["M", "I0, W"]], "peak_activations": "M"})
    >>> print(own.program)
    own: rank r of P runs, of P stages, r in phase 0
    M micro-batches in each phase
    where P >= 1, M >= 1
    step  count  blocks per iteration
    1     M      F0
    2     M      I0, W
    """
    where = _text(table.get("placement", "sequential"), "loops.placement")
    if where not in LAYOUTS:
        raise ScheduleError(f'loops.placement: expected one of {", ".join(LAYOUTS)}, got "{one_line(where, 40)}"')
    layout = LAYOUTS[where]
    sizes = sorted(layout.ranks.symbols | layout.microbatches.symbols)
    inside = [*sizes, layout.rank]
    name = _text(table.get("name", "own loops"), "loops.name")
    domain = [
        condition
        for k, each in enumerate(_list(table.get("where", []), "loops.where"))
        for condition in read_condition(_text(each, f"loops.where[{k}]"), sizes, f"loops.where[{k}]")
    ]
    steps = _list(table.get("steps"), "loops.steps")
    if not 0 < len(steps) <= MAX_STEPS:
        raise ScheduleError(f'loops.steps: expected 1 to {MAX_STEPS} rows such as ["M", "F0, B0"], got {len(steps)}')
    loops = [_step(row, inside, f"loops.steps[{k}]") for k, row in enumerate(steps)]
    costs = [
        condition
        for k, each in enumerate(_list(table.get("costs", []), "loops.costs"))
        for condition in read_condition(_text(each, f"loops.costs[{k}]"), COSTS, f"loops.costs[{k}]")
    ]
    if any(condition.expression.constant for condition in costs):
        raise ScheduleError("loops.costs: expected multiples of costs compared by >=, <= or =, such as F = I or 2W <= I")
    try:
        program = program_on(where, name, loops, domain)
    except ScheduleError as error:
        raise ScheduleError(f"loops.steps: {error}") from None
    peak = table.get("peak_activations")
    return OwnLoops(
        program,
        where,
        tuple(costs),
        tuple(_makespans(table.get("makespan", []), sizes)),
        None if peak is None else read_count(_text(peak, "loops.peak_activations"), inside, "loops.peak_activations"),
    )


def _step(row: object, known: Sequence[str], where: str) -> Loop:
    """A count and what runs as often."""
    if not isinstance(row, list) or len(row) != 2:
        raise ScheduleError(f'{where}: expected a count and blocks such as ["P-r-1", "F0, B0"]')
    count = read_count(_text(row[0], f"{where}[0]"), known, f"{where}[0]")
    words = _text(row[1], f"{where}[1]", 20 * MAX_TEXT).split(",")
    if len(words) > MAX_ITEMS:
        raise ScheduleError(f"{where}[1]: expected at most {MAX_ITEMS} blocks, got {len(words)}")
    items = tuple(_item(word, [*known, "i"], f"{where}[1]") for word in words)
    conditions = {min(str(c), str(c.negated)) for item in items for c in item.guard}
    if 2 ** len(conditions) > MAX_CASES:
        raise ScheduleError(f"{where}[1]: {len(conditions)} different conditions; expected few, in steps of their own")
    try:
        return Loop(count, items)
    except ScheduleError as error:
        raise ScheduleError(f"{where}: {error}") from None


def _item(text: str, known: Sequence[str], where: str) -> Item:
    """A block, and after ``if`` the conditions under which it runs."""
    block, _, guard = text.strip().partition(" if ")
    conditions = [c for word in re.split(r"\band\b", guard) if guard for c in read_condition(word, known, where)]
    try:
        return Item.parse(block.strip(), *conditions)
    except ScheduleError:
        raise ScheduleError(f'{where}: "{one_line(text.strip(), 40)}" is no block; expected F0, I1, W, B0 or F0&B1') from None


def _makespans(written: object, sizes: Sequence[str]) -> list[tuple[Affine, ...]]:
    """``{F = "M+P-1", ...}``, or a list of such: the greatest of them."""
    tables = written if isinstance(written, list) else [written]
    found = []
    for k, table in enumerate(tables):
        where = f"loops.makespan[{k}]" if isinstance(written, list) else "loops.makespan"
        if not isinstance(table, dict) or not table or table.keys() - set(COSTS):
            raise ScheduleError(f'{where}: expected how often each cost counts, such as {{ F = "M+P-1", I = "M", W = "M" }}')
        parts = [read_count(_text(table.get(c, "0"), f"{where}.{c}"), sizes, f"{where}.{c}") for c in COSTS]
        if not all(isinstance(part, Affine) for part in parts):
            raise ScheduleError(f"{where}: min and max are not for counts of costs; expected a list with one formula each")
        found.append(tuple(part for part in parts if isinstance(part, Affine)))
    return found


# ---------------------------------------- expressions


def read_count(text: str, known: Sequence[str], where: str = "count") -> Affine | Extreme:
    """
    An affine expression, or the least or greatest of some.

    Raises
    ------
    ScheduleError
        If it is anything else, or has another symbol.

    Examples
    --------
    >>> read_count("max(0, M - 2(P-r) + 1)", ["M", "P", "r"])
    max(0, M-2P+2r+1)
    """
    return _Reader(text, known, where).whole()


def read_condition(text: str, known: Sequence[str], where: str = "condition") -> tuple[Condition, ...]:
    """
    A comparison of two affine expressions; two conditions where they are to be equal.

    Raises
    ------
    ScheduleError
        If it is anything else, or has another symbol.

    Examples
    --------
    >>> read_condition("2i > h", ["h", "i"]), read_condition("F = I", ["F", "I"])
    ((2i >= h+1,), (F >= I, I >= F))
    """
    signs = _COMPARED.findall(text)
    if len(signs) != 1:
        raise ScheduleError(f'{where}: "{one_line(text.strip(), 40)}" is no condition; expected one such as M >= 2P')
    left, right = (_Reader(side, known, where).affine() for side in _COMPARED.split(text))
    found = {">=": (left >= right,), "<=": (left <= right,), ">": (left > right,), "<": (left < right,)}
    return found.get(signs[0], (left >= right, left <= right))


class _Reader:
    """Reads one expression, word by word."""

    def __init__(self, text: str, known: Sequence[str], where: str) -> None:
        self.known, self.where = tuple(known), where
        self.shown = one_line(text.strip(), 40)
        if len(text) > MAX_TEXT:
            raise ScheduleError(f"{where}: {len(text)} characters; expected an expression of at most {MAX_TEXT}")
        self.words: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.wrong()
            self.words.append(found[1])
            at = found.end()

    def wrong(self) -> ScheduleError:
        example = "2(P-r-1), M-P+1 or min(M, P-r)"
        return ScheduleError(f'{self.where}: "{self.shown}" is no count; expected an affine one such as {example}')

    def whole(self) -> Affine | Extreme:
        """All of the text."""
        found = self.extreme()
        if self.words:
            raise self.wrong()
        return found

    def affine(self) -> Affine:
        """All of the text, without min and max."""
        found = self.whole()
        if isinstance(found, Extreme):
            raise self.wrong()
        return found

    def extreme(self) -> Affine | Extreme:
        """``min(...)``, ``max(...)``, or a sum."""
        if self.words[:1] not in (["min"], ["max"]):
            return self.sum()
        name = self.words.pop(0)
        self.expect("(")
        options = [self.extreme()]
        while self.words[:1] == [","]:
            self.words.pop(0)
            options.append(self.extreme())
        self.expect(")")
        return Extreme(name, tuple(options))

    def sum(self) -> Affine:
        """Products, added or subtracted."""
        total, sign = affine(0), 1
        if self.words[:1] == ["-"]:
            self.words.pop(0)
            sign = -1
        while True:
            total += sign * self.product()
            if self.words[:1] not in (["+"], ["-"]):
                return total
            sign = 1 if self.words.pop(0) == "+" else -1

    def product(self) -> Affine:
        """Numbers, symbols and sums in brackets; all but one of them are numbers."""
        found = self.factor()
        while self.words and (self.words[0] in ("*", "(") or self.words[0].isalnum()):
            if self.words[0] == "*":
                self.words.pop(0)
            other = self.factor()
            if found.terms and other.terms:
                raise self.wrong()
            found = found * other.constant if found.terms else other * found.constant
        return found

    def factor(self) -> Affine:
        word = self.words.pop(0) if self.words else ""
        if word == "(":
            found = self.sum()
            self.expect(")")
            return found
        if word.isdigit() and len(word) <= MAX_DIGITS:
            return affine(int(word))
        if word in self.known:
            return symbols(word)[0]
        if word.isalpha():
            raise ScheduleError(
                f'{self.where}: unknown symbol "{one_line(word, 20)}" in "{self.shown}"; expected {", ".join(self.known)}'
            )
        raise self.wrong()

    def expect(self, word: str) -> None:
        if self.words[:1] != [word]:
            raise self.wrong()
        self.words.pop(0)


# ---------------------------------------- values


def _text(value: object, where: str, most: int = MAX_TEXT) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**MAX_DIGITS:
        return str(value)
    if not isinstance(value, str) or len(value) > most or not value.strip():
        got = "nothing" if value is None else f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
        raise ScheduleError(f"{where}: expected text of at most {most} characters, got {got}")
    return value


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise ScheduleError(f"{where}: expected a list, got {'nothing' if value is None else type(value).__name__}")
    return value
