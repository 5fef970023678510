"""
Computing and communication of a block over time: two rows, columns in proportion to time, a cell per step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from rich.text import Text

from verifier.model import shown
from verifier.views.grid import STYLES
from verifier.views.labels import round_step
from verifier.window.chunk import RESOURCES, Chunk, Step
from verifier.window.replay import Run

MAX_BANDS = 6
"""Bands of time below one another; steps too short for a label then stay without."""

_MARGIN = max(map(len, RESOURCES)) + 2


def draw(run: Run, chunk: Chunk, width: int, *, coloured: bool = False, ascii_only: bool = False) -> list[Text]:
    """
    Draw a block.

    Parameters
    ----------
    width
        Columns of the terminal.
    coloured
        Whether colours tell the kinds apart; the labels do in any case.

    Examples
    --------
    >>> from verifier.window.reading import read_chunk
    >>> from verifier.window.study import study
    >>> spec = read_chunk("specs/chunk-deepseek-v3.toml")
    >>> run = study(spec, spec.orders["published"]).runs["F"]
    >>> for line in draw(run, spec.chunk, 90)[:3]:
    ...     print(line.plain)
                   0              20             40             60             80
    compute        aF0·····mF0·······aF1·····mF1─·······aF2·····mF2·······aF3·····mF3─·······
    communication  ···dF0──···cF0────···dF1──····cF1────···dF2──···cF2────···dF3──····cF3────
    """
    label = labels(run.start)
    inner = max(width - _MARGIN - 1, 20)
    shortest = min(task.ticks for task in run.tasks.values())
    needed = -(-run.duration * max(map(len, label.values())) // shortest)
    bands = min(-(-needed // inner), MAX_BANDS)
    columns = bands * inner
    rows = {
        resource: _row(run, resource, columns, label, coloured=coloured, ascii_only=ascii_only)
        for resource in RESOURCES
        if run.queues.get(resource)
    }
    ruler = Text(_ruler(chunk.time(run.duration), columns), "dim")
    lines = []
    for begin in range(0, columns, inner):
        lines.append(Text(" " * _MARGIN) + _cut(ruler, begin, inner))
        lines.extend(Text(resource.ljust(_MARGIN)) + _cut(row, begin, inner) for resource, row in rows.items())
        lines.append(Text())
    for line in lines:
        if not coloured:
            line.rstrip()
    return lines


def _cut(row: Text, begin: int, width: int) -> Text:
    return row[begin : begin + width]


def labels(steps: Iterable[Step]) -> dict[Step, str]:
    """
    Short names: as many letters of the component as tell it from the others, the kind, the layer.

    Examples
    --------
    >>> list(labels([Step("mlp", "F", 0), Step("moe", "I", 1), Step("transfer", "F")]).values())
    ['mlF0', 'moI1', 'trF']
    """
    steps = list(steps)
    names = sorted({step.component for step in steps})
    length = next(n for n in range(1, 41) if len({name[:n] for name in names}) == len(names))
    return {step: f"{step.component[:length]}{step.kind}{'' if step.layer is None else step.layer}" for step in steps}


def _row(run: Run, resource: str, columns: int, label: dict[Step, str], *, coloured: bool, ascii_only: bool) -> Text:
    """The steps of a resource, and dots while it idles."""
    dot, dash = (".", "-") if ascii_only else ("·", "─")
    row = Text()
    for step in run.queues[resource]:
        begin = run.start[step] * columns // run.duration
        end = max(run.end(step) * columns // run.duration, begin + 1)
        row.append(dot * (begin - len(row)), "dim")
        room = end - len(row)
        if room <= 0:
            continue
        text = label[step] if len(label[step]) <= room else ""
        if coloured:
            row.append(text.ljust(room), STYLES[step.kind][(step.layer or 0) % 2])
        else:
            row.append(text.ljust(room, dash))
    row.append(dot * (columns - len(row)), "dim")
    return row


def _ruler(duration: Fraction, columns: int) -> str:
    """Round times above the columns in which they fall."""
    line = ""
    for column, text in _marks(duration, columns):
        if column >= len(line) + bool(line) and column + len(text) <= columns:
            line = line.ljust(column) + text
    return line.ljust(columns)


def _marks(duration: Fraction, columns: int) -> Iterator[tuple[int, str]]:
    step = round_step(duration * 8 / columns)
    for number in range(int(duration / step) + 1):
        yield int(number * step * columns / duration), shown(number * step)
