"""Pictures: what is drawn against the timeline, text inside its place, the same bytes every time."""

import importlib.util
from dataclasses import replace
from importlib.metadata import version
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from verifier.bounds import bounds
from verifier.cli import main
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.model import Block, Problem, Schedule, ScheduleError
from verifier.sources import open_source, verdict
from verifier.verify import verify
from verifier.views.palette import COLOURS, THEMES
from verifier.views.picture import FORMATS, picture
from verifier.views.sheet import held_stretches

pytest.importorskip("matplotlib")

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</script><img src=x onerror=alert(1)>"


def judged(name, ranks, microbatches, **prices):
    return verify(build_family(name, ranks, microbatches), CostModel.of(**prices), solver="replay")


def named(report, name):
    simulation = replace(report.simulation, schedule=replace(report.schedule, name=name))
    return replace(report, schedule=simulation.schedule, simulation=simulation)


def stuck():
    rows = (("0F0", "0B0", "0F1", "0B1"), ("1F1", "1F0", "1B1", "1B0"))
    order = tuple(tuple(map(Block.parse, row)) for row in rows)
    return verify(Schedule(Problem(((0, 1),), (2,)), order, "stuck"), solver="replay")


def root(report, **options):
    return ElementTree.fromstring(picture(report, **options))


def texts(tree):
    return ["".join(element.itertext()) for element in tree.iter(f"{SVG}text")]


def style(element):
    return dict(item.split(": ", 1) for item in element.get("style", "").split("; "))


def fills(tree):
    """The fill of every shape; a path holds all that look alike."""
    return [style(path).get("fill") for path in tree.iter(f"{SVG}path") for _ in range(path.get("d").count("M"))]


