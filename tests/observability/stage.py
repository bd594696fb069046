"""An emulator in time-lapse, a load on it, and what its metrics say: a minute of the deployment is a second.

The ages of the deployment (seal age, index age, the clocks' period) are a sixtieth of production's. The times of captured
metrics are stretched sixtyfold before the alarms look at them, and so are ages; counts and latencies are not.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from local.cloudwatch.queries import referred
from local.template import read_template
from tests.observability.captures import Capture, Letters
from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS, Pipeline

PERIOD_S = 5.0  # of an alarm, here
OPTIONS = (
    "--seal-age=5s",
    "--index-age=1s",
    "--state-age=1s",
    "--trim-age=6s",
    "--sweep-every=1s",
    "--log-level=warning",
)
KEY, READER = "operator-test-key", "reader-test-key"
DEAD_LETTERS = ("DelayDeadLetterQueueUrl", "StreamDeadLetterQueueUrl", "IndexDeadLetterQueueUrl")
SEARCH = {
    "schema": {"type": "object"},
    "routingKey": {"jsonPointer": "/status", "required": True},
    "search": {
        "primaryTimestampField": "at",
        "fields": {
            "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": True},
            "status": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/status"}], "exact": True},
        },
        "rollups": {
            "counts": {
                "dimensions": ["status"],
                "intervals": ["1h"],
                "measures": {"n": {"kind": "count"}},
            }
        },
    },
}
AT_MS = 1_700_000_000_000


class Stage:
    """A running emulator. `begin` and `end` bound what alarms are shown."""

    def __init__(self, server: DevServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.pipeline = Pipeline(server)
        self.template = read_template()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._letters: list[Letters] = []
        self._begin_ms = self._end_ms = 0
        self.errors: list[Exception] = []
        self.lines: list[str] = []

    def http(self, key: str = KEY) -> httpx.Client:
        """Returns a client with a key."""
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=f"{self.server.url}/v1/stream/", timeout=30, headers=headers)

    def create(self, name: str, *, searchable: bool = False) -> None:
        """A JSON stream."""
        with self.http() as http:
            assert http.put(name, headers={"Content-Type": "application/json"}).status_code == 201
            if searchable:
                answer = http.post(f"{name}/_schema", json=SEARCH)
                assert answer.status_code == 200, answer.text

    def load(self, work: Callable[[httpx.Client, int], None], pause_s: float = 0.1) -> None:
        """Calls `work` with a number that rises, over and over, until the end."""

        def run() -> None:
            try:
                with self.http() as http:
                    number = 0
                    while not self._stop.is_set():
                        work(http, number)
                        number += 1
                        self._stop.wait(pause_s)
            except Exception as exc:  # noqa: BLE001 - told by `finish`
                self.errors.append(exc)

        self._start(run)

    def writers(self, name: str, count: int = 1, pause_s: float = 0.1, *, accepted: tuple[int, ...] = (204,)) -> None:
        """Writers of a stream."""

        def write(http: httpx.Client, number: int) -> None:
            status = http.post(name, json=[record(number)]).status_code
            assert status in accepted, status

        for _ in range(count):
            self.load(write, pause_s)

    def begin(self) -> None:
        """From now on alarms look, and dead letters are counted."""
        self._begin_ms = round(time.time() * 1000)
        self._start(self._count_letters)

    def end(self) -> None:
        """Until now alarms look. The load goes on."""
        self._end_ms = round(time.time() * 1000)

    def wait(self, periods: float) -> None:
        """Lets periods of the alarms go by."""
        deadline = time.monotonic() + periods * PERIOD_S
        while (left := deadline - time.monotonic()) > 0:
            assert not self.errors, self.errors
            # Real time must pass: periods are counted on the wall clock; errors end it early.
            time.sleep(min(left, 0.2))

    def rest(self) -> None:
        """Ends the load."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def finish(self) -> None:
        """Ends the load and keeps what was written."""
        self.rest()
        self.lines = self.server.metric_lines()
        assert not self.errors, self.errors

    def capture(self) -> Capture:
        """Returns what was written, for alarms to look at."""
        return Capture(self._begin_ms, self._end_ms, self.lines, self._letters)

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _count_letters(self) -> None:
        """What SQS tells CloudWatch every minute of each queue."""
        sqs = self.pipeline.client("sqs")
        name = "ApproximateNumberOfMessages"
        while not self._stop.is_set():
            for output in DEAD_LETTERS:
                url = self.server.state["outputs"][output]
                count = int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])
                queue = referred(self.template["Outputs"][output]["Value"])
                self._letters.append(Letters(time.time() * 1000, queue, count))
            self._stop.wait(1)


def record(number: int) -> dict[str, Any]:
    """Returns a record of a searchable stream."""
    return {"at": AT_MS + number, "status": f"s{number % 3}"}


@contextmanager
def stage(
    folder: Path,
    *options: str,
    runs_jobs: bool = False,
    environment: Mapping[str, str] | None = None,
    changed: Callable[[dict[str, Any]], None] | None = None,
) -> Iterator[Stage]:
    """Yields an emulator in time-lapse. `changed` may change its template."""
    arguments = [*OPTIONS, *options]
    if changed is not None:
        template = read_template()
        changed(template)
        path = folder / "template.json"
        path.write_text(json.dumps(template))
        arguments.append(f"--template={path}")
    keys = {"HEADRACE_API_KEYS": f"{KEY},{READER}:read:other"}
    settings = {**NO_METRICS, **keys, **(environment or {})}
    with dev_server(*arguments, environment=settings, runs_jobs=runs_jobs) as server:
        found = Stage(server, folder)
        try:
            yield found
        finally:
            found.finish()
