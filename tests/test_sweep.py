"""Sweeps: which points a spec has, that nothing done is lost or done again, and that whoever works comes to the same rows."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from verifier.cli import main
from verifier.commands import sweeping
from verifier.compare import compare
from verifier.costs import CostModel
from verifier.families import FAMILIES, build_family
from verifier.model import ScheduleError
from verifier.sweep import Point, Record, measured, read_sweep, rows_of
from verifier.sweep.chart import chart
from verifier.sweep.measure import COLUMNS, QUANTITIES, RESULTS, completed
from verifier.sweep.points import KEYS
from verifier.sweep.record import dump
from verifier.sweep.table import AXES, NAMES, default_axis, panels
from verifier.sweep.work import dask, local

ROOT = Path(__file__).parents[1]
TWO_HUNDRED = """
[sweep]
family = ["gpipe", "1f1b", "zb1p", "dualpipe"]
ranks = [2, 4, 6, 7, 8]
microbatches = "16..34 step 2"
[costs]
F = 10
I = "12.5"
W = 9
FB = 26
"""
"""Two hundred points that are quick, but not so quick that they are done before an interrupt."""
FEW = '[sweep]\nfamily = ["1f1b", "zb1p"]\nranks = [2, 4]\nmicrobatches = [4, 8]\n'


@pytest.fixture
def spec(tmp_path):
    """Write a spec; its path."""

    def write(text):
        path = tmp_path / "sweep.toml"
        path.write_text(text)
        return str(path)

    return write


def run(*words):
    return CliRunner().invoke(main, ["sweep", *map(str, words)], env={"COLUMNS": "120"})


def rows_in(path):
    """The rows of a CSV, read by nobody of ours."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file, strict=True))


# ------------------------------------------------------------------------------------------------------- which points


def test_every_combination_is_a_point_in_the_order_of_the_spec(spec):
    points = read_sweep(
        spec(
            '[sweep]\nfamily = ["dualpipe", "interleaved"]\nranks = [4, 6]\nmicrobatches = [8, "2P..3P step 4"]\n'
            'stages_per_rank = [2, 3]\nrule = ["pytorch", "megatron"]\nper = ["model", "stage"]\n'
            '[synthesize]\nplacement = ["sequential", "v"]\nbudget = 2.5\nblocks = "F, B"\n'
            "[[costs]]\nF = 1\n[[costs]]\nF = [1, 2]\nFB = 2.5\n[[limits]]\n[[limits]]\nactivations = [4, 3]\nweights = 2\n"
        )
    )
    # For P=4 8 and 12 of the range, where 8 is the 8 before; for P=6 8, 12 and 16.
    subjects = 1 + 4 + 1 + 2
    assert len(points) == subjects * (3 - 1 + 3) * 2 * 2 * 2
    assert len({point.key for point in points}) == len(points)
    first = points[0]
    assert (first.family, first.ranks, first.microbatches, first.costs) == ("dualpipe", 4, 8, "F=1,I=1,W=1,B=2,FB=3")
    assert {point.costs for point in points} == {"F=1,I=1,W=1,B=2,FB=3", "F=[1,2],I=1,W=1,B=2,FB=5/2"}
    assert {(point.activations, point.weights) for point in points} == {("", ""), ("4,3", "2")}
    assert {point.search for point in points if point.placement} == {"budget=5/2 blocks=F,B"}


