"""Arbitrary JSON, as a request may bring it once it is parsed: no halves of surrogate pairs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TEXTS = st.text(max_size=6) | st.sampled_from(["a", "1", " x ", "0.5", "1e400", "-7"])
NUMBERS = (
    st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([2**53 + 1, 1e308, -0.0, 5e-324])
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)


def objects(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    """Objects that have some of the fields `names`, and others, with any values."""
    return st.dictionaries(st.sampled_from(names) | TEXTS, VALUES, max_size=8)
