"""How schedules and verdicts are shown."""
