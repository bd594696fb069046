"""Sixteen writers, three API processes, one stream being sealed and trimmed: the acceptance test of the spine."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from typing import Any

import httpx
import orjson
import pytest

from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS, Pipeline

pytestmark = pytest.mark.full  # `tests/chaos` has more of the same for every push: faults, kills, and other laws
WRITERS = 16
BATCHES, FULL_BATCHES = 80, 200  # of each writer
RECORDS = 5
PAUSE_S = 0.05  # between a writer's batches
DEADLINE_S = 300
TRIM_S = 60


class Writer(threading.Thread):
    """Appends its batches in order as an idempotent producer; repeats what was refused or of unknown outcome."""

    def __init__(self, url: str, number: int, batches: int) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.number = number
        self.batches = batches
        self.tries: Counter[int] = Counter()
        self.retried: Counter[int] = Counter()
        self.acknowledged: list[int] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with httpx.Client(timeout=30) as client:
                for batch in range(self.batches):
                    self._append(client, batch)
                    time.sleep(PAUSE_S)  # the load must last over several seals
        except BaseException as exc:  # noqa: BLE001 - reported by the test
            self.error = exc

    def _append(self, client: httpx.Client, batch: int) -> None:
        body = orjson.dumps([{"writer": self.number, "batch": batch, "part": part} for part in range(RECORDS)])
        headers = {
            "Content-Type": "application/json",
            "Producer-Id": f"writer-{self.number}",
            "Producer-Epoch": "0",
            "Producer-Seq": str(batch),
        }
        while True:
            answer = client.post(self.url, content=body, headers=headers)
            if answer.status_code in (200, 204):
                self.acknowledged.append(batch)
                tries = re.search(r'desc="tries (\d+)"', answer.headers.get("server-timing", ""))
                if tries:
                    self.tries[int(tries[1])] += 1
                return
            assert answer.status_code in (408, 429), (answer.status_code, answer.text)
            self.retried[answer.status_code] += 1
            time.sleep(float(answer.headers.get("retry-after", "0.5")))  # as long as the server asks for


class Follower(threading.Thread):
    """Reads from the start through long-polls until it has seen `expected` records."""

    def __init__(self, url: str, expected: int) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.expected = expected
        self.seen: list[Any] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            offset = "-1"
            until = time.monotonic() + DEADLINE_S
            with httpx.Client(timeout=30) as client:
                while len(self.seen) < self.expected and time.monotonic() < until:
                    answer = client.get(self.url, params={"offset": offset, "live": "long-poll"})
                    assert answer.status_code in (200, 204), (answer.status_code, answer.text)
                    offset = answer.headers["stream-next-offset"]
                    if answer.status_code == 200:
                        self.seen.extend(orjson.loads(answer.content))
        except BaseException as exc:  # noqa: BLE001 - reported by the test
            self.error = exc


def read_all(url: str) -> list[Any]:
    """Returns every record, by catch-up reads."""
    found: list[Any] = []
    offset = "-1"
    with httpx.Client(timeout=30) as client:
        while True:
            answer = client.get(url, params={"offset": offset})
            assert answer.status_code == 200, (answer.status_code, answer.text)
            found.extend(orjson.loads(answer.content))
            offset = answer.headers["stream-next-offset"]
            if answer.headers.get("stream-up-to-date") == "true":
                return found


def run(server: DevServer, batches: int) -> tuple[list[Writer], Follower, list[Any]]:
    url = f"{server.url}/v1/stream/contended"
    assert httpx.put(url, headers={"Content-Type": "application/json"}).status_code == 201
    writers = [Writer(url, number, batches) for number in range(WRITERS)]
    follower = Follower(url, WRITERS * batches * RECORDS)
    for thread in [follower, *writers]:
        thread.start()
    for thread in [*writers, follower]:
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "did not finish in time"
    return writers, follower, read_all(url)


def test_concurrent_writers_lose_nothing_double_nothing_and_keep_their_order(
    capsys: pytest.CaptureFixture[str], full: bool
) -> None:
    batches_of_each = FULL_BATCHES if full else BATCHES
    arguments = ["--api-processes", "3", "--seal-records", "500", "--seal-age", "1s"]
    with dev_server(*arguments, "--state-age", "1s", "--trim-age", "6s", environment=NO_METRICS) as server:
        writers, follower, records = run(server, batches_of_each)
        pipeline = Pipeline(server)
        until = time.monotonic() + TRIM_S
        while not pipeline.metric("ItemsTrimmed") and time.monotonic() < until:
            time.sleep(0.2)  # polls the metrics file
        segments, trimmed = pipeline.metric("SegmentsSealed"), pipeline.metric("ItemsTrimmed")
        assert pipeline.of("contended").segments >= segments
    for thread in [*writers, follower]:
        assert thread.error is None, thread.error

    tries: Counter[int] = sum((writer.tries for writer in writers), Counter())
    retried: Counter[int] = sum((writer.retried for writer in writers), Counter())
    commits = sum(tries.values())
    with capsys.disabled():
        print(
            f"\nsegments cut: {segments}  items trimmed: {trimmed}\n"
            f"tries per commit: mean {sum(n * c for n, c in tries.items()) / commits:.2f} "
            f"max {max(tries)} {dict(sorted(tries.items()))}  retried answers: {dict(retried)}"
        )
    assert segments > 0
    assert trimmed > 0

    assert records == follower.seen, "a follower from the start saw other records than a reader at the end"
    batches = [tuple(records[at : at + RECORDS]) for at in range(0, len(records), RECORDS)]
    for batch in batches:  # whole: the parts of one batch stand together, in order
        assert [part["part"] for part in batch] == list(range(RECORDS))
        assert len({(part["writer"], part["batch"]) for part in batch}) == 1
    order: dict[int, list[int]] = {number: [] for number in range(WRITERS)}
    for batch in batches:
        order[batch[0]["writer"]].append(batch[0]["batch"])
    for writer in writers:  # exactly once, in the writer's order
        assert order[writer.number] == writer.acknowledged == list(range(batches_of_each))
