"""
PyTorch's pipelining tables: one line per rank, one cell per action, with or without communication.

Grammar and names: ``torch/distributed/pipelining/schedules.py`` of PyTorch 2.13 (``_Action.from_str``, ``_load_csv``). That
parser is not anchored, so that ``0F0x`` reads as ``0F0`` and ``2BW0`` as a B without micro-batch; this one refuses such cells.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from verifier.formats.copies import Copies
from verifier.formats.copies import copies as weight_copies
from verifier.formats.source import MAX_WORD, Source, one_line
from verifier.messages.program import Action, Mark, Program, Recv, Send
from verifier.model import MAX_OPS, Block, Op, Origin, Part, Problem, Schedule, ScheduleError, ranges

COMPUTE_ONLY = "torch-csv"
WITH_COMMUNICATION = "torch-comms-csv"
COMPUTE = ("F", "I", "W", "B")
TRANSFERS = ("SEND_F", "RECV_F", "SEND_B", "RECV_B")
"""Communication of one micro-batch."""
SHARDING = ("UNSHARD", "RESHARD", "REDUCE_GRAD")
"""Communication of a stage's weights and weight gradients."""

_CELL = re.compile(r"(\d{1,9})([A-Z]+(?:_[A-Z]+)*)(\d{0,9})", re.ASCII)
_PAIR = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")
_LEADING_ZERO = re.compile(r"(?<!\d)0\d", re.ASCII)
_KINDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "modern": {"F": ("F",), "I": ("I",), "W": ("W",), "B": ("I", "W")},
    "legacy": {"F": ("F",), "B": ("I",), "W": ("W",)},
}


class Cell(NamedTuple):
    """
    A cell as it is read: what it says, and its column, counted from 0, empty cells included.

    ``name`` is the action, for compute the kind of the block; ``microbatch`` is None for sharding, ``block`` for communication.
    """

    name: str
    direction: int
    stage: int
    microbatch: int | None
    column: int
    block: Block | None = None

    def action(self) -> Action:
        """The cell as a program carries it."""
        if self.block:
            return self.block
        if self.microbatch is None:
            return Mark(self.name, self.direction, self.stage)
        transfer = Send if self.name.startswith("SEND") else Recv
        return transfer(self.name[-1], self.direction, self.stage, self.microbatch)


Rows = list[list[Cell]]
Microbatches = tuple[tuple[int, ...], ...]


# -------------------------------------------------------------------------------------------------------------- reading


def read(text: str, *, name: str = "", microbatches: int | None = None, dialect: str = "modern", copies: int = 1) -> Source:
    r"""
    Read a table, compute-only or with communication, of one or two weight copies.

    Linear in the number of cells.

    Parameters
    ----------
    text
        The file.
    name
        For people.
    microbatches
        How many there should be, over both directions; the largest that is written + 1 unless given.
    dialect
        ``legacy`` reads B as I.
    copies
        2 reads the stages as two weight copies laid end to end, as ``export --to torch-comms-csv`` writes them: of S stages,
        stage S/2 + s is stage s of direction 1.

    Raises
    ------
    ScheduleError
        If a cell is malformed, a stage is absent, or a rank has no stage of its own.

    Examples
    --------
    >>> source = read("0F0,0F1,,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    >>> source.format, source.schedule.problem.microbatches, source.schedule.place(0, 2)
    ('torch-csv', (2,), 'rank 0, cell 3')
    """
    rows, notes = _rows(text, dialect)
    if not rows:
        raise ScheduleError("no cell in it; expected one line per rank with cells such as 0F3")
    named = _named(rows)
    found = weight_copies(Counter((microbatch, stage, rank) for rank, row in enumerate(named) for microbatch, stage in row))
    _check_ranks(found, rows)
    total = _total(named, len(found.placement[0]), microbatches)
    names: Microbatches | None = None
    counts: tuple[int, ...] = (total,)
    placement = found.placement
    if copies == 2:
        placement = _cut(found)
        rows = [[_beyond_cut(cell, len(placement[0])) for cell in row] for row in rows]
        counts = _halves(rows, microbatches)
        notes.append(f"read as two weight copies: stages {len(placement[0])} and up are direction 1, written with a prime")
    elif len(found.placement) == 2:
        names, counts = _numbering(found, rows, total)
        rows = _renumbered(rows, names, found.placement)
        notes.append(_copies_note(found, names))
    order = tuple(tuple(action.block for action in row if action.block) for row in rows)
    columns = tuple(tuple(action.column for action in row if action.block) for row in rows)
    schedule = Schedule(Problem(placement, counts), order, name, Origin(names, columns))
    communicates = any(action.name in TRANSFERS or action.name in SHARDING[:2] for row in rows for action in row)
    return Source(
        schedule,
        WITH_COMMUNICATION if communicates else COMPUTE_ONLY,
        notes=tuple(notes),
        program=_program(schedule, rows) if communicates else None,
        dialect=dialect,
        suspicion=_suspicion(rows) if dialect == "modern" else None,
    )


