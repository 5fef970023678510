"""
From a cluster and a model to a pipeline plan: depth, schedule, memory, bubble, step time.

Sizes and durations are estimates, each by a formula that the report prints. Bubbles are those of the real orders under these
durations, replayed; they are no estimates of ours.
"""
