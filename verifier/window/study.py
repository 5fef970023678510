"""
All that is said of a chunk under an order of issue: the blocks alone and paired, the best order, orders at random, costs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from time import monotonic

from verifier.costs import CostModel
from verifier.formats.source import one_line
from verifier.model import Witness, counted, plain
from verifier.window.chunk import BLOCKS, COMMUNICATION, COMPUTE, TRANSFER, Chunk, Step
from verifier.window.orders import Order, faults, shuffled
from verifier.window.reading import ChunkSpec
from verifier.window.replay import Circle, Cover, Run, replay
from verifier.window.search import Best, best

PAIR = "F&B"


@dataclass(frozen=True)
class Study:
    """
    A chunk under an order of issue.

    Attributes
    ----------
    faults
        The properties that the order breaks, each with where; there is nothing else then.
    runs
        Every block that does anything, by its name.
    best
        The best order of the pair.
    shuffled
        Durations of the pair under orders drawn at random, in ticks, ascending.
    scaled
        To how many multiprocessors for communication the times were scaled.
    interrupted
        Whether a person ended the search.
    unsettled
        Blocks alone whose best order is only the best found.
    """

    spec: ChunkSpec
    chunk: Chunk
    order: str
    faults: tuple[tuple[str, Witness], ...] = ()
    runs: Mapping[str, Run] | None = None
    best: Best | None = None
    shuffled: tuple[int, ...] = ()
    scaled: int | None = None
    interrupted: bool = False
    unsettled: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """Whether the order is legal: ``proved`` or ``refuted``."""
        return "refuted" if self.faults else "proved"

    def duration(self, block: str) -> Fraction:
        """What a block takes, in the unit of the chunk; 0 where it has no steps."""
        assert self.runs is not None, "a refuted order takes no time"
        return self.chunk.time(self.runs[block].duration) if block in self.runs else Fraction(0)

    def apart(self) -> Fraction:
        """What F and then B take, without pairing."""
        return self.duration("F") + self.duration("B")

    def costs(self) -> CostModel:
        """
        The cost model of the chunk: B is priced apart, since its weight parts may hide what its input parts expose.

        The hop is the time from the start of the next pair until its transfers are through.
        """
        prices = {block.replace("&", ""): self.duration(block) for block in BLOCKS}
        hop = Fraction(0)
        if self.runs is not None and PAIR in self.runs:
            pair = self.runs[PAIR]
            sent = [pair.end(step) for step in pair.start if step.component == TRANSFER]
            hop = self.chunk.time(max(sent, default=0))
        return CostModel.of(**prices, hop=hop)

    def left_out(self) -> tuple[str, ...]:
        """What the model does not know of."""
        lines = [
            "waiting for peers is part of an all-to-all's time and does not depend on the order or on other ranks",
            "every step takes its time as given, whatever runs beside it",
            "no gaps between kernels, no barriers, no third stream",
        ]
        if self.chunk.sms:
            total, communication = self.chunk.sms
            lines.append(
                f"blocks alone have {total - communication} of {counted(total, 'multiprocessor')} for computing, too; "
                "they could be faster"
            )
        if not any((self.chunk.transfers or {}).values()):
            lines.append("no pipeline transfers, since the spec gives no time for them")
        return tuple(lines)

    # ------------------------------------------------------------------------------------------------------- as text

    def as_toml(self) -> str:
        """The costs as a file that ``--costs`` takes, with where they come from."""
        scaled = f", scaled to {counted(self.scaled, 'multiprocessor')} for communication (an estimate)" if self.scaled else ""
        unit = f" in {self.chunk.unit}" if self.chunk.unit else ""
        lines = [
            f"# Costs{unit} of one chunk of {counted(self.chunk.layers, 'layer')}, "
            f"by verifier window: {_comment(self.spec.path)}, order {_comment(self.order)}{scaled}.",
            *([f"# Times from: {_comment(self.spec.source)}"] if self.spec.source else []),
            *(f"# Left out: {line}." for line in self.left_out()),
            "[costs]",
            *([f"unit = {_quoted(self.chunk.unit)}"] if self.chunk.unit else []),
        ]
        for key, value in self.costs().as_written().items():
            lines.append(f"{key} = {_toml(Fraction(str(value)))}")
        return "\n".join(lines) + "\n"

    def as_json(self) -> dict[str, object]:
        """The study for programs; times in the unit of the chunk, shares from 0 to 1."""
        written: dict[str, object] = {
            "spec": self.spec.path,
            "order": self.order,
            "status": self.status,
            "witness": [
                {"property": name, "text": witness.text, "position": witness.position, "step": witness.op}
                for name, witness in self.faults
            ],
            "unit": self.chunk.unit,
            "layers": self.chunk.layers,
        }
        if self.runs is None or self.best is None:
            return written
        pair = self.runs[PAIR]
        return {
            **written,
            "issue_order": [str(step) for step in pair.sequence()],
            "blocks": {block: self._block(run) for block, run in self.runs.items()},
            "apart": plain(self.apart()),
            "windows": [self._cover(cover) for cover in pair.covers],
            "exposed": {name: plain(time) for name, time in self.exposed_by_component(pair).items()},
            "waits": [
                {
                    "start": self._time(wait.start),
                    "end": self._time(wait.end),
                    "step": str(wait.step),
                    "needs": str(wait.needs),
                }
                for wait in pair.waits
            ],
            "best": self._best(self.best),
            "unsettled": list(self.unsettled),
            "shuffled": [self._time(ticks) for ticks in self.shuffled],
            "costs": self.costs().as_written(),
            "measured": {name: plain(value) for name, value in (self.spec.measured or {}).items()},
            "left_out": list(self.left_out()),
        }

    def _time(self, ticks: int) -> int | str:
        return plain(self.chunk.time(ticks))

    def _block(self, run: Run) -> dict[str, object]:
        share = hidden(run)
        return {
            "duration": self._time(run.duration),
            "compute": self._time(run.load(COMPUTE)),
            "communication": self._time(run.load(COMMUNICATION)),
            "exposed": self._time(run.exposed),
            "hidden": None if share is None else plain(share),
            "exposed_by_component": {name: plain(time) for name, time in self.exposed_by_component(run).items()},
        }

    def _cover(self, cover: Cover) -> dict[str, object]:
        return {
            "step": str(cover.step),
            "start": self._time(cover.start),
            "end": self._time(cover.end),
            "under": [[str(step), self._time(ticks)] for step, ticks in cover.under],
            "exposed": self._time(cover.exposed),
            "slack": self._time(cover.slack),
        }

    def _best(self, found: Best) -> dict[str, object]:
        return {
            "status": found.status,
            "duration": self._time(found.run.duration),
            "lower_bound": self._time(found.bound),
            "bound": found.argument,
            "certificate": found.certificate,
            "hidden": None if (share := hidden(found.run)) is None else plain(share),
            "issue_order": [str(step) for step in found.run.sequence()],
            "seconds": round(found.seconds, 3),
        }

    def exposed_by_component(self, run: Run) -> dict[str, Fraction]:
        """What of each component's communication is exposed, the largest first."""
        sums: dict[str, int] = {}
        for cover in run.covers:
            sums[cover.step.name] = sums.get(cover.step.name, 0) + cover.exposed
        return {name: self.chunk.time(ticks) for name, ticks in sorted(sums.items(), key=lambda one: -one[1]) if ticks}


