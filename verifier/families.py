"""
The schedule families: what each is, what it refuses, what was published about it, and where that is true.

Most are loop programs (``loops``), so that what is proved for all sizes is what is generated here. A family refuses what its
reference implementation refuses; an order that a family would not make can still be judged on its merits by ``verify``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

from verifier import claims
from verifier.affine import Affine, Condition, greatest, least, symbols
from verifier.claims import Claim
from verifier.loops import Item, Job, Loop, Program, loop, unroll
from verifier.model import MAX_OPS, Block, Op, Problem, Schedule, ScheduleError

Placement = tuple[tuple[int, ...], ...]
Homes = Sequence[tuple[int, int]]
"""``homes[phase]`` is the (direction, stage) that a rank runs in that phase."""
_Entry = TypeVar("_Entry")

# ---------------------------------------- names

_OTHER_NAMES = {"zbh1": "zb1p", "zbh2": "zb2p", "zbvzerobubble": "zbv", "interleaved1f1b": "interleaved", "onef1b": "1f1b"}


def _named(known: dict[str, _Entry], what: str, name: str) -> _Entry:
    """The entry of a registry, or an error that suggests what was meant."""
    if name in known:
        return known[name]
    # Torch's classes and the papers write the same families in their own ways.
    plain = name[:40].lower().removeprefix("schedule").replace("-", "").replace("_", "")
    meant = _OTHER_NAMES.get(plain, plain)
    close = [f"'{match}'" for match in ([meant] if meant in known else get_close_matches(meant, known, n=2))]
    hint = f"did you mean {' or '.join(close)}?" if close else f"expected one of {', '.join(known)}"
    raise ScheduleError(f"unknown {what} {name[:40]!r}; {hint}")


# ---------------------------------------- loop programs

P, M, q, m, r, h, i = symbols("P M q m r h i")


class Layout(NamedTuple):
    """
    What a loop program speaks of where stages are placed in some way.

    Attributes
    ----------
    rank
        The symbol of the rank.
    ranks, microbatches, depth, stages
        As of :class:`loops.Program`.
    """

    rank: str
    ranks: Affine
    microbatches: Affine
    depth: Affine
    stages: tuple[Affine, ...]


LAYOUTS = {
    "sequential": Layout("r", P, M, P, (r,)),
    "interleaved": Layout("r", P, M, 2 * P, (r, P + r)),
    "v": Layout("r", P, M, 2 * P, (r, 2 * P - 1 - r)),
    "bidirectional": Layout("h", q, m, 2 * q, (h, 2 * q - 1 - h)),
}
"""
By placement; two stages per rank but for ``sequential``. Two directions are folded: half-rank h of q = P/2 is rank h, and with
the directions exchanged rank P-1-h; m = M/2.
"""


def program_on(where: str, name: str, loops: Sequence[Loop], domain: Sequence[Condition] = ()) -> Program:
    """
    A loop program for a placement.

    Parameters
    ----------
    where
        A key of :data:`LAYOUTS`.
    domain
        Sizes for which it is meant, besides one rank or more and one micro-batch or more.

    Raises
    ------
    ScheduleError
        As :class:`loops.Program`, or if the placement is unknown.

    Examples
    --------
    >>> program_on("v", "own", (loop(M, "F0"), loop(M, "F1", "B1"), loop(M, "B0")), (M >= 2,)).stages
    (r, 2P-r-1)
    """
    layout = _named(LAYOUTS, "placement", where)
    sizes = dict.fromkeys((layout.ranks >= 1, layout.microbatches >= 1, *domain))
    return Program(
        name, layout.rank, layout.ranks, layout.microbatches, layout.depth, layout.stages, tuple(sizes), tuple(loops)
    )


def _one_way(name: str, *loops: Loop) -> Program:
    """One stage on each rank, one direction."""
    return program_on("sequential", name, loops)


def _zero_bubble(name: str, pace: int) -> Program:
    """Warm up with ``pace`` forwards for every rank behind; each W lags its I by ``pace`` for every rank before."""
    ahead, lag = pace * (P - 1 - r), pace * r
    return _one_way(
        name,
        loop(least(M, ahead), "F0"),
        loop(greatest(0, least(lag, M - ahead)), "F0", "I0"),
        loop(greatest(0, M - ahead - lag), "F0", "I0", "W"),
        # Only where M is too small to fill the pipeline: no F is left and no W is due.
        loop(greatest(0, least(M, lag, ahead, ahead + lag - M)), "I0"),
        loop(greatest(0, least(M - lag, ahead)), "I0", "W"),
        loop(least(M, lag), "W"),
    )


GPIPE = _one_way("gpipe", loop(M, "F0"), loop(M, "B0"))

ONE_F_ONE_B = _one_way(
    "1f1b",
    loop(least(M, P - 1 - r), "F0"),
    loop(greatest(0, M - P + 1 + r), "F0", "B0"),
    loop(least(M, P - 1 - r), "B0"),
)

ZB1P = _zero_bubble("zb1p", 1)
ZB2P = _zero_bubble("zb2p", 2)

ZBV = Program(
    "zbv",
    rank="r",
    ranks=P,
    microbatches=M,
    depth=2 * P,
    stages=(r, 2 * P - 1 - r),
    domain=(P >= 1, M >= 2 * P - 1),
    loops=(
        loop(2 * (P - r) - 1, "F0"),
        loop(r, "F1", "F0"),
        loop(P - r, "F1", "I1", "W1"),
        loop(M - 2 * P + 1 + r, "F0", "I0", "W0", "F1", "I1", "W1"),
        loop(P - 1 - r, "I0", "W0", "F1", "I1", "W1"),
        loop(r, "I0", "I1"),
        loop(P - r, "I0", "W0"),
        loop(r, "W1"),
        loop(r, "W0"),
    ),
)

_TURN = q + i <= h + 1
"""Iteration 0 on the last half-rank, where step 4's F0 is what its F1 reads, so that it cannot overlap B1."""

