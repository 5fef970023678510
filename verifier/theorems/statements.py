"""
The theorems by name: what each says, where, who published it, and its proof.

About every family with a theory (``theories``): ``-legal``, ``-peak-activations``, ``-makespan``, ``-idle`` and
``-independence``; about published bubble formulas ``published-...-bubble``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from verifier.theorems import makespan
from verifier.theorems.conditions import Formula
from verifier.theorems.discovery import Instance
from verifier.theorems.ledger import Ledger
from verifier.theorems.proof import PROVED, REFUTED, UNKNOWN, Proof
from verifier.theorems.solving import UndecidedError
from verifier.theorems.theories import THEORIES, Theory, total_of


@dataclass(frozen=True)
class Theorem:
    """
    A statement that can be proved by its name.

    Attributes
    ----------
    name, statement, domain, source
        For people.
    prove
        ``prove(keep_scripts, fresh)`` gives the proof; the first keeps every condition as SMT-LIB 2, the second finds timelines
        and paths anew.
    """

    name: str
    statement: str
    domain: str
    source: str
    prove: Callable[[bool, bool], Proof]


def prove(name: str, *, keep_scripts: bool = False, fresh: bool = False) -> Proof:
    """
    Prove a theorem.

    Parameters
    ----------
    name
        A key of :data:`THEOREMS`.
    keep_scripts
        Keep every condition as SMT-LIB 2 in the evidence.
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
    found = THEOREMS[name].prove(keep_scripts, fresh)
    return Proof(**{**vars(found), "seconds": time.perf_counter() - began})


# ---------------------------------------- theorems about families


def _of_theory(theory: Theory) -> Iterator[Theorem]:
    said, name = theory.said, theory.name
    sizes, both = said["domain"], f"{said['domain']}; {said['costs']}"
    every = "every micro-batch runs F, I and W once on every stage in an order without deadlock"
    texts = {
        "legal": (every, sizes),
        "peak-activations": (f"the most activations that a rank holds are exactly {said['peak']}", sizes),
        "makespan": (f"the makespan of {name} is exactly {said['makespan']}", both),
        "idle": (f"the idle time of every rank is exactly {said['idle']}", both),
        "independence": (f"the idle time of every rank is the same for all M: {said['idle']}", both),
    }
    if "ratio" in said:
        texts["bubble-ratio"] = (
            f"the bubble ratio is exactly {said['ratio']}: it falls with M while the idle time stays",
            both,
        )
    for kind, (statement, domain) in texts.items():
        yield Theorem(f"{name}-{kind}", statement, domain, theory.source, _prover(theory, kind, statement, domain))


def _prover(theory: Theory, kind: str, statement: str, domain: str) -> Callable[[bool, bool], Proof]:
    def run(keep_scripts: bool, fresh: bool) -> Proof:
        return prove_theory(theory, kind, statement, domain, keep_scripts=keep_scripts, fresh=fresh)

    return run


def prove_theory(
    theory: Theory, kind: str, statement: str = "", domain: str = "", *, keep_scripts: bool = False, fresh: bool = False
) -> Proof:
    """
    Prove what a theory claims, also one that is not listed: a changed one, or one's own.

    Parameters
    ----------
    kind
        ``legal``, ``peak-activations``, ``makespan``, ``idle``, ``independence`` or ``bubble-ratio``.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from verifier.theorems.theories import THEORIES
    >>> gpipe = next(theory for theory in THEORIES if theory.name == "gpipe")
    >>> proof = prove_theory(replace(gpipe, peak=gpipe.peak - 1), "peak-activations")
    >>> proof.status, proof.witness[0].split(":")[0]
    ('refuted', 'peak at 1')
    """
    ledger = Ledger(keep_scripts)
    name = f"{theory.name}-{kind}"

    def verdict(status: str, *witness: str) -> Proof:
        held = ledger.conditions - len(ledger.failures)
        numbers: dict[str, object] = {"met": ledger.met}
        return Proof(name, statement, domain, status, ledger.conditions, held, 0.0, witness, numbers, ledger.evidence(name))

    try:
        makespan.legal(theory, ledger)
        if kind == "peak-activations":
            makespan.peaks(theory, ledger)
        if ledger.failures:
            # These conditions are exact: a point at which one fails is a size at which the loops do something else.
            return verdict(REFUTED, *map(str, ledger.failures))
        if kind == "peak-activations":
            return verdict(PROVED)
        if wrong := first_difference(theory):
            return verdict(REFUTED, wrong)
        (makespan.no_deadlock if kind == "legal" else makespan.makespan)(theory, ledger, fresh=fresh)
        if kind in ("idle", "independence", "bubble-ratio"):
            makespan.busy_times(theory, ledger)
            if speaks := [
                part for part, fs in makespan.idle_formulas(theory).items() if any(map(_of_microbatches(theory), fs))
            ]:
                return verdict(REFUTED, f"the idle time of {speaks[0]} depends on the number of micro-batches")
    except makespan.NotFoundError as problem:
        return verdict(UNKNOWN, str(problem))
    except UndecidedError as problem:
        return verdict(UNKNOWN, f"the solver gave up on {problem}")
    if ledger.failures:
        return verdict(UNKNOWN, *map(str, ledger.failures))
    return verdict(PROVED)


def _of_microbatches(theory: Theory) -> Callable[[Formula], bool]:
    symbols = theory.program.microbatches.symbols
    return lambda formula: any(part.symbols & symbols for part in formula.parts)


def first_difference(theory: Theory) -> str | None:
    """
    A size and costs at which running the loops gives another makespan than claimed, as a sentence; None where none is seen.

    Looked for before anything is proved: small sizes, all rays of all regions, and their sums.
    """
    for setting in theory.settings:
        analysis = makespan.analysis_of(theory.program, setting.domain)
        for sizes in setting.small:
            if sum(sizes.values()) > 20:
                continue
            instance = Instance(analysis, sizes)
            if wrong := _difference(theory, instance):
                return f"{_written(sizes)} {wrong}"
    return None


def _difference(theory: Theory, instance: Instance) -> str | None:
    """Costs at which one size goes otherwise than claimed."""
    for region in theory.regions:
        for costs in (*region.rays, total_of(region.rays)):
            found = instance.ends(costs)
            if found is None:
                return "the ranks hang"
            claimed = max(formula.along(costs).value(instance.sizes) for formula in theory.makespan)
            if (true := max(found[0].values())) != claimed:
                return f"with F, I, W, FB = {', '.join(map(str, costs))}: the makespan is {true}, not {claimed}"
    return None


def _written(sizes: object) -> str:
    assert isinstance(sizes, dict), "written by theories"
    return ", ".join(f"{name}={value}" for name, value in sizes.items())


THEOREMS: dict[str, Theorem] = {theorem.name: theorem for theory in THEORIES for theorem in _of_theory(theory)}
"""Every theorem by name."""
