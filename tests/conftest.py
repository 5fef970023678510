"""
How many random examples a run tries.

``HYPOTHESIS_PROFILE=deep`` asks for many; in CI the examples are the same in every run, so that a failure is about the change.
"""

import os

from hypothesis import HealthCheck, settings

# Machines are shared: an example that is late is no failure.
settings.register_profile("quick", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("quick"), derandomize=True, database=None, print_blob=True)
settings.register_profile("deep", settings.get_profile("quick"), max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "quick"))
