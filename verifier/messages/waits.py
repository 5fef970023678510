"""
The engine under replay and lowering: events that wait for events.

Every event has a fixed set of others that it waits for, all of them. So what happens is the least set that is closed under
"all that I wait for has happened", and when it can happen is a longest path: neither depends on the order in which the
events are looked at. Replay takes one order, any other gives the same.
"""

from __future__ import annotations


class Waits:
    """
    Events, numbered from 0, and for each the others that it waits for.

    Examples
    --------
    >>> waits = Waits(3)
    >>> waits.wait(1, on=0, lag=5)
    >>> waits.wait(2, on=2)
    >>> waits.run()
    ([0, 5, 0], [0, 1])
    """

    def __init__(self, events: int) -> None:
        self.after: list[list[tuple[int, int]]] = [[] for _ in range(events)]
        self.missing = [0] * events

    def event(self) -> int:
        """One more event."""
        self.after.append([])
        self.missing.append(0)
        return len(self.missing) - 1

    def wait(self, event: int, on: int, lag: int = 0) -> None:
        """An event happens at least ``lag`` ticks after another."""
        self.after[on].append((event, lag))
        self.missing[event] += 1

    def never(self, event: int) -> None:
        """An event waits for something that nobody does."""
        self.missing[event] += 1

    def run(self) -> tuple[list[int], list[int]]:
        """
        Let happen what can happen, in time linear in the waits.

        Returns
        -------
        tuple
            The earliest time of every event in ticks (of no meaning where it never happens), and the events that happen,
            each after all that it waits for.
        """
        time, missing, after = [0] * len(self.missing), self.missing.copy(), self.after
        happened = [event for event, count in enumerate(missing) if not count]
        for event in happened:  # grows while it is walked
            now = time[event]
            for later, lag in after[event]:
                if now + lag > time[later]:
                    time[later] = now + lag
                missing[later] -= 1
                if not missing[later]:
                    happened.append(later)
        return time, happened

    def unmet(self, happened: list[int]) -> dict[int, list[int]]:
        """For every event that never happens, the events that it waits for in vain, in the order they were declared."""
        stuck = set(range(len(self.missing))).difference(happened)
        unmet: dict[int, list[int]] = {event: [] for event in stuck}
        for event in sorted(stuck):
            for later, _ in self.after[event]:
                unmet[later].append(event)
        return unmet
