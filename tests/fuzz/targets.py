"""The parsers of outside bytes, each as a function of bytes that checks a law.

A target returns if the law holds, also for bytes that are refused as the parser's contract says; anything that it
raises is a bug. The laws: a refusal is of a documented type and names the object; what is accepted is within its
bounds; encoding and decoding undo each other; and a stored object that was cut or altered is refused, or gives exactly
what was written, never anything else. The engine adds bounds on time and memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import orjson

from functions import access
from functions.access import Scope
from functions.api.door import requests
from functions.api.streams import records as streams
from functions.api.streams.inspection.routes import list_query
from functions.api.streams.reads import read_query
from functions.api.streams.records import StreamHeaders as Headers
from functions.refusals import Forbidden, Unauthorized
from headrace import instants, limits
from headrace.batch import MAX_KEY_BYTES
from headrace.errors import InvalidRequest
from headrace.streams.values import check_name
from headrace.wal.state import REFERENCE_ZERO, START, decode_cursor, encode_cursor
from tests.fuzz.clients import answers, elements, events
from tests.fuzz.documents import definition, json_document, json_pointer, lens_document, profile, schema_update
from tests.fuzz.features import beava_frames, entity_keys, expressions
from tests.fuzz.grammar import json_text
from tests.fuzz.indexes import index_descriptor, index_manifest, index_part
from tests.fuzz.questions import filters, search, touches
from tests.fuzz.samples import EDITED, FORGED, RAW, edited, mode
from tests.fuzz.stored import entry, frames, key_page, manifest, manifest_page, page_header, row, segment
from tests.fuzz.topics import lease_events, socket_commands, topic_bodies

Target = Callable[[bytes], None]
_LATEST_MS = 253_402_300_799_999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def offsets(data: bytes) -> None:
    """A cursor that is accepted is the canonical text, spelled perhaps in look-alikes."""
    text = data.decode("utf-8", "replace")
    if len(data) == 12:
        given = (int.from_bytes(data[:4], "big"), int.from_bytes(data[4:], "big"))
        assert decode_cursor(encode_cursor(*given)) == given
    try:
        cursor = decode_cursor(text)
    except InvalidRequest:
        return
    if cursor.incarnation is None:
        assert text in (START, REFERENCE_ZERO)
    else:
        canonical = text.upper().translate(str.maketrans("OIL", "011"))
        assert encode_cursor(cursor.incarnation, cursor.position) == canonical


def durations(data: bytes) -> None:
    """Times agree with the standard library, durations with the sum of their parts."""
    text = data.decode("utf-8", "replace")
    for parse in (instants.rfc3339_ms, instants.timestamp_ms, instants.ttl_ms, instants.timeout_ms):
        try:
            millis = parse(text, "what")
        except InvalidRequest:
            continue
        if parse is instants.rfc3339_ms:
            # The standard library has no year 0, and the calendar repeats after 400 years.
            cycles = int(text.startswith("0000"))
            moment = datetime.fromisoformat((text.replace("0000", "0400", 1) if cycles else text).upper())
            assert millis == (moment - _EPOCH) // timedelta(milliseconds=1) - cycles * 146_097 * instants.DAY_MS
        elif parse is instants.timestamp_ms:
            assert millis <= _LATEST_MS + 24 * 3600 * 1000
        else:
            bare = 1000 if parse is instants.ttl_ms else 1
            unit = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1, "": bare}
            assert millis == sum(int(n) * unit[u] for n, u in re.findall(r"(\d+)(ms|h|m|s|)", text))
            assert parse is instants.timeout_ms or 0 <= millis <= limits.MAX_TTL_MS


def headers(data: bytes) -> None:
    """Each line is a header. What is accepted is within its bounds."""
    lines = [line.partition(b":")[::2] for line in data.split(b"\n")]
    given = Headers({"headers": lines})
    readers: tuple[Callable[[], object], ...] = (
        lambda: _check(given.content_type, lambda v: v.isascii() and "/" in v),
        lambda: _check(given.content_length, lambda v: 0 <= v < 10**15),
        lambda: _check(given.key, lambda v: 0 < len(v.encode()) <= MAX_KEY_BYTES),
        lambda: _check(given.seq, lambda v: 0 < len(v.encode()) <= limits.MAX_SEQ_BYTES),
        lambda: _check(given.time_hint_ms, lambda v: v <= _LATEST_MS + 24 * 3600 * 1000),
        lambda: _check(given.producer, lambda v: v.id and max(v.epoch, v.seq) <= limits.MAX_SAFE_INTEGER),
        lambda: _check(given.expiry(), lambda v: None in v and min(n or 0 for n in v) >= 0),
        lambda: _check(given.fork(), lambda v: check_name(v.source) and v.sub_offset >= 0),
        lambda: given.closes,
        lambda: given.matches('W/"a:b"'),
    )
    for read in readers:
        try:
            read()
        except InvalidRequest:
            continue


def query(data: bytes) -> None:
    """A query string, of a read and of a listing."""
    scope = {"query_string": data}
    try:
        read = read_query(scope)
        assert read.explicit == (read.at.cursor is not None and read.at.cursor.incarnation is not None)
        assert read.at.cursor is None or read.at.since_ms is None
        assert not read.live or b"offset" in data or b"since" in data or b"%" in data
        assert read.timeout_ms is None or read.timeout_ms >= 0
        assert read.cursor is None or 0 <= read.cursor < 10**18
        assert read.selection.key != "" and (read.selection.filter is None or read.live != "sse")
        assert read_query(scope, "k").selection == read.selection._replace(key="k")
    except InvalidRequest:
        pass
    try:
        listing = list_query(scope)
        assert 1 <= listing.limit <= 1000 and 0 <= listing.skip <= 10_000
        (listing.after + listing.prefix).encode()
    except InvalidRequest:
        pass


def path(data: bytes) -> None:
    """A name that is accepted is reached again by its own canonical path; a URL is printable ASCII."""
    scope = {"raw_path": data, "scheme": "https"}
    for host in ("host.example:8080", data.decode("latin-1")):
        url = streams.url(scope, host)
        assert url.isascii() and url.isprintable()
    readers: tuple[Callable[[], str], ...] = (
        lambda: streams.STREAMS.name_in(scope),
        lambda: streams.source_name(data.decode("utf-8", "replace")),
    )
    for read in readers:
        try:
            name = read()
        except InvalidRequest:
            continue
        assert 0 < len(name.encode()) <= limits.MAX_NAME_BYTES and "\n" not in name and "\0" not in name
        assert streams.STREAMS.name_in({"raw_path": f"/v1/stream/{quote(name, safe='')}".encode()}) == name
    try:
        name, key = streams.name_and_key(scope)
    except InvalidRequest:
        return
    assert key and streams.name_and_key(
        {"raw_path": f"/v1/stream/{quote(name)}/pk/{quote(key, safe='')}".encode()}
    ) == (
        name,
        key,
    )


def body(data: bytes) -> None:
    """The records of a JSON body are its own text, in order, and mean what the whole means. Valid text is accepted."""
    how, rest = mode(data)
    text = rest if how == RAW else json_text(rest)
    if how == EDITED:
        text = edited(text, rest[:3])
    try:
        found = requests.records(text, "application/json", None).slices()
    except InvalidRequest:
        assert how != FORGED, "refused what is JSON"
        return
    if not text:
        assert not found
        return
    whole = orjson.loads(text)
    assert [orjson.loads(record) for record in found] == (whole if isinstance(whole, list) else [whole])
    at = 0
    for record in found:
        at = text.index(record, at) + len(record)
        assert record == record.strip(b" \t\r\n")


def keys(data: bytes) -> None:
    """The first line is a key configuration, the second a request's header. Only the keys in it open the door."""
    text, _, header = data.partition(b"\n")
    configured = text.decode("utf-8", "surrogateescape")  # as in the environment
    presented = Headers({"headers": [(b"authorization", header)]}).get("authorization")
    entries = [entry.strip() for entry in configured.split(",") if entry.strip()]
    try:
        parsed = access.parse(configured)
    except access.AccessError as exc:
        secrets = [part for entry in entries for part in entry.split(":") if len(part) >= 16]
        assert not any(secret in str(exc) for secret in secrets)
        return
    known = {entry.partition(":")[0] for entry in entries}
    assert parsed.restricted == bool(known)
    for key in known:
        parsed.grant(f"Bearer {key}")
    try:
        grant = parsed.grant(presented)
        assert not known or (presented is not None and presented[:7].lower() == "bearer " and presented[7:] in known)
        grant.require(Scope.WRITE, "orders/1")
        assert Scope.WRITE in grant.scopes
        assert not grant.prefixes or any("orders/1".startswith(prefix) for prefix in grant.prefixes)
    except (Unauthorized, Forbidden):
        pass


def _check(value: object, holds: Callable[..., object]) -> None:
    assert value is None or holds(value), f"out of bounds: {value!r}"


TARGETS: dict[str, Target] = {  # the slowest first: begun last, one would run alone
    "lens": lens_document,
    "index_part": index_part,
    "filter": filters,
    "search_config": search,
    "key_page": key_page,
    "offset": offsets,
    "durations": durations,
    "headers": headers,
    "query": query,
    "path": path,
    "body": body,
    "access": keys,
    "frames": frames,
    "page_header": page_header,
    "segment": segment,
    "manifest": manifest,
    "manifest_page": manifest_page,
    "index_manifest": index_manifest,
    "index_descriptor": index_descriptor,
    "entry": entry,
    "row": row,
    "elements": elements,
    "events": events,
    "answers": answers,
    "json": json_document,
    "pointer": json_pointer,
    "schema_update": schema_update,
    "profile": profile,
    "definition": definition,
    "touch": touches,
    "topic_body": topic_bodies,
    "socket_command": socket_commands,
    "lease_event": lease_events,
    "expression": expressions,
    "entity_key": entity_keys,
    "beava_frame": beava_frames,
}
