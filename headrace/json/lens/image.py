"""Runs a lens on a set of documents: computes a description of all possible results from a description of all inputs.

Each operation here is the counterpart of one in `apply`, and refuses a set if some document in it might make that one
fail.

A path into a set of documents has several cases if a value may be present or absent, or if its parent can be of several
kinds. Each case is followed separately, so that a moved value stays together with the case it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.json.jsontext import Path, parse_pointer
from headrace.json.lens import envelope, ops
from headrace.json.lens.closed import Fragment
from headrace.json.lens.convert import convert_set
from headrace.json.lens.shapes import MAX_CASES, ArrayCase, Case, ObjectCase, Shapes, matches

MAX_POSITION = 64  # highest index of an array item that a proof follows

EMPTY_OBJECT: Fragment = {"const": {}}

Rebuild = Callable[[Fragment | None], Fragment]


@dataclass(frozen=True)
class Place:
    """One case of what can be at a path in a set of documents.

    Attributes:
        value: a description of the value; None if it is absent.
        rebuild: returns the whole set, in this case, with another value at the path, or without it (None). None if that
            is impossible because the parent is missing or can't have such a member.
    """

    value: Fragment | None
    rebuild: Rebuild | None


def places(shapes: Shapes, whole: Fragment, path: Path, *, create: bool = False) -> list[Place]:
    """Returns all cases of what can be at a path.

    Args:
        create: whether to treat a missing parent as an empty object.

    Raises:
        InvalidRequest: there are too many cases, or a schema is too complex.
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
                    yield Place(deeper.value, _compose(place.rebuild, deeper.rebuild))


def _whole(value: Fragment | None) -> Fragment:
    if value is None:
        raise InvalidRequest("the whole document cannot be removed")
    return value


def _compose(outer: Rebuild, inner: Rebuild | None) -> Rebuild | None:
    return None if inner is None else lambda value: outer(inner(value))


def _members(shapes: Shapes, case: Case, key: str) -> Iterator[Place]:
    """Yields what can be under a key in one case: at most one place where it is present, and one where it is absent. Raises
    InvalidRequest if the index of an array item is too high to follow.
    """
    if isinstance(case, ObjectCase):
        value = _member(shapes, case, key)
        if value is not None:
            yield Place(value, lambda new: _with_member(shapes, case, key, True, new).fragment)
        if key not in case.required:
            yield Place(None, lambda new: _with_member(shapes, case, key, False, new).fragment)
    elif isinstance(case, ArrayCase) and (position := jsontext.index_of(key)) is not None:
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
    """Returns a description of a member's value; None if the member is never present."""
    member = case.member(name)
    may_be_named_so = case.names is True or not shapes.covers({"not": case.names}, {"const": name})
    return member if may_be_named_so and not shapes.is_empty(member) else None


def _with_member(shapes: Shapes, case: ObjectCase, name: str, was: bool, value: Fragment | None) -> ObjectCase:
    """Returns the case with the member set to a value, or removed if `value` is None. `was` says whether the member is
    present in this case.
    """
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
    """Returns the case with the item at `position` replaced; if `value` is None, with the item removed and later items
    moved up. The case must have the item.
    """
    size = max(len(case.prefix), position + 1)
    items = [case.item(at) for at in range(size)]
    if value is not None:
        items[position] = value
        return replace(case, prefix=tuple(items))
    del items[position]
    high = None if case.high is None else case.high - 1
    return replace(case, prefix=tuple(items), low=case.low - 1, high=high)


MAX_CHARS = 1024 * 1024  # maximum length of the description of a set, as JSON

_OBJECT: dict[str, Any] = {"type": "object"}
_ARRAY: dict[str, Any] = {"type": "array"}


def run(shapes: Shapes, operations: Sequence[ops.Op], whole: Fragment, location: str = "/ops") -> Fragment:
    """Runs the operations on a set, and returns the set of results.

    Raises:
        InvalidRequest: an operation may fail on a document of the set, or that cannot be decided. The message names the
            operation.
    """
    for number, op in enumerate(operations):
        here = f"{location}/{number}"
        if isinstance(op, ops.In | ops.Map):
            whole = _nested(shapes, op, whole, here)
            continue
        try:
            whole = _apply(shapes, op, whole)
        except InvalidRequest as exc:
            raise InvalidRequest(f"{here} ({type(op).__name__.lower()}): {exc}") from exc
        if envelope.exceeds(whole, MAX_CHARS):
            raise InvalidRequest(f"{here}: the description of its results is too long: limit_chars={MAX_CHARS}")
    return whole


def _apply(shapes: Shapes, op: ops.Op, whole: Fragment) -> Fragment:
    match op:
        case ops.Rename():
            return _move(shapes, whole, parse_pointer(op.from_), parse_pointer(op.to), removes=True)
        case ops.Copy():
            return _move(shapes, whole, parse_pointer(op.from_), parse_pointer(op.to), removes=False)
        case ops.Add():
            return _put(shapes, whole, parse_pointer(op.path), {"const": op.default})
        case ops.Remove():
            return shapes.union([rebuild(None) for _, rebuild in _present(shapes, whole, parse_pointer(op.path))])
        case ops.Hoist():
            host = parse_pointer(op.host)
            _require(shapes, whole, host, _OBJECT)
            return _move(shapes, whole, (*host, op.name), parse_pointer(op.to), removes=op.remove_from_host)
        case ops.Plunge():
            return _plunge(shapes, whole, op)
        case ops.Wrap():
            return _change(
                shapes, whole, parse_pointer(op.path), lambda value: ArrayCase((value,), False, 1, 1).fragment
            )
        case ops.Head():
            return _change(shapes, whole, parse_pointer(op.path), lambda value: _head(shapes, value))
        case ops.Convert():
            return _change(shapes, whole, parse_pointer(op.path), lambda value: convert_set(shapes, op, value))
    raise TypeError(f"not a plain operation: {op!r}")


