"""
Questions to a solver about all schedules of a problem, and its answers: is there one that needs at most so many ticks?

Every solver answers through the same interface, so that they can be asked in turn and compared. What a solver says is believed
only after replay: :func:`believed` runs its schedule through the simulation and all rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from verifier import rules
from verifier.bounds import Times, board_grain
from verifier.costs import CostModel
from verifier.model import Limits, Problem, Schedule
from verifier.search.strings import Board
from verifier.simulate import Simulation, simulate

OBJECTIVES = ("makespan", "span-idle")
"""What is kept within the horizon: the last end, or on every rank the time from its first start to its last end."""


class ReplayError(Exception):
    """A solver's schedule that replay refuses: a defect of this program, never caught."""


@dataclass(frozen=True)
class Question:
    """
    Is there a schedule within a horizon?

    Parameters
    ----------
    problem, costs, limits
        What is asked for.
    horizon
        In ticks of the costs.
    blocks
        Kinds of blocks that may be used; None for all that have a price.
    pairs
        ``opposite``, or ``any`` where both parts of a pair may be of one direction.
    mirrored
        Ask about mirror-symmetric schedules only (rank r, direction d like rank P-1-r, direction 1-d). It halves the question,
        but not every problem has a best schedule that is symmetric.
    fifo
        Let micro-batches pass every stage in one order. That loses nothing. Micro-batches are identical; take any timeline and
        renumber, stage by stage, the forwards by their start times, and the input backwards by theirs. The k-th forward of
        stage s still starts after the k-th of stage s - 1 has ended and hopped: k forwards of stage s start no later than it,
        each after its own predecessor, so k predecessors have ended by then, and ends are ordered as starts, since the blocks
        of one rank do not overlap. The same holds from stage s + 1 to s for input backwards and from a forward to its input
        backward. Weight backwards are renumbered among those that run apart from their input backward: the k-th such I starts
        no later than the k-th such W, by the same count. Durations stay, since they depend on stage and kind; pairs stay pairs;
        and what a rank holds at any time is a count, which does not change. No order is asked between a W that runs apart and
        the W of a full backward: a pair may complete a later micro-batch while an earlier one still waits for its W.
    objective
        One of :data:`OBJECTIVES`.

    Examples
    --------
    >>> question = Question(Problem(((0, 1),), (2,)), CostModel.of(), Limits(2), horizon=8)
    >>> question.board.ranks, question.grain
    (2, 1)
    """

    problem: Problem
    costs: CostModel
    limits: Limits
    horizon: int
    blocks: tuple[str, ...] | None = None
    pairs: str = "opposite"
    mirrored: bool = False
    fifo: bool = True
    objective: str = "makespan"

    @cached_property
    def board(self) -> Board:
        """The problem as ranks with chains of stages; half the ranks where the question is mirrored."""
        return Board(self.problem, self.costs, self.limits, self.blocks, self.pairs == "any", self.mirrored)

    @cached_property
    def times(self) -> Times:
        """Shortest times of the board's stages."""
        return Times(self.board)

    @cached_property
    def grain(self) -> int:
        """What divides every duration and hop: solvers count in grains."""
        return board_grain(self.board)


@dataclass(frozen=True)
class Answer:
    """
    What a solver said.

    Attributes
    ----------
    status
        ``sat`` with a schedule, ``unsat``, or ``unknown``, which proves nothing.
    who
        The solver.
    seconds
        Processor time of this process that the answer took.
    reason
        Why it is unknown.
    """

    status: str
    who: str
    seconds: float
    schedule: Schedule | None = None
    reason: str = ""


def believed(question: Question, schedule: Schedule, who: str, seconds: float) -> Answer:
    """
    A solver's schedule as an answer, after replay.

    Raises
    ------
    ReplayError
        If replay refuses it.
    """
    why = refusal(question, schedule)
    if why is None:
        return Answer("sat", who, seconds, schedule)
    board = question.board
    if any(board.span(rank, token) == 0 for rank in range(board.ranks) for token in board.tokens):
        # Solvers see moments, replay an order: what takes no time can fit between moments, and not in any order.
        return Answer("unknown", who, seconds, reason=f"its schedule was refused: {why}")
    raise ReplayError(f"{who} claims a schedule that replay refuses: {why}. {question}")


