"""
Orders of issue: as people write them, judged, restricted to a part of the steps, and at random.

A list with layers names every step once. A list without layers is that of one layer, forward layer k beside backward layer
L-1-k, repeated for all. Two lists, one per resource, leave open in which order the host issues between them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from verifier.formats.source import one_line, reason
from verifier.model import ScheduleError, Witness
from verifier.specs import in_file
from verifier.window.chunk import COMMUNICATION, COMPUTE, RESOURCES, TRANSFER, Chunk, Step, Task
from verifier.window.replay import Circle, Queues, replay

MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class Order:
    """
    An order of issue for all steps of a pair.

    Attributes
    ----------
    lists
        One list for both resources, or one for each of them by its name.
    """

    name: str
    lists: Mapping[str, tuple[Step, ...]]

    def queues(self, tasks: Mapping[Step, Task]) -> Queues:
        """The steps that are among these tasks, by resource."""
        listed = [step for steps in self.lists.values() for step in steps if step in tasks]
        return {resource: [step for step in listed if tasks[step].resource == resource] for resource in RESOURCES}


def read_order(name: str, written: object, chunk: Chunk) -> Order:
    """
    An order as a spec carries it: a list of words, or a table with a list for compute and one for communication.

    Transfers that are not named go first.

    Raises
    ------
    ScheduleError
        If a word is no step, or names what no chunk like this has.

    Examples
    --------
    >>> from verifier.window.reading import read_chunk
    >>> spec = read_chunk("specs/chunk-deepseek-v3.toml")
    >>> steps = spec.orders["published"].lists[""]
    >>> len(steps), [str(step) for step in steps[:3]]
    (40, ['combine(I)3', 'attention(F)0', 'mlp(I)3'])
    """
    where = f"order {name}"
    if isinstance(written, dict):
        if sorted(written) != sorted(RESOURCES):
            raise ScheduleError(f"{where}: expected one list, or two, compute and communication")
        lists = {resource: _steps(written[resource], chunk, f"{where}.{resource}") for resource in RESOURCES}
    else:
        lists = {"": _steps(written, chunk, where)}
    named = {step for steps in lists.values() for step in steps}
    sent = tuple(Step(TRANSFER, kind) for kind in chunk.transfers or {} if Step(TRANSFER, kind) not in named)
    first = COMMUNICATION if COMMUNICATION in lists else ""
    return Order(name, {**lists, first: (*sent, *lists[first])})


def find_order(text: str, named: Mapping[str, Order], chunk: Chunk) -> Order:
    """
    The order that a person means: a name in the spec, a list of steps, or a file with one.

    In a file, words are separated by blanks or commas and ``#`` begins a comment; lines that begin with ``compute:`` and
    ``communication:`` begin the list of that resource.

    Raises
    ------
    ScheduleError
        If it is none of these.
    """
    if text in named:
        return named[text]
    if "(" in text:
        return read_order("given", _words(text), chunk)
    known = f"expected {', '.join([*named, 'best'])}, a list of steps such as 'attention(F) dispatch(F)', or a file with one"
    if not os.path.exists(text):
        raise ScheduleError(f'--order: the spec has no order "{one_line(text, 100)}", nor is there such a file; {known}')
    try:
        with Path(text).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        listed = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ScheduleError(f"{one_line(text, 200)}: not UTF-8 text; expected a list of steps") from None
    except (OSError, ValueError) as error:
        raise ScheduleError(f"--order: {one_line(text, 100)} cannot be read: {reason(error)}; {known}") from None
    if len(content) > MAX_BYTES:
        raise ScheduleError(f"{one_line(text, 200)}: larger than {MAX_BYTES // 1_000_000} MB; expected a list of steps")
    with in_file(text):
        return read_order(Path(text).name, _listed(listed), chunk)


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[\s,]+", text) if word]


def _listed(text: str) -> object:
    """The list of a file, or its two lists."""
    text = re.sub(r"#.*", "", text)
    parts = re.split(rf"\b({COMPUTE}|{COMMUNICATION}):", text)
    if len(parts) == 1:
        return _words(text)
    if parts[0].strip() or sorted(parts[1::2]) != sorted(RESOURCES):
        raise ScheduleError("expected one list, or two that begin with compute: and communication:")
    return {resource: _words(words) for resource, words in zip(parts[1::2], parts[2::2], strict=True)}


def _steps(written: object, chunk: Chunk, where: str) -> tuple[Step, ...]:
    """The steps of a list, those of one layer repeated."""
    if not isinstance(written, list) or not written or not all(isinstance(word, str) for word in written):
        raise ScheduleError(f"{where}: expected a list of steps")
    steps = []
    for position, word in enumerate(written):
        try:
            step = Step.parse(word)
        except ScheduleError as error:
            raise ScheduleError(f"{where}[{position}]: {error}") from None
        if not chunk.knows(step):
            known = ", ".join(f"{c.name}({kind})" for c in chunk.components for kind in c.times)
            raise ScheduleError(f"{where}[{position}]: the chunk has no {step.name}; expected {known}")
        steps.append(step)
    layered = {step.layer is not None for step in steps if step.component != TRANSFER}
    if len(layered) > 1:
        raise ScheduleError(f"{where}: some steps name their layer and some do not; expected one or the other")
    return tuple(steps) if True in layered else tuple(_repeated(steps, chunk.layers))


def _repeated(steps: Sequence[Step], layers: int) -> Iterator[Step]:
    """The steps of one layer for all layers; a transfer runs once."""
    for turn in range(layers):
        for step in steps:
            if step.component != TRANSFER:
                yield step._replace(layer=turn if step.kind == "F" else layers - 1 - turn)
            elif turn == 0:
                yield step


# ---------------------------------------- judging


def faults(order: Order, chunk: Chunk) -> Iterator[tuple[str, Witness]]:
    """
    What is wrong with an order: the property that it breaks, and where.

    ``complete``: every step once. ``dependencies``: what a step needs is issued before it, and the two queues do not wait for
    one another for ever.
    """
    tasks = chunk.tasks("F&B")
    wrong = list(_incomplete(order, tasks, chunk.layers))
    yield from wrong
    if "" in order.lists:
        late = list(_too_early([step for step in order.lists[""] if step in tasks], tasks))
        yield from late
        wrong += late
    if not wrong:
        result = replay(tasks, order.queues(tasks))
        if isinstance(result, Circle):
            yield "dependencies", Witness(str(result), op=str(result.steps[0][0]))


def _incomplete(order: Order, tasks: Mapping[Step, Task], layers: int) -> Iterator[tuple[str, Witness]]:
    seen: Counter[Step] = Counter()
    for resource, steps in order.lists.items():
        where = f"{resource}, position" if resource else "position"
        for position, step in enumerate(steps):
            seen[step] += 1
            text = ""
            if seen[step] == 2:
                text = "runs a second time; take one out"
            elif step.layer is not None and step.layer >= layers:
                text = f"names a layer that is not there; the chunk has layers 0 to {layers - 1}"
            elif resource and step in tasks and tasks[step].resource != resource:
                text = f"does not run there; move it to {tasks[step].resource}"
            if text:
                yield "complete", Witness(f"{where} {position}: {step} {text}", position=position, op=str(step))
    for step in tasks:
        if step not in seen:
            yield "complete", Witness(f"{step} is missing", op=str(step))


def _too_early(steps: Sequence[Step], tasks: Mapping[Step, Task]) -> Iterator[tuple[str, Witness]]:
    """Steps of one list that are issued before what they need: their queue would wait for what nobody has asked for."""
    first: dict[Step, int] = {}
    for position, step in enumerate(steps):
        first.setdefault(step, position)
    for position, step in enumerate(steps):
        for needs in tasks[step].needs:
            if first.get(needs, -1) > position:
                wrong = f"position {position}: {step} is issued before {needs}, whose result it needs"
                text = f"{wrong}; move it behind position {first[needs]}"
                yield "dependencies", Witness(text, position=position, op=str(step))


# ---------------------------------------- at random


def shuffled(tasks: Mapping[Step, Task], seed: int, count: int) -> Iterator[Queues]:
    """
    Orders drawn at random among the legal ones: any step whose needs are issued comes next, each as likely.

    Examples
    --------
    >>> tasks = {step: Task(step, "compute", 1, ()) for step in (Step("a", "F", 0), Step("b", "F", 0))}
    >>> len({str(queues["compute"]) for queues in shuffled(tasks, 0, 20)})
    2
    """
    random = Random(seed)
    followers: dict[Step, list[Step]] = {step: [] for step in tasks}
    for step, task in tasks.items():
        for needs in task.needs:
            followers[needs].append(step)
    for _ in range(count):
        missing = {step: len(task.needs) for step, task in tasks.items()}
        yield _by_resource(_drawn(random, missing, followers), tasks)


def _drawn(random: Random, missing: dict[Step, int], followers: Mapping[Step, Sequence[Step]]) -> Iterator[Step]:
    ready = [step for step, count in missing.items() if not count]
    while ready:
        step = ready.pop(random.randrange(len(ready)))
        yield step
        for follower in followers[step]:
            missing[follower] -= 1
            if not missing[follower]:
                ready.append(follower)


def _by_resource(steps: Iterable[Step], tasks: Mapping[Step, Task]) -> Queues:
    queues: dict[str, list[Step]] = {resource: [] for resource in RESOURCES}
    for step in steps:
        queues[tasks[step].resource].append(step)
    return queues
