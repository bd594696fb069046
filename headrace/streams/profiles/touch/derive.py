"""Computes the keys that a change record touches. The result depends only on the record and the templates.

Every change touches its entity's table key. For each template of the entity, an insert touches the tuple that the row
enters, a delete the tuple that it leaves, an update both. An update that stays in its tuple touches the changed fields
instead of the membership. For an update whose old value lacks a template's fields, `onMissingBefore` decides:

    coarse      only the table key
    skipBefore  as if the row had entered the new tuple with every field changed
    error       everything, because a finer answer could be wrong
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.streams.profiles.touch import keys
from headrace.streams.profiles.touch.templates import Template

_ABSENT = object()


class Change(NamedTuple):
    """A change record; `before` and `after` are None where the record does not have them."""

    entity: str
    operation: str
    before: Any
    after: Any


class Touched(NamedTuple):
    """What one record touches: some keys, or everything."""

    keys: frozenset[int]
    everything: bool = False


def change_of(record: Any) -> Change | None:
    """Returns the change in a stored record; None for control messages and for other records."""
    if not isinstance(record, dict) or not isinstance(record.get("headers"), dict):
        return None
    headers, entity, key = record["headers"], record.get("type"), record.get("key")
    if "control" in headers or headers.get("operation") not in ("insert", "update", "delete"):
        return None
    if not isinstance(entity, str) or not entity.strip() or not isinstance(key, str) or not key.strip():
        return None
    return Change(entity, headers["operation"], record.get("old_value"), record.get("value"))


def touched(
    change: Change, offset: int, templates: Mapping[str, Sequence[Template]], on_missing_before: str
) -> Touched:
    """Computes what the change at `offset` touches.

    Args:
        templates: the templates by entity; those that begin after `offset` are ignored. Empty if only tables matter.
        on_missing_before: the profile's setting `onMissingBefore`.
    """
    found = {keys.table_key(change.entity)}
    for template in templates.get(change.entity, ()):
        if offset < template.active_from:
            continue
        before, after = _arguments(template, change.before), _arguments(template, change.after)
        if change.operation == "update" and before is None:
            if on_missing_before == "error":
                return Touched(frozenset(found), everything=True)
            if on_missing_before == "coarse":
                continue
            found.update(_after_only(template, change, after))
        else:
            found.update(_exactly(template, change, before, after))
    return Touched(frozenset(found))


def _exactly(
    template: Template, change: Change, before: tuple[str, ...] | None, after: tuple[str, ...] | None
) -> Iterator[int]:
    left = None if change.operation == "insert" else before
    entered = None if change.operation == "delete" else after
    for arguments in {left, entered}:
        if arguments is not None:
            yield keys.watch_key(template.id, arguments)
            if left != entered:
                yield keys.membership_key(template.id, arguments)
    if left is not None and left == entered:
        for name in _changed_fields(change.before, change.after):
            if name not in template.fields:
                yield keys.field_key(template.id, name, left)


def _after_only(template: Template, change: Change, after: tuple[str, ...] | None) -> Iterator[int]:
    if after is None:
        return
    yield keys.watch_key(template.id, after)
    yield keys.membership_key(template.id, after)
    for name, value in change.after.items():
        if name not in template.fields and _is_scalar(value):
            yield keys.field_key(template.id, name, after)


def _arguments(template: Template, row: Any) -> tuple[str, ...] | None:
    """Returns the row's encoded values of the template's fields; None if the row lacks one."""
    if not isinstance(row, dict):
        return None
    encoded = []
    for name, encoding in zip(template.fields, template.encodings, strict=True):
        argument = keys.encode_argument(row.get(name), encoding)
        if argument is None:
            return None
        encoded.append(argument)
    return tuple(encoded)


def _changed_fields(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Yields the names of scalar fields that differ; a missing field differs from null."""
    for name in {**before, **after}:
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if _is_scalar(old) and _is_scalar(new) and (old != new or isinstance(old, bool) != isinstance(new, bool)):
            yield name


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, (dict, list))
