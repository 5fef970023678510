"""What people see: the grid against the timeline, colours only where they are seen, tables with the right numbers."""

import io
import json
import re
from dataclasses import replace
from fractions import Fraction
from math import lcm

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.color import Color, ColorSystem
from rich.console import Console

from tests.strategies import schedules
from verifier.cli import main
from verifier.compare import Refusal, compare
from verifier.costs import CostModel
from verifier.families import FAMILIES, build_family
from verifier.formats import read
from verifier.model import Block, Limits, Problem, Schedule, Witness, shown
from verifier.simulate import simulate
from verifier.verify import Property, verify
from verifier.views.grid import MAX_BANDS, STYLES, STYLES_OF_SIXTEEN, draw
from verifier.views.terminal import console, print_comparison, print_families, print_report, print_show


def lines(simulation, width=120, **options):
    return [line.plain.rstrip() for line in draw(simulation, width, **options).lines]


def printed(show, *args, width=120, colours=None):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colours is not None, color_system=colours, highlight=False)
    show(console, *args)
    return out.getvalue()


def words(rows):
    """The words of each rank over all bands, without those parts of blocks that carry no word."""
    found = {}
    for line in rows:
        if line.startswith("rank"):
            _, rank, *rest = line.split()
            found.setdefault(int(rank), []).extend(word.lstrip("-") for word in rest if word.strip("-.·"))
    return found


# ------------------------------------------------------------------------------------------------------------------ grid


def test_1f1b_is_drawn_as_in_the_papers():
    assert lines(simulate(build_family("1f1b", 3, 3))) == [
        "         0              5              10",
        "rank 0   F0 F1 F2 .  .  .  .  B0    .  B1    .  B2",
        "rank 1   .  F0 F1 .  .  B0    F2 B1    .  B2    .  .",
        "rank 2   .  .  F0 B0    F1 B1    F2 B2    .  .  .  .",
        "",
    ]


@pytest.mark.parametrize(("width", "bands"), [(300, 1), (200, 2), (120, 3), (80, 5)])
def test_the_reports_schedule_is_readable_at_every_width(width, bands):
    rows = lines(simulate(build_family("dualpipe", 8, 20)), width)
    assert max(map(len, rows)) < width
    assert sum(line.startswith("rank 0") for line in rows) == bands
    order = build_family("dualpipe", 8, 20).order
    found = words(rows)
    for rank, row in enumerate(order):
        expected = [re.sub(r"\d+(?=[FBIW])", "", str(block)).strip("()").replace(";", "&") for block in row]
        assert re.findall(r"[FBIW]\d+'?(?:&[FBIW]\d+'?)?", "".join(found[rank])) == expected


@pytest.mark.parametrize(("width", "bands"), [(200, 1), (120, 2)])
def test_colours_leave_more_room(width, bands):
    rows = lines(simulate(build_family("dualpipe", 8, 20)), width, styles=STYLES)
    assert max(map(len, rows)) < width
    assert sum(line.startswith("rank 0") for line in rows) == bands


@given(schedules())
def test_every_block_is_drawn_where_its_time_is(schedule):
    """At one tick per column or more, a block is as wide as it lasts, and idle time is as long as it is."""
    simulation = simulate(schedule)
    rows = lines(simulation, 100_000)
    margin = len(rows[1]) - len(rows[1].partition("   ")[2])
    widest = max((len(line) - margin for line in rows[1:]), default=0)
    assert widest <= 40 * simulation.timeline.makespan_ticks
    for rank, row in enumerate(schedule.order):
        text = rows[1 + rank][margin:]
        labels = re.findall(r"[^\s.]+(?:\s*&\S+)?", text)
        assert len(labels) == len(row)


def test_columns_are_proportional_to_time():
    simulation = simulate(build_family("dualpipe", 4, 8), CostModel.of(F=10, I=12, W=9, FB=26))
    row = lines(simulation, 1000)[1]
    starts = [match.start() for match in re.finditer(r"[FBIW&]\d+", row)]
    # Full labels of four columns in blocks of ten ticks or more.
    assert starts[1] - starts[0] in (4, 5)
    assert (starts[-1] - starts[0]) / (starts[1] - starts[0]) == pytest.approx(
        float(simulation.timeline.start[0][-1]) / 10, rel=0.25
    )


