"""One try of one request, and records that tell whether they came back as they went."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import orjson

from headrace.wal.state import Cursor, decode_cursor
from tests.chaos.history import History, Life, Page

NOTHING_WRITTEN = frozenset({429, 503})
UNKNOWN = frozenset({0, 408, 500, 502, 504})
TIMEOUT_S = 20.0
PATIENCE_S = 60.0  # of somebody who repeats until it is answered
JSON, TEXT = "application/json", "text/plain"


class Answer(NamedTuple):
    """Status 0: the connection broke, or nobody answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Impatient(AssertionError):
    """Nothing but failures for too long."""


class Client:
    """A connection of one thread. Counts answers by method and status."""

    def __init__(self, url: str, history: History, random: Random, prefix: str = "/v1/stream/") -> None:
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT_S)
        self._prefix = prefix
        self._history = history
        self._random = random
        self.answers: Counter[tuple[str, int]] = Counter()

    def close(self) -> None:
        """Lets go of the connection."""
        self._http.close()

    def send(
        self,
        method: str,
        stream: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends a request once; returns the answer, with status 0 if the connection broke. Any 500 is noted as a
        surprise.
        """
        try:
            found = self._http.request(
                method, self._prefix + quote(stream), headers=dict(headers or {}), content=body, params=query
            )
            answer = Answer(found.status_code, found.headers, found.content)
        except httpx.TransportError:
            answer = Answer(0, {}, b"")
        self.answers[method, answer.status] += 1
        if answer.status == 500:
            self.surprise(method, stream, answer)
        return answer

    def until(
        self, wanted: set[int], method: str, stream: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Answer:
        """Repeats what was refused for now or is of unknown outcome, until one of `wanted` comes.

        Raises:
            Impatient: it did not come. Another status is a surprise, and ends it, too.
        """
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = self.send(method, stream, headers, body)
            if answer.status in wanted:
                return answer
            if answer.status not in NOTHING_WRITTEN | UNKNOWN:
                self.surprise(method, stream, answer)
                break
            self.wait()
        raise Impatient(f"{method} {stream} {dict(headers)}: {answer.status} {answer.body[:200]!r}")

    def wait(self) -> None:
        """Waits a moment before the next try."""
        # Of random length, so that clients that were refused together come back apart.
        time.sleep(0.02 + self._random.random() * 0.2)

    def surprise(self, method: str, stream: str, answer: Answer) -> None:
        """Notes an answer that should not be."""
        self._history.surprises.append(f"{method} {stream}: {answer.status} {answer.body[:200]!r}")

    def read(self, reader: str, stream: str, kind: str, offset: str, start: int, *, live: bool) -> Answer:
        """Reads once; returns the answer, and notes the page that it shows."""
        query = {"offset": offset, **({"live": "long-poll", "timeout": "1s"} if live else {})}
        started = time.monotonic()
        answer = self.send("GET", stream, query=query)
        if answer.status in (200, 204):
            following, tail = position(answer, "stream-next-offset"), position(answer, "stream-end-offset")
            ids = tuple(parse(answer.body, kind)) if answer.status == 200 else ()
            closed = answer.headers.get("stream-closed") == "true"
            life = Life(stream, following.incarnation or 0)
            page = Page(
                reader, life, start, ids, following.position, tail.position, started, time.monotonic(), closed
            )
            self._history.pages.append(page)
        return answer

    def read_all(self, reader: str, stream: str, kind: str) -> Life:
        """Reads a stream that nobody writes to, from its start to its end."""
        offset, start = "-1", 0
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = self.read(reader, stream, kind, offset, start, live=False)
            if answer.status != 200:
                if answer.status not in NOTHING_WRITTEN | UNKNOWN:
                    self.surprise("GET", stream, answer)
                self.wait()
                continue
            following = position(answer, "stream-next-offset")
            offset, start = answer.headers["stream-next-offset"], following.position
            if answer.headers.get("stream-up-to-date") == "true":
                life = Life(stream, following.incarnation or 0)
                self._history.whole.add(life)
                return life
        raise Impatient(f"{stream} could not be read to its end")


def position(answer: Answer, header: str) -> Cursor:
    """Returns the cursor in a header of an answer."""
    return decode_cursor(answer.headers[header])


def body_of(ids: tuple[str, ...], kind: str, pads: list[str]) -> bytes:
    """Returns a request's body: records that carry their id and a checksum. A text stream takes one record at a time."""
    texts = [f"{found}|{zlib.crc32((found + pad).encode())}|{pad}" for found, pad in zip(ids, pads, strict=True)]
    return orjson.dumps(texts) if kind == JSON else "".join(text + "\n" for text in texts).encode()


def parse(body: bytes, kind: str) -> list[str]:
    """Returns the ids of the records of a page. Raises AssertionError if a record is not as it was sent."""
    texts: list[Any] = orjson.loads(body) if kind == JSON else body.decode().splitlines()
    found = []
    for text in texts:
        record_id, checksum, pad = text.split("|")
        assert zlib.crc32((record_id + pad).encode()) == int(checksum), f"altered record: {text[:80]}"
        found.append(record_id)
    return found
