"""The same events and questions at the npm server of Prisma Streams, which keeps segments and indexes on the local disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson

from benchmarks.loads import JSON_TYPE
from benchmarks.peers import servers
from benchmarks.search.events import SCHEMA_UPDATE
from benchmarks.search.load import STREAM
from benchmarks.search.queries import Request
from benchmarks.wire import Connection, Server

NAME = "@prisma/streams-server"
_BATCH = 1_000
_POLL_S = 5.0
# Without these the last events stay in its write-ahead log, which every search then scans.
_SETTINGS = {"DS_SEGMENT_MAX_INTERVAL_MS": "15000"}


class Loaded(NamedTuple):
    """How loading and indexing went. `indexed`: what can be is; `stored`: bytes and objects, as it counts them."""

    ingest_s: float
    index_s: float
    indexed: bool
    stored: dict[str, Any]


class Peer:
    """A running peer. One connection."""

    def __init__(self, url: str) -> None:
        self._server = Server(url)
        self._connection = Connection(self._server)
        self._path = self._server.path(STREAM)

    def load(self, blocks: Iterable[list[bytes]], progress: Callable[[int], None], patience_s: float) -> Loaded:
        """Creates the stream, appends the events, and waits for the indexes, at most `patience_s`."""
        began = time.monotonic()
        self._connection.request("PUT", self._path, content_type=JSON_TYPE)
        self._post("_schema", SCHEMA_UPDATE)
        for block in blocks:
            for at in range(0, len(block), _BATCH):
                batch = block[at : at + _BATCH]
                body = b"[" + b",".join(batch) + b"]"
                self._connection.request("POST", self._path, body=body, content_type=JSON_TYPE)
                progress(len(batch))
        ingested = time.monotonic()
        details = self._details()
        while not (done := _is_indexed(details)) and time.monotonic() - ingested < patience_s:
            time.sleep(_POLL_S)
            details = self._details()
        return Loaded(ingested - began, time.monotonic() - ingested, done, details["storage"]["object_storage"])

    def ask(self, request: Request) -> tuple[float, bool]:
        """Milliseconds of one request, and whether the answer was whole (200 and not cut off at a timeout)."""
        began = time.perf_counter()
        path, body = f"{self._path}/{request.resource}", None
        if request.query is not None:
            path += "?" + urlencode(request.query)
        else:
            body = orjson.dumps(request.body)
        status = self._connection.once("GET" if body is None else "POST", path, body, JSON_TYPE).status
        return (time.perf_counter() - began) * 1000, status == 200

    def _post(self, resource: str, document: Any) -> None:
        body = orjson.dumps(document)
        self._connection.request("POST", f"{self._path}/{resource}", body=body, content_type=JSON_TYPE)

    def _details(self) -> dict[str, Any]:
        answer: dict[str, Any] = orjson.loads(self._connection.request("GET", f"{self._path}/_details").body)
        return answer


def _is_indexed(details: dict[str, Any]) -> bool:
    status = details["index_status"]
    segments = status["segments"]
    indexes = [status["routing_key_index"], status["routing_key_lexicon"], *status["exact_indexes"]]
    built = [status["bundled_companions"]["fully_indexed_uploaded_segments"]]
    # An index of its own waits for 16 segments and never covers the last ones: what it can reach counts.
    reachable = segments["uploaded_count"] - segments["uploaded_count"] % 16
    built += [index["indexed_segment_count"] >= reachable for index in indexes]
    uploaded = segments["total_count"] == segments["uploaded_count"]
    return details["stream"]["pending_rows"] == "0" and uploaded and all(built)


@contextmanager
def running() -> Iterator[Peer]:
    """Yields the peer, which runs until the context ends; installs it if it is missing."""
    with servers.running(NAME, _SETTINGS) as url:
        yield Peer(url)