def test_stages_are_written_where_the_rank_does_not_say_them():
    rows = lines(simulate(build_family("zbv", 2, 3)))
    assert "3F0" in rows[1]
    assert "2I0" in rows[2]


def test_the_numbers_of_the_file_are_drawn():
    table = b"0F2,1F3,1B3,0B2,0F0,0B0\n1F2,0F3,0B3,1B2,1F0,1B0\n"
    source = read(table, "table", microbatches=4)
    text = "\n".join(lines(simulate(source.schedule)))
    assert "F2" in text
    assert "F3" in text
    assert "'" not in text


def test_a_stretch_of_time():
    simulation = simulate(build_family("1f1b", 2, 8))
    grid = draw(simulation, 200, since=Fraction(3), until=Fraction(9))
    text = [line.plain.rstrip() for line in grid.lines]
    assert text[1].startswith("rank 0   ")
    assert "F0" not in text[1]
    assert grid.until == 9
    assert draw(simulation, 200, since=Fraction(10**9)).lines == ()


def test_a_stretch_is_drawn_at_a_scale_for_what_is_in_it():
    report = verify(build_family("zbv", 2, 4), CostModel.of(F=1, I=2, W=100), solver="replay")
    row = "rank 0   0F0 0F1 0F2 3F0 3I0     3W0"
    assert row in printed(print_show, report, Fraction(0), Fraction(10))
    whole = printed(print_show, report)
    assert "0F0" not in whole
    assert "31 blocks are too short to draw at this scale; a shorter stretch, with --from and --to" in whole
    assert "too short" not in printed(print_show, report, Fraction(0), Fraction(10))


def test_a_short_block_has_a_dash_where_nothing_else_is():
    simulation = simulate(build_family("1f1b", 2, 2), CostModel.of(F=1, I=2, W=100))
    assert lines(simulation)[1:3] == ["rank 0   -  B0 B1", "rank 1   B0 B1 ."]
    assert draw(simulation, 120).hidden == 3


def test_a_stretch_within_a_block_is_drawn():
    text = lines(simulate(build_family("1f1b", 2, 2)), since=Fraction("0.2"), until=Fraction("0.3"))
    assert text[1].startswith("rank 0   -------")


@pytest.mark.parametrize(
    ("stretch", "said"),
    [
        ((Fraction(100), None), "Nothing to draw from 100: what runs does so from 0 to 27."),
        ((None, Fraction(-1)), "Nothing to draw to -1: what runs does so from 0 to 27."),
        ((Fraction(50), Fraction(60)), "Nothing to draw from 50 to 60: what runs does so from 0 to 27."),
    ],
)
def test_a_stretch_without_anything_is_said(stretch, said):
    text = printed(print_show, verify(build_family("1f1b", 2, 8), solver="replay"), *stretch)
    assert said in text
    assert "rank 0   " not in text


def test_sixteen_colours_tell_all_kinds_and_directions_apart():
    report = verify(build_family("dualpipe", 4, 8), CostModel.of(), solver="replay")
    backgrounds = {style.rpartition(" on ")[2] for pair in STYLES_OF_SIXTEEN.values() for style in pair}
    assert len(backgrounds) == 8
    seen = set(re.findall(r";(4\d|10\d)m", printed(print_show, report, colours="standard")))
    assert len(seen) == 8


def test_256_colours_tell_all_kinds_and_directions_apart():
    backgrounds = [Color.parse(style.rpartition(" on ")[2]) for pair in STYLES.values() for style in pair]
    assert len({colour.downgrade(ColorSystem.EIGHT_BIT).number for colour in backgrounds}) == 8


def test_a_long_schedule_is_cut_after_some_bands():
    grid = draw(simulate(build_family("1f1b", 2, 400)), 80)
    assert sum(line.plain.startswith("rank 0") for line in grid.lines) == MAX_BANDS
    assert 0 < grid.until < 1200
    all_of_it = draw(simulate(build_family("1f1b", 2, 400)), 80, until=Fraction(10**6))
    assert all_of_it.until is None


def test_a_long_wait_does_not_take_memory():
    grid = draw(simulate(build_family("1f1b", 2, 2), CostModel.of(hop=10**12)), 80)
    assert len(grid.lines) == 4 * MAX_BANDS


def test_a_block_over_the_edge_of_a_band_is_named_once():
    schedule = Schedule(Problem(((0,),), (1,)), (tuple(map(Block.parse, ("0F0", "0B0"))),))
    rows = lines(simulate(schedule, CostModel.of(F=1, B=7)), 29)
    assert [line for line in rows if line.startswith("rank")] == ["rank 0   F0 B0", "rank 0   ----"]


