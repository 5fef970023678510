"""
Timelines as Trace Event JSON, which ui.perfetto.dev and chrome://tracing show.

A process per rank with a track for compute, tracks for the messages that it sends, and a counter of the activations that it
holds; arrows lead from every block to those that read its results. Only writing: what a trace says about times is read by
``traces``.

References
----------
Google, "Trace Event Format": phases X (slice), C (counter), s and f (ends of an arrow), M (names). An end of an arrow
belongs to the slice that is open at its time; some viewers want its category and its very beginning, so both are given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from heapq import heappop, heappush

from verifier.costs import CostModel
from verifier.gaps import inputs
from verifier.model import Block, Op, Schedule, ScheduleError, Timeline, plain
from verifier.simulate import Simulation, simulate

COMPUTE, MESSAGES = 0, 1
"""Thread numbers: of compute, and of the first track of messages."""

_MAX_NANOSECONDS = 2**53
"""Beyond it JSON numbers are no longer exact."""

Event = dict[str, object]


def dump(schedule: Schedule, costs: CostModel | None = None) -> str:
    """
    The earliest timeline of a schedule as a trace.

    One unit of the costs is a microsecond, or where that would not be whole nanoseconds, one tick is; ``otherData`` says so. A
    message is drawn for the time of its hop; tracks are added where several are on their way at once. Arrows from or to blocks
    that take no time are left out, since nothing is open there that they could be bound to.

    Raises
    ------
    ScheduleError
        If the order has no timeline, or its times have too many digits for JSON.

    Notes
    -----
    Linear in the number of blocks, but for sorting messages.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> trace = json.loads(dump(build_family("1f1b", 2, 2)))
    >>> [(event["name"], event["ts"], event["dur"]) for event in trace["traceEvents"] if event["ph"] == "X"][:3]
    [('0F0', 0, 1), ('0F1', 1, 1), ('0B0', 4, 2)]
    """
    costs = costs or CostModel.of()
    simulation = simulate(schedule, costs)
    if simulation.timeline is None:
        raise ScheduleError(f"trace: no timeline exists: {simulation.circle}")
    clock = _Clock(simulation.timeline)
    messages, tracks = _messages(simulation, simulation.timeline, clock)
    events = (*_names(simulation, tracks), *_compute(simulation, simulation.timeline, clock), *messages)
    other = {"schedule": schedule.name, "costs": costs.as_written(), "microseconds per unit": clock.microseconds_per_unit}
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    return f'{{"displayTimeUnit":"ns","otherData":{json.dumps(other)},"traceEvents":[\n{lines}\n]}}\n'


class _Clock:
    """Ticks in the time of a trace: microseconds with at most three decimals."""

    def __init__(self, timeline: Timeline) -> None:
        per_unit = timeline.ticks_per_unit
        fine = 1000 % per_unit == 0
        self.microseconds_per_unit = 1 if fine else per_unit
        self._nanoseconds_per_tick = 1000 // per_unit if fine else 1000
        if timeline.makespan_ticks * self._nanoseconds_per_tick >= _MAX_NANOSECONDS:
            raise ScheduleError("trace: times need more digits than JSON numbers have; use rounder costs")

    def __call__(self, ticks: int) -> int | float:
        nanoseconds = ticks * self._nanoseconds_per_tick
        return nanoseconds / 1000 if nanoseconds % 1000 else nanoseconds // 1000


def _names(simulation: Simulation, tracks: int) -> Iterator[Event]:
    """What processes and tracks are called."""
    for rank in range(len(simulation.first)):
        yield _named("process_name", rank, COMPUTE, name=f"rank {rank}")
        yield _named("process_sort_index", rank, COMPUTE, sort_index=rank)
        yield _named("thread_name", rank, COMPUTE, name="compute")
        for track in range(tracks):
            yield _named(
                "thread_name", rank, MESSAGES + track, name="messages" if not track else f"messages, track {track + 1}"
            )


def _named(what: str, rank: int, track: int, **said: object) -> Event:
    return {"ph": "M", "name": what, "pid": rank, "tid": track, "args": said}


# ---------------------------------------- compute


def _compute(simulation: Simulation, timeline: Timeline, clock: _Clock) -> Iterator[Event]:
    """Per block its slice, the arrows that end and begin there, and what the rank holds while it runs and afterwards."""
    flows = _flows(simulation, timeline)
    for rank, row in enumerate(simulation.schedule.order):
        held = 0
        for position, block in enumerate(row):
            start, span = timeline.start[rank][position], timeline.duration[rank][position]
            yield {
                "ph": "X",
                "name": simulation.schedule.text(block),
                "cat": "compute",
                "pid": rank,
                "tid": COMPUTE,
                "ts": clock(start),
                "dur": clock(span),
                "args": _said(block, position, start, span, timeline.ticks_per_unit),
            }
            for phase, number in flows[simulation.first[rank] + position]:
                # The end of an arrow is bound to the slice around it only if it says so.
                bound = {"bp": "e"} if phase == "f" else {}
                arrow = {"ph": phase, "name": "input", "cat": "compute", "id": number}
                yield {**arrow, "pid": rank, "tid": COMPUTE, "ts": clock(start), **bound}
            during = simulation.held_steps[rank][position]
            held = held + sum(map(simulation.costs.activation_steps, block.ops))
            for moment, steps in ((start, during), (start + span, held)):
                live = Fraction(steps, simulation.costs.steps_per_activation)
                counted = {"activations": live.numerator if live.denominator == 1 else float(live)}
                yield {"ph": "C", "name": "live activations", "pid": rank, "ts": clock(moment), "args": counted}


def _said(block: Block, position: int, start: int, span: int, scale: int) -> dict[str, object]:
    """What a viewer shows of a block that is clicked on: exact times among it."""
    parts = block.parts
    return {
        "kind": block.kind,
        "position": position,
        "stages": [part.stage for part in parts],
        "microbatches": [part.microbatch for part in parts],
        "directions": [part.direction for part in parts],
        "start": plain(Fraction(start, scale)),
        "duration": plain(Fraction(span, scale)),
    }


def _flows(simulation: Simulation, timeline: Timeline) -> list[list[tuple[str, int]]]:
    """``flows[node]``: the arrows that end (f) and begin (s) at a block, by number."""
    takes_time = [span > 0 for spans in timeline.duration for span in spans]
    flows: list[list[tuple[str, int]]] = [[] for _ in takes_time]
    arrows = (arrow for arrow in _reading(simulation) if takes_time[arrow[0]] and takes_time[arrow[1]])
    for number, (producer, reader, _) in enumerate(arrows, 1):
        flows[producer].append(("s", number))
        flows[reader].append(("f", number))
    return flows


def _reading(simulation: Simulation) -> Iterator[tuple[int, int, Op]]:
    """Who reads whose results: producer and reader as nodes, and what is read."""
    for node in simulation.graph:
        for source, op in inputs(simulation, node):
            yield source, node, op


# ---------------------------------------- messages


def _messages(simulation: Simulation, timeline: Timeline, clock: _Clock) -> tuple[list[Event], int]:
    """The messages of all ranks, and how many tracks they need."""
    waiting: list[list[tuple[int, int, str]]] = [[] for _ in simulation.first]
    for producer, reader, op in _reading(simulation):
        (sender, position), (receiver, _) = simulation.where(producer), simulation.where(reader)
        if sender != receiver:
            sent = timeline.start[sender][position] + timeline.duration[sender][position]
            arrived = sent + simulation.costs.hop_ticks(sender, receiver)
            waiting[sender].append((sent, arrived, f"{simulation.schedule.spoken(op)} to rank {receiver}"))
    events: list[Event] = []
    tracks = 1
    for rank, messages in enumerate(waiting):
        free: list[tuple[int, int]] = []
        for sent, arrived, name in sorted(messages):
            # The track that has been free for longest, if one is.
            track = heappop(free)[1] if free and free[0][0] <= sent else len(free)
            heappush(free, (arrived, track))
            events.append(
                {
                    "ph": "X",
                    "name": name,
                    "cat": "message",
                    "pid": rank,
                    "tid": MESSAGES + track,
                    "ts": clock(sent),
                    "dur": clock(arrived - sent),
                }
            )
        tracks = max(tracks, len(free))
    return events, tracks
