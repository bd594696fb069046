"""The parsers of documents: JSON, pointers, schema updates, lenses, profiles, and definitions as they are stored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec

from headrace.definition import Definition, Definitions, Document
from headrace.errors import Conflict, Damaged, InvalidRequest, NewerFormat, PayloadTooLarge
from headrace.json import jsontext, lens, registry, validate
from headrace.json.lens.envelope import MAX_PATH
from headrace.json.registry import Registry
from headrace.objects import keys, packed
from headrace.objects.memory import MemoryObjects
from headrace.streams import profiles
from headrace.streams.profiles import Profile
from headrace.wal.state import DefinitionRef, LogState
from tests.fuzz import choices, vocabulary
from tests.fuzz.grammar import json_text
from tests.fuzz.samples import EDITED, LOG, NOW_MS, RAW, edited, framed, mode, unframed

_BAD_ESCAPE = re.compile(r"~(?![01])")
_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)
T = TypeVar("T")


def accepted(parse: Callable[..., T], *args: Any, **options: Any) -> T | None:
    """Returns what a parser returns; None if it refuses as contracts say, in a message that can be sent."""
    try:
        return parse(*args, **options)
    except (InvalidRequest, Conflict, PayloadTooLarge) as exc:
        assert str(exc).encode(), "no message"
        return None


def checks(check: Callable[[Any], object], value: Any) -> bool:
    """Returns whether a check lets a value pass."""
    return accepted(lambda: (check(value),)) is not None


def json_document(data: bytes) -> None:
    """Raw bytes, valid text, or valid text with edits: what is accepted means what the standard library says it means."""
    how, rest = mode(data)
    text = rest if how == RAW else json_text(rest)
    if how == EDITED:
        text = edited(text, rest[:3])
    expected = _by_the_standard_library(text)
    try:
        value = jsontext.loads(text)
    except InvalidRequest:
        assert expected is None, "refused what is JSON"
        return
    assert expected is not None, "accepted what is no JSON"
    assert repr(value) == expected
    again = jsontext.dumps(value)
    assert repr(jsontext.loads(again)) == expected
    assert jsontext.dumps(jsontext.loads(again)) == again


def _by_the_standard_library(text: bytes) -> str | None:
    """Returns the `repr` of the text's value; None for no JSON, for what UTF-8 or a double can't hold, and for what
    is nested too deeply.
    """

    def finite(digits: str) -> float:
        number = float(digits)
        if number in (float("inf"), float("-inf")):
            raise ValueError(digits)
        return number

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        value = json.loads(text.decode(), parse_float=finite, parse_constant=refuse)
        printed = repr(value)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        return None
    return printed if _depth(value) <= jsontext.MAX_DEPTH else None


def _depth(value: Any) -> int:
    if not isinstance(value, (dict, list)):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def json_pointer(data: bytes) -> None:
    """The first line is a pointer, the rest chooses a document. Reading, setting and dropping agree with each other."""
    first, _, rest = data.partition(b"\n")
    text = first.decode("utf-8", "replace")
    path = accepted(jsontext.parse_pointer, text)
    assert (path is not None) == (not text or (text.startswith("/") and not _BAD_ESCAPE.search(text)))
    if path is None:
        return
    assert jsontext.render_pointer(path) == text
    document = jsontext.loads(json_text(rest))
    before = jsontext.dumps(document)
    found = jsontext.get(document, path)
    assert found is _at(document, path)
    if len(path) > MAX_PATH:  # no lens has one, and only lenses change documents
        return
    for create in (False, True):
        changed = accepted(jsontext.put, document, path, "new", create=create)
        assert changed is None or jsontext.get(changed, path) == "new"
        assert changed is not None or found is jsontext.MISSING
    dropped = accepted(jsontext.drop, document, path)
    assert (dropped is not None) == (found is not jsontext.MISSING and path != ())
    if dropped is not None and isinstance(jsontext.get(document, path[:-1]), dict):
        assert jsontext.get(dropped, path) is jsontext.MISSING
    assert jsontext.dumps(document) == before, "a document was changed in place"


def _at(document: Any, path: jsontext.Path) -> Any:
    for key in path:
        if isinstance(document, dict) and key in document:
            document = document[key]
        elif isinstance(document, list) and _INDEX.fullmatch(key) and int(key[:5]) < len(document) and len(key) < 5:
            document = document[int(key)]
        else:
            return jsontext.MISSING
    return document


def schema_update(data: bytes) -> None:
    """Raw bytes, or edits of an update. What is accepted gives the same registry again when it is sent as it is shown."""
    how, rest = mode(data)
    body = rest
    if how != RAW:
        sample = vocabulary.UPDATES[how - 1]
        body = jsontext.dumps(choices.edited(sample, rest, vocabulary.SCHEMA_WORDS, vocabulary.SCHEMA_KEYS))
    update = accepted(registry.parse_update, body, "s")
    if update is None:
        return
    found = accepted(registry.apply, Registry(), update, name="s", next_offset=0, is_empty=True)
    if found is None:
        return
    shown = jsontext.loads(jsontext.dumps(registry.document(found, "s")))
    assert shown["currentVersion"] == len(shown["schemas"]) == len(shown["boundaries"]) <= 1
    sent = {name: shown[name] for name in ("routingKey", "search") if name in shown}
    if shown["schemas"]:
        sent["schema"] = shown["schemas"]["1"]
    if "schema" in sent or len(sent) == 1:
        again = registry.parse_update(jsontext.dumps(sent), "s")
        assert registry.apply(Registry(), again, name="s", next_offset=0, is_empty=True) == found
    for record in vocabulary.RECORDS:
        if shown["schemas"]:
            checks(validate.compile(found.schemas["1"]).check, record)
        if found.routing_key is not None:
            accepted(registry.routing_key_of, found.routing_key, record)


def lens_document(data: bytes) -> None:
    """Edits of a lens. If it is proven, it makes valid records of the new schema of valid records of the old one."""
    how, rest = mode(data)
    text = jsontext.loads(json_text(rest)) if how == RAW else vocabulary.LENSES[how - 1]
    if how != RAW:
        text = choices.edited(text, rest, vocabulary.LENS_WORDS, vocabulary.LENS_KEYS)
    parsed = accepted(lens.parse, text, "s", 1)
    if parsed is None:
        return
    assert lens.parse(parsed.document, "s", 1).ops == parsed.ops
    old, new, records = _schemas()
    proven = accepted(lens.prove, parsed, old, new)
    if proven is None:
        for record in records:
            accepted(lens.promote, [parsed], record)
        return
    complete = lens.parse(proven, "s", 1)
    validator = validate.compile(new)
    for record in records:
        before = jsontext.dumps(record)
        validator.check(lens.promote([complete], record))
        assert jsontext.dumps(record) == before, "a record was changed in place"


@cache
def _schemas() -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """Returns an old schema, a new one, and records of the old one."""
    old, new = vocabulary.OLD_SCHEMA, vocabulary.NEW_SCHEMA
    validator = validate.compile(old)
    records = [choices.edited(vocabulary.OLD_RECORD, bytes([n, n // 7, n]), vocabulary.LENS_WORDS, vocabulary.LENS_KEYS)
               for n in range(256)]  # fmt: skip
    valid = [record for record in records if checks(validator.check, record)]
    assert len(valid) > 30
    return old, new, valid


def profile(data: bytes) -> None:
    """The first byte picks a profile, the next ones edit its document, the rest is a record that it normalises."""
    number, edits, rest = (data[0] if data else 0), data[1:13], data[13:]
    sample = vocabulary.PROFILES[number % len(vocabulary.PROFILES)]
    body = choices.edited(sample, edits, vocabulary.PROFILE_WORDS, vocabulary.PROFILE_KEYS)
    found = accepted(profiles.parse_update, body)
    if found is None:
        return
    shown = profiles.resource(found)
    assert profiles.parse_update(jsontext.loads(jsontext.dumps(shown))) == found
    record = choices.value(rest, vocabulary.PROFILE_WORDS, vocabulary.RECORD_KEYS)
    if rest[:1] >= b"\x80":
        sample = vocabulary.EVENTS[rest[0] % len(vocabulary.EVENTS)]
        record = choices.edited(sample, rest[1:], vocabulary.PROFILE_WORDS, vocabulary.RECORD_KEYS)
    _check_normal(found, record)


def _check_normal(found: Profile, record: Any) -> None:
    """What a profile stores fits its own schema and can be read again; storing that once more changes nothing."""
    before = jsontext.dumps(record)
    normal = accepted(found.normalize, record, NOW_MS)
    assert jsontext.dumps(record) == before, "a record was changed in place"
    if normal is None:
        return
    stored, key = normal
    assert key is None or key.encode() is not None
    text = jsontext.dumps(stored)
    assert repr(jsontext.loads(text)) == repr(stored)
    update = found.registry()
    if update is not None and isinstance(stored.get("sampling"), dict | None):  # which evlog leaves to the schema
        validate.compile(update["schema"]).check(stored)
    if "correlation" not in found.document():
        assert found.normalize(jsontext.loads(text), NOW_MS + 1) == (stored, key)


def definition(data: bytes) -> None:
    """Edits of a stored definition, or of its text in a right frame: it is what was written, or damaged and named."""
    how, rest = mode(data)
    valid = _definition_object()
    changed = edited(valid, rest) if how == EDITED else framed(edited(unframed(valid), rest) if how else rest)
    objects, ref = MemoryObjects(), DefinitionRef(1, "n", 1, "generic")
    key = keys.definition(LOG, ref.number, ref.nonce)
    objects.put(key, changed)
    try:
        found = Definitions(objects).of(LOG, LogState(next_offset=1, definition=ref))
    except (Damaged, NewerFormat) as exc:
        assert key in str(exc), f"does not name the object: {exc}"
        return
    assert how != EDITED or found == _definition(), "wrong data"
    assert packed.decode(packed.encode(found.document), Document, key) == found.document


@cache
def _definition() -> Definition:
    update = registry.parse_update(jsontext.dumps(vocabulary.UPDATES[0]), "s")
    first = registry.apply(Registry(), update, name="s", next_offset=0, is_empty=True)
    return Definition(first, profiles.parse({"kind": "state-protocol", "touch": {"enabled": True}}))


@cache
def _definition_object() -> bytes:
    data = packed.encode(_definition().document)
    assert msgspec.json.decode(unframed(data))["version"] == 1
    return data
