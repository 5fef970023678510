"""
Solvers: the same questions put to programs that know nothing of pipelines.

``smt`` asks Z3 about all timelines of a given order, as a second way beside replay.
"""

MAX_OPS = 960
"""Ops of the largest order about which Z3 is asked unbidden: up to there it answers everything in about 2 s."""
