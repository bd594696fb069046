"""Laws of the handler: a poisoned log holds nobody up, nothing that failed is forgotten."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Any

import msgspec
import pytest

from functions.queue import MemoryQueue, Message, NotQueued, Queue, SqsQueue, delay_s
from headrace.settings import Settings
from headrace.streams.values import STREAMS
from headrace.wal.entry import entry_item
from headrace.wal.state import LogState
from tests.support.builders import first_entry, next_entry
from tests.unit.sealer.world import SETTINGS, World, dispatcher


def sqs(*messages: Message) -> dict[str, Any]:
    """Returns an SQS event."""
    return {
        "Records": [
            {"eventSource": "aws:sqs", "messageId": str(n), "body": msgspec.json.encode(message).decode()}
            for n, message in enumerate(messages)
        ]
    }


def poison(world: World, log_id: str) -> None:
    """The log can't be sealed."""
    world.wal.remove(log_id, [world.entries(log_id)[1].slot])


def test_a_poisoned_log_goes_to_the_queue_while_others_proceed() -> None:
    world = World()
    bad, good = world.create("bad"), world.create("good")
    world.fill("bad", 5)
    written = world.fill("good", 5)
    poison(world, bad)
    dispatch, told = dispatcher(world.parts)
    assert dispatch.dispatch(world.events(bad, good)) == {"batchItemFailures": []}
    assert world.published(good) == written[:9]
    assert world.manifest(bad) is None
    assert told.counts["SealFailures"] == 1 and told.counts["SegmentsSealed"] == 1
    world.wait(20)
    assert Message("seal", bad).log_id in [m.log_id for m in world.queue.receive(world.clock.now_ms())]


def test_a_batch_is_repeated_when_the_queue_fails_too() -> None:
    class Refuses:
        def send(self, messages: list[Message], now_ms: int) -> None:
            if messages:
                raise NotQueued("full")

    world = World()
    log_id = world.create("a")
    refuses: Any = Refuses()
    dispatch, _ = dispatcher(dataclasses.replace(world.parts, queue=refuses))
    with pytest.raises(NotQueued):
        dispatch.dispatch(world.events(log_id))


def test_entries_alone_bring_a_log_through_its_whole_life() -> None:
    """Stream and queue, nothing else: sealed by age, trimmed, and purged after its deletion."""
    world = World()
    log_id = world.create("a")
    written = world.fill("a", 2)
    dispatch, told = dispatcher(world.parts)
    dispatch.dispatch(world.events(log_id))

    def pass_time(seconds: float) -> None:
        for _ in range(20):
            world.wait(seconds / 20)
            answer = dispatch.dispatch(sqs(*world.queue.receive(world.clock.now_ms()), Message("sweep")))
            assert answer == {"batchItemFailures": []}

    pass_time(SETTINGS.seal_age_ms / 1000 + 30)
    assert world.published(log_id) == written
    pass_time(SETTINGS.trim_age_ms / 1000 + 30)
    assert len(world.entries(log_id)) == 1
    world.logs.delete("a")
    dispatch.dispatch(world.events(log_id))
    pass_time(SETTINGS.trim_age_ms / 1000 + 60)
    assert [entry.kind for entry in world.entries(log_id)] == ["delete"]
    assert told.counts["ItemsTrimmed"] == 2 and told.counts["LogsPurged"] == 1
    row = world.stores.catalog.get(STREAMS, "a")
    assert row is not None and row.ended


def test_an_unreadable_message_is_reported_and_equal_ones_run_once() -> None:
    world = World()
    bad, good = world.create("bad"), world.create("good")
    world.fill("bad", 3)
    world.fill("good", 3)
    poison(world, bad)
    dispatch, told = dispatcher(world.parts)
    event = sqs(Message("seal", bad, force=True), Message("seal", good, force=True), Message("seal", bad, force=True))
    event["Records"].append({"eventSource": "aws:sqs", "messageId": "x", "body": "no message"})
    answer = dispatch.dispatch(event)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "x"}]}
    assert [message.log_id for message in world.queue.waiting if message.turn] == [bad]
    assert told.counts["SealFailures"] == 1
    assert world.manifest(good) is not None


