"""
The commands ``run`` and ``costs``: what they hand on, what they refuse, how they end.

Those marked ``runtime`` start torch; the others put something in its place.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from verifier.cli import main
from verifier.commands import running
from verifier.model import Schedule
from verifier.runtimes import harness
from verifier.runtimes.harness import RunReport

DATA = Path(__file__).parent / "data"
MISORDERED = DATA / "cases" / "derived__P2V2_same_peer_reordered_recv.csv"
W_BEFORE_I = DATA / "cases" / "derived__dualpipev_W_before_I.csv"
runtime = pytest.mark.runtime
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_names_are_those_of_the_harness() -> None:
    assert tuple(harness.RUNTIMES) == running.RUNTIMES
    assert tuple(form.replace("-", "_") for form in running.FORMS) == harness.FORMS


class Recorder:
    """Stands in for the harness: notes what it is asked for, and reports what it was told to."""

    def __init__(self, **more: object) -> None:
        self.asked: dict[str, object] = {}
        self.schedule: Schedule | None = None
        self.more = more

    def __call__(self, schedule: Schedule, **asked: object) -> RunReport:
        self.schedule, self.asked = schedule, asked
        fields: dict[str, object] = {
            "schedule": schedule.name, "runtime": asked["on"], "form": asked["form"] or "compute_only", "ranks": 2,
            "microbatches": 4, "steps": asked["steps"], "status": "passed", "seconds": 1.0, "predicted_activations": (2, 2),
        }  # fmt: skip
        return RunReport(**{**fields, **self.more})  # type: ignore[arg-type]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr("verifier.runtimes.run", recorder)
    return recorder


def test_what_the_runtime_is_asked_for(recorder: Recorder) -> None:
    ended = run("run", "1f1b", "-P", 2, "-M", 4, "--on", "torch", "--format", "compute-comms", "--steps", 3, "--timeout", 7)
    assert (ended.exit_code, ended.stdout) == (0, "1f1b P=2 M=4 on torch compute_comms: passed, 2 processes, 1.0 s\n")
    assert recorder.asked == {"on": "torch", "form": "compute_comms", "table": None, "steps": 3, "timeout": 7}


def test_the_messages_of_a_file_run_as_they_stand(recorder: Recorder) -> None:
    run("run", MISORDERED, "--on", "torch", "--force")
    table = str(recorder.asked["table"])
    assert "2SEND_F0,2RECV_B0,2RECV_F1,2B0" in table
    assert "2REDUCE_GRAD" in table
    run("run", MISORDERED, "--on", "torch", "--force", "--format", "compute-only")
    assert recorder.asked["table"] is None


def test_what_is_refuted_is_not_run(recorder: Recorder) -> None:
    ended = run("run", MISORDERED, "--on", "torch")
    assert ended.exit_code == 1
    assert "link 1->0, message 2: sent 1SEND_F1, expected 2RECV_B0 (rank 0, cell 7)" in ended.stdout
    assert ended.stderr == "refuted, so it was not run; --force runs it all the same\n"
    assert recorder.schedule is None
    written = json.loads(run("run", W_BEFORE_I, "--on", "torch", "--json").stdout)
    assert (written["status"], written["properties"]["dependencies"]["status"]) == ("refuted", "refuted")
    # Torch places the messages itself when it is given the compute part alone.
    assert run("run", MISORDERED, "--on", "torch", "--format", "compute-only").exit_code == 0


@pytest.mark.parametrize("status", ["wrong", "hung", "failed"])
def test_a_run_that_went_wrong_ends_with_1(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier.runtimes.run", Recorder(status=status, waiting=("rank 0 waits",)))
    ended = run("run", "1f1b", "-P", 2, "-M", 4, "--on", "torch")
    assert ended.exit_code == 1
    assert ended.stdout.endswith("  rank 0 waits\n")
    assert json.loads(run("run", "1f1b", "-P", 2, "-M", 4, "--on", "torch", "--json").stdout)["status"] == status


def test_a_trace_becomes_costs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    events = ((("0F0", 0, 2000), ("0B0", 2000, 7000)), (("1F0", 0, 3000), ("1B0", 3000, 9000)))
    monkeypatch.setattr("verifier.runtimes.run", Recorder(events=events))
    trace, toml = tmp_path / "trace.json", tmp_path / "costs.toml"
    run("run", "1f1b", "-P", 2, "-M", 1, "--on", "torch", "--trace", trace)
    ended = run("costs", trace, "-o", toml)
    assert (ended.exit_code, ended.output) == (0, "")
    assert "# Measured in trace.json: medians" in toml.read_text()
    assert toml.read_text().endswith("[costs]\nF = [2, 3]\nB = [5, 6]\n")
    assert run("costs", trace).stdout == toml.read_text()
    assert json.loads(run("costs", trace, trace, "--json").stdout)["measured"][0]["count"] == 2
    shown = json.loads(run("show", "1f1b", "-P", 2, "-M", 1, "--costs", toml, "--json").stdout)
    assert shown["makespan"] == 2 + 3 + 6 + 5


def test_a_hang_leaves_a_trace_of_what_ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    events = ((("0F0", 0, 2000),), (("1F0", 3000, 5000),))
    monkeypatch.setattr("verifier.runtimes.run", Recorder(status="hung", events=events, waiting=("rank 0 waits",)))
    trace = tmp_path / "trace.json"
    assert run("run", "1f1b", "-P", 2, "-M", 4, "--on", "torch", "--trace", trace).exit_code == 1
    assert [event["name"] for event in json.loads(trace.read_text())["traceEvents"]] == ["PP:0F0", "PP:1F0"]


def test_a_run_without_events_leaves_no_trace(recorder: Recorder, tmp_path: Path) -> None:
    run("run", "1f1b", "-P", 2, "-M", 4, "--on", "torch", "--trace", tmp_path / "trace.json")
    assert recorder.asked
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("run", "1f1b", "-P", 2, "-M", 4), "Missing option '--on'"),
        (("run", "1f1b", "-P", 2, "-M", 4, "--on", "megatron"), "'megatron' is not one of 'torch', 'dualpipe'"),
        (
            ("run", "dualpipe", "-P", 2, "-M", 4, "--on", "dualpipe", "--format", "compute-only"),
            "--format says what torch is given",
        ),
        (("run", "1f1b", "-P", 2, "-M", 4, "--on", "torch", "--steps", 0), "0 is not in the range x>=1"),
        (("run", "1f1b", "-P", 2, "-M", 4, "--on", "torch", "--timeout", "nan"), "'nan' is not a valid integer"),
        (("run", "absent.csv", "--on", "torch"), "absent.csv: no such file"),
        (("costs", "absent.json"), "absent.json: cannot be read: no such file or directory"),
        (("costs", MISORDERED), "no JSON; expected a Chrome trace"),
    ],
)
def test_wrong_use_is_one_line(words: tuple[object, ...], line: str) -> None:
    ended = run(*words)
    assert (ended.exit_code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert line in ended.stderr


def test_without_torch_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    ended = run("run", "1f1b", "-P", 2, "-M", 4, "--on", "torch")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr == (
        "the package torch is not installed, and the run needs it: pip install 'pipeline-schedule-verifier[torch]'\n"
    )


# ---------------------------------------------------------------------------------------------------------------- for real


@runtime
@needs_torch
def test_a_table_that_verify_refutes_trains_on_wrong_gradients() -> None:
    """The reason why messages are judged at all: nothing stops this file, and nobody sees that it is wrong."""
    assert run("verify", MISORDERED, "--messages", "tagged").exit_code == 0
    assert run("verify", MISORDERED, "--messages", "ordered").exit_code == 1
    ended = run("run", MISORDERED, "--on", "torch", "--force", "--json")
    found = json.loads(ended.stdout)
    assert (ended.exit_code, found["status"], found["error"], found["waiting"]) == (1, "wrong", "", [])
    assert found["gradient_error"] > 0.1
    right = run("run", MISORDERED, "--on", "torch", "--format", "compute-only", "--json")
    assert (right.exit_code, json.loads(right.stdout)["gradient_error"] < 1e-6) == (0, True)


@runtime
@needs_torch
@pytest.mark.parametrize("target", ["torch-comms-csv", "program-batched"])
def test_what_was_exported_runs(target: str, tmp_path: Path) -> None:
    path = tmp_path / "order"
    run("export", "dualpipe", "-P", 2, "-M", 4, "--to", target, "-o", path)
    copies = ("--copies", 2) if target == "torch-comms-csv" else ()
    ended = run("run", path, *copies, "--on", "torch", "--json")
    found = json.loads(ended.stdout)
    assert (ended.exit_code, found["status"], found["copies_equal"]) == (0, "passed", True)


@runtime
@needs_torch
def test_what_ran_before_a_hang_is_in_the_trace(tmp_path: Path) -> None:
    table, trace = tmp_path / "hangs.csv", tmp_path / "trace.json"
    table.write_text("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n")
    ended = run("run", table, "--on", "torch", "--force", "--timeout", 2, "--trace", trace)
    assert (ended.exit_code, "hung" in ended.stdout) == (1, True)
    assert {event["name"] for event in json.loads(trace.read_text())["traceEvents"]} == {"PP:0F0", "PP:1F0", "PP:1B0"}
    assert "PP:0F0" in trace.read_text()


@runtime
@needs_torch
def test_fewer_microbatches_than_ranks_run() -> None:
    """Torch's Schedule1F1B refuses these; the runtime that loads tables does not."""
    ended = run("run", "1f1b", "-P", 4, "-M", 2, "--on", "torch")
    assert ended.exit_code == 0, ended.output


@runtime
@needs_torch
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")
def test_an_interrupt_ends_all_processes(tmp_path: Path) -> None:
    table = tmp_path / "hangs.csv"
    table.write_text("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n")
    words = [sys.executable, "-m", "verifier", "run", str(table), "--on", "torch", "--force", "--timeout", "300"]
    end = time.monotonic() + 120
    with subprocess.Popen(words, env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.DEVNULL) as process:
        while not list(tmp_path.glob("*/row.1")):
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path) in command_line(path)]
    assert [path.name for path in tmp_path.iterdir()] == ["hangs.csv"]


def command_line(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""
