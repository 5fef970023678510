"""
Which weight copy every micro-batch of a table flows through.

A table has no word for directions: a stage that appears on two ranks for different micro-batches is a second copy.
Micro-batches with the same map from stages to ranks form one direction. A table may also be wrong, and an op on the wrong rank
must not make a direction of its own; so only maps that are whole, and that are no slip of a single micro-batch, count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from verifier.model import ScheduleError

Votes = Mapping[tuple[int, int, int], int]
"""How many ops of (microbatch, stage, rank) the table has."""
Map = tuple[int, ...]
"""``map[stage]`` is a rank."""


@dataclass(frozen=True)
class Copies:
    """
    The directions of a table.

    Attributes
    ----------
    placement
        ``placement[direction][stage]`` is a rank; direction 0 is the one of the smallest micro-batch.
    direction
        ``direction[microbatch]``, for every micro-batch that the table names.
    """

    placement: tuple[Map, ...]
    direction: Mapping[int, int]

    def walk(self, microbatches: Sequence[int] | range) -> Iterator[tuple[int, int]]:
        """
        Ascending micro-batches with their directions; one that the table does not name goes with its nearest smaller one.

        >>> list(Copies(((0, 1), (1, 0)), {0: 0, 2: 1}).walk(range(4)))
        [(0, 0), (1, 0), (2, 1), (3, 1)]
        """
        direction = 0
        for microbatch in microbatches:
            direction = self.direction.get(microbatch, direction)
            yield microbatch, direction


def copies(votes: Votes) -> Copies:
    """
    The directions that a table shows.

    Parameters
    ----------
    votes
        At least one.

    Raises
    ------
    ScheduleError
        If a stage is absent.

    Examples
    --------
    >>> copies({(0, 0, 0): 3, (0, 1, 1): 3, (1, 0, 1): 3, (1, 1, 0): 3}).placement
    ((0, 1), (1, 0))
    """
    stages = _stages(votes)
    found = _whole_maps(votes, stages) or [_majority(votes, stages)]
    if len(found) == 1:
        return Copies((found[0],), {microbatch: 0 for microbatch, _, _ in votes})
    direction = _best_agreement(votes, found)
    if direction[min(direction)] == 1:
        found.reverse()
        direction = {microbatch: 1 - chosen for microbatch, chosen in direction.items()}
    return Copies(tuple(found), direction)


def _stages(votes: Votes) -> int:
    """How many stages there are, counted from 0 without a gap."""
    seen = {stage for _, stage, _ in votes}
    for stage in range(len(seen)):
        if stage not in seen:
            raise ScheduleError(
                f"stage {stage} is absent, while stage {max(seen)} is there; expected stages from 0 without a gap"
            )
    return len(seen)


def _whole_maps(votes: Votes, stages: int) -> list[Map]:
    """One or two maps that micro-batches show whole, the most frequent first; none if every micro-batch has a fault."""
    homes: dict[int, dict[int, int]] = defaultdict(dict)
    torn = set()
    for microbatch, stage, rank in votes:
        if homes[microbatch].setdefault(stage, rank) != rank:
            torn.add(microbatch)
    whole = (home for microbatch, home in sorted(homes.items()) if len(home) == stages and microbatch not in torn)
    maps = Counter(tuple(home[stage] for stage in range(stages)) for home in whole).most_common()
    if not maps:
        return []
    first = maps[0][0]
    return [first, *[other for other, shown in maps[1:] if shown > 1 or _is_no_slip(first, other)][:1]]


def _is_no_slip(usual: Map, other: Map) -> bool:
    """Whether a map that one micro-batch alone shows differs in most stages, as a copy does and a wrong cell does not."""
    return 2 * sum(a != b for a, b in zip(usual, other, strict=True)) > len(usual)


def _majority(votes: Votes, stages: int) -> Map:
    """Every stage where most of its ops are, but no rank without a stage as long as others have several."""
    per_stage: list[Counter[int]] = [Counter() for _ in range(stages)]
    for (_, stage, rank), count in votes.items():
        per_stage[stage][rank] += count
    homes = [max(ranks, key=lambda rank: (ranks[rank], -rank)) for ranks in per_stage]
    held = Counter(homes)
    for stage, ranks in enumerate(per_stage):
        for rank in ranks:
            if not held[rank] and held[homes[stage]] > 1:
                held.subtract([homes[stage]])
                held[rank] = 1
                homes[stage] = rank
    return tuple(homes)


def _best_agreement(votes: Votes, maps: Sequence[Map]) -> dict[int, int]:
    """The direction with which most ops of each micro-batch agree; in a tie, that of the micro-batch before."""
    balance: Counter[int] = Counter()
    for (microbatch, stage, rank), count in votes.items():
        balance[microbatch] += count * ((maps[1][stage] == rank) - (maps[0][stage] == rank))
    direction = {}
    latest = 0
    for microbatch in sorted(balance):
        if balance[microbatch]:
            latest = int(balance[microbatch] > 0)
        direction[microbatch] = latest
    return direction