def test_stuck_ranks_are_marked():
    rows = (("0F0", "0B0", "0F1", "0B1"), ("1F1", "1F0", "1B1", "1B0"))
    schedule = Schedule(Problem(((0, 1),), (2,)), tuple(tuple(map(Block.parse, row)) for row in rows))
    assert lines(simulate(schedule))[1:3] == ["rank 0   F0 ?B0", "rank 1   ?F1"]


def test_rulers_name_round_times():
    ruler = lines(simulate(build_family("1f1b", 4, 8), CostModel.of(F="1/10", I="1/10", W="1/10")), 200)[0]
    assert ruler.split() == ["0", "0.5", "1", "1.5", "2", "2.5", "3"]


# ---------------------------------------------------------------------------------------------------------------- printed


def test_show_says_when_ranks_are_busy():
    text = printed(print_show, verify(build_family("dualpipe", 8, 20), solver="replay"))
    for expected in (
        "dualpipe P=8 M=20   F=1,I=1,W=1,B=2,FB=3",
        "makespan       66",
        "bubble         9.1% (1/11)",
        "no rank idles  from 23 to 40 (17 long)",
        "steady         from 3 to 66 (63 long)",
        "overall        90.9% (10/11) busy",
        "   3     6          3  90.9%         95.2%            9        2          11",
    ):
        assert expected in text
    assert "\x1b" not in text


def test_show_in_colours_marks_kinds_by_colour_and_nothing_else():
    text = printed(print_show, verify(build_family("dualpipe", 4, 8), solver="replay"), colours="truecolor")
    assert "48;2;221;154;10" in text
    assert "F0" not in text
    assert "overlapped" in text


def test_show_warns_of_a_wrong_order():
    schedule = Schedule(Problem(((0,),), (1,)), ((Block.parse("0F0"), Block.parse("0I0")),))
    text = printed(print_show, verify(schedule, solver="replay", notes=("read with care",)))
    assert "refuted (complete): 0W0 is missing; expected once, on rank 0" in text
    assert "note: read with care" in text


def test_show_of_a_circle_says_where():
    rows = (("0F0", "0B0", "0F1", "0B1"), ("1F1", "1F0", "1B1", "1B0"))
    schedule = Schedule(Problem(((0, 1),), (2,)), tuple(tuple(map(Block.parse, row)) for row in rows))
    assert "no timeline exists: 2 blocks wait in a circle: rank 0" in printed(print_show, verify(schedule, solver="replay"))


def test_reports_name_every_property_and_witness():
    report = verify(build_family("dualpipe", 8, 20), limits=Limits(activations=8, weights=2), solver="replay")
    text = printed(print_report, report)
    assert text.startswith("dualpipe P=8 M=20: refuted\n")
    for name, part in report.properties.items():
        assert re.search(rf"^  {name} +{part.status}", text, re.MULTILINE)
    assert "      rank 0, position 17: (0F7;7B3') brings the live activations to 9; the limit is 8\n" in text
    assert "idle              6 on every rank\n" in text
    assert "span idle         6, 5, 4, 3, 3, 4, 5, 6\n" in text


def test_reports_say_which_ways_stand_behind_a_verdict_and_under_which_model():
    models = {"rank": Property("refuted", (Witness("rank 0 sends first"),)), "tagged": Property("proved", method="z3")}
    report = replace(
        verify(build_family("1f1b", 2, 2), solver="replay"),
        properties={
            "complete": Property("proved", method="both"),
            "activations": Property("unknown", reason="no answer in 60 s"),
            "messages": Property("refuted", method="", models=models),
        },
        waiting=(1, 2),
    )
    text = printed(print_report, report)
    assert "  complete        proved     replay and Z3\n" in text
    assert "no answer in 60 s" in text
    assert "    rank          refuted    replay\n        rank 0 sends first\n" in text
    assert "    tagged        proved     Z3\n" in text
    assert "waiting inputs    1, 2 at most, over all timelines of this order" in text


def test_witnesses_are_never_wrapped():
    report = verify(build_family("dualpipe", 8, 20), limits=Limits(activations=8), solver="replay")
    assert "brings the live activations to 9; the limit is 8" in printed(print_report, report, width=30)