def boxes(tree):
    """Where the texts are: (left, top, right, bottom, text), measured with the font that ships with matplotlib."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    measure = TextToPath()
    for element in tree.iter(f"{SVG}text"):
        said, text = style(element), "".join(element.itertext())
        font = FontProperties(
            family="DejaVu Sans", size=float(said["font-size"].removesuffix("px")), weight=said.get("font-weight", "normal")
        )
        width, height, _ = measure.get_text_width_height_descent(text, font, ismath=False)
        x, y = float(element.get("x")), float(element.get("y"))
        left = x - {"start": 0, "middle": width / 2, "end": width}[said.get("text-anchor", "start")]
        yield left, y - height, left + width, y, text


@pytest.mark.parametrize(
    ("name", "ranks", "microbatches", "options"),
    [
        ("dualpipe", 8, 20, {}),
        ("dualpipe", 4, 8, {"theme": "dark", "memory": True}),
        ("dualpipev", 4, 10, {"memory": True}),
        ("1f1b", 2, 1, {"memory": True}),
        ("1f1b", 16, 16, {"theme": "dark"}),
    ],
)
def test_no_text_is_clipped_or_overlaps_another(name, ranks, microbatches, options):
    tree = root(judged(name, ranks, microbatches), **options)
    _, _, width, height = map(float, tree.get("viewBox").split())
    found = list(boxes(tree))
    assert min(left for left, *_ in found) >= 0
    assert min(top for _, top, *_ in found) >= 0
    assert max(right for _, _, right, _, _ in found) <= width
    assert max(bottom for *_, bottom, _ in found) <= height
    for one, other in combinations(found, 2):
        # Apart to the left, right, above or below.
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1], (one[4], other[4])


def test_every_block_is_drawn_and_numbered():
    report = judged("dualpipe", 8, 20)
    tree = root(report)
    parts = [part for row in report.schedule.order for block in row for part in block.parts]
    drawn = fills(tree)
    for kind, (light, dark) in COLOURS.items():
        legend = 1 + (kind in "FB") * 0.5
        expected = sum(part.kind == kind for part in parts)
        assert drawn.count(light) + drawn.count(dark) == expected + int(legend * 2)
    numbers = [text for text in texts(tree) if text.isdigit()]
    axis = 66 // 5 + 1
    assert len(numbers) == len(parts) + axis
    assert {"dualpipe P=8 M=20", "rank 7", "overlapped", "dark: direction 1"} <= set(texts(tree))
    assert any(text.startswith("makespan 66, bubble 9.1% (1/11); costs F=1,") for text in texts(tree))


def test_numbers_are_left_out_where_they_would_not_fit():
    costs = {"F": 100, "I": 100, "W": "1/10"}
    numbers = [text for text in texts(root(judged("zbv", 4, 8, **costs))) if text.isdigit() and int(text) < 8]
    assert len(numbers) == 2 * 2 * 4 * 8 + 1  # F and I of two stages on four ranks, and the 0 of the axis


def test_idle_time_and_memory_are_drawn():
    tree = root(judged("1f1b", 4, 8), memory=True)
    hatched = sum((fill or "").startswith("url(#") for fill in fills(tree))
    assert hatched == 15 + 1  # the gaps that were checked by hand, and the legend
    assert {"peak 4", "peak 3", "peak 2", "peak 1", "live activations"} <= set(texts(tree))


def test_memory_strips_are_as_high_as_what_is_held():
    report = judged("1f1b", 2, 4, F=2, hop=1, release="1/2")
    timeline = report.simulation.timeline
    for rank in range(2):
        found = list(held_stretches(report.simulation, timeline, rank))
        assert all(before[1] < after[0] or before[2] != after[2] for before, after in pairwise(found))
        # A sample of every tick, against the steps at the blocks.
        drawn = {tick: held for begin, end, held in found for tick in range(begin, end)}
        kept = [sum(map(report.costs.activation_steps, block.ops)) for block in report.schedule.order[rank]]
        for tick in range(timeline.makespan_ticks):
            begun = [at for at, start in enumerate(timeline.start[rank]) if start <= tick]
            inside = begun and tick < timeline.start[rank][begun[-1]] + timeline.duration[rank][begun[-1]]
            expected = report.simulation.held_steps[rank][begun[-1]] if inside else sum(kept[: len(begun)])
            assert drawn.get(tick, 0) == expected


def test_large_schedules_are_drawn_in_few_bytes():
    report = judged("zbv", 16, 128)
    blocks = sum(map(len, report.schedule.order))
    drawn = picture(report)
    assert len(drawn) / blocks < 200
    found = fills(ElementTree.fromstring(drawn))
    assert sum(found.count(colour) for kind in "FIW" for colour in COLOURS[kind]) == blocks + 2 * 3


def test_what_a_picture_cannot_show_is_refused(monkeypatch):
    monkeypatch.setattr("verifier.views.picture.MOST", 90)
    with pytest.raises(ScheduleError, match=r"^png: 96 blocks, and a picture has at most 90; --to html shows them all, and"):
        picture(judged("zbv", 4, 4), "png")
    ended = CliRunner().invoke(main, ["export", "zbv", "-P", "4", "-M", "4", "--to", "svg"])
    assert (ended.exit_code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_schedule_gives_the_same_bytes(form):
    report = judged("dualpipe", 4, 8)
    first = picture(report, form, memory=True)
    assert first == picture(report, form, memory=True)
    assert first.startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[form])


def test_an_svg_holds_no_date_and_no_version():
    drawn = picture(judged("1f1b", 2, 2)).decode()
    assert "Date" not in drawn
    assert "date" not in drawn
    assert "Matplotlib" not in drawn


def test_themes_differ_in_what_surrounds_the_blocks():
    light, dark = (fills(root(judged("1f1b", 2, 2), theme=theme)) for theme in ("light", "dark"))
    assert light[0] == THEMES["light"]["paper"]
    assert dark[0] == THEMES["dark"]["paper"]
    # Four blocks, and one colour in the legend.
    assert light[1:].count(COLOURS["F"][0]) == dark[1:].count(COLOURS["F"][0]) == 5


@pytest.mark.parametrize("name", [HOSTILE, "$\\frac{1}$ & <b>", "\x00\x1b[31m\n\ud800", "排程 🙂", "x" * 500])
@pytest.mark.parametrize("form", FORMATS)
def test_names_stay_text(name, form):
    report = named(judged("1f1b", 2, 4), name)
    drawn = picture(report, form)
    if form == "svg":
        tree = ElementTree.fromstring(drawn)
        assert {element.tag for element in tree.iter()}.isdisjoint({f"{SVG}script", f"{SVG}img", f"{SVG}foreignObject"})
        if len(name) < 50 and name.isprintable():
            assert name in texts(tree)
        assert max(map(len, texts(tree))) < 130


def test_a_long_name_ends_before_the_edge():
    for name in ("x" * 300, "排" * 300):
        drawn = root(named(judged("1f1b", 2, 4), name))
        (title,) = [text for text in texts(drawn) if text.startswith(name[0] * 10)]
        assert title.endswith("...")
        letters = sum(2 if letter == "排" else 1 for letter in title)
        assert 54 + letters * 11 * 0.72 < float(drawn.get("viewBox").split()[2])


def test_long_costs_are_written_on_several_lines():
    costs = CostModel.of(F=[1, 2] * 6, I=[2, 3] * 6, W=[1, 3] * 6, FB=9, hop="1/2")
    report = verify(build_family("1f1b", 12, 2), costs, solver="replay")
    words = " ".join(texts(root(report)))
    assert "hop=1/2" in words
    assert "..." not in words
    drawn = root(report)
    right = float(drawn.get("viewBox").split()[2])
    assert all(box[2] <= right for box in boxes(drawn))


def test_legends_show_the_second_colour_where_it_occurs():
    dark = COLOURS["F"][1]
    assert dark not in fills(root(judged("gpipe", 4, 8)))
    assert dark in fills(root(judged("dualpipev", 2, 4)))


def test_outlines_fade_with_their_blocks():
    """Full outlines around blocks of a point would cover half of them."""
    drawn = root(judged("1f1b", 16, 256))
    widths = {float(style(path)["stroke-width"]) for path in drawn.iter(f"{SVG}path") if style(path).get("stroke-width")}
    assert min(widths) < 0.4


def test_where_ranks_hang_the_picture_says_so():
    found = texts(root(stuck()))
    assert {"waits at 0B0", "waits at 1F1"} <= set(found)
    assert any(text.startswith("no timeline exists") for text in found)
    assert any(text.startswith("refuted (dependencies): 2 blocks wait in a circle") for text in found)
    assert "critical path" not in found


def test_the_optimum_of_the_documentation_is_one():
    source = open_source(str(Path(__file__).parents[1] / "examples" / "optimum-p8-m20.json"))
    report = verdict(source)
    dualpipe = build_family("dualpipe", 8, 20)
    assert report.schedule.problem == dualpipe.problem
    assert (report.status, source.limits.activations, source.costs) == ("proved", 9, CostModel.of(FB=3))
    shortest = bounds(dualpipe.problem, source.costs, source.limits)[0]
    assert report.simulation.timeline.makespan == shortest.ticks / source.costs.ticks_per_unit == 63


def test_the_pictures_of_the_documentation_are_current():
    if version("matplotlib").rpartition(".")[0] != "3.11":
        pytest.skip("they were drawn with matplotlib 3.11, and another may write the same lines in other words")
    spec = importlib.util.spec_from_file_location("draw", Path(__file__).parents[1] / "docs" / "draw.py")
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    expected = dict(draw.drawn())
    assert {path.name for path in expected} == {path.name for path in draw.FOLDER.iterdir()}
    outdated = [path.name for path, content in expected.items() if path.read_bytes() != content]
    assert not outdated, f"make pictures would change {outdated}"
