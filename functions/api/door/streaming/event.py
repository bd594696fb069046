"""A Function URL's event, as the request that an ASGI application takes. Pure."""

from __future__ import annotations

import base64
from typing import Any

from functions.api.door.buffered import ENDS_AT

Json = dict[str, Any]


def scope_of(event: Json, ends_at_ms: int) -> Json:
    """The ASGI scope of an event of payload format 2.0. `TruePath` corrects its path.

    `ends_at_ms` (epoch) is when the answer has to be over, so that it can end by itself.
    """
    http = event["requestContext"]["http"]
    path = str(event["rawPath"])
    headers = _headers(event)
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": http["method"],
        "scheme": dict(headers).get(b"x-forwarded-proto", b"https").decode("latin-1"),
        "path": path,
        "raw_path": path.encode(),
        "query_string": event.get("rawQueryString", "").encode(),
        "root_path": "",
        "headers": headers,
        "server": (event["requestContext"].get("domainName", ""), 443),
        "client": (http.get("sourceIp", ""), 0),
        "aws.event": event,
        ENDS_AT: ends_at_ms,
    }


def body_of(event: Json) -> bytes:
    """The request's body. An event holds all of it: Lambda streams answers, not requests."""
    body = event.get("body") or ""
    return base64.b64decode(body) if event.get("isBase64Encoded") else body.encode()


def _headers(event: Json) -> list[tuple[bytes, bytes]]:
    """Names in lower case. Lambda joins repeated headers with a comma, and keeps cookies apart."""
    headers = [(name.lower().encode("latin-1"), _bytes(value)) for name, value in event.get("headers", {}).items()]
    cookies = event.get("cookies") or []
    return [*headers, (b"cookie", _bytes("; ".join(cookies)))] if cookies else headers


def _bytes(value: str) -> bytes:
    """A header's value as it was sent: JSON can only hold it as text."""
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode()
