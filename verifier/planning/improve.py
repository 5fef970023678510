"""
The recommended family's schedule replaced by the shortest one for these costs and this memory.

The search begins with the family's order, so that what it finds is never longer. Where M is large it is for fewer
micro-batches, so that it answers; what it finds is then continued to the M of the plan by running what repeats in it more
often, and verified and replayed there. It may well be longer than the family's order then.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from verifier.model import Limits, Problem, Schedule, ScheduleError
from verifier.planning.plan import Choice, Plan
from verifier.planning.rules import RULES, build
from verifier.simulate import simulate
from verifier.synthesize import Synthesis, synthesize
from verifier.theorems.periodic import insert_kernels, splits
from verifier.verify import verify

SMALL = 6_000
"""Ops of the largest problem that is searched; beyond it M is reduced as far as the family goes."""
LONG = 50_000
"""Ops of the largest schedule that is made from what was found."""


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
    continued
        What was found, for the plan's M; None where nothing in it repeats, or peaks would not stay within memory.
    continued_seconds
        Its makespan.
    """

    choice: Choice
    microbatches: int
    found: Synthesis
    family_seconds: float
    seconds: float | None
    continued: Schedule | None
    continued_seconds: float | None

    @property
    def best(self) -> Schedule | None:
        """The schedule to use: for the plan's M where that is shorter than the family's order, else for the M searched."""
        return self.continued if self.helps else self.found.schedule

    @property
    def helps(self) -> bool:
        """Whether there is a shorter schedule for the plan's M."""
        run = self.choice.run
        return self.continued_seconds is not None and run is not None and self.continued_seconds < run.seconds

    def sentence(self) -> str:
        """What came of it, for people."""
        choice, found = self.choice, self.found
        if self.seconds is None:
            return f"{choice.name} with M = {self.microbatches}: {found.sentence()}"
        bound = float(found.lower_bound or 0) / 1e6
        what = "nothing is shorter" if found.status == "optimal" else f"nothing is shorter than {bound:.3f} s"
        where = f"for P = {choice.depth}, M = {self.microbatches}"
        if self.seconds < self.family_seconds:
            text = (
                f"{where}, the family's order takes {self.family_seconds:.3f} s and the one found {self.seconds:.3f} s; {what}."
            )
        else:
            text = f"{where}, nothing was found below the {self.family_seconds:.3f} s of the family's order; {what}."
        if self.microbatches == choice.microbatches:
            return text
        assert choice.run is not None, "it fits"
        whole = f"M = {choice.microbatches}"
        if self.continued_seconds is None:
            return f"{text} Nothing in it repeats so that it could serve {whole}; keep the family's order there."
        times = f"{self.continued_seconds:.3f} s where the family's order takes {choice.run.seconds:.3f} s"
        return f"{text} Continued to {whole} it takes {times}{'' if self.helps else ', which is the one to keep there'}."

    def as_json(self) -> dict[str, object]:
        """As ``plan --synthesize --json`` carries it."""
        return {
            "microbatches": self.microbatches,
            "family_seconds": round(self.family_seconds, 6),
            "seconds": None if self.seconds is None else round(self.seconds, 6),
            "continued_seconds": None if self.continued_seconds is None else round(self.continued_seconds, 6),
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
    continued = found.schedule and _continued(found.schedule, choice, limits)
    return Improvement(
        choice,
        microbatches,
        found,
        _seconds(family, choice),
        seconds,
        continued,
        None if continued is None else _seconds(continued, choice),
    )


def searched(choice: Choice) -> int:
    """
    The micro-batches of the problem that is searched: the plan's if they are few, else as few as keep the pipeline filled.

    >>> searched(Choice("dualpipe", 16, 128, 120, layers=((0, 1),) * 16))
    120
    """
    stages = len(choice.layers)
    if 3 * stages * choice.microbatches <= SMALL:
        return choice.microbatches
    few = RULES[choice.family].nearest(choice.depth, 2 * choice.depth)
    return min(choice.microbatches, few)


def _continued(schedule: Schedule, choice: Choice, limits: Limits) -> Schedule | None:
    """The shortest legal schedule for the plan's M that repeats a stretch of this one; itself where it is for that M."""
    more = choice.microbatches - schedule.problem.total_microbatches
    if not more:
        return schedule
    if 3 * len(choice.layers) * choice.microbatches > LONG:
        return None
    longer = (
        insert_kernels(split, more // split.microbatches_per_period)
        for split in splits(schedule)
        if more % split.microbatches_per_period == 0
    )
    legal = [found for found in longer if verify(found, choice.costs, limits, solver="replay").status == "proved"]
    return min(legal, key=lambda found: _seconds(found, choice), default=None)


def _seconds(schedule: Schedule, choice: Choice) -> float:
    timeline = simulate(schedule, choice.costs).timeline
    assert timeline is not None, "legal, as built or replayed"
    return float(timeline.makespan) / 1e6
