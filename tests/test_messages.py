"""
Messages under every communication model: public cases, recorded lowerings, mutations, and three ways that must agree.

The other judges here are a small interpreter that moves one rank at a time at random, and Z3.
"""

import json
import re
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import (
    bidirectional,
    costs,
    in_rows,
    interleaved,
    legal_blocks,
    problems,
    programs,
    schedules,
    sequential,
    v_shaped,
)
from verifier.costs import CostModel
from verifier.families import build_family
from verifier.formats import load
from verifier.messages import (
    MODELS,
    Action,
    Mark,
    Program,
    Recv,
    Send,
    decide,
    judge,
    judge_marks,
    lower,
    lower_torch,
    parse_action,
    simulate_program,
    with_marks,
)
from verifier.messages.links import inputs
from verifier.messages.replay import Replay
from verifier.model import Block, Origin, Problem, Schedule, ScheduleError
from verifier.simulate import simulate

DATA = Path(__file__).parent / "data"
CASES, TORCH, DEEPSEEK = DATA / "cases", DATA / "torch", DATA / "deepseek"
BUFFERED = {"tagged", "ordered"}
RECORDED = sorted(path for path in TORCH.glob("*.csv") if ".comms" not in path.name)


def table(rows: list[str]) -> Program:
    """Rows of a PyTorch table as a program; every stage lives where it first appears."""
    cells = [[cell.strip().removesuffix("OVERLAP_F_B") for cell in row.split(",")] for row in rows]
    found = [(int(s), rank, m) for rank, row in enumerate(cells) for c in row for s, m in re.findall(r"(\d+)[A-Z_]+(\d*)", c)]
    homes = {stage: rank for stage, rank, _ in reversed(found)}
    count = 1 + max(int(microbatch) for _, _, microbatch in found if microbatch)
    problem = Problem((tuple(homes[stage] for stage in range(len(homes))),), (count,))
    origin = Origin((tuple(range(count)),), tuple(tuple(i for i, cell in enumerate(row) if cell) for row in cells))
    return Program.of(problem, [[cell for cell in row if cell] for row in cells], origin=origin)


def read(path: Path) -> Program:
    return table([row for row in path.read_text().splitlines() if row])


def recorded_deepseek(path: Path) -> Schedule:
    text = json.loads(path.read_text())
    problem = Problem(tuple(map(tuple, text["placement"])), tuple(text["microbatches"]))
    return Schedule(problem, tuple(tuple(map(Block.parse, row)) for row in text["order"]))


def texts(program: Program, model: str) -> list[str]:
    return [witness.text for witness in judge(program, model)]


def clean(program: Program) -> set[str]:
    """The models under which a program is clean, by replay; small ones by Z3 as well."""
    names = {model for model in MODELS if not judge(program, model)}
    if sum(map(len, program.actions)) < 200:
        assert names == {model for model in MODELS if decide(program, model)}
    return names


# ---------------------------------------------------------------------------------------------------------------- cases


def test_c01_both_ranks_send_first() -> None:
    program = read(CASES / "torchtitan__example__35cfe549.csv")
    assert clean(program) == BUFFERED
    for model in ("pair", "rank", "blocking"):
        assert texts(program, model) == [
            "2 ranks wait in a circle: rank 0, cell 5 at 0SEND_F1 (link 0->1, message 2; 2F0 waits) needs 1RECV_F1 -> "
            "rank 1, cell 4 at 1SEND_F0 (link 1->0, message 1; 1F1 waits) needs 2RECV_F0 -> rank 0, cell 5 at 0SEND_F1"
        ]
    timeline = simulate_program(program, CostModel.of())
    assert timeline is not None
    assert (timeline.makespan, timeline.idle) == (27, (3, 3))


def test_c07_ragged_rows_are_clean_under_all_models() -> None:
    program = read(CASES / "pytorch__test_distributed_pipelining_artifacts_zb1p_2rank_2stagep_comms__bf69c149.csv")
    assert clean(program) == set(MODELS)
    for model in ("tagged", "ordered", "pair", "rank"):
        timeline = simulate_program(program, CostModel.of(), model)
        assert timeline is not None
        assert (timeline.makespan, timeline.idle) == (49, (1, 1))


