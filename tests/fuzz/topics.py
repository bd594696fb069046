"""The parsers of topics and queues: bodies of requests, messages of a socket, and the events of a lease log."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson

from functions.api.sockets import commands
from functions.api.topics import config
from functions.api.topics.appends import DeleteBody, DiffBody, match_of
from functions.api.topics.calls import decode
from functions.api.topics.config import ConfigBody
from functions.api.topics.jobs import ClaimBody, ExtendBody, NackBody, SettleBody
from functions.api.topics.records import WriteBody, request_of
from functions.api.topics.watch import WatchBody
from headrace.batch import decode_frames, encode_frames
from headrace.queues import events
from headrace.queues.projection import Projection, fold
from headrace.topics.values import (
    MAX_KEY_CHARACTERS,
    MAX_LIMIT,
    MAX_NODE_BYTES,
    MAX_NUMBER,
    MAX_PAGE_BYTES,
    MAX_TAG_BYTES,
    check_name,
)
from headrace.watch.values import HEARTBEAT_MS
from tests.fuzz import choices, vocabulary
from tests.fuzz.documents import accepted
from tests.fuzz.grammar import json_text
from tests.fuzz.samples import EDITED, RAW, SOURCE, mode, named


def topic_bodies(data: bytes) -> None:
    """The first byte chooses a body. What is accepted is within its bounds; records are pieces of their body's text."""
    number, rest = (data[0] if data else 0), data[1:]
    valid, check = _BODIES[number % len(_BODIES)]
    check(_text(valid, rest))


def socket_commands(data: bytes) -> None:
    """The first byte chooses a message. What is accepted is answered under its own request id; what is not, under one that
    can be sent.
    """
    number, rest = (data[0] if data else 0), data[1:]
    text = _text(vocabulary.COMMANDS[number % len(vocabulary.COMMANDS)], rest)
    shown = commands.request_id_of(text)
    assert len(shown) <= commands.MAX_ID_BYTES
    orjson.loads(b'{"request_id":%b}' % shown)
    command = accepted(commands.decode, text)
    if command is None:
        return
    assert bytes(command.request_id) == shown
    match command:
        case commands.Subscribe():
            starts = accepted(command.starts)
            assert starts is None or 0 < len(starts) <= commands.MAX_TOPICS
            assert all(0 <= start.from_seq <= MAX_NUMBER for start in (starts or {}).values())
        case commands.Unsubscribe():
            names = accepted(command.names)
            assert names is None or 0 < len(set(names)) == len(names) <= commands.MAX_TOPICS
        case commands.Publish():
            _check_write(command, text)


def lease_events(data: bytes) -> None:
    """Events, each after its length: what is read of a log is what was written, and has a projection."""
    found: list[events.AnyEvent] = []
    while data:
        size, number, data = data[0], *(data[1:2] or b"\0"), data[2:]
        text = _text(vocabulary.LEASE_EVENTS[number % len(vocabulary.LEASE_EVENTS)], data[:size])
        event = named(SOURCE, lambda text=text: events.decode(text, SOURCE))  # type: ignore[misc]
        data = data[size:]
        if event is not None:
            found.append(event)  # type: ignore[arg-type]
            assert events.decode(events.encode(found[-1]), SOURCE) == event
    projection = fold(Projection(), found)
    assert projection.front <= projection.cursor
    sets = [projection.done, *(one.jobs for one in (*projection.grants, *projection.back))]
    for jobs in sets:
        flat = jobs.flat()
        assert list(flat) == sorted(set(flat)), "runs overlap or touch"
    counts = projection.counts(projection.cursor)
    assert min(counts) >= 0 or not found


def _text(valid: Any, data: bytes) -> bytes:
    """Returns raw bytes, JSON text of any shape, or the text of a valid document with edits."""
    how, rest = mode(data)
    if how == RAW:
        return rest
    if how == EDITED:
        return _dumps(choices.edited(valid, rest, vocabulary.TOPIC_WORDS, vocabulary.TOPIC_KEYS))
    return json_text(rest)


def _dumps(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _write(text: bytes) -> None:
    body = accepted(decode, text, WriteBody)
    if body is not None:
        _check_write(body, text)


def _check_write(body: WriteBody, text: bytes) -> None:
    request = accepted(request_of, body, None)
    if request is None:
        return
    whole = json.loads(text)
    assert len(request.records) == len(whole["records"]) > 0
    assert request.key is None or 0 < len(request.key) <= MAX_KEY_CHARACTERS
    for record, given in zip(request.records.records(0), whole["records"], strict=True):
        assert record.data in text and json.loads(record.data) == given["data"]
        assert record.key == given.get("tag") and len((record.key or "").encode()) <= MAX_TAG_BYTES
        node = given.get("node")
        assert record.node == (whole.get("node") if node is None else node)
        assert len((record.node or "").encode()) <= MAX_NODE_BYTES
        meta = given.get("meta")
        assert record.meta is None if meta is None else json.loads(record.meta or b"") == meta
    assert decode_frames(encode_frames(request.records), SOURCE) == request.records


def _config(text: bytes) -> None:
    body = accepted(decode, text, ConfigBody)
    given = body and accepted(body.config)
    if given:
        assert decode(orjson.dumps(config.shown(given)), ConfigBody).config() == given


def _delete(text: bytes) -> None:
    body = accepted(decode, text, DeleteBody)
    match = body and accepted(match_of, body.match)
    if match and match.is_prefix:
        assert "*" not in match.text and match.fits(match.text + "more")
    elif match:
        assert match.fits(match.text) and not match.fits(match.text + "more")


def _watch(text: bytes) -> None:
    body = accepted(decode, text, WatchBody)
    options = body and accepted(body.options)
    if body is None or not options:
        return
    assert 1 <= options.limit <= MAX_LIMIT and 1 <= options.max_bytes <= MAX_PAGE_BYTES
    assert HEARTBEAT_MS[0] <= options.heartbeat_ms <= HEARTBEAT_MS[1]
    for name, topic in body.topics.items():
        accepted(check_name, name)
        start = accepted(topic.start)
        assert start is None or 0 <= start.seq <= MAX_NUMBER


def _numbers(kind: type[Any]) -> Callable[[bytes], None]:
    def check(text: bytes) -> None:
        body = accepted(decode, text, kind)
        given = {name: getattr(body, name) for name in kind.__struct_fields__} if body is not None else {}
        for value in (*given.values(), *given.get("seqs", ())):
            assert not isinstance(value, int) or 0 <= value <= MAX_NUMBER

    return check


_BODIES: tuple[tuple[Any, Callable[[bytes], None]], ...] = (
    (vocabulary.WRITE, _write),
    (vocabulary.CONFIG, _config),
    (vocabulary.ERASE, _delete),
    (vocabulary.WATCH, _watch),
    (vocabulary.DIFF, _numbers(DiffBody)),
    (vocabulary.CLAIM, _numbers(ClaimBody)),
    (vocabulary.SETTLE, _numbers(SettleBody)),
    (vocabulary.SETTLE, _numbers(NackBody)),
    (vocabulary.SETTLE, _numbers(ExtendBody)),
)
