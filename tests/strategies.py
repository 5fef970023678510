"""
Random legal problems, costs and schedules, mutations of schedules with the rule that each breaks, and programs with slips.

Nothing here uses the rules, the simulation or the families: what is legal is decided by the readiness loop in
:func:`legal_blocks`, which does the jobs one after the other as a single worker would, and a schedule is legal because it was
built that way. So the tests that use it judge the checker by something else than itself.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random
from typing import TypeVar

from hypothesis import assume
from hypothesis import strategies as st

from verifier.costs import CostModel
from verifier.messages import Action, Program, Recv, Send, lower, lower_torch
from verifier.model import Block, Limits, Op, Problem, Schedule, Witness

Place = tuple[int, int]
Item = TypeVar("Item")
NO_LIMITS = Limits()

# ------------------------------------------------------------------------------------------------------------- problems


def sequential(ranks: int) -> tuple[tuple[int, ...], ...]:
    return (tuple(range(ranks)),)


def interleaved(ranks: int, rounds: int) -> tuple[tuple[int, ...], ...]:
    return (tuple(range(ranks)) * rounds,)


def v_shaped(ranks: int) -> tuple[tuple[int, ...], ...]:
    return ((*range(ranks), *reversed(range(ranks))),)


def bidirectional(ranks: int) -> tuple[tuple[int, ...], ...]:
    return (tuple(range(ranks)), tuple(reversed(range(ranks))))


@st.composite
def uneven(draw: st.DrawFn, max_ranks: int) -> tuple[tuple[int, ...], ...]:
    """Any map from stages to ranks that leaves no rank without a stage, in one or two directions."""
    ranks = draw(st.integers(1, max_ranks))
    stages = draw(st.integers(ranks, ranks + 2))
    rows = []
    for _ in range(draw(st.integers(1, 2))):
        extra = draw(st.lists(st.integers(0, ranks - 1), min_size=stages - ranks, max_size=stages - ranks))
        rows.append(tuple(draw(st.permutations([*range(ranks), *extra]))))
    return tuple(rows)


def placements(max_ranks: int = 4) -> st.SearchStrategy[tuple[tuple[int, ...], ...]]:
    """The four shapes that have a name, and any other."""
    ranks = st.integers(1, max_ranks)
    return st.one_of(
        ranks.map(sequential),
        st.builds(interleaved, st.integers(1, max(1, max_ranks - 1)), st.integers(2, 3)),
        ranks.map(v_shaped),
        ranks.map(bidirectional),
        uneven(max_ranks),
    )


@st.composite
def problems(draw: st.DrawFn, max_ranks: int = 4, max_microbatches: int = 5) -> Problem:
    """A placement and micro-batches; of two directions one may be empty."""
    placement = draw(placements(max_ranks))
    total = draw(st.integers(1, max_microbatches))
    if len(placement) == 1:
        return Problem(placement, (total,))
    first = draw(st.integers(0, total))
    return Problem(placement, (first, total - first))


@st.composite
def roomy_problems(draw: st.DrawFn) -> Problem:
    """At least two ranks, and two micro-batches in every direction: most things can go wrong there."""
    placement = draw(placements(3).filter(lambda placement: max(map(max, placement)) > 0))
    return Problem(placement, tuple(draw(st.integers(2, 3)) for _ in placement))


# ---------------------------------------------------------------------------------------------------------------- costs

rationals = st.builds(Fraction, st.integers(0, 12), st.sampled_from((1, 1, 2, 3)))
positives = st.builds(Fraction, st.integers(1, 12), st.sampled_from((1, 1, 2, 3)))


@st.composite
def written_costs(draw: st.DrawFn, problem: Problem, *, uniform: bool = False, zeros: bool = True) -> dict[str, object]:
    """Costs as a person writes them; ``CostModel.of(**written)`` reads them."""
    number = rationals if zeros else positives
    per_stage = st.lists(number, min_size=problem.stages, max_size=problem.stages)
    hops = st.lists(
        st.lists(number, min_size=problem.ranks, max_size=problem.ranks), min_size=problem.ranks, max_size=problem.ranks
    )
    written: dict[str, object] = {}
    for kind in draw(st.sets(st.sampled_from("FIW"))):
        written[kind] = draw(number if uniform else st.one_of(number, per_stage))
    if len(written.keys() & {"I", "W"}) == 2 and draw(st.booleans()):
        written["B"] = draw(number)  # a full backward that is priced apart from its two halves
    if draw(st.booleans()):
        written["FB"] = draw(number)
    if draw(st.booleans()):
        written["hop"] = draw(rationals if uniform else st.one_of(rationals, hops))
    if draw(st.booleans()):
        written["release"] = draw(st.sampled_from((Fraction(1, 3), Fraction(1, 2), Fraction(1))))
    if not uniform and draw(st.booleans()):
        written["activation"] = draw(st.lists(positives, min_size=problem.stages, max_size=problem.stages))
    return written


@st.composite
def costs(draw: st.DrawFn, problem: Problem, *, uniform: bool = False, zeros: bool = True) -> CostModel:
    """Exact costs that fit the problem: uniform or per stage, some of them 0, with or without hop and early release."""
    model = CostModel.of(**draw(written_costs(problem, uniform=uniform, zeros=zeros)))
    assume(any(model.ticks(Block((op,))) for op in problem.ops() if op.microbatch == 0))
    return model


# ------------------------------------------------------------------------------------------------------ legal schedules


def rank_of(problem: Problem, op: Op) -> int:
    return problem.placement[op.direction][op.stage]


def producers(problem: Problem, op: Op) -> list[Op]:
    """What has to be done before an op, in the words of the model's second rule; nothing where there is no such stage."""
    if op.stage >= problem.stages:
        return []
    if op.kind == "W":
        return [op._replace(kind="I")]
    if op.kind == "F":
        return [op._replace(stage=op.stage - 1)] if op.stage else []
    forward = op._replace(kind="F")
    return [forward] if op.stage == problem.stages - 1 else [forward, op._replace(stage=op.stage + 1)]


