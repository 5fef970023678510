"""
What ``verifier window`` prints for people.
"""

from __future__ import annotations

from fractions import Fraction

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verifier.model import counted, shown
from verifier.window.chunk import COMMUNICATION, COMPUTE, TRANSFER
from verifier.window.drawing import draw, labels
from verifier.window.replay import Run
from verifier.window.study import PAIR, Study, hidden, steps_text

MANY = 4
"""Waits that are named one by one; more of them by component."""


def print_study(out: Console, study: Study) -> None:
    """
    Print a study; a refuted order with where it is wrong.

    Examples
    --------
    >>> from verifier.window.orders import find_order
    >>> from verifier.window.reading import read_chunk
    >>> from verifier.window.study import study
    >>> spec = read_chunk("specs/chunk-deepseek-v3.toml")
    >>> order = find_order("mlp(F) attention(F) dispatch(F) combine(F)", {}, spec.chunk)
    >>> print_study(Console(width=120), study(spec, order))
    specs/chunk-deepseek-v3.toml, order given: refuted
    ...
    """
    scaled = f", {counted(study.scaled, 'multiprocessor')} for communication (an estimate)" if study.scaled else ""
    verdict = ": refuted" if study.faults else ""
    layers = counted(study.chunk.layers, "layer")
    unit = f", times in {study.chunk.unit}" if study.chunk.unit else ""
    out.print(Text(f"{study.spec.path}, order {study.order}{scaled}{verdict}", "bold" if not verdict else "bold red"))
    if study.faults:
        _print_faults(out, study)
        return
    assert study.runs is not None
    pair = study.runs[PAIR]
    out.print(f"{layers}{unit}", style="dim")
    out.print()
    out.print(_blocks(study))
    out.print()
    coloured = out.is_terminal and not out.no_color and out.color_system is not None
    for line in draw(pair, study.chunk, out.width, coloured=coloured, ascii_only=out.options.ascii_only):
        out.print(line, soft_wrap=True)
    out.print(_legend(study, pair), style="dim", soft_wrap=True)
    if pair.covers:
        out.print()
        out.print(_windows(study, pair))
    out.print()
    for name, text in _lines(study, pair):
        out.print(f"{name:<10}{text}", soft_wrap=True)


def _print_faults(out: Console, study: Study) -> None:
    """Each property with the first of its witnesses, and how many more there are."""
    for name in dict.fromkeys(name for name, _ in study.faults):
        witnesses = [witness for of, witness in study.faults if of == name]
        out.print(f"  {name}", soft_wrap=True)
        for witness in witnesses[:5]:
            out.print(f"      {witness}", soft_wrap=True)
        if len(witnesses) > 5:
            out.print(f"      and {len(witnesses) - 5} more")


def figure(value: Fraction) -> str:
    """
    A time for people: whole, or to two digits.

    >>> figure(Fraction(1309, 10)), figure(Fraction(1, 3)), figure(Fraction(35))
    ('130.90', '0.33', '35')
    """
    return str(value) if value.denominator == 1 else f"{float(value):.2f}"


def _share(share: Fraction | None) -> str:
    return "-" if share is None else f"{float(share):.1%}"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 or column == "under" else "right")
    return table


def _blocks(study: Study) -> Table:
    """Each block alone, F and B one after the other, and the pair."""
    assert study.runs is not None
    table = _table("block", "duration", "compute", "communication", "hidden", "exposed")
    runs = dict(study.runs)
    pair = runs.pop(PAIR)
    for block, run in runs.items():
        _row(table, study, block, [run])
    if "F" in runs and "B" in runs:
        _row(table, study, "F then B", [runs["F"], runs["B"]])
    _row(table, study, PAIR, [pair])
    return table


def _row(table: Table, study: Study, name: str, runs: list[Run]) -> None:
    duration = sum(run.duration for run in runs)
    compute, communication = (sum(run.load(resource) for run in runs) for resource in (COMPUTE, COMMUNICATION))
    exposed = sum(run.exposed for run in runs)
    share = 1 - Fraction(exposed, communication) if communication else None
    times = [figure(study.chunk.time(ticks)) for ticks in (duration, compute, communication)]
    table.add_row(name, *times, _share(share), figure(study.chunk.time(exposed)))


