"""
Where it is wrong: the cells around what was found, as a small table for people to look at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from verifier.formats.source import one_line
from verifier.verify import Report

ROWS, COLUMNS = 32, 24
"""The most that is shown."""

_PLACE = re.compile(
    r"\brank (\d{1,9}), column (\d{1,9})\b|\border\[(\d{1,9})\]\[(\d{1,9})\]|\brank (\d{1,9}), position (\d{1,9})\b"
)

Marks = Mapping[tuple[int, int], str]


def marks(report: Report) -> dict[tuple[int, int], str]:
    """
    What is wrong, by (rank, column of the source), or where the source is no table by (rank, position).

    Examples
    --------
    >>> from verifier.formats import read
    >>> from verifier.verify import verify
    >>> marks(verify(read(b"0F0,,0W0,0I0", "here").schedule, solver="replay"))[0, 2]
    'dependencies: ...'
    """
    found: dict[tuple[int, int], str] = {}
    written = report.as_json()["properties"]
    assert isinstance(written, dict)
    origin = report.schedule.origin
    for name, part in written.items():
        # Messages of what is no table are counted among actions, which are not shown.
        parts = part["models"].values() if "models" in part and origin else [part]
        for witness in (witness for each in parts for witness in each.get("witness", ())):
            column = witness.get("cell", witness["position"])
            if witness["rank"] is not None and column is not None:
                found.setdefault((witness["rank"], column), f"{name}: {witness['text']}")
    return found


def place(error: str) -> dict[tuple[int, int], str]:
    """
    The place that an error about a source names, where it names one.

    >>> place('pasted: rank 0, column 1: "0b0" is not a cell')
    {(0, 1): 'pasted: rank 0, column 1: "0b0" is not a cell'}
    """
    match = _PLACE.search(error)
    if match is None:
        return {}
    rank, column = (int(number) for number in match.groups() if number is not None)
    return {(rank, column): error}


def cells(text: str) -> list[list[str]]:
    r"""
    The cells of a source as its reader counts them: lines without any are no rank.

    >>> cells("0F0,,0B0\n,\n1F0,1B0")
    [['0F0', '', '0B0'], ['1F0', '1B0']]
    """
    if text.lstrip().startswith("{"):
        return list(_tokens(text))
    lines = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    rows = ([cell.strip() for cell in line.split(",")] for line in lines)
    return [row for row in rows if any(cell.strip('" ') for cell in row)]


def _tokens(text: str) -> Iterator[list[str]]:
    """The order of a JSON file, as far as it can be read."""
    try:
        written = json.loads(text)
    except (ValueError, RecursionError):
        return
    rows = written.get("order") if isinstance(written, dict) else None
    for row in rows if isinstance(rows, list) else ():
        yield [str(token) for token in row] if isinstance(row, list) else []


def table(rows: Sequence[Sequence[str]], marked: Marks) -> dict[str, object] | None:
    """
    The cells around the first mark; None where nothing is marked.

    Returns
    -------
    dict
        ``first``, the number of the first column; ``rows`` with ``rank`` and ``cells``, each a text and what is wrong with it
        or None; ``all``, whether nothing was left out.

    Examples
    --------
    >>> table([["0F0", "0b0"]], {(0, 1): "no cell"})["rows"]
    [{'rank': 0, 'cells': [('0F0', None), ('0b0', 'no cell')]}]
    """
    inside = sorted((rank, column) for rank, column in marked if rank < len(rows) and column < len(rows[rank]))
    if not inside:
        return None
    wide = max(map(len, rows))
    top, left = _start(inside[0][0], len(rows), ROWS), _start(inside[0][1], wide, COLUMNS)
    shown = [
        {
            "rank": rank,
            "cells": [
                (one_line(cell, 40), marked.get((rank, column))) for column, cell in enumerate(row[left : left + COLUMNS], left)
            ],
        }
        for rank, row in enumerate(rows[top : top + ROWS], top)
    ]
    return {"first": left, "rows": shown, "all": len(rows) <= ROWS and wide <= COLUMNS}


def _start(wanted: int, length: int, most: int) -> int:
    """Where a window over a row begins, so that what is wanted is about in its middle."""
    return max(0, min(wanted - most // 2, length - most))
