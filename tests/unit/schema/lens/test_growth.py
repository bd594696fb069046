"""Lenses that make much of little: measured without being written out, and refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.json import jsontext, lens
from headrace.json.lens import envelope
from headrace.json.lens.envelope import exceeds
from tests.unit.schema.lens.documents import (
    add,
    array,
    closed,
    copy,
    each,
    hoist,
    lens_of,
    open_,
    plunge,
    rename,
    wrap,
)

DOUBLING = [copy("/a", "/b"), plunge("/b", "/a", "x"), copy("/a", "/b"), plunge("/b", "/a", "y")]

TEXTS = st.recursive(
    st.text("ab", max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(TEXTS)
def test_a_value_without_numbers_is_measured_to_the_last_but_one_comma(value: Any) -> None:
    chars = len(jsontext.dumps(value))
    assert exceeds(value, chars - 1)
    containers = 1 + _containers(value)
    assert not exceeds(value, chars + containers)


def _containers(value: Any) -> int:
    if isinstance(value, (list, dict)):
        return 1 + sum(map(_containers, value.values() if isinstance(value, dict) else value))
    return 0


def test_what_is_shared_is_measured_once_and_counted_each_time() -> None:
    value: Any = "0123456789"
    for _ in range(envelope.MAX_LEVELS):
        value = [value, value]
    assert exceeds(value, 2**envelope.MAX_LEVELS)
    assert not exceeds(value, 2 ** (envelope.MAX_LEVELS + 10))


def test_what_is_nested_too_deeply_counts_as_too_long() -> None:
    value: Any = 1
    for _ in range(envelope.MAX_LEVELS + 1):
        value = [value]
    assert exceeds(value, 10**9)
    assert not exceeds(value[0], 10**9)


def test_a_record_is_not_deepened_without_end() -> None:
    lenses = [
        lens.parse({**lens_of(*[wrap("")] * 100).document, "from": n, "to": n + 1}, "s", n) for n in range(1, 99)
    ]
    assert jsontext.dumps(lens.promote(lenses[:2], 1))
    with pytest.raises(InvalidRequest, match="too deep"):
        lens.promote(lenses, 1)


def test_a_record_is_not_doubled_without_end() -> None:
    doubling = lens_of(*DOUBLING * 20)
    with pytest.raises(InvalidRequest, match="too long"):
        lens.promote([doubling], {"a": {"text": "x"}})
    assert lens.promote([lens_of(*DOUBLING)], {"a": {"text": "x"}})


def test_a_chain_of_lenses_counts_as_one() -> None:
    lenses = [lens.parse({**lens_of(*DOUBLING).document, "from": n, "to": n + 1}, "s", n) for n in range(1, 60)]
    with pytest.raises(InvalidRequest, match="too long"):
        lens.promote(lenses, {"a": {"text": "x"}})


def test_long_items_are_counted() -> None:
    longer = lens_of(each("/a", add("", "x" * 1000)))
    assert len(lens.promote([longer], {"a": [1] * 1000})["a"]) == 1000
    with pytest.raises(InvalidRequest, match="too long"):
        lens.promote([longer], {"a": [1] * (envelope.MAX_CHARS // 1000)})


def test_a_lens_that_doubles_is_not_followed_without_end() -> None:
    with pytest.raises(InvalidRequest, match=r"too long|too complex"):
        lens.prove(lens_of(*DOUBLING * 20), open_({"a": open_({})}), True)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (rename("/a", "/b"), (0, False, 1)),
        (rename("/a/b", ""), (0, False, 0)),
        (copy("/a", "/b/c"), (1, False, 2)),
        (hoist("/a", "b", "/c"), (0, False, 1)),
        (hoist("/a", "b", "/c", removeFromHost=False), (1, False, 1)),
        (plunge("/a", "/b/c", "d"), (0, False, 3)),
        (plunge("/a", "/b", "c", removeFromSource=False), (1, False, 2)),
        (add("/a", [{"b": []}, 1]), (0, False, 3)),
        (wrap("/a/b/c"), (0, False, 1)),
        (each("/a", copy("/a", "/b"), copy("/a", "/b")), (2, True, 2)),
    ],
)
def test_how_much_an_operation_can_add(op: dict[str, Any], expected: tuple[int, bool, int]) -> None:
    assert lens_of(op).growth == expected


def test_a_lens_that_copies_a_little_is_proven() -> None:
    old = closed({"l": array(closed({"id": {"type": "integer"}}))})
    new = closed({"l": array(closed({"id": {"type": "integer"}, "old": {"type": "integer"}}))})
    lens.prove(lens_of(each("/l", copy("/id", "/old"))), old, new)
