"""
How the schedules of the catalogue are found and written.

A cell starts from what is there: the same problem under other costs, fewer micro-batches with a kernel that is proved to
repeat, and for V the folded bidirectional schedule. What meets its bound so is written at once; the rest is searched for. A
file is only ever replaced by a better one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from verifier.all_microbatches.repeating import growth, longer, placed
from verifier.catalogue.cells import MULTIPLES, Cell
from verifier.catalogue.lookup import recorded, symmetric
from verifier.families import build_family
from verifier.formats import load, schedule_json, torch_csv, write_text
from verifier.formats.source import Source
from verifier.model import Schedule, ScheduleError
from verifier.search.seeds import usable
from verifier.search.strings import Board
from verifier.simulate import simulate
from verifier.solvers.questions import Question
from verifier.synthesize import Recorded, Synthesis, synthesize
from verifier.theorems.bubble import split_of
from verifier.theorems.periodic import candidates
from verifier.theorems.proof import PROVED
from verifier.verify import verify

SECONDS = {2: (60.0, 120.0), 4: (15.0, 30.0), 8: (15.0, 30.0)}
"""Per multiple of the ranks: seconds for one cell, and for a bidirectional one of more than :data:`MANY` ranks."""
MANY = 16
NO_SEARCH = 0.1
"""Seconds in which nothing is searched for: what is known is replayed, whatever that takes."""

FAMILY = {"bidirectional": "dualpipe", "v": "dualpipev"}
"""DeepSeek's own order of each placement."""

Told = Callable[[Fraction, Fraction, Fraction], None]


@dataclass(frozen=True)
class Entry:
    """A cell of which there is a file."""

    cell: Cell
    source: Source

    @property
    def certificate(self) -> dict[str, object]:
        """As :meth:`verifier.synthesize.Synthesis.as_json_certificate` writes it."""
        assert isinstance(self.source.certificate, dict), "written by this module"
        return self.source.certificate

    @property
    def is_optimal(self) -> bool:
        """Whether nothing shorter exists, in the scope of the certificate."""
        return self.certificate["status"] == "optimal"

    @property
    def makespan(self) -> Fraction:
        """By replay."""
        timeline = simulate(self.source.schedule, self.cell.costs).timeline
        assert timeline is not None, "only legal schedules are written"
        return timeline.makespan


def path(cell: Cell, folder: Path) -> Path:
    """The schedule of a cell."""
    return folder / f"{cell.name}.json"


def read(cell: Cell, folder: Path) -> Entry | None:
    """
    The entry of a cell, None where there is no file yet.

    Raises
    ------
    ScheduleError
        If the file is damaged, or about something else.
    """
    file = path(cell, folder)
    if not file.exists():
        return None
    source = load(file)
    if source.schedule.problem != cell.problem or not isinstance(source.certificate, dict):
        raise ScheduleError(f"{file}: expected {cell.name} with its certificate; remove the file to have it made again")
    return Entry(cell, source)


def seconds(cell: Cell, folder: Path) -> float:
    """How long a cell may be searched for; not at all where it is a bidirectional one, folded, which no hop tells apart."""
    if cell.unfolded and path(cell.unfolded, folder).exists() and not cell.costs.hop:
        return 0.0
    if cell.placement == "v" and not cell.unfolded:
        return SECONDS[cell.multiple][0] / 2
    return SECONDS[cell.multiple][cell.placement == "bidirectional" and cell.ranks > MANY]


def make(cell: Cell, folder: Path, budget: float, on_progress: Told = lambda best, bound, gap: None) -> Synthesis:
    """
    Search for the schedule of a cell, and write it if it is better than what is there.

    Parameters
    ----------
    budget
        Seconds of search at most; what meets its bound takes none.

    Raises
    ------
    ScheduleError
        If a file cannot be read or written.
    """
    before = read(cell, folder)
    known = recorded(before.certificate) if before else None
    if cell.unfolded and (two := read(cell.unfolded, folder)) and not cell.costs.hop:
        known = _of_mirror(two) or known
    seeds = _seeds(cell, folder)
    found = synthesize(
        cell.problem,
        cell.costs,
        cell.limits,
        budget=max(budget, NO_SEARCH),
        seeds=seeds,
        recorded=known,
        on_progress=on_progress,
    )
    if cell.multiple == MULTIPLES[0]:
        found = _repeating(found, cell, seeds)
    if found.schedule is not None and (before is None or _is_better(found, before)):
        _write(found, cell, folder)
    return found


def _of_mirror(two: Entry) -> Recorded | None:
    """
    What solvers said of a bidirectional cell, as a bound on its folded V.

    A V schedule unfolds to a mirror-symmetric schedule of the same makespan where hops take no time, so what is impossible
    among those is impossible in V.
    """
    found = recorded(two.certificate)
    return found and replace(found, scope="all")


def _is_better(found: Synthesis, before: Entry) -> bool:
    assert found.value is not None
    if found.value != before.makespan:
        return found.value < before.makespan
    if (found.status == "optimal") != before.is_optimal:
        return found.status == "optimal"
    old, new = recorded(before.certificate), recorded(found.as_json_certificate())
    if new is not None and (old is None or new.bound > old.bound):
        return True
    return (
        found.schedule is not None
        and not _repeats(before.source.schedule, before.cell)
        and _repeats(found.schedule, before.cell)
    )


def _repeats(schedule: Schedule, cell: Cell) -> bool:
    """Whether its bubble is proved to be the same for all larger numbers of micro-batches."""
    return growth(schedule, cell.costs).status == PROVED


