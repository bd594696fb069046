"""Slot arithmetic: where entries are in a log.

`slot = offset * 10^9 + n`, where n counts the control entries since the last data at that offset. Entries therefore
sort by offset, a reader can seek by offset, and a control entry takes a slot (so it fences writers that hold an older
picture) without consuming an offset. The top of the range of n is kept for delete, so that a log can always be deleted.
"""

from __future__ import annotations

from headrace.errors import Overloaded

SPAN = 10**9
_LAST_ORDINARY = SPAN - 1000  # above: delete and what may follow it


def first_slot(offset: int) -> int:
    """Returns the lowest slot at `offset`."""
    return offset * SPAN


def offset_of(slot: int) -> int:
    """Returns the offset of the first record in the entry at `slot` (or of the next record, for a control entry)."""
    return slot // SPAN


def following(slot: int, count: int, *, deleting: bool = False) -> int:
    """Returns the slot after an entry at `slot` that holds `count` records.

    Raises:
        Overloaded: a billion control entries are at one offset; only delete is possible.
    """
    if count:
        return (slot // SPAN + count) * SPAN
    nxt = slot + 1
    n = nxt % SPAN
    if n == 0 or (n >= _LAST_ORDINARY and not deleting):
        raise Overloaded("too many control entries at one offset", retry_after_s=60)
    return nxt
