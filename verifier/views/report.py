"""
The report: one page, a single file that works without a network, to look into a schedule or compare several.

The page draws on a canvas with the few hundred lines of script in ``page/``. A chart library would be larger than everything
else together (plotly.js is 4.5 MB), and none of them knows blocks of two halves, chains of causes, or 100,000 boxes that stay
smooth. Numbers and verdicts are worked out and worded here; the script only draws them and puts causes into sentences.

What comes from files is data: it is escaped once as JSON, and the script makes text of it, never markup. A policy in the page
forbids any script and style but its own, and every connection.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from fractions import Fraction
from hashlib import sha256
from html import escape
from importlib.resources import files
from itertools import accumulate
from string import Template

from verifier.formats.source import one_line
from verifier.gaps import Gap, gaps, inputs
from verifier.measures import as_far_as_it_runs
from verifier.model import ScheduleError, shown
from verifier.simulate import Simulation
from verifier.verify import Property, Report
from verifier.views.labels import costs_text, share_text
from verifier.views.palette import COLOURS, MEANING, RAMP, THEMES, shades

_KINDS = {kind: number for number, kind in enumerate("FBIW")}
_EXACT = 2**53
"""Whole numbers up to here are exact in JavaScript."""

_TIMES = ("idle", "before its first block", "between blocks", "after its last", "span idle", "busy")
"""What is known of a rank where there is a timeline."""
_RANKS = ("rank", *_TIMES, "peak activations", "weight copies", "overlapped")
_SUMMARY = ("schedule", "verdict", "makespan", "idle, worst rank", "bubble", "peak activations", "weights", "overlapped")


def page(reports: Sequence[Report], note: str = "") -> str:
    """
    The page as HTML; with several reports a table compares them, and all timelines share one axis.

    Parameters
    ----------
    reports
        At least one.
    note
        Under which terms several schedules are compared.

    Raises
    ------
    ScheduleError
        If the times have too many digits for a browser.

    Notes
    -----
    Linear in the number of blocks. The same reports give the same bytes.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> from verifier.verify import verify
    >>> page([verify(build_family("1f1b", 2, 2), solver="replay")]).splitlines()[0]
    '<!DOCTYPE html>'
    """
    style = _themes() + _part("report.css")
    script = "".join(map(_part, ("plan.js", "timeline.js", "report.js")))
    data = {
        "palette": COLOURS,
        "meaning": MEANING,
        "ramp": [[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in RAMP],
        "themes": THEMES,
        "columns": _SUMMARY,
        "note": note,
        "schedules": list(map(_schedule, reports)),
    }
    return Template(_part("report.html")).substitute(
        policy=f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; base-uri 'none'",
        title=escape(" | ".join(map(_name, reports))),
        style=style,
        data=_embedded(data),
        script=script,
    )


def _part(name: str) -> str:
    """A file of the page."""
    return files("verifier.views").joinpath("page", name).read_text("utf-8")


def _themes() -> str:
    """The colours as variables: those that the reader's system asks for, unless the button says otherwise."""
    light, dark = ("".join(f"--{name}:{colour};" for name, colour in theme.items()) for theme in THEMES.values())
    return (
        f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"
        f':root[data-theme="light"]{{{light}}}\n:root[data-theme="dark"]{{{dark}}}\n'
    )


def _digest(text: str) -> str:
    """By which the policy knows a script or a style."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _embedded(data: object) -> str:
    """JSON that ends no script element and begins no markup."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _name(report: Report) -> str:
    return one_line(report.schedule.name or "schedule", 200)


# ---------------------------------------- one schedule


def _schedule(report: Report) -> dict[str, object]:
    """All that the page knows of a schedule; of blocks one entry each in several lists, in the order of the graph's nodes."""
    run, stuck = as_far_as_it_runs(report.simulation)
    timeline, problem = run.timeline, run.schedule.problem
    assert timeline is not None, "what comes before the first blocked blocks does not wait for them"
    if timeline.makespan_ticks >= _EXACT:
        raise ScheduleError("html: times need more digits than browsers count with; use rounder costs")
    idle = gaps(run) if not stuck else ((),) * problem.ranks
    origin = run.schedule.origin
    return {
        "name": _name(report),
        "status": report.status,
        "numbers": _numbers(report),
        "problems": [f"refuted ({name}): {part.witnesses[0]}" for name, part in report.properties.items() if part.witnesses],
        "scale": timeline.ticks_per_unit,
        "makespan": timeline.makespan_ticks,
        "stages": problem.stages,
        "directions": problem.directions,
        "shades": shades(problem),
        "primes": origin is None or origin.microbatches is None,
        "first": [*run.first, sum(map(len, timeline.start))],
        "start": [tick for row in timeline.start for tick in row],
        "span": [span for row in timeline.duration for span in row],
        "cause": run.cause,
        **_parts(run),
        **_reading(run),
        **_memory(run),
        "gaps": [[(gap.position, gap.begin, gap.end, len(gap.chain)) for gap in row] for row in idle],
        "last": _node(run, run.critical_path[-1]) if run.critical_path else -1,
        "critical": [_node(run, place) for place in run.critical_path] if not stuck else [],
        "stuck": [run.schedule.text(block) if block else "" for block in stuck] or [""] * problem.ranks,
        "columns": _RANKS if report.simulation.timeline else [name for name in _RANKS if name not in _TIMES],
        "rows": [_rank(report.simulation, rank, row) for rank, row in enumerate(idle)],
        "summary": _summary(report),
        "properties": [row for name, part in report.properties.items() for row in _property(name, part)],
        "notes": report.notes,
    }


