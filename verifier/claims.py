"""
What was published about the schedule families: formulas as data, each with its source and the domain in which it is exact.

The domains are ours, and part of them is narrower than the source says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from verifier.costs import CostModel, Price


class Terms(NamedTuple):
    """What formulas speak of: P, M, stages per rank V, and the costs of F, I, W, B and an overlapped pair."""

    P: int
    M: int
    V: int
    F: Fraction
    I: Fraction  # noqa: E741
    W: Fraction
    B: Fraction
    FB: Fraction


_Formula = Callable[[Terms], "Fraction | int"]
_Domain = Callable[[Terms], bool]


@dataclass(frozen=True)
class Claim:
    """
    A published formula, and the domain in which it is exact.

    Parameters
    ----------
    quantity
        ``idle`` and ``span idle`` are of every rank; ``activations`` is the highest peak of all ranks and ``weights`` the
        stages that each rank holds, both in the family's own stage units.
    formula
        As published, in P, M, V, F, I, W, B, FB.
    source
        Where it was published.
    domain
        Where it is exact, for people. Outside it is wrong somewhere, though it can agree at single points (P = 1, for example).
    at, where
        Formula and domain as functions. What stands before the semicolon of ``domain`` is looked after by :meth:`holds`.

    Examples
    --------
    >>> claim = DUALPIPE[0]
    >>> claim.formula, claim.value(8, 20, CostModel.of(F=10, I=12, W=9, FB=26))
    ('(P/2-1)(FB+B-3W)', Fraction(60, 1))
    >>> claim.holds(8, 20, CostModel.of(F=10, I=12, W=9, FB=26)), claim.holds(8, 20, CostModel.of())
    (False, True)
    """

    quantity: str
    formula: str
    source: str
    domain: str
    at: _Formula
    where: _Domain

    def value(self, ranks: int, microbatches: int, costs: CostModel, stages_per_rank: int = 2) -> Fraction:
        """What the formula gives; with means where stages cost differently, of which no formula here speaks."""
        return Fraction(self.at(_terms(ranks, microbatches, costs, stages_per_rank)))

    def holds(self, ranks: int, microbatches: int, costs: CostModel, stages_per_rank: int = 2) -> bool:
        """Whether sizes and costs, which the family accepts, lie in the domain."""
        if self.quantity in ("idle", "span idle"):
            understood = not any(_numbers(costs.hop)) and all(len(set(_numbers(price))) == 1 for price in costs.prices.values())
        else:
            understood = self.quantity == "weights" or (set(_numbers(costs.activation)) == {1} and not costs.release)
        return understood and self.where(_terms(ranks, microbatches, costs, stages_per_rank))


def _terms(ranks: int, microbatches: int, costs: CostModel, stages_per_rank: int) -> Terms:
    prices = [_numbers(costs.prices[kind]) for kind in ("F", "I", "W", "B", "F&B")]
    means = [sum(numbers, Fraction(0)) / len(numbers) for numbers in prices]
    return Terms(ranks, microbatches, stages_per_rank, *means)


def _numbers(price: Price) -> tuple[Fraction, ...]:
    """All the numbers of a price: one, one per stage, or a table."""
    return (price,) if isinstance(price, Fraction) else tuple(chain.from_iterable(map(_numbers, price)))


# ---------------------------------------- ways to say it


def _anywhere(_: Terms) -> bool:
    return True


def _idle(formula: str, source: str, at: _Formula, domain: str = "", where: _Domain = _anywhere, kind: str = "idle") -> Claim:
    return Claim(kind, formula, source, f"stages cost alike, hop 0{domain and f'; {domain}'}", at, where)


def _activations(formula: str, source: str, at: _Formula, domain: str = "", where: _Domain = _anywhere) -> Claim:
    return Claim("activations", formula, source, f"stages hold alike, W frees all{domain and f'; {domain}'}", at, where)


def _weights(formula: str, source: str, at: _Formula) -> Claim:
    return Claim("weights", formula, source, "everywhere", at, _anywhere)


def _dualpipe_idle(formula: str, source: str, half: _Formula, k: str, small: str) -> Claim:
    """The bubble of DualPipe or DualPipeV; ``half`` is half the number of stages, k one less."""
    domain = (
        f"B = I + W, FB >= F, FB >= B, max(kF, kI-F) = k(2I-max(I,W)) with k = {k} (for W <= I: F = I, or F = 0), "
        f"and FB = F + B unless {small}"
    )

    def at(t: Terms) -> Fraction:
        return (half(t) - 1) * (t.FB + t.B - 3 * t.W)

    # True for FB >= F, FB >= B: the middle ranks idle k (FB-I-2W + max(I,W)) + max(kF, kI-F), the outermost (k-1)(F+B-FB) less.
    def where(t: Terms) -> bool:
        k = half(t) - 1
        middle = max(k * t.F, k * t.I - t.F) == k * (2 * t.I - max(t.I, t.W))
        return t.B == t.I + t.W and max(t.F, t.B) <= t.FB and middle and (k <= 1 or t.FB == t.F + t.B)

    return _idle(formula, source, at, domain, where)


# ---------------------------------------- the claims

_MEGATRON = "arXiv:2104.04473, section 2.2"
_ZERO_BUBBLE = "arXiv:2401.10241"
_DUALPIPE = "arXiv:2412.19437, table 2"
_DUALPIPEV = "deepseek-ai/DualPipe, README.md"
_CHIMERA = "arXiv:2107.06925, table 2"


def _bubble_1f1b(t: Terms) -> Fraction:
    return (t.P - 1) * (t.F + t.B)


def _fills(t: Terms) -> bool:
    return t.M >= t.P


def _fills_twice(t: Terms) -> bool:
    return t.M >= 2 * t.P - 1


GPIPE = (
    _idle("(P-1)(F+B)", _MEGATRON, _bubble_1f1b),
    _activations("M", _MEGATRON, lambda t: t.M),
    _weights("1", _MEGATRON, lambda t: 1),
)
ONE_F_ONE_B = (
    _idle("(P-1)(F+B)", _DUALPIPE, _bubble_1f1b),
    _activations("P", _DUALPIPE, lambda t: t.P, "M >= P", _fills),
    _weights("1", _DUALPIPE, lambda t: 1),
)
INTERLEAVED = (
    _idle("(P-1)(F+B)", _MEGATRON, _bubble_1f1b, "M >= P or V = 1", lambda t: t.M >= t.P or t.V == 1),
    _activations(
        "VP+P-1",
        "arXiv:2205.05198",
        lambda t: t.V * t.P + t.P - 1,
        "P divides M, M >= 2P",
        lambda t: t.M % t.P == 0 and t.M >= 2 * t.P,
    ),
    _weights("V", _MEGATRON, lambda t: t.V),
)
ZB1P = (
    _idle(
        "(P-1)(F+B-2W)",
        _DUALPIPE,
        lambda t: (t.P - 1) * (t.F + t.B - 2 * t.W),
        "B = I + W, W <= F, W <= I, M >= P",
        lambda t: t.B == t.I + t.W and min(t.F, t.I) >= t.W and _fills(t),
    ),
    _activations("P", _DUALPIPE, lambda t: t.P, "M >= P", _fills),
    _weights("1", _DUALPIPE, lambda t: 1),
)
ZB2P = (
    _idle(
        "(P-1)(F+B-3W)",
        _ZERO_BUBBLE,
        lambda t: (t.P - 1) * (t.F + t.B - 3 * t.W),
        "B = I + W, F + I = 2W, W <= F, M >= 2P-1",
        lambda t: t.B == t.I + t.W and t.F + t.I == 2 * t.W and t.W <= t.F and _fills_twice(t),
        kind="span idle",
    ),
    _activations("2P-1", _ZERO_BUBBLE, lambda t: 2 * t.P - 1, "M >= 2P-1", _fills_twice),
    _weights("1", _ZERO_BUBBLE, lambda t: 1),
)
ZBV = (
    _idle(
        "0",
        _ZERO_BUBBLE,
        lambda t: 0,
        "F = I = W, M >= 2P-1",
        lambda t: t.F == t.I == t.W and _fills_twice(t),
        kind="span idle",
    ),
    _activations("2P", _ZERO_BUBBLE, lambda t: 2 * t.P, "M >= 2P-1", _fills_twice),
    _weights("2", _ZERO_BUBBLE, lambda t: 2),
)
CHIMERA = (
    _idle(
        "(P-2)B, from the bubble ratio (P-2)/(3M/2+P-2)",
        _CHIMERA,
        lambda t: (t.P - 2) * t.B,
        "P = 2, or M = P and F <= B",
        lambda t: t.P == 2 or (t.M == t.P and t.F <= t.B),
    ),
    _activations("P", _CHIMERA, lambda t: t.P),
    _weights("2", _CHIMERA, lambda t: 2),
)
DUALPIPE = (
    _dualpipe_idle("(P/2-1)(FB+B-3W)", _DUALPIPE, lambda t: t.P // 2, "P/2-1", "P <= 4"),
    _activations("P+1", _DUALPIPE, lambda t: t.P + 1),
    _weights("2", _DUALPIPE, lambda t: 2),
)
DUALPIPEV = (
    _dualpipe_idle("(PP/2-1)(FB+B-3W), PP = 2P", _DUALPIPEV, lambda t: t.P, "P-1", "P <= 2"),
    _activations("PP+1, PP = 2P", _DUALPIPEV, lambda t: 2 * t.P + 1),
    _weights("2", _DUALPIPEV, lambda t: 2),
)
