"""Template activation: parses the request, and builds the answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from headrace.errors import InvalidRequest
from headrace.streams.profiles import strict
from headrace.streams.profiles.numbers import is_finite
from headrace.streams.profiles.touch import keys
from headrace.streams.profiles.touch.config import TemplateLimits, TouchConfig
from headrace.streams.profiles.touch.cursor import TouchCursor
from headrace.streams.profiles.touch.templates import MAX_FIELDS, Activation, Declaration

MAX_TEMPLATES = 256  # maximum templates in one request


class ActivateRequest(msgspec.Struct, frozen=True):
    """A checked body of `touch/templates/activate`: the templates to activate, and how long they stay active without
    use.
    """

    templates: tuple[Declaration, ...]
    ttl_ms: int


def parse_activate(body: Any, config: TouchConfig) -> ActivateRequest:
    """Parses the body. Unknown encodings and repeated fields are denied later, template by template.

    Raises:
        InvalidRequest: there are no templates or too many, one has no entity or not one to three named fields, or the
            time to live is no number of milliseconds.
    """
    document = strict.as_object(body, "activate body")
    return ActivateRequest(
        parse_declarations(document.get("templates"), "activate.templates"),
        parse_ttl_ms(document.get("inactivityTtlMs"), config, "activate.inactivityTtlMs"),
    )


def parse_declarations(value: Any, place: str) -> tuple[Declaration, ...]:
    """Parses a list of templates.

    Raises:
        InvalidRequest: the list is invalid, as in `parse_activate`.
    """
    if not isinstance(value, list) or not value:
        raise InvalidRequest(f"{place} must be a non-empty array")
    if len(value) > MAX_TEMPLATES:
        raise InvalidRequest(f"{place} too large (max {MAX_TEMPLATES})")
    declarations = []
    for one in value:
        entity = strict.text_or_none(one.get("entity")) if isinstance(one, dict) else None
        fields = _fields(one.get("fields")) if isinstance(one, dict) else None
        if entity is None or fields is None:
            raise InvalidRequest(f"{place} contains invalid template definitions")
        declarations.append(Declaration(entity, fields))
    return tuple(declarations)


def parse_ttl_ms(value: Any, config: TouchConfig, place: str) -> int:
    """Returns `inactivityTtlMs` in whole milliseconds; the profile's default if it is missing or null.

    Raises:
        InvalidRequest: the value is not a number, or is negative.
    """
    if value is None:
        return config.limits.default_ttl_ms
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not is_finite(value) or value < 0:
        raise InvalidRequest(f"{place} must be a non-negative number (ms)")
    return int(value)


def answer(outcomes: Iterable[Activation], cursor: TouchCursor, limits: TemplateLimits) -> dict[str, Any]:
    """Returns the body of the answer to an activation.

    Args:
        cursor: the end of the log, where the activated templates begin.
    """
    done = list(outcomes)
    return {
        "activated": [
            {"templateId": keys.as_hex(one.template_id), "state": "active", "activeFromTouchOffset": str(cursor)}
            for one in done
            if one.denied is None
        ],
        "denied": [
            {"templateId": keys.as_hex(one.template_id), "reason": one.denied}
            for one in done
            if one.denied is not None
        ],
        "limits": {
            "maxActiveTemplatesPerStream": limits.per_stream,
            "maxActiveTemplatesPerEntity": limits.per_entity,
        },
    }


def _fields(value: Any) -> tuple[tuple[str, str], ...] | None:
    """Returns field names with encodings; None if they are malformed. An encoding that is no string counts as
    unknown.
    """
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_FIELDS:
        return None
    fields = []
    for field in value:
        name = strict.text_or_none(field.get("name")) if isinstance(field, dict) else None
        if name is None:
            return None
        encoding = field.get("encoding")
        fields.append((name, encoding if isinstance(encoding, str) else ""))
    return tuple(fields)
