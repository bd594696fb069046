"""Laws of the emulated AWS, through boto3 and a process boundary, as the application meets it."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError

from headrace.aws import aws_stores
from headrace.errors import SignatureExpired
from headrace.settings import Settings
from headrace.wal import Committed, TooLate
from headrace.wal.entry import PutEntry
from local.moto_hardening import SUPPORTED_VERSION, UnsupportedMoto, require_supported_version
from tests.support.builders import first_entry
from tests.support.emulated_cloud import Cloud

THREADS, ROUNDS = 8, 50


def code(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


def item(log: str, slot: int, data: bytes = b"\x00\xff") -> dict[str, Any]:
    return {"log_id": {"S": log}, "slot": {"N": str(slot)}, "data": {"B": data}}


def put_if_free(cloud: Cloud, log: str, slot: int, data: bytes = b"\x00\xff") -> dict[str, Any]:
    return {
        "TableName": cloud.deployment.outputs["WalTableName"],
        "Item": item(log, slot, data),
        "ConditionExpression": "attribute_not_exists(slot)",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def winners_of_each_round(attempt: Callable[[int, int], bool]) -> list[int]:
    """Returns how many of the threads won, for each round; all of a round start together."""
    barrier = Barrier(THREADS)

    def run(thread: int) -> list[bool]:
        wins = []
        for number in range(ROUNDS):
            barrier.wait()
            wins.append(attempt(thread, number))
        return wins

    with ThreadPoolExecutor(THREADS) as pool:
        return [sum(round_) for round_ in zip(*pool.map(run, range(THREADS)), strict=True)]


def succeeds(call: Callable[[], Any], *refusals: str) -> bool:
    try:
        call()
    except ClientError as error:
        assert code(error) in refusals
        return False
    return True


def test_a_conditional_put_has_exactly_one_winner(cloud: Cloud) -> None:
    clients = [cloud.client("dynamodb") for _ in range(THREADS)]
    log = uuid4().hex

    def attempt(thread: int, number: int) -> bool:
        put = put_if_free(cloud, log, number)
        return succeeds(lambda: clients[thread].put_item(**put), "ConditionalCheckFailedException")

    assert winners_of_each_round(attempt) == [1] * ROUNDS


def test_a_transaction_has_exactly_one_winner_and_losers_leave_nothing(cloud: Cloud) -> None:
    clients = [cloud.client("dynamodb") for _ in range(THREADS)]
    log = uuid4().hex

    def attempt(thread: int, number: int) -> bool:
        mine = put_if_free(cloud, f"{log}-{thread}", number)
        contended = put_if_free(cloud, log, number)
        items = [{"Put": mine}, {"Put": contended}]
        return succeeds(
            lambda: clients[thread].transact_write_items(TransactItems=items), "TransactionCanceledException"
        )

    assert winners_of_each_round(attempt) == [1] * ROUNDS
    table = cloud.deployment.outputs["WalTableName"]
    count = 0
    for thread in range(THREADS):
        of_thread = clients[0].query(
            TableName=table,
            KeyConditionExpression="log_id = :log",
            ExpressionAttributeValues={":log": {"S": f"{log}-{thread}"}},
        )
        count += of_thread["Count"]
    assert count == ROUNDS


def test_create_if_absent_in_s3_has_exactly_one_winner(cloud: Cloud) -> None:
    clients = [cloud.client("s3") for _ in range(THREADS)]
    bucket, prefix = cloud.deployment.outputs["BucketName"], uuid4().hex

    def attempt(thread: int, number: int) -> bool:
        def create() -> None:
            clients[thread].put_object(
                Bucket=bucket, Key=f"{prefix}/{number}", Body=str(thread).encode(), IfNoneMatch="*"
            )

        return succeeds(create, "PreconditionFailed", "ConditionalRequestConflict")

    assert winners_of_each_round(attempt) == [1] * ROUNDS


def test_an_upload_that_breaks_off_leaves_nothing(cloud: Cloud) -> None:
    s3, bucket, key = cloud.client("s3"), cloud.deployment.outputs["BucketName"], uuid4().hex
    address = urlsplit(cloud.endpoint)
    signed = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request"
    head = f"PUT /{bucket}/{key} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: {signed}\r\n"
    for length in (10, 4):  # cut off, then whole
        with socket.create_connection((address.hostname or "", address.port or 0), timeout=5) as connection:
            connection.sendall(f"{head}Content-Length: {length}\r\nConnection: close\r\n\r\nhalf".encode())
            if length == 10:
                connection.shutdown(socket.SHUT_RDWR)
            else:
                assert connection.recv(100).startswith(b"HTTP/1.1 200")
        time.sleep(0.1)  # the server sees the end of the connection a moment later
        found = s3.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", [])
        assert [one["Size"] for one in found] == ([] if length == 10 else [4])


def test_a_failing_transaction_never_erases_what_others_wrote(cloud: Cloud) -> None:
    dynamodb, other = cloud.client("dynamodb"), cloud.client("dynamodb")
    log, table = uuid4().hex, cloud.deployment.outputs["WalTableName"]
    dynamodb.put_item(**put_if_free(cloud, log, 0))

    def fail_often() -> None:
        for number in range(50):
            items = [{"Put": put_if_free(cloud, log, 1_000 + number)}, {"Put": put_if_free(cloud, log, 0)}]
            assert not succeeds(
                lambda items=items: other.transact_write_items(TransactItems=items),  # type: ignore[misc]
                "TransactionCanceledException",
            )

    with ThreadPoolExecutor(1) as pool:
        failing = pool.submit(fail_often)
        for slot in range(1, 51):
            dynamodb.put_item(**put_if_free(cloud, log, slot))
        failing.result()
    found = dynamodb.query(
        TableName=table,
        KeyConditionExpression="log_id = :log",
        ExpressionAttributeValues={":log": {"S": log}},
        ConsistentRead=True,
    )
    assert [int(i["slot"]["N"]) for i in found["Items"]] == list(range(51))


def test_a_failed_condition_returns_the_item_with_its_bytes(cloud: Cloud) -> None:
    dynamodb, log = cloud.client("dynamodb"), uuid4().hex
    dynamodb.put_item(**put_if_free(cloud, log, 1, b"\x00old\xff"))
    with pytest.raises(ClientError) as refused:
        dynamodb.put_item(**put_if_free(cloud, log, 1, b"new"))
    assert refused.value.response["Item"] == item(log, 1, b"\x00old\xff")


def test_a_cancelled_transaction_returns_the_item_in_its_reasons(cloud: Cloud) -> None:
    dynamodb, log = cloud.client("dynamodb"), uuid4().hex
    dynamodb.put_item(**put_if_free(cloud, log, 1, b"\x00old\xff"))
    with pytest.raises(ClientError) as refused:
        dynamodb.transact_write_items(
            TransactItems=[{"Put": put_if_free(cloud, log, 2)}, {"Put": put_if_free(cloud, log, 1, b"new")}]
        )
    reasons = refused.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["None", "ConditionalCheckFailed"]
    assert reasons[1]["Item"] == item(log, 1, b"\x00old\xff")


def test_a_failing_transaction_undoes_updates_and_deletes(cloud: Cloud) -> None:
    dynamodb, log, table = cloud.client("dynamodb"), uuid4().hex, cloud.deployment.outputs["WalTableName"]
    for slot in (1, 2, 3):
        dynamodb.put_item(**put_if_free(cloud, log, slot, b"old"))
    key = {"log_id": {"S": log}, "slot": {"N": "1"}}
    update = {
        "TableName": table,
        "Key": key,
        "UpdateExpression": "SET #d = :d",
        "ExpressionAttributeNames": {"#d": "data"},
        "ExpressionAttributeValues": {":d": {"B": b"new"}},
    }
    delete = {"TableName": table, "Key": {**key, "slot": {"N": "2"}}}
    with pytest.raises(ClientError):
        dynamodb.transact_write_items(
            TransactItems=[{"Update": update}, {"Delete": delete}, {"Put": put_if_free(cloud, log, 3)}]
        )
    for slot in (1, 2, 3):
        found = dynamodb.get_item(TableName=table, Key={**key, "slot": {"N": str(slot)}}, ConsistentRead=True)
        assert found["Item"] == item(log, slot, b"old")


def test_a_transaction_sent_again_with_its_token_is_applied_once(cloud: Cloud) -> None:
    dynamodb, log, table = cloud.client("dynamodb"), uuid4().hex, cloud.deployment.outputs["WalTableName"]

    def add(amount: str) -> None:
        update = {
            "TableName": table,
            "Key": {"log_id": {"S": log}, "slot": {"N": "1"}},
            "UpdateExpression": "ADD hits :one",
            "ExpressionAttributeValues": {":one": {"N": amount}},
        }
        dynamodb.transact_write_items(TransactItems=[{"Update": update}], ClientRequestToken=log)

    add("1")
    add("1")
    found = dynamodb.get_item(TableName=table, Key={"log_id": {"S": log}, "slot": {"N": "1"}})
    assert found["Item"]["hits"] == {"N": "1"}
    with pytest.raises(ClientError) as refused:
        add("2")
    assert code(refused.value) == "IdempotentParameterMismatchException"


def test_queries_walk_a_partition_in_order_page_by_page(cloud: Cloud) -> None:
    dynamodb, log, table = cloud.client("dynamodb"), uuid4().hex, cloud.deployment.outputs["WalTableName"]
    slots = [5, 1, 10**18, 3, 2, -4]
    for slot in slots:
        dynamodb.put_item(**put_if_free(cloud, log, slot))
    dynamodb.delete_item(TableName=table, Key={"log_id": {"S": log}, "slot": {"N": "3"}})

    def pages(forward: bool, condition: str = "", **values: str) -> list[int]:
        found: list[int] = []
        start: dict[str, Any] = {}
        while True:
            page = dynamodb.query(
                TableName=table,
                KeyConditionExpression=f"log_id = :log{condition}",
                ExpressionAttributeValues={
                    ":log": {"S": log},
                    **{f":{name}": {"N": value} for name, value in values.items()},
                },
                ScanIndexForward=forward,
                Limit=2,
                ConsistentRead=True,
                **start,
            )
            found += [int(i["slot"]["N"]) for i in page["Items"]]
            if "LastEvaluatedKey" not in page:
                return found
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    assert pages(True) == [-4, 1, 2, 5, 10**18]
    assert pages(False) == [10**18, 5, 2, 1, -4]
    assert pages(True, " AND slot >= :a", a="2") == [2, 5, 10**18]
    assert pages(False, " AND slot <= :a", a="2") == [2, 1, -4]
    assert pages(True, " AND slot BETWEEN :a AND :b", a="1", b="5") == [1, 2, 5]
    assert pages(True, " AND slot < :a", a="1") == [-4]
    assert pages(True, " AND slot > :a", a="5") == [10**18]


def test_a_long_poll_waits_without_stopping_others(cloud: Cloud) -> None:
    sqs, other = cloud.client("sqs"), cloud.client("sqs")
    queue = sqs.create_queue(QueueName=uuid4().hex)["QueueUrl"]
    with ThreadPoolExecutor(1) as pool:
        started = time.monotonic()
        polled = pool.submit(sqs.receive_message, QueueUrl=queue, WaitTimeSeconds=10)
        time.sleep(0.3)  # the long poll is waiting by now
        other.send_message(QueueUrl=queue, MessageBody="hello")
        assert polled.result()["Messages"][0]["Body"] == "hello"
    assert 0.3 <= time.monotonic() - started < 3


def test_a_queue_with_many_delayed_messages_is_still_fast(cloud: Cloud) -> None:
    sqs = cloud.client("sqs")
    queue = sqs.create_queue(QueueName=f"long-{uuid4().hex}")["QueueUrl"]
    for delay, batches in ((900, 100), (0, 5)):
        for _ in range(batches):
            entries = [{"Id": str(n), "MessageBody": "x", "DelaySeconds": delay} for n in range(10)]
            sqs.send_message_batch(QueueUrl=queue, Entries=entries)
    started, received = time.monotonic(), 0
    while received < 50:
        messages = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
        received += len(messages)
        for message in messages:
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    assert time.monotonic() - started < 4  # as moto comes it takes 15 s


def test_a_fifo_queue_swallows_repeats_and_holds_a_group_that_is_under_way(cloud: Cloud) -> None:
    sqs = cloud.client("sqs")
    attributes = {"FifoQueue": "true", "VisibilityTimeout": "20"}
    url = sqs.create_queue(QueueName=f"{uuid4().hex}.fifo", Attributes=attributes)["QueueUrl"]

    def send(group: str, id_: str) -> None:
        sqs.send_message(QueueUrl=url, MessageBody=id_, MessageGroupId=group, MessageDeduplicationId=id_)

    def receive() -> list[Any]:
        answer = sqs.receive_message(QueueUrl=url, MessageSystemAttributeNames=["All"])
        return list(answer.get("Messages", []))

    send("a", "a1")
    (first,) = receive()
    assert first["Attributes"]["ApproximateReceiveCount"] == "1"
    assert first["Attributes"]["MessageGroupId"] == "a"
    send("a", "a2")
    assert receive() == [], "its group is under way"
    send("b", "b1")
    assert [one["Body"] for one in receive()] == ["b1"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    (second,) = receive()
    assert second["Body"] == "a2"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])
    send("a", "a1")
    assert receive() == [], "the first one has been deleted, and is remembered"


def test_s3_keeps_odd_keys_ranges_and_conditions(cloud: Cloud) -> None:
    s3, bucket = cloud.client("s3"), cloud.deployment.outputs["BucketName"]
    key = f"{uuid4().hex}/a b%2Fc+é//d"
    made = s3.put_object(Bucket=bucket, Key=key, Body=b"0123456789", Metadata={"a": "b"})
    assert s3.get_object(Bucket=bucket, Key=key, Range="bytes=2-4")["Body"].read() == b"234"
    assert s3.head_object(Bucket=bucket, Key=key)["ContentLength"] == 10
    assert [o["Key"] for o in s3.list_objects_v2(Bucket=bucket, Prefix=key)["Contents"]] == [key]
    assert not succeeds(lambda: s3.put_object(Bucket=bucket, Key=key, IfMatch='"x"'), "PreconditionFailed")
    assert succeeds(lambda: s3.put_object(Bucket=bucket, Key=key, Body=b"", IfMatch=made["ETag"]))
    assert not succeeds(lambda: s3.get_object(Bucket=bucket, Key="none"), "NoSuchKey")


def test_another_version_of_moto_is_refused_with_what_to_do() -> None:
    require_supported_version(SUPPORTED_VERSION)
    with pytest.raises(UnsupportedMoto, match=rf"{SUPPORTED_VERSION} is required, found 9\.9\.9"):
        require_supported_version("9.9.9")


@pytest.mark.parametrize("guarded", [False, True])
def test_what_was_signed_long_ago_is_refused_and_changes_nothing(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """As AWS does, so that a put of a suspended host does not arrive where it was decided hours ago."""
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    settings = Settings.from_environment(cloud.environment)
    stores = aws_stores(settings, "us-east-1", dynamodb_timeout_s=5, s3_read_timeout_s=5, fast=True)
    entry, now_ms = first_entry(uuid4().hex), round(time.time() * 1000)
    guards = (PutEntry(first_entry(uuid4().hex)),) if guarded else ()
    assert stores.wal.commit(entry, guards, now_ms - 330_000) == TooLate()
    assert stores.wal.newest(entry.log_id) is None
    assert stores.wal.commit(entry, guards, now_ms - 240_000) == Committed()
    with pytest.raises(SignatureExpired, match="not yet current"):
        stores.wal._store.call("ListTables", {}, now_ms + 330_000)  # type: ignore[attr-defined]


def test_an_answer_tells_the_time_even_if_the_server_was_held_up(cloud: Cloud) -> None:
    """The clocks of clients follow it."""
    dynamodb = cloud.client("dynamodb")
    dynamodb.list_tables()
    os.kill(cloud.pid, signal.SIGSTOP)
    time.sleep(1.5)  # longer than uvicorn keeps a date
    os.kill(cloud.pid, signal.SIGCONT)
    sent_s = int(time.time())
    answer = dynamodb.list_tables()["ResponseMetadata"]["HTTPHeaders"]
    assert sent_s <= parsedate_to_datetime(answer["date"]).timestamp() <= time.time()
