"""How many examples a property is tried with."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

PUSH, FULL = "push", "full"  # profiles of Hypothesis, chosen by `--full`
SHARE = 5  # each push tries a fifth of the examples; others each time, since Hypothesis draws them at random
FEWEST = 3


def examples(count: int, **others: Any) -> settings:
    """Returns Hypothesis settings with `count` examples in a `--full` run and a fifth of them per push.

    Args:
        count: examples in a `--full` run.
        others: further settings of Hypothesis.
    """
    is_full = settings.get_current_profile_name() == FULL
    return settings(max_examples=count if is_full else max(FEWEST, count // SHARE), **others)
