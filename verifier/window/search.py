"""
The best order of issue: shown shortest where a solver-free bound or the solver says so, else the best found with its gap.

Two machines, a time for each step and needs between steps are a job shop; CP-SAT solves it, and replay has the last word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING

from verifier.solvers.questions import ReplayError
from verifier.window.bound import lower_bound, tails
from verifier.window.chunk import RESOURCES, TRANSFER, Step, Task
from verifier.window.refuting import NAME, question, shorter
from verifier.window.replay import Queues, Run, replay

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver, IntVar

SOLVER = "CP-SAT"

MAX_ASKED = 300
"""Steps up to which Z3 is asked as well; what it is told grows with their square."""


@dataclass(frozen=True)
class Best:
    """
    The shortest order that was found.

    Attributes
    ----------
    bound
        Ticks that every order needs, and ``argument`` for it: solver-free, or who refuted anything shorter.
    certificate
        ``bound`` where the order meets the solver-free bound, ``two solvers`` where CP-SAT and Z3 refuted anything shorter,
        ``one solver`` where only CP-SAT had the time to, or none.
    interrupted
        Whether a person ended the search.
    """

    run: Run
    bound: int
    argument: str
    certificate: str | None
    seconds: float
    interrupted: bool = False

    @property
    def status(self) -> str:
        """``optimal``, or ``feasible`` where a gap is open."""
        return "optimal" if self.certificate else "feasible"


def best(tasks: Mapping[Step, Task], known: Iterable[Queues] = (), *, budget: float = 10.0) -> Best:
    """
    The order of issue with the least duration.

    Parameters
    ----------
    tasks
        In an order in which each comes after what it needs.
    known
        Legal orders to start from.
    budget
        Seconds of the wall clock for the solvers; none are asked where it is 0.

    Raises
    ------
    ReplayError
        If replay takes longer than a solver says, or the solvers contradict one another: then the model is wrong.

    Notes
    -----
    Among the shortest orders one whose transfers end early is preferred, as far as the budget goes.

    Examples
    --------
    >>> from verifier.window.reading import read_chunk
    >>> chunk = read_chunk("specs/chunk-deepseek-v3.toml").chunk
    >>> found = best(chunk.tasks("F&B"))
    >>> found.status, found.certificate, float(chunk.time(found.run.duration))
    ('optimal', 'bound', 130.93)
    """
    begin = monotonic()
    bound, argument = lower_bound(tasks)
    runs = [_legal(tasks, queues) for queues in (*known, largest_tail_first(tasks))]
    shortest = min(runs, key=_quality)
    certificate, interrupted = None, False
    transfers = any(step.component == TRANSFER for step in tasks)
    if budget > 0 and (shortest.duration > bound or transfers):
        found, proved, interrupted = _solved(tasks, shortest, bound, budget)
        shortest = min((shortest, found), key=_quality)
        if proved and shortest.duration > bound:
            bound, argument, certificate = shortest.duration, SOLVER, "one solver"
            if not interrupted:
                confirmed, interrupted = _confirmed(tasks, bound, begin + budget - monotonic())
                if confirmed:
                    argument, certificate = f"{SOLVER} and {NAME}", "two solvers"
    if shortest.duration == bound and certificate is None:
        certificate = "bound"
    return Best(shortest, bound, argument, certificate, monotonic() - begin, interrupted)


def _confirmed(tasks: Mapping[Step, Task], duration: int, seconds: float) -> tuple[bool, bool]:
    """Whether Z3, too, says that nothing is shorter, and whether a person ended the search."""
    if seconds <= 0 or len(tasks) > MAX_ASKED:
        return False, False
    try:
        answer = shorter(tasks, duration - 1, seconds=seconds)
    except KeyboardInterrupt:
        return False, True
    if answer.status == "sat":
        raise ReplayError(f"the solvers contradict one another:\n{question(tasks, duration - 1)}")
    return answer.status == "unsat", False


def _quality(run: Run) -> tuple[int, int]:
    """What makes an order better: its duration, then how early its transfers are through."""
    return run.duration, sum(run.end(step) for step in run.start if step.component == TRANSFER)


def _legal(tasks: Mapping[Step, Task], queues: Queues) -> Run:
    """Replay an order that has to be legal."""
    run = replay(tasks, queues)
    if not isinstance(run, Run):
        raise ReplayError(f"a legal order of issue was expected: {run}")
    return run


def largest_tail_first(tasks: Mapping[Step, Task]) -> Queues:
    """
    A quick order: what can start first does, of several the one with the most behind it.

    Examples
    --------
    >>> first, second = Step("mlp", "W", 0), Step("mlp", "I", 0)
    >>> send = Step("dispatch", "I", 0)
    >>> tasks = {first: Task(first, "compute", 5, ()), second: Task(second, "compute", 5, ())}
    >>> tasks[send] = Task(send, "communication", 9, (second,))
    >>> [str(step) for step in largest_tail_first(tasks)["compute"]]
    ['mlp(I)0', 'mlp(W)0']
    """
    tail = tails(tasks)
    free = dict.fromkeys(RESOURCES, 0)
    end: dict[Step, int] = {}
    queues: dict[str, list[Step]] = {resource: [] for resource in RESOURCES}
    left = dict(tasks)
    while left:
        ready = [task for task in left.values() if all(needs in end for needs in task.needs)]
        start = {task.step: max([free[task.resource], *(end[needs] for needs in task.needs)]) for task in ready}
        task = min(ready, key=lambda one: (start[one.step], -tail[one.step]))
        end[task.step] = free[task.resource] = start[task.step] + task.ticks
        queues[task.resource].append(task.step)
        del left[task.step]
    return queues


# ---------------------------------------- the solver


def _solved(tasks: Mapping[Step, Task], hint: Run, bound: int, budget: float) -> tuple[Run, bool, bool]:
    """The best order that CP-SAT finds, whether it refuted anything shorter, and whether a person ended the search."""
    from ortools.sat.python import cp_model

    until = monotonic() + budget
    model = cp_model.CpModel()
    start = _job_shop(model, tasks, hint.duration)
    end = model.new_int_var(bound, hint.duration, "end")
    for step, task in tasks.items():
        model.add(end >= start[step] + task.ticks)
        model.add_hint(start[step], hint.start[step])
    model.minimize(end)
    solver = _solver(until)
    status, interrupted = _ask(solver, model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return hint, False, interrupted
    run = _believed(tasks, solver, start, round(solver.objective_value))
    proved = status == cp_model.OPTIMAL
    sent = [step for step in tasks if step.component == TRANSFER]
    if not sent or interrupted:
        return run, proved, interrupted
    # Among the orders of this duration one whose transfers are through early.
    model.add(end <= run.duration)
    model.minimize(sum(start[step] for step in sent))
    solver = _solver(until)
    status, interrupted = _ask(solver, model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        run = min((run, _believed(tasks, solver, start, run.duration)), key=_quality)
    return run, proved, interrupted


def _job_shop(model: CpModel, tasks: Mapping[Step, Task], horizon: int) -> dict[Step, IntVar]:
    """A start for every step, none before what it needs is done, one step at a time on each resource."""
    start = {step: model.new_int_var(0, horizon - task.ticks, f"start[{step}]") for step, task in tasks.items()}
    for step, task in tasks.items():
        for needs in task.needs:
            model.add(start[step] >= start[needs] + tasks[needs].ticks)
    for resource in RESOURCES:
        model.add_no_overlap(
            model.new_fixed_size_interval_var(start[step], task.ticks, str(step))
            for step, task in tasks.items()
            if task.resource == resource
        )
    return start


def _solver(until: float) -> CpSolver:
    """One worker, which is deterministic but for its time limit."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = max(0.01, until - monotonic())
    solver.parameters.catch_sigint_signal = False
    return solver


