"""Finding short schedules: strings of tokens, list scheduling, seeds, compiled local search, kernels for all sizes."""
