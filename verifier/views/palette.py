"""
The colours of all views: one pair per kind of block, and what surrounds the blocks, light and dark.

The hues follow the figures of arXiv:2412.19437 (forward orange, full backward green, weights apart). The tones were searched
for so that any two of the eight stay apart for people who see all colours and for the three kinds of colour blindness.
"""

from __future__ import annotations

from verifier.model import Problem

COLOURS = {
    "F": ("#dd9a0a", "#6f3d00"),
    "B": ("#74e39a", "#2b7d66"),
    "I": ("#7aa2ee", "#2a4a80"),
    "W": ("#f2c6ff", "#8f55c4"),
}
"""Per kind: of direction 0 or a rank's first stage, with black text; of direction 1 or its second stage, with white text."""

SIXTEEN = {
    "F": ("bright_yellow", "yellow"),
    "B": ("bright_green", "green"),
    "I": ("bright_blue", "blue"),
    "W": ("bright_magenta", "magenta"),
}
"""The same for terminals of sixteen colours, the nearest of which would be the same for several of the above."""

MEANING = {"F": "forward", "B": "full backward", "I": "backward for the input", "W": "backward for the weights"}
"""What the kinds are called in legends, in the order in which these list them."""

THEMES = {
    "light": {
        "paper": "#ffffff",
        "panel": "#f4f5f7",
        "ink": "#1b1f24",
        "muted": "#57606a",
        "line": "#c4c9cf",
        "idle": "#c9ced4",
        "frame": "#1b1f24",
        "pair": "#1b1f24",
        "critical": "#d1003f",
        "chosen": "#0b57d0",
        "good": "#0a7a33",
        "doubt": "#8a5a00",
        "memory": "#8a94a0",
    },
    "dark": {
        "paper": "#14171b",
        "panel": "#1e2329",
        "ink": "#eceff3",
        "muted": "#a3adb8",
        "line": "#3b434c",
        "idle": "#434c56",
        "frame": "#0b0d10",
        "pair": "#eceff3",
        "critical": "#ff5c8a",
        "chosen": "#7ab7ff",
        "good": "#57d98a",
        "doubt": "#f0b94a",
        "memory": "#77818d",
    },
}
"""What is not a block: the ground, text, lines, hatching of idle time, frames, critical path, what is selected, verdicts."""

RAMP = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
"""From the first stage to the last: ever lighter, so that the order is seen without colours too (the scale viridis)."""


def shades(problem: Problem) -> int:
    """
    How many colours of each pair a schedule's blocks have: two where a rank holds more than one (direction, stage).

    >>> from verifier.model import Problem
    >>> shades(Problem(((0, 1),), (4,))), shades(Problem(((0, 1, 1, 0),), (4,)))
    (1, 2)
    """
    return 2 if any(len(problem.stages_on(rank)) > 1 for rank in range(problem.ranks)) else 1


def tones(homes: tuple[tuple[int, int], ...]) -> dict[tuple[int, int], int]:
    """
    Which colour of a pair the blocks of each (direction, stage) of a rank have.

    >>> tones(((0, 1), (1, 6)))
    {(0, 1): 0, (1, 6): 1}
    """
    return {home: index % 2 for index, home in enumerate(homes)}
