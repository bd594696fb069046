"""Parses what a request waits for, computes the keys that a change record touches, and tests whether it wakes the request.

Full keys are matched exactly, key ids by their 32 bits. A wait may wake without reason, because key ids can collide,
but it never misses what it waits for.

The keys of a change depend only on the record and the templates. Every change touches its entity's table key. For each
template of the entity, an insert touches the tuple that the row enters, a delete the tuple that it leaves, an update
both. An update that stays in its tuple touches the changed fields instead of the membership. For an update whose old
value lacks a template's fields, `onMissingBefore` decides:

    coarse      only the table key
    skipBefore  as if the row had entered the new tuple with every field changed
    error       everything, because a finer answer could be wrong
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.errors import InvalidRequest
from headrace.streams.profiles import strict
from headrace.streams.profiles.numbers import is_finite
from headrace.streams.profiles.touch import keys
from headrace.streams.profiles.touch.activate import parse_declarations, parse_ttl_ms
from headrace.streams.profiles.touch.config import TouchConfig
from headrace.streams.profiles.touch.cursor import TouchCursor, parse_cursor
from headrace.streams.profiles.touch.templates import Declaration, Template

MAX_KEYS = 1024
MAX_EXACT_KEYS = 16
DEFAULT_TIMEOUT_MS = 30_000
MAX_TIMEOUT_MS = 120_000


class WaitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A checked body of `touch/wait`.

    Attributes:
        cursor: where to start; None means the end of the log.
        keys, key_ids: the full keys and key ids to wait for; at least one.
        coarse: whether to wait for tables: those of `template_ids`, or the given keys.
        template_ids: templates that the query depends on; a fine wait counts as a use of them.
        declared, ttl_ms: templates to activate as well, and their time to live.
    """

    cursor: TouchCursor | None
    timeout_ms: int
    keys: frozenset[int]
    key_ids: frozenset[int]
    coarse: bool
    template_ids: frozenset[int]
    declared: tuple[Declaration, ...]
    ttl_ms: int


class Interest(NamedTuple):
    """The set of keys that wakes a waiting request.

    Attributes:
        kind: `fineKey` or `tableKey`, for the answer.
        needs_templates: whether some key may be one that is only computed for templates.
    """

    kind: str
    keys: frozenset[int]
    key_ids: frozenset[int]
    needs_templates: bool

    def woken_by(self, what: Touched) -> bool:
        """Returns whether a record that touches `what` wakes the request; sometimes True without need, since key ids can
        collide.
        """
        if what.everything or not self.keys.isdisjoint(what.keys):
            return True
        return bool(self.key_ids) and any(key & keys.KEY_ID_MASK in self.key_ids for key in what.keys)


def parse_wait(body: Any, config: TouchConfig) -> WaitRequest:
    """Parses the body of `touch/wait`. Null counts as absent; unknown fields are ignored, so that newer clients work.

    Raises:
        InvalidRequest: a field has the wrong form, there are no keys or too many, or an `exact` wait can't be exact.
    """
    document = strict.as_object(body, "wait body")
    given = {name: value for name, value in document.items() if value is not None}
    names = _texts(given.get("keys", []), "wait.keys")
    if len(names) > MAX_KEYS:
        raise InvalidRequest(f"wait.keys too large (max {MAX_KEYS})")
    full = {name: keys.from_hex(name) for name in names}
    key_ids = _key_ids(given.get("keyIds", []))
    if not names and not key_ids:
        raise InvalidRequest("wait requires keys or keyIds")
    coarse = _interest_mode(given) == "coarse"
    _check_exact(given, list(full.values()), coarse)
    cursor = given.get("cursor")
    if not isinstance(cursor, str) or not cursor.strip():
        raise InvalidRequest("wait.cursor must be a non-empty string")
    declared = given.get("declareTemplates", [])
    return WaitRequest(
        cursor=parse_cursor(cursor),
        timeout_ms=_timeout_ms(given),
        keys=frozenset(key for key in full.values() if key is not None),
        key_ids=key_ids | {keys.key_id_of_text(name) for name, key in full.items() if key is None},
        coarse=coarse,
        template_ids=_template_ids(given.get("templateIdsUsed", [])),
        declared=parse_declarations(declared, "wait.declareTemplates") if declared != [] else (),
        ttl_ms=parse_ttl_ms(given.get("inactivityTtlMs"), config, "wait.inactivityTtlMs"),
    )


