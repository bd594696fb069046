"""What the DynamoDB adapters make of every way in which the store can fail."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import botocore.auth
import botocore.credentials
import pytest
from botocore.awsrequest import AWSRequest, AWSResponse
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
)
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import SystemClock
from headrace.errors import Damaged, StoreThrottled, StoreTimeout
from headrace.tables.catalog import row_item
from headrace.tables.dynamodb import Store, signed
from headrace.tables.items import n, s
from headrace.tables.producers import PutProducer
from headrace.wal.dynamodb import DynamoWal
from headrace.wal.entry import entry_item
from headrace.wal.state import Producer
from tests.contract.conftest import Ports, dynamodb_ports
from tests.support.aws import REGION, in_process_aws
from tests.support.builders import first_entry, log_id, row
from tests.support.counting import AwsCalls

URL = "https://dynamodb.us-east-1.amazonaws.com/"
UNKNOWN = [ReadTimeoutError, ConnectTimeoutError, EndpointConnectionError, ConnectionClosedError]
THROTTLES = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
    "TransactionConflictException",
]


class Breaks:
    """Answers every request of a client instead of AWS, and counts them."""

    def __init__(self, store: Store) -> None:
        self._client = store.connection.client
        self.sent = 0
        self.answer: Callable[[], AWSResponse | None] = lambda: None
        self._client.meta.events.register_first("before-send.*.*", self._send)

    def _send(self, request: Any, **_: Any) -> AWSResponse | None:
        self.sent += 1
        return self.answer()

    def with_error(self, error: Exception) -> None:
        def fails() -> AWSResponse:
            raise error

        self.answer = fails

    def with_status(self, status: int, body: str) -> None:
        self.answer = lambda: AWSResponse(URL, status, {"x-amz-crc32": ""}, _Raw(body.encode()))

    def with_code(self, code: str, status: int = 400, more: str = "") -> None:
        self.with_status(status, f'{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"no"{more}}}')

    def close(self) -> None:
        self._client.meta.events.unregister("before-send.*.*", self._send)


class _Raw:
    """The body of an answer."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self._body