def test_c16_right_order_on_each_link_and_still_a_deadlock() -> None:
    program = read(CASES / "derived__torch2.13.0_Interleaved_P2_V2_M2_defer_pp_recv.csv")
    assert clean(program) == BUFFERED | {"batched"}
    for model in ("pair", "rank", "blocking"):
        (witness,) = judge(program, model)
        assert "at 2SEND_F1 (link 0->1, message 4; 2B0 waits) needs 3RECV_F1" in witness.text
        assert "at 3SEND_B0 (link 1->0, message 3; 3F1 waits) needs 2RECV_B0" in witness.text


def test_c16_is_what_torch_makes_of_the_family_with_deferred_receives() -> None:
    recorded = read(CASES / "derived__torch2.13.0_Interleaved_P2_V2_M2_defer_pp_recv.csv")
    assert lower_torch(recorded.schedule, deferred=True) == recorded


def test_c25_uneven_placement() -> None:
    uneven = table(["0F0,1F0,,,4F0,4B0,,,1B0,0B0", ",,2F0,3F0,,,3B0,2B0,,"])
    program = lower(uneven.schedule)
    assert clean(program) == set(MODELS)
    messages = {action.message[:3] for row in program.actions for action in row if isinstance(action, Send)}
    assert messages == {("F", 0, 1), ("F", 0, 3), ("B", 0, 4), ("B", 0, 2)}
    looped = ["0F0,0F1,2F0,2F1,,2I0,2W0,0I0,2I1,0W0,0I1,2W1,0W1", ",1F0,1F1,3F0,3I0,3F1,1I0,3I1,3W0,1I1,1W0,3W1,1W1"]
    assert clean(lower(table(looped).schedule)) == set(MODELS)


def test_c25_receives_before_all_computes() -> None:
    hoisted = table(
        [
            "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1",
            "1RECV_F0,1RECV_F1,1F0,1F1,1B0,1B1,1SEND_B0,1SEND_B1",
        ]
    )
    assert clean(hoisted) == set(MODELS)


def test_c29_two_receives_of_one_peer_exchanged() -> None:
    program = read(CASES / "derived__P2V2_same_peer_reordered_recv.csv")
    mismatches = [
        "link 0->1, message 4: sent 2SEND_B0, expected 3RECV_F1 (rank 1, cell 10) (1 more on this link)",
        "link 1->0, message 2: sent 1SEND_F1, expected 2RECV_B0 (rank 0, cell 7) (1 more on this link)",
    ]
    assert clean(program) == {"tagged"}
    for model in MODELS.keys() - {"tagged"}:
        assert texts(program, model)[:2] == mismatches
    # Nothing stands still under `ordered`: the run ends, with wrong gradients.
    assert len(judge(program, "ordered")) == 2


def exchange(ranks: int, order: Callable[[int], str]) -> Program:
    """Every rank talks to its neighbours once: s and r are send and receive, - and + the rank before and after."""
    what = {"s-": "{0}SEND_B0", "r-": "{0}RECV_F1", "s+": "{0}SEND_F1", "r+": "{0}RECV_B0"}
    rows = []
    for rank in range(ranks):
        steps = order(rank).split()
        near = {"-": rank > 0, "+": rank < ranks - 1}
        rows.append([what[step].format(rank) for step in steps if near[step[1]]])
    return Program.of(Problem(sequential(ranks), (2,)), rows)


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_c30_the_same_order_on_every_rank_against_parity(ranks: int) -> None:
    same = exchange(ranks, lambda rank: "s- r- s+ r+")
    assert clean(same) == BUFFERED | {"batched"}
    for model in ("pair", "rank", "blocking"):
        (witness,) = judge(same, model)
        assert "rank 0, position 0 at 0SEND_F1 (link 0->1, message 1) needs 1RECV_F1 -> rank 1" in witness.text
    parity = exchange(ranks, lambda rank: "r- s+ r+ s-" if rank % 2 else "s+ r- s- r+")
    assert clean(parity) == set(MODELS)


# ------------------------------------------------------------------------------------------------------------ lowerings


@pytest.mark.parametrize("path", sorted(TORCH.glob("*.comms.csv")), ids=lambda path: path.stem)
def test_torch_lowering_is_reproduced_token_for_token(path: Path) -> None:
    recorded = read(path)
    compute = read(path.with_name(path.name.replace(".comms", "")))
    assert lower_torch(compute.schedule) == recorded
    assert clean(recorded) == set(MODELS)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_torch_orders_are_clean_with_our_and_with_torch_lowering(path: Path) -> None:
    schedule = read(path).schedule
    assert clean(lower(schedule)) == clean(lower_torch(schedule)) == set(MODELS)


