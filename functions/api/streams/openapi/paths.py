"""The OpenAPI document, written by hand: the routes take raw requests, since most of this protocol is headers."""

from __future__ import annotations

from functions.api.streams.openapi.queries import SEARCH_RESULT, aggregate, routing_keys, search
from functions.api.streams.openapi.words import (
    COMMON,
    COUNT,
    NAME,
    NUMBER,
    OFFSET,
    TEXT,
    TIME,
    TRUE,
    WRITES,
    Json,
    header,
    operation,
    parameter,
    query,
    response,
)

VERSION = "1"
_LAST: Json = {"type": "string", "pattern": "^(-1|[0-9]+)$"}
_CURSOR: Json = {"type": "string", "pattern": "^(-1|now|[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{26})$"}
_TIMESTAMP: Json = {"oneOf": [TIME, {"type": "string", "pattern": "^[0-9]{1,18}$"}]}
_DURATION: Json = {"type": "string", "pattern": "^(0|[1-9][0-9]{0,5}(h|m|s)?)$"}
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
                "parameters": [parameter("name", "path", NAME, required=True)],
                "put": _create(),
                "post": _append(),
                "get": _read(),
                "head": _describe(),
                "delete": _delete(),
            },
            "/v1/stream/{name}/pk/{key}": {
                "parameters": [
                    parameter("name", "path", NAME, required=True),
                    parameter("key", "path", NAME, required=True),
                ],
                "get": _read("readStreamByKey", "As a read with `key=`."),
            },
            "/v1/stream/{name}/_schema": _resource("Schema", "the schema registry", _SCHEMA_UPDATE),
            "/v1/stream/{name}/_profile": _resource("Profile", "the profile", _PROFILE_UPDATE),
            "/v1/stream/{name}/touch/meta": _touch(
                "get", "showTouch", "State of the waits for changes.", ("400", "404")
            ),
            "/v1/stream/{name}/touch/wait": _touch("post", "waitForTouch", "Waits for a change.", WRITES),
            "/v1/stream/{name}/touch/templates/activate": _touch(
                "post", "activateTemplates", "Activates templates of queries.", WRITES
            ),
            "/v1/stream/{name}/_search": search(),
            "/v1/stream/{name}/_index_status": _inspection("IndexStatus", "How far segments and indexes are."),
            "/v1/stream/{name}/_details": _inspection("Details", "Everything about the stream."),
            "/v1/stream/{name}/_aggregate": aggregate(),
            "/v1/stream/{name}/_routing_keys": routing_keys(),
            "/v1/streams": {"get": _list()},
            "/v1/server/_details": _server("Details", "Limits and state of the process that answers."),
            "/v1/server/_mem": _server("Memory", "Memory of the process that answers."),
            "/health": {"get": _health()},
        },
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR, "Stream": _STREAM, "SearchResult": SEARCH_RESULT},
        },
    }


_ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": TEXT, "message": TEXT},
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
        "name": TEXT,
        "created_at": TIME,
        "expires_at": {"oneOf": [TIME, {"type": "null"}]},
        "epoch": {"type": "integer", "minimum": 0},
        "next_offset": NUMBER,
        "sealed_through": _LAST,
        "uploaded_through": _LAST,
        "content_type": TEXT,
        "profile": TEXT,
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
        "profile": {"type": "object", "required": ["kind"], "properties": {"kind": TEXT}},
    },
    "additionalProperties": False,
}
_POSITION: Json = {"Stream-Next-Offset": OFFSET}
_BODY: Json = {
    "required": False,
    "content": {"application/json": {"schema": {}}, "text/plain": {"schema": TEXT}, "*/*": {"schema": _BYTES}},
}
_RECORD_HEADERS = [
    header("Stream-Closed", TEXT, "`true` closes the stream; any other value counts as absent."),
    header("Stream-Key", {"type": "string", "maxLength": 4096}, "Key of the records."),
    header("Stream-Timestamp", _TIMESTAMP, "Append time: RFC 3339, or unix nanoseconds. Never falls."),
]
_DESCRIBED: Json = {
    **_POSITION,
    "Stream-End-Offset": OFFSET,
    "Stream-TTL": NUMBER,
    "Stream-Expires-At": TIME,
    "Stream-Closed": TRUE,
}


def _create() -> Json:
    return operation(
        "createStream",
        "Creates a stream or a fork, or finds an equal one.",
        {
            "200": response("An equal stream stood there already.", _DESCRIBED),
            "201": response("Created.", {**_DESCRIBED, "Location": TEXT}),
        },
        WRITES,
        parameters=[
            header(
                "Stream-TTL", _DURATION, "Whole seconds, or a duration such as 1h30m: expires when idle that long."
            ),
            header("Stream-Expires-At", TIME, "RFC 3339. Excludes Stream-TTL."),
            header("Stream-Forked-From", TEXT, "Path of the source of a fork."),
            header("Stream-Fork-Offset", _CURSOR, "Where the fork begins; the source's tail if absent."),
            header("Stream-Fork-Sub-Offset", COUNT, "Records (JSON) or bytes past that offset."),
            *_RECORD_HEADERS,
        ],
        requestBody=_BODY,
    )


