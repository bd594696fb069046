"""Faults of the store clients are what they say: refused or executed, now or later; and both kinds of client meet them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import obstore
import pytest
from botocore.exceptions import ConnectionClosedError, EndpointConnectionError, ReadTimeoutError

from headrace.errors import StoreThrottled, StoreTimeout
from headrace.objects import ObjectMissing
from headrace.objects.fast import FastObjects
from headrace.objects.s3 import S3Objects, make_client
from headrace.tables.dynamodb import Store
from headrace.tables.items import ConditionFailed, n, s
from tests.chaos import injector
from tests.chaos.injector import Injector, faults_of, operation
from tests.support.emulated_cloud import Cloud, emulated_cloud

_slots = itertools.count(1)
DYNAMODB = sorted(faults_of("dynamodb.PutItem"))
S3 = sorted(faults_of("s3.GetObject"))
EXECUTED = {"failed", "reset", "timeout", "late", "twice"}


class Chosen(Random):
    """Chooses one fault, always."""

    def __init__(self, fault: str) -> None:
        super().__init__(1)
        self.fault = fault

    def choice(self, seq: Any) -> Any:
        return self.fault if self.fault in seq else super().choice(seq)

    def random(self) -> float:
        return 0.0


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with emulated_cloud() as cloud:
        yield cloud


@pytest.fixture
def faulty(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Points clients at the cloud; called with a fault, every request meets it from then on."""
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    environment = {injector.FOLDER: str(tmp_path), injector.RATE: "1", injector.SEED: "1"}

    def inject(fault: str) -> None:
        for owner, name in (*((owner, "send") for owner in injector.SENDERS), (obstore, "put")):
            monkeypatch.setattr(owner, name, getattr(owner, name))  # what `install` replaces, for the end of the test
        monkeypatch.setattr(injector, "Random", lambda _: Chosen(fault))
        injector.install(environment, "test")

    return inject


def calm(folder: Path) -> None:
    (folder / injector.CALM).touch()
    time.sleep(0.1)  # what is late arrives


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("fault", DYNAMODB)
def test_a_put_into_a_table_is_refused_or_executed_as_the_fault_says(
    fault: str, fast: bool, cloud: Cloud, faulty: Callable[[str], None], tmp_path: Path
) -> None:
    table, slot = cloud.deployment.outputs["WalTableName"], next(_slots)
    item = {"log_id": s("log"), "slot": n(slot)}
    put = {"TableName": table, "Item": item, "ConditionExpression": "attribute_not_exists(slot)"}
    store = Store("us-east-1", fast=fast)
    faulty(fault)
    if fault == "twice":
        store.call("PutItem", put)
    else:
        with pytest.raises(StoreThrottled if fault == "throttled" else StoreTimeout):
            store.call("PutItem", put)
    assert injector.met(tmp_path) == {("dynamodb.PutItem", fault): 1}
    calm(tmp_path)
    found = store.call("GetItem", {"TableName": table, "Key": item, "ConsistentRead": True})
    assert ("Item" in found) == (fault in EXECUTED)
    if fault in EXECUTED:
        with pytest.raises(ConditionFailed):
            store.call("PutItem", put)


@pytest.mark.parametrize("fault", S3)
def test_an_object_is_created_or_not_as_the_fault_says(
    fault: str, cloud: Cloud, faulty: Callable[[str], None], tmp_path: Path
) -> None:
    objects = S3Objects(cloud.deployment.outputs["BucketName"], make_client())
    objects.put("standing", b"0123456789")
    faulty(fault)
    if fault == "twice":
        assert objects.create(f"new-{fault}", b"x")
        assert objects.get("standing") == b"0123456789"
        objects.put("standing", b"again")
        time.sleep(0.1)  # the second put arrives
        assert objects.get("standing") == b"again"  # whole, the second time too
    else:
        with pytest.raises((StoreThrottled, StoreTimeout)):  # the client's own second try meets it, too
            objects.get("standing")
        if fault != "cut":  # of an answer with content only
            with pytest.raises((StoreThrottled, StoreTimeout)):
                objects.create(f"new-{fault}", b"x")
    assert set(injector.met(tmp_path)) >= {("s3.GetObject", fault)}
    calm(tmp_path)
    if fault in EXECUTED:
        assert objects.get(f"new-{fault}") == b"x"
    else:
        with pytest.raises(ObjectMissing):
            objects.get(f"new-{fault}")


@pytest.mark.parametrize("fault", sorted(faults_of(injector.FAST_PUT)))
def test_a_fast_put_is_refused_or_executed_as_the_fault_says(
    fault: str, cloud: Cloud, faulty: Callable[[str], None], tmp_path: Path
) -> None:
    client = make_client()
    bucket, key = cloud.deployment.outputs["BucketName"], f"fast-{fault}"
    faulty(fault)
    if fault == "twice":
        FastObjects(bucket, client).put(key, b"x")
    else:
        with pytest.raises(StoreThrottled if fault == "throttled" else StoreTimeout):
            FastObjects(bucket, client).put(key, b"x")
    assert injector.met(tmp_path) == {(injector.FAST_PUT, fault): 1 if fault == "twice" else 2}
    calm(tmp_path)
    time.sleep(injector.LATEST_S if fault == "late" else 0)  # by then a late put has arrived
    if fault in EXECUTED:
        assert S3Objects(bucket, client).get(key) == b"x"
    else:
        with pytest.raises(ObjectMissing):
            S3Objects(bucket, client).get(key)


def test_operations_are_named_by_their_requests() -> None:
    url = "http://127.0.0.1:1/bucket/key"
    target = {"X-Amz-Target": b"DynamoDB_20120810.TransactWriteItems"}
    assert operation("POST", "http://127.0.0.1:1/", target) == "dynamodb.TransactWriteItems"
    assert operation("POST", "http://127.0.0.1:1/", {"X-Amz-Target": "AmazonSQS.SendMessage"}) == "sqs.SendMessage"
    assert operation("GET", url, {}) == "s3.GetObject"
    assert operation("GET", "http://127.0.0.1:1/bucket?list-type=2&prefix=", {}) == "s3.ListObjects"
    assert operation("POST", "http://127.0.0.1:1/bucket?delete", {}) == "s3.DeleteObjects"
    assert operation("PUT", url, {"If-None-Match": "*"}) == "s3.CreateObject"
    assert operation("PUT", url, {}) == "s3.PutObject"


def test_the_same_seed_meets_the_same_faults(tmp_path: Path) -> None:
    class Request:
        method, url, headers = "POST", "http://127.0.0.1:1/", {"X-Amz-Target": "DynamoDB_20120810.Query"}

    class Answer:
        content, status_code = b"", 200

    def outcomes(folder: str) -> list[str]:
        (tmp_path / folder).mkdir()
        one, found = Injector(Random(7), 0.3, tmp_path / folder, "test"), []
        one._later = lambda *_: None  # type: ignore[method-assign]
        for _ in range(60):
            try:
                found.append(str(one.send(lambda request: Answer(), Request()).status_code))
            except (ConnectionClosedError, EndpointConnectionError, ReadTimeoutError) as exc:
                found.append(type(exc).__name__)
        return found

    first = outcomes("a")
    assert first == outcomes("b")
    assert len(set(first)) > 3