@pytest.mark.parametrize("path", sorted(DEEPSEEK.glob("*.json")), ids=lambda path: path.stem)
def test_recorded_deepseek_orders_are_clean(path: Path) -> None:
    schedule = recorded_deepseek(path)
    if sum(map(len, schedule.order)) < 1000:
        assert clean(lower(schedule)) == clean(lower_torch(schedule)) == set(MODELS)
    else:
        assert not any(judge(lower(schedule), model) for model in ("ordered", "rank"))


@pytest.mark.parametrize(
    ("name", "mismatched", "stuck"),
    [
        ("ScheduleGPipe_P4_M8", 0, False),
        ("ScheduleInterleaved1F1B_P4_M8", 0, True),
        ("ScheduleInterleavedZeroBubble_P4_M8", 0, True),
        ("ScheduleInterleavedZeroBubble_P2_M4", 1, True),
        ("ScheduleZBVZeroBubble_P4_M8", 3, True),
        ("ScheduleDualPipeV_P4_M8", 2, True),
    ],
)
def test_torch_deferred_receives_break_what_the_default_keeps(name: str, mismatched: int, stuck: bool) -> None:
    """On a V, both links of a pair carry both kinds, and receives put off until they are needed change places."""
    program = lower_torch(read(TORCH / f"{name}.csv").schedule, deferred=True)
    assert sum(": sent " in text for text in texts(program, "ordered")) == len(judge(program, "ordered")) == mismatched
    assert any("in a circle" in text for text in texts(program, "rank")) == stuck
    assert not judge(program, "tagged")


SIZES = {
    "gpipe": [(1, 1), (4, 6)],
    "1f1b": [(4, 2), (4, 9)],
    "interleaved": [(2, 4), (4, 8)],
    "zb1p": [(4, 8), (3, 2)],
    "zb2p": [(4, 8)],
    "zbv": [(1, 2), (3, 7), (4, 2)],
    "chimera": [(4, 8)],
    "dualpipe": [(2, 4), (6, 12)],
    "dualpipev": [(1, 2), (3, 7)],
}


@pytest.mark.parametrize(
    ("family", "ranks", "microbatches"), [(name, *size) for name, sizes in SIZES.items() for size in sizes]
)
def test_every_family_is_clean_under_every_model_and_loses_no_time(family: str, ranks: int, microbatches: int) -> None:
    schedule = build_family(family, ranks, microbatches)
    for marks in (False, True):
        assert {model for model in MODELS if not judge(lower(schedule, marks=marks), model)} == set(MODELS)
    for hop in (0, Fraction(1, 2), 2):
        prices = CostModel.of(hop=hop)
        alone = simulate(schedule, prices).timeline
        for model in ("tagged", "ordered", "pair", "rank"):
            assert simulate_program(lower(schedule, prices), prices, model) == alone


def test_500_random_legal_schedules_are_clean() -> None:
    random = Random(20240117)
    for _ in range(500):
        ranks = random.randint(1, 4)
        placement = random.choice((sequential(ranks), interleaved(ranks, 2), v_shaped(ranks), bidirectional(ranks)))
        problem = Problem(placement, tuple(random.randint(1, 4) for _ in placement))
        schedule = in_rows(problem, legal_blocks(problem, random, split=random.random(), join=random.choice((0.0, 0.8))))
        program = lower(schedule, marks=random.random() < 0.5)
        assert program.schedule == schedule
        assert [model for model in MODELS if judge(program, model)] == []


@given(st.data())
def test_messages_in_place_cost_no_time(data: st.DataObject) -> None:
    """With the costs that it was made with, a lowering has the timeline of the schedule without messages, block for block."""
    schedule = data.draw(schedules())
    prices = data.draw(costs(schedule.problem))
    alone = simulate(schedule, prices).timeline
    program = lower(schedule, prices)
    for model in ("tagged", "ordered", "pair", "rank"):
        assert simulate_program(program, prices, model) == alone
    for model in ("batched", "blocking"):
        timeline = simulate_program(program, prices, model)
        assert timeline is not None
        assert alone is not None
        assert timeline.makespan >= alone.makespan


