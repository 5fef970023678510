"""
Trial runs: a schedule executed by a real runtime in processes of this machine, and held against training without a pipeline.

Torch is imported by those processes only. They talk over gloo on the loopback interface.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

from verifier.model import Block, Schedule, ScheduleError, counted, plain, text_of
from verifier.runtimes.waiting import explain
from verifier.simulate import simulate

RUNTIMES = {"torch": "torch", "dualpipe": "dualpipe"}
"""What must be importable for each runtime, besides torch."""
FORMS = ("compute_only", "compute_comms")
TOLERANCE = 1e-6
MAX_RANKS = 64
"""Processes of the largest trial run."""
START_SECONDS = 180
"""For importing torch and for comparing at the end, on a machine that does other things too."""

Event = tuple[str, int, int]
"""A part such as ``2F0'``, its start and its end in nanoseconds."""


@dataclass(frozen=True)
class RunReport:
    """
    What came of a trial run.

    Attributes
    ----------
    status
        ``passed``; ``wrong`` if gradients, losses, copies or activations are not as they should be; ``hung``; or ``failed`` if
        the runtime stopped with an error.
    gradient_error
        The largest distance of a parameter's gradient from that of a single process, as a share of it, over all steps;
        ``worst`` says where.
    losses, reference_losses
        Per step, of the pipeline and of a single process.
    copies_equal
        Whether both copies of every stage are equal bit for bit after every step; None where there is one.
    peak_activations, predicted_activations
        Per rank: counted in the runtime by what autograd really kept, and following from the order.
    waiting
        Of a hang: what each rank waited for.
    error
        Of a failure: the last line of the first rank's complaint.
    events
        ``events[rank]``: every part that ran, in the order of time; of a hang or a failure those before it.
    """

    schedule: str
    runtime: str
    form: str
    ranks: int
    microbatches: int
    steps: int
    status: str
    seconds: float
    predicted_activations: tuple[Fraction, ...]
    gradient_error: float | None = None
    worst: str = ""
    losses: tuple[float, ...] = ()
    reference_losses: tuple[float, ...] = ()
    copies_equal: bool | None = None
    peak_activations: tuple[int, ...] = ()
    waiting: tuple[str, ...] = ()
    error: str = ""
    events: tuple[tuple[Event, ...], ...] = field(default=(), repr=False)

    @property
    def passed(self) -> bool:
        """Whether everything was as it should be."""
        return self.status == "passed"

    @property
    def medians(self) -> dict[str, float]:
        """Median time of every kind of part, in microseconds, without waiting for messages."""
        times: dict[str, list[int]] = defaultdict(list)
        for rank in self.events:
            for name, start, end in rank:
                times[next(letter for letter in name if letter in "FBIW")].append(end - start)
        return {kind: median(times[kind]) / 1000 for kind in "FBIW" if kind in times}

    def as_json(self) -> dict[str, object]:
        """The report for programs; the times themselves are in :meth:`trace`."""
        return {
            "schedule": self.schedule,
            "runtime": self.runtime,
            "form": self.form,
            "ranks": self.ranks,
            "microbatches": self.microbatches,
            "steps": self.steps,
            "status": self.status,
            "gradient_error": self.gradient_error,
            "worst": self.worst,
            "losses": list(self.losses),
            "reference_losses": list(self.reference_losses),
            "copies_equal": self.copies_equal,
            "peak_activations": list(self.peak_activations),
            "predicted_activations": [plain(peak) for peak in self.predicted_activations],
            "median_microseconds": self.medians,
            "waiting": list(self.waiting),
            "error": self.error,
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """The report for people."""
        where = f"{self.runtime} {self.form}" if self.runtime == "torch" else self.runtime
        processes = counted(self.ranks, "process", "processes")
        lines = [f"{self.schedule} on {where}: {self.status}, {processes}, {self.seconds:.1f} s"]
        if self.gradient_error is not None:
            lines.append(f"  gradients    largest relative error {self.gradient_error:.1e} ({self.worst})")
            losses = ", ".join(f"{a:.6g} ({b:.6g})" for a, b in zip(self.losses, self.reference_losses, strict=True))
            lines.append(f"  loss         {losses} (single process)")
            lines.append(f"  activations  {_row(self.peak_activations)}, predicted {_row(self.predicted_activations)}")
            if self.copies_equal is not None:
                lines.append(f"  copies       {'equal' if self.copies_equal else 'DIFFERENT'} after each of {self.steps} steps")
            times = ", ".join(f"{kind} {value:.0f}" for kind, value in self.medians.items())
            lines.append(f"  median times {times} microseconds")
        if self.error:
            lines.append(f"  {self.error}")
        lines += [f"  {line}" for line in self.waiting]
        return "\n".join(lines)

    def trace(self) -> str:
        """
        Every part that ran, as a Chrome trace that Perfetto shows and ``verifier costs`` reads.

        A rank is a process there; times are in microseconds and leave out waiting for messages.
        """
        begin = min((start for rank in self.events for _, start, _ in rank), default=0)
        events = [
            {"name": f"PP:{name}", "ph": "X", "pid": rank, "tid": 0, "ts": (start - begin) / 1000, "dur": (end - start) / 1000}
            for rank, parts in enumerate(self.events)
            for name, start, end in parts
        ]
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _row(numbers: tuple[int, ...] | tuple[Fraction, ...]) -> str:
    return " ".join(str(plain(number)) for number in numbers)


def run(
    schedule: Schedule,
    *,
    on: str = "torch",
    form: str | None = None,
    table: str | None = None,
    steps: int = 1,
    timeout: float = 20,
) -> RunReport:
    """
    Execute a schedule for real, one process per rank, and compare with a single process.

    A small model is trained for some steps in double precision. Whatever happens, and also on an interrupt, the processes are
    gone afterwards.

    Parameters
    ----------
    schedule
        What to run. Nobody asks here whether it is legal: a wrong one hangs, fails, or comes out wrong, and the report says so.
    on
        ``torch``: PyTorch's pipelining runtime; ``dualpipe``: DeepSeek's class.
    form
        For torch: ``compute_only``, the default for one weight copy, or ``compute_comms``.
    table
        For torch: a table to run as it stands, instead of what would be exported; ``schedule`` then says where stages are.
    steps
        Training steps.
    timeout
        Seconds without any progress that count as a hang.

    Raises
    ------
    ScheduleError
        If the runtime is unknown or not installed, or cannot execute such a schedule at all; or for more than 64 ranks.
    """
    if on not in RUNTIMES:
        raise ScheduleError(f"unknown runtime '{on}'; expected one of {', '.join(RUNTIMES)}")
    form = form or ("compute_only" if on == "torch" and schedule.problem.directions == 1 and table is None else "compute_comms")
    if form not in FORMS:
        raise ScheduleError(f"unknown form '{form}'; expected one of {', '.join(FORMS)}")
    if table is not None and on != "torch":
        raise ScheduleError(f"a table of cells runs on torch, not on {on}")
    if schedule.problem.ranks > MAX_RANKS:
        raise ScheduleError(
            f"a trial run starts one process per rank; expected at most {MAX_RANKS}, got {schedule.problem.ranks}"
        )
    _require("torch", RUNTIMES[on])
    started = time.monotonic()
    job = {
        "on": on,
        "form": form,
        "table": table if table is not None else _table(schedule, on, form),
        "placement": schedule.problem.placement,
        "microbatches": schedule.problem.microbatches,
        "order": [[str(block) for block in row] for row in schedule.order],
        "steps": steps,
        "timeout": timeout,
    }
    with tempfile.TemporaryDirectory(prefix="verifier-run-") as name:
        directory = Path(name)
        Path(directory, "job.json").write_text(json.dumps(job))
        watched = _Watched(schedule.problem.ranks)
        code = _execute(directory, watched, timeout)
        found = _findings(schedule, on, directory, watched, code)
    return RunReport(
        schedule=schedule.name or "schedule",
        runtime=on,
        form=form,
        ranks=schedule.problem.ranks,
        microbatches=schedule.problem.total_microbatches,
        steps=steps,
        seconds=time.monotonic() - started,
        predicted_activations=predicted_activations(schedule, on),
        events=tuple(map(tuple, watched.events)),
        **found,
    )


def predicted_activations(schedule: Schedule, on: str) -> tuple[Fraction, ...]:
    """
    The most activations that each rank will hold.

    These runtimes run the parts of a pair one after the other: torch as they are written, DeepSeek's class F first. A pair that
    is written F first, as everybody writes it, holds what the model says.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> [int(peak) for peak in predicted_activations(build_family("dualpipe", 4, 8), "torch")]
    [5, 5, 5, 5]
    """

    def apart(block: Block) -> list[Block]:
        parts = sorted(block.parts, key=lambda part: part.kind != "F" and on == "dualpipe")
        return [Block.parse(text_of([part])) for part in parts]

    order = tuple(tuple(part for block in row for part in apart(block)) for row in schedule.order)
    return simulate(Schedule(schedule.problem, order)).peak_activations


def _require(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            how = "pip install 'pipeline-schedule-verifier[torch]'" if module == "torch" else f"pip install {module}"
            raise ScheduleError(f"the package {module} is not installed, and the run needs it: {how}")


def _table(schedule: Schedule, on: str, form: str) -> object:
    """What the runtime will read: the text of a table, or instructions per rank; refuses what it could not execute."""
    if on == "dualpipe":
        from verifier.formats.dualpipe_table import instructions

        return instructions(schedule)
    from verifier.formats import torch_comms_csv, torch_csv

    torch_comms_csv.refuse_beyond_torch(schedule)
    return torch_comms_csv.dump(schedule) if form == "compute_comms" else torch_csv.dump(schedule)


# --------------------------------------------------------------------------------------------------------- the processes


class _Watched:
    """What the ranks said so far."""

    def __init__(self, ranks: int) -> None:
        self.done: list[set[str]] = [set() for _ in range(ranks)]
        self.events: list[list[Event]] = [[] for _ in range(ranks)]
        self.ready, self.finished = set[int](), set[int]()
        self.hung = False

    def hear(self, line: str) -> None:
        rank, word, *rest = line.split()
        if word == "done":
            cell, name, start, end = rest
            self.done[int(rank)].add(cell)
            self.events[int(rank)].append((name, int(start), int(end)))
        elif word == "step":
            self.done[int(rank)].clear()
        elif word == "ready":
            self.ready.add(int(rank))
        else:
            self.finished.add(int(rank))

    @property
    def training(self) -> bool:
        """Whether everybody is past the start and somebody is not yet through."""
        return len(self.ready) == len(self.done) > len(self.finished)


def _execute(directory: Path, watched: _Watched, timeout: float) -> int:
    """Start the processes, listen until they end or hang, and leave none behind; the exit code."""
    hear, progress = os.pipe()
    alive, hold = os.pipe()
    package = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    environment = {
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        # Torch leaves temporary folders behind when it is killed; these go with the directory.
        "TMPDIR": str(directory),
    }
    with Path(directory, "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "verifier.runtimes.worker", directory, str(progress), str(alive)],
            pass_fds=(progress, alive),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # A group of its own: Ctrl-C reaches this process alone, which then ends the whole group.
            start_new_session=True,
            env={**os.environ, **environment},
        )
    os.close(progress)
    os.close(alive)
    try:
        _listen(hear, watched, timeout)
        # What is left to do is to compare, or to leave.
        return -1 if watched.hung else process.wait(START_SECONDS)
    except subprocess.TimeoutExpired:
        return -1
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        # Whoever may be left leaves when this pipe ends, and the other one ends when the last is gone.
        os.close(hold)
        process.wait()
        while os.read(hear, 65536):
            pass
        os.close(hear)


def _listen(hear: int, watched: _Watched, timeout: float) -> None:
    """Take in what the ranks say until all have left, or nobody has said anything for too long."""
    rest = b""
    while True:
        patience = timeout if watched.training else START_SECONDS
        if not select.select([hear], [], [], patience)[0]:
            watched.hung = True
            return
        heard = os.read(hear, 65536)
        if not heard:
            return
        *lines, rest = (rest + heard).split(b"\n")
        for line in lines:
            watched.hear(line.decode())


# ------------------------------------------------------------------------------------------------------------- findings


def _findings(schedule: Schedule, on: str, directory: Path, watched: _Watched, code: int) -> dict[str, Any]:
    """The fields of the report that only the run could tell."""
    result = directory / "result.json"
    if code == 0 and result.exists():
        return _compared(schedule, on, json.loads(result.read_text()))
    complaints = sorted(directory.glob("error.*"), key=lambda path: path.stat().st_mtime_ns)
    waiting = tuple(_waiting(schedule, directory, watched))
    if complaints:
        error = f"rank {complaints[0].suffix[1:]}: {complaints[0].read_text()}"
        return {"status": "failed", "error": error, "waiting": waiting}
    if watched.hung:
        return {"status": "hung", "waiting": waiting}
    log = (directory / "log").read_text(errors="replace").strip().splitlines()
    return {"status": "failed", "error": log[-1] if log else f"the processes ended with code {code}"}


def _waiting(schedule: Schedule, directory: Path, watched: _Watched) -> Iterator[str]:
    ranks = range(schedule.problem.ranks)
    absent = [rank for rank in ranks if rank not in watched.ready]
    if absent:
        yield f"ranks {', '.join(map(str, absent))} did not come as far as the first step"
        return
    rows = [(directory / f"row.{rank}").read_text().split("\n") for rank in ranks]
    yield from explain(schedule.problem, rows, watched.done)


def _compared(schedule: Schedule, on: str, result: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in result.items()}
    losses = list(zip(found["losses"], found["reference_losses"], strict=True))
    right = (
        found["gradient_error"] < TOLERANCE
        and all(abs(loss - reference) <= TOLERANCE * abs(reference) for loss, reference in losses)
        and found["copies_equal"] is not False
        and found["peak_activations"] == predicted_activations(schedule, on)
    )
    return {"status": "passed" if right else "wrong", **found}
