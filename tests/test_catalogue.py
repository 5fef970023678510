"""The catalogue: every file is what the index says, its numbers are replayed, and a search takes from it only what it may."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.questions import bidirectional
from verifier.catalogue import __main__ as module
from verifier.catalogue.cells import COSTS, Cell, cells
from verifier.catalogue.lookup import folder, known, ratio, read_index, recorded
from verifier.catalogue.making import _repeating, _seeds, make, path, read, shortened
from verifier.catalogue.table import digest, dualpipe, row
from verifier.commands.synthesizing import synthesize as command
from verifier.costs import CostModel
from verifier.families import build_family, placement
from verifier.formats import load
from verifier.model import Limits, Problem, ScheduleError
from verifier.simulate import simulate
from verifier.synthesize import Synthesis, synthesize
from verifier.verify import verify

PLACE = Path(__file__).parents[1] / "generated_schedules"
ROWS = read_index(PLACE)
CELLS = {cell.name: cell for cell in cells()}
SMALL = 500
"""Ops of the largest schedules that every run of the tests reads and replays."""
MIDDLE = CostModel.of(**COSTS[2])


def ops(each: dict) -> int:
    return 3 * sum(each["microbatches"]) * each["ranks"] * (2 if each["placement"] == "v" else 1)


def judge(each: dict) -> None:
    """All properties, by replay; and the numbers of the index against the schedule."""
    cell, source = CELLS[Path(each["file"]).stem], load(PLACE / each["file"])
    assert source.schedule.problem == cell.problem
    assert source.costs.as_written() == cell.costs.as_written()
    report = verify(source.schedule, source.costs, source.limits, claims=source.claims, solver="replay")
    assert report.status == "proved", report
    assert source.limits == cell.limits
    makespan = simulate(source.schedule, cell.costs).timeline.makespan
    assert source.claims["makespan"] == each["makespan"] == makespan
    assert row(read(cell, PLACE), digest(PLACE / each["file"])) == each
    if each["table"]:
        assert load(PLACE / each["table"]).schedule == source.schedule


def test_index_equals_files():
    assert {each["file"] for each in ROWS} == {file.name for file in PLACE.glob("*.json")} - {"index.json"}
    assert {each["table"] for each in ROWS} - {None} == {file.name for file in PLACE.glob("*.csv")}
    assert len({each["file"] for each in ROWS}) == len(ROWS)
    assert all(each["digest"] == digest(PLACE / each["file"]) for each in ROWS)
    page = (PLACE / "README.md").read_text()
    assert all(f"]({each['file']})" in page for each in ROWS)


def test_nothing_is_below_its_bound():
    for each in ROWS:
        makespan, bound = Fraction(str(each["makespan"])), Fraction(str(each["lower_bound"]))
        scoped = bound if each["scope_bound"] is None else Fraction(str(each["scope_bound"]))
        assert bound <= scoped <= makespan
        assert (each["status"] == "optimal") == (scoped == makespan) == bool(each["by"])
        assert each["dualpipe"] is None or makespan <= Fraction(str(each["dualpipe"]))


@pytest.mark.parametrize("each", [each for each in ROWS if ops(each) <= SMALL], ids=lambda each: each["file"])
def test_small_schedules(each):
    judge(each)


@pytest.mark.parametrize("each", [each for each in ROWS if ops(each) > SMALL], ids=lambda each: each["file"])
def test_large_schedules_replay(each):
    source = load(PLACE / each["file"])
    assert source.schedule.problem == CELLS[Path(each["file"]).stem].problem
    simulation = simulate(source.schedule, source.costs)
    assert simulation.timeline.makespan == Fraction(str(each["makespan"]))
    assert max(simulation.peak_activations) <= each["activations"]


@pytest.mark.deep
@pytest.mark.parametrize("each", [each for each in ROWS if ops(each) > SMALL], ids=lambda each: each["file"])
def test_large_schedules(each):
    judge(each)


def test_v_placements_have_the_optima_of_the_mirrored_problem():
    found = {each["file"]: each for each in ROWS}
    compared = 0
    for each in ROWS:
        cell = CELLS[Path(each["file"]).stem]
        two = found.get(f"{cell.unfolded.name}.json") if cell.unfolded else None
        if two and not cell.costs.hop:
            assert Fraction(str(each["makespan"])) <= Fraction(str(two["makespan"]))
            if each["status"] == two["status"] == "optimal":
                assert each["makespan"] == two["makespan"]
                compared += 1
    assert compared > 40


def test_longer_ones_are_no_worse_than_the_proved_kernel_makes_them():
    found = {each["file"]: each for each in ROWS}
    compared = 0
    for each in ROWS:
        law = each["all_microbatches"]
        assert (law is None) == (CELLS[Path(each["file"]).stem].multiple > 2)
        if law and law["status"] == "proved":
            slope = Fraction(str(law["time_per_period"])) / law["microbatches_per_period"]
            for multiple in (4, 8):
                longer = found.get(f"{CELLS[Path(each['file']).stem].times(multiple).name}.json")
                if longer:
                    more = sum(longer["microbatches"]) - sum(each["microbatches"])
                    assert Fraction(str(longer["makespan"])) <= Fraction(str(each["makespan"])) + more * slope
                    compared += 1
    assert compared > 40


def test_dualpipe_splits_full_backwards_where_that_is_shorter():
    assert dualpipe(Cell("bidirectional", 4, 2, tuple(COSTS[3].items()))) == 248
    assert dualpipe(Cell("v", 1, 2, tuple(COSTS[0].items()))) is not None


# ------------------------------------------------------------------------------------------------------------- looking up


def test_an_answer_is_recalled_at_once():
    found = known(bidirectional(4), MIDDLE, Limits(5))
    assert (len(found.seeds), found.recorded.bound, found.recorded.scope) == (1, 47, "mirrored")
    answer = synthesize(bidirectional(4), MIDDLE, Limits(5), seeds=found.seeds, recorded=found.recorded, budget=1)
    assert (answer.status, answer.value, answer.scope, answer.certificate.recorded) == ("optimal", 47, "mirrored", True)
    assert answer.lower_bound == 46, "the bound for all schedules is worked out anew"
    assert "as recorded" in answer.sentence()
    assert answer.as_json()["certificate"]["recorded"] is True


def test_costs_may_differ_by_a_factor():
    costs = CostModel.of(F="2/3", I="2/3", W="2/3", FB="5/3")
    found = known(bidirectional(4), costs, Limits(5))
    assert found.recorded.bound == Fraction(47, 3)
    answer = synthesize(bidirectional(4), costs, Limits(5), seeds=found.seeds, recorded=found.recorded, budget=1)
    assert (answer.status, answer.value) == ("optimal", Fraction(47, 3))


def test_a_record_holds_under_tighter_limits_only():
    assert known(bidirectional(4), MIDDLE, Limits(4)).recorded.bound == 47
    assert known(bidirectional(4), MIDDLE, Limits((5, 4, 4, 5), 2)).recorded.bound == 47
    for looser in (Limits(6), Limits(), Limits((5, 6, 6, 5))):
        found = known(bidirectional(4), MIDDLE, looser)
        assert found.recorded is None
        assert found.seeds, "the schedules are legal under looser limits"


def test_a_mirrored_record_does_not_answer_for_all():
    found = known(bidirectional(4), MIDDLE, Limits(5))
    answer = synthesize(
        bidirectional(4), MIDDLE, Limits(5), scope="all", seeds=found.seeds, recorded=found.recorded, budget=0.1
    )
    assert (answer.status, answer.lower_bound, answer.certificate) == ("feasible", 46, None)


def test_a_record_for_all_answers_for_mirrored_too():
    found = known(bidirectional(4), MIDDLE, Limits(5))
    everywhere = replace(found.recorded, scope="all")
    for scope in ("all", "mirrored"):
        answer = synthesize(bidirectional(4), MIDDLE, Limits(5), scope=scope, seeds=found.seeds, recorded=everywhere, budget=1)
        assert (answer.status, answer.lower_bound, answer.scope) == ("optimal", 47, "all")


def test_other_costs_are_seeds():
    found = known(bidirectional(4), CostModel.of(F=3, I=3, W=3, FB=7), Limits(5))
    assert len(found.seeds) >= len(COSTS)
    assert found.recorded is None
    assert {schedule.problem for schedule in found.seeds} == {bidirectional(4)}


@pytest.mark.parametrize(("ranks", "column"), [(4, 0), (8, 3), (16, 3)])
def test_sizes_that_are_not_there_start_from_a_shorter_schedule_made_longer(ranks, column):
    """The gap to the bound is the least of the shorter ones that can be; both grow by the work of a micro-batch."""
    model, limits = CostModel.of(**COSTS[column]), Limits(ranks + 1)
    there = [
        each
        for each in ROWS
        if each["ranks"] == ranks and each["placement"] == "bidirectional" and not each["costs"].get("hop")
    ]
    there = [each for each in there if CostModel.of(**each["costs"]).as_written() == model.as_written()]
    (seed,) = known(bidirectional(ranks, 512), model, limits).seeds
    assert verify(seed, model, limits, solver="replay").status == "proved"
    slope = Fraction(COSTS[column]["FB"])
    ends = {
        Fraction(str(each["makespan"])) + slope * (512 - sum(each["microbatches"]))
        for each in there
        if each["all_microbatches"] is None or each["all_microbatches"]["status"] == "proved"
    }
    assert simulate(seed, model).timeline.makespan == min(ends)
    assert known(bidirectional(ranks, 512), model, Limits(ranks)).seeds == (), "none of them is within this limit"
    assert known(Problem(seed.problem.placement, (256, 255)), model, limits).seeds == ()


@pytest.mark.parametrize(("name", "ranks"), [("bidirectional", 4), ("v", 4)])
def test_limits_of_too_few_ranks_are_named_before_anything_is_looked_up(name, ranks):
    options = ["--placement", name, "-P", str(ranks), "-M", "8", "--activations", "5,5", "--budget", "1"]
    result = CliRunner().invoke(command, options, standalone_mode=False)
    assert isinstance(result.exception, ScheduleError), result.exception
    assert str(result.exception) == "limits.activations: expected one number or 4, one per rank; got 2"


def test_other_problems_are_unknown():
    for problem in (
        Problem(bidirectional(4).placement, (5, 4)),
        Problem(placement("sequential", 4), (8,)),
        Problem(((0, 1, 3, 2), (3, 2, 1, 0)), (4, 4)),
    ):
        assert known(problem, MIDDLE, Limits(5)).seeds == ()
    assert known(bidirectional(4), replace(MIDDLE, release=Fraction(1)), Limits(5)).recorded is None


def test_ratio():
    assert ratio(CostModel.of(hop=2, F=2, I=2, W=2), CostModel.of(hop=1)) == 2
    assert ratio(CostModel.of(F=0, I=2), CostModel.of(F=0, I=1)) is None, "W is 1 in both"
    assert ratio(CostModel.of(F=[1, 1]), CostModel.of()) is None
    assert ratio(CostModel.of(hop=2), CostModel.of(hop=1)) is None
    assert ratio(CostModel.of(FI=2), CostModel.of()) is None


def test_records_are_what_solvers_said():
    assert recorded({"status": "optimal", "lower_bound": 25, "scope_bound": None, "by": ["one rank"], "kind": "bound"}) is None
    found = recorded({"lower_bound": 46, "scope_bound": "95/2", "refuted_by": ["Z3"]}, Fraction(2))
    assert (found.bound, found.scope, found.by) == (95, "mirrored", ("Z3",))


def test_the_command_says_what_is_recorded():
    words = [
        "--placement",
        "bidirectional",
        "-P",
        "4",
        "-M",
        "8",
        "--costs",
        "F=2,I=2,W=2,FB=5",
        "--activations",
        "5",
        "--json",
    ]
    said = json.loads(CliRunner().invoke(command, [*words, "--budget", "1"], standalone_mode=False).output)
    assert (said["status"], said["makespan"], said["certificate"]["recorded"]) == ("optimal", 47, True)
    assert said["seconds"] < 1
    anew = json.loads(CliRunner().invoke(command, [*words, "--no-catalogue"], standalone_mode=False).output)
    assert (anew["makespan"], "recorded" in anew["certificate"]) == (47, False)
    other = json.loads(
        CliRunner().invoke(command, [*words, "--blocks", "F,B,F&B", "--budget", "2"], standalone_mode=False).output
    )
    assert "recorded" not in (other["certificate"] or {})


def test_a_damaged_catalogue_is_named(tmp_path):
    (tmp_path / "index.json").write_text("[]")
    with pytest.raises(ScheduleError, match=r"index.json: cannot be read .*--no-catalogue"):
        known(bidirectional(4), MIDDLE, Limits(5), tmp_path)
    (tmp_path / "index.json").write_text(json.dumps({"schedules": ROWS}))
    with pytest.raises(ScheduleError, match=r"no such file.*--no-catalogue"):
        known(bidirectional(4), MIDDLE, Limits(5), tmp_path)


def test_no_catalogue_no_help(monkeypatch):
    monkeypatch.setattr("verifier.catalogue.lookup.folder", lambda: None)
    assert known(bidirectional(4), MIDDLE, Limits(5)).seeds == ()
    monkeypatch.undo()
    assert folder() == PLACE


# ----------------------------------------------------------------------------------------------------------------- making


def test_making_resumes_after_an_interrupt(tmp_path, monkeypatch):
    words, made = [str(tmp_path), "--only", "p01"], []

    def counted(cell, *rest):
        if len(made) == 4:
            raise KeyboardInterrupt
        made.append(cell.name)
        return make(cell, *rest)

    monkeypatch.setattr(module, "make", counted)
    assert CliRunner().invoke(module.main, words).exit_code == 130
    assert len(list(tmp_path.glob("*.csv"))) == 4 == len(read_index(tmp_path))
    kept = {file.name: file.read_bytes() for file in tmp_path.glob("v-*")}
    made[:] = []
    monkeypatch.setattr(module, "make", lambda cell, *rest: (made.append(cell.name), make(cell, *rest))[1])
    assert CliRunner().invoke(module.main, words).exit_code == 0
    assert len(made) == sum("p01" in name for name in CELLS) - 4
    assert {name: (tmp_path / name).read_bytes() for name in kept} == kept
    assert len(read_index(tmp_path)) == len(made) + 4
    made[:] = []
    assert CliRunner().invoke(module.main, [*words, "--improve"]).exit_code == 0
    assert made == [], "all of them are optimal"


def test_time_that_is_up_makes_nothing(tmp_path):
    assert CliRunner().invoke(module.main, [str(tmp_path), "--budget", "0"]).exit_code == 0
    assert read_index(tmp_path) == []


def test_only_better_ones_replace_a_file(tmp_path):
    cell = Cell("bidirectional", 4, 2, tuple(COSTS[3].items()))
    make(cell, tmp_path, 0.1)
    poor = read(cell, tmp_path)
    assert not poor.is_optimal
    make(cell, tmp_path, 20)
    best = path(cell, tmp_path).read_bytes()
    assert read(cell, tmp_path).is_optimal
    assert read(cell, tmp_path).makespan == 245 < poor.makespan
    make(cell, tmp_path, 0.1)
    assert path(cell, tmp_path).read_bytes() == best


def test_v_is_the_folded_schedule(tmp_path):
    two, one = (Cell(name, ranks, 2, tuple(COSTS[2].items())) for name, ranks in (("bidirectional", 4), ("v", 2)))
    make(two, tmp_path, 20)
    found = make(one, tmp_path, 0)
    assert (found.status, found.value, found.scope) == ("optimal", 47, "all")
    assert read(one, tmp_path).certificate["by"] == read(two, tmp_path).certificate["by"]


def test_longer_cells_come_from_the_kernel(tmp_path):
    short = Cell("bidirectional", 4, 2, tuple(COSTS[3].items()))
    make(short, tmp_path, 20)
    found = make(short.times(8), tmp_path, 0)
    assert found.value == 245 + 24 * 26


@pytest.mark.parametrize(("family", "name", "ranks"), [("dualpipe", "bidirectional", 4), ("dualpipev", "v", 3)])
def test_schedules_are_shortened_by_what_repeats(family, name, ranks):
    cell = Cell(name, ranks, 2, tuple(COSTS[0].items()))
    longer, shorter = (build_family(family, ranks, multiple * ranks) for multiple in (8, 2))
    assert list(shortened(longer, cell)) == [shorter]
    assert list(shortened(build_family(family, ranks, 2 * ranks), cell.times(8))) == []


def test_of_schedules_that_are_as_short_one_that_repeats_is_kept(tmp_path, monkeypatch):
    cell = Cell("bidirectional", 4, 2, tuple(COSTS[2].items()))
    schedule = build_family("dualpipe", 4, 8)
    simulation = simulate(schedule, cell.costs)
    found = Synthesis("feasible", schedule, simulation, value=simulation.timeline.makespan)
    assert _repeating(found, cell, _seeds(cell, tmp_path)) is found, "it is proved itself"
    make(cell, tmp_path, 20)
    monkeypatch.setattr("verifier.catalogue.making._repeats", lambda other, cell: other.name == cell.name)
    assert _repeating(found, cell, _seeds(cell, tmp_path)) is found, "the other is shorter, and so another question"
    best = read(cell, tmp_path).source.schedule
    found = Synthesis("feasible", replace(best, name="anew"), simulate(best, cell.costs), value=Fraction(47))
    assert _repeating(found, cell, _seeds(cell, tmp_path)).schedule.name == cell.name


def test_files_of_something_else_are_refused(tmp_path):
    cell = Cell("v", 2, 2, tuple(COSTS[0].items()))
    path(cell, tmp_path).write_text((PLACE / f"{cell.times(4).name}.json").read_text())
    with pytest.raises(ScheduleError, match="expected v-p02-m004"):
        read(cell, tmp_path)
