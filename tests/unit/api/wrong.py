"""Values that a member of a JSON body can't have, by its kind, and bodies that are no JSON object."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck
from hypothesis import strategies as st

SHARED = [HealthCheck.function_scoped_fixture]
texts = st.text(st.characters(codec="utf-8"), max_size=20)
negative = st.integers(-(2**70), -1)
fractions = st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: number != int(number))
huge = st.integers(2**64, 2**80)
switches = st.booleans()
objects = st.dictionaries(texts, texts | st.integers(), min_size=1, max_size=2)
lists = st.lists(st.integers() | texts, min_size=1, max_size=3)
values = st.recursive(st.none() | switches | st.integers() | texts, st.lists, max_leaves=5)
WRONG: dict[str, st.SearchStrategy[Any]] = {
    "number": negative | fractions | huge | texts | switches | lists | objects,
    "clamped": negative | fractions | texts | switches | lists | objects,
    "switch": st.integers() | texts | lists | objects,
    "text": st.integers() | fractions | switches | objects,
    "list": st.integers() | texts | switches | objects,
    "object": st.integers() | fractions | switches | st.just([]),
}


def words(*known: str) -> st.SearchStrategy[Any]:
    """Returns what a member can't have that is one of the `known` words."""
    return texts.filter(lambda text: text not in known) | st.integers() | switches | lists | objects


def is_object(body: bytes) -> bool:
    """Returns whether a body is strict JSON, and an object."""
    try:
        return isinstance(json.loads(body.decode(), parse_constant=lambda name: 1 / 0), dict)
    except (ValueError, ZeroDivisionError, RecursionError):
        return False