def _program(schedule: Schedule, rows: Rows) -> Program:
    """All cells, communication too, in list order."""
    names = schedule.origin.microbatches if schedule.origin else None
    columns = tuple(tuple(cell.column for cell in row) for row in rows)
    actions = tuple(tuple(cell.action() for cell in row) for row in rows)
    return Program(schedule.problem, actions, schedule.name, Origin(names, columns))


def _rows(text: str, dialect: str) -> tuple[Rows, list[str]]:
    """The cells of every line that has any, numbered as the file numbers micro-batches; and what deserves a note."""
    rows: Rows = []
    padded: list[str] = []
    blank = skipped = 0
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        row = _row(line, len(rows), dialect, padded)
        if row:
            rows.append(row)
            skipped, blank = skipped + blank, 0
        elif rows:
            blank += 1
    notes = []
    if padded:
        notes.append(f"leading zeros do not count: {padded[0]}" + (f" and {len(padded) - 1} more" if padded[1:] else ""))
    if skipped:
        notes.append(f"blank lines between the ranks ({skipped}) are skipped: ranks are counted over the other lines")
    return rows, notes


def _row(line: str, rank: int, dialect: str, padded: list[str]) -> list[Cell]:
    """The non-empty cells of one line; those with leading zeros are listed besides."""
    row = []
    for column, cell in enumerate(line.split(",")):
        word = cell.strip()
        if len(word) > 1 and word[0] == '"' == word[-1]:
            word = word[1:-1].strip()
        if not word:
            continue
        try:
            row.append(_action(word, column, dialect))
        except ScheduleError as error:
            raise ScheduleError(f"rank {rank}, column {column}: {error}") from None
        if _LEADING_ZERO.search(word):
            padded.append(f'rank {rank}, column {column}: "{word}"')
    return row


def _action(word: str, cell: int, dialect: str) -> Cell:
    """One cell that is not empty."""
    if len(word) > MAX_WORD:
        raise ScheduleError(f'"{one_line(word, 20)}" has {len(word)} characters; expected a cell such as 0F3')
    match = _CELL.fullmatch(word)
    if match is None or match[2] in COMPUTE:
        block = Block(_ops(match, dialect) if match else _pair(word, dialect))
        return Cell(block.kind, *block.ops[0][1:], cell, block)
    stage, name, microbatch = match.groups()
    if name in TRANSFERS:
        return Cell(name, 0, int(stage), _microbatch(match), cell)
    if name in SHARDING:
        if microbatch:
            raise ScheduleError(f'"{word}": {name} is of a stage, not of a micro-batch; expected {stage}{name}')
        return Cell(name, 0, int(stage), None, cell)
    known = ", ".join((*COMPUTE, "OVERLAP_F_B", *TRANSFERS, *SHARDING))
    raise ScheduleError(f'"{word}": unknown action {name}, perhaps of another version; known are {known}')


