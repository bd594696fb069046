"""Laws of the dispatcher, with the real streams and queues of the emulator and a function that misbehaves on demand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any
from uuid import uuid4

import msgspec

from local.deployment import ScheduleTrigger
from local.dispatcher import Dispatcher
from local.environment import client
from tests.support.emulated_cloud import Cloud

POISON, HELD = "poison", "held"
_lock = Lock()
_events: list[dict[str, Any]] = []
_contexts: list[Any] = []


def handler(event: dict[str, Any], context: Any) -> Any:
    """Fails on a poisoned stream record; reports poisoned messages as failed items; remembers everything."""
    with _lock:
        _events.append(event)
        _contexts.append(context)
    records = event.get("Records", [])
    for held in (r["body"] for r in records if r["eventSource"] == "aws:sqs" and HELD in r["body"]):
        eventually(lambda held=held: handled(held.split()[0]))
    if any(r["eventSource"] == "aws:dynamodb" and POISON in r["dynamodb"]["NewImage"] for r in records):
        raise RuntimeError("poisoned record")
    failed = [r["messageId"] for r in records if r["eventSource"] == "aws:sqs" and POISON in r["body"]]
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}


@contextmanager
def dispatching(cloud: Cloud, **changes: Any) -> Iterator[None]:
    deployment = msgspec.structs.replace(cloud.deployment, **changes)
    dispatcher = Dispatcher(deployment, seed=1, schedule_period_seconds=0.2)
    dispatcher.start()
    try:
        yield
    finally:
        dispatcher.stop()
        assert dispatcher.failed is None


@cache
def dynamodb_of(endpoint: str) -> Any:
    return client("dynamodb", endpoint)


def eventually(found: Callable[[], Any], timeout_seconds: float = 60) -> Any:
    deadline = time.monotonic() + timeout_seconds
    while not (value := found()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)  # polls: the dispatcher works in threads, without an event
    return value


def write(cloud: Cloud, log: str, slot: int, **attributes: Any) -> None:
    dynamodb_of(cloud.endpoint).put_item(
        TableName=cloud.deployment.outputs["WalTableName"],
        Item={"log_id": {"S": log}, "slot": {"N": str(slot)}, "data": {"B": b"\x00"}, **attributes},
    )


def _bodies(sqs: Any, queue: str) -> list[str]:
    return [message["Body"] for message in sqs.receive_message(QueueUrl=queue).get("Messages", [])]


def handled(log: str) -> list[dict[str, Any]]:
    """Stream records of a log in invocations that succeeded, in order."""
    with _lock:
        batches = [event["Records"] for event in _events if "Records" in event]
    healthy = [b for b in batches if not any(POISON in r.get("dynamodb", {}).get("NewImage", {}) for r in b)]
    return [r for b in healthy for r in b if r.get("dynamodb", {}).get("Keys", {}).get("log_id") == {"S": log}]


def slots(log: str) -> list[int]:
    return [int(record["dynamodb"]["Keys"]["slot"]["N"]) for record in handled(log)]


def test_each_log_arrives_in_order_and_logs_are_mixed(cloud: Cloud) -> None:
    logs = [uuid4().hex for _ in range(4)]
    for slot in range(30):
        for log in logs:
            write(cloud, log, slot)
    with dispatching(cloud):
        for log in logs:
            eventually(lambda log=log: len(slots(log)) >= 30)
    assert [slots(log) for log in logs] == [list(range(30))] * 4
    with _lock:
        arrived = [r["dynamodb"]["Keys"]["log_id"]["S"] for e in _events for r in e.get("Records", [])]
    assert [log for log in arrived if log in logs] != logs * 30
    assert handled(logs[0])[0]["dynamodb"]["NewImage"]["data"] == {"B": "AA=="}


def test_bisecting_isolates_a_poisoned_record_and_sends_it_to_the_dead_letters(cloud: Cloud) -> None:
    log, sqs = uuid4().hex, cloud.client("sqs")
    for slot in range(20):
        write(cloud, log, slot, **({POISON: {"BOOL": True}} if slot == 13 else {}))
    with dispatching(cloud):
        eventually(lambda: len(slots(log)) >= 19)
    assert slots(log) == [slot for slot in range(20) if slot != 13]
    queue = cloud.deployment.outputs["DeadLetterQueueUrl"]
    message = eventually(lambda: sqs.receive_message(QueueUrl=queue).get("Messages"))[0]
    letter = json.loads(message["Body"])
    assert letter["requestContext"]["condition"] == "RetryAttemptsExhausted"
    # The first try of the record alone, and the two retries of the template.
    assert letter["requestContext"]["approximateInvokeCount"] == 3
    info = letter["DDBStreamBatchInfo"]
    assert info["batchSize"] == 1
    assert info["startSequenceNumber"] == info["endSequenceNumber"]
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


def test_removals_are_filtered_out(cloud: Cloud) -> None:
    log = uuid4().hex
    write(cloud, log, 1)
    cloud.client("dynamodb").delete_item(
        TableName=cloud.deployment.outputs["WalTableName"], Key={"log_id": {"S": log}, "slot": {"N": "1"}}
    )
    write(cloud, log, 2)
    with dispatching(cloud):
        eventually(lambda: 2 in slots(log))
    assert [record["eventName"] for record in handled(log)] == ["INSERT", "INSERT"]


def test_only_the_failed_message_of_a_batch_comes_back_until_its_dead_letter(cloud: Cloud) -> None:
    sqs, run = cloud.client("sqs"), uuid4().hex
    bodies = [f"{run} good {n}" for n in range(3)] + [f"{run} {POISON}"]
    entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies)]
    sqs.send_message_batch(QueueUrl=cloud.deployment.outputs["DelayQueueUrl"], Entries=entries)
    dead = cloud.deployment.outputs["DeadLetterQueueUrl"]
    with dispatching(cloud, streams=(), schedules=()):
        # Other tests' letters may lie in the same queue.
        letters: list[str] = []
        eventually(lambda: letters.extend(_bodies(sqs, dead)) or any(run in letter for letter in letters))
    assert [letter for letter in letters if run in letter] == [bodies[3]]
    with _lock:
        received = [r["body"] for e in _events for r in e.get("Records", []) if r["eventSource"] == "aws:sqs"]
    # The redrive policy of the template allows three receipts.
    assert [received.count(body) for body in bodies] == [1, 1, 1, 3]


def test_a_slow_message_does_not_delay_a_prompt_stream(cloud: Cloud) -> None:
    log, sqs = uuid4().hex, cloud.client("sqs")
    sqs.send_message(QueueUrl=cloud.deployment.outputs["DelayQueueUrl"], MessageBody=f"{log} {HELD}")

    def is_held() -> bool:
        with _lock:
            return any(r.get("body") == f"{log} {HELD}" for event in _events for r in event.get("Records", []))

    with dispatching(cloud, schedules=()):
        eventually(is_held)  # and ends only when the record has arrived
        write(cloud, log, 1)
        eventually(lambda: slots(log) == [1])


def test_a_schedule_sends_scheduled_events_with_a_context(cloud: Cloud) -> None:
    sweep = ScheduleTrigger("Sealer", uuid4().hex, "rate(1 day)")

    def arrivals() -> list[dict[str, Any]]:
        with _lock:
            return [e for e in _events if e.get("source") == "aws.events" and sweep.rule in e["resources"][0]]

    with dispatching(cloud, streams=(), queues=(), schedules=(sweep,)):
        eventually(lambda: len(arrivals()) >= 2)
    first, second = arrivals()[:2]
    assert first["id"] != second["id"]
    context = _contexts[-1]
    assert context.function_name == "Sealer"
    assert context.aws_request_id
    assert 0 < context.get_remaining_time_in_millis() <= 30_000