def _repeating(found: Synthesis, cell: Cell, seeds: Iterable[Schedule]) -> Synthesis:
    """Of schedules that are as short the one whose kernel repeats, so that the longer ones follow from it."""
    if found.schedule is None or _repeats(found.schedule, cell):
        return found
    for schedule in seeds:
        simulation = simulate(schedule, cell.costs)
        is_as_short = simulation.timeline is not None and simulation.timeline.makespan == found.value
        if (
            is_as_short
            and verify(schedule, cell.costs, cell.limits, solver="replay").status == PROVED
            and _repeats(schedule, cell)
        ):
            return replace(found, schedule=schedule, simulation=simulation)
    return found


def _write(found: Synthesis, cell: Cell, folder: Path) -> None:
    """The schedule as ``synthesize -o`` writes it, and as a table where PyTorch can run it."""
    assert found.schedule is not None
    schedule = replace(found.schedule, name=cell.name)
    certificate = {key: value for key, value in found.as_json_certificate().items() if key != "recorded"}
    claims = {"makespan": found.as_json()["makespan"]}
    text = schedule_json.dump(schedule, costs=cell.costs, limits=cell.limits, claims=claims, certificate=certificate)
    if cell.placement == "v":
        write_text(path(cell, folder).with_suffix(".csv"), torch_csv.dump(schedule))
    write_text(path(cell, folder), text)


# ----------------------------------------------------------------------------------------------------- where to start from


def _seeds(cell: Cell, folder: Path) -> tuple[Schedule, ...]:
    """Legal or not: synthesis looks at each. Only mirror-symmetric ones, so that the search stays among those."""
    found = (schedule for schedule in _starts(cell, folder) if schedule.problem == cell.problem)
    return symmetric(found, cell.costs, cell.limits)


def _starts(cell: Cell, folder: Path) -> Iterator[Schedule]:
    if before := read(cell, folder):
        yield before.source.schedule
    if cell.unfolded and (two := read(cell.unfolded, folder)):
        yield from folded(two.source.schedule, cell)
    yield from own_orders(cell)
    for multiple in (cell.multiple // 2, cell.multiple // 4):
        shorter = read(cell.times(multiple), folder) if multiple >= 2 else None
        if shorter:
            yield from longer_ones(shorter.source.schedule, cell)
    longer = read(cell.times(2 * cell.multiple), folder)
    if longer:
        yield from shortened(longer.source.schedule, cell)
    for file in sorted(folder.glob(f"{cell.placement}-p{cell.ranks:02}-m{cell.problem.total_microbatches:03}-*.json")):
        if file != path(cell, folder):
            yield load(file).schedule


def own_orders(cell: Cell) -> Iterator[Schedule]:
    """DeepSeek's own order, its full backwards outside pairs whole, then split; nothing where it has none of that size."""
    try:
        schedule = build_family(FAMILY[cell.placement], cell.ranks, cell.problem.total_microbatches)
    except ScheduleError:
        return
    board = Board(cell.problem, cell.costs, cell.limits, blocks=("F", "I", "W", "F&B"))
    yield schedule
    yield board.decode(usable(board.encode(schedule), board))


def longer_ones(schedule: Schedule, cell: Cell) -> Iterator[Schedule]:
    """A shorter schedule with more periods of the kernel that is proved to repeat in it, else with one that is put in."""
    proof = growth(schedule, cell.costs)
    repeated = longer(split_of(schedule, proof), cell.problem) if proof.status == PROVED else None
    if repeated is not None:
        yield repeated
        return
    question = Question(schedule.problem, cell.costs, cell.limits, 0)
    yield from (form.schedule(cell.problem) for form in placed(schedule, question))


def shortened(schedule: Schedule, cell: Cell) -> Iterator[Schedule]:
    """
    A longer schedule without some of the periods that repeat in it; nothing where too few do.

    Examples
    --------
    >>> from verifier.families import build_family
    >>> cell = Cell("bidirectional", 4, 2, (("F", 1), ("I", 1), ("W", 1)))
    >>> next(shortened(build_family("dualpipe", 4, 16), cell)) == build_family("dualpipe", 4, 8)
    True
    """
    proof = growth(schedule, cell.costs)
    if proof.status != PROVED:
        return
    split = split_of(schedule, proof)
    extra = schedule.problem.total_microbatches - cell.problem.total_microbatches
    periods, rest = divmod(extra, split.microbatches_per_period)
    places = [stretches[0] for stretches in candidates(schedule, split.period) or ()]
    if rest or periods < 0 or any(place.choices <= periods * (place.window[1] - place.window[0]) for place in places):
        return
    strings = Board(schedule.problem, cell.costs, cell.limits).encode(schedule)
    cuts = [(start, start + periods * (end - start)) for start, end in (place.window for place in places)]
    rows = tuple((*row[:start], *row[end:]) for row, (start, end) in zip(strings, cuts, strict=True))
    yield Board(cell.problem, cell.costs, cell.limits).decode(rows)


def folded(schedule: Schedule, cell: Cell) -> Iterator[Schedule]:
    """
    The V schedule that a mirror-symmetric one folds to; nothing where it is not symmetric.

    Examples
    --------
    >>> from verifier.catalogue.cells import COSTS
    >>> from verifier.search.seeds import family_schedules
    >>> cell = Cell("v", 2, 2, tuple(COSTS[0].items()))
    >>> two = Board(cell.unfolded.problem, cell.costs, cell.limits)
    >>> {other.name: len(list(folded(other, cell))) for other in family_schedules(two.problem, two)}["zbv P=2 M=4 mirrored"]
    1
    """
    two = Board(schedule.problem, cell.costs, cell.limits, folded=True)
    one = Board(cell.problem, cell.costs, cell.limits)
    if two.chain == one.chain and two.tells(schedule):
        yield one.decode(two.encode(schedule))