def test_reports_of_many_ranks_stay_short():
    text = printed(print_report, verify(build_family("1f1b", 20, 20), solver="replay"))
    assert "span idle         0 to 57 (--json lists every rank)" in text


def test_comparisons_write_weights_in_parts_of_the_ranks():
    rows = [compare(build_family(name, 8, 20)) for name in ("dualpipe", "dualpipev", "1f1b")]
    text = printed(print_comparison, rows, CostModel.of(), "model")
    assert re.search(r"^dualpipe P=8 M=20 +66 +6 .* 2/8 +82$", text, re.MULTILINE)
    assert re.search(r"^dualpipev P=8 M=20 +67 +7 .* 1/8 +163$", text, re.MULTILINE)
    assert re.search(r"^1f1b P=8 M=20 +81 +21 .* 1/8 +0$", text, re.MULTILINE)


def test_comparisons_say_what_is_not_equal_and_what_is_refused():
    uneven = Schedule(Problem(((0, 0, 1),), (1,)), tuple(tuple(map(Block.parse, row)) for row in (
        ("0F0", "1F0", "1B0", "0B0"), ("2F0", "2B0"))), "uneven")  # fmt: skip
    rows = [compare(uneven), compare(build_family("1f1b", 2, 2), own_costs=CostModel.of(F=9)), Refusal("x.csv", "x.csv: why")]
    text = printed(print_comparison, rows, CostModel.of(), "model")
    assert re.search(r"^uneven +6 +4 \(3\) .* 2/3 +0$", text, re.MULTILINE)
    assert "not all have the same ranks and micro-batches" in text
    assert "note: 1f1b P=2 M=2: its own costs are not used here" in text
    assert "x.csv: why\n" in text
    assert "2" in printed(print_comparison, [compare(uneven, per="stage")], CostModel.of(), "stage")


def test_families_are_all_there():
    text = printed(print_families, FAMILIES.values(), width=200)
    for family in FAMILIES.values():
        assert f"{family.name}   {family.description}\n" in text
        assert f"sizes: {family.conditions};" in text
        for claim in family.claims:
            assert claim.formula.split()[0] in text
            assert claim.source in text


def test_plain_where_there_is_no_terminal(capsys):
    out = console()
    out.print("plain", style="bold red")
    assert capsys.readouterr().out == "plain\n"


def test_width_of_a_pipe(monkeypatch):
    monkeypatch.setenv("COLUMNS", "93")
    assert console().width == 93
    monkeypatch.delenv("COLUMNS")
    assert console().width == 120


@given(st.fractions(min_value=0, max_value=1000, max_denominator=400))
def test_numbers_for_people_are_exact(value):
    assert Fraction(shown(value)) == value
    assert ("/" in shown(value)) == (lcm(10_000, value.denominator) != 10_000)


# --------------------------------------------------------------------------------------------------------- show --json


def test_show_json_carries_the_timeline_when_asked():
    words = ["show", "1f1b", "-P", "2", "-M", "2", "--costs", "F=1/2,hop=1/3", "--json"]
    found = json.loads(CliRunner().invoke(main, [*words, "--timeline"]).output)
    assert found["order"][1] == ["1F0", "1B0", "1F1", "1B1"]
    assert found["start"][1] == ["5/6", "4/3", "10/3", "23/6"]
    assert found["end"][1] == ["4/3", "10/3", "23/6", "35/6"]
    assert "start" not in json.loads(CliRunner().invoke(main, words).output)
    assert CliRunner().invoke(main, [*words[:-1], "--timeline"]).exit_code == 2


def test_show_json_has_no_times_where_ranks_hang(tmp_path):
    file = tmp_path / "stuck.csv"
    file.write_text("0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n")
    found = json.loads(CliRunner().invoke(main, ["show", str(file), "--json", "--timeline"]).output)
    assert (found["start"], found["end"], found["order"][0][1]) == (None, None, "0B0")


def test_legends_show_the_second_colour_where_it_occurs():
    dark = STYLES["F"][1]
    background = "48;2;" + ";".join(str(int(dark.rpartition("#")[2][at : at + 2], 16)) for at in (0, 2, 4))
    assert background not in printed(print_show, verify(build_family("1f1b", 2, 4), solver="replay"), colours="truecolor")
    assert background in printed(print_show, verify(build_family("zbv", 2, 4), solver="replay"), colours="truecolor")