def legal_blocks(problem: Problem, random: Random, *, split: float = 0.5, join: float = 0.5) -> list[Block]:
    """
    All work of a problem in an order in which a single worker could do it.

    ``split`` is the share of backwards that run as I and W apart, ``join`` how eagerly a ready F and a ready full backward
    of one rank become one block. Both being ready, neither can need the other.
    """
    todo: dict[Op, Block] = {}
    for op in problem.ops():
        if op.kind == "F":
            todo[op] = Block((op,))
        elif op.kind == "I":
            halves = (op, op._replace(kind="W"))
            blocks = [Block((half,)) for half in halves] if random.random() < split else [Block(halves)]
            todo.update({block.ops[0]: block for block in blocks})
    done: set[Op] = set()
    blocks = []
    while todo:
        ready = [block for op, block in todo.items() if all(producer in done for producer in producers(problem, op))]
        block = random.choice(ready)
        partners = [other for other in ready if _may_join(problem, block, other)]
        if partners and random.random() < join:
            partner = random.choice(partners)
            del todo[partner.ops[0]]
            del todo[block.ops[0]]
            block = Block(block.ops + partner.ops)
        else:
            del todo[block.ops[0]]
        done.update(block.ops)
        blocks.append(block)
    return blocks


def _may_join(problem: Problem, block: Block, other: Block) -> bool:
    return {block.kind, other.kind} == {"F", "B"} and rank_of(problem, block.ops[0]) == rank_of(problem, other.ops[0])


def in_rows(problem: Problem, blocks: Sequence[Block]) -> Schedule:
    """Give every block to its rank, in the order of the list."""
    rows: list[list[Block]] = [[] for _ in range(problem.ranks)]
    for block in blocks:
        rows[rank_of(problem, block.ops[0])].append(block)
    return Schedule(problem, tuple(map(tuple, rows)))