def _node(run: Simulation, place: tuple[int, int]) -> int:
    return run.first[place[0]] + place[1]


def _parts(run: Simulation) -> dict[str, object]:
    """What the blocks are made of: kind and (direction, stage) as one number, and the micro-batch; which blocks are pairs."""
    schedule = run.schedule
    code, microbatch, pairs = [], [], []
    homes = [{home: number for number, home in enumerate(schedule.problem.stages_on(rank))} for rank in range(len(run.first))]
    for rank, row in enumerate(schedule.order):
        for node, block in enumerate(row, run.first[rank]):
            parts = block.parts
            if len(parts) == 2:
                pairs.append(node)
            for part in parts:
                # A block on a rank that does not hold its stage is wrong, but drawn.
                home = homes[rank].setdefault((part.direction, part.stage), len(homes[rank]))
                code.append(4 * home + _KINDS[part.kind])
                microbatch.append(schedule.microbatch_name(part.direction, part.microbatch))
    return {"homes": [list(home) for home in homes], "code": code, "microbatch": microbatch, "pairs": pairs}


def _reading(run: Simulation) -> dict[str, object]:
    """
    Which blocks a block reads; and of its cause, why it had to wait.

    That is 0 where the rank was busy, 1 where it reads the cause, and where the cause is a pair what it reads of that.
    """
    schedule = run.schedule
    blocks = [block for row in schedule.order for block in row]
    sources: list[list[int]] = []
    read: list[int | str] = []
    for node in range(len(blocks)):
        found = list(inputs(run, node))
        sources.append(sorted({source for source, _ in found}))
        spoken = next((schedule.spoken(op) for source, op in found if source == run.cause[node]), None)
        if spoken is None:
            read.append(0)
        else:
            read.append(1 if spoken == schedule.text(blocks[run.cause[node]]) else spoken)
    return {"inputs": sources, "read": read}


def _memory(run: Simulation) -> dict[str, object]:
    """Steps of activations held while each block runs, and kept behind it."""
    held = [steps for row in run.held_steps for steps in row]
    kept = [
        steps
        for row in run.schedule.order
        for steps in accumulate(sum(map(run.costs.activation_steps, block.ops)) for block in row)
    ]
    return {"held": held, "kept": kept, "most": max(held, default=0) or 1, "steps": run.costs.steps_per_activation}


# ---------------------------------------- in words


def _numbers(report: Report) -> str:
    """The numbers of a schedule in a line."""
    timeline = report.simulation.timeline
    times = "no timeline exists"
    if timeline is not None:
        times = f"makespan {shown(timeline.makespan)}, bubble {share_text(timeline.bubble_ratio)} of ranks times makespan"
    problem = report.schedule.problem
    sizes = f"{_counted(problem.ranks, 'rank')}, {_counted(problem.total_microbatches, 'micro-batch', 'es')}"
    return f"{times}; {sizes}; costs {costs_text(report.costs, any(report.simulation.overlapped))}"


def _counted(count: int, thing: str, ending: str = "s") -> str:
    return f"{count} {thing}{'' if count == 1 else ending}"


def _rank(simulation: Simulation, rank: int, idle: Sequence[Gap]) -> list[str]:
    """A row of the table of ranks; where the ranks hang, only what follows from the order."""
    timeline = simulation.timeline
    times: list[str] = []
    if timeline is not None:
        blocks, scale = len(simulation.schedule.order[rank]), timeline.ticks_per_unit
        where = [0, 0, 0]
        for gap in idle:
            where[2 if gap.position == blocks else 1 if gap.position else 0] += gap.end - gap.begin
        busy = 1 - timeline.idle[rank] / timeline.makespan if timeline.makespan else Fraction(0)
        times = [
            shown(timeline.idle[rank]),
            *(shown(Fraction(ticks, scale)) for ticks in where),
            shown(timeline.span_idle[rank]),
            f"{float(busy):.1%}",
        ]
    return [
        str(rank),
        *times,
        shown(simulation.peak_activations[rank]),
        str(len(simulation.schedule.problem.stages_on(rank))),
        str(simulation.overlapped[rank]),
    ]


def _summary(report: Report) -> list[str]:
    """A row of the comparison."""
    simulation, problem = report.simulation, report.schedule.problem
    timeline = simulation.timeline
    copies = Fraction(max(len(problem.stages_on(rank)) for rank in range(problem.ranks)), problem.stages)
    times = ["-"] * 3
    if timeline is not None:
        times = [shown(timeline.makespan), shown(max(timeline.idle)), share_text(timeline.bubble_ratio)]
    return [
        _name(report),
        report.status,
        *times,
        shown(max(simulation.peak_activations)),
        f"{copies} of the model",
        str(sum(simulation.overlapped)),
    ]


def _property(name: str, part: Property) -> Iterator[list[str]]:
    """Rows of the verdict: a property, and what it is made of."""
    methods = {"both": "replay and Z3", "z3": "Z3"}
    said = "; ".join(filter(None, [part.reason, *map(str, part.witnesses)]))
    yield [name, part.status, methods.get(part.method, part.method), said]
    for model, judged in part.models.items():
        yield from _property(f"{name}: {model}", judged)
