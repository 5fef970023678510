"""
The points of a sweep, handed to an executor.

An executor is whatever speaks :mod:`concurrent.futures`: processes of this machine, or those of a Dask cluster. There is no
distribution of our own.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import active_children, get_context, parent_process

from verifier.formats.source import one_line
from verifier.model import ScheduleError
from verifier.sweep.measure import completed, measured
from verifier.sweep.points import Point

Start = Callable[[], AbstractContextManager[Executor]]
"""Starts an executor, and ends it and all that it started, also when it is left with an exception."""

TICK = 0.5
"""Seconds after which the caller gets a turn where nothing was done."""
AHEAD = 4
"""Points in the hands of the executor, per process: enough that none waits for the next."""
AHEAD_OF_CLUSTER = 1000
"""Points in the hands of a cluster, whose processes come and go."""


def rows_of(
    points: Sequence[Point],
    start: Start,
    window: int,
    measure: Callable[[Point], dict[str, object]] = measured,
) -> Generator[dict[str, object] | None, None, None]:
    """
    The rows of the points, in the order in which they get done; None now and then while nothing does.

    A point that raises, or that ends its process, has an error as its row. What else was running when a process died is done
    again, one point after the other, so that it is known which one it was.

    Parameters
    ----------
    window
        How many points the executor has at a time.
    measure
        What the executor calls; for tests.

    Raises
    ------
    ScheduleError
        If the executor gives points back undone, as when a cluster is gone.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> rows = rows_of([Point("1f1b", "", 4, 8)], ThreadPoolExecutor, 4)
    >>> [row["makespan"] for row in rows if row]
    [33]
    """
    waiting, suspects = deque(points), deque[Point]()
    while waiting or suspects:
        running: dict[Future[dict[str, object]], Point] = {}
        with start() as executor:
            try:
                while waiting or suspects or running:
                    queue, most = (suspects, 1) if suspects else (waiting, window)
                    while queue and len(running) < most:
                        with _no_interrupts():
                            future = executor.submit(measure, queue[0])
                        running[future] = queue.popleft()
                    done, _ = wait(running, TICK, FIRST_COMPLETED)
                    for future in done:
                        row = _row(future, running[future])
                        del running[future]
                        yield row
                    if not done:
                        yield None
            except BrokenExecutor:
                if len(running) == 1:
                    yield _failed(next(iter(running.values())), "its process died; perhaps it needs more memory than there is")
                else:
                    suspects.extend(running.values())


def _row(future: Future[dict[str, object]], point: Point) -> dict[str, object]:
    """What came of a point."""
    try:
        return future.result()
    except BrokenExecutor:
        raise
    except CancelledError:
        raise ScheduleError(
            "sweep: the executor is gone; what was done is kept, and the same command goes on from it"
        ) from None
    except Exception as error:  # noqa: BLE001 - one bad point must not lose the others
        return _failed(point, f"{type(error).__name__}: {error}")


def _failed(point: Point, why: str) -> dict[str, object]:
    return completed(point, {"status": "error", "reason": one_line(why)})


# ---------------------------------------- executors


def local(processes: int) -> tuple[Start, int]:
    """
    Processes of this machine, and how many points they have at a time.

    >>> start, window = local(1)
    >>> with start() as executor:
    ...     executor.submit(divmod, 7, 2).result()
    (3, 1)
    """

    @contextmanager
    def start() -> Iterator[Executor]:
        others = set(active_children())
        executor = ProcessPoolExecutor(processes, get_context("spawn"), _end_with_parent)
        try:
            yield executor
        except BaseException:
            # Points may take long, and nobody waits for them any more.
            executor.shutdown(wait=False, cancel_futures=True)
            ours = set(active_children()) - others
            for process in ours:
                process.terminate()
            for process in ours:
                process.join()
            raise
        executor.shutdown()

    return start, AHEAD * processes


def dask(address: str) -> tuple[Start, int]:
    """
    The processes of a Dask cluster, on which this package has to be installed, and how many points they have at a time.

    Parameters
    ----------
    address
        Of its scheduler, such as ``tcp://host:8786``.

    Raises
    ------
    ScheduleError
        If Dask is not installed.
    """
    try:
        from distributed import Client
    except ImportError:
        raise ScheduleError(
            "dask: needs distributed, which comes with pip install 'pipeline-schedule-verifier[dask]'"
        ) from None

    @contextmanager
    def start() -> Iterator[Executor]:
        with Client(address, set_as_default=False, timeout=10) as client:
            executor = client.get_executor()
            try:
                yield executor
            finally:
                executor.shutdown(wait=False)

    return start, AHEAD_OF_CLUSTER


def _end_with_parent() -> None:
    """In a process of ours: leave when the one that started us is gone, however it went."""
    parent = parent_process()
    assert parent is not None, "run in processes of a pool only"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """What is started in here never hears an interrupt from the keyboard; we hear it when we are through."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
