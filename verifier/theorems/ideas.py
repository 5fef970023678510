"""
How theorems are proved, in words: per kind of statement, and what is special about a family.
"""

from __future__ import annotations

_LEGAL = """\
Loops count micro-batches up one by one, so that a rank runs each of them once if it runs as many as there
are: the trips of the loops add up to M. Every stage's neighbour is on exactly one rank and phase. Whenever
a W runs, an I waits for it, and none is left at the end."""
_NO_CIRCLE = """\
No deadlock: start times that are affine in sizes, rank and loop index respect the order on every rank and
everything that blocks read. Where they exist under one cost at which every block takes time, no blocks wait
in a circle, whatever they cost."""
_PEAK = """\
How many activations a rank holds at a forward is what the loops before it, the iterations before it and the
blocks before it took and freed: affine, in a few cases where a guard decides. No forward exceeds the bound,
and on each rank some forward reaches it."""
_MAKESPAN = """\
From below: a path of blocks each of which waits for the one before, written as a few loops; its length
holds at all sizes and for all costs. From above: what a timeline must respect is linear in start times and
costs together, so that one affine timeline for each extreme ray of a cone of costs gives one for every cost
inside, and each of them ends by the length of a path. The cones leave no cost out. Both were guessed at a
few sizes; Z3 verifies them for all whole numbers."""
_IDLE = """\
Idle is makespan less busy time, and what a rank runs is the sum of the trips of its loops."""
_INDEPENDENT = """In the difference of both every M cancels."""
_RATIO = """The ratio is idle time over makespan: F and B cancel, and M stays below the line."""
_PUBLISHED = """\
What was published is compared with what the loops do, for costs of least sum first, and with the idle time
that is proved for all sizes. Where they differ there is a counterexample to run, and the formula that is
right stands beside it, with its proof."""

BY_KIND = {
    "legal": (_LEGAL, _NO_CIRCLE),
    "peak-activations": (_PEAK, _NO_CIRCLE),
    "makespan": (_MAKESPAN,),
    "idle": (_MAKESPAN, _IDLE),
    "independence": (_MAKESPAN, _IDLE, _INDEPENDENT),
    "bubble-ratio": (_MAKESPAN, _IDLE, _RATIO),
    "published": (_PUBLISHED,),
    "bubble-constant": (
        """\
On every rank a window of the order, the kernel, runs each of the rank's jobs equally often. With k more
copies of it, block v of copy j starts at x(v) + j T: the inequalities of all k are finitely many, and
Bellman and Ford's method solves them or finds a circuit of blocks that takes longer. A path that runs k
times through one rank's kernel bounds the makespan from below. Where T is the busy time of a period on
every rank nothing grows; else the circuit says how much.""",
    ),
    "makespan-at-most": (
        """\
A longer duration never shortens the longest path, so that the greatest costs give the greatest makespan,
also where every block takes its own time. As a second way Z3 is asked whether some durations in their
ranges break that timeline.""",
    ),
    "bubble-at-most": (
        """\
Busy time is linear in the costs and the makespan is convex, so that the costs at which the bubble is at
most X form a convex set: it holds the box if it holds its corners, and all of them are run.""",
    ),
}
"""What is done, in paragraphs."""

BY_FAMILY = {
    "gpipe": """\
The path runs all forwards of rank 0, the last of them down the ranks, all backwards of the last rank, and
the last of those up again.""",
    "1f1b": """\
Where M < P the warm-up is cut short; these sizes are a part of their own. The path goes down to the last
rank, which never waits once it has begun, and up again.""",
    "zb1p": """\
Three paths, one for each cost that can be in the way: F and I where the waiting W hide less, or F, or I
alone. Each is the longest in one cone of costs.""",
    "zb2p": """\
As for zb1p. With twice the warm-up a rank waits only for what two W do not hide; the cones are 2W <= I, 2F
<= I and what lies between.""",
    "zbv": """\
The V gives every rank an early and a late stage. The path goes down the ranks once, and from there on
follows ranks that never wait.""",
    "zbv-mirrored": """\
Rank r with one direction does what rank P-1-r does with the other, so that both fold into half-rank h of a
V, and the loops are those of zbv. A synthesized schedule without gain by pairs (FB = F + B) is no shorter.""",
    "dualpipe": """\
DualPipe is its own mirror image: rank r with one direction does what rank P-1-r does with the other, and
both fold into half-rank h of a V. Four paths of 11 to 13 loops: a head (F or I, the larger decides), the
overlapped pairs of the middle rank, a tail (I or W). Where F < I, the greatest of two terms stands in the
start times from step 4 on, and cancels between them.""",
    "dualpipev": """The loops are those of DualPipe folded: half-rank h is the rank.""",
    "dualpipe-paired": """As for dualpipe; on the middle ranks what opens step 4 is an overlapped pair.""",
}
"""What is special about a family."""


def idea(kind: str, family: str = "") -> str:
    """
    How a theorem is proved, in at most ten lines or so.

    Parameters
    ----------
    kind
        A key of :data:`BY_KIND`.
    family
        A key of :data:`BY_FAMILY`; empty for theorems about a given schedule.

    Examples
    --------
    >>> print(idea("independence", "1f1b").splitlines()[-2:][0])
    Where M < P the warm-up is cut short; these sizes are a part of their own. The path goes down to the last
    """
    paragraphs = list(BY_KIND[kind])
    if family and kind not in ("legal", "peak-activations"):
        paragraphs.append(BY_FAMILY[family])
    return "\n".join(paragraphs)
