"""The OpenAPI document, written by hand: the routes take raw requests, since most of this protocol is headers."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

VERSION = "1"
_OFFSET: Json = {"type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$"}
_TIME: Json = {"type": "string", "format": "date-time"}
_TRUE: Json = {"type": "string", "enum": ["true"]}
_NUMBER: Json = {"type": "string", "pattern": "^[0-9]+$"}
_LAST: Json = {"type": "string", "pattern": "^(-1|[0-9]+)$"}
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
            "/v1/stream/{name}/pk/{key}": {
                "parameters": [
                    _parameter("name", "path", _NAME, required=True),
                    _parameter("key", "path", _NAME, required=True),
                ],
                "get": _read("readStreamByKey", "As a read with `key=`."),
            },
            "/v1/stream/{name}/_schema": _resource("Schema", "the schema registry", _SCHEMA_UPDATE),
            "/v1/stream/{name}/_profile": _resource("Profile", "the profile", _PROFILE_UPDATE),
            "/v1/stream/{name}/touch/meta": _touch(
                "get", "showTouch", "State of the waits for changes.", ("400", "404")
            ),
            "/v1/stream/{name}/touch/wait": _touch("post", "waitForTouch", "Waits for a change.", _WRITES),
            "/v1/stream/{name}/touch/templates/activate": _touch(
                "post", "activateTemplates", "Activates templates of queries.", _WRITES
            ),
            "/v1/stream/{name}/_index_status": _inspection("IndexStatus", "How far segments and indexes are."),
            "/v1/stream/{name}/_details": _inspection("Details", "Everything about the stream."),
            "/v1/streams": {"get": _list()},
            "/v1/server/_details": _server("Details", "Limits and state of the process that answers."),
            "/v1/server/_mem": _server("Memory", "Memory of the process that answers."),
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
    "required": [
        "name",
        "created_at",
        "expires_at",
        "epoch",
        "next_offset",
        "sealed_through",
        "uploaded_through",
        "content_type",
        "profile",
    ],
    "properties": {
        "name": _TEXT,
        "created_at": _TIME,
        "expires_at": {"oneOf": [_TIME, {"type": "null"}]},
        "epoch": {"type": "integer", "minimum": 0},
        "next_offset": _NUMBER,
        "sealed_through": _LAST,
        "uploaded_through": _LAST,
        "content_type": _TEXT,
        "profile": _TEXT,
    },
}
_SCHEMA_UPDATE: Json = {
    "type": "object",
    "properties": {
        "apiVersion": {"const": "durable.streams/schema-registry/v1"},
        "schema": {"type": ["object", "boolean"]},
        "lens": {"type": ["object", "null"]},
        "routingKey": {"type": ["object", "null"]},
        "search": {"type": ["object", "null"]},
    },
    "additionalProperties": False,
}
_PROFILE_UPDATE: Json = {
    "type": "object",
    "required": ["profile"],
    "properties": {
        "apiVersion": {"const": "durable.streams/profile/v1"},
        "profile": {"type": "object", "required": ["kind"], "properties": {"kind": _TEXT}},
    },
    "additionalProperties": False,
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


def _read(
    name: str = "readStream",
    summary: str = "One page of records; waits for the first (long-poll), or follows the stream (SSE).",
) -> Json:
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
        name,
        summary,
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
            _query("key", _TEXT, "Only records of this routing key."),
            _query("filter", _TEXT, "Only records that match, by the fields of the search configuration."),
            _header("If-None-Match", _TEXT),
        ],
    )


def _describe() -> Json:
    return _operation(
        "describeStream", "What a stream is and how far it reaches.", {"200": _answer("Alive.", _DESCRIBED)}, _COMMON
    )


def _resource(name: str, what: str, update: Json) -> Json:
    shown = {"application/json": {"schema": {"type": "object"}}}
    return {
        "parameters": [_parameter("name", "path", _NAME, required=True)],
        "get": _operation(f"show{name}", f"Shows {what}.", {"200": _answer("As it is.", content=shown)}, _COMMON),
        "post": _operation(
            f"change{name}",
            f"Changes {what}.",
            {"200": _answer("As it is now.", content=shown)},
            _WRITES,
            requestBody={"required": True, "content": {"application/json": {"schema": update}}},
        ),
    }


def _inspection(name: str, summary: str) -> Json:
    shown = {"application/json": {"schema": {"type": "object"}}}
    tag: Json = {"ETag": _TEXT}
    return {
        "parameters": [_parameter("name", "path", _NAME, required=True)],
        "get": _operation(
            f"show{name}",
            summary,
            {
                "200": _answer("As it is.", tag, shown),
                "304": _answer("As If-None-Match says, and so until the wait was over.", tag),
            },
            (*_COMMON, "408"),
            parameters=[
                _query("live", {"type": "string", "enum": ["long-poll", "true", "1", "false", "0"]}),
                _query("timeout", _DURATION, "Wait: milliseconds, or a duration such as 2s. Above 5 s: 408."),
                _header("If-None-Match", _TEXT),
            ],
        ),
    }


def _server(name: str, summary: str) -> Json:
    shown = {"application/json": {"schema": {"type": "object"}}}
    answers = {"200": _answer("As it is.", content=shown)}
    return {"get": _operation(f"showServer{name}", summary, answers, ("401", "403", "500"))}


def _touch(method: str, name: str, summary: str, errors: tuple[str, ...]) -> Json:
    shown = {"application/json": {"schema": {"type": "object"}}}
    more: Json = {}
    if method == "post":
        more["requestBody"] = {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
    answers = {"200": _answer("Done; of a wait: touched, stale, or time was up.", content=shown)}
    return {
        "parameters": [_parameter("name", "path", _NAME, required=True)],
        method: _operation(name, summary, answers, tuple(dict.fromkeys((*_COMMON, *errors))), **more),
    }


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