@given(schedules(), st.booleans())
def test_torch_lowering_of_any_legal_schedule_is_clean(schedule: Schedule, deferred: bool) -> None:
    program = lower_torch(schedule, deferred=deferred)
    assert program.schedule == schedule
    assert not judge(program, "tagged")
    if not deferred:
        assert [model for model in MODELS if judge(program, model)] == []


def test_what_is_missing_gets_no_messages() -> None:
    schedule = table(["0F0,0F1,0B0", "1F0,1B0,1B1"]).schedule
    program = lower(schedule)
    assert [str(a) for a in program.actions[0]] == ["0F0", "0SEND_F0", "0F1", "0RECV_B0", "0B0"]
    assert judge(program, "tagged") == ()


def test_marks_gather_three_stages_ahead() -> None:
    row = ",".join(f"{stage}F0" for stage in range(5)) + "," + ",".join(f"{stage}B0" for stage in reversed(range(5)))
    marks = [str(a) for a in lower(table([row]).schedule, marks=True).actions[0]]
    assert marks[:4] == ["0UNSHARD", "1UNSHARD", "2UNSHARD", "0F0"]
    assert marks[4:7] == ["0RESHARD", "3UNSHARD", "1F0"]
    assert marks[-3:] == ["0B0", "0REDUCE_GRAD", "0RESHARD"]


def test_only_marks_of_a_kind_that_is_absent_are_added() -> None:
    older = read(CASES / "torchtitan__example__35cfe549.csv")
    newer = with_marks(older)
    added = [[str(a) for a in row if a not in was] for row, was in zip(newer.actions, older.actions, strict=True)]
    assert added == [["2REDUCE_GRAD", "0REDUCE_GRAD"], ["3REDUCE_GRAD", "1REDUCE_GRAD"]]
    assert [[a for a in row if not str(a).endswith("GRAD")] for row in newer.actions] == list(map(list, older.actions))
    assert with_marks(newer) == newer


@given(schedules())
def test_marks_added_later_are_those_of_the_lowering(schedule: Schedule) -> None:
    plain, marked = lower(schedule), lower(schedule, marks=True)
    for row, expected in zip(with_marks(plain).actions, marked.actions, strict=True):
        for without in (Mark, (Send, Recv)):
            assert [a for a in row if not isinstance(a, without)] == [a for a in expected if not isinstance(a, without)]


@pytest.mark.parametrize("lowering", [lower, lower_torch])
def test_an_order_that_hangs_has_no_lowering(lowering: Callable[[Schedule], Program]) -> None:
    schedule = table(["0F0,0B0,0F1,0B1", "1F1,1F0,1B1,1B0"]).schedule
    with pytest.raises(
        ScheduleError, match=r"rank 0, cell 1: 0B0 never runs in this order; messages need an order that does not hang"
    ):
        lowering(schedule)


# ------------------------------------------------------------------------------------------------------------ mutations

BASE = lower(read(TORCH / "ScheduleInterleaved1F1B_P2_M4.csv").schedule)
Row = list[str]
Edit = Callable[[Row], None]


def exchanged(first: str, second: str) -> Edit:
    def edit(row: Row) -> None:
        i, j = row.index(first), row.index(second)
        row[i], row[j] = row[j], row[i]

    return edit


def moved(action: str, *, before: str = "", after: str = "") -> Edit:
    def edit(row: Row) -> None:
        row.remove(action)
        row.insert(row.index(before or after) + bool(after), action)

    return edit


def dropped(action: str) -> Edit:
    return lambda row: row.remove(action)


def doubled(action: str) -> Edit:
    return lambda row: row.insert(row.index(action), action)


def renamed(action: str, name: str) -> Edit:
    return lambda row: row.__setitem__(row.index(action), name)


def edited(edits: list[tuple[int, Edit]]) -> Program:
    rows = [list(map(str, row)) for row in BASE.actions]
    for rank, edit in edits:
        edit(rows[rank])
    return Program.of(BASE.problem, rows)


