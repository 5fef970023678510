"""What is said beside an exported file."""

import pytest

from verifier.families import build_family
from verifier.formats.notes import notes
from verifier.formats.source import Source
from verifier.messages import Program
from verifier.model import Block, Problem, Schedule


def told(family: str, ranks: int, microbatches: int, target: str, **options: object) -> str:
    return "\n".join(notes(Source(build_family(family, ranks, microbatches, **options), "family"), target, "x.csv"))


@pytest.mark.parametrize(
    ("family", "options", "lines"),
    [
        ("1f1b", {}, ['schedule = "1F1B" (for its placement: stage r on rank r)']),
        ("zbv", {}, ['schedule = "ZBVZeroBubble" (for its placement: stages r and 7-r on rank r)']),
        ("dualpipev", {}, ['schedule = "ZBVZeroBubble"', "torchtitan registers one for its own DualPipeV only"]),
        ("interleaved", {}, ['schedule = "Interleaved1F1B" (for its placement: stages r, r+4, ... on rank r)']),
        ("interleaved", {"stages_per_rank": 3}, ["degree = 4, pipeline_parallel_layers_per_stage = layers / 12"]),
    ],
)
def test_torchtitan_is_told_where_the_stages_are(family: str, options: dict[str, object], lines: list[str]) -> None:
    text = told(family, 4, 8, "torch-csv", **options)
    assert 'torchtitan: pipeline_parallel_schedule_csv = "x.csv"' in text
    assert "torchtitan: local_batch_size = 8 x pipeline_parallel_microbatch_size" in text
    for line in lines:
        assert line in text


def test_a_placement_that_torchtitan_has_not() -> None:
    order = (tuple(map(Block.parse, ("0F0", "1F0", "1B0", "0B0"))), (Block.parse("2F0"), Block.parse("2B0")))
    source = Source(Schedule(Problem(((0, 0, 1),), (1,)), order), "torch-csv")
    assert "torchtitan cannot place these stages: it knows stage s on rank s mod P, and a V" in notes(source, "torch-csv")[1]


def test_few_microbatches_run_all_the_same() -> None:
    assert "Schedule1F1B refuses fewer micro-batches than stages" in told("1f1b", 4, 2, "torch-csv")
    assert "Schedule1F1B" not in told("1f1b", 4, 4, "torch-csv") + told("zbv", 4, 2, "torch-csv")


def test_runtimes_for_what_the_plain_ones_do_not_run() -> None:
    two = told("dualpipe", 4, 8, "torch-comms-csv")
    assert "stage s of direction 1 is torch's stage 4+s of 8, and 4 micro-batches flow through each copy" in two
    assert "TorchPipeline, as examples/train_torch.py does" in two
    assert "DeepSeekPipeline, as examples/train_deepseek.py does" in told("dualpipe", 4, 8, "dualpipe-table")
    assert "interpret_program.py" in told("dualpipe", 4, 8, "program")
    assert told("dualpipe", 4, 8, "json") == ""


def test_what_becomes_of_messages_of_the_source() -> None:
    program = Program.of(
        Problem(((0, 1),), (1,)), [["0F0", ["0SEND_F0"], ["0RECV_B0"], "0B0"], ["1RECV_F0", "1F0", "1B0", "1SEND_B0"]]
    )
    source = Source(program.schedule, "pipeline-program/1", program=program)
    said = {
        target: "\n".join(notes(source, target)) for target in ("torch-csv", "torch-comms-csv", "dualpipe-table", "program")
    }
    assert "torch places its own; torch-comms-csv keeps them" in said["torch-csv"]
    assert "the groups of the source are gone" in said["torch-comms-csv"]
    assert "placed anew" in said["dualpipe-table"]
    # Neighbours are one group in a program whether or not somebody wrote the brackets, and torch posts them one by one.
    joined = Program.of(
        Problem(((0, 1),), (1,)), [["0F0", ["0SEND_F0", "0RECV_B0"], "0B0"], ["1RECV_F0", "1F0", "1B0", "1SEND_B0"]]
    )
    assert not joined.cuts
    grouped = notes(Source(joined.schedule, "pipeline-program/1", program=joined), "torch-comms-csv")
    assert "torch posts messages one by one: the groups of the source are gone; verify the file with --messages rank" in grouped
    table = notes(Source(joined.schedule, "torch-comms-csv", program=joined), "torch-comms-csv")
    assert "groups" not in " ".join(table)
    assert "every communication model" not in said["program"]
