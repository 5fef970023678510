"""
What ``export`` draws: pictures of one schedule, and the page that looks into one or compares several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from verifier.model import ScheduleError

if TYPE_CHECKING:
    from verifier.formats.source import Source
    from verifier.verify import Report

PICTURES = ("svg", "png", "pdf")


def picture(source: Source, form: str, theme: str, memory: bool) -> bytes:
    """The timeline as a picture, which says so where the schedule is refuted."""
    from verifier.sources import verdict
    from verifier.views.picture import picture as draw
    from verifier.views.picture import refuse_too_large

    refuse_too_large(source.schedule, form)
    return draw(verdict(source, solver="replay"), form, theme=theme, memory=memory)


def page(sources: Sequence[str], costs: str | None, per: str | None, given: dict[str, Any]) -> str:
    """The report page of one source as it is, or of several on equal terms; judged as ``verify`` does."""
    from verifier.sources import judged_under, open_source, verdict
    from verifier.views.report import page as write

    if len(sources) == 1:
        if per is not None:
            raise ScheduleError("html: --per says how several sources are compared; there is one")
        return write([verdict(judged_under(open_source(sources[0], **given), costs=costs))])
    return write(*_compared(sources, costs, per or "model", given))


def _compared(sources: Sequence[str], costs: str | None, per: str, given: dict[str, Any]) -> tuple[list[Report], str]:
    """The verdicts on several sources under the same costs, and the terms in words."""
    from verifier.compare import costs_of_shares
    from verifier.costs import CostModel
    from verifier.sources import fitting, open_source, verdict
    from verifier.specs import read_costs
    from verifier.views.labels import UNEQUAL, are_unequal, terms_text

    model = read_costs(costs) if costs is not None else CostModel.of()
    reports = []
    for name in sources:
        source = open_source(name, **fitting(name, given))
        used = costs_of_shares(model, source.schedule.problem) if per == "model" else model
        notes = source.notes if source.costs in (None, model) else (*source.notes, "its own costs are not used here")
        # Limits, claims and times of a source are about its own costs and stages.
        subject = replace(source, costs=used, limits=None, claims={}, start=None, notes=notes)
        reports.append(verdict(subject))
    unequal = are_unequal(report.schedule.problem for report in reports)
    return reports, terms_text(model, per) + (f" Note: {UNEQUAL}." if unequal else "")
