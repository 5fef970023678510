"""
Shortest schedules that were searched for once: which problems, how the files are made, and how an answer is found in them.

``python -m verifier.catalogue DIR`` makes what is missing.
"""
