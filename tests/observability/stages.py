"""The faults: what each run does to its emulator."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.test_indexing import children, eventually, runs_under_way
from tests.observability import faulty, queue_stages
from tests.observability.captures import Capture
from tests.observability.queue_stages import THREE_PERIODS
from tests.observability.stage import PERIOD_S, READER, Stage, record, stage

HEALTHY = "healthy"


def healthy(folder: Path) -> Stage:
    """Does everything that a server does, with mistakes that clients make."""
    with stage(folder, runs_jobs=True) as run:
        run.create("orders")
        run.create("departures", searchable=True)
        run.create("short-lived")
        with run.http() as http:
            assert http.put("blobs", headers={"Content-Type": "text/plain"}).status_code == 201
        run.writers("departures")
        run.writers("orders", 2)
        eventually(lambda: run.pipeline.metric("JobsSucceeded"), "no job run succeeded")  # Spark is warm now
        run.begin()
        run.load(_reads_and_asks, 0.2)
        run.load(_mistakes, 1.0)
        queue_stages.healthy_load(run)
        run.wait(7)
        with run.http() as http:
            assert http.delete("short-lived").status_code == 204
        run.wait(3)
        run.end()
        run.rest()  # what follows the load is still to come
        eventually(lambda: run.pipeline.metric("LogsPurged"), "nothing was purged")
        eventually(lambda: run.pipeline.metric("ItemsTrimmed"), "nothing was trimmed")
        eventually(lambda: run.pipeline.metric("SegmentsMerged"), "no done job was blanked")
    return run


def _reads_and_asks(http: httpx.Client, number: int) -> None:
    asked = {"rollup": "counts", "from": "2023-11-14T00:00:00Z", "to": "2023-11-15T00:00:00Z", "interval": "1h"}
    answers = [
        http.get("orders"),
        http.get("departures/_search", params={"q": f"status:s{number % 3}"}),
        http.post("departures/_aggregate", json=asked),
        http.get("departures/_routing_keys"),
        http.post("blobs", headers={"Content-Type": "text/plain"}, content=os.urandom(64 * 1024)),
    ]
    statuses = {answer.status_code for answer in answers}
    assert statuses <= {200, 204, 408, 429, 503}, statuses  # a busy machine may be late; alarms judge how often


def _mistakes(http: httpx.Client, number: int) -> None:
    statuses = [
        http.get("absent").status_code,
        http.put("orders", headers={"Content-Type": "text/plain"}).status_code,
        http.get("orders", headers={"Authorization": "Bearer nobody"}).status_code,
        http.get("orders", headers={"Authorization": f"Bearer {READER}"}).status_code,
    ]
    if number == 0:
        late = http.get("short-lived", params={"offset": "now", "live": "long-poll", "timeout": "6s"})
        statuses.append(late.status_code)
    assert statuses[:4] == [404, 409, 401, 403] and statuses[4:] in ([], [408]), statuses


def sealer_stopped(folder: Path) -> Stage:
    """Stops the sealer's instance, as if it hung."""
    with stage(folder) as run:
        run.create("orders")
        run.writers("orders")
        pid = eventually(lambda: _function(run, "Sealer"), "no sealer runs")
        run.begin()
        run.wait(1)
        os.kill(pid, signal.SIGSTOP)
        run.wait(THREE_PERIODS + 1)
        run.end()
        os.kill(pid, signal.SIGKILL)
    return run


def stream_unheard(folder: Path) -> Stage:
    """Removes the sealer's event source of the table: it runs, but nobody tells it of new entries."""

    def without_stream(template: dict[str, Any]) -> None:
        (name,) = (
            name
            for name, part in template["Resources"].items()
            if part["Type"] == "AWS::Lambda::EventSourceMapping" and name.startswith("SealerTriggersStream")
        )
        del template["Resources"][name]

    with stage(folder, changed=without_stream) as run:
        run.create("orders")
        run.writers("orders")
        run.begin()
        run.wait(THREE_PERIODS)
        run.end()
    return run


def log_poisoned(folder: Path) -> Stage:
    """Damages one entry of one log before it is sealed; another log goes on."""
    with stage(folder) as run:
        run.create("orders")
        run.writers("orders")
        run.begin()
        run.wait(1)
        run.create(
            "poisoned"
        )  # now, so that no seal of its first entry takes the damaged one along before it is damaged
        with run.http() as http:
            assert http.post("poisoned", json=[record(0)]).status_code == 204
        _damage(run, "poisoned")
        run.wait(THREE_PERIODS)
        run.end()
    return run


def _damage(run: Stage, name: str) -> None:
    """Writes other bytes over the payload of the first entry that has one."""
    log_id, table = run.pipeline.log_id(name), run.pipeline.settings["HEADRACE_WAL_TABLE"]
    dynamodb = run.pipeline.client("dynamodb")
    for slot in sorted(run.pipeline.entries(log_id)):
        key = {"log_id": {"S": log_id}, "slot": {"N": str(slot)}}
        if "payload" in dynamodb.get_item(TableName=table, Key=key)["Item"]:
            dynamodb.update_item(
                TableName=table,
                Key=key,
                UpdateExpression="SET payload = :payload",
                ExpressionAttributeValues={":payload": {"B": b"these are no frames"}},
            )
            return
    raise AssertionError("no entry has a payload")