def _ask(solver: CpSolver, model: CpModel) -> tuple[int, bool]:
    """What the solver answers, and whether it was interrupted; it runs in a thread, since Python cannot interrupt it."""
    said: SimpleQueue[int | BaseException] = SimpleQueue()

    def run() -> None:
        try:
            said.put(int(solver.solve(model)))
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            said.put(error)

    Thread(target=run, daemon=True).start()
    interrupted, answer = False, None
    while answer is None:
        try:
            answer = _heard(said)
        except KeyboardInterrupt:
            interrupted = True
            solver.stop_search()
    if isinstance(answer, BaseException):
        raise answer
    return answer, interrupted


def _heard(said: SimpleQueue[int | BaseException]) -> int | BaseException:
    """Wait in short steps, so that an interrupt is seen."""
    while True:
        with suppress(Empty):
            return said.get(timeout=0.05)


def _believed(tasks: Mapping[Step, Task], solver: CpSolver, start: Mapping[Step, IntVar], duration: int) -> Run:
    """The solver's order, replayed; starting everything as early as possible can only be shorter."""
    queues = {
        resource: sorted(
            (step for step, task in tasks.items() if task.resource == resource), key=lambda step: solver.value(start[step])
        )
        for resource in RESOURCES
    }
    run = _legal(tasks, queues)
    if run.duration > duration:
        raise ReplayError(f"replay takes {run.duration} ticks, the solver said {duration}")
    return run