ALL = set(MODELS)
BY_POSITION = ALL - {"tagged"}
MUTATIONS: dict[str, tuple[list[tuple[int, Edit]], set[str], str]] = {
    "two receives of one peer exchanged": (
        [(1, exchanged("1RECV_F0", "1RECV_F1"))],
        BY_POSITION,
        "link 0->1, message 1: sent 0SEND_F0, expected 1RECV_F1 (rank 1, position 0) (1 more on this link)",
    ),
    "two sends to one peer exchanged": (
        [(0, moved("0SEND_F0", after="0SEND_F1"))],
        BY_POSITION,
        "link 0->1, message 1: sent 0SEND_F1, expected 1RECV_F0 (rank 1, position 0) (1 more on this link)",
    ),
    "activation and gradient exchanged": (
        [(0, exchanged("2RECV_B1", "2RECV_F2"))],
        BY_POSITION,
        "link 1->0, message 4: sent 3SEND_B1, expected 2RECV_F2 (rank 0, position 17) (1 more on this link)",
    ),
    "send dropped": (
        [(0, dropped("0SEND_F2"))],
        ALL,
        "link 0->1, message 5: 1RECV_F2 (rank 1, position 9) is never sent; expected 0SEND_F2 on rank 0",
    ),
    "receive dropped": (
        [(1, dropped("3RECV_F1"))],
        ALL,
        "link 0->1, message 4: 2SEND_F1 (rank 0, position 9) is never received; expected 3RECV_F1 on rank 1",
    ),
    "send doubled": (
        [(0, doubled("0SEND_F2"))],
        ALL,
        "link 0->1, message 6: 0SEND_F2 (rank 0, position 12) repeats a message; expected it once",
    ),
    "receive doubled": (
        [(1, doubled("1RECV_F2"))],
        ALL,
        "link 0->1, message 6: 1RECV_F2 (rank 1, position 10) repeats a message; expected it once",
    ),
    "message dropped at both ends": (
        [(0, dropped("0SEND_F2")), (1, dropped("1RECV_F2"))],
        ALL,
        "link 0->1: nothing brings the activation that 1F2 (rank 1, position 16) reads; put 1RECV_F2 before it",
    ),
    "receive after the block that reads it": (
        [(1, moved("1RECV_F2", after="1F2"))],
        ALL,
        "link 0->1, message 7: 1RECV_F2 (rank 1, position 17) stands after 1F2 (rank 1, position 16), which reads it; "
        "move it before",
    ),
    "send before the block that makes it": (
        [(0, moved("0SEND_F1", before="0F1"))],
        ALL,
        "link 0->1, message 2: 0SEND_F1 (rank 0, position 2) stands before the forward of stage 0 that makes it; "
        "move it after that",
    ),
    "another micro-batch named": (
        [(0, renamed("0SEND_F2", "0SEND_F1"))],
        ALL,
        "link 0->1, message 5: 0SEND_F1 (rank 0, position 11) repeats a message; expected it once",
    ),
    "both ends send before they receive": (
        [(1, moved("1RECV_F1", after="1SEND_F0"))],
        {"pair", "rank", "blocking"},
        "2 ranks wait in a circle: rank 0, position 3 at 0SEND_F1 (link 0->1, message 2; 2F0 waits) needs 1RECV_F1 -> "
        "rank 1, position 2 at 1SEND_F0 (link 1->0, message 1; 1F1 waits) needs 2RECV_F0 -> rank 0, position 3 at 0SEND_F1",
    ),
    "send behind the block that waits for its answer": (
        [(0, moved("2SEND_B3", after="0B3"))],
        ALL,
        "rank 1, position 35 at 1RECV_B3 (link 0->1, message 12; ",
    ),
    "message on a rank without its stage": (
        [(0, dropped("0SEND_F2")), (1, lambda row: row.append("0SEND_F2"))],
        ALL,
        "rank 1, position 40: 0SEND_F2: stage 0 is on rank 0; move it there",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_refuted_with_link_and_message(name: str) -> None:
    edits, refuting, text = MUTATIONS[name]
    program = edited(edits)
    assert clean(program) == ALL - refuting
    for model in refuting:
        assert any(text in found for found in texts(program, model))


def slots(row: tuple[Action, ...], position: int, step: int) -> list[int]:
    """Where an end of a message can go, earlier or later, without passing another of its link or its own block."""
    end, found = row[position], []
    while 0 <= position + step < len(row) and not _holds(end, row[position + step]):
        position += step
        found.append(position)
    return found


def _holds(end: Action, other: Action) -> bool:
    if isinstance(other, Block):
        return isinstance(end, Send) and any(op[1:] == end.message[1:] and op.kind != "W" for op in other.ops)
    return type(other) is type(end)  # stricter than one link, and the same for two ranks


@given(schedules(problems(max_ranks=3, max_microbatches=3)), st.randoms(use_true_random=False))
def test_an_earlier_receive_is_accepted_and_so_is_a_later_send_that_nothing_waits_for(
    schedule: Schedule, random: Random
) -> None:
    program = lower(schedule)
    for rank, row in enumerate(program.actions):
        for position, action in enumerate(row):
            if not isinstance(action, (Send, Recv)):
                continue
            free = slots(row, position, 1 if isinstance(action, Send) else -1)
            if not free:
                continue
            to = random.choice(free)
            rest = list(row[:position] + row[position + 1 :])
            rest.insert(to, action)
            harmless = Program.of(program.problem, [*program.actions[:rank], rest, *program.actions[rank + 1 :]])
            passed_a_block = any(isinstance(other, Block) for other in row[position : to + 1])
            found = judge(harmless, "ordered")
            assert not found or (isinstance(action, Send) and passed_a_block and "in a circle" in found[0].text)


# ---------------------------------------------------------------------------------------- three ways that must agree


class Interpreter:
    """Ranks that move one step at a time, whichever the dice say, with buffers and queues that change as they go."""

    def __init__(self, program: Program, model: str, random: Random) -> None:
        self.program, self.model, self.random = program, model, random
        self.at = [0] * len(program.actions)
        self.finished: set[tuple[int, int]] = set()
        self.queues: dict[tuple[int, int], list[list[tuple[int, int]]]] = {}
        self.travelling: dict[tuple[int, int], list[Send]] = {}
        self.asking: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def run(self) -> set[tuple[int, int]]:
        while True:
            steps = [step for rank in range(len(self.at)) if (step := self.step_of(rank))] + self.deliveries()
            if not steps:
                return self.finished
            self.random.choice(steps)()

    def action(self, place: tuple[int, int]) -> Action:
        return self.program.actions[place[0]][place[1]]

    def peer(self, place: tuple[int, int]) -> int:
        action = self.action(place)
        assert isinstance(action, (Send, Recv))
        peer = self.program.peer(action)
        assert peer is not None
        return peer

    def step_of(self, rank: int) -> Callable[[], None] | None:
        row, position = self.program.actions[rank], self.at[rank]
        if position == len(row):
            return None
        action = row[position]
        if isinstance(action, Block):
            for needed in inputs(self.program, rank, action):
                if needed in row[:position] and (rank, row.index(needed)) not in self.finished:
                    return None
            return lambda: self.pass_by(rank, 1, finished=True)
        if isinstance(action, Mark):
            return lambda: self.pass_by(rank, 1, finished=False)
        if self.model == "blocking" and any(self.queues.get((rank, 0), [])):
            return None
        if self.model == "blocking" and (rank, position) in self.finished:
            return lambda: self.pass_by(rank, 1, finished=True)
        return lambda: self.post(rank, position)

    def pass_by(self, rank: int, count: int, *, finished: bool) -> None:
        if finished:
            self.finished.add((rank, self.at[rank]))
        self.at[rank] += count

    def post(self, rank: int, position: int) -> None:
        place, row = (rank, position), self.program.actions[rank]
        peer = self.peer(place)
        action = row[position]
        if self.model in BUFFERED:
            if isinstance(action, Send):
                self.travelling.setdefault((rank, peer), []).append(action)
            else:
                self.asking.setdefault((peer, rank), []).append(place)
            self.pass_by(rank, 1, finished=isinstance(action, Send))
            return
        count = 1
        if self.model == "batched":
            while position + count < len(row) and self.goes_on(rank, position + count):
                count += 1
        group = [(rank, position + k) for k in range(count)]
        self.queues.setdefault((rank, peer if self.model == "pair" else 0), []).append(group)
        if self.model != "blocking":
            self.pass_by(rank, count, finished=False)

    def deliveries(self) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = []
        for link, sends in self.travelling.items():
            for k, place in enumerate(self.asking.get(link, [])):
                wanted = self.action(place)
                assert isinstance(wanted, Recv)
                first = self.action(place) not in map(self.action, self.asking[link][:k])  # equal tags match in order
                if self.model == "tagged" and first and wanted.counterpart in sends:
                    found.append(lambda link=link, k=k, send=wanted.counterpart: self.deliver(link, k, send))  # type: ignore[misc]
                elif self.model == "ordered" and k == 0 and sends:
                    found.append(lambda link=link, send=sends[0]: self.deliver(link, 0, send))  # type: ignore[misc]
        return found + self.meetings()

    def deliver(self, link: tuple[int, int], k: int, send: Send) -> None:
        self.travelling[link].remove(send)
        self.finished.add(self.asking[link].pop(k))

    def meetings(self) -> list[Callable[[], None]]:
        heads = [place for groups in self.queues.values() if groups for place in groups[0]]
        sends: dict[tuple[int, int], tuple[int, int]] = {}
        receives: dict[tuple[int, int], tuple[int, int]] = {}
        for place in sorted(heads):
            if isinstance(self.action(place), Send):
                sends.setdefault((place[0], self.peer(place)), place)
            else:
                receives.setdefault((self.peer(place), place[0]), place)
        both = sends.keys() & receives.keys()
        return [lambda link=link: self.meet(sends[link], receives[link]) for link in sorted(both)]  # type: ignore[misc]

    def meet(self, *places: tuple[int, int]) -> None:
        for place in places:
            for groups in self.queues.values():
                if groups and place in groups[0]:
                    groups[0].remove(place)
                    if not groups[0]:
                        groups.pop(0)
                        self.finished.update(self.group_of(place))

    def group_of(self, place: tuple[int, int]) -> list[tuple[int, int]]:
        if self.model != "batched":
            return [place]
        (rank, first), row = place, self.program.actions[place[0]]
        while self.goes_on(rank, first):
            first -= 1
        last = first + 1
        while last < len(row) and self.goes_on(rank, last):
            last += 1
        return [(rank, position) for position in range(first, last)]

    def goes_on(self, rank: int, position: int) -> bool:
        """Whether a message belongs to the group of the one before it."""
        both = self.program.actions[rank][max(position - 1, 0) : position + 1]
        return len(both) == 2 and all(isinstance(a, (Send, Recv)) for a in both) and (rank, position) not in self.program.cuts


@given(programs(), st.randoms(use_true_random=False))
def test_every_interleaving_ends_where_replay_does(program: Program, random: Random) -> None:
    for model in MODELS:
        replay = Replay(program, model)
        expected = {
            (rank, position)
            for rank, row in enumerate(program.actions)
            for position, action in enumerate(row)
            if not isinstance(action, Mark) and replay.finished(rank, position)
        }
        for _ in range(3):
            assert Interpreter(program, model, random).run() == expected


@given(programs())
def test_z3_and_replay_agree(program: Program) -> None:
    for model in MODELS:
        assert decide(program, model) == (not judge(program, model))


@given(programs())
def test_no_model_accepts_what_a_weaker_one_refutes(program: Program) -> None:
    """Each model asks for all that those before it in a chain ask for."""
    for chain in (("tagged", "ordered", "pair", "rank", "blocking"), ("ordered", "batched")):
        verdicts = [not judge(program, model) for model in chain]
        assert verdicts == sorted(verdicts, reverse=True)


# ------------------------------------------------------------------------------------------------------ words and sizes


def test_actions_are_read_as_written() -> None:
    for text in ("0F3", "(0F7;7B3')", "1SEND_F3", "1RECV_B3'", "3UNSHARD", "0REDUCE_GRAD"):
        assert str(parse_action(text)) == text
    assert Send("F", 0, 1, 2) != Recv("F", 0, 1, 2)
    with pytest.raises(ScheduleError, match="is not an action such as"):
        parse_action("1SEND_G3")


def test_a_program_has_one_list_per_rank() -> None:
    with pytest.raises(ScheduleError, match="expected one list per rank, 2 lists; got 1"):
        Program.of(Problem(((0, 1),), (1,)), [[]])


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ScheduleError, match="unknown communication model 'nccl'; expected one of tagged, ordered, pair"):
        judge(BASE, "nccl")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("3SEND_F0", "there is no stage 3 in the problem; expected 0 to 2"),
        ("2SEND_F0", "stage 2 is the last; remove it"),
        ("1SEND_F0", "stage 2 is on the same rank, so nothing is sent; remove it"),
        ("0RECV_B0", "stage 0 is on rank 0; move it there"),
        ("1SEND_F0'", "there is no direction 1"),
    ],
)
def test_messages_without_a_place(text: str, wrong: str) -> None:
    program = Program.of(Problem(((0, 1, 1),), (1,)), [[], [text]])
    for model in MODELS:
        (found,) = texts(program, model)
        assert wrong in found
        assert decide(program, model) is False
    assert judge(Program.of(Problem(((0, 1, 1),), (1,)), [["0RECV_F0"], []]), "rank")[0].text.endswith(
        "stage 0 is the first; remove it"
    )


