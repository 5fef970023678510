"""
What no order of issue can beat, worked out without a solver.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from verifier.window.chunk import RESOURCES, Step, Task

PATH = "critical path"


def lower_bound(tasks: Mapping[Step, Task]) -> tuple[int, str]:
    """
    A duration that every order needs at least, in ticks, and the argument for it.

    The longest chain of needs; or for each resource: a step can start no earlier than its longest chain of needs is done, and
    after it the longest chain of what needs it is still to come. Even if steps could be interrupted, one step at a time, the
    resource's steps and the chains behind them would take so long (the rule of the largest tail first is then the best one).

    Parameters
    ----------
    tasks
        In an order in which each comes after what it needs.

    References
    ----------
    J. R. Jackson, "Scheduling a production line to minimize maximum tardiness", 1955; J. Carlier, "The one-machine sequencing
    problem", EJOR 11 (1982).

    Examples
    --------
    >>> send, mlp = Step("combine", "I", 0), Step("mlp", "I", 0)
    >>> lower_bound({send: Task(send, "communication", 6, ()), mlp: Task(mlp, "compute", 5, (send,))})
    (11, 'critical path')
    """
    head, tail = heads(tasks), tails(tasks)
    bounds = [(max(head[step] + task.ticks + tail[step] for step, task in tasks.items()), PATH)]
    for resource in RESOURCES:
        rows = [(head[step], task.ticks, tail[step]) for step, task in tasks.items() if task.resource == resource]
        bounds.append((one_machine(rows), f"load of {resource}, with what comes before and after it"))
    return max(bounds, key=lambda bound: bound[0])


def heads(tasks: Mapping[Step, Task]) -> dict[Step, int]:
    """When each step can start at the earliest, in ticks, as far as its needs go."""
    head: dict[Step, int] = {}
    for step, task in tasks.items():
        head[step] = max((head[needs] + tasks[needs].ticks for needs in task.needs), default=0)
    return head


def tails(tasks: Mapping[Step, Task]) -> dict[Step, int]:
    """What has to come after each step at least, in ticks."""
    tail = dict.fromkeys(tasks, 0)
    for step, task in reversed(list(tasks.items())):
        for needs in task.needs:
            tail[needs] = max(tail[needs], task.ticks + tail[step])
    return tail


def one_machine(rows: list[tuple[int, int, int]]) -> int:
    """
    The least end of jobs that may be interrupted on one machine: head, ticks and tail of each.

    O(n log n).

    Examples
    --------
    >>> one_machine([(0, 4, 0), (6, 5, 2)]), one_machine([])
    (13, 0)
    """
    coming = list(rows)
    heapify(coming)
    ready: list[tuple[int, int]] = []
    now = end = 0
    while coming or ready:
        if not ready:
            now = max(now, coming[0][0])
        while coming and coming[0][0] <= now:
            _, ticks, tail = heappop(coming)
            heappush(ready, (-tail, ticks))
        tail, ticks = heappop(ready)
        until = min(now + ticks, coming[0][0]) if coming else now + ticks
        if until < now + ticks:
            heappush(ready, (tail, now + ticks - until))
        now = until
        end = max(end, now - tail)
    return end
