"""What operations cost in AWS calls, counted as they leave the clients. These are promises (docs/benchmarks.md)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.seal import seal
from headrace.batch import Batch
from headrace.log.requests import At
from headrace.streams.values import CreateRequest
from headrace.streams.verbs import Streams
from headrace.wal.state import BEGINNING, Cursor
from tests.support.builders import BYTES, appending, producing
from tests.support.counting import Counted, counted_stores


class Deployment(Counted):
    """Stores on moto, the calls made to them, and processes that use them."""

    def cold(self) -> Streams:
        """Returns a process that knows nothing."""
        return Streams(self.stores)


@pytest.fixture(scope="module")
def aws() -> Iterator[Deployment]:
    with counted_stores() as counted:
        yield Deployment(*counted)


def test_a_warm_append_is_one_write(aws: Deployment) -> None:
    logs = aws.cold()
    logs.create("warm", CreateRequest(content_type=BYTES))
    for number in range(3):
        with aws.calls.during() as made:
            logs.append("warm", appending(b"x"))
        assert dict(made) == {"PutItem": 1}
        with aws.calls.during() as made:
            logs.append("warm", producing("p", number, b"x"))
        assert dict(made) == {"PutItem": 1}


def test_a_create_pays_for_an_announcement_only_if_it_puts_an_object(aws: Deployment) -> None:
    for name, records, more in (
        ("small", [b"x"], {}),
        ("large", [Random(1).randbytes(50_000)], {"PutItem": 1, "PutObject": 1}),
    ):
        with aws.calls.during() as made:
            aws.cold().create(name, CreateRequest(content_type=BYTES, records=Batch.of(records)))
        assert dict(made) == {"GetItem": 1, "TransactWriteItems": 1, **more}


def test_a_cold_append_adds_a_catalog_read_and_a_query(aws: Deployment) -> None:
    aws.cold().create("cold", CreateRequest(content_type=BYTES))
    with aws.calls.during() as made:
        aws.cold().append("cold", appending(b"x"))
    assert dict(made) == {"PutItem": 1, "GetItem": 1, "Query": 1}


def test_a_refusal_costs_its_check_on_fresh_state_and_writes_nothing(aws: Deployment) -> None:
    logs = aws.cold()
    logs.create("refused", CreateRequest(content_type=BYTES, closed=True))
    with aws.calls.during() as made, pytest.raises(Exception, match="closed"):
        logs.append("refused", appending(b"x"))
    assert dict(made) == {"GetItem": 1, "Query": 1}


def test_a_tail_read_is_one_query_and_two_inside_a_batch(aws: Deployment) -> None:
    logs = aws.cold()
    logs.create("tail", CreateRequest(content_type=BYTES))
    for _ in range(30):
        logs.append("tail", appending(b"a", b"b", b"c"))
    cold = aws.cold()
    for reader, extra in ((logs, {}), (cold, {"GetItem": 1})):
        with aws.calls.during() as made:
            assert reader.read("tail", At(Cursor(0, 90))).data == []
        assert dict(made) == {"Query": 1, **extra}
    with aws.calls.during() as made:
        assert len(logs.read("tail", At(Cursor(0, 87))).data) == 3
    assert dict(made) == {"Query": 1}
    with aws.calls.during() as made:
        assert len(logs.read("tail", At(Cursor(0, 88))).data) == 2
    assert dict(made) == {"Query": 1}
    writer = aws.cold()
    writer.append("tail", appending(b"d", b"e"))
    with aws.calls.during() as made:  # a follower that somebody else's append woke
        assert logs.read("tail", At(Cursor(0, 90))).data == [b"d", b"e"]
    assert dict(made) == {"Query": 1}


def test_a_read_in_sealed_data_adds_one_ranged_get_per_segment(aws: Deployment) -> None:
    logs = aws.cold()
    logs.create("sealed", CreateRequest(content_type=BYTES))
    parts = assemble(aws.stores, MemoryQueue())
    for number in range(3):
        logs.append("sealed", appending(b"%d" % number, b"more"))
        log_id = logs.head("sealed").log_id
        assert seal(parts, log_id, force=True).segments == 1
    logs.append("sealed", appending(b"tail"))
    entries = aws.stores.wal.read(log_id).entries
    aws.stores.wal.remove(log_id, [entry.slot for entry in entries[:-1]])  # as trimming does, later
    reader = aws.cold()
    reader.read("sealed", At(BEGINNING), max_records=1)  # learns the manifest
    for records, segments in ((1, 1), (2, 1), (3, 2), (6, 3)):
        with aws.calls.during() as made:
            assert len(reader.read("sealed", At(BEGINNING), max_records=records).data) == records
        assert dict(made) == {"Query": 1, "GetObject": segments}
    with aws.calls.during() as made:
        assert reader.read("sealed", At(BEGINNING)).data[-1] == b"tail"
    assert dict(made) == {"Query": 1, "GetObject": 3}


def test_a_sliding_ttl_costs_a_write_only_after_a_tenth_of_it(aws: Deployment) -> None:
    logs = aws.cold()
    logs.create("ttl", CreateRequest(content_type=BYTES, ttl_ms=3_600_000))
    with aws.calls.during() as made:
        logs.append("ttl", appending(b"x"))
    assert dict(made) == {"PutItem": 1}
    with aws.calls.during() as made:
        logs.read("ttl", At(BEGINNING))
    assert dict(made) == {"Query": 1}


def test_a_large_payload_goes_to_the_bucket_first(aws: Deployment) -> None:
    import random

    logs = aws.cold()
    logs.create("large", CreateRequest(content_type=BYTES))
    with aws.calls.during() as made:
        logs.append("large", appending(random.Random(1).randbytes(100_000)))
    assert dict(made) == {"PutObject": 1, "PutItem": 1}
