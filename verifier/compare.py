"""
Schedules side by side on equal terms: the same model, ranks and batch whatever the number of stages per rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from verifier.costs import CostModel, Price
from verifier.model import Limits, Problem, Schedule, ScheduleError, Timeline, plain
from verifier.simulate import Simulation
from verifier.verify import numbers, verify


@dataclass(frozen=True)
class Row:
    """
    One schedule of a comparison.

    Attributes
    ----------
    per
        ``model``: durations and activations are shares of a rank's part of the model, weights are shares of the model.
        ``stage``: everything is in the schedule's own stage units.
    note
        What a reader of the numbers must know.
    """

    simulation: Simulation
    per: str
    note: str = ""

    @property
    def schedule(self) -> Schedule:
        """What was compared."""
        return self.simulation.schedule

    @property
    def makespan(self) -> Fraction:
        """The last end, in the unit of the costs."""
        return self._timeline.makespan

    @property
    def idle(self) -> tuple[Fraction, ...]:
        """Per rank, makespan minus busy time."""
        return self._timeline.idle

    @property
    def idle_mean(self) -> Fraction:
        """Idle time of the average rank."""
        return sum(self.idle, Fraction(0)) / len(self.idle)

    @property
    def utilisation(self) -> Fraction:
        """Busy time as a share of ranks times makespan."""
        return 1 - self._timeline.bubble_ratio

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """What each rank holds: a share of the model's stages, or how many (direction, stage) pairs."""
        problem = self.schedule.problem
        whole = problem.stages if self.per == "model" else 1
        return tuple(Fraction(len(problem.stages_on(rank)), whole) for rank in range(problem.ranks))

    def hours(self, given: Fraction, first: Row) -> Fraction:
        """
        An estimate: what this schedule takes where another takes so many GPU hours, if they differ in their bubbles only.

        Both do the same work, so hours go with the inverse of the share of time in which the ranks are busy.

        >>> from verifier.families import build_family
        >>> slow, quick = (compare(build_family(name, 8, 16)) for name in ("1f1b", "dualpipe"))
        >>> str(slow.utilisation), str(quick.utilisation), str(quick.hours(Fraction(69), slow))
        ('16/23', '8/9', '54')
        """
        return given * first.utilisation / self.utilisation

    def as_json(self) -> dict[str, object]:
        """The row as ``compare --json`` carries it."""
        return {
            **numbers(self.simulation),
            "stages": self.schedule.problem.stages,
            "idle_worst": plain(max(self.idle)),
            "idle_mean": plain(self.idle_mean),
            "utilisation": plain(self.utilisation),
            "weights": [plain(weight) for weight in self.weights],
            **({"note": self.note} if self.note else {}),
        }

    @cached_property
    def _timeline(self) -> Timeline:
        assert self.simulation.timeline is not None, "only what was proved is compared"
        return self.simulation.timeline


@dataclass(frozen=True)
class Refusal:
    """Why a source has no row of its own."""

    source: str
    reason: str

    def as_json(self) -> dict[str, object]:
        """The row as ``compare --json`` carries it."""
        return {"schedule": self.source, "refused": self.reason}


def compare(
    schedule: Schedule, costs: CostModel | None = None, per: str = "model", *, own_costs: CostModel | None = None
) -> Row:
    """
    One row of a comparison.

    Parameters
    ----------
    schedule
        What to measure; it is verified first, since the numbers of a wrong order say nothing.
    costs
        With ``per="model"``, of what a rank does for one micro-batch and one weight copy: a rank with v stages of the model
        takes a v-th of it for each. Hops stay: what is sent does not depend on how many layers made it.
    per
        ``model`` or ``stage``.
    own_costs
        What the file of the schedule says. They are not used, and if they are others, the row says so.

    Raises
    ------
    ScheduleError
        If the costs do not fit, or the schedule is refuted; then with the first witness.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> rows = [compare(build_family(name, 8, 20)) for name in ("dualpipe", "dualpipev", "1f1b")]
    >>> [str(row.makespan) for row in rows], [str(row.weights[0]) for row in rows]
    (['66', '67', '81'], ['1/4', '1/8', '1/8'])
    """
    problem = schedule.problem
    costs = costs or CostModel.of()
    note = "its own costs are not used here" if own_costs not in (None, costs) else ""
    if per == "model":
        costs = costs_of_shares(costs, problem)
    report = verify(schedule, costs, Limits(), solver="replay")
    if report.status == "refuted":
        witness = next(part.witnesses[0] for part in report.properties.values() if part.witnesses)
        raise ScheduleError(f"refuted: {witness}")
    return Row(report.simulation, per, note)


def costs_of_shares(costs: CostModel, problem: Problem) -> CostModel:
    """
    Costs of a problem's stages where those given are of a rank's share of the model.

    Durations and activations go in proportion; hops stay, since what is sent does not depend on how many layers made it.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> str(costs_of_shares(CostModel.of(F=3), build_family("dualpipev", 4, 8).problem).prices["F"])
    '3/2'
    """
    share = Fraction(problem.ranks, problem.stages)
    prices = {kind: _times(price, share) for kind, price in costs.prices.items()}
    return replace(costs, prices=prices, activation=_times(costs.activation, share))  # type: ignore[arg-type]


def _times(price: Price, share: Fraction) -> Price:
    if isinstance(price, Fraction):
        return price * share
    return tuple(_times(item, share) for item in price)  # type: ignore[return-value]
