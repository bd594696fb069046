"""The load's own HTTP client: one kept-alive connection, little work for each request, so that the server is measured."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

TIMEOUT_S = 60
BUSY = frozenset({408, 429, 503})
LONGEST_WAIT_S = 5.0


class LoadFailed(Exception):
    """The server answered with something that a load can't go on from."""


@dataclass(frozen=True)
class Server:
    """Where streams are: a base URL, the path in front of stream names, and a bearer key if one is needed."""

    url: str
    prefix: str = "/v1/stream"
    key: str | None = None

    def path(self, name: str) -> str:
        return f"{self.prefix.rstrip('/')}/{quote(name, safe='')}"


@dataclass(frozen=True)
class Answer:
    """A whole answer, header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """One connection to a server. Not for several threads."""

    def __init__(self, server: Server) -> None:
        parts = urlsplit(server.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "127.0.0.1", parts.port, timeout=TIMEOUT_S)
        self._headers = {"authorization": f"Bearer {server.key}"} if server.key else {}
        self.busy = 0
        """How often the server asked to try again."""

    def close(self) -> None:
        self._connection.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        params: dict[str, str] | None = None,
        content_type: str | None = None,
    ) -> Answer:
        """Sends a request and returns its answer; waits and repeats it while the server is busy. Raises `LoadFailed`
        for an error.
        """
        headers = {**self._headers, "content-type": content_type} if content_type else self._headers
        target = f"{path}?{urlencode(params)}" if params else path
        while True:
            answer = self._send(method, target, body, headers)
            if answer.status < 400:
                return answer
            if answer.status not in BUSY:
                raise LoadFailed(f"{method} {target}: status {answer.status}: {answer.body[:200]!r}")
            self.busy += 1
            time.sleep(min(LONGEST_WAIT_S, float(answer.headers.get("retry-after", "0.05"))))

    def once(self, method: str, path: str, body: bytes | None, content_type: str) -> Answer:
        """Returns the answer to one request, whatever its status."""
        return self._send(method, path, body, {**self._headers, "content-type": content_type})

    def _send(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        """Sends once, and once more on a new connection if the server has closed the idle one."""
        for attempt in (1, 2):
            try:
                self._connection.request(method, target, body=body, headers=headers)
                answer = self._connection.getresponse()
                return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self._connection.close()
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def event_lines(self, path: str, params: dict[str, str]) -> Iterator[bytes]:
        """Lines of a text/event-stream as they arrive, without their ends, until the server ends it."""
        headers = {**self._headers, "accept": "text/event-stream"}
        self._connection.request("GET", f"{path}?{urlencode(params)}", headers=headers)
        answer = self._connection.getresponse()
        if answer.status != 200:
            raise LoadFailed(f"GET {path}: status {answer.status}: {answer.read()[:200]!r}")
        while line := answer.readline():
            yield line.rstrip(b"\r\n")
        self._connection.close()