def hidden(run: Run) -> Fraction | None:
    """
    The share of communication that lies under computing; None where there is none.

    Examples
    --------
    >>> from verifier.window.reading import read_chunk
    >>> spec = read_chunk("specs/chunk-deepseek-v3.toml")
    >>> print(f"{float(hidden(study(spec, spec.orders['published']).runs['F&B'])):.1%}")
    98.8%
    """
    load = run.load(COMMUNICATION)
    return 1 - Fraction(run.exposed, load) if load else None


def study(
    spec: ChunkSpec,
    order: Order | None = None,
    *,
    sms: int | None = None,
    shuffles: int = 0,
    seed: int = 0,
    budget: float = 10.0,
) -> Study:
    """
    Judge an order of issue, and compare it with the best one.

    Parameters
    ----------
    order
        None for the best order; each block alone then has its own.
    sms
        As :meth:`Chunk.with_sms`.
    shuffles
        How many orders to draw at random.
    budget
        Seconds for the solver, over all blocks.

    Examples
    --------
    >>> from verifier.window.reading import read_chunk
    >>> spec = read_chunk("specs/chunk-deepseek-v3.toml")
    >>> found = study(spec, spec.orders["published"])
    >>> {block: float(found.duration(block)) for block in found.runs}
    {'F': 97.32, 'I': 111.64, 'W': 35.08, 'B': 114.03, 'F&B': 130.93}
    """
    chunk = spec.chunk if sms is None else spec.chunk.with_sms(sms)
    name = "best" if order is None else order.name
    if order is not None and (wrong := tuple(faults(order, chunk))):
        return Study(spec, chunk, name, wrong, scaled=sms)
    until = monotonic() + budget
    tasks = {block: steps for block in BLOCKS if (steps := chunk.tasks(block))}
    starts = [one for one in (*spec.orders.values(), *([order] if order else [])) if not any(faults(one, chunk))]
    pair = best(tasks[PAIR], [one.queues(tasks[PAIR]) for one in starts], budget=budget)
    interrupted, runs, unsettled = pair.interrupted, {PAIR: pair.run}, []
    for block in [block for block in tasks if block != PAIR or order is not None]:
        steps = tasks[block]
        if order is not None:
            runs[block] = _legal(replay(steps, order.queues(steps)))
            continue
        seconds = 0.0 if interrupted else max(0.0, until - monotonic())
        found = best(steps, [one.queues(steps) for one in starts], budget=seconds)
        runs[block], interrupted = found.run, interrupted or found.interrupted
        if found.status != "optimal":
            unsettled.append(block)
    runs = {block: runs[block] for block in tasks}
    drawn = sorted(_legal(replay(tasks[PAIR], queues)).duration for queues in shuffled(tasks[PAIR], seed, shuffles))
    return Study(spec, chunk, name, (), runs, pair, tuple(drawn), sms, interrupted, tuple(unsettled))


def _legal(result: Run | Circle) -> Run:
    """Less of a legal order is legal: what is not there waits for nothing."""
    assert isinstance(result, Run), "an order without faults runs"
    return result


def _comment(text: str) -> str:
    return one_line(text, 200)


def _quoted(text: str) -> str:
    """Text as TOML: JSON's escapes are among TOML's."""
    return json.dumps(text, ensure_ascii=False)


def _toml(value: Fraction) -> str:
    """A number as TOML: a decimal where one is exact, else text."""
    whole = value.denominator
    for prime in (2, 5):
        while whole % prime == 0:
            whole //= prime
    if whole != 1:
        return f'"{plain(value)}"'
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    text = str((value * 10**digits).numerator).rjust(digits + 1, "0")
    return f"{text[:-digits]}.{text[-digits:]}" if digits else text


def steps_text(steps: Sequence[Step]) -> str:
    """
    An order of issue as ``--order`` takes it.

    >>> steps_text([Step("mlp", "F", 0), Step("combine", "F", 0)])
    'mlp(F)0 combine(F)0'
    """
    return " ".join(map(str, steps))
