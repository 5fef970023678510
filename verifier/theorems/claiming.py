"""
What can be claimed of a loop program that nobody has a theory of: seen at a few sizes, to be proved for all.

Makespan: the lengths of critical paths under costs from all over the allowed ones, each as a formula, and where each of them is
the greatest. Peak and busy times: affine functions through what the loops do. A claim that is wrong is not proved, and one that
has another form is not found; nothing here is trusted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import gcd

from verifier.affine import Affine, Condition, Extreme, affine, least, symbols
from verifier.loops import Program, unroll
from verifier.model import ScheduleError
from verifier.theorems.classes import Analysis, Costs
from verifier.theorems.conditions import Formula
from verifier.theorems.cones import COSTS, rays_of
from verifier.theorems.discovery import Instance
from verifier.theorems.finding import NotFoundError, analysis_of
from verifier.theorems.pathfinding import AffineFit, find_path
from verifier.theorems.paths import length
from verifier.theorems.solving import possible
from verifier.theorems.theories import ANY_COSTS, Part, Region, Setting, Sizes, Theory

F, I, W, FB = COSTS  # noqa: E741
OVERLAPPING = (F >= 0, I >= 0, W >= 0, FB >= F, FB >= I + W)
"""Costs of programs with overlapped blocks."""
_WEIGHTS = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149)
"""Primes, so that few paths are equally long."""
_FAR, MOST_RAYS = 40, len(_WEIGHTS)
MOST_SYMBOLS = 4
"""Sizes that an affine function of two of them and a rank takes."""
_ONE: Costs = (1, 1, 1, 2)
_NEARLY_ONE: tuple[Costs, ...] = (_ONE, (1001, 1000, 1000, 2001), (1000, 1001, 1000, 2002), (1000, 1000, 1001, 2003))
"""Costs between which paths of equal length are told apart."""
_MOST_RANKS, _MOST_MICROBATCHES = 24, 200
"""Among which sizes are looked for that are allowed."""


def theory_of(
    program: Program,
    *,
    costs: Sequence[Condition] = (),
    makespan: Sequence[Formula] = (),
    peak: Affine | Extreme | None = None,
    folded: bool = False,
    apart: Collection[str] = ("few",),
    about: Collection[str] = ("makespan", "peak", "busy"),
) -> Theory:
    """
    A theory of a loop program, from its loops alone.

    Parameters
    ----------
    costs
        Conditions on F, I, W and FB besides those that hold anyway: not negative, and FB at least F and at least B.
    makespan, peak
        What is claimed; where nothing is, what is seen.
    folded
        Whether a half-rank h stands for two ranks.
    apart
        As of :func:`settings_of`.
    about
        What is claimed at all; of the rest nothing is looked for.

    Raises
    ------
    NotFoundError
        If no claim of the form that is looked for fits what the loops do.
    ScheduleError
        If no costs, or no sizes to look at, fulfil the conditions.

    Examples
    --------
    >>> from verifier.families import GPIPE, ZB1P, P, M
    >>> theory = theory_of(GPIPE)
    >>> theory.said["makespan"], theory.said["idle"], theory.peak
    ('(M+P-1)(F+I+W)', '(P-1)(F+I+W)', M)
    """
    settings = settings_of(program, apart)
    cone = _cone(program, costs)
    formulas, regions, probes = _makespan(program, settings, cone, tuple(makespan)) if "makespan" in about else ((), (), ())
    parts = _parts(program, settings) if "busy" in about else ()
    most = (_peak(program, settings) if peak is None else peak) if "peak" in about else affine(0)
    said = {
        "domain": domain_of(program, folded),
        "costs": _costs_in_words(program, costs),
        "makespan": _greatest(formulas) if formulas else "",
        "idle": ", ".join(
            _greatest([f + Formula(*(-count for count in part.busy.parts)) for f in formulas])
            + (f" on {part.name}" if len(parts) > 1 else "")
            for part in parts
            if formulas
        ),
        "peak": peak_in_words(program, most) if "peak" in about else "",
    }
    return Theory(program.name, program, settings, formulas, probes, cone, regions, most, parts, said, "its loops")


def peak_in_words(program: Program, most: Affine | Extreme) -> str:
    """
    Activations of a rank, for people.

    Examples
    --------
    >>> from verifier.families import GPIPE, P, r
    >>> peak_in_words(GPIPE, P - r)
    'P-r on rank r'
    """
    return f"{most} on rank {program.rank}" if program.rank in most.symbols else str(most)


def in_words(makespan: Sequence[Sequence[Affine]]) -> str:
    """
    Formulas for people: the greatest of some.

    Examples
    --------
    >>> from verifier.families import M, P
    >>> in_words([(M, M, M + P, affine(0))])
    'M(F+I) + (M+P)W'
    """
    return _greatest([Formula(*counts) for counts in makespan])


def without_costs(theory: Theory) -> Theory:
    """
    The theory about one cost under which every block takes time, with the makespan that is seen there, or one far too long.

    A timeline of it shows that no blocks wait in a circle, whatever else is claimed.

    Examples
    --------
    >>> from verifier.theorems.theories import THEORIES
    >>> grouped(without_costs(THEORIES[0]).makespan[0])
    '(M+P-1)(F+I+W)'
    """
    analysis = analysis_of(theory.program, theory.settings[0].domain)
    instances = [Instance(analysis, sizes) for sizes in theory.settings[0].spread]
    seen = (find_path(analysis, costs, instances) for costs in _NEARLY_ONE)
    path = next((path for path in seen if path is not None), None)
    sizes = sum((symbols(name)[0] for name in analysis.sizes), affine(0))
    formula = Formula(*[100 * sizes] * len(COSTS)) if path is None else length(analysis, path)
    return replace(theory, makespan=(formula,), regions=(Region("one cost", (), (_ONE,), (0,)),))


# ---------------------------------------- sizes and costs


def settings_of(program: Program, apart: Collection[str] = ("few",)) -> tuple[Setting, ...]:
    """
    Sizes to look at: small ones, and four at which every loop runs a few times.

    Parameters
    ----------
    apart
        Which sizes stand apart, since their paths may be others: ``few``, those with fewer micro-batches than ranks, and
        ``one``, those of a single rank.

    Raises
    ------
    ScheduleError
        If there are none that the program is meant for.
    """
    few = Condition(program.ranks - 1 - program.microbatches)
    sizes = sizes_of(program)
    parts: list[tuple[Condition, ...]] = [(few.negated,), (few,)] if "few" in apart else [()]
    if "one" in apart:
        parts = [*((program.ranks >= 2, *part) for part in parts), (program.ranks <= 1,)]
    parts = [part for part in parts if possible((*program.domain, *part))]
    found = [(part, [each for each in sizes if all(c.holds(each) for c in part)]) for part in parts]
    if len(found) == 1 or not all(inside for _, inside in found):
        found = [((), sizes)]
    if not sizes:
        text = f"up to {program.ranks} = {_MOST_RANKS} and {program.microbatches} = {_MOST_MICROBATCHES}"
        raise ScheduleError(f"{program.name}: no sizes to look at, {text} none fulfil where; expected some, such as M >= 2P")
    return tuple(_setting(program, part, inside) for part, inside in found)


def sizes_of(program: Program) -> list[Sizes]:
    """
    All sizes of few ranks and micro-batches that a program is meant for.

    Examples
    --------
    >>> from verifier.families import ZBV
    >>> sizes_of(ZBV)[0], len(sizes_of(ZBV))
    ({'P': 1, 'M': 1}, 4248)
    """
    ranks, microbatches = map(str, (program.ranks, program.microbatches))
    all_sizes = ({ranks: p, microbatches: n} for p in range(1, _MOST_RANKS + 1) for n in range(1, _MOST_MICROBATCHES + 1))
    return [sizes for sizes in all_sizes if all(condition.holds(sizes) for condition in program.domain)]


_SMALL = ((1, 0), (1, 1), (1, 3), (1, 8), (2, 0), (2, 1), (3, 0), (3, 2), (4, 1), (9, 5), (9, 11), (20, 8))
_SPREAD = (((5, 3), (6, 3), (5, 6), (7, 5)), ((9, 4), (9, 5), (10, 4), (11, 7)), ((1, 4), (1, 5), (1, 7), (1, 8)))
"""Ranks, and how many more micro-batches than the least; usual, with few micro-batches, and with a single rank."""


def _setting(program: Program, domain: tuple[Condition, ...], inside: Sequence[Sizes]) -> Setting:
    ranks, microbatches = map(str, (program.ranks, program.microbatches))
    least_number: dict[int, int] = {}
    for each in inside:
        least_number.setdefault(each[ranks], each[microbatches])
    more = {(each[ranks], each[microbatches] - least_number[each[ranks]]): each for each in inside}
    small = [more[pair] for pair in _SMALL if pair in more]
    if len(small) < MOST_SYMBOLS:
        # Few sizes are meant, or those of a few ranks.
        small += [each for each in _by_size(inside, ranks, microbatches) if each not in small][: len(_SMALL)]
    spread = next((found for pairs in _SPREAD if len(found := [more[p] for p in pairs if p in more]) == MOST_SYMBOLS), None)
    return Setting(domain, tuple(small), tuple(spread or _far_apart(more, ranks, microbatches)))


def _by_size(inside: Iterable[Sizes], ranks: str, microbatches: str) -> list[Sizes]:
    return sorted(inside, key=lambda each: (each[ranks] + each[microbatches], each[ranks]))


def _far_apart(more: Mapping[tuple[int, int], Sizes], ranks: str, microbatches: str) -> list[Sizes]:
    """A few sizes at which loops run a few times if they may, and that are on no line if they need not be."""
    # Where there are at least five ranks and three micro-batches more than the least, more of either says nothing new.
    pairs = sorted(more, key=lambda pair: (-min(pair[0], 5), -min(pair[1], 3), sum(pair)))
    chosen: list[Sizes] = [more[pair] for pair in pairs[:2]]
    for pair in pairs[2:]:
        (a, b), (c, d), (e, f) = ((each[ranks], each[microbatches]) for each in (*chosen[:2], more[pair]))
        if (c - a) * (f - b) != (e - a) * (d - b):
            chosen.append(more[pair])
            break
    return chosen + [more[pair] for pair in pairs if more[pair] not in chosen][: MOST_SYMBOLS - len(chosen)]


def overlaps(program: Program) -> bool:
    """Whether blocks overlap in it."""
    return any(len(item.pieces) == 2 for each in program.loops for item in each.body)


def _cone(program: Program, costs: Sequence[Condition]) -> tuple[Condition, ...]:
    """All costs that are spoken of."""
    base = OVERLAPPING if overlaps(program) else ANY_COSTS
    return tuple(dict.fromkeys((*costs, *base)))


# ---------------------------------------- makespan


def _makespan(
    program: Program, settings: Sequence[Setting], cone: tuple[Condition, ...], claimed: tuple[Formula, ...]
) -> tuple[tuple[Formula, ...], tuple[Region, ...], tuple[Costs, ...]]:
    """Formulas, where each of them is the greatest, and a cost inside each such region."""
    rays = rays_of(cone)
    if not rays or not any(map(any, rays)):
        raise ScheduleError(f"{program.name}: no costs fulfil the conditions on costs")
    usual = settings[0]
    formulas = claimed or tuple(dict.fromkeys(_lengths(analysis_of(program, usual.domain), usual, rays)))
    if not formulas:
        raise NotFoundError(
            "no critical path has one shape at the sizes that were looked at; fewer sizes may help, such as "
            'where = ["M >= 2P"], or fewer costs, such as costs = ["F = I"]'
        )
    regions = []
    for k, formula in enumerate(formulas):
        where = _beats(formula, [other for other in formulas if other != formula], usual)
        inside = rays_of((*cone, *where))
        if not inside:
            raise NotFoundError(f"{grouped(formula)} is the greatest formula under no costs")
        name = ", ".join(map(str, where)) or "all costs"
        regions.append(Region(name, (*where, *cone), inside, (k,)))
    return formulas, tuple(regions), tuple(_weighed(region.rays, ()) for region in regions)


def _lengths(analysis: Analysis, setting: Setting, rays: Sequence[Costs]) -> Iterator[Formula]:
    """Lengths of paths that are critical under costs of all directions."""
    instances = [Instance(analysis, sizes) for sizes in setting.spread]
    rays = rays[:MOST_RAYS]
    for far in ((), *((k,) for k in range(len(rays))), *combinations(range(len(rays)), 2)):
        if (path := find_path(analysis, _weighed(rays, far), instances)) is not None:
            yield length(analysis, path)


def _weighed(rays: Sequence[Costs], far: Sequence[int]) -> Costs:
    """A cost inside the cone of some rays, further out along some of them."""
    weights = [weight * (_FAR if k in far else 1) for k, weight in zip(range(len(rays)), _WEIGHTS, strict=False)]
    f, i, w, pair = (sum(n * ray[k] for n, ray in zip(weights, rays, strict=False)) for k in range(len(COSTS)))
    return f, i, w, pair


def _beats(formula: Formula, others: Sequence[Formula], setting: Setting) -> tuple[Condition, ...]:
    """Conditions on costs under which a formula is the greatest at all sizes."""
    found: dict[Condition, None] = {}
    for other in others:
        directions: set[tuple[int, ...]] = set()
        for sizes in (*setting.small, *setting.spread):
            row = [a.value(sizes) - b.value(sizes) for a, b in zip(formula.parts, other.parts, strict=True)]
            if any(row):
                directions.add(tuple(number // gcd(*row) for number in row))
        if len(directions) > 1:
            raise NotFoundError(
                f"whether {grouped(formula)} or {grouped(other)} is greater depends on sizes and costs together; "
                "fewer costs may help, such as F = I"
            )
        for direction in directions:
            found[sum((n * cost for n, cost in zip(direction, COSTS, strict=True)), affine(0)) >= 0] = None
    return tuple(found)


# ---------------------------------------- peak and busy times


def _peak(program: Program, settings: Sequence[Setting]) -> Affine | Extreme:
    """The most activations of a rank, as an affine function, or the least of one and of all forwards."""
    places = [values for sizes in _sizes(settings) for values in _ranks(program, sizes)]
    seen = [(values, most_held(program, values)) for values in places]
    all_of_them = len(program.stages) * program.microbatches
    for kept in (seen, [(v, n) for v, n in seen if n < all_of_them.value(v)]):
        found = _through(program, kept) if kept else None
        for guess in (found, least(all_of_them, found)) if found else ():
            if all(guess.value(values) == number for values, number in seen):
                return guess
    raise NotFoundError(
        "the peak of activations is no affine function of sizes and rank, nor the least of one and all forwards; "
        'fewer sizes may help, such as where = ["M >= 2P"], or a claim, such as peak_activations = "min(M, 2P-r)"'
    )


def most_held(program: Program, values: Mapping[str, int]) -> int:
    """
    The peak of one rank, in activations of its own stages.

    Examples
    --------
    >>> from verifier.families import ONE_F_ONE_B
    >>> most_held(ONE_F_ONE_B, {"P": 4, "M": 8, "r": 1})
    3
    """
    held = most = 0
    for block in unroll(program, {k: v for k, v in values.items() if k != program.rank}, values[program.rank]):
        held += sum(job.kind == "F" for job in block)
        most = max(most, held)
        held -= sum(job.kind in "BW" for job in block)
    return most


def _parts(program: Program, settings: Sequence[Setting]) -> tuple[Part, ...]:
    """How much of each cost ranks run; where they do not all run alike, the last or the first stands apart."""
    rank, last = symbols(program.rank)[0], program.ranks - 1
    groups: tuple[tuple[tuple[str, tuple[Condition, ...]], ...], ...] = (
        (("every rank", ()),),
        ((f"{program.rank} = {last}", (rank >= last,)), (f"{program.rank} <= {last - 1}", (rank < last,))),
        ((f"{program.rank} = 0", (rank <= 0,)), (f"{program.rank} >= 1", (rank >= 1,))),
    )
    seen = [(values, _runs(program, values)) for sizes in _sizes(settings) for values in _ranks(program, sizes)]
    for group in groups:
        parts = []
        for name, where in group:
            kept = [(values, counts) for values, counts in seen if all(c.holds(values) for c in where)]
            alone = " = " in name
            busy = [_through(program, [(v, counts[k]) for v, counts in kept], alone) for k in range(len(COSTS))]
            if all(count is not None for count in busy):
                parts.append(Part(name, where, Formula(*(count for count in busy if count is not None))))
        if len(parts) == len(group):
            return tuple(parts)
    raise NotFoundError("what the ranks run is no affine function of sizes and rank")


def _runs(program: Program, values: Mapping[str, int]) -> Costs:
    """How often a rank runs F, I and W outside of pairs, and pairs."""
    counts = [0, 0, 0, 0]
    for block in unroll(program, {k: v for k, v in values.items() if k != program.rank}, values[program.rank]):
        if len(block) == 2:
            counts[3] += 1
            continue
        for k, kinds in enumerate(("F", "IB", "WB")):
            counts[k] += block[0].kind in kinds
    f, i, w, pair = counts
    return f, i, w, pair


def _sizes(settings: Sequence[Setting]) -> Iterator[Sizes]:
    """All sizes to look at."""
    for setting in settings:
        yield from (*setting.spread, *setting.small)


def _ranks(program: Program, sizes: Sizes) -> Iterator[dict[str, int]]:
    """Sizes with every rank."""
    for rank in range(program.ranks.value(sizes)):
        yield {**sizes, program.rank: rank}


def _through(program: Program, seen: Sequence[tuple[Mapping[str, int], int]], alone: bool = False) -> Affine | None:
    """The affine function of sizes and rank, or for a rank alone of sizes, through what was seen."""
    names = (*(() if alone else (program.rank,)), *sorted(program.ranks.symbols | program.microbatches.symbols))
    return AffineFit(names, [values for values, _ in seen]).through([number for _, number in seen])


# ---------------------------------------- in words


def grouped(formula: Formula) -> str:
    """
    A formula with costs that count equally often in one bracket.

    Examples
    --------
    >>> from verifier.families import M, P
    >>> grouped(Formula(M + P - 1, M + P - 1, M - P + 1, affine(0)))
    '(M+P-1)(F+I) + (M-P+1)W'
    >>> grouped(Formula(P - 1, affine(1), 1 - P, affine(0)))
    '(P-1)(F-W) + I'
    """
    groups: dict[Affine, dict[str, int]] = {}
    for cost, count in zip(COSTS, formula.parts, strict=True):
        # Printed expressions begin with a minus, perhaps behind a common factor, where their negation reads better.
        awkward = str(count).lstrip("0123456789(").startswith("-")
        turned = -count in groups or (count not in groups and awkward)
        if count != affine(0):
            groups.setdefault(-count if turned else count, {})[str(cost)] = -1 if turned else 1
    return "".join(_group(count, signs) for count, signs in groups.items()).removeprefix(" + ").lstrip() or "0"


def _group(count: Affine, signs: Mapping[str, int]) -> str:
    """Costs that count equally often, up to their signs, those that are added first."""
    sign = max(signs.values())
    ordered = sorted(signs.items(), key=lambda item: -sign * item[1])
    kinds = "".join(("+" if each == sign else "-") + cost for cost, each in ordered).removeprefix("+")
    many = len(count.terms) + bool(count.constant) > 1 and not str(count).endswith(")")
    number = "" if count == affine(1) else f"({count})" if many else str(count)
    return (" + " if sign > 0 else " - ") + number + (kinds if len(signs) == 1 or not number else f"({kinds})")


def _greatest(formulas: Sequence[Formula]) -> str:
    return grouped(formulas[0]) if len(formulas) == 1 else f"max({', '.join(map(grouped, formulas))})"


def domain_of(program: Program, folded: bool) -> str:
    """
    The sizes that a program is meant for, in words.

    >>> from verifier.families import ZBV
    >>> domain_of(ZBV, False)
    'all P and M with M+1 >= 2P'
    """
    ranks, microbatches = program.ranks, program.microbatches
    more = [str(condition) for condition in program.domain if condition not in (ranks >= 1, microbatches >= 1)]
    sizes = "all even P and M, q = P/2, m = M/2, h = min(r, P-1-r)," if folded else f"all {ranks} and {microbatches}"
    return f"{sizes} with {', '.join(more)}" if more else sizes.removesuffix(",")


def _costs_in_words(program: Program, costs: Sequence[Condition]) -> str:
    base = "F, I, W >= 0" + (" and FB >= max(F, B)" if overlaps(program) else "")
    words: dict[str, None] = {}
    for condition in costs:
        same = Condition(-condition.expression) in costs
        words.setdefault(str(condition).replace(">=", "=" if same else ">="))
    # The second half of an equation says the same the other way round.
    said = [word for word in words if " = " not in word or _turned(word) not in list(words)[: list(words).index(word)]]
    return ", ".join([base, *said]) + ", alike on all stages, B = I + W, no hop time"


def _turned(equation: str) -> str:
    return " = ".join(reversed(equation.split(" = ")))
