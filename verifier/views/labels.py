"""What several views write: costs, shares, and round numbers along an axis."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from verifier.costs import CostModel
from verifier.model import Problem, plain, shown


def costs_text(costs: CostModel, pairs: bool = True) -> str:
    """
    The costs as ``--costs`` takes them; of a pair on uneven stages, what it takes of its own two parts where that is a share.

    Parameters
    ----------
    pairs
        Whether there are any; else nothing needs to be said of them.

    Examples
    --------
    >>> costs_text(CostModel.of(F=1, FB="5/2"))
    'F=1,I=1,W=1,B=2,FB=5/2'
    >>> costs_text(CostModel.of(F=[1, 2], FB="21/6"))
    'F=[1,2],I=1,W=1,B=2,FB=F+B'
    >>> costs_text(CostModel.of(F=[1, 2], FB=3))
    'F=[1,2],I=1,W=1,B=2,FB=3 (each pair 6/7 of its own F + B)'
    """
    words = []
    for key, value in costs.as_written().items():
        share = costs.share_of_parts(key) if pairs else None
        if share == 1:
            words.append(f"{key}={key[0]}+{key[1]}")
        else:
            remark = f" (each pair {shown(share)} of its own {key[0]} + {key[1]})" if share else ""
            words.append(f"{key}={_written(value)}{remark}")
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


UNEQUAL = "not all have the same ranks and micro-batches, so the terms are not equal"


def are_unequal(problems: Iterable[Problem]) -> bool:
    """
    Whether :data:`UNEQUAL` has to be said of several problems.

    >>> are_unequal([Problem(((0, 1),), (4,)), Problem(((0, 1), (1, 0)), (2, 2))])
    False
    """
    return len({(problem.ranks, problem.total_microbatches) for problem in problems}) > 1


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