def interest_of(request: WaitRequest, templates: Sequence[Template]) -> Interest:
    """Returns the keys that wake a request, given the active templates.

    A coarse wait that names templates waits for their tables; if none of them is active, and in any other case, a wait is
    for its own keys.
    """
    fine = Interest("fineKey", request.keys, request.key_ids, needs_templates=True)
    if not request.coarse:
        return fine
    if not request.template_ids:
        return fine._replace(kind="tableKey")
    tables = frozenset(keys.table_key(one.entity) for one in templates if one.id in request.template_ids)
    return Interest("tableKey", tables, frozenset(), needs_templates=False) if tables else fine


def wakes(
    interest: Interest,
    record: Any,
    offset: int,
    templates: Mapping[str, Sequence[Template]],
    config: TouchConfig,
) -> bool:
    """Returns whether the stored record at `offset` wakes a request; False for a record that is no change.

    Args:
        templates: the active templates, by entity.
    """
    change = change_of(record)
    if change is None:
        return False
    relevant = templates if interest.needs_templates else {}
    return interest.woken_by(touched(change, offset, relevant, config.on_missing_before))


def _texts(value: Any, place: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
        raise InvalidRequest(f"{place} must be a non-empty string array when provided")
    return list(dict.fromkeys(item.strip() for item in value))


def _key_ids(value: Any) -> frozenset[int]:
    if not isinstance(value, list) or not all(_is_uint32(item) for item in value):
        raise InvalidRequest("wait.keyIds must be a non-empty uint32 array when provided")
    key_ids = frozenset(int(item) for item in value)
    if len(key_ids) > MAX_KEYS:
        raise InvalidRequest(f"wait.keyIds too large (max {MAX_KEYS})")
    return key_ids


def _is_uint32(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 <= value <= keys.KEY_ID_MASK and value == int(value)


def _template_ids(value: Any) -> frozenset[int]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value) or len(value) > MAX_KEYS:
        raise InvalidRequest(f"wait.templateIdsUsed must be a string array of at most {MAX_KEYS}")
    parsed = [keys.from_hex(item) for item in value]
    if None in parsed:
        raise InvalidRequest("wait.templateIdsUsed must hold template ids of 16 hexadecimal digits")
    return frozenset(template_id for template_id in parsed if template_id is not None)


def _interest_mode(given: dict[str, Any]) -> str:
    mode = given.get("interestMode", "fine")
    if mode not in ("fine", "coarse"):
        raise InvalidRequest("wait.interestMode must be 'fine' or 'coarse'")
    return str(mode)


def _check_exact(given: dict[str, Any], full: Sequence[int | None], coarse: bool) -> None:
    """Raises InvalidRequest if `exact` is not a boolean, or if an exact wait is coarse, has a key that is no full key, or
    has no or more than 16 keys. Nothing else depends on `exact`: full keys are always matched exactly.
    """
    exact = given.get("exact", False)
    if not isinstance(exact, bool):
        raise InvalidRequest("wait.exact must be a boolean when provided")
    if exact and coarse:
        raise InvalidRequest("wait.exact requires fine interest while runtime is in fine-key mode")
    if exact and (None in full or not 1 <= len(set(full)) <= MAX_EXACT_KEYS):
        raise InvalidRequest(f"wait.exact requires 1 to {MAX_EXACT_KEYS} literal 64-bit routing keys")


def _timeout_ms(given: dict[str, Any]) -> int:
    timeout = given.get("timeoutMs", DEFAULT_TIMEOUT_MS)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not is_finite(timeout):
        raise InvalidRequest("wait.timeoutMs must be a number (ms)")
    return int(max(0, min(MAX_TIMEOUT_MS, timeout)))


_ABSENT = object()


class Change(NamedTuple):
    """A change record: entity, operation, and the row before and after; None where the record does not have it."""

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
    """Returns the row's encoded values of the template's fields; None if the row lacks one, or has one that can't be
    encoded.
    """
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