@st.composite
def schedules(
    draw: st.DrawFn, of: st.SearchStrategy[Problem] | None = None, *, split: float | None = None, join: float | None = None
) -> Schedule:
    """Legal schedules of any problem: complete, free of deadlock, with pairs that do not need themselves."""
    problem = draw(problems() if of is None else of)
    random = draw(st.randoms(use_true_random=False))
    split = draw(st.sampled_from((0.0, 0.5, 1.0))) if split is None else split
    join = draw(st.sampled_from((0.0, 0.7))) if join is None else join
    return in_rows(problem, legal_blocks(problem, random, split=split, join=join))


def replayed(schedule: Schedule, costs: CostModel) -> list[list[Fraction]] | None:
    """
    When the blocks start if every rank goes on as soon as its next block has what it needs; None where the ranks hang.

    Nobody waits for an op that is nowhere; of one that runs twice, the first to have run counts.
    """
    problem = schedule.problem
    present = {op for row in schedule.order for block in row for op in block.ops}
    starts: list[list[Fraction]] = [[] for _ in schedule.order]
    free = [Fraction(0)] * problem.ranks
    ended: dict[Op, tuple[Fraction, int]] = {}
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(schedule.order):
            while len(starts[rank]) < len(row):
                block = row[len(starts[rank])]
                needs = needed_by(problem, block) & present
                if not needs <= ended.keys():
                    break
                arrivals = [ended[op][0] + Fraction(costs.hop_ticks(ended[op][1], rank), costs.ticks_per_unit) for op in needs]
                start = max([free[rank], *arrivals])
                free[rank] = start + costs.duration(block)
                starts[rank].append(start)
                for op in block.ops:
                    ended.setdefault(op, (free[rank], rank))
                moved = True
    return starts if sum(map(len, starts)) == sum(map(len, schedule.order)) else None


def needed_by(problem: Problem, block: Block) -> set[Op]:
    """What a block waits for; inside a full backward W follows I, and nobody waits."""
    firsts = [Op("I" if part.kind == "B" else part.kind, *part[1:]) for part in block.parts]
    return {need for first in firsts for need in producers(problem, first)}


def runs(schedule: Schedule) -> bool:
    """Whether all ranks get to their ends."""
    return replayed(schedule, CostModel.of()) is not None


def peaks(schedule: Schedule) -> list[int]:
    """Most activations per rank where an F adds one and a W frees one."""
    most = []
    for row in schedule.order:
        live = highest = 0
        for block in row:
            live += sum(op.kind == "F" for op in block.ops)
            highest = max(highest, live)
            live -= sum(op.kind == "W" for op in block.ops)
        most.append(highest)
    return most


# ------------------------------------------------------------------------------------------------------------ mutations


@dataclass(frozen=True)
class Mutant:
    """
    A schedule with one fault.

    ``rule`` is broken by it; a witness has to name one of ``places`` (rank, and position in the mutated order or None for
    the rank as a whole) or one of ``words``, ops as they are written. ``limits`` are what the schedule kept to before.
    """

    kind: str
    rule: str
    schedule: Schedule
    places: tuple[tuple[int, int | None], ...] = ()
    words: tuple[str, ...] = ()
    limits: Limits = NO_LIMITS

    def is_named_by(self, witness: Witness) -> bool:
        """Whether a person who reads the witness is led to the fault."""
        return (witness.rank, witness.position) in self.places or any(
            re.search(rf"(?<!\w){re.escape(word)}(?![\w'])", witness.text) for word in self.words
        )


Rows = list[list[Block]]


def _rows(schedule: Schedule) -> Rows:
    return [list(row) for row in schedule.order]


def _with(schedule: Schedule, rows: Rows) -> Schedule:
    return replace(schedule, order=tuple(map(tuple, rows)))


