"""The OpenAPI document, written by hand: the routes take raw requests, since most of this protocol is headers."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

VERSION = "1"
_OFFSET: Json = {"type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$"}
_TIME: Json = {"type": "string", "format": "date-time"}
_TRUE: Json = {"type": "string", "enum": ["true"]}
_NUMBER: Json = {"type": "string", "pattern": "^[0-9]+$"}
_TEXT: Json = {"type": "string"}
_COUNT: Json = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
_CURSOR: Json = {"type": "string", "pattern": "^(-1|now|[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{26})$"}
_TIMESTAMP: Json = {"oneOf": [_TIME, {"type": "string", "pattern": "^[0-9]{1,18}$"}]}
_DURATION: Json = {"type": "string", "pattern": "^(0|[1-9][0-9]{0,5}(h|m|s)?)$"}
_NAME: Json = {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[^\\x00-\\x1f\\x7f]+$"}
_BYTES: Json = {"type": "string", "format": "binary"}


def document() -> Json:
    """The document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace",
            "version": VERSION,
            "description": "Durable streams: append-only logs over HTTP. The path after `/v1/stream/` is the name.",
        },
        "security": [{"key": []}, {}],
        "paths": {
            "/v1/stream/{name}": {
                "parameters": [_parameter("name", "path", _NAME, required=True)],
                "put": _create(),
                "post": _append(),
                "get": _read(),
                "head": _describe(),
                "delete": _delete(),
            },
            "/v1/streams": {"get": _list()},
            "/health": {"get": _health()},
        },
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR, "Stream": _STREAM},
        },
    }


_ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": _TEXT, "message": _TEXT},
            "additionalProperties": False,
        }
    },
    "additionalProperties": False,
}
_STREAM: Json = {
    "type": "object",
    "required": ["name", "created_at", "expires_at", "epoch", "content_type", "profile"],
    "properties": {
        "name": _TEXT,
        "created_at": _TIME,
        "expires_at": {"oneOf": [_TIME, {"type": "null"}]},
        "epoch": {"type": "integer", "minimum": 0},
        "content_type": _TEXT,
        "profile": _TEXT,
    },
}
_POSITION: Json = {"Stream-Next-Offset": _OFFSET}
_ERRORS: dict[str, str] = {
    "400": "The request is malformed.",
    "401": "No key, or an unknown one.",
    "403": "The key lacks the scope or the name; or a newer producer epoch exists.",
    "404": "No such stream, or it has expired.",
    "408": "A write of unknown outcome (`append_timeout`), or a wait that took too long (`request_timeout`).",
    "409": "The request contradicts the state of the stream; without a body if the stream is closed.",
    "410": "Deleted and kept for its forks, or a cursor of an earlier incarnation.",
    "413": "The body is too large.",
    "429": "Nothing was written; repeat after Retry-After seconds.",
    "500": "Internal error.",
    "503": "A store is not available; repeat after Retry-After seconds.",
}


def _parameter(name: str, place: str, schema: Json, text: str = "", *, required: bool = False) -> Json:
    return {"name": name, "in": place, "required": required, "schema": schema, "description": text}


def _header(name: str, schema: Json, text: str = "") -> Json:
    return _parameter(name, "header", schema, text)


def _query(name: str, schema: Json, text: str = "") -> Json:
    return _parameter(name, "query", schema, text)


def _headers(schemas: Json) -> Json:
    return {name: {"schema": schema} for name, schema in schemas.items()}


def _answer(text: str, headers: Json | None = None, content: Json | None = None) -> Json:
    answer: Json = {"description": text}
    if headers:
        answer["headers"] = _headers(headers)
    if content:
        answer["content"] = content
    return answer


def _operation(name: str, summary: str, answers: Json, errors: tuple[str, ...], **more: Any) -> Json:
    responses = dict(answers)
    for status in errors:
        schema = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        responses[status] = _answer(_ERRORS[status], content=None if name == "describeStream" else schema)
    return {"operationId": name, "summary": summary, "responses": responses, **more}


_COMMON = ("400", "401", "403", "404", "410", "500", "503")
_WRITES = (*_COMMON, "408", "409", "413", "429")
_BODY: Json = {
    "required": False,
    "content": {"application/json": {"schema": {}}, "text/plain": {"schema": _TEXT}, "*/*": {"schema": _BYTES}},
}
_RECORD_HEADERS = [
    _header("Stream-Closed", _TEXT, "`true` closes the stream; any other value counts as absent."),
    _header("Stream-Key", {"type": "string", "maxLength": 4096}, "Key of the records."),
    _header("Stream-Timestamp", _TIMESTAMP, "Append time: RFC 3339, or unix nanoseconds. Never falls."),
]
_DESCRIBED: Json = {
    **_POSITION,
    "Stream-End-Offset": _OFFSET,
    "Stream-TTL": _NUMBER,
    "Stream-Expires-At": _TIME,
    "Stream-Closed": _TRUE,
}


