"""A path into a set of documents: what can be there, and what the set is once something else is put there.

A value that may be there or not, or whose parent can be one thing or another, is followed in each case by itself. So
what an operation moves stays together with where it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headrace.errors import InvalidRequest
from headrace.json import pointer
from headrace.json.lens.cases import ArrayCase, Case, ObjectCase, matches
from headrace.json.lens.closed import Fragment
from headrace.json.lens.shapes import MAX_CASES, Shapes
from headrace.json.pointer import Path

MAX_POSITION = 64  # of an array item that a proof looks at

EMPTY_OBJECT: Fragment = {"const": {}}

Rebuild = Callable[[Fragment | None], Fragment]


@dataclass(frozen=True)
class Place:
    """One case of what is at a path.

    Attributes:
        value: what is there; None: nothing.
        rebuild: the whole set in this case with another value there, or without (None). None where that is not
            possible: the parent is missing, or cannot have such a member.
    """

    value: Fragment | None
    rebuild: Rebuild | None


def places(shapes: Shapes, whole: Fragment, path: Path, *, create: bool = False) -> list[Place]:
    """All cases of what is at a path.

    Args:
        create: where a parent is missing, treats it as an empty object.

    Raises:
        InvalidRequest: there are too many, or a schema is too complex.
    """
    found = list(_places(shapes, whole, path, create))
    if len(found) > MAX_CASES:
        raise InvalidRequest(f"too many cases to follow: limit={MAX_CASES} actual={len(found)}")
    return found


def _places(shapes: Shapes, whole: Fragment, path: Path, create: bool) -> Iterator[Place]:
    if not path:
        yield Place(whole, _whole)
        return
    key, rest = path[0], path[1:]
    for case in shapes.cases(whole):
        for place in _members(shapes, case, key):
            if not rest:
                yield place
            elif place.rebuild is None or (place.value is None and not create):
                yield Place(None, None)
            else:
                inner = EMPTY_OBJECT if place.value is None else place.value
                for deeper in _places(shapes, inner, rest, create):
                    yield Place(deeper.value, _nested(place.rebuild, deeper.rebuild))


def _whole(value: Fragment | None) -> Fragment:
    if value is None:
        raise InvalidRequest("the whole document cannot be removed")
    return value


def _nested(outer: Rebuild, inner: Rebuild | None) -> Rebuild | None:
    return None if inner is None else lambda value: outer(inner(value))


def _members(shapes: Shapes, case: Case, key: str) -> Iterator[Place]:
    """What is under a key of a case: at most one place with it and one without."""
    if isinstance(case, ObjectCase):
        value = _member(shapes, case, key)
        if value is not None:
            yield Place(value, lambda new: _with_member(shapes, case, key, True, new).fragment)
        if key not in case.required:
            yield Place(None, lambda new: _with_member(shapes, case, key, False, new).fragment)
    elif isinstance(case, ArrayCase) and (position := pointer.index(key)) is not None:
        if position > MAX_POSITION:
            raise InvalidRequest(f"array index is too high to follow: limit={MAX_POSITION} actual={position}")
        if (case.high is None or case.high > position) and not shapes.is_empty(case.item(position)):
            there = replace(case, low=max(case.low, position + 1))
            yield Place(there.item(position), lambda new: _with_item(there, position, new).fragment)
        if case.low <= position:
            yield Place(None, None)
    else:
        yield Place(None, None)


def _member(shapes: Shapes, case: ObjectCase, name: str) -> Fragment | None:
    """What a member is if it is there; None: it never is."""
    member = case.member(name)
    may_be_named_so = case.names is True or not shapes.covers({"not": case.names}, {"const": name})
    return member if may_be_named_so and not shapes.is_empty(member) else None


def _with_member(shapes: Shapes, case: ObjectCase, name: str, was: bool, value: Fragment | None) -> ObjectCase:
    """The case with a member set or, for None, absent. `was`: in this case the member is there."""
    properties = {**case.properties, name: False if value is None else value}
    required = case.required - {name} if value is None else case.required | {name}
    grown = (value is not None) - was
    changed = replace(
        case,
        required=required,
        properties=properties,
        low=max(case.low + grown, 0),
        high=None if case.high is None else max(case.high + grown, 0),
    )
    if value is None:
        return changed
    # A member has to satisfy the patterns that its name matches, too: so these have to allow for the new value.
    patterns = {
        pattern: shapes.union([child, value]) if matches(pattern, name) and not shapes.covers(child, value) else child
        for pattern, child in case.patterns.items()
    }
    changed = replace(changed, patterns=patterns)
    if not shapes.accepts(case.names, name):
        changed = replace(changed, names=shapes.union([case.names, {"const": name}]))
    return changed


def _with_item(case: ArrayCase, position: int, value: Fragment | None) -> ArrayCase:
    """The case, which has an item there, with another one or, for None, with the later items moved up."""
    size = max(len(case.prefix), position + 1)
    items = [case.item(at) for at in range(size)]
    if value is not None:
        items[position] = value
        return replace(case, prefix=tuple(items))
    del items[position]
    high = None if case.high is None else case.high - 1
    return replace(case, prefix=tuple(items), low=case.low - 1, high=high)