DUALPIPE = Program(
    "dualpipe, folded",
    rank="h",
    ranks=q,
    microbatches=m,
    depth=2 * q,
    stages=(h, 2 * q - 1 - h),
    domain=(q >= 1, m >= 2 * q),
    loops=(
        loop(2 * (q - h - 1), "F0"),
        loop(h + 1, "F0", "F1"),
        loop(q - h - 1, "I1", "W", "F1"),
        loop(
            m - 2 * q + h + 1,
            Item.parse("F0", _TURN),
            Item.parse("B1", _TURN),
            Item.parse("F0&B1", _TURN.negated),
            "F1&B0",
        ),
        loop(q - h - 1, "B1", "F1&B0"),
        # The first h + 1 of these 2 (h + 1) backwards are full; the others leave their W for the idle time behind them.
        loop(
            h + 1,
            Item.parse("B1", 2 * i <= h),
            Item.parse("I1", 2 * i > h),
            Item.parse("B0", 2 * i + 1 <= h),
            Item.parse("I0", 2 * i + 1 > h),
        ),
        loop(q - h - 1, "W", "I0"),
        loop(h + 1, "W"),
    ),
)
"""
Half-rank h is rank h of DualPipeV with q ranks and m micro-batches, and the ranks h and P-1-h of DualPipe with P = 2 q and
M = 2 m, which mirror one another. Orders: arXiv:2412.19437, figure 5; deepseek-ai/DualPipe, dualpipe/dualpipe.py.
"""

# ---------------------------------------- placements


def _zigzag(ranks: int, stages_per_rank: int) -> Placement:
    """Down the ranks and up again."""
    down = tuple(range(ranks))
    return (tuple(chain.from_iterable(down[:: -1 if turn % 2 else 1] for turn in range(stages_per_rank))),)


PLACEMENTS: dict[str, Callable[[int, int], Placement]] = {
    "sequential": lambda ranks, _: (tuple(range(ranks)),),
    "interleaved": lambda ranks, stages_per_rank: (tuple(range(ranks)) * stages_per_rank,),
    "v": _zigzag,
    "bidirectional": lambda ranks, _: (tuple(range(ranks)), tuple(range(ranks))[::-1]),
}
"""Makers of ``placement[direction][stage]`` from ranks and stages per rank; see :func:`placement`."""


def placement(name: str, ranks: int, stages_per_rank: int = 2) -> Placement:
    """
    Where every stage lives, by the name of the pattern.

    Parameters
    ----------
    name
        ``sequential``, ``interleaved``, ``v`` or ``bidirectional``.
    ranks
        P.
    stages_per_rank
        Asked by ``interleaved`` and ``v`` only.

    Raises
    ------
    ScheduleError
        If the name is unknown, or a size is below 1 or beyond the limit.

    Examples
    --------
    >>> placement("v", 3), placement("bidirectional", 3)
    (((0, 1, 2, 2, 1, 0),), ((0, 1, 2), (2, 1, 0)))
    """
    make = _named(PLACEMENTS, "placement", name)
    _check_sizes(f"placement {name}", ranks, 1, stages_per_rank)
    return make(ranks, stages_per_rank)


# ---------------------------------------- building


