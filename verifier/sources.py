"""
What a SOURCE on the command line stands for: a family with its sizes, a spec, or a file; and what it is judged under.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from verifier.costs import CostModel
from verifier.formats import STDIN
from verifier.formats.source import Source, one_line
from verifier.formats.torch_csv import COMPUTE_ONLY, WITH_COMMUNICATION
from verifier.messages import reduces
from verifier.model import Block, Limits, Problem, Schedule, ScheduleError
from verifier.simulate import simulate
from verifier.specs import Spec, limits_of, limits_over, read_costs, read_spec, sized
from verifier.verify import Report, verify


def open_source(
    text: str,
    *,
    ranks: int | None = None,
    microbatches: int | None = None,
    stages_per_rank: int | None = None,
    rule: str | None = None,
    dialect: str | None = None,
    copies: str | None = None,
) -> Source:
    """
    Open what a person named: a family, a spec (``.toml``), or a file of any readable format.

    A family's name has precedence; ``./dualpipe`` is a file of that name, and ``-`` is standard input.

    Parameters
    ----------
    ranks, stages_per_rank, rule
        Of a family; ranks also of a spec with loops.
    microbatches
        Of a family or loops, or how many a file should have.
    dialect, copies
        Of a file.

    Raises
    ------
    ScheduleError
        If there is no such thing, it cannot be read, or an option does not go with it.

    Examples
    --------
    >>> open_source("dualpipe", ranks=8, microbatches=20).schedule.name
    'dualpipe P=8 M=20'
    >>> open_source("specs/chimera-p4-m4.toml").claims["makespan"]
    16
    """
    if is_family(text):
        _refuse(text, "a family", dialect=dialect, copies=copies)
        return Source(_family(text, ranks, microbatches, stages_per_rank, rule), "family")
    if text.endswith(".toml"):
        _refuse(text, "a spec", stages_per_rank=stages_per_rank, rule=rule, dialect=dialect, copies=copies)
        spec = read_spec(text)
        if spec.loops is None:
            _refuse(text, "a spec", P=ranks, M=microbatches)
        elif ranks is not None or microbatches is not None or spec.source is None:
            spec = sized(spec, ranks, microbatches)
        return _of_spec(spec)
    from verifier.formats import load

    _refuse(text, "a file", P=ranks, stages_per_rank=stages_per_rank, rule=rule)
    return load(text, microbatches=microbatches, dialect=dialect or "modern", copies=int(copies or 1))


def is_family(text: str) -> bool:
    """
    Whether a SOURCE names a family, perhaps one that does not exist, rather than a file or standard input.

    >>> is_family("dualpipe"), is_family("ZB-H1"), is_family("./dualpipe"), is_family("order.csv")
    (True, True, False, False)
    """
    from verifier.families import FAMILIES

    named = text != STDIN and re.fullmatch(r"[\w-]+", text) is not None
    return text in FAMILIES or (named and not Path(text).exists())


def fitting(text: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """
    Those options of :func:`open_source` that go with a source, where several sources share them.

    >>> fitting("order.csv", {"ranks": 4, "microbatches": 8, "dialect": "legacy"})
    {'microbatches': 8, 'dialect': 'legacy'}
    """
    from verifier.families import FAMILIES

    if is_family(text):
        names = {"ranks", "microbatches", *(FAMILIES[text].options if text in FAMILIES else ())}
    elif text.endswith(".toml"):
        names = {"ranks", "microbatches"} if read_spec(text).loops else set()
    else:
        names = {"microbatches", "dialect", "copies"}
    return {name: value for name, value in options.items() if name in names}


def judged_under(
    source: Source,
    *,
    spec: Spec | None = None,
    costs: str | None = None,
    activations: str | None = None,
    weights: str | None = None,
) -> Source:
    """
    The source with the problem, costs, limits and expectations that it is judged under.

    An option has precedence over the spec, and the spec over what the source says. Claims are about the costs that they came
    with; under other costs they are left out, and a note says so.

    Raises
    ------
    ScheduleError
        If one of them cannot be read, or the source has another number of ranks than the spec.

    Examples
    --------
    >>> source = open_source("specs/dualpipe-p8-m20.toml")
    >>> judged_under(source, costs="FB=2").notes[-1]
    'the expected numbers are about other costs than those given, and were not judged'
    """
    if spec is not None:
        source = _against(source, spec)
    limits = limits_over(limits_of(activations, weights), source.limits)
    priced = _priced(source, read_costs(costs) if costs is not None else None)
    return replace(priced, limits=None if limits == Limits() else limits)


def lengthened(source: Source, microbatches: int) -> Source:
    """
    The source for more micro-batches, by more rounds of what repeats in it; its bubble stays the same.

    Claims, times and messages of the source are about its own size, and are left out.

    Raises
    ------
    ScheduleError
        As :func:`verifier.theorems.bubble.extended`.

    Examples
    --------
    >>> lengthened(open_source("dualpipe", ranks=4, microbatches=8), 1000).schedule.name
    'dualpipe P=4 M=8, extended to M=1000'
    """
    from verifier.theorems.bubble import extended

    schedule = extended(source.schedule, microbatches, source.costs)
    return replace(source, schedule=schedule, start=None, claims={}, certificate=None, program=None)


TWO_COPIES = "read as two weight copies laid end to end (--copies 2) its order has a timeline"
UNDIVIDED = "no REDUCE_GRAD in it: torch 2.13 then leaves gradients undivided by the number of micro-batches"


def verdict(source: Source, *, models: Sequence[str] = (), solver: str = "auto") -> Report:
    """
    The verdict on a source under all that it says: its costs, limits, times and claims.

    Parameters
    ----------
    models, solver
        As in :func:`verifier.verify.verify`; a source with messages of its own is judged under ``ordered`` if none is named.

    Examples
    --------
    >>> verdict(open_source("specs/chimera-p4-m4.toml")).status
    'proved'
    """
    notes = source.notes
    if source.program is not None and not models:
        # Every transport without tags needs what `ordered` asks for, so a file with messages is never judged without.
        models = ("ordered",)
        notes += ("the messages were judged under ordered alone: sends that never block, matched by position; see --messages",)
    if source.format == WITH_COMMUNICATION and source.program and not reduces(source.program):
        notes += (UNDIVIDED,)
    report = verify(
        source.schedule,
        source.costs,
        source.limits,
        start=source.start,
        claims=source.claims,
        suspicion=source.suspicion,
        models=models,
        program=source.program,
        solver=solver,
        notes=notes,
    )
    if (
        report.simulation.timeline is None
        and source.format in (COMPUTE_ONLY, WITH_COMMUNICATION)
        and _is_two_copies(source.schedule)
    ):
        report = replace(report, notes=(*report.notes, TWO_COPIES))
    return report


def _is_two_copies(schedule: Schedule) -> bool:
    """Whether an order that hangs would not as two weight copies, the second of which begins as a first stage does."""
    problem, half = schedule.problem, schedule.problem.stages // 2
    if problem.directions > 1 or problem.stages % 2:
        return False
    placement = problem.placement[0]
    first = schedule.order[placement[half]][:1]
    if not first or {op.stage for op in first[0].ops} != {half}:
        # In one model that stage waits for the one before; nobody begins with it who means a V.
        return False

    def apart(block: Block) -> Block:
        return Block(tuple(op._replace(direction=op.stage // half, stage=op.stage % half) for op in block.ops))

    order = tuple(tuple(map(apart, row)) for row in schedule.order)
    copies = Problem((placement[:half], placement[half:]), problem.microbatches * 2)
    return simulate(Schedule(copies, order)).timeline is not None


def _against(source: Source, spec: Spec) -> Source:
    """The order of the source as an answer to the problem of the spec, with what the spec says besides."""
    schedule = source.schedule
    if spec.problem is not None and spec.problem != schedule.problem:
        if spec.problem.ranks != schedule.problem.ranks:
            raise ScheduleError(
                f"{spec.path}: a problem of {spec.problem.ranks} ranks; the schedule has {schedule.problem.ranks}"
            )
        schedule = replace(schedule, problem=spec.problem)
    limits = limits_over(spec.limits, source.limits)
    priced = _priced(replace(source, schedule=schedule, limits=limits), spec.costs)
    notes = (f"expected numbers: {spec.reference}",) if spec.reference else ()
    return replace(priced, claims={**priced.claims, **spec.expectations}, notes=priced.notes + notes)


def _priced(source: Source, costs: CostModel | None) -> Source:
    """The source under the given costs, without claims that are about others."""
    if costs is None:
        return source
    kept = costs == (source.costs or CostModel.of())
    notes = source.notes
    if source.claims and not kept:
        notes += ("the expected numbers are about other costs than those given, and were not judged",)
    return replace(source, costs=costs, claims=source.claims if kept else {}, notes=notes)


def _of_spec(spec: Spec) -> Source:
    if spec.source is None:
        raise ScheduleError(f"{spec.path}: expected a table [schedule] with a family or a file, or [loops]")
    return _against(spec.source, spec)


def _family(name: str, ranks: int | None, microbatches: int | None, stages_per_rank: int | None, rule: str | None) -> Schedule:
    from verifier.families import FAMILIES, build_family

    options = {"stages_per_rank": stages_per_rank, "rule": rule}
    if name in FAMILIES:
        if ranks is None or microbatches is None:
            raise ScheduleError(f"{name}: a family needs its sizes, for example: {name} -P 8 -M 20")
        _refuse(name, "this family", **{key: value for key, value in options.items() if key not in FAMILIES[name].options})
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    return build_family(name, 1 if ranks is None else ranks, 1 if microbatches is None else microbatches, **given)


def _refuse(text: str, what: str, **options: object) -> None:
    """Refuse options that would go unnoticed."""
    for name, value in options.items():
        if value is not None:
            option = f"-{name}" if len(name) == 1 else "--" + name.replace("_", "-")
            raise ScheduleError(f"{one_line(text, 200)}: {what} takes no {option}")