def _pair(word: str, dialect: str) -> tuple[Op, ...]:
    """The ops of an overlapped block."""
    pair = _PAIR.fullmatch(word)
    if pair:
        first, second = (_CELL.fullmatch(half.strip()) for half in pair.groups())
        if first and second and first[2] in COMPUTE and second[2] in COMPUTE:
            return _ops(first, dialect) + _ops(second, dialect)
    raise ScheduleError(f'"{one_line(word, 40)}" is not a cell; {_advice(word)}')


def _ops(match: re.Match[str], dialect: str) -> tuple[Op, ...]:
    """The ops of a compute action."""
    if dialect == "legacy" and match[2] == "I":
        raise ScheduleError(f"{match[0]}: the older dialect has no I; read the table without the legacy dialect")
    where = (0, int(match[1]), _microbatch(match))
    return tuple([Op(kind, *where) for kind in _KINDS[dialect][match[2]]])


def _microbatch(match: re.Match[str]) -> int:
    """The number that every action but sharding ends in."""
    if not match[3]:
        raise ScheduleError(f'"{match[0]}" lacks its micro-batch; expected one such as {match[0]}0')
    return int(match[3])


def _advice(word: str) -> str:
    """What would be right in place of a malformed cell."""
    tidy = re.sub(r"\s", "", word).upper()
    if tidy in ("NONE", "NULL", "NAN", "NA", "-"):
        return "leave an idle slot empty"
    if ";" in word or "(" in word or ")" in word:
        return "an overlapped block is written (0F7;7B3)OVERLAP_F_B, and cells are separated by commas"
    if tidy != word and _CELL.fullmatch(tidy):
        return f"did you mean {tidy}?"
    return "expected stage, action and micro-batch, such as 0F3 or 2SEND_B1"


# -------------------------------------------------------------------------------------------- ranks, copies, numbering


def _named(rows: Rows) -> list[list[tuple[int, int]]]:
    """
    Per rank, the (microbatch, stage) that its ops are about, once per op.

    Compute says where a stage lives. A table without any is judged on its messages: there the transfers say it.
    """
    named = [[(op.microbatch, op.stage) for action in row if action.block for op in action.block.ops] for row in rows]
    if any(named):
        return named
    named = [[(action.microbatch, action.stage) for action in row if action.microbatch is not None] for row in rows]
    if any(named):
        return named
    raise ScheduleError("nothing is computed and nothing is sent; expected cells such as 0F3 or 0SEND_F3")


def _check_ranks(found: Copies, rows: Rows) -> None:
    """Refuse a line that is no rank of its own, such as one that is there twice."""
    used = {rank for stages in found.placement for rank in stages}
    for rank, row in enumerate(rows):
        if rank not in used:
            first = row[0]
            home = found.placement[0][first.stage] if first.stage < len(found.placement[0]) else None
            where = f"stage {first.stage} lives on rank {home}" if home is not None else f"stage {first.stage} computes nowhere"
            raise ScheduleError(
                f"rank {rank}: no stage lives here, {where}; expected one line per rank, each with stages of its own"
            )


def _total(named: Sequence[Sequence[tuple[int, int]]], stages: int, microbatches: int | None) -> int:
    """How many micro-batches there should be; refused where they would be too many to look at."""
    total = microbatches or 1 + max(microbatch for row in named for microbatch, _ in row)
    if 3 * stages * total > MAX_OPS:
        raise ScheduleError(f"micro-batches 0 to {total - 1} on {stages} stages make more than {MAX_OPS} ops, the limit")
    return total


def _numbering(found: Copies, rows: Rows, total: int) -> tuple[Microbatches, tuple[int, ...]]:
    """
    Per direction, the file's numbers of its micro-batches in ascending order, and how many of them the problem has.

    Numbers beyond the total come last: they are out of range, and keep a name.
    """
    names: list[list[int]] = [[] for _ in found.placement]
    counts = [0] * len(names)
    for microbatch, direction in found.walk([*range(total), *sorted(_beyond(rows, total))]):
        names[direction].append(microbatch)
        counts[direction] += microbatch < total
    return tuple(map(tuple, names)), tuple(counts)


