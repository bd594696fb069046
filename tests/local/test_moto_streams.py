"""Streams of the emulated tables: they forget what both readers have read, and polls may wait."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError

from local.stream_pump import PATIENTLY
from tests.local.test_moto_hardening import code, put_if_free
from tests.support.emulated_cloud import Cloud


def opened(cloud: Cloud, kind: str) -> str:
    """Returns an iterator of the write-ahead log's stream, at a position of this kind."""
    streams, stream = cloud.client("dynamodbstreams"), cloud.deployment.outputs["WalStreamArn"]
    shard = streams.describe_stream(StreamArn=stream)["StreamDescription"]["Shards"][0]["ShardId"]
    found = streams.get_shard_iterator(StreamArn=stream, ShardId=shard, ShardIteratorType=kind)
    return str(found["ShardIterator"])


def test_the_stream_forgets_what_was_read_and_never_shows_a_failed_transaction(cloud: Cloud) -> None:
    dynamodb, streams, log = cloud.client("dynamodb"), cloud.client("dynamodbstreams"), uuid4().hex
    start = opened(cloud, "LATEST")
    dynamodb.put_item(**put_if_free(cloud, log, 0))
    with pytest.raises(ClientError):
        dynamodb.transact_write_items(
            TransactItems=[{"Put": put_if_free(cloud, log, 1)}, {"Put": put_if_free(cloud, log, 0)}]
        )
    # Larger than what is kept behind a reader.
    for slot in range(2, 102):
        dynamodb.put_item(**put_if_free(cloud, log, slot, b"x" * 250_000))

    seen: list[dict[str, Any]] = []
    token = start
    while len(seen) < 101:
        page = streams.get_records(ShardIterator=token)
        assert page["Records"]
        seen += page["Records"]
        token = page["NextShardIterator"]
    assert [int(r["dynamodb"]["Keys"]["slot"]["N"]) for r in seen] == [0, *range(2, 102)]
    assert streams.get_records(ShardIterator=token)["Records"] == []
    with pytest.raises(ClientError) as refused:
        streams.get_records(ShardIterator=start)
    assert code(refused.value) == "TrimmedDataAccessException"
    oldest = opened(cloud, "TRIM_HORIZON")
    assert 0 < len(streams.get_records(ShardIterator=oldest)["Records"]) < 101


def test_a_poll_of_an_idle_stream_waits_for_a_record_as_long_as_it_is_told(cloud: Cloud) -> None:
    dynamodb, streams, log = cloud.client("dynamodb"), cloud.client("dynamodbstreams"), uuid4().hex
    token = opened(cloud, "LATEST")
    started = time.monotonic()
    assert streams.get_records(ShardIterator=f"{token}{PATIENTLY}0.3")["Records"] == []
    assert time.monotonic() - started >= 0.3
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(streams.get_records, ShardIterator=f"{token}{PATIENTLY}20")
        time.sleep(0.1)  # the server does not tell when it has begun to wait
        assert not waiting.done()
        dynamodb.put_item(**put_if_free(cloud, log, 0))
        [record] = waiting.result(5)["Records"]
    assert record["dynamodb"]["Keys"]["slot"]["N"] == "0"
    with pytest.raises(ClientError, match="could not convert"):
        streams.get_records(ShardIterator=f"{token}{PATIENTLY}long")


def test_a_record_is_kept_until_both_readers_have_read_it(cloud: Cloud) -> None:
    dynamodb, streams, log = cloud.client("dynamodb"), cloud.client("dynamodbstreams"), uuid4().hex

    def read(token: str) -> tuple[list[int], str]:
        """Reads to the end."""
        seen: list[int] = []
        while (page := streams.get_records(ShardIterator=token))["Records"]:
            seen += [int(record["dynamodb"]["Keys"]["slot"]["N"]) for record in page["Records"]]
            token = page["NextShardIterator"]
        return seen, token

    slow, fast = opened(cloud, "LATEST"), opened(cloud, "LATEST")
    for slot in range(100):  # larger than what is kept behind both
        dynamodb.put_item(**put_if_free(cloud, log, slot, b"x" * 250_000))
    assert read(fast)[0] == list(range(100))
    seen, end = read(slow)
    assert seen == list(range(100))
    oldest = opened(cloud, "TRIM_HORIZON")  # the reader that was silent longest is forgotten
    assert len(read(oldest)[0]) < 100
    dynamodb.put_item(**put_if_free(cloud, log, 100))
    assert read(end)[0] == [100]
