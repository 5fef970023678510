"""Making, reading, simulation and replay stay linear: the time per op at M = 512 against that at M = 64, in one run."""

import gc
from time import perf_counter

import pytest

from verifier.families import build_family
from verifier.formats import load, torch_csv
from verifier.simulate import simulate
from verifier.verify import verify


def seconds_per_op(work, schedule):
    """The best of three; what disturbs a measurement only ever makes it longer."""
    ops = sum(len(block.ops) for row in schedule.order for block in row)
    best = float("inf")
    for _ in range(3):
        gc.collect()
        begin = perf_counter()
        work(schedule)
        best = min(best, perf_counter() - begin)
    return best / ops


@pytest.mark.parametrize("family", ["1f1b", "zb1p", "dualpipe"])
@pytest.mark.parametrize(
    "work", [simulate, lambda schedule: verify(schedule, solver="replay")], ids=["simulate", "verify by replay"]
)
def test_time_per_op_does_not_grow(family, work):
    small, large = (seconds_per_op(work, build_family(family, 16, microbatches)) for microbatches in (64, 512))
    print(f"{family}: {large * 1e6:.1f} us per op at M=512, {large / small:.2f} of that at M=64")
    assert large < 2 * small


@pytest.mark.parametrize("family", ["1f1b", "dualpipe"])
def test_time_to_make_an_op_does_not_grow(family):
    schedules = [build_family(family, 32, microbatches) for microbatches in (64, 512)]
    small, large = (
        seconds_per_op(lambda made: build_family(family, 32, made.problem.total_microbatches), schedule)
        for schedule in schedules
    )
    print(f"{family}: {large * 1e6:.1f} us to make an op at M=512, {large / small:.2f} of that at M=64")
    assert large < 2 * small


def test_time_to_read_an_op_does_not_grow(tmp_path):
    found = []
    for microbatches in (64, 512):
        schedule, file = build_family("1f1b", 64, microbatches), tmp_path / f"{microbatches}.csv"
        file.write_text(torch_csv.dump(schedule))
        found.append(seconds_per_op(lambda _, file=file: load(file), schedule))
    small, large = found
    print(f"{large * 1e6:.1f} us to read an op of 65,536 cells, {large / small:.2f} of that at M=64")
    assert large < 2 * small
