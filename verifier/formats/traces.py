"""
Measured times to costs: Chrome traces as torch's profiler (Kineto) writes them, and as trial runs record them.

Torch's pipelining runtime marks every action with a range named ``PP:2F0`` (torch 2.13, ``_get_profiler_function_name``). On a
GPU the profiler records it twice, where the host issued the work and where the device did it; then the second counts. A range
on a CPU includes waiting for the action's input; those that trial runs record do not.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from pathlib import Path

from verifier.costs import CostModel
from verifier.formats.source import one_line, reason
from verifier.model import Block, ScheduleError, exact, plain

MAX_BYTES = 1 << 30
"""Of an unpacked trace."""

_RANGE = re.compile(r"PP:([^:]*?)(?:OVERLAP_F_B)?")

Where = tuple[str, int, int]
"""Kind of block, stage of its first part, stage of the other part or of the same."""


@dataclass(frozen=True)
class Spread:
    """
    What one kind of block takes on one stage, in microseconds.

    Attributes
    ----------
    low, high
        The 10th and the 90th percentile (nearest rank).
    """

    count: int
    median: Fraction
    low: Fraction
    high: Fraction

    @classmethod
    def of(cls, times: Sequence[Fraction]) -> Spread:
        """
        The spread of at least one time.

        >>> Spread.of([Fraction(n) for n in (5, 1, 2, 4)]).median
        Fraction(3, 1)
        """
        ordered = sorted(times)
        half = len(ordered) // 2
        middle = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
        return cls(len(ordered), middle, _rank(ordered, 10), _rank(ordered, 90))


def _rank(ordered: Sequence[Fraction], percent: int) -> Fraction:
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


@dataclass(frozen=True)
class Measured:
    """
    What traces say about times.

    Attributes
    ----------
    spread
        ``spread[kind, stage, other stage]``; of a pair the stages of F and of the backward, else the same stage twice.
    stages
        How many there are.
    left_out
        Measurements of a first step, which are not counted where others follow.
    """

    spread: Mapping[Where, Spread]
    stages: int
    left_out: int = 0

    def costs(self) -> CostModel:
        """
        The medians as a cost model, in microseconds, rounded to three digits of what is typical.

        Where a stage shows only B, or only I and W, the rest follows from B = I + W and from what other stages show. An
        overlapped pair is priced by the median, over all pairs, of its share of F + B.

        Raises
        ------
        ScheduleError
            If a stage has no forward or no backward in the trace.

        Examples
        --------
        >>> trace = '[{"ph": "X", "name": "PP:0F0", "dur": 12.5}, {"ph": "X", "name": "PP:0B0", "dur": 30}]'
        >>> read_trace(trace).costs().prices["W"]
        (Fraction(15, 1),)
        """
        return CostModel.of(**self._written())

    def _written(self) -> dict[str, object]:
        forward = [self._needed(stage, "F") for stage in range(self.stages)]
        step = _step(forward)
        written: dict[str, Sequence[Fraction]] = {"F": forward, **self._backwards()}
        rounded = {kind: [_rounded(time, step) for time in times] for kind, times in written.items()}
        found: dict[str, object] = dict(rounded)
        share = self._overlap(rounded)
        if share is not None:
            apart = sum(rounded["F"] + rounded["B"], Fraction(0)) / self.stages
            found["FB"] = _rounded(share * apart, step)
        if len(rounded) == 4 and all(i + w == b for i, w, b in zip(rounded["I"], rounded["W"], rounded["B"], strict=True)):
            del found["B"]
        return found

    def _median(self, kind: str, stage: int) -> Fraction | None:
        found = self.spread.get((kind, stage, stage))
        return found.median if found else None

    def _needed(self, stage: int, kind: str) -> Fraction:
        time = self._median(kind, stage)
        if time is None:
            raise ScheduleError(f"trace: no {kind} of stage {stage} in it, while stage {self.stages - 1} is there")
        return time

    def _backwards(self) -> dict[str, list[Fraction]]:
        """B of every stage, and I and W if any stage shows them."""
        halves = [(self._median("I", stage), self._median("W", stage)) for stage in range(self.stages)]
        split = [(i, w) for i, w in halves if i is not None and w is not None]
        total = sum((i + w for i, w in split), Fraction(0))
        share = sum((i for i, _ in split), Fraction(0)) / total if total else Fraction(1, 2)
        backwards = [self._backward(stage, share) for stage in range(self.stages)]
        return {
            kind: [times[index] for times in backwards]
            for kind, index in (("I", 1), ("W", 2), ("B", 0))
            if split or kind == "B"
        }

    def _backward(self, stage: int, share: Fraction) -> tuple[Fraction, Fraction, Fraction]:
        """B, I and W of a stage; ``share`` is what I usually has of both."""
        whole, i, w = (self._median(kind, stage) for kind in "BIW")
        if whole is None:
            if i is None or w is None:
                raise ScheduleError(f"trace: stage {stage} has neither a full backward nor both of its halves in it")
            return i + w, i, w
        if i is None:
            i = whole * share if w is None else max(whole - w, Fraction(0))
        return whole, i, max(whole - i, Fraction(0)) if w is None else w

    def _overlap(self, times: Mapping[str, Sequence[Fraction]]) -> Fraction | None:
        """What an overlapped pair takes as a share of its parts; None if there is none in the trace."""
        shares = [
            spread.median / apart
            for (kind, forward, backward), spread in self.spread.items()
            if kind == "F&B" and (apart := times["F"][forward] + times["B"][backward])
        ]
        return Spread.of(shares).median if shares else None

    def as_toml(self, source: str = "") -> str:
        """
        A ``[costs]`` table, with the spread of every median as comments.

        Examples
        --------
        >>> trace = '[{"ph": "X", "name": "PP:0F0", "dur": 12.5}, {"ph": "X", "name": "PP:0B0", "dur": 30}]'
        >>> print(read_trace(trace).as_toml())
        # Medians in microseconds; in brackets the 10th and the 90th percentile and the number of measurements.
        # Of a single step, so that warming up is counted.
        # F of stage 0: 12.5 (12.5 to 12.5, 1)
        # B of stage 0: 30 (30 to 30, 1)
        [costs]
        F = [12.5]
        B = [30]
        """
        head = f"Measured in {one_line(source, 60)}: medians" if source else "Medians"
        lines = [f"# {head} in microseconds; in brackets the 10th and the 90th percentile and the number of measurements."]
        first = f"Without the first of several steps ({self.left_out} measurements), which warms up."
        lines.append(f"# {first if self.left_out else 'Of a single step, so that warming up is counted.'}")
        for (kind, stage, other), spread in sorted(self.spread.items(), key=lambda item: ("FBIW".find(item[0][0]), item[0])):
            stages = f"stage {stage}" if "&" not in kind else f"stages {stage} and {other}"
            low, high = _decimal(spread.low), _decimal(spread.high)
            lines.append(f"# {kind} of {stages}: {_decimal(spread.median)} ({low} to {high}, {spread.count})")
        lines += [f"# Not measured, but {how}: {what}" for how, what in self._derived_in_words()]
        lines.append("[costs]")
        for key, value in self._written().items():
            numbers = f"[{', '.join(map(_decimal, value))}]" if isinstance(value, list) else _decimal(value)
            lines.append(f"{key} = {numbers}")
        return "\n".join(lines) + "\n"

    def _derived(self) -> Iterator[tuple[str, int, str]]:
        """Which kinds were written for which stage without having been measured there, and what from."""
        written = self._written()
        halves = [(self._median("I", stage), self._median("W", stage)) for stage in range(self.stages)]
        split = any(i + w for i, w in halves if i is not None and w is not None)
        for stage, (i, w) in enumerate(halves):
            if self._median("B", stage) is None:
                yield from [("B", stage, "I + W")] * ("B" in written)
            elif "I" in written and i is w is None:
                yield from ((kind, stage, "B, split as elsewhere" if split else "B, in equal halves") for kind in "IW")
            elif "I" in written and None in (i, w):
                yield ("I", stage, "B - W") if i is None else ("W", stage, "B - I")

    def _derived_in_words(self) -> Iterator[tuple[str, str]]:
        """The same as lines of how, and of what on which stages."""
        ways = {
            "I + W": "from B = I + W",
            "B - I": "from B = I + W",
            "B - W": "from B = I + W",
            "B, split as elsewhere": "B split as on stages that show both halves",
            "B, in equal halves": "B split into equal halves",
        }
        kinds: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for kind, stage, source in self._derived():
            kinds[ways[source]][stage].append(kind)
        for how, by_stage in kinds.items():
            alike: dict[str, list[str]] = defaultdict(list)
            for stage, missing in by_stage.items():
                alike[" and ".join(missing)].append(str(stage))
            where = (f"{what} of stage{'s' * (len(of) > 1)} {', '.join(of)}" for what, of in alike.items())
            yield how, "; ".join(where)

    def as_json(self) -> dict[str, object]:
        """The same for programs."""
        return {
            "unit": "microseconds",
            "costs": self.costs().as_written(),
            "measured": [
                {
                    "kind": kind,
                    "stages": [stage, other] if "&" in kind else [stage],
                    "count": spread.count,
                    "median": plain(spread.median),
                    "low": plain(spread.low),
                    "high": plain(spread.high),
                }
                for (kind, stage, other), spread in sorted(self.spread.items())
            ],
            "derived": [{"kind": kind, "stage": stage, "from": source} for kind, stage, source in sorted(self._derived())],
            "left_out": self.left_out,
        }


# -------------------------------------------------------------------------------------------------------------- reading


def load_traces(paths: Iterable[str | Path], *, stages: int | None = None) -> Measured:
    """
    Read traces together, plain or gzipped; torch's profiler writes one per rank.

    What a trace shows again is another step; then its first step, in which memory is allocated and kernels are chosen, does
    not count.

    Parameters
    ----------
    paths
        At least one.
    stages
        How many stages the model has, if the trace numbers those of two weight copies one after the other.

    Raises
    ------
    ScheduleError
        If a file cannot be read, is no trace, or has no range of a pipeline action.
    """
    times: dict[Where, list[Fraction]] = defaultdict(list)
    left_out = 0
    for path in paths:
        try:
            left_out += _gather(_unpacked(Path(path)), stages, times)
        except ScheduleError as error:
            raise ScheduleError(one_line(f"{path}: {error}")) from None
        except (OSError, ValueError, EOFError, zlib.error) as error:
            said = reason(error) if isinstance(error, OSError | ValueError) else str(error)
            raise ScheduleError(one_line(f"{path}: cannot be read: {said}")) from None
    return _measured(times, left_out)


def read_trace(text: str, *, stages: int | None = None) -> Measured:
    """
    Read the text of one trace.

    Parameters
    ----------
    text
        JSON: an object with ``traceEvents``, or the list of events itself.
    stages
        As in :func:`load_traces`.

    Raises
    ------
    ScheduleError
        As :func:`load_traces`.

    Examples
    --------
    >>> read_trace('{"traceEvents": [{"ph": "X", "name": "PP:(2F1;5B0)OVERLAP_F_B", "dur": 7}]}', stages=4).spread
    {('F&B', 2, 1): Spread(count=1, median=Fraction(7, 1), low=Fraction(7, 1), high=Fraction(7, 1))}
    """
    times: dict[Where, list[Fraction]] = defaultdict(list)
    return _measured(times, _gather(text, stages, times))


def _measured(times: Mapping[Where, Sequence[Fraction]], left_out: int) -> Measured:
    if not times:
        raise ScheduleError('no range such as "PP:2F0" in it; profile a step of the pipelining runtime, or record a trial run')
    spread = {where: Spread.of(times[where]) for where in sorted(times)}
    return Measured(spread, 1 + max(max(where[1:]) for where in spread), left_out)


def _unpacked(path: Path) -> str:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with gzip.open(path) if packed else path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ScheduleError(f"more than {MAX_BYTES // 2**20} MiB, the largest trace that is read")
    return data.decode("utf-8", errors="replace")


def _gather(text: str, stages: int | None, times: Mapping[Where, list[Fraction]]) -> int:
    """Add every computed action of a trace and how long it took, but not those of a first step; how many these were."""
    ranges: dict[tuple[str, ...], list[tuple[Fraction, Where, Fraction]]] = defaultdict(list)
    for event, where in _actions(text, stages):
        # The device has a range for every stream that worked on an action: the same name at one place means another step.
        place = tuple(str(event.get(key)) for key in ("name", "pid", "tid"))
        moment = exact(event.get("ts", 0), f"{event['name']}: ts")
        ranges[place].append((moment, where, exact(event.get("dur"), f"{event['name']}: dur")))
    left_out = 0
    for found in ranges.values():
        found.sort(key=itemgetter(0))
        for _, where, time in found[len(found) > 1 :]:
            times[where].append(time)
        left_out += len(found) > 1
    return left_out


def _actions(text: str, stages: int | None) -> Iterator[tuple[dict[str, object], Where]]:
    """Every computed action of a trace, and what it is about."""
    try:
        # Numbers stay text: times must be exact, and nobody needs the others.
        trace = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        raise ScheduleError("no JSON; expected a Chrome trace such as torch's profiler exports") from None
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(events, list):
        raise ScheduleError("expected a list of events, or an object with traceEvents")
    found = [event for event in events if isinstance(event, dict) and str(event.get("name")).startswith("PP:")]
    on_device = [event for event in found if event.get("cat") == "gpu_user_annotation"]
    for event in on_device or found:
        where = _where(str(event["name"]), stages)
        if event.get("ph") == "X" and where:
            yield event, where


def _where(name: str, stages: int | None) -> Where | None:
    """What a range is about; None for messages and the like."""
    match = _RANGE.fullmatch(name)
    try:
        block = Block.parse(match[1]) if match else None
    except ScheduleError:
        return None
    if block is None:
        return None
    parts = sorted(block.parts, key=lambda part: "FBIW".index(part.kind))
    first, last = (part.stage % stages if stages else part.stage for part in (parts[0], parts[-1]))
    return block.kind, first, last


# ------------------------------------------------------------------------------------------------------------- numbers


def _step(times: Sequence[Fraction]) -> Fraction:
    """The power of ten that leaves three digits of a typical time."""
    typical, step = Spread.of(times).median, Fraction(1, 1000)
    while typical >= 1000 * step:
        step *= 10
    return step


def _rounded(time: Fraction, step: Fraction) -> Fraction:
    return round(time / step) * step


def _decimal(number: object) -> str:
    """A rational with few decimals, as text."""
    rounded = Fraction(round(Fraction(str(number)) * 1000), 1000)
    return str(rounded) if rounded.denominator == 1 else f"{float(rounded):.3f}".rstrip("0")