def _places(schedule: Schedule, wanted: Callable[[Block], bool] = lambda block: True) -> list[Place]:
    return [(rank, position) for rank, row in enumerate(schedule.order) for position, block in enumerate(row) if wanted(block)]


def _where(schedule: Schedule) -> dict[Op, Place]:
    return {
        op: (rank, position)
        for rank, row in enumerate(schedule.order)
        for position, block in enumerate(row)
        for op in block.ops
    }


def _pick(random: Random, items: Sequence[Item]) -> Item:
    """One of the items; an example without any is no example."""
    assume(items)
    return items[random.randrange(len(items))]


def _words(*ops: Op) -> tuple[str, ...]:
    """Ops as they are written, the I and the W of a lost backward also as the B that they make."""
    whole = [op._replace(kind="B") for op in ops if op.kind == "I"]
    return tuple(map(str, (*ops, *whole)))


def drop_a_block(schedule: Schedule, random: Random) -> Mutant:
    rank, position = _pick(random, _places(schedule))
    rows = _rows(schedule)
    gone = rows[rank].pop(position)
    return Mutant("", "complete", _with(schedule, rows), words=_words(*gone.ops))


def drop_the_tail_of_a_rank(schedule: Schedule, random: Random) -> Mutant:
    rank, position = _pick(random, _places(schedule))
    rows = _rows(schedule)
    gone = rows[rank][position:]
    rows[rank] = rows[rank][:position]
    return Mutant("", "complete", _with(schedule, rows), words=_words(*(op for block in gone for op in block.ops)))


def double_a_block(schedule: Schedule, random: Random) -> Mutant:
    rank, position = _pick(random, _places(schedule))
    rows = _rows(schedule)
    later = random.randint(position + 1, len(rows[rank]))
    rows[rank].insert(later, rows[rank][position])
    return Mutant("", "complete", _with(schedule, rows), ((rank, position), (rank, later)), _words(*rows[rank][position].ops))


def move_to_another_rank(schedule: Schedule, random: Random) -> Mutant:
    assume(schedule.problem.ranks > 1)
    rank, position = _pick(random, _places(schedule))
    other = _pick(random, [r for r in range(schedule.problem.ranks) if r != rank])
    rows = _rows(schedule)
    block = rows[rank].pop(position)
    there = random.randint(0, len(rows[other]))
    rows[other].insert(there, block)
    return Mutant("", "complete", _with(schedule, rows), ((other, there),), _words(*block.ops))


def _renamed(schedule: Schedule, random: Random, rename: Callable[[Op], Op | None]) -> Mutant:
    """One block whose ops carry other names; they are then missing, and the new names too many."""
    rank, position = _pick(random, _places(schedule, lambda block: len(block.parts) == 1))
    rows = _rows(schedule)
    old = rows[rank][position]
    new = [rename(op) for op in old.ops]
    assume(None not in new)
    rows[rank][position] = Block(tuple(op for op in new if op))
    return Mutant("", "complete", _with(schedule, rows), ((rank, position),), _words(*old.ops))


def microbatch_out_of_range(schedule: Schedule, random: Random) -> Mutant:
    beyond = max(schedule.problem.microbatches) + random.randint(0, 3)
    return _renamed(schedule, random, lambda op: op._replace(microbatch=beyond))


def another_microbatch(schedule: Schedule, random: Random) -> Mutant:
    counts = schedule.problem.microbatches
    assume(max(counts) > 1)
    return _renamed(schedule, random, lambda op: op._replace(microbatch=(op.microbatch + 1) % counts[op.direction]))


def another_stage(schedule: Schedule, random: Random) -> Mutant:
    stages = schedule.problem.stages
    assume(stages > 1)
    step = random.randint(1, stages - 1)
    return _renamed(schedule, random, lambda op: op._replace(stage=(op.stage + step) % stages))


def stage_out_of_range(schedule: Schedule, random: Random) -> Mutant:
    return _renamed(schedule, random, lambda op: op._replace(stage=schedule.problem.stages))


