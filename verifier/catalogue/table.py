"""
The index of the catalogue, for programs and for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cache
from hashlib import sha256
from pathlib import Path

from verifier.all_microbatches.repeating import growth
from verifier.catalogue.cells import COSTS, HOPPING, MULTIPLES, Cell
from verifier.catalogue.lookup import INDEX, read_index
from verifier.catalogue.making import Entry, own_orders, path, read
from verifier.costs import CostModel
from verifier.formats import write_text
from verifier.model import Schedule, plain
from verifier.simulate import simulate

COLUMNS = (
    "P",
    "M",
    "makespan",
    "bound",
    "mirrored",
    "gap",
    "DualPipe",
    "shorter by",
    "status",
    "by",
    "each M more",
    "files",
)

ABOUT = """\
# Shortest schedules

Made by `python -m verifier.catalogue generated_schedules`; `verifier synthesize` starts from them. Each file is a
`pipeline-schedule/1` with costs, limit, makespan and certificate; V placements also are tables for PyTorch. `verifier verify
FILE` judges any of them, `verifier export FILE --extend-to N` makes it longer where its kernel is proved to repeat.

Limit: as many activations on a rank as DualPipe holds, one more than a micro-batch has stages. *DualPipe* is DeepSeek's own
order (DualPipeV for V) under the same costs, its full backwards whole or split, whichever is shorter. *Bound* holds for all
schedules, *mirrored* for those that are their own mirror image, where that is more. *Optimal*: schedule and bound meet; *all*
or *mirrored* says among which schedules, and *by* why: the name of a bound, or the solvers that refuted one tick less. V
placements inherit what solvers said of the mirror-symmetric schedules that fold to them, which are the same where a hop takes
no time. *Each M more*: what one micro-batch more adds to the makespan, for all larger numbers in steps of the kernel, where
that is proved; `verifier synthesize --all-microbatches` looks for an order with a kernel where it is not.
"""


def write_index(cells: Iterable[Cell], folder: Path) -> list[dict[str, object]]:
    """
    Write ``index.json`` and ``README.md`` of the cells that have a file; returns the rows.

    The row of a file that did not change since is kept; without an index all are worked out, which takes minutes.
    """
    before = {each["file"]: each for each in read_index(folder)} if (folder / INDEX).exists() else {}
    rows = [_kept_or_new(cell, folder, before) for cell in cells if path(cell, folder).exists()]
    text = ",\n".join(f"  {json.dumps(each)}" for each in rows)
    write_text(folder / INDEX, f'{{"schedules": [\n{text}\n]}}\n')
    write_text(folder / "README.md", "\n".join(_page(rows)) + "\n")
    return rows


def _kept_or_new(cell: Cell, folder: Path, before: dict[str, dict[str, object]]) -> dict[str, object]:
    file = path(cell, folder)
    kept, now = before.get(file.name), digest(file)
    if kept and kept.get("digest") == now:
        return kept
    entry = read(cell, folder)
    assert entry is not None, "it exists"
    return row(entry, now)


def digest(file: Path) -> str:
    """What tells whether a file changed."""
    return sha256(file.read_bytes()).hexdigest()[:16]


def row(entry: Entry, content: str) -> dict[str, object]:
    """What the index says of a schedule."""
    cell, certificate = entry.cell, entry.certificate
    family = dualpipe(cell)
    return {
        "file": f"{cell.name}.json",
        "digest": content,
        "table": f"{cell.name}.csv" if cell.placement == "v" else None,
        "placement": cell.placement,
        "ranks": cell.ranks,
        "microbatches": list(cell.problem.microbatches),
        "costs": dict(cell.prices),
        "activations": cell.problem.stages + 1,
        "makespan": plain(entry.makespan),
        **{
            key: certificate.get(key)
            for key in ("lower_bound", "bound", "scope", "scope_bound", "status", "kind", "by", "refuted_by")
        },
        "dualpipe": None if family is None else plain(family),
        "all_microbatches": law(entry),
    }


def law(entry: Entry) -> dict[str, object] | None:
    """What is proved of larger numbers of micro-batches; looked for at the least one, from which the others follow."""
    if entry.cell.multiple != MULTIPLES[0]:
        return None
    proof = growth(entry.source.schedule, entry.cell.costs)
    numbers = {key: proof.numbers.get(key) for key in ("microbatches_per_period", "time_per_period")}
    return {"status": proof.status, **(numbers if proof.evidence else {})}


@cache
def dualpipe(cell: Cell) -> Fraction | None:
    """
    Makespan of DeepSeek's own order, its full backwards whole or split; None where it has no order of that size.

    >>> dualpipe(Cell("bidirectional", 4, 2, tuple(COSTS[3].items())))
    Fraction(248, 1)
    """
    spans = (_makespan(order, cell.costs) for order in own_orders(cell))
    return min((span for span in spans if span is not None), default=None)


def _makespan(schedule: Schedule, costs: CostModel) -> Fraction | None:
    timeline = simulate(schedule, costs).timeline
    return None if timeline is None else timeline.makespan


# --------------------------------------------------------------------------------------------------------------- for people


def _page(rows: list[dict[str, object]]) -> Iterator[str]:
    yield ABOUT
    optimal = sum(each["status"] == "optimal" for each in rows)
    shorter = sum(
        each["dualpipe"] is not None and Fraction(str(each["makespan"])) < Fraction(str(each["dualpipe"])) for each in rows
    )
    yield f"{len(rows)} schedules: {optimal} optimal, {len(rows) - optimal} with an open gap."
    yield f"{shorter} of them are shorter than DualPipe's order."
    for placement, title in (
        ("bidirectional", "Bidirectional: two weight copies"),
        ("v", "V: one weight copy, two stages per rank"),
    ):
        for prices in (*COSTS, HOPPING):
            some = [each for each in rows if each["placement"] == placement and each["costs"] == prices]
            if some:
                yield f"\n## {title}, {', '.join(f'{kind}={price}' for kind, price in prices.items())}\n"
                yield f"| {' | '.join(COLUMNS)} |"
                yield "|---" * len(COLUMNS) + "|"
                yield from (_line(each) for each in sorted(some, key=lambda each: (each["ranks"], each["microbatches"])))


def _more(each: dict[str, object]) -> str:
    """Time per micro-batch beyond the size, where it is proved."""
    law = each["all_microbatches"]
    if not isinstance(law, dict) or "time_per_period" not in law:
        return ""
    slope = plain(Fraction(str(law["time_per_period"])) / int(str(law["microbatches_per_period"])))
    return f"+{slope}, proved" if law["status"] == "proved" else f"+{slope} in the long run"


def _line(each: dict[str, object]) -> str:
    makespan, family = Fraction(str(each["makespan"])), each["dualpipe"]
    best_bound = each["lower_bound"] if each["scope_bound"] is None else each["scope_bound"]
    gap = makespan - Fraction(str(best_bound))
    saved = "" if family is None else f"{float(100 * (1 - makespan / Fraction(str(family)))):.1f}%"
    status = f"optimal, {each['scope']}" if each["status"] == "optimal" else "open"
    why = each["by"] or each["refuted_by"] or [each["bound"]]
    files = f"[json]({each['file']})" + (f", [csv]({each['table']})" if each["table"] else "")
    counts = each["microbatches"]
    assert isinstance(counts, list)
    assert isinstance(why, list)
    cells = [each["ranks"], sum(counts), each["makespan"], each["lower_bound"], each["scope_bound"] or "", plain(gap) or ""]
    return "| " + " | ".join(map(str, [*cells, family or "", saved, status, " and ".join(why), _more(each), files])) + " |"
