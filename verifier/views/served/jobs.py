"""
Jobs: a few child processes at a time, each with a deadline, each to be stopped by whoever holds its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from verifier.model import ScheduleError
from verifier.views.served.request import Request

COMMAND = (sys.executable, "-P", "-m", "verifier.views.served.work")
"""What a job runs."""
RUNNING = 2
"""Jobs at a time."""
KEPT = 6
"""Finished jobs whose files, up to 50 MB each, can still be had."""
LINE = 256 * 2**20
"""Bytes of the longest answer."""
GRACE = 20.0
"""Seconds in which a job that was asked to stop may still hand over what it has."""
AGAIN = 3.0
"""Seconds between interrupts."""


class BusyError(ScheduleError):
    """Too many jobs at a time."""


@dataclass
class Job:
    """
    One request and what became of it.

    Attributes
    ----------
    state
        ``running``, ``done``, ``failed`` (see ``error``) or ``cancelled``.
    progress
        What the work last told of itself.
    result
        What :func:`verifier.views.served.work.answer` found, or has found so far.
    missing
        What is not in the result yet; in the end also why not.
    """

    request: Request
    name: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    state: str = "running"
    progress: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    missing: str = ""
    error: str = ""
    began: float = field(default_factory=monotonic)
    seconds: float = 0.0
    stopping: bool = False
    process: asyncio.subprocess.Process | None = None
    task: asyncio.Task[None] | None = None

    def as_json(self) -> dict[str, object]:
        """What the page is told; files are asked for one by one."""
        seconds = self.seconds or monotonic() - self.began
        written: dict[str, object] = {"job": self.name, "state": self.state, "seconds": round(seconds, 1)}
        if self.state == "running":
            return {**written, "progress": self.progress, "stopping": self.stopping}
        result = {key: value for key, value in self.result.items() if key != "files"}
        told = {"error": self.error, "missing": self.missing}
        return {**written, **told, **result, "files": list(self.result.get("files", ()))}


class Jobs:
    """All jobs of a server."""

    def __init__(self) -> None:
        self._all: dict[str, Job] = {}

    def __getitem__(self, name: str) -> Job:
        return self._all[name]

    def start(self, request: Request) -> Job:
        """
        Begin a job.

        Raises
        ------
        BusyError
            If :data:`RUNNING` of them are under way.
        """
        if sum(job.state == "running" for job in self._all.values()) >= RUNNING:
            raise BusyError(f"{RUNNING} jobs are running, the limit; wait for one or cancel it")
        for job in [job for job in self._all.values() if job.state != "running"][: -KEPT + 1]:
            del self._all[job.name]
        job = Job(request)
        self._all[job.name] = job
        job.task = asyncio.create_task(self._follow(job))
        return job

    def stop(self, job: Job) -> None:
        """Ask a job to end; what a search has found until then is kept if it hands it over at once."""
        if job.state == "running" and not job.stopping:
            job.stopping = True
            _press(job, GRACE if job.progress else 0)

    async def close(self) -> None:
        """End all jobs at once."""
        for job in self._all.values():
            job.stopping = True
            _signal(job, signal.SIGKILL)
        await asyncio.gather(*(job.task for job in self._all.values() if job.task), return_exceptions=True)

    async def _follow(self, job: Job) -> None:
        """Start the process, and listen to it until it ends or its time is up."""
        try:
            async with asyncio.timeout(job.request.seconds):
                await self._listen(job)
        except TimeoutError:
            self._end(job, f"took longer than {job.request.seconds} s, the limit; the command line has none")
        finally:
            _signal(job, signal.SIGKILL)
            if job.process is not None:
                await job.process.wait()
            silent = "the work ended without an answer; the terminal of the server says more"
            self._end(job, "cancelled" if job.stopping else silent)
            job.seconds = monotonic() - job.began

    def _end(self, job: Job, why: str) -> None:
        """End a job before its work did: with what it told by then, if anything."""
        if job.state != "running":
            return
        if job.result:
            job.state, job.missing = "done", f"{job.missing}: {why}"
        elif job.stopping:
            job.state = "cancelled"
        else:
            job.state, job.error = "failed", why

    async def _listen(self, job: Job) -> None:
        job.process = process = await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE,
            start_new_session=True,
        )
        if job.stopping:
            # Asked for before there was a process to tell.
            _signal(job, signal.SIGKILL)
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(json.dumps({"source": job.request.source, **job.request.given}).encode() + b"\n")
            await process.stdin.drain()
        while line := await process.stdout.readline():
            told = json.loads(line)
            if "progress" in told:
                job.progress = told["progress"]
                continue
            if "error" in told and job.result:
                self._end(job, told["error"])
                continue
            job.error, job.missing = told.get("error", ""), told.get("missing", "")
            job.result = told.get("result") or {"table": told.get("table")}
            if not job.missing:
                job.state = "failed" if job.error else "done"


def _press(job: Job, seconds: float) -> None:
    """
    Interrupt a job, anew when nothing came of it since solvers swallow interrupts, and in the end kill it.

    What has told a result needs no interrupt any more, and might lose the rest to it.
    """
    if seconds > 0:
        if not job.result:
            _signal(job, signal.SIGINT)
        asyncio.get_running_loop().call_later(AGAIN, _press, job, seconds - AGAIN)
    else:
        _signal(job, signal.SIGKILL)


def _signal(job: Job, number: signal.Signals) -> None:
    """Send a signal to a job's process and all that it started."""
    if job.process is not None and job.process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.process.pid, number)
