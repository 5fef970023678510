"""
What a chunk consists of: the steps of its layers, what each runs on, and which step needs which.

A forward layer runs its components in turn; the backward for the input runs them mirrored, last layer first; the backward for
the weights of a component follows its backward for the input, and nothing waits for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import NamedTuple

from verifier.model import ScheduleError

COMPUTE, COMMUNICATION = "compute", "communication"
RESOURCES = (COMPUTE, COMMUNICATION)
"""What steps run on: one step at a time each, in the order of issue."""

BLOCKS = {"F": "F", "I": "I", "W": "W", "B": "IW", "F&B": "FIW"}
"""Which kinds of steps each block runs."""

TRANSFER = "transfer"
"""The name of a message to the next rank of the pipeline."""

MAX_STEPS = 2_000
MAX_TICKS = 10**15
"""Of all steps together, so that a solver's whole numbers hold every time."""

_WORD = re.compile(r"([A-Za-z][\w.-]*)\(([FIWB])\)(\d{0,6})", re.ASCII)


class Step(NamedTuple):
    """
    One component of one layer in one of F, I, W; or a transfer, which belongs to no layer.

    Examples
    --------
    >>> str(Step("mlp", "I", 3)), str(Step("transfer", "F"))
    ('mlp(I)3', 'transfer(F)')
    """

    component: str
    kind: str
    layer: int | None = None

    @property
    def name(self) -> str:
        """The component and its kind, whatever the layer."""
        return f"{self.component}({self.kind})"

    def __str__(self) -> str:
        return self.name + ("" if self.layer is None else str(self.layer))

    @classmethod
    def parse(cls, word: str) -> Step:
        """
        A step from its word; ``(B)``, as DeepSeek's figure writes the backward for the input, is read as ``(I)``.

        Raises
        ------
        ScheduleError
            If the word is none.

        Examples
        --------
        >>> Step.parse("mlp(B)3"), Step.parse("attention(F)").layer
        (Step(component='mlp', kind='I', layer=3), None)
        """
        match = _WORD.fullmatch(word)
        if not match:
            raise ScheduleError(f'expected a step such as attention(F)0 or mlp(W), got "{word[:40]}"')
        component, kind, layer = match.groups()
        return cls(component, kind.replace("B", "I"), int(layer) if layer else None)


@dataclass(frozen=True)
class Task:
    """A step with what it takes, in ticks, and the steps whose results it needs."""

    step: Step
    resource: str
    ticks: int
    needs: tuple[Step, ...]


@dataclass(frozen=True)
class Component:
    """
    A part of a layer.

    Parameters
    ----------
    times
        Per kind (F, I, W) one duration per layer, in the unit of the chunk. What takes no time is not there: no step waits in
        a queue for it.
    """

    name: str
    resource: str
    times: Mapping[str, tuple[Fraction, ...]]


