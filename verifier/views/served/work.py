"""
The work behind the page, in a process of its own: it can be killed, and takes no more memory than it was given.

The request comes as a line on standard input, answers leave as lines on standard output: any number of ``{"progress": ...}``,
then ``{"result": ..., "missing": ...}`` with what is there already and the name of what is not, and in the end one
``{"result": ...}`` or ``{"error": ...}``. So whatever ends the work early, what was found is known to whoever asked. When
standard input ends, whoever asked is gone, and the process ends too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from threading import Thread
from typing import Any

from verifier.costs import CostModel
from verifier.formats.source import Source
from verifier.model import Problem, ScheduleError, shown
from verifier.verify import Property, Report
from verifier.views.served.marks import cells, marks, place, table
from verifier.views.served.request import MAX_SEARCHED, Request, check_size, checked

MEMORY = 4 * 2**30
"""Bytes of address space that a job may take."""

FILES = {
    "json": "schedule.json",
    "csv": "schedule.csv",
    "messages": "schedule-with-messages.csv",
    "trace": "trace.json",
    "verdict": "verdict.json",
    "report": "report.html",
    "svg": "schedule.svg",
    "svg-dark": "schedule-dark.svg",
}
"""What can be downloaded, and how the file is called."""

AT_ONCE = ("json", "verdict", "report")
"""Files that are there as soon as replay has spoken."""
DRAWN = 10_000
"""Blocks of the largest schedule that is drawn: a second or two of a job."""
FOR_RUNTIMES = ("csv", "messages")
"""Files that something will execute."""
JUDGED_APART = ("activations", "weights", "claims")

Tell = Callable[[dict[str, object]], None]


def answer(request: Request, tell: Tell) -> dict[str, object]:
    """
    Do the work: ``{"result": ...}``, or where what was given cannot be judged ``{"error": ...}`` with the place if it has one.

    Examples
    --------
    >>> answer(checked({"source": "pasted", "text": "0F0,0b0"}), print)["error"]
    'pasted: rank 0, column 1: "0b0" is not a cell; did you mean 0B0?'
    """
    try:
        if request.source == "synthesis":
            return {"result": _searched(request, tell)}
        source = _under(request, _source(request))
        return {"result": _result(request, source, lambda result, missing: tell({"result": result, "missing": missing}))}
    except ScheduleError as error:
        text = str(error)
        return {"error": text, "table": table(cells(request.given.get("text", "")), place(text))}


def _source(request: Request) -> Source:
    """The family or what was pasted."""
    if request.source == "family":
        from verifier.families import build_family

        sizes = request.only("ranks", "microbatches", "stages_per_rank", "rule")
        return Source(build_family(request.given["family"], **sizes), "family")
    from verifier.formats import read

    options: dict[str, Any] = request.only("microbatches", "dialect")
    copies = int(request.given.get("copies", 1))
    return read(request.given["text"].encode(), "pasted", name="pasted", copies=copies, **options)


def _costs(request: Request) -> CostModel | None:
    """Costs as numbers only: elsewhere they may be the name of a file, which is nobody's business here."""
    return CostModel.parse(request.given["costs"]) if "costs" in request.given else None


def _under(request: Request, source: Source) -> Source:
    """The source under the costs and limits of the request."""
    from verifier.sources import judged_under

    _costs(request)
    return judged_under(source, **request.only("costs", "activations", "weights"))


def _searched(request: Request, tell: Tell) -> dict[str, object]:
    """The shortest schedule that a search finds, judged like any other, and what is known of shorter ones."""
    from verifier.formats import schedule_json
    from verifier.specs import limits_of
    from verifier.synthesize import synthesize

    def progress(best: Fraction, bound: Fraction, gap: Fraction) -> None:
        tell({"progress": {"best": shown(best), "bound": shown(bound), "gap": shown(gap)}})

    given = request.given
    costs, limits = _costs(request), limits_of(given.get("activations"), given.get("weights"))
    options: dict[str, Any] = request.only("pairs", "scope", "objective", "seed", "budget")
    if "blocks" in given:
        options["blocks"] = tuple(kind.strip() for kind in given["blocks"].split(","))
    found = synthesize(_problem(given), costs, limits, on_progress=progress, **options)
    # What was found is on its way out. Z3 takes interrupts even so; from the first result on none is sent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    said: dict[str, object] = {"synthesis": found.as_json()}
    if found.schedule is None:
        return said
    name = f"{given['placement']} P={given['ranks']} M={given['microbatches']}, synthesized"
    source = Source(replace(found.schedule, name=name), "synthesis", costs, limits, certificate=found.as_json()["certificate"])
    early = {**said, "files": {"json": schedule_json.dump(source)}, "refused": {}}
    tell({"result": early, "missing": "the verdict and most files"})
    return {
        **said,
        **_result(request, source, lambda result, missing: tell({"result": {**said, **result}, "missing": missing})),
    }


