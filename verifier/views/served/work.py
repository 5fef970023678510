"""
The work behind the page, in a process of its own: it can be killed, and takes no more memory than it was given.

The request comes as a line on standard input, answers leave as lines on standard output: any number of ``{"progress": ...}``
and one ``{"result": ...}`` or ``{"error": ...}``. When standard input ends, whoever asked is gone, and the process ends too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from threading import Thread
from typing import Any

from verifier.formats.source import Source
from verifier.model import ScheduleError
from verifier.verify import Report
from verifier.views.served.marks import cells, marks, place, table
from verifier.views.served.request import Request, check_size, checked

MEMORY = 4 * 2**30
"""Bytes of address space that a job may take."""

FILES = {
    "json": "schedule.json",
    "csv": "schedule.csv",
    "messages": "schedule-with-messages.csv",
    "trace": "trace.json",
    "verdict": "verdict.json",
    "report": "report.html",
}
"""What can be downloaded, and how the file is called."""

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
        source, facts = _source(request, tell)
        problem = source.schedule.problem
        check_size(problem.stages, problem.total_microbatches)
        return {"result": {**_result(request, source), **facts}}
    except ScheduleError as error:
        text = str(error)
        return {"error": text, "table": table(cells(request.given.get("text", "")), place(text))}


def _source(request: Request, tell: Tell) -> tuple[Source, dict[str, object]]:
    """What is to be judged, and what else is known of it."""
    if request.source == "family":
        from verifier.families import build_family

        sizes = request.only("ranks", "microbatches", "stages_per_rank", "rule")
        source = Source(build_family(request.given["family"], **sizes), "family")
    else:
        from verifier.formats import read

        options: dict[str, Any] = request.only("microbatches", "dialect")
        copies = int(request.given.get("copies", 1))
        source = read(request.given["text"].encode(), "pasted", name="pasted", copies=copies, **options)
    return _under(request, source), {}


def _under(request: Request, source: Source) -> Source:
    """The source under the costs and limits of the request."""
    from verifier.costs import CostModel
    from verifier.sources import judged_under

    given = request.only("costs", "activations", "weights")
    if "costs" in given:
        # Elsewhere costs may be the name of a file, which is nobody's business here.
        CostModel.parse(given["costs"])
    return judged_under(source, **given)


def _result(request: Request, source: Source) -> dict[str, object]:
    """Verdict, numbers, marked cells and files."""
    from verifier.sources import verdict

    report = verdict(source, models=tuple(request.given.get("messages", ())))
    files, refused = _files(source, report)
    text = request.given.get("text")
    rows = cells(text) if text else [[source.schedule.text(block) for block in row] for row in source.schedule.order]
    return {"verdict": report.as_json(), "table": table(rows, marks(report)), "files": files, "refused": refused}


def _files(source: Source, report: Report) -> tuple[dict[str, str], dict[str, str]]:
    """Every file that there can be, and why others cannot."""
    from verifier.formats import schedule_json, torch_comms_csv, torch_csv, trace_json
    from verifier.messages import with_marks
    from verifier.views.report import page

    def with_messages() -> str:
        if source.program:
            return torch_comms_csv.dump_program(with_marks(source.program))
        return torch_comms_csv.dump(source.schedule, source.costs)

    writers: dict[str, Callable[[], str]] = {
        "json": lambda: schedule_json.dump(source),
        "csv": lambda: torch_csv.dump(source.schedule),
        "messages": with_messages,
        "trace": lambda: trace_json.dump(source.schedule, source.costs),
        "verdict": lambda: json.dumps(report.as_json(), indent=1) + "\n",
        "report": lambda: page([report]),
    }
    files, refused = {}, {}
    for name, write in writers.items():
        try:
            files[name] = write()
        except ScheduleError as error:
            refused[name] = str(error)
    return files, refused


# ---------------------------------------- the process


def main() -> None:
    """One request from standard input."""
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