def _create() -> Json:
    return _operation(
        "createStream",
        "Creates a stream or a fork, or finds an equal one.",
        {
            "200": _answer("An equal stream stood there already.", _DESCRIBED),
            "201": _answer("Created.", {**_DESCRIBED, "Location": _TEXT}),
        },
        _WRITES,
        parameters=[
            _header(
                "Stream-TTL", _DURATION, "Whole seconds, or a duration such as 1h30m: expires when idle that long."
            ),
            _header("Stream-Expires-At", _TIME, "RFC 3339. Excludes Stream-TTL."),
            _header("Stream-Forked-From", _TEXT, "Path of the source of a fork."),
            _header("Stream-Fork-Offset", _CURSOR, "Where the fork begins; the source's tail if absent."),
            _header("Stream-Fork-Sub-Offset", _COUNT, "Records (JSON) or bytes past that offset."),
            *_RECORD_HEADERS,
        ],
        requestBody=_BODY,
    )


def _append() -> Json:
    done: Json = {**_POSITION, "Stream-Closed": _TRUE, "Producer-Epoch": _NUMBER, "Producer-Seq": _NUMBER}
    return _operation(
        "appendToStream",
        "Appends records, closes the stream, or both.",
        {
            "200": _answer("New data of an idempotent producer was appended.", done),
            "204": _answer("Appended; or closed; or a repeat of something done already.", done),
        },
        _WRITES,
        parameters=[
            _header("Stream-Seq", {"type": "string", "minLength": 1, "maxLength": 256}, "Must rise, byte by byte."),
            _header("Producer-Id", {"type": "string", "minLength": 1, "maxLength": 256}),
            _header("Producer-Epoch", _COUNT),
            _header("Producer-Seq", _COUNT),
            *_RECORD_HEADERS,
        ],
        requestBody=_BODY,
    )


def _read() -> Json:
    page: Json = {
        **_POSITION,
        "Stream-End-Offset": _OFFSET,
        "Stream-Up-To-Date": _TRUE,
        "Stream-Closed": _TRUE,
        "Stream-Cursor": _NUMBER,
        "ETag": _TEXT,
        "Cache-Control": _TEXT,
    }
    content: Json = {
        "application/json": {"schema": {}},
        "text/event-stream": {"schema": {}},
        "*/*": {"schema": {}},
    }
    return _operation(
        "readStream",
        "One page of records; waits for the first (long-poll), or follows the stream (SSE).",
        {
            "200": _answer("Records.", page, content),
            "204": _answer("A long-poll that saw nothing new.", page),
            "304": _answer("The page named by If-None-Match is still the one.", page),
        },
        (*_COMMON, "408"),
        parameters=[
            _query("offset", _CURSOR, "A cursor, `-1` (start, the default) or `now` (tail)."),
            _query("since", _TIMESTAMP, "First record appended at or after this time. An offset wins."),
            _query("format", {"type": "string", "enum": ["json", "raw"]}),
            _query("live", {"type": "string", "enum": ["long-poll", "true", "1", "sse", "false", "0"]}),
            _query("timeout", _DURATION, "Wait: milliseconds, or a duration such as 2s. Above 5 s: 408."),
            _query("cursor", _TEXT, "The last Stream-Cursor."),
            _header("If-None-Match", _TEXT),
        ],
    )


def _describe() -> Json:
    return _operation(
        "describeStream", "What a stream is and how far it reaches.", {"200": _answer("Alive.", _DESCRIBED)}, _COMMON
    )


def _delete() -> Json:
    answers = {"204": _answer("Deleted, now or before.")}
    return _operation("deleteStream", "Deletes a stream.", answers, (*_COMMON, "408", "409", "429"))


def _list() -> Json:
    schema: Json = {"type": "array", "items": {"$ref": "#/components/schemas/Stream"}}
    return _operation(
        "listStreams",
        "Living streams in name order.",
        {"200": _answer("Streams.", content={"application/json": {"schema": schema}})},
        ("400", "401", "403", "500", "503"),
        parameters=[
            _query("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}),
            _query("offset", {"type": "integer", "minimum": 0, "maximum": 10_000, "default": 0}, "Rows to skip."),
            _query("after", _TEXT, "Only names above this one."),
            _query("prefix", _TEXT, "Only names that begin so."),
        ],
    )


def _health() -> Json:
    schema: Json = {"type": "object", "properties": {"status": {"const": "ok"}}}
    answer = _answer("This process answers.", content={"application/json": {"schema": schema}})
    return {"operationId": "health", "summary": "Liveness.", "security": [{}], "responses": {"200": answer}}
