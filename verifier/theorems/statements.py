"""
The theorems by name: what each says, where, who published it, and its proof.

About every family with a theory (``theories``): ``-legal``, ``-peak-activations``, ``-makespan``, ``-idle`` and
``-independence``; about published bubble formulas ``published-...-bubble``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from verifier.theorems import demands, published
from verifier.theorems.claiming import without_costs
from verifier.theorems.demands import DEMANDS
from verifier.theorems.discovery import Instance
from verifier.theorems.finding import NotFoundError, analysis_of
from verifier.theorems.ledger import Ledger
from verifier.theorems.proof import PROVED, REFUTED, UNKNOWN, Proof
from verifier.theorems.solving import UndecidedError
from verifier.theorems.theories import ANY_COSTS, THEORIES, Theory, total_of


@dataclass(frozen=True)
class Theorem:
    """
    A statement that can be proved by its name.

    Attributes
    ----------
    name, statement, domain, source
        For people.
    prove
        ``prove(fresh)`` gives the proof; ``fresh`` finds timelines and paths anew.
    theory, kind
        What its evidence is about.
    """

    name: str
    statement: str
    domain: str
    source: str
    prove: Callable[[bool], Proof]
    theory: Theory
    kind: str


def prove(name: str, *, fresh: bool = False) -> Proof:
    """
    Prove a theorem.

    Parameters
    ----------
    name
        A key of :data:`THEOREMS`.
    fresh
        Find timelines and paths anew, instead of verifying those that were found before.

    Raises
    ------
    KeyError
        If there is no such theorem.

    Examples
    --------
    >>> proof = prove("1f1b-makespan")
    >>> proof.status, proof.statement
    ('proved', 'the makespan of 1f1b is exactly (M+P-1)(F+B)')
    """
    began = time.perf_counter()
    found = THEOREMS[name].prove(fresh)
    return replace(found, seconds=time.perf_counter() - began)


# ---------------------------------------- theorems about families


def texts(theory: Theory) -> dict[str, tuple[str, str]]:
    """
    Statement and domain of all that is claimed of a family, by kind.

    Examples
    --------
    >>> texts(THEORIES[0])["makespan"][0]
    'the makespan of gpipe is exactly (M+P-1)(F+B)'
    """
    said, name = theory.said, theory.name
    sizes, both = said["domain"], f"{said['domain']}; {said['costs']}"
    every = "every micro-batch runs F, I and W once on every stage in an order without deadlock"
    found = {
        "legal": (every, sizes),
        "peak-activations": (f"the most activations that a rank holds are exactly {said['peak']}", sizes),
        "makespan": (f"the makespan of {name} is exactly {said['makespan']}", both),
        "idle": (f"the idle time of every rank is exactly {said['idle']}", both),
        "independence": (f"the idle time of every rank is the same for all M: {said['idle']}", both),
    }
    if "ratio" in said:
        found["bubble-ratio"] = (
            f"the bubble ratio is exactly {said['ratio']}: it falls with M while the idle time stays",
            f"{both}, not all costs 0",
        )
    return found


def _of_theory(theory: Theory) -> Iterator[Theorem]:
    for kind, (statement, domain) in texts(theory).items():
        yield Theorem(
            f"{theory.name}-{kind}", statement, domain, theory.source, _prover(theory, kind, statement, domain), theory, kind
        )


def _prover(theory: Theory, kind: str, statement: str, domain: str) -> Callable[[bool], Proof]:
    def run(fresh: bool) -> Proof:
        return prove_theory(theory, kind, statement, domain, fresh=fresh)

    return run


def prove_theory(
    theory: Theory, kind: str, statement: str = "", domain: str = "", *, fresh: bool = False, runs: Ledger | None = None
) -> Proof:
    """
    Prove what a theory claims, also one that is not listed: a changed one, or one's own.

    Parameters
    ----------
    kind
        ``legal``, ``peak-activations``, ``makespan``, ``idle``, ``independence`` or ``bubble-ratio``.
    runs
        Conditions that were met and show that no rank ever hangs; without it that is proved too.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from verifier.theorems.theories import THEORIES
    >>> gpipe = next(theory for theory in THEORIES if theory.name == "gpipe")
    >>> proof = prove_theory(replace(gpipe, peak=gpipe.peak - 1), "peak-activations")
    >>> proof.status, proof.witness[0].split(":")[0]
    ('refuted', 'peak at 1')
    """
    ledger = Ledger(fresh)
    of_peaks = kind == "peak-activations"

    def verdict(status: str, *witness: str) -> Proof:
        held = ledger.conditions - len(ledger.failures)
        name, numbers = f"{theory.name}-{kind}", {"met": ledger.met, "solver": ledger.solver}
        return Proof(name, statement, domain, status, ledger.conditions, held, 0.0, witness, numbers)

    try:
        demands.legal(theory, ledger)
        if of_peaks:
            demands.peaks(theory, ledger)
        if ledger.failures:
            # So far conditions are exact: a point at which one fails is a size at which the loops do something else.
            found = verdict(REFUTED, *map(str, ledger.failures))
            return replace(found, points=tuple(failure.point for failure in ledger.failures))
        if wrong := (first_hang if of_peaks or kind == "legal" else first_difference)(theory):
            return verdict(REFUTED, wrong)
        _the_rest(theory, kind, ledger, runs)
    except NotFoundError as problem:
        return verdict(UNKNOWN, str(problem))
    except UndecidedError as problem:
        return verdict(UNKNOWN, f"the solver gave up on {problem}")
    if ledger.failures:
        return verdict(UNKNOWN, *map(str, ledger.failures))
    if kind == "independence" and (part := demands.speaks_of_microbatches(theory)):
        return verdict(REFUTED, f"the idle time of {part} depends on the number of micro-batches")
    return verdict(PROVED)


def _the_rest(theory: Theory, kind: str, ledger: Ledger, runs: Ledger | None) -> None:
    """Conditions that rest on guesses."""
    if runs is not None:
        ledger.take(runs)
    elif demands.no_deadlock in DEMANDS[kind] or not demands.every_block_takes_time(theory):
        # The sum of the timelines for a makespan is one of these, if every block takes time in it.
        without_deadlock(theory, ledger)
    for demand in DEMANDS[kind]:
        if demand not in (demands.legal, demands.no_deadlock, demands.peaks):
            demand(theory, ledger)


MAY_HANG = "not shown that ranks never hang: no start times that are affine in sizes, rank and loop index were found"


def without_deadlock(theory: Theory, ledger: Ledger) -> None:
    """
    Enter the conditions of a timeline: one that ends by the claimed makespan, or where there is none, one that ends at all.

    Raises
    ------
    NotFoundError
        If there is none of either kind.

    Examples
    --------
    >>> ledger = Ledger()
    >>> without_deadlock(THEORIES[0], ledger)
    >>> ledger.conditions, ledger.failures
    (36, [])
    """
    for attempt in (*((theory,) if theory.regions else ()), without_costs(theory)):
        own = Ledger(ledger.fresh or attempt is not theory)
        try:
            demands.no_deadlock(attempt, own)
        except NotFoundError:
            continue
        if not own.failures:
            ledger.take(own)
            return
    raise NotFoundError(MAY_HANG)


# ---------------------------------------- published formulas


def _of_published(theory: Theory) -> Theorem:
    claim = published.idle_claim(theory.name)
    statement = f"every rank of {theory.name} idles exactly {claim.formula}, as published"
    domain = f"{theory.said['domain']}; positive costs, alike on all stages, B = I + W, no hop time"
    domain += ", FB >= max(F, B)" if "dualpipe" in theory.name else ""

    def run(fresh: bool) -> Proof:
        corrected = prove_theory(theory, "idle", fresh=fresh)
        exact = published.is_the_idle_time(theory) and theory.costs == ANY_COSTS
        found = [] if exact else published.both_sides(theory.name)
        numbers: dict[str, object] = {
            "published": claim.formula,
            "exact_where": claim.domain,
            "corrected": theory.said["idle"],
            "corrected_where": theory.said["costs"],
            "corrected_status": corrected.status,
        }
        for side, sign in (("above", 1), ("below", -1)):
            numbers[side] = next((str(each) for each in found if (each.published - each.true) * sign > 0), None)
        if found:
            status, witness = REFUTED, tuple(map(str, found[:1]))
        elif exact:
            status, witness = corrected.status, corrected.witness
        else:
            status, witness = UNKNOWN, ("no counterexample was found",)
        return replace(
            corrected,
            theorem=name,
            statement=statement,
            domain=domain,
            status=status,
            witness=witness,
            numbers=numbers,
            evidence={"counterexample": found[0].as_json() if found else None},
        )

    name = f"published-{theory.name}-bubble"
    return Theorem(name, statement, domain, claim.source, run, theory, "idle")


HANG = "the ranks hang"


def first_difference(theory: Theory) -> str | None:
    """
    A size and costs at which running the loops gives another makespan than claimed, as a sentence; None where none is seen.

    Looked for before anything is proved: small sizes, all rays of all regions, and their sums.
    """
    for setting in theory.settings:
        analysis = analysis_of(theory.program, setting.domain)
        for sizes in setting.small:
            if sum(sizes.values()) > 20:
                continue
            instance = Instance(analysis, sizes)
            if wrong := _difference(theory, instance):
                return f"{_written(sizes)}: {wrong}" if wrong == HANG else f"{_written(sizes)} {wrong}"
    return None


def first_hang(theory: Theory) -> str | None:
    """A small size at which the ranks hang, as a sentence; None where none is seen."""
    for setting in theory.settings:
        analysis = analysis_of(theory.program, setting.domain)
        for sizes in setting.small:
            if Instance(analysis, sizes).ends((1, 1, 1, 2)) is None:
                return f"{_written(sizes)}: {HANG}"
    return None


def _difference(theory: Theory, instance: Instance) -> str | None:
    """Costs at which one size goes otherwise than claimed."""
    for region in theory.regions:
        for costs in (*region.rays, total_of(region.rays)):
            found = instance.ends(costs)
            if found is None:
                return HANG
            claimed = max(formula.along(costs).value(instance.sizes) for formula in theory.makespan)
            if (true := max(found[0].values())) != claimed:
                return f"with F, I, W, FB = {', '.join(map(str, costs))}: the makespan is {true}, not {claimed}"
    return None


def _written(sizes: object) -> str:
    assert isinstance(sizes, dict), "written by theories"
    return ", ".join(f"{name}={value}" for name, value in sizes.items())


_PUBLISHED = ("gpipe", "1f1b", "zb1p", "dualpipe", "dualpipev")
THEOREMS: dict[str, Theorem] = {theorem.name: theorem for theory in THEORIES for theorem in _of_theory(theory)}
THEOREMS |= {theorem.name: theorem for theory in THEORIES if theory.name in _PUBLISHED for theorem in (_of_published(theory),)}
"""Every theorem by name."""