def test_what_is_written_in_two_ways_is_done_once_and_drawn_twice(spec):
    points = read_sweep(spec('[sweep]\nfamily = "1f1b"\nranks = [4, 8]\nmicrobatches = [8, "2P"]\n'))
    assert [(point.ranks, point.microbatches, point.written) for point in points] == [
        (4, 8, "8"),
        (4, 8, "2P"),
        (8, 8, "8"),
        (8, 16, "2P"),
    ]
    record = Record(points)
    assert len(record.missing) == 3
    for point in record.missing:
        record.add(measured(point))
    assert [(panel.title, panel.places) for panel in panels(points, record, "ranks")] == [("M=8", (4, 8)), ("M=2P", (4, 8))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "sweep: missing; expected a table [sweep] with family, ranks and microbatches"),
        ("[sweeps]\n", "sweeps: unknown key; did you mean sweep?"),
        (FEW + "rank = 3\n", "sweep.rank: unknown key; did you mean ranks?"),
        ("sweep = 3\n", "sweep: expected a table [sweep]"),
        ("[sweep]\nranks = 4\nmicrobatches = 4\n", "sweep.family: missing"),
        ('[sweep]\nfamily = "1f1b"\nranks = 4\n', "sweep.microbatches: missing"),
        ('[sweep]\nfamily = "1f2b"\nranks = 4\nmicrobatches = 4\n', "sweep.family: expected some of gpipe, 1f1b, "),
        ("[sweep]\nfamily = 3\nranks = 4\nmicrobatches = 4\n", 'sweep.family: expected text, got "3"'),
        (
            '[sweep]\nfamily = "1f1b"\nranks = "2P"\nmicrobatches = 4\n',
            'sweep.ranks: expected whole numbers such as 8 or "4..16',
        ),
        ('[sweep]\nfamily = "1f1b"\nranks = [0]\nmicrobatches = 4\n', "sweep.ranks: expected whole numbers from 1 to "),
        ('[sweep]\nfamily = "1f1b"\nranks = [true]\nmicrobatches = 4\n', "sweep.ranks: expected whole numbers such as 8"),
        ('[sweep]\nfamily = "1f1b"\nranks = 4\nmicrobatches = "8..4"\n', 'sweep.microbatches: "8..4" ends below its beginning'),
        (
            '[sweep]\nfamily = "1f1b"\nranks = 4\nmicrobatches = "4..8 step 0"\n',
            'sweep.microbatches: "4..8 step 0" has a step of 0',
        ),
        ('[sweep]\nfamily = "1f1b"\nranks = "1..999999"\nmicrobatches = "1..9"\n', "sweep: more than 1000000 points"),
        (FEW + 'per = "rank"\n', 'sweep.per: expected model or stage, got "rank"'),
        (FEW + "[costs]\nX = 1\n", "costs.X: unknown key"),
        (FEW + "[[costs]]\nF = 1\n[[costs]]\nF = -1\n", "costs[1].F: expected a number"),
        (FEW + "[limits]\nactivation = 1\n", "limits.activation: unknown key; did you mean activations?"),
        (FEW + "[[limits]]\nweights = 0.5\n", "limits.weights: expected whole numbers"),
        (FEW + '[synthesize]\nplacement = "w"\n', "synthesize.placement: expected some of sequential, "),
        (FEW + '[synthesize]\nplacement = "v"\npairs = "all"\n', 'synthesize.pairs: expected opposite or any, got "all"'),
        (FEW + '[synthesize]\nplacement = "v"\nbudget = "long"\n', "synthesize.budget: expected a number"),
        ("costs = [1]\n" + FEW, "costs: expected a table [costs], or several [[costs]]"),
    ],
)
def test_a_wrong_spec_is_one_line_with_its_place(spec, text, said):
    path = spec(text)
    with pytest.raises(ScheduleError) as caught:
        read_sweep(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert said in message


# ------------------------------------------------------------------------------------------------------ what they give


@given(
    st.sampled_from(sorted(FAMILIES)),
    st.integers(1, 6),
    st.integers(1, 14),
    st.sampled_from(["F=1,I=1,W=1,B=2,FB=3", "F=10,I=12,W=9,B=21,FB=26,hop=1/2"]),
    st.sampled_from(["model", "stage"]),
)
def test_rows_say_what_compare_says_and_survive_both_files(tmp_path_factory, family, ranks, microbatches, costs, per):
    point = Point(family, "", ranks, microbatches, costs=costs, per=per)
    row = measured(point)
    assert tuple(row) == COLUMNS
    if row["status"] == "refused":
        with pytest.raises(ScheduleError) as caught:
            build_family(family, ranks, microbatches)
        assert row["reason"] == str(caught.value)
    else:
        expected = compare(build_family(family, ranks, microbatches), CostModel.parse(costs), per)
        assert (row["status"], Fraction(str(row["makespan"]))) == ("proved", expected.makespan)
        assert Fraction(str(row["idle_mean"])) == expected.idle_mean
        assert Fraction(str(row["bubble_ratio"])) == 1 - expected.utilisation
    for form in ("csv", "json"):
        path = tmp_path_factory.mktemp("rows") / f"x.{form}"
        path.write_text(dump([row], form))
        assert Record([point], path).rows() == [row]


def test_a_limit_that_is_broken_is_a_row_with_the_place():
    row = measured(Point("1f1b", "", 4, 8, activations="3"))
    assert (row["status"], row["makespan"], row["peak_activations"]) == ("refuted", 33, 4)
    assert "rank 0" in str(row["reason"])


def test_shortest_schedules_come_with_their_bound():
    row = measured(Point("", "bidirectional", 2, 4, search="budget=20"))
    assert row["status"] == "optimal"
    assert row["makespan"] == row["lower_bound"]
    assert Fraction(str(row["makespan"])) <= Fraction(str(measured(Point("dualpipe", "", 2, 4))["makespan"]))
    assert measured(Point("", "sequential", 2, 4, activations="0", search="budget=5"))["status"] == "infeasible"


# ---------------------------------------------------------------------------------- two hundred points, and interrupts


def children_of(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def started(spec, output, at_least):
    """A sweep in a process of its own, once so many of its rows are there."""
    words = [sys.executable, "-m", "verifier", "sweep", spec, "-o", str(output), "--processes", "2"]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if output.exists() and len(rows_in(output)) >= at_least:
            return process
        time.sleep(0.01)
    process.kill()
    raise AssertionError(process.communicate())


def gone(pids):
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_two_hundred_points_interrupted_and_resumed_are_those_of_one_process_and_of_a_cluster(spec, tmp_path):
    path, output = spec(TWO_HUNDRED), tmp_path / "interrupted.csv"
    assert len(read_sweep(path)) == 200
    killed = started(path, output, 1)
    workers = children_of(killed.pid)
    killed.kill()
    killed.communicate()
    assert gone(workers), "processes stay behind when the one that started them is killed"
    before = rows_in(output)
    assert 1 <= len(before) < 200

    interrupted = started(path, output, len(before) + 1)
    workers = children_of(interrupted.pid)
    interrupted.send_signal(signal.SIGINT)
    out, err = interrupted.communicate(timeout=60)
    assert (interrupted.returncode, err) == (130, "")
    assert gone(workers)
    after = rows_in(output)
    assert f"200 points ({len(before)} of them done before)" in out
    assert f"{200 - len(after)} not done" in out
    assert len(before) < len(after) < 200
    assert all(row in after for row in before)

    resumed = run(path, "-o", output, "--processes", 2)
    assert resumed.exit_code == 0, resumed.output
    assert f"200 points ({len(after)} of them done before): 190 proved, 10 refused" in resumed.output
    assert len(rows_in(output)) == 200

    alone = tmp_path / "alone.csv"
    assert run(path, "-o", alone, "--processes", 1).exit_code == 0
    assert alone.read_bytes() == output.read_bytes()

    with cluster() as address:
        clustered = tmp_path / "clustered.csv"
        result = run(path, "-o", clustered, "--executor", f"dask:{address}")
        assert result.exit_code == 0, result.output
    assert clustered.read_bytes() == output.read_bytes()


@contextmanager
def cluster():
    """Dask on this machine; its worker is a process of its own, and takes two points at a time."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None, silence_logs=50) as local_cluster:
        yield local_cluster.scheduler_address


def test_what_is_done_is_not_done_again(spec, tmp_path):
    points = read_sweep(spec(FEW))
    asked = []

    def measure(point):
        asked.append(point)
        return measured(point)

    record = Record(points, tmp_path / "x.json")
    with closing(rows_of(record.missing, lambda: ThreadPoolExecutor(1), 1, measure)) as rows:
        for row in rows:
            record.add(row)
            record.save(at_once=True)
            if len(record.rows()) == 3:
                break
    again = Record(points, tmp_path / "x.json")
    assert again.rows() == record.rows()
    for row in rows_of(again.missing, lambda: ThreadPoolExecutor(1), 1, measure):
        again.add(row)
    assert sorted(point.key for point in asked) == sorted(point.key for point in points)
    assert [row["status"] for row in again.rows()] == ["proved"] * 8


def test_rows_of_points_that_left_the_spec_are_kept(spec, tmp_path):
    output = tmp_path / "x.csv"
    assert run(spec(FEW), "-o", output, "--processes", 1).exit_code == 0
    result = run(spec(FEW.replace("[2, 4]", "[4, 6]")), "-o", output, "--processes", 1)
    assert "8 points (4 of them done before): 8 proved" in result.output
    assert "4 rows of other points are kept" in result.output
    assert [row["ranks"] for row in rows_in(output)] == ["4"] * 2 + ["6"] * 2 + ["4"] * 2 + ["6"] * 2 + ["2"] * 4


@pytest.mark.parametrize("name", ["x.csv", "x.json"])
@pytest.mark.parametrize("content", ["a,b\n1,2\n", '{"format": "other", "rows": []}', "\0", '{"rows": 3}', "[]"])
def test_a_file_of_something_else_is_not_written_over(spec, tmp_path, name, content):
    output = tmp_path / name
    output.write_text(content)
    result = run(spec(FEW), "-o", output)
    assert result.exit_code == 2
    assert "holds no rows of a sweep" in result.output
    assert output.read_text() == content


def test_an_empty_file_is_a_beginning(spec, tmp_path):
    output = tmp_path / "x.csv"
    output.touch()
    assert run(spec(FEW), "-o", output, "--processes", 1).exit_code == 0
    assert len(rows_in(output)) == 8


# -------------------------------------------------------------------------------------------------------- bad points


def raises(point):
    if point.microbatches == 8:
        raise MemoryError("no\nroom")
    return measured(point)


def dies(point):
    if point.microbatches == 8 and point.ranks == 4:
        os._exit(9)
    return measured(point)


def test_a_point_that_raises_has_the_error_as_its_row(spec):
    points = read_sweep(spec(FEW))
    rows = [row for row in rows_of(points, lambda: ThreadPoolExecutor(2), 8, raises) if row]
    assert sorted(str(row["status"]) for row in rows) == ["error"] * 4 + ["proved"] * 4
    assert {row["reason"] for row in rows if row["status"] == "error"} == {"MemoryError: no\\nroom"}


def test_a_point_that_ends_its_process_does_not_lose_the_others(spec):
    points = read_sweep(spec(FEW))
    rows = [row for row in rows_of(points, *local(2), dies) if row]
    assert len(rows) == 8
    lost = [row for row in rows if row["status"] == "error"]
    assert sorted((row["family"], row["ranks"], row["microbatches"]) for row in lost) == [("1f1b", 4, 8), ("zb1p", 4, 8)]
    assert "its process died" in str(lost[0]["reason"])


def test_errors_are_tried_again_and_exit_with_1(spec, tmp_path, monkeypatch):
    path, output = spec(FEW), tmp_path / "x.csv"
    points = read_sweep(path)
    output.write_text(dump([completed(points[0], {"status": "error", "reason": "a bad day"})], "csv"))
    assert Record(points, output).missing == list(points)
    monkeypatch.setattr(sweeping, "_run", lambda *_: True)
    result = run(path, "-o", output)
    assert result.exit_code == 1
    assert "error: a bad day; the same command tries again" in result.output
    monkeypatch.undo()
    assert run(path, "-o", output, "--processes", 1).exit_code == 0


class _Lost(ThreadPoolExecutor):
    """An executor that gives back what it was handed."""

    def submit(self, *_args, **_options):
        future = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return future


def test_an_executor_that_is_gone_is_said_in_one_line(spec):
    with pytest.raises(ScheduleError, match="the executor is gone; what was done is kept"):
        list(rows_of(read_sweep(spec(FEW)), _Lost, 4))


def test_without_dask_or_a_cluster_one_line_says_so(spec, monkeypatch):
    result = run(spec(FEW), "--executor", "slurm:x")
    assert (result.exit_code, result.output) == (
        2,
        "--executor slurm:x: expected dask:ADDRESS, such as dask:tcp://host:8786\n",
    )
    assert run(spec(FEW), "--executor", "dask:tcp://x:1", "--processes", 2).exit_code == 2
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ScheduleError, match=r"pip install 'pipeline-schedule-verifier\[dask\]'"):
        dask("tcp://x:1")


# ---------------------------------------------------------------------------------------------------- what is shown


def test_json_is_what_the_file_holds(spec, tmp_path):
    output = tmp_path / "x.json"
    result = run(spec(FEW), "-o", output, "--processes", 1, "--json")
    assert result.output == output.read_text()
    rows = json.loads(result.output)["rows"]
    assert [row["idle_mean"] for row in rows] == [3, 3, 9, 9, 1, 1, 3, 3]


def test_the_plot_shows_every_line_and_panel_and_is_the_same_each_time(spec, tmp_path):
    path, plot = spec(FEW), tmp_path / "x.svg"
    assert run(path, "--processes", 1, "--plot", plot, "--theme", "dark").exit_code == 0
    drawn = plot.read_text()
    assert all(text in drawn for text in ("1f1b", "zb1p", "P=2", "P=4", "micro-batches M", NAMES["idle_mean"]))
    points = read_sweep(path)
    record = Record(points)
    for point in points:
        record.add(measured(point))
    assert chart(points, record, axis="microbatches", theme="dark") == plot.read_bytes()
    assert chart(points, record, "pdf", axis="ranks", quantity="makespan").startswith(b"%PDF")
    assert run(path, "--plot", "x.gif").exit_code == 2
    with pytest.raises(ScheduleError, match="expected a name that ends in"):
        chart(points, record, "gif", axis="ranks")


def test_a_plot_without_matplotlib_says_what_is_missing(spec, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ScheduleError, match=r"pip install 'pipeline-schedule-verifier\[pictures\]'"):
        chart([], Record([]), axis="ranks")


def test_names_in_the_help_text_are_those_there_are():
    assert sweeping.AXES == AXES
    assert sweeping.QUANTITIES == QUANTITIES
    assert set(QUANTITIES) == set(NAMES)
    assert set(QUANTITIES) < set(RESULTS)
    assert (*KEYS, *RESULTS) == COLUMNS


def test_the_axis_is_what_varies():
    assert default_axis([Point("1f1b", "", 4, 8), Point("1f1b", "", 4, 9)]) == "microbatches"
    assert default_axis([Point("1f1b", "", 4, 8, written="2P"), Point("1f1b", "", 8, 16, written="2P")]) == "ranks"


# --------------------------------------------------------------------------------------- files that are not whole


def kept(tmp_path, form="csv"):
    """Two points, and the file with their rows."""
    points = list(map(hopping, (64, 96)))
    path = tmp_path / f"kept.{form}"
    path.write_text(dump(map(row_of, points), form))
    return points, path


def hopping(microbatches):
    return Point("1f1b", "", 4, microbatches, costs="F=10,I=12,W=9,B=21,FB=26,hop=1")


row_of = cache(measured)


def test_a_row_that_was_cut_off_is_done_again_wherever_the_cut(tmp_path):
    points, path = kept(tmp_path)
    whole = path.read_bytes()
    header, first = (whole.index(b"\n") + 1, whole.index(b"\n", whole.index(b"\n") + 1) + 1)
    for end in range(header, len(whole)):
        path.write_bytes(whole[:end])
        record = Record(points, path)
        assert record.missing == (points if end < first else points[1:]), whole[:end]
        assert record.rows() == [row_of(point) for point in points if point not in record.missing]


def test_a_cut_file_goes_on_to_what_it_would_have_been(spec, tmp_path):
    path, output = spec(FEW), tmp_path / "x.csv"
    assert run(path, "-o", output, "--processes", 1).exit_code == 0
    whole = output.read_bytes()
    output.write_bytes(whole[:-40])
    result = run(path, "-o", output, "--processes", 1)
    assert "8 points (7 of them done before): 8 proved" in result.output
    assert output.read_bytes() == whole


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (",2177,", ",21x7,", 'row 1: makespan: expected a number such as 3 or "5/2", got "21x7"'),
        (",2177,", ",021,", "row 1: makespan"),
        (",2177,", ",-3,", "row 1: makespan"),
        (",2177,", ",1/0,", "row 1: makespan"),
        (",2177,", ",2²,", "row 1: makespan"),
        (",2177,", ",,", "row 1: makespan: empty, where others have numbers"),
        (
            ",proved,",
            ",prove,",
            "row 1: status: expected one of proved, refuted, unknown, optimal, feasible, infeasible, refused, ",
        ),
        (",proved,", ",refused,", "row 1: reason: empty; expected why it is refused"),
        (",8.87,", ",8.8,", "row 1: bubble_percent: expected"),
        (",8.87,", ",8.87,7,", "row 1: expected 22 cells, got 23"),
        (",proved,2177", ",proved", "row 1: expected 22 cells, got 21"),
        ("1f1b,,4,64", "1f2b,,4,64", "row 1: family: expected one of gpipe, "),
        ("1f1b,,4,64", ",,4,64", "row 1: family: expected a family or a placement"),
        ("1f1b,,4,64", "1f1b,,4,0", "row 1: microbatches: expected a whole number of at least 1"),
        (",model,", ",models,", "row 1: per: expected one of model, stage"),
        ('"F=10,', '"F=x,', "row 1: costs: costs.F: expected a number"),
        ("hop=1", "hop=1\n", "row 1: "),
    ],
)
def test_a_row_that_no_sweep_writes_is_refused_with_its_place_and_kept(tmp_path, spec, old, new, said):
    _, path = kept(tmp_path)
    text = path.read_text()
    assert old in text, text
    text = text.replace(old, new, 1)
    path.write_text(text)
    result = run(spec(FEW), "-o", path, "--processes", 1)
    assert (result.exit_code, result.output.count("\n")) == (2, 1), result.output
    assert said in result.output
    assert str(path) in result.output
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in COLUMNS for value in ("x", [], {}, True, 1.5, -1, 10**40)]
    + [("idle_mean", None), ("status", None), ("family", None), ("idle_mean", "4/2"), ("reason", "")],
)
def test_a_value_that_no_sweep_writes_is_refused_in_json_too(tmp_path, name, value):
    points, path = kept(tmp_path, "json")
    read = json.loads(path.read_text())
    read["rows"][1][name] = value
    path.write_text(json.dumps(read))
    if (name, value) == ("reason", "x"):
        assert Record(points, path).rows()[1]["reason"] == "x"
        return
    with pytest.raises(ScheduleError, match=r"kept\.json: row 2: ") as caught:
        Record(points, path)
    assert "\n" not in str(caught.value)


def test_json_that_was_cut_off_is_refused_with_the_line(tmp_path):
    points, path = kept(tmp_path, "json")
    whole = path.read_text()
    for end in range(whole.index("[") + 1, len(whole) - 3):
        path.write_text(whole[:end])
        with pytest.raises(ScheduleError, match=r"kept\.json: cut off or damaged at line \d+, so that it holds no rows"):
            Record(points, path)


@pytest.mark.parametrize("rows", ["3", "[3]", "[[]]", '[{"status": "proved"}]', "null", "{}"])
def test_rows_that_are_none_are_refused(tmp_path, rows):
    path = tmp_path / "x.json"
    path.write_text(f'{{"format": "pipeline-sweep/1", "rows": {rows}}}')
    with pytest.raises(ScheduleError, match=r"x\.json: "):
        Record([], path)


def test_two_sweeps_do_not_write_one_file_at_once(spec, tmp_path):
    path, output = spec(TWO_HUNDRED), tmp_path / "x.csv"
    first = started(path, output, 1)
    other = tmp_path / "other.toml"
    other.write_text(FEW)
    second = run(other, "-o", output, "--processes", 1)
    assert (second.exit_code, second.output) == (
        2,
        f"{output}: another sweep is writing it; wait for it, or use another name\n",
    )
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    before = len(rows_in(output))
    assert run(other, "-o", output, "--processes", 1).exit_code == 0
    assert len(rows_in(output)) == before + 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.toml", "sweep.toml", "x.csv"]


def test_a_folder_that_cannot_be_written_is_said_before_the_work(spec, tmp_path):
    result = run(spec(FEW), "-o", tmp_path / "none" / "x.csv")
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert "cannot be written: no such file or directory" in result.output


# ------------------------------------------------------------------------------------------------- nothing to show


@pytest.mark.parametrize("key", ["family", "ranks", "microbatches", "stages_per_rank", "rule", "per"])
def test_an_empty_list_is_named(spec, key):
    text = '[sweep]\nfamily = ["interleaved"]\nranks = [2]\nmicrobatches = [4]\n'
    text += 'stages_per_rank = [2]\nrule = ["pytorch"]\nper = ["model"]\n'
    lines = [f"{key} = []" if line.startswith(f"{key} =") else line for line in text.splitlines()]
    path = spec("\n".join(lines))
    result = run(path)
    assert (result.exit_code, result.output) == (2, f"{path}: sweep.{key}: an empty list; expected at least one value\n")


def test_a_sweep_of_refused_points_only_is_wrong_use(spec):
    path = spec('[sweep]\nfamily = "dualpipe"\nranks = [3, 5]\nmicrobatches = 8\n')
    result = run(path, "--processes", 1)
    assert result.exit_code == 2
    assert "2 points: 2 refused" in result.output
    assert (
        result.stderr
        == f"{path}: none of the 2 points has a schedule; dualpipe: P = 3 ranks; the two directions need an even P, such as 4\n"
    )


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('"192..64 step 32"', 'sweep.microbatches: "192..64 step 32" ends below its beginning; expected a range such as'),
        ('"64..192 step 0"', 'sweep.microbatches: "64..192 step 0" has a step of 0; expected at least 1'),
        ('"64..1000000000"', "sweep.microbatches: expected whole numbers from 1 to 10000000, got 1000000000"),
        ('"1..10000001"', "sweep.microbatches: expected whole numbers from 1 to 10000000, got 10000001"),
        ('"1..9999999"', 'sweep.microbatches: "1..9999999" is 9999999 values; expected at most 1000000'),
        ('"64-192"', 'sweep.microbatches: expected whole numbers such as 8, "2P" or "8..64 step 8", got "64-192"'),
    ],
)
def test_a_range_that_is_wrong_says_why(spec, written, said):
    result = run(spec(f'[sweep]\nfamily = "1f1b"\nranks = 4\nmicrobatches = {written}\n'))
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert said in result.output


def test_tables_have_decimals_of_one_kind_and_no_blanks_at_the_end(spec):
    text = '[sweep]\nfamily = "1f1b"\nranks = 3\nmicrobatches = [4, 8]\nper = "stage"\n'
    result = run(spec(text + "[[costs]]\nF = [1, 1, 2]\nFB = 3\n[[costs]]\nF = [2, 1, 2]\nFB = 3\n"), "--processes", 1)
    assert result.exit_code == 0
    assert "/" not in result.output.partition("- numbers are rounded to two digits")[0].split("\n\n", 1)[1]
    assert "- numbers are rounded to two digits" in result.output
    assert all(line == line.rstrip() for line in result.output.splitlines())
