"""What the parts of the OpenAPI document have in common: kinds of values, errors, and the shapes of operations."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
OFFSET: Json = {"type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$"}
TIME: Json = {"type": "string", "format": "date-time"}
TRUE: Json = {"type": "string", "enum": ["true"]}
NUMBER: Json = {"type": "string", "pattern": "^[0-9]+$"}
TEXT: Json = {"type": "string"}
COUNT: Json = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
NAME: Json = {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[^\\x00-\\x1f\\x7f]+$"}
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


def parameter(name: str, place: str, schema: Json, text: str = "", *, required: bool = False) -> Json:
    """A parameter; `place` is `path`, `query` or `header`."""
    return {"name": name, "in": place, "required": required, "schema": schema, "description": text}


def header(name: str, schema: Json, text: str = "") -> Json:
    """A header of a request that may be absent."""
    return parameter(name, "header", schema, text)


def query(name: str, schema: Json, text: str = "") -> Json:
    """A parameter behind the question mark that may be absent."""
    return parameter(name, "query", schema, text)


def _headers(schemas: Json) -> Json:
    return {name: {"schema": schema} for name, schema in schemas.items()}


def response(text: str, headers: Json | None = None, content: Json | None = None) -> Json:
    """What is answered with one status, with the schemas of its headers."""
    found: Json = {"description": text}
    if headers:
        found["headers"] = _headers(headers)
    if content:
        found["content"] = content
    return found


def operation(name: str, summary: str, answers: Json, errors: tuple[str, ...], **more: Any) -> Json:
    """One method of a path.

    Args:
        answers: by status, where it succeeded.
        errors: statuses that are answered with the envelope of errors.
        more: other members, such as `parameters`.
    """
    responses = dict(answers)
    for status in errors:
        schema = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        responses[status] = response(_ERRORS[status], content=None if name == "describeStream" else schema)
    return {"operationId": name, "summary": summary, "responses": responses, **more}


COMMON = ("400", "401", "403", "404", "410", "500", "503")
WRITES = (*COMMON, "408", "409", "413", "429")