def _check_sizes(name: str, ranks: int, microbatches: int, stages_per_rank: int = 1) -> None:
    """Refuse sizes below 1, and those beyond the limit before anything of that size is made."""
    for word, count in (("ranks", ranks), ("micro-batches", microbatches), ("stages per rank", stages_per_rank)):
        if count < 1:
            raise ScheduleError(f"{name}: {count} {word}; expected at least 1")
    if 3 * ranks * stages_per_rank * microbatches > MAX_OPS:
        raise ScheduleError(
            f"{name}: {ranks * stages_per_rank} stages and {microbatches} micro-batches make more than {MAX_OPS} ops, the limit"
        )


_OPS = {"F": ("F",), "I": ("I",), "W": ("W",), "B": ("I", "W")}


def _blocks(jobs: Iterable[tuple[Job, ...]], homes: Homes, microbatches: int) -> tuple[Block, ...]:
    """One rank's blocks; micro-batches beyond those asked for were planned only to fill the pipeline, and are left out."""
    return tuple(
        Block(tuple([Op(kind, *homes[job.phase], job.microbatch) for job in block for kind in _OPS[job.kind]]))
        for block in jobs
        if block[0].microbatch < microbatches
    )


def _schedule(name: str, where: Placement, microbatches: int, order: Iterable[tuple[Block, ...]], note: str = "") -> Schedule:
    """The micro-batches shared out evenly over the directions, and a name for people."""
    problem = Problem(where, (microbatches // len(where),) * len(where))
    return Schedule(problem, tuple(order), f"{name} P={problem.ranks}{note} M={microbatches}")


def build_program(program: Program, where: str, ranks: int, microbatches: int, name: str = "") -> Schedule:
    """
    What a loop program comes to at given sizes.

    Parameters
    ----------
    program
        Its stages as ``LAYOUTS[where]`` has them.
    where
        A key of :data:`LAYOUTS`.
    ranks, microbatches
        P, and M over all directions.
    name
        For people; default the program's own.

    Raises
    ------
    ScheduleError
        If the program is not meant for these sizes, or two directions get odd ones.

    Examples
    --------
    >>> build_program(GPIPE, "sequential", 2, 3) == build_family("gpipe", 2, 3)
    True
    """
    name = name or program.name
    stages_per_rank = 1 if where in ("sequential", "bidirectional") else 2
    _check_sizes(name, ranks, microbatches, stages_per_rank)
    if where == "bidirectional":
        order = _unfolded(program, name, ranks, microbatches)
    else:
        sizes = _sizes(program, ranks, microbatches)
        homes = [[(0, stage.value({**sizes, program.rank: rank})) for stage in program.stages] for rank in range(ranks)]
        order = [_blocks(unroll(program, sizes, rank), homes[rank], microbatches) for rank in range(ranks)]
    return _schedule(name, placement(where, ranks, stages_per_rank), microbatches, order)


def _sizes(program: Program, ranks: int, microbatches: int) -> dict[str, int]:
    """The symbols of a program, each with its number."""
    return {str(program.ranks): ranks, str(program.microbatches): microbatches}


def _unfolded(program: Program, name: str, ranks: int, microbatches: int) -> list[tuple[Block, ...]]:
    """Both ranks of every half-rank, the far one with the directions exchanged."""
    _check_even(name, ranks)
    if microbatches % 2:
        raise ScheduleError(f"{name}: M = {microbatches} micro-batches; the two directions need an even M")
    half = ranks // 2
    folded = [unroll(program, _sizes(program, half, microbatches // 2), rank) for rank in range(half)]
    ends = [(rank, ranks - 1 - rank) for rank in range(half)]
    near = [_blocks(folded[near], [(0, near), (1, far)], microbatches) for near, far in ends]
    far = [_blocks(folded[near], [(1, near), (0, far)], microbatches) for near, far in reversed(ends)]
    return near + far


def _zbv(ranks: int, microbatches: int) -> Schedule:
    """Planned for as many micro-batches as fill the pipeline."""
    _check_sizes("zbv", ranks, microbatches, 2)
    planned = max(microbatches, 2 * ranks - 1)
    _check_sizes("zbv, which plans for at least 2P-1 micro-batches", ranks, planned, 2)
    order = (
        _blocks(unroll(ZBV, {"P": ranks, "M": planned}, rank), [(0, rank), (0, 2 * ranks - 1 - rank)], microbatches)
        for rank in range(ranks)
    )
    return _schedule("zbv", placement("v", ranks), microbatches, order)


def _dualpipev(ranks: int, microbatches: int) -> Schedule:
    _check_sizes("dualpipev", ranks, microbatches, 2)
    if microbatches < 2 * ranks:
        raise ScheduleError(f"dualpipev: M = {microbatches} micro-batches; expected at least 2 P = {2 * ranks}")
    return build_program(DUALPIPE, "v", ranks, microbatches, "dualpipev")


def _dualpipe(ranks: int, microbatches: int) -> Schedule:
    _check_sizes("dualpipe", ranks, microbatches)
    _check_even("dualpipe", ranks)
    if microbatches % 2 or microbatches < 2 * ranks:
        raise ScheduleError(
            f"dualpipe: M = {microbatches} micro-batches; expected an even number of at least 2 P = {2 * ranks}"
        )
    return build_program(DUALPIPE, "bidirectional", ranks, microbatches, "dualpipe")


def _check_even(name: str, ranks: int) -> None:
    if ranks % 2:
        raise ScheduleError(f"{name}: P = {ranks} ranks; the two directions need an even P, such as {ranks + 1}")


def _chimera(ranks: int, microbatches: int) -> Schedule:
    """Units of P micro-batches, half of them in each direction, one behind the other."""
    _check_sizes("chimera", ranks, microbatches)
    _check_even("chimera", ranks)
    _check_multiple("chimera", ranks, microbatches)
    half, units = ranks // 2, microbatches // ranks
    order = []
    for rank in range(ranks):
        homes = [(0, rank), (1, ranks - 1 - rank)]
        slots = {}
        for direction, stage in homes:
            for microbatch in range(half):
                slots[stage + 2 * microbatch] = Job("F", direction, microbatch)
                slots[2 * ranks - 1 - stage + 2 * microbatch] = Job("B", direction, microbatch)
        unit = [slots[slot] for slot in sorted(slots)]
        jobs = ((job._replace(microbatch=job.microbatch + half * k),) for k in range(units) for job in unit)
        order.append(_blocks(jobs, homes, microbatches))
    return _schedule("chimera", placement("bidirectional", ranks, 1), microbatches, order)


def _check_multiple(name: str, ranks: int, microbatches: int) -> None:
    if microbatches % ranks:
        below = microbatches // ranks * ranks
        nearest = f"{below} or {below + ranks}" if below else str(ranks)
        raise ScheduleError(f"{name}: M = {microbatches} micro-batches; expected a multiple of P = {ranks}, such as {nearest}")


def _interleaved(ranks: int, microbatches: int, stages_per_rank: int = 2, rule: str = "pytorch") -> Schedule:
    """Micro-batches pass in groups; each group visits a rank's stages one after the other."""
    _check_sizes("interleaved", ranks, microbatches, stages_per_rank)
    group = _named(_GROUPS, "rule", rule)(ranks, microbatches)
    last, total = stages_per_rank - 1, microbatches * stages_per_rank

    def turn(k: int) -> tuple[int, int]:
        """The rank's k-th forward: which of its stages, and which micro-batch."""
        return k // group % stages_per_rank, k // (group * stages_per_rank) * group + k % group

    forwards = [(Job("F", *turn(k)),) for k in range(total)]
    backwards = [(Job("B", last - local, microbatch),) for local, microbatch in map(turn, range(total))]
    order = []
    for rank in range(ranks):
        warmup = min(total, last * group + 2 * (ranks - 1 - rank))
        pairs = zip(forwards[warmup:], backwards, strict=False)
        jobs = [*forwards[:warmup], *chain.from_iterable(pairs), *backwards[total - warmup :]]
        homes = [(0, local * ranks + rank) for local in range(stages_per_rank)]
        order.append(_blocks(jobs, homes, microbatches))
    where = placement("interleaved", ranks, stages_per_rank)
    return _schedule("interleaved", where, microbatches, order, note=f" V={stages_per_rank}")


def _pytorch_group(ranks: int, microbatches: int) -> int:
    """Micro-batches of a group: as many rounds as P fits into M, all equal."""
    rounds = max(1, microbatches // ranks)
    if microbatches % rounds:
        raise ScheduleError(
            f"interleaved: M = {microbatches} micro-batches; expected a multiple of max(1, M // P) = {rounds}, "
            f"such as {rounds * ranks} or {(rounds + 1) * ranks}"
        )
    return microbatches // rounds


def _megatron_group(ranks: int, microbatches: int) -> int:
    _check_multiple("interleaved, rule megatron", ranks, microbatches)
    return ranks


_GROUPS: dict[str, Callable[[int, int], int]] = {"pytorch": _pytorch_group, "megatron": _megatron_group}

# ---------------------------------------- the families


@dataclass(frozen=True)
class Family:
    """
    A way to make a schedule for given sizes.

    Parameters
    ----------
    name, description
        What people call it; what it is, in one line.
    conditions
        The sizes that it accepts, for people.
    placement
        The name of its placement.
    build
        From ranks and micro-batches, and the ``options`` that it names, to a schedule.
    claims
        What was published about it.
    program
        The loops that ``build`` unrolls, where it is a loop program.
    options
        Keywords that ``build`` understands besides.

    Examples
    --------
    >>> FAMILIES["1f1b"].build(2, 3).order[1][0].kind
    'F'
    >>> print(FAMILIES["1f1b"].program)
    1f1b: rank r of P runs, of P stages, r in phase 0
    M micro-batches in each phase
    where P >= 1, M >= 1
    step  count            blocks per iteration
    1     min(M, P-r-1)    F0
    2     max(0, M-P+r+1)  F0, B0
    3     min(M, P-r-1)    B0
    """

    name: str
    description: str
    conditions: str
    placement: str
    build: Callable[..., Schedule]
    claims: tuple[Claim, ...]
    program: Program | None = None
    options: tuple[str, ...] = ()


def _straight_family(program: Program, description: str, published: tuple[Claim, ...]) -> Family:
    build = partial(build_program, program, "sequential")
    return Family(program.name, description, "any P and M", "sequential", build, published, program)


_ALL = (
    _straight_family(GPIPE, "all forwards, then all backwards", claims.GPIPE),
    _straight_family(ONE_F_ONE_B, "warm up, then one forward and one backward in turn", claims.ONE_F_ONE_B),
    Family(
        "interleaved",
        "1F1B over V stages per rank, dealt out to the ranks in turn",
        "max(1, M // P) divides M; with rule megatron P divides M",
        "interleaved",
        _interleaved,
        claims.INTERLEAVED,
        options=("stages_per_rank", "rule"),
    ),
    _straight_family(ZB1P, "ZB-H1: 1F1B with split backwards whose W wait until the rank would idle", claims.ZB1P),
    _straight_family(ZB2P, "ZB-H2: ZB-H1 with twice the warm-up, so that no rank idles inside its span", claims.ZB2P),
    Family(
        "zbv",
        "split backwards, two stages per rank in a V, no rank idles inside its span",
        "any P and M",
        "v",
        _zbv,
        claims.ZBV,
        ZBV,
    ),
    Family(
        "chimera",
        "two weight copies, micro-batches from both ends in units of P",
        "P even, P divides M",
        "bidirectional",
        _chimera,
        claims.CHIMERA,
    ),
    Family(
        "dualpipe",
        "two weight copies, micro-batches from both ends, forwards overlap backwards of the other direction",
        "P even, M even, M >= 2P",
        "bidirectional",
        _dualpipe,
        claims.DUALPIPE,
        DUALPIPE,
    ),
    Family(
        "dualpipev",
        "one half of DualPipe: one weight copy, two stages per rank in a V",
        "M >= 2P",
        "v",
        _dualpipev,
        claims.DUALPIPEV,
        DUALPIPE,
    ),
)
FAMILIES: dict[str, Family] = {family.name: family for family in _ALL}
"""Every family by name."""


def build_family(name: str, ranks: int, microbatches: int, *, stages_per_rank: int = 2, rule: str = "pytorch") -> Schedule:
    """
    A family's schedule for given sizes.

    Parameters
    ----------
    name
        A key of :data:`FAMILIES`.
    ranks, microbatches
        P, and M over all directions.
    stages_per_rank, rule
        Asked by ``interleaved`` only: V, and how micro-batches are grouped, ``pytorch`` or ``megatron``.

    Raises
    ------
    ScheduleError
        If the name is unknown, or the family does not exist for these sizes.

    Notes
    -----
    Time and memory grow linearly with the number of ops, which ``model.MAX_OPS`` bounds.

    Examples
    --------
    >>> schedule = build_family("dualpipe", 4, 8)
    >>> schedule.name, *map(str, schedule.order[0][6:9])
    ('dualpipe P=4 M=8', "3F1'", "(0F3;3B1')", "(3F2';0B0)")
    >>> build_family("dualpip", 4, 8)
    Traceback (most recent call last):
    verifier.model.ScheduleError: unknown family 'dualpip'; did you mean 'dualpipe' or 'dualpipev'?
    """
    family = _named(FAMILIES, "family", name)
    given = {"stages_per_rank": stages_per_rank, "rule": rule}
    return family.build(ranks, microbatches, **{option: given[option] for option in family.options})
