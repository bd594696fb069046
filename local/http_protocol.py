"""uvicorn's HTTP protocol, with an answer to unparseable requests (an unknown method among them) in the API's envelope."""

from __future__ import annotations

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD = (
    b"HTTP/1.1 400 Bad Request\r\n"
    b"content-type: application/json; charset=utf-8\r\n"
    b"cache-control: no-store\r\n"
    b"x-content-type-options: nosniff\r\n"
    b"cross-origin-resource-policy: cross-origin\r\n"
    b"access-control-allow-origin: *\r\n"
    b"connection: close\r\n"
)


class EnvelopeProtocol(HttpToolsProtocol):
    """Everything else is uvicorn's."""

    def send_400_response(self, msg: str) -> None:
        """Writes the error and closes the connection."""
        body = orjson.dumps({"error": {"code": "bad_request", "message": msg.rstrip(".").lower()}})
        self.transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (_HEAD, len(body), body))
        self.transport.close()