def the_other_direction(schedule: Schedule, random: Random) -> Mutant:
    return _renamed(schedule, random, lambda op: op._replace(direction=1 - op.direction))


def weights_without_input_gradient(schedule: Schedule, random: Random) -> Mutant:
    """A full backward of which only W is left."""
    return _half(schedule, random, "W")


def input_gradient_without_weights(schedule: Schedule, random: Random) -> Mutant:
    """A full backward of which only I is left."""
    return _half(schedule, random, "I")


def _half(schedule: Schedule, random: Random, kept: str) -> Mutant:
    rank, position = _pick(random, _places(schedule, lambda block: block.kind == "B"))
    rows = _rows(schedule)
    old = rows[rank][position]
    rows[rank][position] = Block(tuple(op for op in old.ops if op.kind == kept))
    return Mutant("", "complete", _with(schedule, rows), words=_words(*(op for op in old.ops if op.kind != kept)))


def _exchanged(schedule: Schedule, first: Place, second: Place) -> Mutant:
    """
    Two blocks of one rank change places, so that they form a circle.

    Order and dependencies among all other blocks are as before, when there was no circle; so each circle holds one of the two.
    """
    (rank, a), (_, b) = first, second
    rows = _rows(schedule)
    rows[rank][a], rows[rank][b] = rows[rank][b], rows[rank][a]
    return Mutant("", "dependencies", _with(schedule, rows), (first, second), _words(*rows[rank][a].ops, *rows[rank][b].ops))


def weights_before_input_gradient(schedule: Schedule, random: Random) -> Mutant:
    where = _where(schedule)
    apart = [op for op in where if op.kind == "I" and where[op] != where[op._replace(kind="W")]]
    op = _pick(random, apart)
    return _exchanged(schedule, where[op], where[op._replace(kind="W")])


def forward_after_its_backward(schedule: Schedule, random: Random) -> Mutant:
    where = _where(schedule)
    op = _pick(random, [op for op in where if op.kind == "F"])
    return _exchanged(schedule, where[op], where[op._replace(kind="I")])


def exchange_two_backwards(schedule: Schedule, random: Random) -> Mutant:
    """A backward takes the place of another one that stands before its forward."""
    where = _where(schedule)
    pairs = [
        (one, other)
        for one in where
        for other in where
        if one.kind == other.kind == "I"
        and one[1:3] == other[1:3]
        and where[one] < where[other._replace(kind="F")] < where[other]
    ]
    one, other = _pick(random, pairs)
    return _exchanged(schedule, where[one], where[other])


def reverse_a_row(schedule: Schedule, random: Random) -> Mutant:
    """Every forward on the rank then runs after its own backward."""
    rank = _pick(random, [rank for rank, row in enumerate(schedule.order) if len(row) > 1])
    rows = _rows(schedule)
    rows[rank].reverse()
    places = tuple((rank, position) for position in range(len(rows[rank])))
    return Mutant("", "dependencies", _with(schedule, rows), places)


def circle_over_two_ranks(schedule: Schedule, random: Random) -> Mutant:
    """
    Stage s delays the forward of a later micro-batch behind the backward of an earlier one, stage s+1 asks for it before that.

    Each rank alone keeps its rules; together they wait for one another.
    """
    problem = schedule.problem
    where = _where(schedule)
    alone = {op for op, (rank, position) in where.items() if schedule.order[rank][position].kind == op.kind == "F"}
    choices = []
    for late in alone:
        asked = late._replace(stage=late.stage + 1)
        if asked not in alone or rank_of(problem, late) == rank_of(problem, asked):
            continue
        for microbatch in range(problem.microbatches[late.direction]):
            back = Op("I", late.direction, late.stage, microbatch)
            if where[back] < where[late._replace(kind="I")]:
                choices.append((late, asked, back, back._replace(stage=asked.stage)))
    late, asked, back, given = _pick(random, choices)
    rows = _rows(schedule)
    _move(rows[rank_of(problem, late)], late, back, after=True)
    _move(rows[rank_of(problem, asked)], asked, given, after=False)
    return Mutant("", "dependencies", _with(schedule, rows), words=_words(late, asked))