def _legend(study: Study, pair: Run) -> str:
    """What the labels stand for."""
    short = labels(pair.start)
    letters = {step.component: label.partition(step.kind)[0] for step, label in short.items()}
    in_turn = [component.name for component in study.chunk.components] + [TRANSFER]
    named = ", ".join(f"{letters[name]} {name}" for name in in_turn if name in letters)
    return f"{named}; F forward, I backward for the input, W for the weights; then the layer"


def _windows(study: Study, pair: Run) -> Table:
    """Where each step of communication lies, and what is computed meanwhile."""
    table = _table("window of", "start", "end", "under", "exposed", "slack")
    time = study.chunk.time
    for cover in pair.covers:
        under = ", ".join(f"{step} {figure(time(ticks))}" for step, ticks in cover.under)
        ends = [figure(time(ticks)) for ticks in (cover.start, cover.end)]
        table.add_row(str(cover.step), *ends, under, *(figure(time(ticks)) for ticks in (cover.exposed, cover.slack)))
    return table


def _lines(study: Study, pair: Run) -> list[tuple[str, str]]:
    """What remains to be said, a line each."""
    time, lines = study.chunk.time, []
    exposed = study.exposed_by_component(pair)
    lines.append(("exposed", ", ".join(f"{name} {figure(value)}" for name, value in exposed.items()) or "nothing"))
    waits: dict[str, int] = {}
    for wait in pair.waits:
        name = str(wait.needs) if len(pair.waits) <= MANY else wait.needs.name
        waits[name] = waits.get(name, 0) + wait.end - wait.start
    if waits:
        lines.append(("waits", "computing waits " + ", ".join(f"{figure(time(t))} for {name}" for name, t in waits.items())))
    if study.apart():
        longer = study.apart() / study.duration(PAIR) - 1
        lines.append(
            (
                "unpaired",
                f"F then B takes {figure(study.apart())}, {float(abs(longer)):.1%} {'longer' if longer >= 0 else 'less'}",
            )
        )
    lines.append(("best", _best(study)))
    if study.unsettled:
        lines.append(("open", f"whether {' and '.join(study.unsettled)} alone could be shorter; a larger --budget may tell"))
    if study.shuffled:
        drawn = [figure(time(study.shuffled[index])) for index in (0, len(study.shuffled) // 2, -1)]
        lines.append(
            ("shuffled", f"{len(study.shuffled)} legal orders at random take {drawn[0]} to {drawn[2]}, median {drawn[1]}")
        )
    if not study.scaled:
        lines.extend(("measured", text) for text in _measured(study, pair))
    lines.extend(("left out", text) for text in study.left_out())
    if study.order == "best":
        lines.append(("issue", steps_text(pair.sequence())))
    return lines


def _best(study: Study) -> str:
    """The best order: how long, and why nothing is shorter."""
    assert study.best is not None
    best, time = study.best, study.chunk.time
    taken = figure(time(best.run.duration))
    if best.certificate == "bound":
        return f"{taken}, optimal: it meets a solver-free bound, the {best.argument}"
    if best.certificate:
        return f"{taken}, optimal: {best.argument} refuted anything shorter ({best.certificate})"
    gap = Fraction(best.run.duration - best.bound, best.run.duration)
    return f"{taken}, the best found; no order is below {figure(time(best.bound))}, the {best.argument}; gap {float(gap):.1%}"


def _measured(study: Study, pair: Run) -> list[str]:
    """What was measured beside what the model gives."""
    share = hidden(pair)
    model = {block.replace("&", ""): study.duration(block) for block in study.runs or {}}
    model |= {resource: study.chunk.time(pair.load(resource)) for resource in (COMPUTE, COMMUNICATION)}
    lines = []
    for name, value in (study.spec.measured or {}).items():
        if name == "hidden":
            if share is not None:
                lines.append(f"hidden {shown(value)}%, the model has {_share(share)}")
        elif name in model and value:
            off = model[name] / value - 1
            lines.append(f"{name} {shown(value)}, the model has {figure(model[name])} ({float(off):+.1%})")
    return lines
