"""
Draw the pictures of the documentation (``make pictures``).

A picture is a line in :data:`PICTURES`: its name, and what ``verifier.sources.open_source`` opens, be it a family or a file; or
one in :data:`CHARTS`: its name, a sweep of ``specs``, and the axis that it goes along.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verifier.sources import open_source, verdict
from verifier.sweep import Record, measured, read_sweep
from verifier.sweep.chart import chart
from verifier.views.picture import picture

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"

PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "dualpipe-p8-m20": ("dualpipe", {"ranks": 8, "microbatches": 20}),
    # Searched for once and kept, with its certificate, since another search may find another schedule as short.
    "optimum-p8-m20": (str(ROOT / "examples" / "optimum-p8-m20.json"), {}),
    "dualpipev-p4-m10": ("dualpipev", {"ranks": 4, "microbatches": 10}),
    "1f1b-p8-m20": ("1f1b", {"ranks": 8, "microbatches": 20}),
    "zbv-p4-m10": ("zbv", {"ranks": 4, "microbatches": 10}),
}
CHARTS = {"idle-over-ranks": ("sweep-ranks", "ranks"), "idle-over-microbatches": ("sweep-microbatches", "microbatches")}


def drawn() -> Iterator[tuple[Path, bytes]]:
    """Every picture, light and dark, and the file that it belongs into."""
    for name, (source, options) in PICTURES.items():
        report = verdict(open_source(source, **options), solver="replay")
        for theme in ("light", "dark"):
            yield FOLDER / f"{name}-{theme}.svg", picture(report, theme=theme)
    for name, (spec, axis) in CHARTS.items():
        points = read_sweep(ROOT / "specs" / f"{spec}.toml")
        record = Record(points)
        for point in points:
            record.add(measured(point))
        for theme in ("light", "dark"):
            yield FOLDER / f"{name}-{theme}.svg", chart(points, record, axis=axis, theme=theme)


if __name__ == "__main__":
    for path, content in drawn():
        path.write_bytes(content)
