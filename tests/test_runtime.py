"""Schedules executed for real by torch and by DeepSeek's class; needs torch, and is part of ``make test-runtime``."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from verifier.families import build_family
from verifier.formats import load, torch_comms_csv
from verifier.formats.traces import read_trace
from verifier.messages import Program, judge
from verifier.model import Block, Problem, Schedule
from verifier.runtimes.harness import RunReport, run
from verifier.simulate import simulate

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]
DATA = Path(__file__).parent / "data"
needs_dualpipe = pytest.mark.skipif(importlib.util.find_spec("dualpipe") is None, reason="needs the package dualpipe")


def assert_passed(report: RunReport) -> None:
    assert report.passed, report.as_text()
    assert report.gradient_error is not None
    assert report.gradient_error < 1e-6
    assert report.peak_activations == report.predicted_activations


@pytest.mark.parametrize("form", ["compute_only", "compute_comms"])
@pytest.mark.parametrize(
    ("family", "ranks", "microbatches"), [("dualpipev", 4, 8), ("zbv", 4, 8), ("1f1b", 4, 8), ("interleaved", 2, 4)]
)
def test_torch_runs_one_weight_copy(family: str, ranks: int, microbatches: int, form: str) -> None:
    schedule = build_family(family, ranks, microbatches)
    report = run(schedule, form=form)
    assert_passed(report)
    assert report.peak_activations == simulate(schedule).peak_activations
    assert report.copies_equal is None


@pytest.mark.parametrize(("ranks", "microbatches", "steps"), [(4, 8, 3), (8, 20, 1)])
def test_torch_runs_two_weight_copies(ranks: int, microbatches: int, steps: int) -> None:
    report = run(build_family("dualpipe", ranks, microbatches), steps=steps)
    assert_passed(report)
    assert report.copies_equal
    assert report.peak_activations == (ranks + 1,) * ranks
    assert report.losses == pytest.approx(report.reference_losses, rel=1e-12)
    assert len(set(report.losses)) == steps


def test_torch_runs_two_copies_whose_losses_come_late() -> None:
    # Rank 0 runs a backward of one copy before the other copy's loss of the same number is there.
    rows = ("0F0 0F1 1F0' 0B0 0B1 1F1' 1B0' 1B1'", "1F0 1B0 1F1 1B1 0F0' 0F1' 0B0' 0B1'")
    order = tuple(tuple(map(Block.parse, row.split())) for row in rows)
    assert_passed(run(Schedule(Problem(((0, 1), (1, 0)), (2, 2)), order)))


@needs_dualpipe
@pytest.mark.parametrize(("ranks", "microbatches", "steps"), [(4, 8, 3), (6, 12, 1)])
def test_deepseek_runs_its_own_order(ranks: int, microbatches: int, steps: int) -> None:
    report = run(load(DATA / "deepseek" / f"dualpipe_P{ranks}_M{microbatches}.json").schedule, on="dualpipe", steps=steps)
    assert_passed(report)
    assert report.copies_equal
    assert report.peak_activations == (ranks + 1,) * ranks


def lagging(schedule: Schedule) -> Schedule:
    """The same with every backward split, pairs apart, and all W at the end in the order of their I."""
    rows = []
    for row in schedule.order:
        ops = [op for block in row for op in block.ops]
        weights = [op._replace(kind="W") for op in ops if op.kind == "I"]
        rows.append(tuple(Block((op,)) for op in (*(op for op in ops if op.kind != "W"), *weights)))
    return Schedule(schedule.problem, tuple(rows), "all W at the end")


@pytest.mark.parametrize("family", ["1f1b", "dualpipe"])
def test_torch_runs_an_order_of_no_family(family: str) -> None:
    schedule = lagging(build_family(family, 4, 8))
    report = run(schedule)
    assert_passed(report)
    # An activation lives until its W, so each rank ends up with all of them.
    assert report.peak_activations == (8,) * 4


@needs_dualpipe
def test_deepseek_runs_an_order_that_is_not_its_own() -> None:
    assert_passed(run(lagging(build_family("dualpipe", 4, 8)), on="dualpipe"))


# --------------------------------------------------------------------------------------------------------------- faults


def test_a_misordered_table_is_refuted_and_trains_on_wrong_gradients() -> None:
    path = DATA / "cases" / "derived__P2V2_same_peer_reordered_recv.csv"
    schedule, text = load(path).schedule, path.read_text()
    program = Program.of(schedule.problem, [line.split(",") for line in text.splitlines()])
    assert judge(program, "ordered")
    report = run(schedule, table=text)
    assert report.status == "wrong"
    assert report.gradient_error is not None
    assert report.gradient_error > 0.1


def mutated(schedule: Schedule, rank: int, cell: str) -> str:
    """The schedule's table without one cell."""
    rows = [line.split(",") for line in torch_comms_csv.dump(schedule).splitlines()]
    rows[rank].remove(cell)
    return "".join(",".join(row) + "\n" for row in rows)


