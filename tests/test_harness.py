import importlib.util

import pytest

from verifier.families import build_family
from verifier.model import Block, Problem, Schedule, ScheduleError
from verifier.runtimes.harness import RunReport, _Watched, predicted_activations, run


def test_a_runtime_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ScheduleError, match=r"the package torch is not installed.*: pip install 'pipeline-schedule-verifier\[torch\]'"
    ):
        run(build_family("1f1b", 2, 4))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name == "torch" else None)
    with pytest.raises(
        ScheduleError, match=r"the package dualpipe is not installed, and the run needs it: pip install dualpipe"
    ):
        run(build_family("dualpipe", 2, 4), on="dualpipe")


@pytest.mark.parametrize(
    ("ranks", "how", "message"),
    [
        (2, {"on": "jax"}, "unknown runtime 'jax'; expected one of torch, dualpipe"),
        (2, {"form": "csv"}, "unknown form 'csv'; expected one of compute_only, compute_comms"),
        (2, {"on": "dualpipe", "table": "0F0"}, "a table of cells runs on torch, not on dualpipe"),
        (65, {}, "a trial run starts one process per rank; expected at most 64, got 65"),
    ],
)
def test_wrong_use_is_refused(ranks: int, how: dict[str, str], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        run(build_family("1f1b", ranks, 4), **how)  # type: ignore[arg-type]


def test_a_pair_written_backward_first_holds_less_where_it_runs_as_written() -> None:
    rows = ("0F0 (0B0;0F1) 0B1",)
    schedule = Schedule(Problem(((0,),), (2,)), tuple(tuple(map(Block.parse, row.split())) for row in rows))
    assert predicted_activations(schedule, "torch") == (1,)
    assert predicted_activations(schedule, "dualpipe") == (2,)


def test_what_ranks_say_is_kept_until_they_hang() -> None:
    watched = _Watched(2)
    for line in ("0 ready", "1 ready", "0 step", "0 done 0F0 0F0 10 20", "1 step", "1 done 2F0 1F0' 30 45", "0 step"):
        watched.hear(line)
    assert watched.done == [set(), {"2F0"}]
    assert watched.events == [[("0F0", 10, 20)], [("1F0'", 30, 45)]]


def report(**more: object) -> RunReport:
    fields: dict[str, object] = {
        "schedule": "dualpipe P=2 M=4", "runtime": "torch", "form": "compute_comms", "ranks": 2, "microbatches": 4, "steps": 1,
        "status": "passed", "seconds": 4.0, "predicted_activations": (3, 3),
    }  # fmt: skip
    return RunReport(**{**fields, **more})  # type: ignore[arg-type]


def test_a_report_for_people() -> None:
    passed = report(
        gradient_error=2e-16, worst="step 0, stage 1', 0.bias", losses=(1.5,), reference_losses=(1.5,), copies_equal=True,
        peak_activations=(3, 3), events=((("0F0", 1000, 3000), ("0F0'", 3000, 7000)), (("1B0", 0, 9000),)),
    )  # fmt: skip
    assert passed.as_text().splitlines() == [
        "dualpipe P=2 M=4 on torch compute_comms: passed, 2 processes, 4.0 s",
        "  gradients    largest relative error 2.0e-16 (step 0, stage 1', 0.bias)",
        "  loss         1.5 (1.5) (single process)",
        "  activations  3 3, predicted 3 3",
        "  copies       equal after each of 1 steps",
        "  median times F 3, B 9 microseconds",
    ]
    assert report(ranks=1).as_text().endswith(": passed, 1 process, 4.0 s")
    hung = report(status="hung", waiting=("rank 0 waits",), error="")
    assert hung.as_text().splitlines()[1:] == ["  rank 0 waits"]
    assert not hung.passed
    assert hung.as_json()["gradient_error"] is None