def _move(row: list[Block], op: Op, anchor: Op, *, after: bool) -> None:
    """Put the block of one op directly behind or before the block of another, unless it stands on that side already."""
    here, there = (next(i for i, block in enumerate(row) if wanted in block.ops) for wanted in (op, anchor))
    if (here > there) != after:
        row.insert(there, row.pop(here))


def _joined(schedule: Schedule, rank: int, first: int, second: int, rule: str) -> Mutant:
    """Two blocks of a rank become one, at the place of the second."""
    rows = _rows(schedule)
    block = Block(rows[rank][first].ops + rows[rank][second].ops)
    rows[rank][second] = block
    del rows[rank][first]
    place = (rank, second - (first < second))
    return Mutant("", rule, _with(schedule, rows), (place,), _words(*block.ops))


def _needing_pairs(schedule: Schedule, *, same_stage: bool) -> list[tuple[int, int, int]]:
    """Forwards and full backwards of one micro-batch on one rank; the backward needs the forward, near or far."""
    where = _where(schedule)
    found = []
    for op, (rank, position) in where.items():
        if schedule.order[rank][position].kind != "F":
            continue
        for stage in range(schedule.problem.stages):
            other_rank, other = where[op._replace(kind="I", stage=stage)]
            if other_rank == rank and (stage == op.stage) == same_stage and schedule.order[rank][other].kind == "B":
                found.append((rank, position, other))
    return found


def pair_with_its_own_backward(schedule: Schedule, random: Random) -> Mutant:
    return _joined(schedule, *_pick(random, _needing_pairs(schedule, same_stage=True)), rule="pairing")


def pair_that_needs_itself_over_other_stages(schedule: Schedule, random: Random) -> Mutant:
    return _joined(schedule, *_pick(random, _needing_pairs(schedule, same_stage=False)), rule="pairing")


def pair_without_a_price(schedule: Schedule, random: Random) -> Mutant:
    """Two neighbours of one kind joined; the costs know only F&B."""
    neighbours = [
        (rank, position, position + 1)
        for rank, row in enumerate(schedule.order)
        for position in range(len(row) - 1)
        if row[position].kind == row[position + 1].kind and len(row[position].parts) == 1
    ]
    return _joined(schedule, *_pick(random, neighbours), rule="pairing")


def weight_gradients_last(schedule: Schedule, random: Random) -> Mutant:
    """A rank that had just enough memory puts off all its weight gradients."""
    before = peaks(schedule)
    rows = [
        [block for block in row if block.kind != "W"] + [block for block in row if block.kind == "W"] for row in schedule.order
    ]
    after = peaks(_with(schedule, rows))
    rank = _pick(random, [rank for rank, peak in enumerate(after) if peak > before[rank]])
    mutated = _rows(schedule)
    mutated[rank] = rows[rank]
    position = _first_over(mutated[rank], before[rank])
    limits = Limits(activations=tuple(map(Fraction, before)))
    return Mutant("", "activations", _with(schedule, mutated), ((rank, position),), _words(*rows[rank][position].ops), limits)


def _first_over(row: Sequence[Block], limit: int) -> int:
    live = 0
    for position, block in enumerate(row):
        live += sum(op.kind == "F" for op in block.ops)
        if live > limit:
            return position
        live -= sum(op.kind == "W" for op in block.ops)
    raise AssertionError("the row stays within the limit")


