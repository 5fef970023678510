"""
Orders as strings of tokens, one string per rank: what the search changes.

A token says what is joined and on which of the rank's stages, not for which micro-batch: ``F0``, ``I1``, ``W1``, ``B0``, or for
an overlapped pair ``F0&B1``, where 0 and 1 count the rank's own stages. Micro-batches are identical, so first-in-first-out
numbers lose nothing: given any timeline, sort the starts of the forwards of a stage, and of its input backwards; every
precedence survives. For W the same holds among those that run apart from their I.

Of a problem that is its own mirror image (rank r, direction d against rank P-1-r, direction 1-d) half the ranks say
everything. The folded half is a V placement on P/2 ranks whose turn costs a hop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

from verifier.costs import PAIRS, SINGLE, CostModel
from verifier.model import Block, Limits, Op, Problem, Schedule, ScheduleError

Token = tuple[tuple[str, int], ...]
"""The one or two parts of a block: kind, and which of the rank's stages."""
Order = tuple[tuple[Token, ...], ...]
"""``order[rank][position]``, of all ranks or of the folded half."""


def fits_mirror(problem: Problem, costs: CostModel, limits: Limits) -> bool:
    """
    Whether mirror-symmetric schedules exist: exchanging rank r with P-1-r and the two directions leaves all as it is.

    They need room for one micro-batch of each direction on every rank: when the first backward of all starts, a whole
    micro-batch has gone forward, and so has its mirror image.

    Examples
    --------
    >>> both = ((0, 1, 2, 3), (3, 2, 1, 0))
    >>> fits_mirror(Problem(both, (4, 4)), CostModel.of(), Limits(5))
    True
    >>> fits_mirror(Problem(both, (4, 3)), CostModel.of(), Limits(5))
    False
    >>> fits_mirror(Problem(both, (4, 4)), CostModel.of(), Limits(1))
    False
    """
    last = problem.ranks - 1
    if problem.directions < 2 or last % 2 == 0 or problem.microbatches[0] != problem.microbatches[1]:
        return False
    if any(there != last - here for here, there in zip(*problem.placement, strict=True)):
        return False
    ranks = range(problem.ranks)
    same_limits = all(limits.activations_on(rank) == limits.activations_on(last - rank) for rank in ranks)
    same_hops = all(costs.hop_ticks(a, b) == costs.hop_ticks(last - a, last - b) for a, b in product(ranks, ranks))
    return same_limits and same_hops and all(_holds_both(problem, costs, limits, rank) for rank in ranks)


def has_hops(problem: Problem, costs: CostModel) -> bool:
    """Whether a message to the next rank takes time."""
    return any(costs.hop_ticks(rank, after) for rank, after in pairwise(range(problem.ranks)))


def _holds_both(problem: Problem, costs: CostModel, limits: Limits, rank: int) -> bool:
    """Whether a rank may hold the activations of one micro-batch on each of its stages at once."""
    limit = limits.activations_on(rank)
    taken = sum(costs.activation_change(Op("F", direction, stage, 0)) for direction, stage in problem.stages_on(rank))
    return limit is None or taken <= limit


