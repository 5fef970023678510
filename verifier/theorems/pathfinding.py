"""
Guesses of critical paths: taken from a few sizes, compressed to loops, and their numbers fitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from verifier.affine import Affine
from verifier.theorems.classes import Analysis, Costs
from verifier.theorems.discovery import Instance, Node
from verifier.theorems.paths import STEP, Path, Segment, Stop

LONGEST_BODY = 8
"""Blocks that a loop of a path may hold."""


def find_path(analysis: Analysis, costs: Costs, instances: Sequence[Instance]) -> Path | None:
    """
    A path that is critical under some costs, fitted to instances that are large enough to show all its loops.

    Returns
    -------
    A guess, or None where the instances differ in more than numbers.
    """
    for prefer_order in (True, False):
        pieces = [_compressed(_critical(instance, costs, prefer_order)) for instance in instances]
        shapes = {tuple((piece.shape, piece.steps) for piece in each) for each in pieces}
        if len(shapes) == 1 and (path := _fitted(analysis, instances, pieces)) is not None:
            return path
    return None


class _Piece(NamedTuple):
    """A segment at given sizes: classes, (rank, index) of the first iteration, and how both change per iteration."""

    shape: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]
    first: tuple[tuple[int, int], ...]
    trips: int


def _critical(instance: Instance, costs: Costs, prefer_order: bool) -> list[Node]:
    """A longest path, program order or reads taken first among equals; empty where the blocks hang."""
    found = instance.ends(costs, prefer_order)
    if found is None:
        return []
    ends, cause = found
    path: list[Node] = []
    last: Node | None = max(ends, key=lambda node: (ends[node], node))
    while last is not None:
        path.append(last)
        last = cause[last]
    return path[::-1]


def _compressed(nodes: list[Node]) -> list[_Piece]:
    """The path as few repeated bodies, as far as looking ahead finds them."""
    found, place = [], 0
    while place < len(nodes):
        options = [_repeated(nodes, place, size) for size in range(1, min(LONGEST_BODY, len(nodes) - place) + 1)]
        # Two bodies in a row look evenly changed by chance; three do not.
        best = max(options, key=lambda p: (len(p.shape) * p.trips if p.trips > 1 + (len(p.shape) > 1) else 0, -len(p.shape)))
        found.append(best)
        place += len(best.shape) * best.trips
    return found


def _repeated(nodes: list[Node], place: int, size: int) -> _Piece:
    """How often the next few blocks repeat with ranks and indices that change evenly."""
    body, after = nodes[place : place + size], nodes[place + size : place + 2 * size]
    steps = tuple((v[1] - u[1], v[2] - u[2]) for u, v in zip(body, after, strict=False))
    trips = 1
    while len(steps) == size:
        expected = [(c, r + trips * dr, i + trips * di) for (c, r, i), (dr, di) in zip(body, steps, strict=True)]
        if nodes[place + trips * size : place + (trips + 1) * size] != expected:
            break
        trips += 1
    shape, first = tuple(node[0] for node in body), tuple((node[1], node[2]) for node in body)
    return _Piece(shape, steps if trips > 1 else ((0, 0),) * size, first, trips)


def _fitted(analysis: Analysis, instances: Sequence[Instance], pieces: Sequence[Sequence[_Piece]]) -> Path | None:
    """The same segments with their numbers as functions of the sizes."""
    fit = AffineFit(analysis.sizes, [instance.sizes for instance in instances])
    path = []
    for same in zip(*pieces, strict=True):
        stops = []
        for k, block in enumerate(same[0].shape):
            rank, index = (fit.through([piece.first[k][axis] for piece in same]) for axis in (0, 1))
            if rank is None or index is None:
                return None
            dr, di = same[0].steps[k]
            stops.append(Stop(block, rank + dr * STEP, index + di * STEP))
        trips = fit.through([piece.trips for piece in same])
        if trips is None:
            return None
        path.append(Segment(tuple(stops), trips))
    return tuple(path)


class AffineFit:
    """Affine functions of the sizes through given values."""

    def __init__(self, symbols: Sequence[str], sizes: Sequence[Mapping[str, int]]) -> None:
        self.symbols = ("", *symbols)
        self.rows = [[1, *(each[symbol] for symbol in symbols)] for each in sizes]

    def through(self, values: Sequence[int]) -> Affine | None:
        """
        The function with whole coefficients that has these values; None where there is none.

        Where the sizes leave a choice, as with M = 2P, that is a function of few of them.
        """
        columns = range(1, len(self.symbols))
        found = (self._through(values, (0, *order)) for order in (columns, reversed(columns)))
        return next((function for function in found if function is not None), None)

    def _through(self, values: Sequence[int], columns: Sequence[int]) -> Affine | None:
        """The same, with the symbols taken in an order."""
        table = [[Fraction(n) for n in (*row, value)] for row, value in zip(self.rows, values, strict=True)]
        pivots: list[int] = []
        for column in columns:
            chosen = next((row for row in range(len(pivots), len(table)) if table[row][column]), None)
            if chosen is None:
                continue
            table[len(pivots)], table[chosen] = table[chosen], table[len(pivots)]
            pivot = table[len(pivots)]
            pivot[:] = [number / pivot[column] for number in pivot]
            for other in table:
                if other is not pivot and other[column]:
                    other[:] = [a - other[column] * b for a, b in zip(other, pivot, strict=True)]
            pivots.append(column)
        if any(row[-1] for row in table[len(pivots) :]):
            return None
        found = dict.fromkeys(self.symbols, Fraction(0)) | {
            self.symbols[column]: table[row][-1] for row, column in enumerate(pivots)
        }
        if any(number.denominator != 1 for number in found.values()):
            return None
        constant = int(found.pop(""))
        return Affine(tuple((symbol, int(number)) for symbol, number in found.items()), constant)
