"""Positions in a stream. An offset counts the records before it (docs/formats.md, section 1), so a number of records can be
counted back from the end without reading them. Offsets of other servers are opaque, and have no position here.
"""

from __future__ import annotations

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH = 26
_SHIFT = 34  # of the position, in the number that the text stands for
_MASK = 2**64 - 1


def position(offset: str) -> int | None:
    """Returns how many records are before an offset; None if it does not say."""
    number = _number(offset)
    return None if number is None else number >> _SHIFT & _MASK


def back(offset: str, count: int, earliest: str = "") -> str | None:
    """Returns the offset that is `count` records earlier, or `earliest`, or the beginning, if that is nearer; None if
    offsets do not say how many records are before them.
    """
    number = _number(offset)
    if number is None:
        return None
    floor = position(earliest) or 0
    here = number >> _SHIFT & _MASK
    number -= min(count, max(0, here - floor)) << _SHIFT
    return "".join(ALPHABET[number >> 5 * place & 31] for place in reversed(range(LENGTH)))


def _number(offset: str) -> int | None:
    if len(offset) != LENGTH or not set(offset) <= set(ALPHABET):
        return None
    number = 0
    for digit in offset:
        number = number << 5 | ALPHABET.index(digit)
    return number
