"""The faults of queues, and their healthy load: jobs that are pushed, and workers that do, fail or forget them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.observability.stage import Stage, stage

THREE_PERIODS = 5.0  # that hold three whole ones, with what comes late
HALF_AN_HOUR = 6.0  # in periods
TOPICS = "/v0/topics/"
_BUSY = frozenset({408, 429, 503})  # a busy machine may be late; alarms judge how often

Fate = Callable[[dict[str, Any]], str | None]
"""Returns what a worker does with a job: `ack` or `nack`; None if it lets the lease end."""


def workers_stopped(folder: Path) -> Stage:
    """Stops the workers of one queue while jobs are still pushed to it. Those of another queue go on."""
    with stage(folder) as run:
        stopped = threading.Event()
        for name, until in (("left", stopped), ("others", threading.Event())):
            create(run, name)
            push(run, name)
            work(run, name, until=until)
        run.begin()
        run.wait(1)
        stopped.set()
        run.wait(HALF_AN_HOUR + THREE_PERIODS)
        run.end()
    return run


def jobs_fail(folder: Path) -> Stage:
    """Lets one job in ten fail as often as it is delivered, until it is in the dead-letter topic."""
    with stage(folder) as run:
        create(run, "jobs", max_deliveries=3, dead_letter="failed")
        push(run, "jobs")
        work(run, "jobs", lambda job: "nack" if job["data"] % 10 == 0 else "ack")
        run.begin()
        run.wait(THREE_PERIODS)
        run.end()
    return run


def leases_end(folder: Path) -> Stage:
    """Lets workers forget each job three times: its lease ends, and it is delivered again."""
    with stage(folder) as run:
        create(run, "jobs")
        push(run, "jobs")
        work(run, "jobs", lambda job: "ack" if job["deliveries"] > 3 else None, lease_ms=200)
        run.begin()
        run.wait(THREE_PERIODS + 1)
        run.end()
    return run


def healthy_load(run: Stage) -> None:
    """Begins what clients do with topics and queues while all is well: a job in ten is given back once."""
    create(run, "jobs", max_deliveries=5, dead_letter="failed")
    push(run, "jobs")
    work(run, "jobs", lambda job: "nack" if job["data"] % 10 == 0 and job["deliveries"] == 1 else "ack")
    create(run, "copies", type="log", cap_records=1000)
    with run.http() as http:
        router = {"source": "jobs", "dest": "copies"}
        assert http.put(http.base_url.copy_with(path="/v0/routers/copying"), json=router).status_code == 201
    run.load(_topics, 0.5)


def _topics(http: httpx.Client, number: int) -> None:
    """Writes, reads and deletes records of a topic; opens a stream of jobs and leaves it now and then."""
    name = f"notes-{number}"
    ask(http, name, records=[{"data": number, "tag": "t"}])
    ask(http, f"{name}/diff")
    ask(http, f"{name}/delete", match="t")
    assert http.delete(url(http, name)).status_code in {200, *_BUSY}
    if number % 10 == 0:
        with http.stream("GET", url(http, "jobs/work"), params={"node": "streaming"}) as stream:
            assert stream.status_code in {200, *_BUSY}
            next(line for line in stream.iter_lines() if line)


def create(run: Stage, name: str, **config: Any) -> None:
    """Creates a queue."""
    with run.http() as http:
        assert http.put(url(http, name), json={"type": "queue", **config}).is_success


def push(run: Stage, name: str) -> None:
    """Pushes jobs to a queue, over and over: their data are numbers that rise."""

    def append(http: httpx.Client, number: int) -> None:
        ask(http, name, records=[{"data": 2 * number}, {"data": 2 * number + 1}])

    run.load(append, 0.2)


def work(
    run: Stage,
    name: str,
    fate: Fate = lambda _: "ack",
    *,
    until: threading.Event | None = None,
    lease_ms: int = 30_000,
) -> None:
    """Claims jobs of a queue, and does to each what `fate` says, until an event is set."""

    def claim(http: httpx.Client, _: int) -> None:
        if until is not None and until.is_set():
            return
        jobs = ask(http, f"{name}/claim", node="worker", max=20, lease_ms=lease_ms).get("claimed", [])
        for verb, more in (("extend", {"lease_ms": lease_ms}), ("ack", {}), ("nack", {})):
            seqs = [job["$seq"] for job in jobs if verb in (fate(job), "extend" if fate(job) else None)]
            if seqs:
                ask(http, f"{name}/{verb}", node="worker", seqs=seqs, **more)

    run.load(claim, 0.1)


def ask(http: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    """Sends a request to a topic; returns the answer, which is empty if the server had no time for it."""
    answer = http.post(url(http, path), json=body)
    if answer.status_code in _BUSY:
        return {}
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


def url(http: httpx.Client, path: str) -> httpx.URL:
    """Returns the address of something of a topic."""
    return http.base_url.copy_with(path=TOPICS + path)