def table_throttled(folder: Path) -> Stage:
    """Throttles the api's writes to the table of the write-ahead log."""
    environment = {faulty.FOLDER: str(folder)}
    with stage(folder, f"--app={faulty.APP}", environment=environment) as run:
        run.create("orders")
        run.writers("orders", 6, accepted=(204, 408, 429))
        run.begin()
        run.wait(1)
        (folder / faulty.THROTTLED).touch()
        run.wait(THREE_PERIODS)
        run.end()
        (folder / faulty.SILENT).touch()  # not judged: so that an unknown outcome is seen, too
        (folder / faulty.THROTTLED).unlink()
        eventually(lambda: run.pipeline.metric("UnknownOutcomes"), "every outcome is known")
        (folder / faulty.SILENT).unlink()
    return run


def relay_stopped(folder: Path) -> Stage:
    """Stops the relay's instances, as if they hung, while a router has work."""
    with stage(folder) as run:
        pids = _relay_at_work(run)
        run.begin()
        run.wait(1)
        _signal(pids, signal.SIGSTOP)
        run.wait(THREE_PERIODS + 1)
        run.end()
        _signal(pids, signal.SIGKILL)
    return run


def relay_slow(folder: Path) -> Stage:
    """Stops the relay's instances for two seconds, two minutes of the deployment, and again."""
    with stage(folder) as run:
        pids = _relay_at_work(run)
        run.begin()
        run.wait(1)
        for _ in range(6):
            _signal(pids, signal.SIGSTOP)
            run.wait(2 / PERIOD_S)
            _signal(pids, signal.SIGCONT)
            run.wait(2 / PERIOD_S)
        run.end()
    return run


def _relay_at_work(run: Stage) -> list[int]:
    """Has a router copy what is appended all the time; returns the processes of the relay."""
    queue_stages.create(run, "notes", type="log")
    with run.http() as http:
        router = {"source": "notes", "dest": "copies"}
        assert http.put(http.base_url.copy_with(path="/v0/routers/copying"), json=router).status_code == 201
    queue_stages.push(run, "notes")
    eventually(lambda: run.pipeline.metric("RelayLagMs"), "the relay hears nothing")
    run.wait(1)  # the first that it was told of waited until it had started
    return [pid for name, pid in run.server.state_now()["functions"].items() if name.startswith("Relay")]


def _signal(pids: list[int], sent: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, sent)


def job_stuck(folder: Path) -> Stage:
    """Stops Spark: a job run begins and makes no progress."""
    with stage(folder, runs_jobs=True) as run:
        run.create("departures", searchable=True)
        run.writers("departures")
        (worker,) = eventually(lambda: children(run.server.pids["emr"]), "Spark does not start")
        os.kill(worker, signal.SIGSTOP)
        run.begin()
        eventually(lambda: _age(run) >= 46_000, "no job run grows old")
        run.wait(1)
        run.end()
        os.kill(worker, signal.SIGKILL)  # not judged: so that a failed job run is seen, too
        eventually(lambda: run.pipeline.metric("JobsFailed"), "the job run does not fail")
        assert runs_under_way(run.server) is not None
    return run


def _age(run: Stage) -> int:
    """Of the oldest job run that is not over, as last told (ms)."""
    found = [line for line in run.server.metric_lines() if '"JobAgeMs":[' in line]
    return int(float(found[-1].split('"JobAgeMs":[')[1].split("]")[0].split(",")[-1])) if found else 0


def log_hot(folder: Path) -> Stage:
    """Writers of many processes append to one stream."""
    with stage(folder, "--api-processes=3", "--cold") as run:
        run.create("orders")
        run.create("hot")
        run.writers("orders")
        run.begin()
        run.wait(1)
        run.writers("hot", 12, 0.0, accepted=(204, 429))
        run.wait(THREE_PERIODS)
        run.end()
    return run


def _function(run: Stage, part: str) -> int | None:
    """Returns the process of the function whose logical id begins with `part`; None if it has none."""
    found = [pid for name, pid in run.server.state_now()["functions"].items() if name.startswith(part)]
    return found[0] if found else None


FAULTS: dict[str, Callable[[Path], Stage]] = {
    "sealer-silent": sealer_stopped,
    "stream-unheard": stream_unheard,
    "log-poisoned-sealer": log_poisoned,
    "store-throttled-api": table_throttled,
    "relay-silent": relay_stopped,
    "relay-lags": relay_slow,
    "job-stuck": job_stuck,
    "log-hot": log_hot,
    "jobs-wait": queue_stages.workers_stopped,
    "jobs-given-up": queue_stages.jobs_fail,
    "leases-churn": queue_stages.leases_end,
}
"""The alarm that each fault raises, and the run that stages it."""


def capture(name: str, folder: Path) -> Capture:
    """Stages a fault by the name of its alarm, or the `healthy` run."""
    return {**FAULTS, HEALTHY: healthy}[name](folder).capture()
