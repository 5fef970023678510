"""The report page as a file: what it holds of a schedule, and that nothing from a schedule leaves its place as text."""

import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from tempfile import NamedTemporaryFile

import pytest

from verifier.commands import drawing
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.gaps import gaps
from verifier.model import Block, Origin, Problem, Schedule, ScheduleError
from verifier.verify import verify
from verifier.views.report import page

HOSTILE = "</script><img src=x onerror=alert(1)>"


def judged(name, ranks, microbatches, **prices):
    return verify(build_family(name, ranks, microbatches), CostModel.of(**prices), solver="replay")


def named(report, name):
    simulation = replace(report.simulation, schedule=replace(report.schedule, name=name))
    return replace(report, schedule=simulation.schedule, simulation=simulation)


class Elements(HTMLParser):
    """The elements of a page with their texts, as a browser reads them."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.open = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes), []))
        self.open = True

    def handle_endtag(self, tag):
        self.open = False

    def handle_data(self, data):
        if self.open:
            self.found[-1][2].append(data)

    def texts(self, tag):
        return ["".join(words) for name, _, words in self.found if name == tag]


def data(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_blocks_are_in_the_order_of_the_graph():
    report = judged("dualpipe", 4, 8)
    [found] = data(page([report]))["schedules"]
    timeline = report.simulation.timeline
    assert found["start"] == [tick for row in timeline.start for tick in row]
    assert found["span"] == [tick for row in timeline.duration for tick in row]
    assert found["cause"] == list(report.simulation.cause)
    assert found["makespan"] == 26
    assert len(found["code"]) == len(found["start"]) + len(found["pairs"]) == len(found["microbatch"])
    assert found["most"] == 5
    assert found["gaps"] == [
        [[gap.position, gap.begin, gap.end, len(gap.chain)] for gap in row] for row in gaps(report.simulation)
    ]
    assert (found["held"][0], found["kept"][-1]) == (1, 0)


def test_the_table_of_ranks_tells_where_the_idle_time_lies():
    [found] = data(page([judged("1f1b", 4, 8)]))["schedules"]
    assert [row[:6] for row in found["rows"]] == [
        ["0", "9", "0", "9", "0", "9"],
        ["1", "9", "1", "6", "2", "6"],
        ["2", "9", "2", "3", "4", "3"],
        ["3", "9", "3", "0", "6", "0"],
    ]
    assert found["rows"][0][6:] == ["72.7%", "4", "1", "0"]
    assert found["numbers"].startswith("makespan 33, bubble 27.3% (3/11) of ranks times makespan; 4 ranks, 8 micro-batches")


def test_micro_batches_keep_the_numbers_of_the_source():
    schedule = build_family("1f1b", 2, 2)
    renamed = Schedule(schedule.problem, schedule.order, "renamed", Origin(microbatches=((3, 7),)))
    [found] = data(page([verify(renamed, solver="replay")]))["schedules"]
    assert set(found["microbatch"]) == {3, 7}
    assert not found["primes"]


def test_a_refuted_order_is_drawn_as_far_as_it_runs():
    rows = (("0F0", "0B0", "0F1", "0B1"), ("1F1", "1F0", "1B1", "1B0"))
    order = tuple(tuple(map(Block.parse, row)) for row in rows)
    [found] = data(page([verify(Schedule(Problem(((0, 1),), (2,)), order), solver="replay")]))["schedules"]
    assert found["status"] == "refuted"
    assert found["stuck"] == ["0B0", "1F1"]
    assert found["start"] == [0]
    assert found["gaps"] == [[], []]
    assert found["problems"][0].startswith("refuted (dependencies): 2 blocks wait in a circle")
    assert found["numbers"].startswith("no timeline exists")


def test_where_ranks_hang_the_table_has_no_empty_columns():
    rows = (("0F0", "0B0", "0F1", "0B1"), ("1F1", "1F0", "1B1", "1B0"))
    schedule = Schedule(Problem(((0, 1),), (2,)), tuple(tuple(map(Block.parse, row)) for row in rows))
    found = data(page([verify(schedule, solver="replay")]))["schedules"][0]
    assert found["columns"] == ["rank", "peak activations", "weight copies", "overlapped"]
    assert found["rows"][0] == ["0", "1", "1", "0"]


def test_one_of_a_thing_is_no_plural():
    assert "1 rank, 1 micro-batch;" in data(page([judged("1f1b", 1, 1)]))["schedules"][0]["numbers"]


def test_the_page_is_judged_as_verify_judges():
    written = drawing.page(["1f1b"], None, None, {"ranks": 2, "microbatches": 4})
    found = {row[0]: row[2] for row in data(written)["schedules"][0]["properties"]}
    assert found["dependencies"] == "replay and Z3"


def test_unequal_terms_are_said():
    for sizes, unequal in ((("4", "8"), False), (("4", "12"), True)):
        spec = f"[schedule]\nfamily = '1f1b'\nranks = {sizes[0]}\nmicrobatches = {sizes[1]}\n"
        with NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(spec)
            file.flush()
            written = drawing.page(["dualpipe", file.name], None, None, {"ranks": 4, "microbatches": 8})
        assert ("not all have the same ranks and micro-batches" in data(written)["note"]) == unequal


def test_a_block_on_a_foreign_rank_is_drawn():
    order = ((Block.parse("0F0"), Block.parse("1F0"), Block.parse("1B0")), (Block.parse("0B0"),))
    [found] = data(page([verify(Schedule(Problem(((0, 1),), (1,)), order), solver="replay")]))["schedules"]
    assert found["homes"] == [[[0, 0], [0, 1]], [[0, 1], [0, 0]]]


@pytest.mark.parametrize("name", [HOSTILE, "<!--<script>", "]]>&lt;\"'", "\x00\n\u2028\ud800", "排程 🙂"])
def test_names_stay_text(name):
    plain = page([judged("1f1b", 2, 2)])
    written = page([named(judged("1f1b", 2, 2), name), judged("1f1b", 2, 2)], note=name)
    written.encode()
    tags = [tag for tag, _, _ in Elements(plain).found]
    assert [tag for tag, _, _ in Elements(written).found] == tags
    assert {"img", "iframe", "link"}.isdisjoint(tags)
    if name.isprintable():
        assert data(written)["schedules"][0]["name"] == name
        assert Elements(written).texts("title") == [f"{name} | 1f1b P=2 M=2"]


def test_witnesses_and_notes_stay_text():
    report = judged("1f1b", 2, 2)
    written = page([replace(report, notes=(HOSTILE,))])
    assert HOSTILE not in written
    assert data(written)["schedules"][0]["notes"] == [HOSTILE]


def test_only_the_pages_own_script_and_style_may_run_and_nothing_is_fetched():
    written = page([judged("1f1b", 2, 2)])
    elements = Elements(written)
    [policy] = [found["content"] for _, found, _ in elements.found if found.get("http-equiv") == "Content-Security-Policy"]
    for directive, text in (("script-src", elements.texts("script")[-1]), ("style-src", elements.texts("style")[0])):
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not re.search(r"https?:|//[a-z]|innerHTML|insertAdjacent|document\.write|eval\(|\bsrc=|\bhref=", written)


def test_the_same_reports_give_the_same_bytes():
    reports = [judged("dualpipe", 4, 8), judged("1f1b", 4, 8)]
    assert page(reports) == page(reports)


def test_times_beyond_what_browsers_count_are_refused():
    with pytest.raises(ScheduleError, match="html: times need more digits"):
        page([judged("1f1b", 2, 2, F="12345678912345678")])
