"""Slots: order, successors, and the end of the range."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Overloaded
from headrace.wal.state import SLOT_SPAN, first_slot, following_slot, offset_of_slot

OFFSETS = st.integers(0, 2**64)


@given(OFFSETS, st.integers(1, 100_000))
def test_data_moves_to_the_first_slot_of_the_next_offset(offset: int, count: int) -> None:
    for slot in (first_slot(offset), first_slot(offset) + 7):
        assert following_slot(slot, count) == first_slot(offset + count)
        assert offset_of_slot(following_slot(slot, count)) == offset + count


@given(OFFSETS, st.integers(0, 10**8))
def test_a_control_entry_takes_a_slot_and_no_offset(offset: int, n: int) -> None:
    slot = first_slot(offset) + n
    assert following_slot(slot, 0) == slot + 1
    assert offset_of_slot(slot + 1) == offset


def test_the_top_of_the_range_is_kept_for_delete() -> None:
    last = first_slot(3) + SLOT_SPAN - 1001
    with pytest.raises(Overloaded):
        following_slot(last, 0)
    assert following_slot(last, 0, deleting=True) == last + 1
    assert following_slot(last, 1) == first_slot(4)


def test_no_entry_ever_reaches_the_next_offset_without_data() -> None:
    with pytest.raises(Overloaded):
        following_slot(first_slot(4) - 1, 0, deleting=True)
