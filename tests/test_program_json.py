"""Programs as JSON: what is read, what is refused, and that writing loses nothing."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.strategies import costs, programs
from verifier.families import build_family
from verifier.formats import load, read
from verifier.formats.json_text import schema
from verifier.formats.program_json import FORMAT, dump
from verifier.messages import MODELS, Program, judge, lower
from verifier.model import Problem, ScheduleError

DATA = Path(__file__).parent / "data"
VALIDATOR = Draft202012Validator(schema(FORMAT))


def test_the_schema_is_one():
    Draft202012Validator.check_schema(schema(FORMAT))


@given(programs(), st.data(), st.booleans())
def test_what_was_dumped_is_loaded(program, data, groups):
    prices = data.draw(st.none() | costs(program.problem))
    text = dump(program, costs=prices, groups=groups)
    source = read(text.encode(), "again")
    assert source.program == program
    assert (source.format, source.costs, source.schedule) == ("pipeline-program/1", prices, program.schedule)
    assert dump(source.program, costs=prices, groups=groups) == text
    VALIDATOR.validate(json.loads(text))


@pytest.mark.parametrize("path", sorted(DATA.glob("**/*comms*.csv")), ids=lambda path: path.name)
def test_recorded_tables_become_programs_with_the_same_verdicts(path):
    table = load(path).program
    again = read(dump(table).encode(), "again").program
    assert again == table
    assert [bool(judge(again, model)) for model in MODELS] == [bool(judge(table, model)) for model in MODELS]


def test_names_survive_and_bytes_are_the_same_every_time():
    program = lower(build_family("dualpipe", 2, 4))
    text = dump(program)
    assert read(text.encode(), "x").program.name == "dualpipe P=2 M=4"
    assert dump(lower(build_family("dualpipe", 2, 4))) == text
    assert '"actions": [\n  ["0F0", "0SEND_F0", "1RECV_F0\'", ' in text


def exchange(*rows):
    return read(json.dumps(document(actions=[list(row) for row in rows])).encode(), "p.json").program


def document(**changes):
    return {
        "format": "pipeline-program/1", "ranks": 2, "placement": [[0, 1]], "microbatches": [2],
        "actions": [["0SEND_F1", "0RECV_B0"], ["1SEND_B0", "1RECV_F1"]], **changes,
    }  # fmt: skip


def test_a_group_goes_at_once_and_two_groups_one_after_the_other():
    """NVIDIA/Megatron-LM#5100: the same order on every rank hangs, unless it is one group."""
    apart = exchange([["0SEND_F1"], ["0RECV_B0"]], [["1SEND_B0"], ["1RECV_F1"]])
    assert judge(exchange([["0SEND_F1", "0RECV_B0"]], [["1SEND_B0", "1RECV_F1"]]), "batched") == ()
    assert judge(exchange(["0SEND_F1", "0RECV_B0"], ["1SEND_B0", "1RECV_F1"]), "batched") == ()
    (witness,) = judge(apart, "batched")
    assert witness.text.startswith("2 ranks wait in a circle: rank 0, cell 0 at 0SEND_F1 (link 0->1, message 1) needs 1RECV_F1")
    assert judge(apart, "ordered") == ()


def test_witnesses_count_the_members_of_groups():
    program = exchange([["0SEND_F1", "0RECV_B1"], "0RECV_B0"], [["1SEND_B0", "1RECV_F1"], "1SEND_B1"])
    (witness,) = judge(program, "ordered")
    assert "link 1->0, message 1: sent 1SEND_B0, expected 0RECV_B1 (rank 0, cell 1)" in witness.text


def test_a_cut_stands_between_two_messages():
    problem = Problem(((0, 1),), (1,))
    with pytest.raises(ScheduleError, match="rank 0, position 1: a cut stands between two messages"):
        Program(problem, (lower(build_family("1f1b", 2, 1)).actions[0], ()), cuts=frozenset({(0, 1)}))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"actions": [[]]}, "actions: expected 2 lists, one per rank, got 1"),
        ({"actions": [["0F0"], ["0SEND"]]}, "actions[1][0]: expected an action such as 0F3, (0F7;7B3'), 0SEND_F3, 1RECV_B3'"),
        ({"actions": [[], ["0F0"] * 100 + ["0SEND"]]}, 'actions, rank 1, position 100: "0SEND" is not an action such as 0F3'),
        ({"actions": [[["0F0"]], []]}, "actions[0][0][0]: expected a message such as 0SEND_F3"),
        (
            {"actions": [["0F0"] * 100 + [["0F0"]], []]},
            "actions, rank 0, position 100: 0F0 is no message; a group holds sends and",
        ),
        (
            {"actions": [["0F0"] * 100 + [3], []]},
            "position 100: expected an action such as 0F3, 0SEND_F3, 1RECV_B3 or 0REDUCE_GRAD",
        ),
        ({"actions": [[[]], []]}, "actions[0][0]: expected an action"),
        ({"order": []}, 'unknown key "order"; expected format, name, ranks, placement, microbatches, actions, costs'),
        ({"costs": {"F": [1]}}, "costs.F: expected 2 numbers, one per stage; got 1"),
    ],
)
def test_files_of_a_wrong_shape(changes, line):
    with pytest.raises(ScheduleError) as caught:
        read(json.dumps(document(**changes)).encode(), "p.json")
    assert str(caught.value).startswith("p.json: ")
    assert line in str(caught.value)


def test_options_of_tables_are_refused():
    text = json.dumps(document()).encode()
    with pytest.raises(ScheduleError, match="dialect: pipeline-program/1 has one dialect"):
        read(text, "p.json", dialect="legacy")
    with pytest.raises(ScheduleError, match="copies: pipeline-program/1 says itself"):
        read(text, "p.json", copies=2)
    assert read(text, "p.json", microbatches=4).schedule.problem.microbatches == (4,)
