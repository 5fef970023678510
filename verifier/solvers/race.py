"""
Solvers side by side, one on each core: the first that knows the answer stops the others, and so does an interrupt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic

from verifier.solvers.questions import Answer


class Stop:
    """
    A way to end a solver that Python cannot interrupt.

    Examples
    --------
    >>> stop = Stop()
    >>> stop.calls(lambda: print("stopped"))
    >>> stop.now()
    stopped
    """

    def __init__(self) -> None:
        self._lock, self._stopped = Lock(), False
        self._calls: list[Callable[[], object]] = []

    def calls(self, call: Callable[[], object]) -> None:
        """Call this when it is time to stop; at once where that is past."""
        with self._lock:
            self._calls.append(call)
            stopped = self._stopped
        if stopped:
            call()

    def now(self) -> None:
        """Stop."""
        with self._lock:
            self._stopped, calls = True, list(self._calls)
        for call in calls:
            call()


def race(solvers: Sequence[Callable[[Stop], Answer]], stagger: float = 0.0) -> Answer:
    """
    The first answer that is not unknown; else the last one.

    Parameters
    ----------
    stagger
        Seconds between the start of one solver and the next, unless there is an answer by then.

    Raises
    ------
    BaseException
        What a solver raised, and ``KeyboardInterrupt`` after all have stopped.

    Examples
    --------
    >>> race([lambda stop: Answer("unknown", "one", 0), lambda stop: Answer("unsat", "other", 0)]).who
    'other'
    """
    stop: Stop = Stop()
    said: SimpleQueue[Answer | BaseException] = SimpleQueue()

    def run(solver: Callable[[Stop], Answer]) -> None:
        try:
            said.put(solver(stop))
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            said.put(error)

    threads = [Thread(target=run, args=(solver,), daemon=True) for solver in solvers]
    waiting, running, answer = list(threads), 0, Answer("unknown", "nobody", 0.0)
    try:
        while waiting or running:
            if waiting:
                waiting.pop(0).start()
                running += 1
            heard = _hear(said, stagger if waiting else None)
            if heard is not None:
                running, answer = running - 1, heard
            if answer.status != "unknown":
                break
    finally:
        stop.now()
        for thread in threads:
            if thread.is_alive():
                thread.join()
    return answer


def _hear(said: SimpleQueue[Answer | BaseException], seconds: float | None) -> Answer | None:
    """Wait for the next answer, in short steps, so that an interrupt is seen; None where none came in time."""
    until = None if seconds is None else monotonic() + seconds
    while until is None or monotonic() < until:
        try:
            heard = said.get(timeout=0.05)
        except Empty:
            continue
        if isinstance(heard, BaseException):
            raise heard
        return heard
    return None
