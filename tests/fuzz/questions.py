"""The parsers of questions: search configurations, filters and queries, waits for touches."""

from __future__ import annotations

from functools import cache
from typing import Any

from headrace.errors import Damaged, InvalidRequest, NewerFormat
from headrace.json import jsontext, search_config
from headrace.query.language import canonical, grammar, query
from headrace.query.language.canonical import Value
from headrace.streams.profiles.touch import activate, templates, wait
from headrace.streams.profiles.touch.config import parse_config
from headrace.streams.profiles.touch.cursor import TouchCursor, parse_cursor
from tests.fuzz import choices, vocabulary
from tests.fuzz.documents import accepted
from tests.fuzz.grammar import json_text
from tests.unit.search.samples import CONFIG

_NOW_MS = 1_700_000_000_000
_LAST_VERSION = 3


def search(data: bytes) -> None:
    """Edits of a search configuration: what is accepted is its own normal form, and reads any record."""
    version, rest = (data[0] % (_LAST_VERSION + 1) if data else 1), data[1:]
    document = choices.edited(vocabulary.SEARCH, rest, vocabulary.SEARCH_WORDS, vocabulary.SEARCH_KEYS)
    config = accepted(search_config.parse, document, version)
    if config is None:
        return
    shown = config.document()
    assert search_config.parse(shown, version).document() == shown
    for name in (*config.fields, *(config.aliases or {})):
        assert config.resolve(name) in config.fields
    for record in vocabulary.RECORDS:
        values = canonical.values(config, max(version, 1), record)
        assert set(values) <= set(config.fields) and all(values.values())


def filters(data: bytes) -> None:
    """A text, or from 0x80 on words of the language. A query that is accepted is true of a record or its negation is."""
    text = data[1:].decode("utf-8", "replace")
    if data[:1] >= b"\x80":
        text = "".join(vocabulary.QUERY_PARTS[byte % len(vocabulary.QUERY_PARTS)] for byte in data[1:])
    for parse in (grammar.parse_filter, grammar.parse_query):
        node = accepted(parse, text, CONFIG)
        if node is None:
            continue
        fields = query.fields_of(node)
        assert fields <= set(CONFIG.fields)
        assert parse(text, CONFIG) == node
        grouped = accepted(parse, f"NOT ({text})", CONFIG)
        assert grouped is None or grouped == query.Not(node)
        for values in _values():
            found = query.matches(node, values)
            assert found == query.matches(node, {name: values[name] for name in fields & values.keys()})
            assert found != query.matches(query.Not(node), values)


@cache
def _values() -> list[dict[str, list[Value]]]:
    """Returns the canonical values of some records, by field."""
    return [canonical.values(CONFIG, 1, record) for record in vocabulary.ORDERS]


def touches(data: bytes) -> None:
    """Bodies of the touch routes, edited; a cursor as text; a stored document of templates."""
    number, rest = (data[0] if data else 0), data[1:]
    config = parse_config({"enabled": True})
    if number % 4 == 0:
        _cursor(rest.decode("utf-8", "replace"))
    elif number % 4 == 1:
        asked = accepted(wait.parse_wait, _edited(vocabulary.WAIT, rest), config)
        if asked is not None:
            assert 0 <= asked.timeout_ms <= wait.MAX_TIMEOUT_MS and asked.ttl_ms >= 0
            assert asked.keys or asked.key_ids
            wait.wakes(wait.interest_of(asked, ()), {"type": "t", "value": {}}, 0, {}, config)
            _activate(activate.ActivateRequest(asked.declared, asked.ttl_ms))
    elif number % 4 == 2:
        wanted = accepted(activate.parse_activate, _edited(vocabulary.ACTIVATE, rest), config)
        if wanted is not None:
            _activate(wanted)
    else:
        try:
            book = templates.load(rest if number & 64 else jsontext.dumps(_edited(vocabulary.BOOK, rest)))
        except (Damaged, NewerFormat):
            return
        assert templates.load(templates.dump(book)) == book


def _edited(document: Any, edits: bytes) -> Any:
    if edits[:1] == b"\xff":
        return jsontext.loads(json_text(edits[1:]))
    return choices.edited(document, edits, vocabulary.TOUCH_WORDS, vocabulary.TOUCH_KEYS)


def _cursor(text: str) -> None:
    try:
        cursor = parse_cursor(text)
    except InvalidRequest:
        return
    if cursor is None:
        assert text.strip() == "now"
        return
    assert str(cursor) == text.strip().lower().split(":")[0] + f":{int(text.strip().split(':')[1])}"
    assert parse_cursor(str(cursor)) == cursor == TouchCursor(int(cursor.epoch, 16), cursor.generation)


def _activate(request: activate.ActivateRequest) -> None:
    """What a process writes down of templates, another one reads; and the answer can be sent."""
    limits = parse_config({"enabled": True}).limits
    book, outcomes = templates.TemplateBook().activate(
        request.templates, ttl_ms=request.ttl_ms, limits=limits, next_offset=7, now_ms=_NOW_MS
    )
    assert len(outcomes) == len(request.templates)
    assert templates.load(templates.dump(book)) == book
    answer = activate.answer(outcomes, TouchCursor(1, 7), limits)
    assert len(answer["activated"]) + len(answer["denied"]) == len(outcomes)
    jsontext.loads(jsontext.dumps(answer))