def _beyond(rows: Rows, total: int) -> set[int]:
    """The micro-batches that the table names and the problem has not."""
    return {number for row in rows for action in row for number in _microbatches(action) if number >= total}


def _microbatches(action: Cell) -> Iterator[int]:
    if action.block:
        yield from (op.microbatch for op in action.block.ops)
    elif action.microbatch is not None:
        yield action.microbatch


def _renumbered(rows: Rows, names: Microbatches, placement: tuple[tuple[int, ...], ...]) -> Rows:
    """The rows with directions, and micro-batches numbered from 0 in each."""
    number = {
        microbatch: (direction, position)
        for direction, microbatches in enumerate(names)
        for position, microbatch in enumerate(microbatches)
    }
    return [[_moved(action, rank, number, placement) for action in row] for rank, row in enumerate(rows)]


def _moved(action: Cell, rank: int, number: Mapping[int, tuple[int, int]], placement: tuple[tuple[int, ...], ...]) -> Cell:
    if action.block:
        ops = tuple(Op(op.kind, (to := number[op.microbatch])[0], op.stage, to[1]) for op in action.block.ops)
        return Cell(action.name, *ops[0][1:], action.column, Block(ops))
    if action.microbatch is None:
        # The weights that a rank gathers or reduces are those of the copy that it holds.
        holds = [stages[action.stage : action.stage + 1] == (rank,) for stages in placement]
        return action._replace(direction=1 if holds == [False, True] else 0)
    direction, position = number[action.microbatch]
    return action._replace(direction=direction, microbatch=position)


def _cut(found: Copies) -> tuple[tuple[int, ...], ...]:
    """The placement of two copies whose stages are one chain, cut in the middle."""
    chain = found.placement[0]
    if len(found.placement) == 2 or len(chain) % 2:
        raise ScheduleError(f"copies: expected an even number of stages, each on one rank; got {len(chain)}")
    half = len(chain) // 2
    return chain[:half], chain[half:]


