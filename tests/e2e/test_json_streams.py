"""A schema changes under writers on three cold processes while their stream is sealed: nothing slips between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import orjson

from tests.e2e.test_indexing import eventually
from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS, Pipeline

WRITERS = 3
BATCHES = 60
RECORDS = 3
PAUSE_S = 0.03
DEADLINE_S = 200
LARGE = 2**53  # where doubles begin to lose integers
JSON = {"Content-Type": "application/json"}


def schema(field: str) -> dict[str, Any]:
    return {"type": "object", "required": [field, "writer"], "properties": {field: {"type": "integer"}}}


def search(*places: str) -> dict[str, Any]:
    number = {"kind": "integer", "exact": True, "column": True}
    bindings = [{"version": at, "jsonPointer": f"/{field}"} for at, field in enumerate(places, start=1)]
    time_ = {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": True}
    writer = {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/writer"}], "exact": True}
    return {
        "primaryTimestampField": "at",
        "fields": {"at": time_, "n": {**number, "bindings": bindings}, "writer": writer},
    }


FIRST = {"schema": schema("n"), "search": search("n"), "routingKey": {"jsonPointer": "/writer", "required": True}}
RENAME = {
    "apiVersion": "durable.lens/v1",
    "schema": "orders",
    "from": 1,
    "to": 2,
    "ops": [{"op": "rename", "from": "/n", "to": "/m"}],
}
SECOND = {"schema": schema("m"), "lens": RENAME, "search": search("n", "m")}


class Writer(threading.Thread):
    """Appends its batches in order; writes the other field from when it is told that the first one is wrong."""

    def __init__(self, url: str, name: str, changed: threading.Event) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.label = name
        self.changed = changed
        self.field = "n"
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with httpx.Client(timeout=30) as client:
                for batch in range(BATCHES):
                    self._append(client, batch)
                    time.sleep(PAUSE_S)  # the writers must still be at work when the schema changes
            assert self.field == "m", "the change came too late to be met"
        except BaseException as exc:  # noqa: BLE001 - reported by the test
            self.error = exc

    def _append(self, client: httpx.Client, batch: int) -> None:
        headers = {**JSON, "Producer-Id": self.label, "Producer-Epoch": "0", "Producer-Seq": str(batch)}
        while True:
            is_late = self.changed.is_set()
            numbers = range(LARGE + batch * RECORDS, LARGE + (batch + 1) * RECORDS)
            body = orjson.dumps([{self.field: number, "writer": self.label} for number in numbers])
            answer = client.post(self.url, content=body, headers=headers)
            if answer.status_code == 400 and self.field == "n":
                self.field = "m"
                continue
            if answer.status_code in (200, 204):
                assert not (is_late and self.field == "n"), "accepted under a schema that was replaced before"
                return
            assert answer.status_code in (408, 429), (answer.status_code, answer.text)
            time.sleep(float(answer.headers.get("retry-after", "0.5")))  # as long as the server asks for


def read_all(url: str, **params: str) -> list[Any]:
    found: list[Any] = []
    offset = "-1"
    with httpx.Client(timeout=30) as client:
        while True:
            answer = client.get(url, params={**params, "offset": offset})
            assert answer.status_code == 200, (answer.status_code, answer.text)
            found.extend(orjson.loads(answer.content))
            offset = answer.headers["stream-next-offset"]
            if answer.headers.get("stream-up-to-date") == "true":
                return found


def write_through_a_change(server: DevServer) -> str:
    """Writes a stream while its schema changes; returns its URL."""
    url = f"{server.url}/v1/stream/orders"
    assert httpx.put(url, headers=JSON).status_code == 201
    assert httpx.post(f"{url}/_schema", json=FIRST).status_code == 200
    changed = threading.Event()
    writers = [Writer(url, f"writer-{number}", changed) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    while len(read_all(url)) < WRITERS * BATCHES * RECORDS // 3:
        assert all(writer.error is None for writer in writers), [writer.error for writer in writers]
        time.sleep(PAUSE_S)  # between two reads of the whole stream
    deadline = time.monotonic() + DEADLINE_S
    while (answer := httpx.post(f"{url}/_schema", json=SECOND, timeout=30)).status_code == 429:
        assert time.monotonic() < deadline, answer.text
        time.sleep(int(answer.headers["retry-after"]))  # the writers were faster: the change is asked for again
    changed.set()
    assert (answer.status_code, answer.json().get("currentVersion")) == (200, 2), answer.text
    for writer in writers:
        writer.join(DEADLINE_S)
        assert not writer.is_alive(), "did not finish in time"
        assert writer.error is None, writer.error
    return url


def test_every_record_is_of_the_schema_at_its_place_and_is_found_by_its_new_name() -> None:
    arguments = ["--api-processes", "3", "--cold", "--seal-records", "60", "--seal-age", "1s"]
    with dev_server(*arguments, "--state-age", "1s", "--trim-age", "6s", environment=NO_METRICS) as server:
        url = write_through_a_change(server)
        records = read_all(url)
        labels = [f"writer-{number}" for number in range(WRITERS)]
        for label in labels:  # exactly once, in the writer's order, whatever they were called then
            written = [record["m"] - LARGE for record in records if record["writer"] == label]
            assert written == list(range(BATCHES * RECORDS))
        assert all(set(record) == {"m", "writer"} for record in records)
        low, high = LARGE + 50, LARGE + BATCHES * RECORDS - 1
        asked: list[tuple[dict[str, str], Callable[[int, str], bool]]] = [
            ({"key": "writer-1"}, lambda n, writer: writer == "writer-1"),
            ({"filter": f"n:{low + 1}"}, lambda n, writer: n == low + 1),
            ({"filter": f"n:{high}"}, lambda n, writer: n == high),
            ({"filter": f"n:<{low} -writer:writer-0"}, lambda n, writer: n < low and writer != "writer-0"),
            ({"filter": f"n:>={low}", "key": "writer-2"}, lambda n, writer: n >= low and writer == "writer-2"),
            ({"filter": "has:at"}, lambda n, writer: False),
        ]
        for params, wanted in asked:
            assert read_all(url, **params) == [
                record for record in records if wanted(record["m"], record["writer"])
            ], params
        eventually(lambda: Pipeline(server).of("orders").segments > 1, "orders is not sealed")
