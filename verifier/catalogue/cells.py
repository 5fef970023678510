"""
The problems of the catalogue, and the names of their files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verifier.costs import CostModel
from verifier.families import placement
from verifier.model import Limits, Problem

COSTS: tuple[dict[str, int], ...] = (
    {"F": 1, "I": 1, "W": 1, "FB": 3},
    {"F": 2, "I": 2, "W": 2, "FB": 4},
    {"F": 2, "I": 2, "W": 2, "FB": 5},
    {"F": 10, "I": 12, "W": 9, "FB": 26},
    {"F": 76, "I": 116, "W": 35, "FB": 129},
    {"F": 97, "I": 112, "W": 35, "B": 114, "FB": 131},
)
"""
Equal ops without and with gain from overlap; the last two are after DeepSeek's published trace: chunks that run alone pay
exposed all-to-all; and by component, where a full backward takes less than its two halves apart.
"""

HOPPING: dict[str, int] = {"F": 10, "I": 12, "W": 9, "FB": 26, "hop": 1}
RANKS = (2, 4, 6, 8, 12, 16, 32)
MULTIPLES = (2, 4, 8)
"""Micro-batches, in ranks of the bidirectional placement."""
HOPPING_RANKS = (4, 8)
LARGE_V = ((12, MULTIPLES), (32, MULTIPLES[:1]))
"""Ranks of V placements that are half of no bidirectional one of the catalogue, and their micro-batches."""


@dataclass(frozen=True)
class Cell:
    """
    One problem with its costs and limit, and the stem of its files.

    Examples
    --------
    >>> cell = Cell("bidirectional", 4, 2, tuple(COSTS[5].items()))
    >>> cell.name, cell.problem.microbatches, cell.limits
    ('bidirectional-p04-m008-F97-I112-W35-B114-FB131-a5', (4, 4), Limits(activations=5, weights=None))
    """

    placement: str
    ranks: int
    multiple: int
    prices: tuple[tuple[str, int], ...]

    @property
    def problem(self) -> Problem:
        """With M = multiple x P, in V as many as on the stages of one direction."""
        rows = placement(self.placement, self.ranks)
        count = self.multiple * self.ranks
        return Problem(rows, (count // 2,) * 2 if len(rows) == 2 else (count,))

    @property
    def costs(self) -> CostModel:
        """The prices as a cost model."""
        return CostModel.of(**dict(self.prices))

    @property
    def limits(self) -> Limits:
        """One activation more than the stages that a micro-batch passes: what DualPipe holds."""
        return Limits(self.problem.stages + 1)

    @property
    def name(self) -> str:
        """The stem of the files."""
        costs = "-".join(f"{kind}{price}" for kind, price in self.prices)
        count = self.problem.total_microbatches
        return f"{self.placement}-p{self.ranks:02}-m{count:03}-{costs}-a{self.problem.stages + 1}"

    def times(self, multiple: int) -> Cell:
        """The same with another number of micro-batches."""
        return Cell(self.placement, self.ranks, multiple, self.prices)

    @property
    def unfolded(self) -> Cell | None:
        """The bidirectional cell of twice the ranks whose mirror-symmetric schedules are this cell's; None of any other."""
        if self.placement != "v" or 2 * self.ranks not in RANKS:
            return None
        return Cell("bidirectional", 2 * self.ranks, self.multiple, self.prices)


def cells() -> Iterator[Cell]:
    """
    Every cell, what others are made from first.

    >>> len(list(cells())), next(cells()).name
    (288, 'bidirectional-p02-m004-F1-I1-W1-FB3-a3')
    """
    for ranks in RANKS:
        for prices in (*COSTS, *([HOPPING] if ranks in HOPPING_RANKS else [])):
            for multiple in MULTIPLES:
                two = Cell("bidirectional", ranks, multiple, tuple(prices.items()))
                yield two
                yield Cell("v", ranks // 2, multiple, two.prices)
    for ranks, multiples in LARGE_V:
        for prices in COSTS:
            for multiple in multiples:
                yield Cell("v", ranks, multiple, tuple(prices.items()))