def a_stage_too_many(schedule: Schedule, random: Random) -> Mutant:
    """A stage and all its blocks move to a rank that had room for its own stages only."""
    problem = schedule.problem
    held = [len(problem.stages_on(rank)) for rank in range(problem.ranks)]
    direction, stage = _pick(
        random, [pair for rank in range(problem.ranks) for pair in problem.stages_on(rank) if held[rank] > 1]
    )
    rank = _pick(random, [rank for rank in range(problem.ranks) if rank != problem.placement[direction][stage]])
    placement = [list(row) for row in problem.placement]
    placement[direction][stage] = rank
    moved = Problem(tuple(map(tuple, placement)), problem.microbatches)
    mutated = in_rows(moved, legal_blocks(moved, random))
    return Mutant("", "weights", mutated, ((rank, None),), limits=Limits(weights=tuple(held)))


MUTATIONS: dict[str, Callable[[Schedule, Random], Mutant]] = {
    mutate.__name__: mutate
    for mutate in (
        drop_a_block,
        drop_the_tail_of_a_rank,
        double_a_block,
        move_to_another_rank,
        microbatch_out_of_range,
        another_microbatch,
        another_stage,
        stage_out_of_range,
        the_other_direction,
        weights_without_input_gradient,
        input_gradient_without_weights,
        weights_before_input_gradient,
        forward_after_its_backward,
        exchange_two_backwards,
        reverse_a_row,
        circle_over_two_ranks,
        pair_with_its_own_backward,
        pair_that_needs_itself_over_other_stages,
        pair_without_a_price,
        weight_gradients_last,
        a_stage_too_many,
    )
}


@st.composite
def mutants(draw: st.DrawFn, kind: str) -> Mutant:
    """A legal schedule with one fault of that kind."""
    schedule = draw(schedules(roomy_problems(), split=0.5))
    return replace(MUTATIONS[kind](schedule, draw(st.randoms(use_true_random=False))), kind=kind)


# ------------------------------------------------------------------------------------------------- harmless reorderings


def exchange_neighbours(schedule: Schedule, random: Random) -> Schedule:
    """Two neighbours that do not need one another change places, where that makes no circle."""
    rank, position = _pick(random, _places(schedule))
    assume(position + 1 < len(schedule.order[rank]))
    rows = _rows(schedule)
    rows[rank][position], rows[rank][position + 1] = rows[rank][position + 1], rows[rank][position]
    changed = _with(schedule, rows)
    assume(runs(changed))
    return changed


def weight_gradient_later(schedule: Schedule, random: Random) -> Schedule:
    """Nothing waits for a weight gradient."""
    rank, position = _pick(random, _places(schedule, lambda block: block.kind == "W"))
    rows = _rows(schedule)
    block = rows[rank].pop(position)
    rows[rank].insert(random.randint(position, len(rows[rank])), block)
    return _with(schedule, rows)


def backward_split(schedule: Schedule, random: Random) -> Schedule:
    rank, position = _pick(random, _places(schedule, lambda block: block.kind == "B"))
    rows = _rows(schedule)
    rows[rank][position : position + 1] = [Block((op,)) for op in rows[rank][position].ops]
    return _with(schedule, rows)


def halves_joined(schedule: Schedule, random: Random) -> Schedule:
    """I and W of one micro-batch that stand side by side become a full backward."""
    beside = [
        (rank, position)
        for rank, row in enumerate(schedule.order)
        for position in range(len(row) - 1)
        if row[position].kind == "I" and row[position + 1].ops == (row[position].ops[0]._replace(kind="W"),)
    ]
    rank, position = _pick(random, beside)
    rows = _rows(schedule)
    rows[rank][position : position + 2] = [Block(rows[rank][position].ops + rows[rank][position + 1].ops)]
    return _with(schedule, rows)


def pair_parted(schedule: Schedule, random: Random) -> Schedule:
    """An overlapped block runs as its forward and then its backward."""
    rank, position = _pick(random, _places(schedule, lambda block: block.kind == "F&B"))
    rows = _rows(schedule)
    ops = rows[rank][position].ops
    halves = [Block(tuple(op for op in ops if (op.kind == "F") == forward)) for forward in (True, False)]
    rows[rank][position : position + 1] = halves
    return _with(schedule, rows)


