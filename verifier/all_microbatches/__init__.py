"""
One order for every number of micro-batches: a short schedule of which some stretch can be repeated, with the proof.
"""
