"""Measures questions in a process of its own, as one Lambda would answer them, and prints the figures as JSON.

    python -m benchmarks.search.client BUCKET --endpoint URL --mode data --turns 9

The whole request path of the API runs in this process, without a server in front; ranged GETs go over HTTP to an object
store that takes its time. Modes:

    cold      the first request of the process, for one question (`--question`); imports were made before
    opened    the runs are known (manifests, descriptors), nothing else is kept
    data      caches as they come, after a warm-up with other parameters
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import click
import orjson

from benchmarks.search.directory import DirectoryObjects
from benchmarks.search.load import STREAM, reopened
from benchmarks.search.queries import QUESTIONS, Request, parameters
from benchmarks.search.range_server import BUCKET
from headrace.objects import Objects, Range

WARM_TURNS = 3


class Measured(NamedTuple):
    """One request: wall and CPU milliseconds, and what it fetched."""

    wall_ms: float
    cpu_ms: float
    gets: int
    bytes: int
    status: int
    answer_bytes: int


class Fetched:
    """Objects, and how many GETs and bytes were fetched of them."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.gets = self.bytes = 0

    def get(self, key: str) -> bytes:
        """Counted."""
        self.gets += 1
        data = self._objects.get(key)
        self.bytes += len(data)
        return data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Counted."""
        return self.get_ranges([Range(key, start, length)])[0]

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Counted, one by one."""
        self.gets += len(ranges)
        found = self._objects.get_ranges(ranges)
        self.bytes += sum(map(len, found))
        return found

    def __getattr__(self, name: str) -> Any:
        """Returns any other attribute of the object store; its calls are not counted."""
        return getattr(self._objects, name)


class Api:
    """The application over stores that read a bucket through HTTP; called without a server."""

    def __init__(self, root: Path, endpoint: str, *, keeps_data: bool) -> None:
        """Builds the client. With `keeps_data` it caches as always; without, it keeps only manifests and descriptors."""
        os.environ.update(
            AWS_ENDPOINT_URL=endpoint,
            AWS_ACCESS_KEY_ID="bench",
            AWS_SECRET_ACCESS_KEY="bench",
            AWS_REGION="us-east-1",
            AWS_LAMBDA_FUNCTION_NAME="bench",  # blocking calls run inline, as there
        )
        from functions.access import parse
        from functions.api.app import create_app
        from functions.api.context import assemble
        from headrace.index.fetching import CachedRanges
        from headrace.index.reading import Runs
        from headrace.objects.fast import FastObjects
        from headrace.objects.s3 import S3Objects, make_client
        from headrace.settings import Settings

        stores = reopened(DirectoryObjects(root), Settings(metrics_interval_ms=0, request_counts_ms=0))
        client = make_client(read_timeout_s=20)
        self.fetched = Fetched(S3Objects(BUCKET, client, fast=FastObjects(BUCKET, client, timeout_s=20)))
        parts = assemble(replace(stores, objects=self.fetched), parse(""))
        if not keeps_data:
            objects, monotonic = parts.engine().objects, parts.clock.monotonic
            nothing = CachedRanges(objects, memory_bytes=0, monotonic=monotonic)
            engine = replace(parts.engine(), ranges=nothing, runs=Runs(decoded_bytes=0))
            parts = replace(parts, engine=lambda: engine)
        self._app = create_app(parts)
        self._loop = asyncio.new_event_loop()

    def ask(self, request: Request) -> tuple[int, bytes]:
        """Status and body of one request."""
        body = b"" if request.body is None else orjson.dumps(request.body)
        return self._loop.run_until_complete(self._call(request.resource, request.query or {}, body))

    def measure(self, request: Request) -> Measured:
        """Sends one request; returns what it cost."""
        gets, size = self.fetched.gets, self.fetched.bytes
        wall, cpu = time.perf_counter(), time.process_time()
        status, body = self.ask(request)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        fetched = self.fetched.gets - gets, self.fetched.bytes - size
        return Measured(wall * 1000, cpu * 1000, *fetched, status, len(body))

    async def _call(self, resource: str, query: dict[str, str], body: bytes) -> tuple[int, bytes]:
        status = 0
        answer = bytearray()
        unread = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not unread:
                await asyncio.Event().wait()
            return unread.pop()

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            answer.extend(message.get("body", b""))

        path = f"/v1/stream/{STREAM}/{resource}"
        await self._app(
            {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "method": "POST" if body else "GET",
                "path": path,
                "raw_path": path.encode(),
                "query_string": urlencode(query).encode(),
                "headers": [
                    (b"content-type", b"application/json"),
                    (b"content-length", str(len(body)).encode()),
                ],
                "scheme": "http",
                "server": ("localhost", 80),
                "client": ("127.0.0.1", 1),
                "root_path": "",
            },
            receive,
            send,
        )
        return status, bytes(answer)


def figures(measured: Sequence[Measured]) -> dict[str, Any]:
    """Medians of one question's turns, and the statuses that were not 200."""
    whole = {name: round(statistics.median(getattr(one, name) for one in measured), 2) for name in Measured._fields}
    return {
        **whole,
        "worst_ms": round(max(one.wall_ms for one in measured), 2),
        "failed": [m.status for m in measured if m.status != 200],
    }


@click.command()
@click.argument("bucket", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--endpoint", required=True, help="Where the bucket is served.")
@click.option("--mode", type=click.Choice(["cold", "opened", "data"]), default="data", show_default=True)
@click.option("--turns", default=9, show_default=True, help="Requests of each question.")
@click.option("--question", help="Only this one, by name.")
@click.option(
    "--samples", type=click.Path(exists=True, path_type=Path), required=True, help="Some of the events, as JSON."
)
def main(bucket: Path, endpoint: str, mode: str, turns: int, question: str | None, samples: Path) -> None:
    """Measure questions over a bucket; see the module's text."""
    # What is imported when it is first needed is not part of a request's time.
    import obstore.auth.boto3
    import obstore.store  # noqa: F401

    import headrace.query.engine.aggregate
    import headrace.query.engine.context
    import headrace.query.engine.routing_keys
    import headrace.query.engine.search  # noqa: F401

    api = Api(bucket, endpoint, keeps_data=mode != "opened")
    events = orjson.loads(samples.read_bytes())
    wanted = [one for one in QUESTIONS if question in (None, one.name)]
    found = {}
    for one in wanted:
        first = 0
        if mode != "cold":
            first = WARM_TURNS
            for turn in range(WARM_TURNS):
                api.ask(one.request(parameters(events, turn)))
        requests = [
            one.request(parameters(events, turn)) for turn in range(first, first + (1 if mode == "cold" else turns))
        ]
        found[one.name] = figures([api.measure(request) for request in requests])
    print(orjson.dumps(found).decode())


if __name__ == "__main__":
    main()
