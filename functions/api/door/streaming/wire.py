"""A streamed answer to the Runtime API, byte by byte: head, prelude, chunks, and an end that tells if it is whole. Pure.

The body is chunked. It begins with the prelude: a JSON document with status and headers, and eight zero bytes behind it. An
error after the start is told in trailers; Lambda then breaks the client's connection off. Source: Lambda developer guide,
"Building a custom runtime", § Response streaming; the prelude as the Node.js runtime writes it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable

SEPARATOR = b"\0" * 8
ERROR_TYPE = "Lambda-Runtime-Function-Error-Type"
ERROR_BODY = "Lambda-Runtime-Function-Error-Body"
END = b"0\r\n\r\n"


def head(host: str, request_id: str) -> bytes:
    """The request that carries the answer of an invocation."""
    lines = (
        f"POST /2018-06-01/runtime/invocation/{request_id}/response HTTP/1.1",
        f"Host: {host}",
        "Lambda-Runtime-Function-Response-Mode: streaming",
        "Content-Type: application/vnd.awslambda.http-integration-response",
        "Transfer-Encoding: chunked",
        f"Trailer: {ERROR_TYPE}, {ERROR_BODY}",
    )
    return "\r\n".join((*lines, "", "")).encode()


def prelude(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Status and headers. A header that stands several times becomes one, joined by commas, but cookies stay apart."""
    joined: dict[str, str] = {}
    cookies: list[str] = []
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name == "set-cookie":
            cookies.append(value)
        else:
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return json.dumps({"statusCode": status, "headers": joined, "cookies": cookies}).encode() + SEPARATOR


def chunk(data: bytes) -> bytes:
    """One chunk. Of nothing: nothing, since an empty chunk would be the end."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def failed_end(kind: str, message: str) -> bytes:
    """The end of an answer that is not whole."""
    body = base64.b64encode(error(kind, message)).decode()
    return f"0\r\n{ERROR_TYPE}: {kind}\r\n{ERROR_BODY}: {body}\r\n\r\n".encode()


def error(kind: str, message: str) -> bytes:
    """The document that tells Lambda of an error."""
    return json.dumps({"errorMessage": message, "errorType": kind, "stackTrace": []}).encode()
