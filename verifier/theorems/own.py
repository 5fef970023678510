"""
Theorems about a person's own loops: from the loop program alone, or with what is claimed of it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from math import gcd, lcm, prod

from verifier.affine import Condition
from verifier.costs import CostModel
from verifier.formats.loop_text import OwnLoops
from verifier.model import ScheduleError
from verifier.theorems import demands
from verifier.theorems.claiming import domain_of, overlaps, settings_of, theory_of
from verifier.theorems.conditions import Formula, equal
from verifier.theorems.cones import COSTS
from verifier.theorems.finding import NotFoundError, analysis_of
from verifier.theorems.ledger import Ledger
from verifier.theorems.proof import REFUTED, UNKNOWN, Proof
from verifier.theorems.statements import first_difference, first_hang, prove_theory, texts
from verifier.theorems.theories import Theory

KINDS = ("legal", "peak-activations", "makespan", "idle", "independence")
"""What is asked of loops."""
MAX_CLASSES, MAX_CASES = 60, 4096
"""Of blocks, and of ways to be in none of the cases of trip counts: what is proved within minutes."""


def prove_own(own: OwnLoops, kind: str, costs: CostModel | None = None) -> Proof:
    """
    Prove a statement about loops: what they claim, or where they claim nothing, what is seen at a few sizes.

    Parameters
    ----------
    kind
        One of :data:`KINDS`.
    costs
        Speak of multiples of these costs only.

    Returns
    -------
    Refuted where the loops are not legal or do not do what they claim; unknown where no claim is found that fits.

    Raises
    ------
    ScheduleError
        If no costs or too few sizes fulfil the conditions, the loops fall into too many cases, or the costs have hops, stages
        that differ, or a B apart from I + W.

    Examples
    --------
    >>> from verifier.specs import read_spec
    >>> proof = prove_own(read_spec("specs/loops-early-1f1b.toml").loops, "makespan")
    >>> proof.status, proof.statement
    ('proved', 'the makespan of early 1f1b is exactly (M+P-1)(F+I+W)')
    """
    began = time.perf_counter()
    more = _ratio(costs, overlaps(own.program)) if costs else ()
    return replace(_proved(own, kind, (*own.costs, *more)), theorem=kind, seconds=time.perf_counter() - began)


def _ratio(costs: CostModel, pairs: bool) -> tuple[Condition, ...]:
    """That costs are multiples of given ones."""
    prices = {name: costs.prices[kind] for name, kind in (("F", "F"), ("I", "I"), ("W", "W"), ("B", "B"), ("FB", "F&B"))}
    known = {name: price for name, price in prices.items() if isinstance(price, Fraction)}
    if len(known) < len(prices) or known["B"] != known["I"] + known["W"]:
        raise ScheduleError("costs: the theorems take all stages alike and B = I + W; expected one number each")
    if costs.hop:
        raise ScheduleError("costs.hop: the theorems know no hop time; expected none here, or bubble-constant")
    counted = [(cost, known[str(cost)]) for cost in COSTS if pairs or str(cost) != "FB"]
    scale = lcm(*(price.denominator for _, price in counted))
    whole = [(cost, int(scale * price)) for cost, price in counted]
    first, most = max(whole, key=lambda each: each[1])
    common = [gcd(most, number) for _, number in whole]
    return tuple(
        condition
        for (cost, number), factor in zip(whole, common, strict=True)
        for condition in equal(most // factor * cost, number // factor * first)
        if cost != first
    )


def _proved(own: OwnLoops, kind: str, costs: tuple[Condition, ...]) -> Proof:
    bare = _bare(own)
    book = Ledger()
    demands.legal(bare, book)
    wrong = list(map(str, book.failures)) or list(filter(None, [first_hang(bare)]))

    def verdict(status: str, *witness: str) -> Proof:
        held = book.conditions - len(book.failures)
        return Proof(kind, f"{kind} of {bare.name}", bare.said["domain"], status, book.conditions, held, 0.0, witness)

    if wrong:
        return verdict(REFUTED, *wrong)
    try:
        proof = _of_theory(_theory(own, costs), kind, bool(own.makespan))
        if proof.status != UNKNOWN:
            return proof
        # Paths through several ranks often have no place on one.
        return _of_theory(_theory(own, costs, one_rank_apart=True), kind, bool(own.makespan))
    except NotFoundError as problem:
        if kind == "legal":
            return prove_theory(bare, kind, *texts(bare)[kind], fresh=True)
        return verdict(UNKNOWN, str(problem))


def _bare(own: OwnLoops) -> Theory:
    """A theory without claims but for legality."""
    program = own.program
    said = dict.fromkeys(("costs", "makespan", "idle", "peak"), "")
    said["domain"] = domain_of(program, own.placement == "bidirectional")
    bare = Theory(program.name, program, settings_of(program), (), (), (), (), program.microbatches, (), said, "its loops")
    for setting in bare.settings:
        analysis = analysis_of(program, setting.domain)
        cases, kinds = len(analysis.regimes), len(analysis.classes)
        if kinds > MAX_CLASSES or prod(len(regime.where) for regime in analysis.regimes) > MAX_CASES:
            where = f" where {', '.join(map(str, setting.domain))}" if setting.domain else ""
            raise ScheduleError(
                f"{program.name}: {cases} cases of min and max with {kinds} kinds of blocks{where}, too many to prove; "
                f'expected fewer sizes, such as where = ["M >= 2P"]'
            )
    return bare


def _theory(own: OwnLoops, costs: tuple[Condition, ...], *, one_rank_apart: bool = False) -> Theory:
    """What is claimed, or seen."""
    return theory_of(
        own.program,
        costs=costs,
        makespan=tuple(Formula(*counts) for counts in own.makespan),
        peak=own.peak,
        folded=own.placement == "bidirectional",
        one_rank_apart=one_rank_apart,
    )


def _of_theory(theory: Theory, kind: str, claimed: bool) -> Proof:
    """
    A makespan that was only seen is no claim that could be refuted.

    Raises
    ------
    NotFoundError
        If what was seen is wrong at a small size.
    """
    if kind in ("makespan", "idle", "independence") and not claimed and (other := first_difference(theory)):
        raise NotFoundError(f"it looked like {theory.said['makespan']}, but at {other}; fewer sizes may help, such as M >= 2P")
    return prove_theory(theory, kind, *texts(theory)[kind], fresh=True)