@dataclass(frozen=True)
class Chunk:
    """
    The layers that a stage runs as one block.

    Parameters
    ----------
    components
        In the order of a forward layer.
    transfers
        What sending an activation (F) or a gradient (I) to the next rank takes on the communication stream. A block sends
        what the block before it left.
    sms
        Of a processor's multiprocessors all of them, and those that communication had when the times were measured.

    Examples
    --------
    >>> component = Component("mlp", "compute", {"F": (Fraction(1),), "I": (Fraction(1),), "W": (Fraction(1, 2),)})
    >>> chunk = Chunk((component,), 1)
    >>> chunk.ticks_per_unit, [(str(task.step), task.ticks, task.needs) for task in chunk.tasks("B").values()]
    (2, [('mlp(I)0', 2, ()), ('mlp(W)0', 1, (Step(component='mlp', kind='I', layer=0),))])
    """

    components: tuple[Component, ...]
    layers: int
    transfers: Mapping[str, Fraction] | None = None
    unit: str = ""
    sms: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.layers * sum(len(component.times) for component in self.components) > MAX_STEPS:
            raise ScheduleError(f"more than {MAX_STEPS} steps; expected a chunk of a few layers")
        times = list(self._times())
        if not any(times):
            raise ScheduleError("no component takes any time; expected at least one above 0")
        if sum(times) * self.ticks_per_unit > MAX_TICKS:
            raise ScheduleError("the times together need more than 15 digits; use rounder numbers")

    def _times(self) -> Iterator[Fraction]:
        for component in self.components:
            for row in component.times.values():
                yield from row
        yield from (self.transfers or {}).values()

    @cached_property
    def ticks_per_unit(self) -> int:
        """The least number of ticks per unit that makes every time whole."""
        return lcm(*(time.denominator for time in self._times()))

    def time(self, ticks: int) -> Fraction:
        """Ticks in the unit of the chunk."""
        return Fraction(ticks, self.ticks_per_unit)

    def tasks(self, block: str) -> dict[Step, Task]:
        """
        The steps of a block in an order in which each comes after what it needs.

        Parameters
        ----------
        block
            One of :data:`BLOCKS`.
        """
        kinds = BLOCKS[block]
        found: dict[Step, Task] = {}
        for kind, time in (self.transfers or {}).items():
            if kind in kinds and time:
                self._add(found, Step(TRANSFER, kind), COMMUNICATION, time, ())
        if "F" in kinds:
            self._chain(found, "F", "", [(c, layer) for layer in range(self.layers) for c in self.components])
        backward = [(c, layer) for layer in reversed(range(self.layers)) for c in reversed(self.components)]
        self._chain(found, "I" if "I" in kinds else "", "W" if "W" in kinds else "", backward)
        return found

    def _chain(self, found: dict[Step, Task], kind: str, beside: str, places: list[tuple[Component, int]]) -> None:
        """Steps of a kind in turn, each needing the one before; beside each one that needs it and is needed by none."""
        before: tuple[Step, ...] = ()
        for component, layer in places:
            step = Step(component.name, kind, layer)
            if kind and (time := component.times.get(kind, (Fraction(0),) * self.layers)[layer]):
                self._add(found, step, component.resource, time, before)
                before = (step,)
            if beside and (time := component.times.get(beside, (Fraction(0),) * self.layers)[layer]):
                self._add(found, Step(component.name, beside, layer), component.resource, time, before)

    def _add(self, found: dict[Step, Task], step: Step, resource: str, time: Fraction, needs: tuple[Step, ...]) -> None:
        found[step] = Task(step, resource, int(time * self.ticks_per_unit), needs)

    def knows(self, step: Step) -> bool:
        """Whether the chunk has such a component or transfer, be it in another layer or of no time."""
        if step.component == TRANSFER:
            return step.kind in (self.transfers or {})
        return any(step.component == c.name and step.kind in c.times for c in self.components)

    def with_sms(self, communication: int) -> Chunk:
        """
        The chunk if communication had another number of multiprocessors: an estimate.

        Computing takes time in inverse proportion to the multiprocessors that are left to it. Communication slows in
        proportion below the number it was measured with, and gains nothing above: that number is said to be enough for the
        full bandwidth (arXiv:2412.19437, section 3.2.2).

        Raises
        ------
        ScheduleError
            If the chunk does not say how many there are, or none would be left.

        Examples
        --------
        >>> mlp = Component("mlp", "compute", {"F": (Fraction(4),)})
        >>> combine = Component("combine", "communication", {"F": (Fraction(3),)})
        >>> fewer = Chunk((mlp, combine), 1, sms=(132, 20)).with_sms(10)
        >>> [str(component.times["F"][0]) for component in fewer.components]
        ['224/61', '6']
        """
        if self.sms is None:
            raise ScheduleError("--sms: the spec does not say how many multiprocessors there are; expected a table [sms]")
        total, measured = self.sms
        if not 1 <= communication < total:
            raise ScheduleError(f"--sms: expected a number from 1 to {total - 1}, got {communication}")
        factor = {
            COMPUTE: Fraction(total - measured, total - communication),
            COMMUNICATION: max(Fraction(1), Fraction(measured, communication)),
        }
        components = tuple(
            replace(c, times={kind: tuple(time * factor[c.resource] for time in row) for kind, row in c.times.items()})
            for c in self.components
        )
        sent = {kind: time * factor[COMMUNICATION] for kind, time in (self.transfers or {}).items()}
        return replace(self, components=components, transfers=sent, sms=(total, communication))