def test_a_hang_ends_and_says_who_waited_for_what() -> None:
    schedule = build_family("1f1b", 2, 4)
    report = run(schedule, table=mutated(schedule, 1, "1SEND_B2"), timeout=3)
    assert report.status == "hung"
    # The gradient of micro-batch 3 arrives in the place of that of 2, and the last receive gets nothing.
    assert report.waiting == ("rank 0 waits at 0B3 for 1SEND_B3, its receive 4 from rank 1, which sends 3 in all",)
    assert report.seconds < 60
    assert "hung" in report.as_text()


def test_what_the_runtime_refuses_is_reported() -> None:
    schedule = build_family("1f1b", 2, 4)
    report = run(schedule, table=mutated(schedule, 1, "1F3"))
    assert report.status == "failed"
    assert "1, microbatch 3 without first running Forward" in report.error


def processes(mark: str) -> Iterator[str]:
    """Those whose command line has a mark."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if mark in line and "runtimes.worker" in line:
            yield line


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_behind(number: int, tmp_path: Path) -> None:
    script = (
        "from verifier.families import build_family\n"
        "from verifier.formats import torch_comms_csv\n"
        "from verifier.runtimes.harness import run\n"
        "schedule = build_family('1f1b', 2, 4)\n"
        "run(schedule, table=torch_comms_csv.dump(schedule).replace('1SEND_B2,', ''), timeout=300)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.DEVNULL)
    wait_until(lambda: list(tmp_path.glob("*/row.1")))
    assert len(list(processes(str(tmp_path)))) == 3
    process.send_signal(number)
    assert process.wait(30) != 0
    wait_until(lambda: not list(processes(str(tmp_path))) and not list(tmp_path.iterdir()))


def wait_until(condition) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


# --------------------------------------------------------------------------------------------------------------- times


def test_recorded_times_become_costs() -> None:
    schedule = build_family("zb1p", 2, 4)
    report = run(schedule)
    json.dumps(report.as_json())
    measured = read_trace(report.trace())
    assert {where[0] for where in measured.spread} == {"F", "I", "W"}
    assert all(spread.count == 4 for spread in measured.spread.values())
    timeline = simulate(schedule, measured.costs()).timeline
    assert timeline
    assert timeline.makespan > 0


# ------------------------------------------------------------------------------------------------------------- examples


@pytest.mark.parametrize("example", ["train_torch.py", pytest.param("train_deepseek.py", marks=needs_dualpipe)])
def test_the_examples_run(example: str) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = Path(__file__).parents[1] / "examples" / example
    schedule = DATA / "deepseek" / "dualpipe_P2_M4.json"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run([*launcher, script, schedule], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "step 2, rank 0: mean loss of 2 micro-batches" in done.stdout


def test_the_public_interface_refuses_what_does_not_fit() -> None:
    script = (
        "import torch.distributed as dist\n"
        "from verifier.families import build_family\n"
        "from verifier.runtimes.torch_runtime import TorchPipeline\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "TorchPipeline(build_family('1f1b', 2, 4), {}, None)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stderr.strip().endswith("the schedule is for 2 ranks, the process group has 1")


@needs_dualpipe
def test_the_hook_for_overlap_is_found_in_either_spelling() -> None:
    from verifier.runtimes.deepseek import _accept_both_spellings

    class Short:
        @staticmethod
        def overlaped_forward_backward() -> str:
            return "overlapped"

    class Long:
        @classmethod
        def overlapped_forward_backward(cls) -> str:
            return cls.__name__

    for kind in (Short, Long):
        _accept_both_spellings(kind)
    assert Short.overlapped_forward_backward() == "overlapped"  # type: ignore[attr-defined]
    assert Long.overlaped_forward_backward() == "Long"  # type: ignore[attr-defined]
