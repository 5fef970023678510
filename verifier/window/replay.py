"""
What two queues do: every step starts once the step before it in its queue is done and what it needs is there.

No solver takes part. What communication lies under computing is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from verifier.window.chunk import COMMUNICATION, COMPUTE, RESOURCES, Step, Task

Queues = Mapping[str, Sequence[Step]]
"""Per resource its steps in the order of issue."""


@dataclass(frozen=True)
class Cover:
    """
    Where a step of communication lies.

    Attributes
    ----------
    start, end
        In ticks.
    under
        The computing that runs meanwhile, and for how long.
    slack
        How much longer it could take before the block does.
    """

    step: Step
    start: int
    end: int
    under: tuple[tuple[Step, int], ...]
    slack: int

    @property
    def exposed(self) -> int:
        """For how long nothing is computed meanwhile."""
        return self.end - self.start - sum(ticks for _, ticks in self.under)


@dataclass(frozen=True)
class Wait:
    """A time in which computing waits, and the step for whose result."""

    start: int
    end: int
    step: Step
    needs: Step


@dataclass(frozen=True)
class Run:
    """A block with the start of every step, in ticks."""

    tasks: Mapping[Step, Task]
    queues: Queues
    start: Mapping[Step, int]

    def end(self, step: Step) -> int:
        """When a step is done."""
        return self.start[step] + self.tasks[step].ticks

    @cached_property
    def duration(self) -> int:
        """When the last step is done."""
        return max(map(self.end, self.start), default=0)

    def load(self, resource: str) -> int:
        """For how long a resource is busy."""
        return sum(self.tasks[step].ticks for step in self.queues.get(resource, ()))

    @property
    def exposed(self) -> int:
        """For how long communication runs while nothing is computed."""
        return sum(cover.exposed for cover in self.covers)

    @cached_property
    def covers(self) -> tuple[Cover, ...]:
        """Every step of communication, in the order of issue."""
        latest = self._latest()
        return tuple(
            Cover(step, self.start[step], self.end(step), self._under(step), latest[step] - self.start[step])
            for step in self.queues.get(COMMUNICATION, ())
        )

    def _under(self, step: Step) -> tuple[tuple[Step, int], ...]:
        """What is computed during a step, and for how long."""
        shared = ((c, min(self.end(step), self.end(c)) - max(self.start[step], self.start[c])) for c in self.queues[COMPUTE])
        return tuple((computing, ticks) for computing, ticks in shared if ticks > 0)

    def _latest(self) -> dict[Step, int]:
        """When each step may start at the latest, in this order, without lengthening the block."""
        latest: dict[Step, int] = {}
        followers: dict[Step, list[Step]] = {step: [] for step in self.start}
        for before, step in _arcs(self.tasks, self.queues):
            followers[before].append(step)
        for step in sorted(self.start, key=lambda s: self.start[s], reverse=True):
            until = min((latest[follower] for follower in followers[step]), default=self.duration)
            latest[step] = until - self.tasks[step].ticks
        return latest

    @cached_property
    def waits(self) -> tuple[Wait, ...]:
        """When computing waits, and for what; not what comes after its last step."""
        found, free = [], 0
        for step in self.queues.get(COMPUTE, ()):
            if self.start[step] > free:
                needs = max(self.tasks[step].needs, key=self.end)
                found.append(Wait(free, self.start[step], step, needs))
            free = self.end(step)
        return tuple(found)

    def sequence(self) -> tuple[Step, ...]:
        """The steps of both queues in one order of issue: that of their starts."""
        place = {step: (self.start[step], RESOURCES.index(task.resource)) for step, task in self.tasks.items()}
        return tuple(sorted(self.tasks, key=place.__getitem__))


@dataclass(frozen=True)
class Circle:
    """Steps that wait for one another: each stands first in its queue and needs one that stands behind the next."""

    steps: tuple[tuple[Step, Step], ...]

    def __str__(self) -> str:
        nexts = [step for step, _ in (*self.steps[1:], self.steps[0])]
        links = (
            f"{step} needs {needs}" + (f", issued behind {head}" if head != needs else "")
            for (step, needs), head in zip(self.steps, nexts, strict=True)
        )
        return f"the queues wait for one another for ever: {'; '.join(links)}"


def replay(tasks: Mapping[Step, Task], queues: Queues) -> Run | Circle:
    """
    Run the steps as early as their queues let them.

    Parameters
    ----------
    queues
        Each task exactly once, on its resource.

    Examples
    --------
    >>> a, b = Step("mlp", "F", 0), Step("combine", "F", 0)
    >>> tasks = {a: Task(a, "compute", 3, ()), b: Task(b, "communication", 2, (a,))}
    >>> run = replay(tasks, {"compute": (a,), "communication": (b,)})
    >>> run.duration, run.exposed
    (5, 2)
    """
    start: dict[Step, int] = {}
    end: dict[Step, int] = {}
    place = dict.fromkeys(queues, 0)
    moved = True
    while moved:
        moved = False
        for resource, queue in queues.items():
            while place[resource] < len(queue):
                step = queue[place[resource]]
                task = tasks[step]
                if not all(needs in end for needs in task.needs):
                    break
                free = end[queue[place[resource] - 1]] if place[resource] else 0
                start[step] = max([free, *(end[needs] for needs in task.needs)])
                end[step] = start[step] + task.ticks
                place[resource] += 1
                moved = True
    heads = {resource: queue[place[resource]] for resource, queue in queues.items() if place[resource] < len(queue)}
    return _circle(tasks, heads, end) if heads else Run(tasks, queues, start)


def _circle(tasks: Mapping[Step, Task], heads: Mapping[str, Step], done: Mapping[Step, int]) -> Circle:
    """From the first step of a queue to one that it lacks, to the first step of that one's queue, until one comes again."""
    chain: list[tuple[Step, Step]] = []
    step = next(iter(heads.values()))
    while step not in (seen for seen, _ in chain):
        lacks = next(needs for needs in tasks[step].needs if needs not in done)
        chain.append((step, lacks))
        step = heads[tasks[lacks].resource]
    return Circle(tuple(chain[[seen for seen, _ in chain].index(step) :]))


def _arcs(tasks: Mapping[Step, Task], queues: Queues) -> list[tuple[Step, Step]]:
    """What comes before what: by need and by queue."""
    needed = [(needs, step) for step, task in tasks.items() for needs in task.needs]
    return needed + [pair for queue in queues.values() for pair in pairwise(queue)]
