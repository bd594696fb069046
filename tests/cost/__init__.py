"""What operations cost in calls and units, measured; `python -m tests.cost` writes what `headrace cost` estimates with."""
