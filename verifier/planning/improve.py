"""
The recommended family's schedule replaced by the shortest one for these costs and this memory.

The search is for few micro-batches, so that it answers; where what it finds repeats, it is continued to the M of the plan, and
replayed there.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from verifier.model import Limits, Problem, Schedule, ScheduleError
from verifier.planning.plan import Choice, Plan
from verifier.planning.rules import RULES, build
from verifier.simulate import simulate
from verifier.synthesize import Synthesis, synthesize

SMALL = 700
"""Ops of the largest problem that is searched; beyond it M is reduced as far as the family goes."""


@dataclass(frozen=True)
class Improvement:
    """
    What synthesis found for the first choice of a plan.

    Attributes
    ----------
    microbatches
        Of the problem that was searched.
    family_seconds, seconds
        Makespan of the family's order there, and of what was found.
    extended
        What was found, continued to the plan's M, with its makespan; or why it is not.
    """

    choice: Choice
    microbatches: int
    found: Synthesis
    family_seconds: float
    seconds: float | None
    extended: Schedule | None
    extended_seconds: float | None
    reason: str

    @property
    def best(self) -> Schedule | None:
        """The schedule to use: for the plan's M where there is one."""
        return self.extended or self.found.schedule

    def sentence(self) -> str:
        """What came of it, for people."""
        choice, found = self.choice, self.found
        if self.seconds is None:
            return f"{choice.name} with M = {self.microbatches}: {found.sentence()}"
        bound = float(found.lower_bound or 0) / 1e6
        what = "nothing is shorter" if found.status == "optimal" else f"nothing is shorter than {bound:.3f} s"
        text = (
            f"for P = {choice.depth}, M = {self.microbatches}, the family's order takes {self.family_seconds:.3f} s and the "
            f"one found {self.seconds:.3f} s; {what}."
        )
        if self.extended_seconds is not None and self.microbatches != choice.microbatches:
            assert choice.run is not None, "it fits"
            return f"{text} For M = {choice.microbatches}: {choice.run.seconds:.3f} s and {self.extended_seconds:.3f} s."
        return f"{text} {self.reason}".strip()

    def as_json(self) -> dict[str, object]:
        """As ``plan --synthesize --json`` carries it."""
        return {
            "microbatches": self.microbatches,
            "family_seconds": round(self.family_seconds, 6),
            "seconds": None if self.seconds is None else round(self.seconds, 6),
            "extended_seconds": None if self.extended_seconds is None else round(self.extended_seconds, 6),
            "sentence": self.sentence(),
            "synthesis": self.found.as_json(),
        }


def improve(plan: Plan, budget: float = 20.0, seed: int = 0) -> Improvement:
    """
    Search for the shortest schedule in the place of the recommended one: its placement, its costs, what memory is left.

    Parameters
    ----------
    budget
        Seconds.

    Raises
    ------
    ScheduleError
        If nothing fits.
    """
    if not plan.fitting:
        raise ScheduleError("plan: nothing fits, so there is no schedule to improve")
    choice = plan.fitting[0]
    assert choice.costs is not None, "it fits"
    assert choice.memory is not None, "it fits"
    microbatches = searched(choice)
    directions = choice.copies
    problem = Problem(choice.placement, (microbatches // directions,) * directions)
    # What the fullest rank leaves for activations is left on every rank.
    left = plan.spec.cluster.memory - (choice.memory.total - choice.memory.activations)
    limits = Limits(Fraction(int(left / 1e3)), None)
    family = build(choice.family, choice.depth, microbatches, plan.spec.stages_per_rank)
    found = synthesize(problem, choice.costs, limits, budget=budget, seed=seed, seeds=(family,))
    seconds = None if found.value is None else float(found.value) / 1e6
    extended, reason = _extended(choice, microbatches, found)
    return Improvement(
        choice,
        microbatches,
        found,
        _seconds(family, choice),
        seconds,
        extended,
        None if extended is None else _seconds(extended, choice),
        reason,
    )


def searched(choice: Choice) -> int:
    """
    The micro-batches of the problem that is searched: the plan's if they are few, else as few as keep the pipeline filled.

    >>> searched(Choice("dualpipe", 16, 128, 120, layers=((0, 1),) * 16))
    32
    """
    stages = len(choice.layers)
    if 3 * stages * choice.microbatches <= SMALL:
        return choice.microbatches
    few = RULES[choice.family].nearest(choice.depth, 2 * choice.depth)
    return min(choice.microbatches, few)


def _extended(choice: Choice, microbatches: int, found: Synthesis) -> tuple[Schedule | None, str]:
    from verifier.theorems.bubble import extended

    if found.schedule is None:
        return None, ""
    if microbatches == choice.microbatches:
        return found.schedule, ""
    try:
        return extended(found.schedule, choice.microbatches, choice.costs), ""
    except ScheduleError as error:
        return None, f"It is not continued to M = {choice.microbatches}: {error}"


def _seconds(schedule: Schedule, choice: Choice) -> float:
    timeline = simulate(schedule, choice.costs).timeline
    assert timeline is not None, "legal, as built or replayed"
    return float(timeline.makespan) / 1e6