def _problem(given: Mapping[str, Any]) -> Problem:
    """The placement by its name; micro-batches are shared out evenly."""
    from verifier.families import placement

    rows = placement(given["placement"], given["ranks"], given.get("stages_per_rank", 2))
    each, rest = divmod(given["microbatches"], len(rows))
    if rest:
        raise ScheduleError(f"microbatches: {given['microbatches']} over two directions; expected an even number")
    check_size(len(rows[0]), given["microbatches"], MAX_SEARCHED)
    return Problem(rows, (each,) * len(rows))


def _result(request: Request, source: Source, tell: Callable[[dict[str, object], str], None]) -> dict[str, object]:
    """Verdict, numbers, marked cells and files; what replay finds is told before the slower parts."""
    from verifier.sources import verdict

    check_size(source.schedule.problem.stages, source.schedule.problem.total_microbatches)
    models = tuple(request.given.get("messages", ()))
    replayed = verdict(source, solver="replay")
    if models:
        waits = Property("unknown", method="", reason=f"not judged yet under {', '.join(models)}")
        replayed = replace(replayed, properties={**replayed.properties, "messages": waits})
    missing = "the verdict on messages and most files" if models else "most files"
    tell(_shown(request, replayed, _written(source, replayed, AT_ONCE)), missing)
    report = verdict(source, models=models)
    return _shown(request, report, _written(source, report, FILES))


def _shown(request: Request, report: Report, written: dict[str, object]) -> dict[str, object]:
    """A verdict with the cells that it marks, and files."""
    text, schedule = request.given.get("text"), report.schedule
    rows = cells(text) if text else [[schedule.text(block) for block in row] for row in schedule.order]
    return {"verdict": report.as_json(), "table": table(rows, marks(report)), **written}


def _writers(source: Source, report: Report) -> dict[str, Callable[[], str]]:
    """How every file that there can be is written."""
    from verifier.formats import schedule_json, torch_comms_csv, torch_csv, trace_json
    from verifier.messages import with_marks
    from verifier.views.report import page

    def with_messages() -> str:
        if source.program:
            return torch_comms_csv.dump_program(with_marks(source.program))
        return torch_comms_csv.dump(source.schedule, source.costs)

    return {
        "json": lambda: schedule_json.dump(source),
        "csv": lambda: torch_csv.dump(source.schedule),
        "messages": with_messages,
        "trace": lambda: trace_json.dump(source.schedule, source.costs),
        "verdict": lambda: json.dumps(report.as_json(), indent=1) + "\n",
        "report": lambda: page([report]),
        "svg": lambda: _picture(report, "light"),
        "svg-dark": lambda: _picture(report, "dark"),
    }


def _written(source: Source, report: Report, names: Iterable[str]) -> dict[str, object]:
    """The named files, and why there are not all of them."""
    writers, files, refused = _writers(source, report), {}, {}
    for name in names:
        try:
            if name in FOR_RUNTIMES and not _runs(report):
                raise ScheduleError("refuted, so nothing is offered for runtimes; verifier export --force writes it")
            files[name] = writers[name]()
        except ScheduleError as error:
            refused[name] = str(error)
    return {"files": files, "refused": refused}


def _picture(report: Report, theme: str) -> str:
    from verifier.views.picture import picture

    if sum(map(len, report.schedule.order)) > DRAWN:
        raise ScheduleError(f"more than {DRAWN} blocks; the report shows them all, and verifier export draws more")
    return picture(report, "svg", theme=theme).decode()


def _runs(report: Report) -> bool:
    """Whether a runtime may execute it; limits and claims are no reason against that."""
    return all(part.status != "refuted" for name, part in report.properties.items() if name not in JUDGED_APART)


# ---------------------------------------- the process


def main() -> None:
    """One request from standard input."""
    # A server that was started in the background of a shell ignores interrupts, and its children would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # What a library prints must not get between the answers.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(written: dict[str, object]) -> None:
        out.write(json.dumps(written) + "\n")
        out.flush()

    request = checked(json.loads(sys.stdin.readline()))
    confine()
    Thread(target=_leave_with_stdin, daemon=True).start()
    try:
        tell(answer(request, tell))
    except MemoryError:
        tell({"error": f"needs more than {MEMORY // 2**30} GiB of memory; the command line may take more"})
    except KeyboardInterrupt:
        sys.exit(130)


def confine() -> None:
    """Let others go first, and take no more memory than is meant."""
    os.nice(5)
    if sys.platform == "linux":
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY if hard < 0 else min(MEMORY, hard), hard))


def _leave_with_stdin() -> None:
    """End when the other side is gone."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
