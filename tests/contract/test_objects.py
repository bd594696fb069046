"""What every `Objects` adapter does: one suite, on memory, S3 and files."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
    ResponseStreamingError,
)

from headrace.errors import StoreError, StoreThrottled, StoreTimeout
from headrace.objects import ObjectMissing, Objects, Range
from headrace.objects.memory import MemoryObjects
from headrace.objects.s3 import S3Objects, make_client
from local.machine.objects import FileObjects
from tests.support.aws import REAL_S3, REAL_S3_VERSIONS, aws_for_tests
from tests.support.machine import machine_folder

BUCKET = "headrace-test"
_numbers = itertools.count()


class Bucket(NamedTuple):
    """A bucket of its own for each test: a real server keeps what the test before has left."""

    name: str
    client: Any


@pytest.fixture
def s3() -> Iterator[Bucket]:
    with aws_for_tests(REAL_S3):
        bucket = Bucket(f"{BUCKET}-{next(_numbers)}", make_client())
        bucket.client.create_bucket(Bucket=bucket.name)
        if os.environ.get(REAL_S3_VERSIONS) != "no":
            configuration = {"Status": "Enabled"}
            bucket.client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration=configuration)
        yield bucket


@pytest.fixture(params=["memory", "s3", "files"])
def objects(request: pytest.FixtureRequest) -> Iterator[Objects]:
    if request.param == "memory":
        yield MemoryObjects()
    elif request.param == "files":
        with machine_folder() as folder:
            yield FileObjects(folder)
    else:
        yield S3Objects(*request.getfixturevalue("s3"))


def test_what_is_put_is_got(objects: Objects) -> None:
    for data in (b"", b"x", bytes(range(256)) * 5000):
        objects.put("logs/a/one", data)
        assert objects.get("logs/a/one") == data


def test_a_missing_object_is_told_apart(objects: Objects) -> None:
    with pytest.raises(ObjectMissing):
        objects.get("logs/a/none")
    with pytest.raises(ObjectMissing):
        objects.get_range("logs/a/none", 0, 1)


def test_a_range_is_cut_at_the_end_of_the_object(objects: Objects) -> None:
    objects.put("k", b"0123456789")
    ranges = {(0, 10): b"0123456789", (3, 4): b"3456", (8, 5): b"89", (10, 1): b"", (99, 7): b"", (9, 1): b"9"}
    assert {wanted: objects.get_range("k", *wanted) for wanted in ranges} == ranges
    objects.put("empty", b"")
    assert objects.get_range("empty", 0, 5) == b""


def test_ranges_are_as_one_by_one(objects: Objects) -> None:
    objects.put("k", b"0123456789")
    objects.put("other", b"abc")
    assert objects.get_ranges([]) == []
    wanted = [Range("k", 8, 5), Range("other", 0, 2), Range("k", 0, 1), Range("k", 99, 7), Range("k", 8, 5)]
    assert objects.get_ranges(wanted) == [b"89", b"ab", b"0", b"", b"89"]
    with pytest.raises(ObjectMissing):
        objects.get_ranges([Range("k", 0, 1), Range("none", 0, 1)])


@pytest.mark.parametrize("wanted", [(-1, 5), (0, 0), (0, -1)])
def test_a_range_that_is_none_is_refused(objects: Objects, wanted: tuple[int, int]) -> None:
    objects.put("k", b"0123456789")
    with pytest.raises(ValueError, match="range"):
        objects.get_range("k", *wanted)


def test_create_succeeds_once_and_changes_nothing_after(objects: Objects) -> None:
    assert objects.create("k", b"first")
    assert not objects.create("k", b"second")
    assert not objects.create("k", b"first")
    assert objects.get("k") == b"first"
    objects.put("k", b"by put")
    assert not objects.create("k", b"third")
    objects.delete(["k"])
    assert objects.create("k", b"fourth")


def test_list_is_in_byte_order_and_only_of_the_prefix(objects: Objects) -> None:
    names = ["logs/b/1", "logs/a/2", "logs/a/10", "logs/a/1", "logs/a", "logs/a/Z", "logs/a/z", "logs/ab", "logs/a/é"]
    for name in names:
        objects.put(name, b"x")
    found = list(objects.list("logs/a/"))
    assert found == ["logs/a/1", "logs/a/10", "logs/a/2", "logs/a/Z", "logs/a/z", "logs/a/é"]
    assert list(objects.list("nothing/")) == []
    assert list(objects.list("logs/a/", after=found[0])) == found[1:]
    assert list(objects.list("logs/a/", after=found[-1])) == []


def test_many_objects_are_listed_and_deleted(objects: Objects) -> None:
    names = [f"logs/a/{number:05d}" for number in range(1003)]
    for name in names:
        objects.put(name, b"")
    objects.put("logs/b/stays", b"")
    assert list(objects.list("logs/a/")) == names
    objects.delete(objects.list("logs/a/"))
    assert list(objects.list("logs/")) == ["logs/b/stays"]


def test_deleting_what_is_not_there_is_no_error(objects: Objects) -> None:
    objects.delete([])
    objects.delete(["never", "was"])


# The emulated S3 has no lock of its own; a real one must keep this promise.
@pytest.mark.parametrize("objects", ["memory", "files", *(["s3"] if REAL_S3 in os.environ else [])], indirect=True)
@pytest.mark.parametrize("round_", range(30))
def test_one_of_many_threads_creates(objects: Objects, round_: int) -> None:
    won: list[int] = []
    barrier = threading.Barrier(8)

    def race(number: int) -> None:
        barrier.wait()
        if objects.create("k", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [b"%d" % number for number in won] == [objects.get("k")]


class _Failing:
    """An S3 client that answers every call with the next of `answers`."""

    def __init__(self, *answers: Exception | dict[str, Any]) -> None:
        self.answers = list(answers)
        self.calls = 0

    def _next(self, **arguments: Any) -> dict[str, Any]:
        self.calls += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    get_object = put_object = delete_objects = _next

    def get_paginator(self, name: str) -> Any:
        failing = self

        class Paginator:
            def paginate(self, **arguments: Any) -> Iterator[dict[str, Any]]:
                yield failing._next()

        return Paginator()


def _refusal(status: int, code: str, retries: int = 0) -> ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": ""},
        "ResponseMetadata": {"HTTPStatusCode": status, "RetryAttempts": retries},
    }
    return ClientError(answer, "Call")


CALLS: dict[str, Callable[[Objects], object]] = {
    "get": lambda objects: objects.get("k"),
    "get_range": lambda objects: objects.get_range("k", 0, 1),
    "get_ranges": lambda objects: objects.get_ranges([Range("k", 0, 1)]),
    "put": lambda objects: objects.put("k", b""),
    "create": lambda objects: objects.create("k", b""),
    "list": lambda objects: list(objects.list("k")),
    "delete": lambda objects: objects.delete(["k"]),
}
WRITES = ("put", "create", "delete")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("failure", "meaning"),
    [
        (_refusal(503, "SlowDown"), StoreThrottled),
        (_refusal(429, "TooManyRequestsException"), StoreThrottled),
        (_refusal(503, "ServiceUnavailable"), StoreTimeout),
        (_refusal(500, "InternalError"), StoreTimeout),
        (_refusal(400, "RequestTimeout"), StoreTimeout),
        (ReadTimeoutError(endpoint_url="x"), StoreTimeout),
        (ConnectTimeoutError(endpoint_url="x"), StoreTimeout),
        (EndpointConnectionError(endpoint_url="x"), StoreTimeout),
        (ResponseStreamingError(error="reset"), StoreTimeout),
    ],
)
def test_every_call_translates_failures(call: str, failure: Exception, meaning: type[StoreError]) -> None:
    with pytest.raises(meaning) as raised:
        CALLS[call](S3Objects(BUCKET, _Failing(failure)))
    assert raised.value.__cause__ is failure


@pytest.mark.parametrize("call", WRITES)
def test_a_write_that_was_tried_before_it_was_throttled_is_of_unknown_outcome(call: str) -> None:
    with pytest.raises(StoreTimeout):
        CALLS[call](S3Objects(BUCKET, _Failing(_refusal(503, "SlowDown", retries=1))))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("failure", [_refusal(403, "AccessDenied"), _refusal(404, "NoSuchBucket")])
def test_a_wrong_setting_is_not_taken_for_a_missing_object_or_a_slow_store(call: str, failure: ClientError) -> None:
    with pytest.raises(ClientError):
        CALLS[call](S3Objects(BUCKET, _Failing(failure)))


def test_create_meets_another_create_in_flight_and_tries_again() -> None:
    conflict, pauses = _refusal(409, "ConditionalRequestConflict"), list[float]()
    client = _Failing(conflict, conflict, _refusal(412, "PreconditionFailed"))
    assert not S3Objects(BUCKET, client, sleep=pauses.append).create("k", b"")
    assert client.calls == 3
    assert len(pauses) == 2
    client = _Failing(conflict, {})
    assert S3Objects(BUCKET, client, sleep=pauses.append).create("k", b"")


def test_create_that_only_meets_others_wrote_nothing() -> None:
    client = _Failing(*[_refusal(409, "ConditionalRequestConflict")] * 9)
    with pytest.raises(StoreThrottled):
        S3Objects(BUCKET, client, sleep=lambda _: None).create("k", b"")
    assert client.calls < 9


def test_a_repeat_inside_the_client_does_not_make_our_own_object_anothers() -> None:
    client = _Failing(_refusal(412, "PreconditionFailed", retries=1))
    with pytest.raises(StoreTimeout):
        S3Objects(BUCKET, client).create("k", b"")


def test_an_object_that_was_not_deleted_is_reported() -> None:
    def answer(code: str) -> dict[str, Any]:
        return {"Errors": [{"Key": "k", "Code": code}]}

    with pytest.raises(StoreThrottled):
        S3Objects(BUCKET, _Failing(answer("SlowDown"))).delete(["k"])
    with pytest.raises(StoreTimeout):
        S3Objects(BUCKET, _Failing(answer("InternalError"))).delete(["k"])