@dataclass(frozen=True)
class Board:
    """
    A problem as the search sees it: ranks with a few stages each, chains of stages, tokens with durations.

    Parameters
    ----------
    problem, costs, limits
        What is asked for.
    blocks
        Kinds of blocks that may be used; None for all that have a price.
    any_pairs
        Whether both parts of a pair may be of one direction (of one stage, where there is one direction only).
    folded
        Whether only the first half of the ranks is described, for mirror-symmetric orders.

    Raises
    ------
    ScheduleError
        If the blocks cannot do the work.

    Examples
    --------
    >>> board = Board(Problem(((0, 1), (1, 0)), (2, 2)), CostModel.of(), Limits(3), folded=True)
    >>> board.ranks, board.chain[0], [board.name(token) for token in board.tokens[-2:]]
    (1, (0, 1), ['F0&B1', 'F1&B0'])
    """

    problem: Problem
    costs: CostModel
    limits: Limits
    blocks: Collection[str] | None = None
    any_pairs: bool = False
    folded: bool = False

    def __post_init__(self) -> None:
        if self.folded and not fits_mirror(self.problem, self.costs, self.limits):
            raise ScheduleError("only a problem that has mirror-symmetric schedules can be folded")
        known = {*SINGLE, *PAIRS}
        unknown = sorted(set(self.blocks or ()) - known)
        if unknown:
            raise ScheduleError(f'blocks: unknown kind "{unknown[0]}"; expected some of F, I, W, B, F&B')
        if "F" not in self.kinds or not ("B" in self.kinds or {"I", "W"} <= set(self.kinds)):
            raise ScheduleError("blocks: expected F, and B or both I and W, so that every op can run")

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of blocks that the search may use."""
        priced = [kind for kind in (*SINGLE, *PAIRS) if self.costs.prices_kind(kind)]
        return tuple(kind for kind in priced if self.blocks is None or kind in self.blocks)

    @property
    def ranks(self) -> int:
        """Ranks that are described."""
        return self.problem.ranks // 2 if self.folded else self.problem.ranks

    @cached_property
    def slots(self) -> int:
        """Most stages on one rank."""
        return max(len(self.problem.stages_on(rank)) for rank in range(self.ranks))

    @property
    def chains(self) -> int:
        """Directions that are described: a folded board follows direction 0 along both halves."""
        return 1 if self.folded else self.problem.directions

    @cached_property
    def chain(self) -> tuple[tuple[int, ...], ...]:
        """``chain[rank][slot]``: number of a stage; stages of one chain follow each other."""
        stages = self.problem.stages
        return tuple(
            tuple(stage if self.folded else direction * stages + stage for direction, stage in self.problem.stages_on(rank))
            for rank in range(self.ranks)
        )

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """``counts[stage of the chain]``: its micro-batches."""
        return tuple(self.problem.microbatches[chain] for chain in range(self.chains) for _ in range(self.problem.stages))

    @cached_property
    def home(self) -> tuple[tuple[int, int], ...]:
        """``home[stage of the chain]``: its rank and slot on the board."""
        places = {stage: (rank, slot) for rank, row in enumerate(self.chain) for slot, stage in enumerate(row)}
        return tuple(places[stage] for stage in range(len(places)))

    def lag(self, stage: int, towards: int) -> int:
        """Ticks from a stage of a chain to the next (1) or the one before (-1)."""
        direction, at = divmod(stage, self.problem.stages)
        row = self.problem.placement[direction]
        return self.costs.hop_ticks(row[at], row[at + towards])

    def steps(self, stage: int, kind: str) -> int:
        """Steps of activations that F takes, or that B, I or W frees, on a stage of a chain."""
        letters = "IW" if kind == "B" else kind
        change = sum(self.costs.activation_steps(Op(letter, 0, stage % self.problem.stages, 0)) for letter in letters)
        return abs(change)

    def cap(self, rank: int) -> int:
        """Steps of activations that a rank may hold; a number that nobody reaches where there is no limit."""
        limit = self.limits.activations_on(rank)
        return 2**60 if limit is None else int(limit * self.costs.steps_per_activation)

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """Every token that some rank may use; the first 4 x slots are the single parts by kind and slot."""
        singles: list[Token] = [((kind, slot),) for kind in "FBIW" for slot in range(self.slots)]
        pairs: list[Token] = []
        for kind in self.kinds:
            if "&" in kind:
                first, second = kind.split("&")
                ways = product(range(self.slots), repeat=2)
                pairs += [((first, a), (second, b)) for a, b in ways if first != second or a <= b]
        usable = [token for token in pairs if any(self.span(rank, token) >= 0 for rank in range(self.ranks))]
        return (*singles, *usable)

    @cached_property
    def codes(self) -> dict[Token, int]:
        """The number of each token; the empty one, which stands for a repeated kernel, comes last."""
        return {token: code for code, token in enumerate((*self.tokens, ()))}

    def span(self, rank: int, token: Token) -> int:
        """Ticks that a token takes on a rank; -1 where it may not be used."""
        held = self.problem.stages_on(rank)
        if any(slot >= len(held) for _, slot in token) or "&".join(kind for kind, _ in token) not in self.kinds:
            return -1
        if len(token) == 2 and not self.any_pairs:
            sides = [held[slot] for _, slot in token]
            apart = 0 if self.problem.directions > 1 else 1
            if sides[0][apart] == sides[1][apart]:
                return -1
        numbers = range(len(token)) if len(token) == 2 else (0,)
        return self.costs.ticks(Block(tuple(op for part, m in zip(token, numbers, strict=True) for op in _ops(part, held, m))))

    @staticmethod
    def name(token: Token) -> str:
        """A token as text, ``F0&B1``."""
        return "&".join(f"{kind}{slot}" for kind, slot in token)

    # -------------------------------------------------------------------------------------- between orders and schedules

    def encode(self, schedule: Schedule) -> Order:
        """
        The strings of a schedule of this problem; the half of a mirrored one where the board is folded.

        Examples
        --------
        >>> problem = Problem(((0,),), (2,))
        >>> schedule = Schedule(problem, (tuple(map(Block.parse, ["0F1", "0F0", "0B1", "0I0", "0W0"])),))
        >>> board = Board(problem, CostModel.of(), Limits())
        >>> [board.name(token) for token in board.encode(schedule)[0]]
        ['F0', 'F0', 'B0', 'I0', 'W0']
        """
        rows = []
        for rank in range(self.ranks):
            slot = {place: index for index, place in enumerate(self.problem.stages_on(rank))}
            rows.append(tuple(_token(block, slot) for block in schedule.order[rank]))
        return tuple(rows)

    def tells(self, schedule: Schedule) -> bool:
        """
        Whether strings tell all of a schedule: its micro-batches come in order, and where folded it is its own mirror image.

        Examples
        --------
        >>> problem = Problem(((0,),), (2,))
        >>> orders = (["0F0", "0F1", "0B0", "0B1"], ["0F1", "0F0", "0B1", "0B0"])
        >>> schedules = [Schedule(problem, (tuple(map(Block.parse, order)),)) for order in orders]
        >>> [Board(problem, CostModel.of(), Limits()).tells(schedule) for schedule in schedules]
        [True, False]
        """
        return self.decode(self.encode(schedule)) == schedule

    def decode(self, order: Order, name: str = "") -> Schedule:
        """
        The schedule that strings stand for, with first-in-first-out micro-batch numbers.

        Examples
        --------
        >>> problem = Problem(((0, 1), (1, 0)), (1, 1))
        >>> board = Board(problem, CostModel.of(), Limits(), folded=True)
        >>> [str(block) for block in board.decode(((((("F", 0),), (("F", 1),), (("B", 1),), (("B", 0),))),)).order[1]]
        ["0F0'", '1F0', '1B0', "0B0'"]
        """
        rows = [tuple(_blocks(row, self.problem.stages_on(rank))) for rank, row in enumerate(order)]
        if self.folded:
            last = self.problem.ranks - 1
            for rank in range(self.ranks, last + 1):
                mirrored = [(1 - direction, stage) for direction, stage in self.problem.stages_on(last - rank)]
                rows.append(tuple(_blocks(order[last - rank], mirrored)))
        return Schedule(self.problem, tuple(rows), name)


def _ops(part: tuple[str, int], held: Sequence[tuple[int, int]], microbatch: int) -> tuple[Op, ...]:
    kind, slot = part
    return tuple(Op(letter, *held[slot], microbatch) for letter in ("IW" if kind == "B" else kind))


def _token(block: Block, slot: dict[tuple[int, int], int]) -> Token:
    parts = [(part.kind, slot[part.direction, part.stage]) for part in block.parts]
    return tuple(sorted(parts, key=lambda part: ("FBIW".index(part[0]), part[1])))


def _blocks(row: Iterable[Token], held: Sequence[tuple[int, int]]) -> Iterator[Block]:
    """Number the micro-batches of one rank's string: F and I first-in-first-out, W among those whose I ran apart."""
    forwards, backwards = [0] * len(held), [0] * len(held)
    waiting: list[deque[int]] = [deque() for _ in held]
    for token in row:
        ops: list[Op] = []
        # Backwards to front: a W joined to an I takes the micro-batch of an earlier one.
        for kind, slot in reversed(token):
            if kind == "F":
                number = forwards[slot]
                forwards[slot] += 1
            elif kind == "W":
                number = waiting[slot].popleft()
            else:
                number = backwards[slot]
                backwards[slot] += 1
                if kind == "I":
                    waiting[slot].append(number)
            ops[:0] = _ops((kind, slot), held, number)
        yield Block(tuple(ops))
