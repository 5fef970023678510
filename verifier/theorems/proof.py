"""What came of proving a statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verifier.model import Schedule

PROVED, REFUTED, UNKNOWN = "proved", "refuted", "unknown"


@dataclass(frozen=True)
class Proof:
    """
    A statement, and whether it is true.

    Attributes
    ----------
    theorem
        The name under which it is listed.
    statement, domain
        What is said, and of which sizes and costs.
    status
        ``proved`` only if every condition was discharged; ``refuted`` with a witness; else ``unknown`` with the reason.
    conditions, discharged
        How many conditions the statement comes to, and how many of them hold.
    witness
        Why it is false, or why it is not known, for people.
    numbers
        Quantities that go with the verdict, such as the growth per micro-batch.
    evidence
        What ``check`` needs to verify the conditions once more: plain JSON values. Empty where nothing was proved.
    points
        Where conditions that are exact fail: sizes, rank and loop indices.

    Examples
    --------
    >>> Proof("t", "1 = 1", "everywhere", PROVED, 1, 1, 0.0).as_json()["conditions"]
    1
    """

    theorem: str
    statement: str
    domain: str
    status: str
    conditions: int
    discharged: int
    seconds: float
    witness: tuple[str, ...] = ()
    numbers: Mapping[str, object] = field(default_factory=dict)
    evidence: Mapping[str, object] = field(default_factory=dict, repr=False)
    points: tuple[Mapping[str, int], ...] = ()

    def as_json(self) -> dict[str, object]:
        """The object that ``prove --json`` prints."""
        return {
            "theorem": self.theorem,
            "statement": self.statement,
            "domain": self.domain,
            "status": self.status,
            "conditions": self.discharged,
            "of": self.conditions,
            "seconds": round(self.seconds, 3),
            "witness": list(self.witness),
            **self.numbers,
        }


def written_order(schedule: Schedule) -> dict[str, object]:
    """
    An order as evidence carries it.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> written_order(build_family("gpipe", 1, 1))
    {'placement': [[0]], 'microbatches': [1], 'order': [['0F0', '0B0']]}
    """
    return {
        "placement": [list(row) for row in schedule.problem.placement],
        "microbatches": list(schedule.problem.microbatches),
        "order": [[str(block) for block in row] for row in schedule.order],
    }