def written_the_other_way(schedule: Schedule, random: Random) -> Schedule:
    """The two sides of an overlapped block in the other order."""
    rank, position = _pick(random, _places(schedule, lambda block: block.kind == "F&B"))
    rows = _rows(schedule)
    ops = rows[rank][position].ops
    rows[rank][position] = Block(tuple(sorted(ops, key=lambda op: (ops[0].kind == "F") == (op.kind == "F"))))
    return _with(schedule, rows)


def microbatches_renamed(schedule: Schedule, random: Random) -> Schedule:
    names = [random.sample(range(count), count) for count in schedule.problem.microbatches]
    return mapped(schedule, lambda op: op._replace(microbatch=names[op.direction][op.microbatch]))


def mapped(schedule: Schedule, rename: Callable[[Op], Op]) -> Schedule:
    """The same order with other names for its ops."""
    rows = [[Block(tuple(map(rename, block.ops))) for block in row] for row in schedule.order]
    return _with(schedule, rows)


REORDERINGS: dict[str, Callable[[Schedule, Random], Schedule]] = {
    change.__name__: change
    for change in (
        exchange_neighbours,
        weight_gradient_later,
        backward_split,
        halves_joined,
        pair_parted,
        written_the_other_way,
        microbatches_renamed,
    )
}


@st.composite
def reordered(draw: st.DrawFn, kind: str) -> Schedule:
    """A legal schedule, changed in a way that leaves it legal."""
    schedule = draw(schedules(roomy_problems(), split=0.5, join=0.7))
    return REORDERINGS[kind](schedule, draw(st.randoms(use_true_random=False)))


@st.composite
def shuffled(draw: st.DrawFn) -> Schedule:
    """All the right blocks on the right ranks, some of them in an order that may hang."""
    schedule = draw(schedules(problems(max_ranks=3, max_microbatches=3)))
    random = draw(st.randoms(use_true_random=False))
    rows = _rows(schedule)
    for _ in range(draw(st.integers(0, 4))):
        rank, position = _pick(random, _places(schedule))
        block = rows[rank].pop(position)
        near = max(0, position - 3), min(len(rows[rank]), position + 3)
        rows[rank].insert(random.randint(*near), block)
    return _with(schedule, rows)


# ------------------------------------------------------------------------------------------------------------- programs


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Lowerings of small legal schedules with up to four slips of the pen, and with some groups of messages parted."""
    schedule = draw(schedules(problems(max_ranks=3, max_microbatches=2)))
    random = draw(st.randoms(use_true_random=False))
    program = draw(st.sampled_from((lower, lower_torch)))(schedule)
    rows = [list(row) for row in program.actions]
    for _ in range(draw(st.integers(0, 4))):
        row = random.choice(rows)
        ends = [position for position, action in enumerate(row) if isinstance(action, (Send, Recv))]
        if ends:
            slip = random.choice(("move", "move", "move", "drop", "double"))
            position = random.choice(ends)
            action = row[position] if slip == "double" else row.pop(position)
            if slip != "drop":
                row.insert(random.randint(max(0, position - 4), min(len(row), position + 4)), action)
    whole = Program.of(program.problem, rows)
    steps = [
        [list(step) if isinstance(step[0], (Send, Recv)) else step[0] for step in whole.groups(r)] for r in range(len(rows))
    ]
    return Program.of(program.problem, [[part for step in row for part in parted(step, random)] for row in steps])


def parted(step: Action | list[Action], random: Random) -> list[Action | list[Action]]:
    """A group of messages, or now and then two groups."""
    if not isinstance(step, list):
        return [step]
    if len(step) == 1 or random.random() < 0.7:
        return list(step)
    cut = random.randint(1, len(step) - 1)
    return [step[:cut], step[cut:]]
