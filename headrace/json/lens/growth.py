"""How much lenses can make of a record, and how much they made of one.

Operations share what they copy, so that a few of them make a value of a few kilobytes that would be written as
terabytes. Most lenses cannot: their results need no measuring.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec import UNSET

from headrace.json import pointer
from headrace.json.lens import ops

MAX_LEVELS = 500  # of nesting; half of what a writer of JSON can take

_FEW_COPIES = 3
_FEW_LEVELS = 250  # on top of `jsontext.MAX_DEPTH`
_NUMBER_CHARS = 8
_MEMBER_CHARS = 4  # quotes, colon and comma


class Growth(NamedTuple):
    """What operations can do to the size of a document at most.

    Attributes:
        copies: how many leave a value in two places: each can double the document.
        maps: one of them is `map`, which adds to each item. Others add no more than the length of the lens.
        levels: by how much they deepen it.
    """

    copies: int
    maps: bool
    levels: int


def growth_of(operations: Iterable[ops.Op]) -> Growth:
    """The growth by operations, nested ones listed too."""
    copies, maps, levels = 0, False, 0
    for op in operations:
        match op:
            case ops.Copy():
                copies, levels = copies + 1, levels + _depth_of(op.to)
            case ops.Rename():
                levels += _depth_of(op.to)
            case ops.Hoist():
                copies, levels = copies + (not op.remove_from_host), levels + _depth_of(op.to)
            case ops.Plunge():
                copies, levels = copies + (not op.remove_from_source), levels + _depth_of(op.host) + 1
            case ops.Add():
                levels += _depth_of(op.path) + (0 if op.default is UNSET else _levels(op.default))
            case ops.Wrap():
                levels += 1
            case ops.Map():
                maps = True
    return Growth(copies, maps, levels)


def can_be_large(growths: Iterable[Growth]) -> bool:
    """Whether the result of lenses with these growths, together, has to be measured."""
    copies, levels = 0, 0
    for growth in growths:
        if growth.maps:
            return True
        copies, levels = copies + growth.copies, levels + growth.levels
    return copies > _FEW_COPIES or levels > _FEW_LEVELS


def exceeds(value: Any, limit_chars: int) -> bool:
    """Whether the JSON text of a value is longer than a limit, or nested deeper than `MAX_LEVELS`.

    Roughly: a number counts as eight characters. What is shared is looked at once.
    """
    return _chars(value, {}, limit_chars, MAX_LEVELS) > limit_chars


def _chars(value: Any, known: dict[int, int], limit_chars: int, levels: int) -> int:
    if isinstance(value, str):
        return len(value) + 2
    if not isinstance(value, (dict, list)):
        return _NUMBER_CHARS
    if not levels:
        return limit_chars + 1
    chars = known.get(id(value))
    if chars is None:
        chars = 2
        if isinstance(value, dict):
            for name, member in value.items():
                chars += len(name) + _MEMBER_CHARS + _chars(member, known, limit_chars, levels - 1)
        else:
            for item in value:
                chars += 1 + _chars(item, known, limit_chars, levels - 1)
        known[id(value)] = chars
    return chars


def _depth_of(path: str) -> int:
    return len(pointer.parse(path))


def _levels(value: Any) -> int:
    """Levels of nesting of a value as `jsontext` reads it."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max((1 + _levels(child) for child in children), default=0)
