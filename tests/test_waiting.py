import re

from verifier.families import build_family
from verifier.formats.torch_comms_csv import dump
from verifier.model import Problem
from verifier.runtimes.waiting import explain

PART = re.compile(r"\d+[FBIW]\d+")
CHAIN = Problem(((0, 1),), (2,))


def test_a_rank_that_is_through_waits_for_its_receiver() -> None:
    rows = [["0F0", "0SEND_F0", "0F1", "0SEND_F1"], ["1RECV_F0", "1F0"]]
    assert explain(CHAIN, rows, [{"0F0", "0F1"}, {"1F0"}]) == [
        "rank 0 is through and waits for rank 1 to receive message 2 of 2"
    ]


def test_a_receive_that_was_never_asked_for_is_named() -> None:
    rows = [["0F0", "0SEND_F0"], ["1F0", "1RECV_F0"]]
    assert explain(CHAIN, rows, [{"0F0"}, set()]) == [
        "rank 0 is through and waits for rank 1 to receive message 1 of 1",
        "rank 1 stands at 1F0 without having asked rank 0 for 0SEND_F0",
    ]


def test_a_circle_is_told_rank_by_rank() -> None:
    rows = [["0RECV_B0", "0B0", "0F0", "0SEND_F0"], ["1RECV_F0", "1F0", "1B0", "1SEND_B0"]]
    assert explain(CHAIN, rows, [set(), set()]) == [
        "rank 0 waits at 0B0 for 1SEND_B0, its receive 1 from rank 1, which has sent 0 so far and stands at 1F0",
        "rank 1 waits at 1F0 for 0SEND_F0, its receive 1 from rank 0, which has sent 0 so far and stands at 0B0",
    ]


def test_the_parts_of_a_pair_and_both_copies_are_understood() -> None:
    schedule = build_family("dualpipe", 4, 8)
    rows = [line.split(",") for line in dump(schedule).splitlines()]
    assert explain(schedule.problem, rows, [{part for word in row for part in PART.findall(word)} for row in rows]) == []
    assert explain(schedule.problem, rows, [set()] * 4) == [
        "rank 0 stands at 0F0, which waits for no message",
        "rank 1 waits at 1F0 for 0SEND_F0, its receive 1 from rank 0, which has sent 0 so far and stands at 0F0",
        "rank 2 waits at 5F0 for 4SEND_F0, its receive 1 from rank 3, which has sent 0 so far and stands at 4F0",
        "rank 3 stands at 4F0, which waits for no message",
    ]


def test_a_part_that_reads_nothing_from_others_just_stands() -> None:
    rows = [["0F0", "0F1"], ["1F0"]]
    assert explain(CHAIN, rows, [{"0F0"}, {"1F0"}]) == ["rank 0 stands at 0F1, which waits for no message"]