def _nested(shapes: Shapes, op: ops.In | ops.Map, whole: Fragment, location: str) -> Fragment:
    """Runs an `in` or `map` operation on a set, and returns the set of results. Raises InvalidRequest if it may fail; for
    an inner operation, the message names that one.
    """
    path = parse_pointer(op.path)
    inner = f"{location}/ops"
    try:
        kind = _OBJECT if isinstance(op, ops.In) else _ARRAY
        found = _present(shapes, whole, path)
        for value, _ in found:
            _require_kind(shapes, value, path, kind)
        cases = [(shapes.cases(value), value, rebuild) for value, rebuild in found]
    except InvalidRequest as exc:
        raise InvalidRequest(f"{location} ({type(op).__name__.lower()}): {exc}") from exc
    if isinstance(op, ops.In):
        return shapes.union([rebuild(run(shapes, op.ops, value, inner)) for value, rebuild in found])

    def mapped(item: Fragment) -> Fragment:
        return item if shapes.is_empty(item) else run(shapes, op.ops, item, inner)

    results = []
    for arrays, _, rebuild in cases:
        for case in arrays:
            if isinstance(case, ArrayCase):
                has_rest = case.high is None or case.high > len(case.prefix)
                rest = mapped(case.rest) if has_rest else False
                prefix = tuple(map(mapped, case.prefix))
                results.append(rebuild(replace(case, prefix=prefix, rest=rest).fragment))
    return shapes.union(results)


def _move(shapes: Shapes, whole: Fragment, source: Path, target: Path, *, removes: bool) -> Fragment:
    """Runs a `rename`, `copy` or `hoist` operation on a set, and returns the set of results. Raises InvalidRequest if it
    may fail.
    """
    taken = _taken(shapes, whole, source, removes)
    if removes and source == target:
        return whole
    return shapes.union([_put(shapes, case, target, value) for value, case in taken])


def _plunge(shapes: Shapes, whole: Fragment, op: ops.Plunge) -> Fragment:
    source, host = parse_pointer(op.from_), parse_pointer(op.host)
    taken = _taken(shapes, whole, source, op.remove_from_source)
    if op.remove_from_source and source == (*host, op.name):
        return whole
    results = []
    for value, case in taken:
        for place in places(shapes, case, host, create=op.create_host):
            at_host = EMPTY_OBJECT if place.value is None else place.value
            if place.rebuild is None:
                raise InvalidRequest(f"the parent of {_show(host)} may be missing, or be no object")
            if place.value is None and not op.create_host:
                raise InvalidRequest(f"{_show(host)} may be missing")
            _require_kind(shapes, at_host, host, _OBJECT)
            results.append(place.rebuild(_put(shapes, at_host, (op.name,), value)))
    return shapes.union(results)


def _put(shapes: Shapes, whole: Fragment, path: Path, value: Fragment) -> Fragment:
    rebuilds = [place.rebuild for place in places(shapes, whole, path)]
    if None in rebuilds:
        raise InvalidRequest(f"the parent of {_show(path)} may be missing, or have no such member")
    return shapes.union([rebuild(value) for rebuild in rebuilds if rebuild is not None])


def _change(shapes: Shapes, whole: Fragment, path: Path, function: Callable[[Fragment], Fragment]) -> Fragment:
    return shapes.union([rebuild(function(value)) for value, rebuild in _present(shapes, whole, path)])


def _head(shapes: Shapes, value: Fragment) -> Fragment:
    firsts = []
    for case in shapes.cases(value):
        if not isinstance(case, ArrayCase):
            raise InvalidRequest("the value may be no array")
        if case.low < 1:
            raise InvalidRequest("the array may be empty: minItems is needed")
        firsts.append(case.item(0))
    return shapes.union(firsts)


def _require(shapes: Shapes, whole: Fragment, path: Path, kind: dict[str, Any]) -> None:
    for value, _ in _present(shapes, whole, path):
        _require_kind(shapes, value, path, kind)


def _require_kind(shapes: Shapes, value: Fragment, path: Path, kind: dict[str, Any]) -> None:
    if not shapes.covers(kind, value):
        raise InvalidRequest(f"{_show(path)} may be no {kind['type']}")


def _taken(shapes: Shapes, whole: Fragment, source: Path, removes: bool) -> list[tuple[Fragment, Fragment]]:
    """Returns the cases of a value, each with a description of the whole set; without the value if `removes` is set. Raises
    InvalidRequest if the value may be missing.
    """
    found = _present(shapes, whole, source)
    if removes and source:
        return [(value, rebuild(None)) for value, rebuild in found]
    if len(found) == 1:
        return [(found[0][0], whole)]
    return [(value, rebuild(value)) for value, rebuild in found]


def _present(shapes: Shapes, whole: Fragment, path: Path) -> list[tuple[Fragment, Rebuild]]:
    """Returns the cases of a value, each with its `rebuild` function. Raises InvalidRequest if the value may be
    missing.
    """
    found = []
    for place in places(shapes, whole, path):
        if place.value is None or place.rebuild is None:
            raise InvalidRequest(f"{_show(path)} may be missing")
        found.append((place.value, place.rebuild))
    return found


def _show(path: Path) -> str:
    return jsontext.render_pointer(path) or "the document"
