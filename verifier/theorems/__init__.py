"""
Facts for all sizes: what is claimed, the conditions that it comes to, how they are discharged, and the evidence.

``periodic`` and ``bubble`` are about one given schedule and every number of micro-batches; the other modules are about families
written as loop programs, for all ranks and micro-batches and whole regions of costs.
"""