@pytest.fixture(scope="module", params=["botocore", "wire"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Yields a connection to moto, one of each kind."""
    with in_process_aws(fast=request.param == "wire") as store:
        yield store


@pytest.fixture
def breaks(store: Store) -> Iterator[Breaks]:
    breaks = Breaks(store)
    yield breaks
    breaks.close()


@pytest.fixture
def dynamo(store: Store) -> Ports:
    return dynamodb_ports(store)


def every_method(ports: Ports) -> dict[str, Callable[[], object]]:
    entry = first_entry(log_id())
    name = row("n", entry.log_id)
    return {
        "commit": lambda: ports.wal.commit(entry),
        "commit guarded": lambda: ports.wal.commit(entry, [PutProducer("x", Producer("p", 0, 0))]),
        "newest": lambda: ports.wal.newest("x"),
        "read": lambda: ports.wal.read("x"),
        "remove": lambda: ports.wal.remove("x", [1]),
        "remove_dead": lambda: ports.wal.remove_dead(entry),
        "unpurged": lambda: list(ports.wal.unpurged(1)),
        "purged": lambda: ports.wal.purged("x", 1),
        "get row": lambda: ports.catalog.get("streams", "n"),
        "living": lambda: ports.catalog.living("streams", limit=1),
        "due": lambda: list(ports.catalog.due(1)),
        "mark_ended": lambda: ports.catalog.mark_ended(name),
        "set_hints": lambda: ports.catalog.set_hints(name, deadline_ms=1),
        "get watermark": lambda: ports.watermarks.get("x"),
        "publish": lambda: ports.watermarks.publish("x", 1, 1, 1, 1),
        "touch": lambda: ports.watermarks.touch("x", 1),
        "count": lambda: ports.watermarks.count("x", {"a": 1}),
        "usage": lambda: ports.watermarks.usage("x"),
        "delete watermark": lambda: ports.watermarks.delete("x"),
        "get producer": lambda: ports.producers.get("x", "p"),
        "purge": lambda: ports.producers.purge("x"),
    }


def test_no_answer_means_unknown_and_is_not_tried_again(dynamo: Ports, breaks: Breaks) -> None:
    for kind in UNKNOWN:
        breaks.with_error(kind(endpoint_url=URL, error="x"))
        for method, call in every_method(dynamo).items():
            breaks.sent = 0
            with pytest.raises(StoreTimeout):
                call()
            assert breaks.sent == 1, method


def test_a_server_error_means_unknown_and_is_not_tried_again(dynamo: Ports, breaks: Breaks) -> None:
    for answer in (
        lambda: breaks.with_code("InternalServerError", 500),
        lambda: breaks.with_code("ServiceUnavailable", 503),
        lambda: breaks.with_status(502, "<html>bad gateway</html>"),
    ):
        answer()
        for method, call in every_method(dynamo).items():
            breaks.sent = 0
            with pytest.raises(StoreTimeout):
                call()
            assert breaks.sent == 1, method


def test_a_throttle_means_that_nothing_was_written(dynamo: Ports, breaks: Breaks) -> None:
    for code in THROTTLES:
        breaks.with_code(code)
        for method, call in every_method(dynamo).items():
            breaks.sent = 0
            with pytest.raises(StoreThrottled):
                call()
            assert breaks.sent == 1, method


@pytest.mark.parametrize("reason", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"])
def test_a_transaction_that_met_another_means_that_nothing_was_written(
    dynamo: Ports, breaks: Breaks, reason: str
) -> None:
    breaks.with_code(
        "TransactionCanceledException", 400, f',"CancellationReasons":[{{"Code":"None"}},{{"Code":"{reason}"}}]'
    )
    with pytest.raises(StoreThrottled):
        every_method(dynamo)["commit guarded"]()


def test_a_mistake_of_ours_is_not_dressed_up(dynamo: Ports, breaks: Breaks) -> None:
    for code in ("ValidationException", "ResourceNotFoundException", "AccessDeniedException"):
        breaks.with_code(code)
        with pytest.raises(ClientError, match=code):
            every_method(dynamo)["commit"]()


def test_an_answer_without_its_end_means_unknown() -> None:
    with in_process_aws(fast=True) as store:  # botocore's client takes it for an empty one
        breaks = Breaks(store)
        breaks.with_status(200, '{"Items":[')
        for method in ("commit", "newest"):
            with pytest.raises(StoreTimeout):
                every_method(dynamodb_ports(store))[method]()
        breaks.close()


def test_what_each_method_sends(dynamo: Ports, store: Store) -> None:
    calls = AwsCalls(store.connection.client)
    expected = {
        "commit": {"PutItem": 1},
        "commit guarded": {"TransactWriteItems": 1},
        "newest": {"Query": 1},
        "read": {"Query": 1},
        "remove": {"BatchWriteItem": 1},
        "remove_dead": {"DeleteItem": 1},
        "unpurged": {"Query": 16},
        "purged": {"UpdateItem": 1},
        "get row": {"GetItem": 1},
        "living": {"Query": 16},
        "due": {"Query": 16},
        "mark_ended": {"UpdateItem": 1},
        "get watermark": {"GetItem": 1},
        "publish": {"UpdateItem": 1},
        "touch": {"UpdateItem": 1},
        "get producer": {"GetItem": 1},
        "purge": {"Query": 1, "BatchWriteItem": 1},
    }
    for method, sent in expected.items():
        with calls.during() as made:
            every_method(dynamo)[method]()
        assert dict(made) == sent, method


class Unhurried(SystemClock):
    """A clock whose sleeps take no time, but count."""

    def __init__(self) -> None:
        super().__init__()
        self._slept_s = 0.0

    def monotonic(self) -> float:
        """Returns the seconds that were slept so far."""
        return self._slept_s

    def sleep(self, seconds: float) -> None:
        """Counts a sleep."""
        self._slept_s += seconds


def test_deletions_that_are_not_processed_are_repeated_after_pauses_and_not_for_ever(
    dynamo: Ports, store: Store, breaks: Breaks
) -> None:
    """707,239 calls were made in half a second."""
    clock, refused = Unhurried(), Counter[str]()
    patient = Store(REGION, store.connection, clock=clock, refused=lambda: refused.update(["call"]))
    keys = [{"log_id": s("x"), "slot": n(slot)} for slot in range(60)]
    left = f'{{"UnprocessedItems":{{"t":[{{"DeleteRequest":{{"Key":{json.dumps(keys[0])}}}}}]}}}}'
    breaks.with_status(200, left)
    with pytest.raises(StoreThrottled, match="left=60"):
        patient.delete("t", keys)
    assert 10 <= clock.monotonic() < 11 and 40 < breaks.sent < 100
    assert refused == {"call": breaks.sent}
    answers = itertools.chain([left] * 5, itertools.repeat("{}"))
    breaks.answer = lambda: AWSResponse(URL, 200, {"x-amz-crc32": ""}, _Raw(next(answers).encode()))
    breaks.sent = 0
    patient.delete("t", keys)
    assert breaks.sent == 3 + 5


@pytest.mark.parametrize("damage", [{"v": {"N": "0"}}, {"state": s("{")}, {"config": s("[]")}, {"ids": None}])
def test_an_entry_that_does_not_parse_is_named(store: Store, dynamo: Ports, damage: dict[str, Any]) -> None:
    entry = first_entry(log_id())
    item = {name: value for name, value in {**entry_item(entry), **damage}.items() if value is not None}
    assert isinstance(dynamo.wal, DynamoWal)
    table = dynamo.wal._names["wal"]
    store.call("PutItem", {"TableName": table, "Item": item})
    with pytest.raises(Damaged, match=entry.log_id):
        dynamo.wal.newest(entry.log_id)


def test_a_row_that_does_not_parse_is_named(store: Store, dynamo: Ports) -> None:
    assert isinstance(dynamo.wal, DynamoWal)
    item = {**row_item(row("broken", "l")), "config": s("{}")}
    store.call("PutItem", {"TableName": dynamo.wal._names["catalog"], "Item": item})
    with pytest.raises(Damaged, match="broken"):
        dynamo.catalog.get("streams", "broken")


def test_no_start_key_lies_outside_its_query(dynamo: Ports, store: Store) -> None:
    """DynamoDB refuses an exclusive start key that the key condition does not admit; moto does not look."""
    queries: list[bytes] = []
    calls = AwsCalls(store.connection.client)
    calls.intercept = lambda _, request: queries.append(bytes(request.body))
    for prefix, after in (("a", "b"), ("a", "Z"), ("a", "a"), ("b", "a/1")):
        assert dynamo.catalog.living("streams", prefix=prefix, after=after, limit=2) == []
    assert not any(b"ExclusiveStartKey" in body for body in queries)


def test_every_call_names_its_client_in_few_words(dynamo: Ports, store: Store) -> None:
    agents: list[bytes | str] = []
    calls = AwsCalls(store.connection.client)
    calls.intercept = lambda _, request: agents.append(request.headers["User-Agent"])
    assert dynamo.catalog.get("streams", "none") is None
    (agent,) = (agent.decode() if isinstance(agent, bytes) else agent for agent in agents)
    assert agent.startswith("headrace botocore/")
    assert "ua/" not in agent  # what botocore puts together for each call; Powertools adds two words of its own


@given(
    st.binary(max_size=100),
    st.none() | st.text("Ab/+="),
    st.sampled_from(["http", "https"]),
    st.text("Zz9/+", min_size=1),
)
def test_a_request_is_signed_as_botocore_signs_it(body: bytes, token: str | None, scheme: str, secret: str) -> None:
    headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "DynamoDB_20120810.PutItem"}
    request = AWSRequest("POST", "http://localhost:8080/", headers, body)
    credentials = botocore.credentials.Credentials("AKID", secret, token)
    botocore.auth.SigV4Auth(credentials, "dynamodb", "eu-west-1").add_auth(request)
    at = datetime.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    found = signed(
        credentials.get_frozen_credentials(), "eu-west-1", "localhost:8080", "/", headers["X-Amz-Target"], body, at
    )
    assert found == dict(request.headers)


def test_every_kind_of_attribute_comes_back(store: Store, dynamo: Ports) -> None:
    assert isinstance(dynamo.wal, DynamoWal)
    everything = {
        "b": {"B": b"\0\xff"},
        "bs": {"BS": [b"a", b"b"]},
        "ss": {"SS": ["a"]},
        "ns": {"NS": ["1"]},
        "flag": {"BOOL": True},
        "none": {"NULL": True},
        "list": {"L": [{"M": {"b": {"B": b"\1"}}}, {"N": "2"}]},
        "text": {"S": '\ud7ff"\\€\U0001f600'},
    }
    key = {"log_id": s("every"), "slot": {"N": "1"}}
    table = dynamo.wal._names["wal"]
    store.call("PutItem", {"TableName": table, "Item": {**key, **everything}})
    assert store.call("GetItem", {"TableName": table, "Key": key})["Item"] == {**key, **everything}
