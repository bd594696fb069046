"""Positions in a log: cursors in their text form, 26 characters of Crockford base32, and slots, the positions of
entries.

A cursor is a 128-bit tuple of incarnation (u32), position (u64) and a reserved u32, shifted left by two so that 26
characters of five bits hold it: the form that the Prisma Streams server emits, so that cursors can migrate.
`position` counts the records before the cursor; reading at it returns the record with that offset first.

`slot = offset * 10^9 + n`, where n counts the control entries since the last data at that offset. Entries therefore
sort by offset, a reader can seek by offset, and a control entry takes a slot without using an offset, so that it stops
writers with an older picture. The highest values of n are reserved for delete, so that a log can always be deleted.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.errors import InvalidRequest, Overloaded

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_DECODE = {c: i for i, c in enumerate(_ALPHABET)}
_DECODE |= {c.lower(): i for c, i in _DECODE.items() if c.isalpha()}
_DECODE |= {"O": 0, "o": 0, "I": 1, "i": 1, "L": 1, "l": 1}  # Crockford's look-alikes

LENGTH = 26
START = "-1"
NOW = "now"
# The official conformance suite sends the reference server's literal for "before the first record".
REFERENCE_ZERO = "0000000000000000_0000000000000000"


class Cursor(NamedTuple):
    """A position in a stream. `incarnation` None matches any incarnation (the start of the stream)."""

    incarnation: int | None
    position: int


BEGINNING = Cursor(None, 0)


def encode(incarnation: int, position: int) -> str:
    """Encodes a cursor as text; the texts of one stream sort as its cursors do."""
    value = ((incarnation << 96) | (position << 32)) << 2
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])  # each append prints two


def decode(text: str) -> Cursor:
    """Parses a cursor that this server may have issued.

    Raises:
        InvalidRequest: the text is not 26 characters of base32, or has bits that our cursors never have.
    """
    if text in (START, REFERENCE_ZERO):
        return BEGINNING
    if len(text) != LENGTH:
        raise InvalidRequest(f"invalid offset length: expected={LENGTH} received={len(text)}")
    value = 0
    for char in text:
        digit = _DECODE.get(char)
        if digit is None:
            raise InvalidRequest("invalid offset: not base32")
        value = (value << 5) | digit
    if value & 3 or (value >> 2) & 0xFFFF_FFFF:
        raise InvalidRequest("invalid offset: not one that this server issues")
    value >>= 34
    incarnation, position = value >> 64, value & 0xFFFF_FFFF_FFFF_FFFF
    if position == 0 and incarnation == 0:
        return Cursor(0, 0)
    return Cursor(incarnation, position)


SLOT_SPAN = 10**9
_LAST_ORDINARY = SLOT_SPAN - 1000  # above: delete and what may follow it


def first_slot(offset: int) -> int:
    """Returns the lowest slot that an entry whose first record is at `offset` can have."""
    return offset * SLOT_SPAN


def offset_of_slot(slot: int) -> int:
    """Returns the offset of the first record in the entry at `slot` (or of the next record, for a control entry)."""
    return slot // SLOT_SPAN


def following_slot(slot: int, count: int, *, deleting: bool = False) -> int:
    """Returns the slot after an entry at `slot` that holds `count` records.

    Raises:
        Overloaded: a billion control entries are at one offset; only delete is possible.
    """
    if count:
        return (slot // SLOT_SPAN + count) * SLOT_SPAN
    nxt = slot + 1
    n = nxt % SLOT_SPAN
    if n == 0 or (n >= _LAST_ORDINARY and not deleting):
        raise Overloaded("too many control entries at one offset", retry_after_s=60)
    return nxt