def measure(schedule: Schedule, costs: CostModel, objective: str) -> int | None:
    """
    The number that an objective minimizes, in ticks, over all timelines of a schedule; None where it has none.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> schedule = build_family("zb2p", 4, 8)
    >>> measure(schedule, CostModel.of(), "makespan"), measure(schedule, CostModel.of(), "span-idle")
    (27, 24)
    """
    return measured(simulate(schedule, costs), objective)


def measured(simulation: Simulation, objective: str) -> int | None:
    """As :func:`measure`, of a schedule that was simulated already."""
    if simulation.timeline is None:
        return None
    return simulation.timeline.makespan_ticks if objective == "makespan" else longest_span(simulation)


def longest_span(simulation: Simulation) -> int:
    """
    The least number of ticks within which every rank can be done after its own start, over all timelines of the order.

    With L(r, r') the longest path from rank r's first start to rank r' 's last end, ``end(r') >= start(r) + L(r, r')`` and
    ``end(r) <= start(r) + T`` can be met exactly if no circle of ranks has a sum of L above T times its length.

    Notes
    -----
    One longest path for each rank, then a few hundred steps of a shortest-path test on the ranks.
    """
    schedule, nodes = simulation.schedule, [rank for rank, row in enumerate(simulation.schedule.order) if row]
    spans = [simulation.costs.ticks(block) for row in schedule.order for block in row]
    ends = {rank: simulation.first[rank] + len(schedule.order[rank]) - 1 for rank in nodes}
    paths = {rank: _longest_paths(simulation, simulation.first[rank]) for rank in nodes}
    reach: dict[tuple[int, int], int] = {}
    for a in nodes:
        for b in nodes:
            length = paths[a][ends[b]]
            if length is not None:
                reach[a, b] = length + spans[ends[b]]
    low, high = 0, max(reach.values(), default=0)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(reach, nodes, middle) else (middle + 1, high)
    return low


def _longest_paths(simulation: Simulation, source: int) -> list[int | None]:
    """Longest path from one node's start to every node's start; None where there is no path."""
    import networkx as nx

    far: list[int | None] = [None] * len(simulation.cause)
    far[source] = 0
    for node in nx.topological_sort(simulation.graph):
        here = far[node]
        if here is not None:
            for after, edge in simulation.graph.adj[node].items():
                there = far[after]
                if there is None or there < here + edge["lag"]:
                    far[after] = here + edge["lag"]
    return far


def _fits(reach: dict[tuple[int, int], int], nodes: list[int], span: int) -> bool:
    """Whether the ranks' starts can be chosen so that each is done within the span: no circle of positive length."""
    start = dict.fromkeys(nodes, 0)
    for _ in range(len(nodes) + 1):
        changed = False
        for (a, b), length in reach.items():
            if start[b] < start[a] + length - span:
                start[b], changed = start[a] + length - span, True
        if not changed:
            return True
    return False


def refusal(question: Question, schedule: Schedule, simulation: Simulation | None = None) -> str | None:
    """
    Why replay does not accept a schedule as an answer; None where it does.

    Parameters
    ----------
    simulation
        Of the schedule, where there is one already.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> schedule = build_family("1f1b", 2, 3)
    >>> print(refusal(Question(schedule.problem, CostModel.of(), Limits(1), horizon=12), schedule))
    rank 0, position 1: 0F1 brings the live activations to 2; the limit is 1
    """
    if schedule.problem != question.problem:
        return "a schedule of another problem"
    kinds = {block.kind for row in schedule.order for block in row}
    if unwanted := sorted(kinds - set(question.board.kinds)):
        return f"a block of kind {unwanted[0]}, which is not among {', '.join(question.board.kinds)}"
    if question.pairs != "any" and (same := _same_direction(schedule)):
        return f"{same}: a pair of one direction"
    simulation = simulation or simulate(schedule, question.costs)
    asked = rules.Question(schedule, question.costs, question.limits, simulation.timeline)
    for rule in rules.RULES.values():
        for witness in rules.broken(rule, asked):
            return str(witness)
    if simulation.circle is not None:
        return str(simulation.circle)
    found = measured(simulation, question.objective)
    if found is None or found > question.horizon:
        return f"needs {found} ticks; the horizon is {question.horizon}"
    return None


def _same_direction(schedule: Schedule) -> str | None:
    """A pair whose parts are of one direction, or of one stage where there is one direction only."""
    two = schedule.problem.directions > 1
    for row in schedule.order:
        for block in row:
            if "&" in block.kind:
                first, second = block.parts
                if (first.direction == second.direction) if two else (first.stage == second.stage):
                    return str(block)
    return None
