"""
Theorems about a person's own loops: from the loop program alone, or with what is claimed of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import gcd, lcm, prod

from verifier.affine import Condition
from verifier.costs import CostModel
from verifier.formats.loop_text import OwnLoops
from verifier.model import ScheduleError
from verifier.theorems import demands
from verifier.theorems.claiming import in_words, overlaps, peak_in_words, theory_of
from verifier.theorems.conditions import Formula, equal
from verifier.theorems.cones import COSTS
from verifier.theorems.examples import least_illegal, least_other_peak, other_peak, plainly
from verifier.theorems.finding import NotFoundError, analysis_of
from verifier.theorems.ledger import Ledger
from verifier.theorems.proof import PROVED, REFUTED, UNKNOWN, Proof
from verifier.theorems.solving import UndecidedError
from verifier.theorems.statements import MAY_HANG, first_difference, first_hang, prove_theory, texts, without_deadlock
from verifier.theorems.theories import Theory

KINDS = ("legal", "peak-activations", "makespan", "idle", "independence")
"""What is asked of loops."""
MAX_CLASSES, MAX_CASES = 60, 4096
"""Of blocks, and of ways to be in none of the cases of trip counts: what is proved within minutes."""


Watch = Callable[[str], None]
"""Is told what is being done."""


def _unwatched(_: str) -> None:
    """Nobody is told."""


def prove_own(own: OwnLoops, kind: str, costs: CostModel | None = None, watch: Watch = _unwatched) -> Proof:
    """
    Prove a statement about loops: what they claim, or where they claim nothing, what is seen at a few sizes.

    Parameters
    ----------
    kind
        One of :data:`KINDS`.
    costs
        Speak of multiples of these costs only.
    watch
        Is told what is being done.

    Returns
    -------
    Refuted where the loops are not legal or do not do what they claim. Every kind rests on the proof that no rank hangs at any
    size; unknown where there is none, or no claim is found that fits.

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
    return replace(_proved(own, kind, (*own.costs, *more), watch), theorem=kind, seconds=time.perf_counter() - began)


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
    if not most:
        raise ScheduleError("costs: all are 0; expected at least one above 0")
    common = [gcd(most, number) for _, number in whole]
    return tuple(
        condition
        for (cost, number), factor in zip(whole, common, strict=True)
        for condition in equal(most // factor * cost, number // factor * first)
        if cost != first
    )


def _proved(own: OwnLoops, kind: str, costs: tuple[Condition, ...], watch: Watch) -> Proof:
    bare = _bare(own)
    book = Ledger()
    statement, domain = _texts(own, bare, kind)

    def verdict(status: str, *witness: str) -> Proof:
        held = book.conditions - len(book.failures)
        return Proof(kind, statement, domain, status, book.conditions, held, 0.0, witness, {"met": book.met})

    watch("running the loops at small sizes")
    if wrong := least_illegal(own) or (least_other_peak(own) if kind == "peak-activations" else None):
        return verdict(REFUTED, wrong)
    watch("every micro-batch runs once on every stage")
    try:
        demands.legal(bare, book)
        if book.failures:
            return verdict(REFUTED, *map(plainly, book.failures))
        if hang := first_hang(bare):
            return verdict(REFUTED, hang)
        watch("no rank ever hangs")
        runs = _never_hangs(own, costs)
        if runs is None:
            return verdict(UNKNOWN, f"{MAY_HANG}; {_hint(bare)}")
        if kind == "legal":
            book.take(runs)
            return replace(verdict(PROVED), numbers={"met": book.met, "solver": book.solver})
        watch(f"{statement} (guessing at a few sizes, then proving it for all)")
        return _first_that_is_known(own, kind, costs, runs)
    except NotFoundError as problem:
        return verdict(UNKNOWN, str(problem))
    except UndecidedError as problem:
        return verdict(UNKNOWN, f"the solver gave up on {problem}")


APART = (("few",), ("few", "one"), ())
"""Sizes that stand apart, in turn: paths through several ranks often have no place on one, and few sizes need no parts."""


def _first_that_is_known(own: OwnLoops, kind: str, costs: tuple[Condition, ...], runs: Ledger) -> Proof:
    """
    Proved or refuted with some sizes apart; else what came of the first try.

    Raises
    ------
    NotFoundError
        If that was nothing.
    """
    first: Proof | NotFoundError | None = None
    for apart in APART[:1] if kind == "peak-activations" else APART:
        try:
            proof = _of_theory(_theory(own, kind, costs, apart), kind, own, runs)
        except NotFoundError as problem:
            first = first or problem
            continue
        if proof.status != UNKNOWN:
            return proof
        first = first or proof
    if isinstance(first, Proof):
        return first
    assert first is not None, "something was tried"
    raise first


def _texts(own: OwnLoops, bare: Theory, kind: str) -> tuple[str, str]:
    """Statement and domain before anything is seen: what is claimed, or what is asked."""
    said = {
        "makespan": f"exactly {in_words(own.makespan)}" if own.makespan else "one formula for all these sizes",
        "peak-activations": "exactly " + peak_in_words(own.program, own.peak) if own.peak is not None else "one formula",
    }
    statement = {
        "makespan": f"the makespan of {bare.name} is {said['makespan']}",
        "peak-activations": f"the most activations that a rank holds are {said['peak-activations']}",
        "idle": "the idle time of every rank is one formula for all these sizes",
        "independence": "the idle time of every rank is the same for all M",
    }
    return statement.get(kind, texts(bare)["legal"][0]), bare.said["domain"]


def _bare(own: OwnLoops) -> Theory:
    """A theory without claims but for legality."""
    bare = theory_of(own.program, about=(), folded=own.placement == "bidirectional")
    for setting in bare.settings:
        cases, kinds, products = _cases(bare, setting.domain)
        if kinds > MAX_CLASSES or products > MAX_CASES:
            where = f" where {', '.join(map(str, setting.domain))}" if setting.domain else ""
            raise ScheduleError(
                f"{bare.name}: {cases} cases of min and max with {kinds} kinds of blocks{where}, too many to prove; "
                f'expected fewer sizes, such as where = ["M >= 2P"]'
            )
    return bare


def _cases(theory: Theory, domain: tuple[Condition, ...]) -> tuple[int, int, int]:
    """How many cases of min and max there are, kinds of blocks, and ways to be in none of the cases."""
    analysis = analysis_of(theory.program, domain)
    regimes = analysis.regimes
    return len(regimes), len(analysis.classes), prod(len(regime.where) for regime in regimes)


def _hint(bare: Theory) -> str:
    """What to change, as far as the loops tell."""
    cases = max(_cases(bare, setting.domain)[0] for setting in bare.settings)
    if cases > 1:
        return f'min, max and conditions make {cases} cases: fewer sizes may help, such as where = ["M >= 2P"]'
    return 'fewer sizes may help, such as where = ["M >= 2P"]'


def _never_hangs(own: OwnLoops, costs: tuple[Condition, ...]) -> Ledger | None:
    """
    Conditions that hold and show that no blocks ever wait in a circle; None where none are found.

    With sizes of one rank apart the other sizes may have simpler timelines; and one that ends by the makespan may be found
    where a later one is not.
    """
    for about in ((), ("makespan",)):
        for apart in APART:
            ledger = Ledger(fresh=True)
            try:
                theory = _theory(own, "", costs, apart, about=about)
                demands.legal(theory, ledger)
                without_deadlock(theory, ledger)
            except (NotFoundError, UndecidedError):
                continue
            if not ledger.failures:
                return ledger
    return None


_NEEDS = {"peak-activations": ("peak",), "makespan": ("makespan",)}


def _theory(
    own: OwnLoops,
    kind: str,
    costs: tuple[Condition, ...],
    apart: tuple[str, ...],
    *,
    about: tuple[str, ...] | None = None,
) -> Theory:
    """What is claimed, or seen."""
    return theory_of(
        own.program,
        costs=costs,
        makespan=tuple(Formula(*counts) for counts in own.makespan) if about is None else (),
        peak=own.peak,
        folded=own.placement == "bidirectional",
        apart=apart,
        about=_NEEDS.get(kind, ("makespan", "busy")) if about is None else about,
    )


def _of_theory(theory: Theory, kind: str, own: OwnLoops, runs: Ledger) -> Proof:
    """
    What was only seen is no claim that could be refuted.

    Raises
    ------
    NotFoundError
        If what was seen is wrong at some size.
    """
    help_ = _hint(theory)
    if kind == "peak-activations":
        proof = prove_theory(theory, kind, *texts(theory)[kind], fresh=True, runs=runs)
        if proof.status != REFUTED:
            return proof
        wrong = [other_peak(own, theory.peak, failure) for failure in proof.points]
        if own.peak is not None:
            return replace(proof, witness=tuple(filter(None, wrong)) or proof.witness)
        raise NotFoundError(f"it looked like {theory.said['peak']}, but {next(filter(None, wrong), proof.witness[0])}; {help_}")
    if not own.makespan and (other := first_difference(theory)):
        raise NotFoundError(f"it looked like {theory.said['makespan']}, but at {other}; {help_}")
    return prove_theory(theory, kind, *texts(theory)[kind], fresh=True, runs=runs)
