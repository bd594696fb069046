"""What tells the indexer of work: audits, events and messages."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from functions import worker
from functions.indexer.look import audit, look
from functions.indexer.start import start
from headrace.tables.catalog import PutRow, Row
from tests.support.builders import config, first_entry
from tests.support.faults import Faulty
from tests.unit.indexer.world import World, dispatcher

DAY_S = 24 * 3600


def test_the_audit_finds_what_every_message_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "AUDIT_ROWS", 2)
    world = World()
    logs = {f"n{number:03d}": world.create(f"n{number:03d}") for number in range(40)}
    for name in ("n000", "n039"):
        world.publish(name, logs[name], 2)
    world.wakes.receive(2**60)
    waiting, sent = world.audit(audit, world.indexer)
    assert sum(waiting) == 2
    assert {one.log_id for one in sent if one.verb == "orphans"} == set(logs.values())
    assert start(world.indexer).logs == 2


def test_the_audit_reads_an_idle_log_once_and_looks_at_it_once_a_week() -> None:
    world = World()
    logs = {world.create(f"n{number:03d}") for number in range(70)}
    world.wait(3 * 24 * 3600)
    looked: list[str] = []
    for _ in range(7):
        wal = Faulty(world.wal)
        parts = dataclasses.replace(world.indexer, stores=dataclasses.replace(world.stores, wal=wal))
        _, sent = world.audit(audit, parts)
        today = [one.log_id for one in sent if one.verb == "orphans"]
        assert wal.calls == {"newest": len(logs) + len(today)}
        looked += today
        world.wait(24 * 3600)
    assert sorted(looked) == sorted(logs)


def test_a_million_names_are_audited_in_minutes() -> None:
    """Counted at 10,000 names at rest and one that is looked at, and extrapolated: a call of a worker's client takes 1.6 ms
    of CPU (decision 86), and the indexer of `prod` handles 4 messages at a time (`indexer_queue_concurrency`).
    """
    world, names = World(), 10_000
    for number in range(names):
        log_id, it = f"{number:08x}{number:024x}", config(f"n{number:05d}")
        world.wal.commit(first_entry(log_id, config=it), [PutRow(Row(log_id, it), None)])
    world.wait(3 * DAY_S)
    wal, catalog = Faulty(world.wal), Faulty(world.stores.catalog)
    parts = dataclasses.replace(world.indexer, stores=dataclasses.replace(world.stores, wal=wal, catalog=catalog))
    _, sent = world.audit(audit, parts)
    looked = len(sent)
    assert {one.verb for one in sent} == {"orphans"} and names / 8 < looked < names / 6
    assert wal.calls == {"newest": names + looked}
    assert catalog.calls["part"] <= names / worker.AUDIT_ROWS + 2 * 16, "of two surfaces, one without a name"

    log_id = world.create("published")
    world.publish("published", log_id, 2)
    calls: list[str] = []
    look(world.watched_indexer(lambda name, after: None if after else calls.append(name)), log_id)
    assert len(calls) <= 8, calls
    minutes = 1_000_000 * (1 + len(calls) / 7) * 1.6 / 4 / 60_000
    assert minutes < 20


def queue_event(*bodies: Any) -> dict[str, Any]:
    return {
        "Records": [
            {"eventSource": "aws:sqs", "messageId": f"m{number}", "body": json.dumps(body)}
            for number, body in enumerate(bodies)
        ]
    }


def test_created_manifests_and_job_state_events_do_it_all() -> None:
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id, 2)
    handler, silent = dispatcher(world.indexer)
    event = queue_event(*world.events_of(log_id), {"Service": "Amazon S3", "Event": "s3:TestEvent"})
    assert handler.dispatch(event) == {"batchItemFailures": []}
    assert silent.counts["JobsStarted"] == 1
    world.work_all()
    assert handler.dispatch({"detail-type": "EMR Serverless Job Run State Change", "detail": {}}) == {}
    assert silent.counts["RunsPublished"] == 1
    assert world.covered(log_id)
    assert handler.dispatch(queue_event({"verb": "rebuild", "log_id": log_id})) == {"batchItemFailures": []}
    assert silent.counts["JobsStarted"] == 2
    world.work_all()
    handler.dispatch({"detail-type": "Scheduled Event"})
    assert world.covered(log_id)
    handler.dispatch({"verb": "audit"})
    assert handler.run_each(world.wakes.receive(2**60)) == []
    assert silent.errors == []


def test_one_poisoned_message_does_not_repeat_the_others() -> None:
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id, 2)
    sick = world.create("b")
    world.publish("b", sick, 2)
    world.objects.put(world.keys(sick, "manifests/")[-1], b"damaged")
    handler, silent = dispatcher(world.indexer)
    event = queue_event(world.events_of(sick)[0], {"what": 1}, world.events_of(log_id)[0])
    assert handler.dispatch(event) == {"batchItemFailures": [{"itemIdentifier": "m0"}, {"itemIdentifier": "m1"}]}
    assert silent.counts["JobsStarted"] == 1


@pytest.mark.parametrize(
    "key", ["segments/0-x.keys.zst", "index/manifests/000000000001.json.zst", "registry/1-x.json.zst"]
)
def test_other_objects_are_no_news(key: str) -> None:
    world = World()
    handler, _ = dispatcher(world.indexer)
    body = {"Records": [{"eventSource": "aws:s3", "s3": {"object": {"key": f"logs/{'0' * 32}/{key}"}}}]}
    assert handler.dispatch(queue_event(body)) == {"batchItemFailures": []}


def test_an_unknown_event_is_an_error() -> None:
    handler, _ = dispatcher(World().indexer)
    with pytest.raises(ValueError, match="no known kind"):
        handler.dispatch({"a": 1})