def _append() -> Json:
    done: Json = {**_POSITION, "Stream-Closed": TRUE, "Producer-Epoch": NUMBER, "Producer-Seq": NUMBER}
    return operation(
        "appendToStream",
        "Appends records, closes the stream, or both.",
        {
            "200": response("New data of an idempotent producer was appended.", done),
            "204": response("Appended; or closed; or a repeat of something done already.", done),
        },
        WRITES,
        parameters=[
            header("Stream-Seq", {"type": "string", "minLength": 1, "maxLength": 256}, "Must rise, byte by byte."),
            header("Producer-Id", {"type": "string", "minLength": 1, "maxLength": 256}),
            header("Producer-Epoch", COUNT),
            header("Producer-Seq", COUNT),
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
        "Stream-End-Offset": OFFSET,
        "Stream-Up-To-Date": TRUE,
        "Stream-Closed": TRUE,
        "Stream-Cursor": NUMBER,
        "ETag": TEXT,
        "Cache-Control": TEXT,
    }
    content: Json = {
        "application/json": {"schema": {}},
        "text/event-stream": {"schema": {}},
        "*/*": {"schema": {}},
    }
    return operation(
        name,
        summary,
        {
            "200": response("Records.", page, content),
            "204": response("A long-poll that saw nothing new.", page),
            "304": response("The page named by If-None-Match is still the one.", page),
        },
        (*COMMON, "408"),
        parameters=[
            query("offset", _CURSOR, "A cursor, `-1` (start, the default) or `now` (tail)."),
            query("since", _TIMESTAMP, "First record appended at or after this time. An offset wins."),
            query("format", {"type": "string", "enum": ["json", "raw"]}),
            query("live", {"type": "string", "enum": ["long-poll", "true", "1", "sse", "false", "0"]}),
            query("timeout", _DURATION, "Wait: milliseconds, or a duration such as 2s. Above 5 s: 408."),
            query("cursor", TEXT, "The last Stream-Cursor."),
            query("key", TEXT, "Only records of this routing key."),
            query("filter", TEXT, "Only records that match, by the fields of the search configuration."),
            header("If-None-Match", TEXT),
        ],
    )


def _describe() -> Json:
    return operation(
        "describeStream", "What a stream is and how far it reaches.", {"200": response("Alive.", _DESCRIBED)}, COMMON
    )


def _resource(name: str, what: str, update: Json) -> Json:
    shown = {"application/json": {"schema": {"type": "object"}}}
    return {
        "parameters": [parameter("name", "path", NAME, required=True)],
        "get": operation(f"show{name}", f"Shows {what}.", {"200": response("As it is.", content=shown)}, COMMON),
        "post": operation(
            f"change{name}",
            f"Changes {what}.",
            {"200": response("As it is now.", content=shown)},
            WRITES,
            requestBody={"required": True, "content": {"application/json": {"schema": update}}},
        ),
    }


def _inspection(name: str, summary: str) -> Json:
    shown = {"application/json": {"schema": {"type": "object"}}}
    tag: Json = {"ETag": TEXT}
    return {
        "parameters": [parameter("name", "path", NAME, required=True)],
        "get": operation(
            f"show{name}",
            summary,
            {
                "200": response("As it is.", tag, shown),
                "304": response("As If-None-Match says, and so until the wait was over.", tag),
            },
            (*COMMON, "408"),
            parameters=[
                query("live", {"type": "string", "enum": ["long-poll", "true", "1", "false", "0"]}),
                query("timeout", _DURATION, "Wait: milliseconds, or a duration such as 2s. Above 5 s: 408."),
                header("If-None-Match", TEXT),
            ],
        ),
    }


def _server(name: str, summary: str) -> Json:
    shown = {"application/json": {"schema": {"type": "object"}}}
    answers = {"200": response("As it is.", content=shown)}
    return {"get": operation(f"showServer{name}", summary, answers, ("401", "403", "500"))}


def _touch(method: str, name: str, summary: str, errors: tuple[str, ...]) -> Json:
    shown = {"application/json": {"schema": {"type": "object"}}}
    more: Json = {}
    if method == "post":
        more["requestBody"] = {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
    answers = {"200": response("Done; of a wait: touched, stale, or time was up.", content=shown)}
    return {
        "parameters": [parameter("name", "path", NAME, required=True)],
        method: operation(name, summary, answers, tuple(dict.fromkeys((*COMMON, *errors))), **more),
    }


def _delete() -> Json:
    answers = {"204": response("Deleted, now or before.")}
    return operation("deleteStream", "Deletes a stream.", answers, (*COMMON, "408", "409", "429"))


def _list() -> Json:
    schema: Json = {"type": "array", "items": {"$ref": "#/components/schemas/Stream"}}
    return operation(
        "listStreams",
        "Living streams in name order.",
        {"200": response("Streams.", content={"application/json": {"schema": schema}})},
        ("400", "401", "403", "500", "503"),
        parameters=[
            query("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}),
            query("offset", {"type": "integer", "minimum": 0, "maximum": 10_000, "default": 0}, "Rows to skip."),
            query("after", TEXT, "Only names above this one."),
            query("prefix", TEXT, "Only names that begin so."),
        ],
    )


def _health() -> Json:
    schema: Json = {"type": "object", "properties": {"status": {"const": "ok"}}}
    answer = response("This process answers.", content={"application/json": {"schema": schema}})
    return {"operationId": "health", "summary": "Liveness.", "security": [{}], "responses": {"200": answer}}
