"""
Sweeps: many problems from one spec, in parallel, kept in one file and resumed from it.

``points`` says which problems there are, ``measure`` what one of them gives, ``work`` hands them to an executor of the standard
library's kind, ``record`` keeps the rows, ``table`` and ``chart`` show them.
"""

from verifier.sweep.measure import measured
from verifier.sweep.points import Point, read_sweep
from verifier.sweep.record import Record
from verifier.sweep.work import rows_of

__all__ = ["Point", "Record", "measured", "read_sweep", "rows_of"]
