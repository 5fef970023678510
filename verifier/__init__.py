"""Verify, synthesize and prove pipeline-parallel training schedules."""

__version__ = "0.1.0"
