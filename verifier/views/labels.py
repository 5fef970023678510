"""What several views write: costs, shares, and round numbers along an axis."""

from __future__ import annotations

from fractions import Fraction

from verifier.costs import CostModel
from verifier.model import plain, shown


def costs_text(costs: CostModel) -> str:
    """
    The costs as ``--costs`` takes them, and of uneven stages what a pair takes as a share of its two parts.

    >>> costs_text(CostModel.of(F=1, FB="5/2"))
    'F=1,I=1,W=1,B=2,FB=5/2'
    >>> costs_text(CostModel.of(F=[1, 2], FB="21/6"))
    'F=[1,2],I=1,W=1,B=2,FB=7/2 (a pair takes 1 of its F + B)'
    """
    words = []
    for key, value in costs.as_written().items():
        share = costs.share_of_parts(key)
        words.append(
            f"{key}={_written(value)}" + (f" (a pair takes {shown(share)} of its {key[0]} + {key[1]})" if share else "")
        )
    return ",".join(words)


def _written(value: object) -> str:
    return f"[{','.join(map(_written, value))}]" if isinstance(value, list) else str(value)


def share_text(share: Fraction) -> str:
    """
    A share as a percentage for people, exact in brackets where it is a short fraction.

    >>> share_text(Fraction(1, 11)), share_text(Fraction(0))
    ('9.1% (1/11)', '0.0%')
    """
    return f"{float(share):.1%}" + (f" ({plain(share)})" if 1 < share.denominator < 1000 else "")


def terms_text(costs: CostModel, per: str) -> str:
    """
    Under which terms the numbers of several schedules are comparable.

    >>> print(terms_text(CostModel.of(), "stage"))
    Idle, activations and weights of the worst rank, overlapped pairs of all ranks.
    Costs F=1,I=1,W=1,B=2,FB=3, activations and weights are of each schedule's own stages.
    """
    units = {
        "model": " and activations are of a rank's share of one model, however many stages that is; "
        "weights are shares of the model",
        "stage": ", activations and weights are of each schedule's own stages",
    }
    return (
        "Idle, activations and weights of the worst rank, overlapped pairs of all ranks.\n"
        f"Costs {costs_text(costs)}{units[per]}."
    )


def round_step(least: Fraction) -> Fraction:
    """
    How far apart the numbers of an axis stand: the smallest of 1, 2 and 5 times a power of ten that is not below ``least``.

    >>> [str(round_step(Fraction(number))) for number in ("3", "0.3", "12", "0.011")]
    ['5', '1/2', '20', '1/50']
    """
    power = Fraction(1)
    while power >= least > 0:
        power /= 10
    while True:
        for factor in (1, 2, 5):
            if power * factor >= least:
                return power * factor
        power *= 10
