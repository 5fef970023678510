"""
Messages: what the ranks send one another, judged under named communication models.

A schedule says in which order each rank computes; a runtime also needs sends and receives, and most transports match them by
position alone. A program (:class:`Program`) is a schedule with messages, read from a file or made by :func:`lower`.
"""

from verifier.messages.judge import judge, judge_marks, reduces
from verifier.messages.lowering import lower, lower_torch, with_marks
from verifier.messages.program import MARKS, Action, Mark, Program, Recv, Send, Transfer, parse_action
from verifier.messages.replay import MODELS, simulate_program
from verifier.messages.smt import decide

__all__ = [
    "MARKS",
    "MODELS",
    "Action",
    "Mark",
    "Program",
    "Recv",
    "Send",
    "Transfer",
    "decide",
    "judge",
    "judge_marks",
    "lower",
    "lower_torch",
    "parse_action",
    "reduces",
    "simulate_program",
    "with_marks",
]
