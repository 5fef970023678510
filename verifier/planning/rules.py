"""
How many micro-batches each schedule takes, and what is to be known when it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verifier.families import build_family
from verifier.model import Schedule


@dataclass(frozen=True)
class MicrobatchRule:
    """
    The numbers of micro-batches that a schedule takes.

    Attributes
    ----------
    least, multiple
        From P: the fewest, and of what M must be a multiple.
    sizes, remark
        For people: which M, and what M does to the bubble.
    """

    least: Callable[[int], int]
    multiple: Callable[[int], int]
    sizes: str
    remark: str

    def accepts(self, ranks: int, microbatches: int) -> bool:
        """Whether a schedule of so many micro-batches exists."""
        return microbatches >= self.least(ranks) and microbatches % self.multiple(ranks) == 0

    def nearest(self, ranks: int, microbatches: int) -> int:
        """
        The fewest micro-batches that are accepted and not fewer than these.

        >>> RULES["dualpipe"].nearest(16, 24), RULES["chimera"].nearest(16, 120)
        (32, 128)
        """
        multiple = self.multiple(ranks)
        return -(-max(microbatches, self.least(ranks)) // multiple) * multiple


def _one(ranks: int) -> int:
    return 1


def _ranks(ranks: int) -> int:
    return ranks


def _twice(ranks: int) -> int:
    return 2 * ranks


_CONSTANT = "the idle time does not grow with M"
NO_PIPELINE = "none"
"""The schedule of a single stage, to compare with."""
RULES = {
    NO_PIPELINE: MicrobatchRule(_one, _one, "any M", "there is no bubble"),
    "gpipe": MicrobatchRule(_one, _one, "any M", f"{_CONSTANT}, but all M activations are held at the peak"),
    "1f1b": MicrobatchRule(_one, _one, "any M", f"{_CONSTANT}: its share of the step is (P-1)/(M+P-1)"),
    "interleaved": MicrobatchRule(
        _ranks, _ranks, "a multiple of P (Megatron's rule)", "nothing is proved of its idle time for all M"
    ),
    "zb1p": MicrobatchRule(_one, _one, "any M", f"from M = P on {_CONSTANT}"),
    "zbv": MicrobatchRule(_one, _one, "any M", f"from M = 2P-1 on the pipeline is filled and {_CONSTANT}"),
    "dualpipe": MicrobatchRule(_twice, lambda _: 2, "an even M of at least 2P", _CONSTANT),
    "dualpipev": MicrobatchRule(_twice, _one, "M of at least 2P", _CONSTANT),
    "chimera": MicrobatchRule(_ranks, _ranks, "a multiple of P", "each unit of P micro-batches brings its own bubble"),
}
"""By the name of the schedule; what is said of idle time holds without hops, which ``verifier prove`` shows."""


def build(family: str, ranks: int, microbatches: int, stages_per_rank: int = 2) -> Schedule:
    """
    The schedule of a family, as plans use it: interleaved groups micro-batches as Megatron does.

    Without a pipeline the single rank runs forwards and backwards in turn.

    >>> build("interleaved", 2, 4).name
    'interleaved P=2 V=2 M=4'
    """
    if family == NO_PIPELINE:
        family = "1f1b"
    return build_family(family, ranks, microbatches, stages_per_rank=stages_per_rank, rule="megatron")