def logs_of_one_entry_more(count: int, committed_ms: int) -> dict[str, Any]:
    """Returns the stream event of an entry of 100 records in each of so many logs, none of them their first."""
    records = []
    for number in range(count):
        created = first_entry(
            f"{number:032x}", *[b"x"] * 100, committed_ms=committed_ms, state=LogState(total_bytes=100)
        )
        entry = next_entry(
            created, *[b"x"] * 100, committed_ms=committed_ms + 1, state=LogState(next_offset=200, total_bytes=200)
        )
        keys = {"log_id": {"S": entry.log_id}, "slot": {"N": str(entry.slot)}}
        change = {"Keys": keys, "NewImage": entry_item(entry)}
        records.append({"eventSource": "aws:dynamodb", "eventName": "INSERT", "dynamodb": change})
    return {"Records": records}


def test_a_thousand_entries_of_distinct_logs_cost_no_read() -> None:
    """Each hinted log was read three times, due or not: 3,000 reads, one after another."""
    world = World(Settings())
    calls: Counter[str] = Counter()
    parts = world.watched(lambda name, after: calls.update([name]))
    client = FakeSqs()
    sealer, told = dispatcher(dataclasses.replace(parts, queue=SqsQueue(client, "url")))
    now_ms = world.clock.now_ms()
    start_of_bucket_ms = now_ms - now_ms % Settings().seal_age_ms
    sealer.dispatch(logs_of_one_entry_more(1000, start_of_bucket_ms + 1))
    assert (calls, len(client.batches)) == ({}, 0)
    sealer.dispatch(logs_of_one_entry_more(1000, start_of_bucket_ms - 1))  # each opens a bucket
    assert (calls, len(client.batches)) == ({}, 100)
    assert told.counts["StreamEvents"] == 2000
    world.wait(Settings().seal_age_ms / 1000)
    sealer.dispatch(logs_of_one_entry_more(10, start_of_bucket_ms + 1))  # late: the sealer was off
    assert calls["newest"] == 2 * 10


def test_an_early_message_waits_again() -> None:
    world = World()
    log_id = world.create("a")
    early = Message("seal", log_id, not_before_ms=world.clock.now_ms() + 10**7, force=True)
    dispatch, _ = dispatcher(world.parts)
    assert dispatch.dispatch(sqs(early)) == {"batchItemFailures": []}
    assert world.queue.waiting == [early] and world.manifest(log_id) is None


def test_schedules_sweep_or_say_what_they_want() -> None:
    world = World()
    world.create("a", ttl_ms=1)
    world.wait(1)
    dispatch, told = dispatcher(world.parts)
    assert dispatch.dispatch({"detail-type": "Scheduled Event", "source": "aws.events"}) == {}
    assert told.counts["LogsExpired"] == 1
    assert dispatch.dispatch({"verb": "audit"}) == {}
    with pytest.raises(ValueError, match="no known kind"):
        dispatch.dispatch({"Records": [{"eventSource": "aws:s3"}]})


class FakeSqs:
    """The client's batch call."""

    def __init__(self, failed: int = 0) -> None:
        self.batches: list[list[dict[str, Any]]] = []
        self._failed = failed

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
        """Keeps the entries."""
        assert QueueUrl == "url" and 1 <= len(Entries) <= 10
        self.batches.append(Entries)
        return {"Failed": [{"Id": "0"}]} if len(self.batches) == self._failed else {}


def test_the_sqs_queue_sends_tens_and_bounds_the_delay() -> None:
    client = FakeSqs()
    messages = [Message("seal", f"{n}", not_before_ms=n * 100_500) for n in range(23)]
    SqsQueue(client, "url").send(messages, 0)
    batches = sorted(client.batches, key=lambda batch: int(json.loads(batch[0]["MessageBody"])["log_id"]))
    sent = [entry for batch in batches for entry in batch]
    assert [json.loads(entry["MessageBody"])["log_id"] for entry in sent] == [m.log_id for m in messages]
    assert [entry["DelaySeconds"] for entry in sent][:10] == [0, 101, 201, 302, 402, 503, 603, 704, 804, 900]
    with pytest.raises(NotQueued):
        SqsQueue(FakeSqs(failed=2), "url").send(messages, 0)


def test_delays_never_end_early() -> None:
    assert delay_s(Message("trim", not_before_ms=1001), 0) == 2
    assert delay_s(Message("trim", not_before_ms=5), 10) == 0
    queue: Queue = MemoryQueue()
    queue.send([Message("trim", not_before_ms=1001)], 0)
    assert isinstance(queue, MemoryQueue) and queue.receive(1999) == [] and len(queue.receive(2000)) == 1