def _beyond_cut(cell: Cell, half: int) -> Cell:
    """A cell with the stages behind the cut renamed to those of direction 1."""
    direction, stage = divmod(cell.stage, half)
    block = cell.block and Block(tuple(Op(op.kind, op.stage // half, op.stage % half, op.microbatch) for op in cell.block.ops))
    return cell._replace(direction=direction, stage=stage, block=block)


def _halves(rows: Rows, microbatches: int | None) -> tuple[int, ...]:
    """The micro-batches of either direction: the largest that is written + 1, or half of those that there should be."""
    if microbatches is not None:
        if microbatches % 2:
            raise ScheduleError(f"-M: two copies share the micro-batches evenly; expected an even number, got {microbatches}")
        return (microbatches // 2,) * 2
    largest = [-1, -1]
    for row in rows:
        for cell in row:
            for op in cell.block.ops if cell.block else ():
                largest[op.direction] = max(largest[op.direction], op.microbatch)
    return tuple(number + 1 for number in largest)


def _copies_note(found: Copies, names: Microbatches) -> str:
    first, second = found.placement
    stage = next(stage for stage in range(len(first)) if first[stage] != second[stage])
    return (
        f"stage {stage} lives on ranks {first[stage]} and {second[stage]}: read as two weight copies, "
        f"direction 1 holding micro-batches {one_line(ranges(names[1]), 60)}"
    )


def _suspicion(rows: Rows) -> str | None:
    """Why the table looks older: W beside most full backwards, and not one I."""
    full = {block.ops[0][2:] for row in rows for action in row if (block := action.block) and block.kind == "B"}
    beside: dict[tuple[int, int], str] = {}
    for rank, row in enumerate(rows):
        for action in row:
            if action.block is None or action.name in ("F", "B"):
                continue
            where = action.block.ops[0][2:]
            if action.name != "W" or where not in full:
                return None
            beside.setdefault(where, f"rank {rank}, cell {action.column}: {action.stage}W{action.microbatch}")
    if not beside or 2 * len(beside) <= len(full):
        return None
    others = f" (and {len(beside) - 1} more)" if len(beside) > 1 else ""
    return (
        f"{next(iter(beside.values()))} stands beside a full backward B of the same stage and micro-batch{others}, and no cell "
        "is an I: an older dialect writes B for I; read the table with --dialect legacy"
    )


# -------------------------------------------------------------------------------------------------------------- writing


def dump(schedule: Schedule) -> str:
    r"""
    The compute-only table of a schedule with one weight copy, as torch's own loader reads it.

    A line feed ends every line, and there is neither a byte order mark nor a blank line, which torch counts as a rank.

    Raises
    ------
    ScheduleError
        If stages have two copies, a rank has no block, or a block joins anything but an F and a B.

    Examples
    --------
    >>> order = ((Block.parse("0F0"), Block.parse("(0F1;1B0)")), (Block.parse("1F0"),))
    >>> dump(Schedule(Problem(((0, 1),), (2,)), order))
    '0F0,(0F1;1B0)OVERLAP_F_B\n1F0\n'
    """
    placement = schedule.problem.placement
    if len(placement) == 2:
        stage = next((stage for stage, ranks in enumerate(zip(*placement, strict=True)) if ranks[0] != ranks[1]), 0)
        here, there = sorted((placement[0][stage], placement[1][stage]))
        where = f"lives on ranks {here} and {there}" if here != there else f"has two copies on rank {here}"
        raise ScheduleError(
            f"torch-csv: stage {stage} {where}; the compute-only format has one rank per stage. Use torch-comms-csv or json"
        )
    return _table(schedule)


def dump_table(schedule: Schedule) -> str:
    r"""
    A table of one or two weight copies: direction 1's micro-batches continue after direction 0's.

    :func:`read` gives the same schedule back; torch's loader reads only tables with one copy.

    Raises
    ------
    ScheduleError
        As :func:`dump`, or if a table cannot tell the two directions apart.

    Examples
    --------
    >>> order = ((Block.parse("0F0"), Block.parse("1F0'")), (Block.parse("0F0'"), Block.parse("1F0")))
    >>> dump_table(Schedule(Problem(((0, 1), (1, 0)), (1, 1)), order))
    '0F0,1F1\n0F1,1F0\n'
    """
    text = _table(schedule)
    # What a table means follows from where its ops are, so the only judge of a table is reading it.
    if len(schedule.problem.placement) == 2 and not _means(text, schedule):
        raise ScheduleError("torch-csv: a table cannot tell the two directions of this schedule apart. Use json")
    return text


def _means(text: str, schedule: Schedule) -> bool:
    try:
        return read(text, microbatches=schedule.problem.total_microbatches).schedule == schedule
    except ScheduleError:
        return False


def _table(schedule: Schedule) -> str:
    """One line per rank."""
    lines = []
    for rank, blocks in enumerate(schedule.order):
        if not blocks:
            raise ScheduleError(f"torch-csv: rank {rank} has no block, and a blank line is no rank. Use json")
        lines.append(",".join(_written(block, schedule.problem, rank, position) for position, block in enumerate(blocks)))
    return "\n".join(lines) + "\n"


def _written(block: Block, problem: Problem, rank: int, position: int) -> str:
    """One cell."""
    parts = block.parts
    if len(parts) == 2 and block.kind != "F&B":
        raise ScheduleError(
            f"torch-csv: rank {rank}, position {position}: {block} is not an F with a B, the only pair there is. Use json"
        )
    words = [f"{part.stage}{part.kind}{_number(part, problem)}" for part in parts]
    return words[0] if len(words) == 1 else f"({';'.join(words)})OVERLAP_F_B"


def _number(part: Part, problem: Problem) -> int:
    """The number in the table of a micro-batch."""
    counts = problem.microbatches
    if part.direction >= len(counts) or (len(counts) == 2 and part.microbatch >= counts[part.direction]):
        raise ScheduleError(f"torch-csv: micro-batch {part.microbatch} of direction {part.direction} is out of range. Use json")
    return part.microbatch + counts[0] * part.direction
