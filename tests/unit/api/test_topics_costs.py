"""What requests on topics and queues cost in AWS calls, from the door to the clients: with keys, configured limits and read
clocks. These are promises (docs/benchmarks.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from functions.access import parse
from functions.api.context import assemble
from headrace.settings import Settings
from headrace.surfaces import COUNTED, SURFACES
from tests.support.counting import Counted, counted_stores
from tests.unit.api.asgi import Server
from tests.unit.api.topics import ask

KEY = "a-key-for-the-tests-of-costs"
# Each limit that a request could be counted against; none costs a call where nothing is created or opened.
SETTINGS = Settings(
    metrics_interval_ms=0,
    sse_seconds=0,
    append_timeout_ms=60_000,  # the machine may be busy
    request_timeout_ms=60_000,
    max_topics=1000,
    max_sse_connections=100,
    max_sse_connections_per_key=10,
    max_inflight_per_key=50,
)
LOG, QUEUE = "/v0/topics/log", "/v0/topics/queue"
RECORDS = {"records": [{"data": 1, "tag": "t"}, {"data": 2, "node": "n"}]}


class Processes(Counted):
    """Stores on moto, the calls made to them, and API processes that use them."""

    def cold(self) -> Server:
        """Returns a process that knows nothing."""
        return Server(parts=assemble(self.stores, parse(f"{KEY}:rw+a:", "*")))

    def check(self, server: Server, target: str, body: dict[str, Any], **calls: int) -> Any:
        """Sends a request, which must make exactly these calls; returns the answer."""
        with self.calls.during() as made:
            answer = ask(server, "POST", target, body, key=KEY)
        assert answer.status == 200, answer.body
        assert dict(made) == calls, target
        return answer.json


@pytest.fixture(scope="module")
def aws() -> Iterator[Processes]:
    with counted_stores(settings=SETTINGS, surfaces=SURFACES, counted=COUNTED) as counted:
        processes = Processes(*counted)
        server = processes.cold()
        for target, config in ((LOG, {}), (QUEUE, {"type": "queue"})):
            assert ask(server, "PUT", target, config, key=KEY).status == 201
            for _ in range(20):
                assert ask(server, "POST", target, RECORDS, key=KEY).status == 200
        yield processes


def test_an_append_is_one_write(aws: Processes) -> None:
    server = aws.cold()
    aws.check(server, LOG, RECORDS, GetItem=1, Query=1, PutItem=1)
    aws.check(server, LOG, RECORDS, PutItem=1)
    aws.check(server, LOG, RECORDS | {"config": {"cap_records": 5}}, PutItem=1)


def test_a_keyed_append_is_one_transaction_of_three_items(aws: Processes) -> None:
    server = aws.cold()
    items: list[int] = []

    def count(operation: str, request: Any) -> None:
        if operation == "TransactWriteItems":
            items.append(len(json.loads(request.body)["TransactItems"]))

    aws.calls.intercept = count
    aws.check(server, LOG, RECORDS | {"idempotency_key": "a"}, GetItem=1, Query=1, TransactWriteItems=1)
    aws.check(server, LOG, RECORDS | {"idempotency_key": "b"}, TransactWriteItems=1)
    aws.calls.intercept = None
    assert items == [3, 3], "the entry, the key, and the condition that its slot is not published"


def test_a_diff_at_the_tail_is_one_query(aws: Processes) -> None:
    server = aws.cold()
    head = ask(server, "GET", f"{LOG}?touch=false", key=KEY).json["head_seq"]
    cold = aws.cold()
    tail, all_but_two = {"from_seq": head}, {"from_seq": head - 2}
    aws.check(cold, f"{LOG}/diff", tail, GetItem=1, Query=1, UpdateItem=1)  # the read clock, once in 15 s
    aws.check(cold, f"{LOG}/diff", tail, Query=1)
    assert len(aws.check(cold, f"{LOG}/diff", all_but_two, Query=1)["records"]) == 2


def test_claims_and_acks_are_one_write_each(aws: Processes) -> None:
    server = aws.cold()
    aws.check(server, f"{QUEUE}/claim", {"node": "w", "max": 2}, GetItem=1, Query=3, PutItem=1)
    claimed = aws.check(server, f"{QUEUE}/claim", {"node": "w", "max": 2}, PutItem=1)["claimed"]
    seqs, lease_ids = [job["$seq"] for job in claimed], [job["lease_id"] for job in claimed]
    held = {"node": "w", "seqs": seqs, "lease_ids": lease_ids}
    aws.check(server, f"{QUEUE}/extend", held | {"lease_ms": 60_000}, PutItem=1)
    assert aws.check(server, f"{QUEUE}/ack", held, PutItem=1)["acked"] == 2
    cold = aws.cold()
    assert aws.check(cold, f"{QUEUE}/ack", {"node": "w", "seqs": [1]}, GetItem=1, Query=2, PutItem=1)["acked"] == 1
    assert aws.check(cold, f"{QUEUE}/nack", {"node": "w", "seqs": [2]}, PutItem=1)["nacked"] == 1


def test_an_empty_claim_writes_nothing(aws: Processes) -> None:
    server = aws.cold()
    assert ask(server, "PUT", "/v0/topics/empty", {"type": "queue"}, key=KEY).status == 201
    for reads in ({"GetItem": 1, "Query": 2}, {"Query": 2}, {"Query": 2}):
        assert aws.check(server, "/v0/topics/empty/claim", {"node": "w"}, **reads)["count"] == 0
    assert aws.check(aws.cold(), "/v0/topics/empty/claim", {"node": "w"}, GetItem=1, Query=2)["count"] == 0


def test_a_stream_of_jobs_costs_two_transactions_for_its_slot(aws: Processes) -> None:
    server, target = aws.cold(), "/v0/topics/streamed"
    assert ask(server, "PUT", target, {"type": "queue"}, key=KEY).status == 201
    for number in range(2):
        assert ask(server, "POST", target, {"records": [{"data": number}]}, key=KEY).status == 200
    aws.check(server, f"{target}/claim", {"node": "w"}, Query=1, PutItem=1)
    with aws.calls.during() as made:
        answer = ask(server, "GET", f"{target}/work?node=stream", key=KEY)
    assert answer.body.count(b"event: job") == 1
    assert dict(made) == {"TransactWriteItems": 2, "Query": 1, "PutItem": 1}, "the slot comes and goes; leases"