def test_a_weight_backward_makes_no_gradient_to_send() -> None:
    program = table(["0F0,0SEND_F0,0RECV_B0,0B0", "1RECV_F0,1F0,1W0,1SEND_B0,1I0"])
    assert clean(program) == set()
    (found,) = texts(program, "tagged")
    assert found.startswith("link 1->0, message 1: 1SEND_B0 (rank 1, cell 3) stands before the backward of stage 1 that makes")


def test_witnesses_name_the_microbatches_of_the_file() -> None:
    problem = Problem(bidirectional(2), (1, 1))
    origin = Origin(((0,), (1,)), ((4,), (7,)))
    program = Program.of(problem, [[Send("F", 0, 0, 0)], [Send("F", 1, 0, 0)]], origin=origin)
    assert texts(program, "tagged") == [
        "link 0->1, message 1: 0SEND_F0 (rank 0, cell 4) is never received; expected 1RECV_F0 on rank 1",
        "link 1->0, message 1: 0SEND_F1 (rank 1, cell 7) is never received; expected 1RECV_F1 on rank 0",
    ]
    assert program.text(Mark("UNSHARD", 1, 0)) == "0UNSHARD"


def test_waiting_for_a_message_shows_in_the_makespan() -> None:
    """A receive that the list posts late holds up its sender in a queue, not under `ordered`."""
    rows = ["0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1", "1RECV_F0,1F0,1B0,1RECV_F1,1SEND_B0,1F1,1B1,1SEND_B1"]
    prices = CostModel.of(hop=1)
    spans = {model: timeline.makespan for model in MODELS if (timeline := simulate_program(table(rows), prices, model))}
    assert spans == {"tagged": 11, "ordered": 11, "pair": 12, "rank": 12, "batched": 12, "blocking": 13}
    stuck = Program.of(BASE.problem, [["0RECV_B0", "0B0"], []])
    assert simulate_program(stuck, prices, "ordered") is None


def test_judging_takes_time_in_proportion_to_the_ops() -> None:
    """Eight times the ops of a small one, so about eight times as long; in one run, since machines differ."""
    schedules = build_family("1f1b", 64, 64), read(CASES / "derived__1F1B_P64_M512.csv").schedule
    took = []
    for schedule in schedules:
        begin = time.process_time()
        assert judge(lower(schedule), "ordered") == ()
        took.append(time.process_time() - begin)
    assert took[1] < 8 * 4 * took[0]


# --------------------------------------------------------------------------------------------------------------- marks


@pytest.mark.parametrize(
    ("row", "witness"),
    [
        ("0UNSHARD 0F0 0B0 0F1 0B1 0REDUCE_GRAD 0RESHARD", None),
        ("0F0 0B0 0F1 0B1", None),
        ("0F0 0B0 0REDUCE_GRAD 0F1 0B1", "rank 0, position 2: 0REDUCE_GRAD: gradients are added later; move it behind 0B1"),
        ("0F0 0B0 0F1 0B1 0REDUCE_GRAD 0REDUCE_GRAD", "rank 0, position 5: 0REDUCE_GRAD: stands there a second time"),
        ("0F0 0B0 0F1 0B1 0REDUCE_GRAD 7RESHARD", "rank 0, position 5: 7RESHARD: stage 7 is not on this rank; remove it"),
    ],
)
def test_marks_stand_once_behind_the_last_gradient(row, witness):
    program = Program.of(Problem(((0,),), (2,)), [row.split()])
    found = judge_marks(program)
    assert [str(fault)[: len(witness or "")] for fault in found] == ([witness] if witness else [])


def test_a_stage_without_its_mark_is_named():
    program = Program.of(Problem(((0, 0),), (1,)), [["0F0", "1F0", "1B0", "1REDUCE_GRAD", "0B0"]])
    assert list(map(str, judge_marks(program))) == ["rank 0: 0REDUCE_GRAD is missing; expected behind 0B0 (rank 0, position 4)"]


def test_marks_of_torch_and_of_ours_are_right():
    for path in sorted((Path(__file__).parent / "data/torch").glob("*.comms.csv")):
        assert judge_marks(load(path).program) == ()
    assert judge_marks(lower(build_family("dualpipe", 4, 8), marks=True)) == ()
