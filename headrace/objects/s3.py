"""The object store on S3. boto3, and obstore where `FastObjects` is given.

The role needs `s3:ListBucket`, too: without it S3 answers 403 instead of 404 for a missing key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, FlexibleChecksumError, HTTPClientError, IncompleteReadError
from botocore.exceptions import ConnectionError as NoConnectionError

from headrace.clock import check_deadline
from headrace.errors import StoreError, StoreThrottled, StoreTimeout
from headrace.objects import ObjectMissing, Range

if TYPE_CHECKING:
    from headrace.objects.fast import FastObjects

_DELETE_BATCH = 1000  # maximum keys of one DeleteObjects call
_CONFLICT_TRIES = 4
_CONFLICT_PAUSE_S = 0.05
_THROTTLED = frozenset(
    {
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "TooManyRequestsException",
        "KMS.ThrottlingException",
        "ConditionalRequestConflict",
        "OperationAborted",
        "RequestTimeTooSkewed",  # signed more than 15 minutes before it arrived
    }
)
_UNKNOWN = frozenset({"RequestTimeout"})  # S3 calls it a 400
_NO_WHOLE_ANSWER = (NoConnectionError, HTTPClientError, IncompleteReadError, FlexibleChecksumError)
_MISSING = frozenset({"NoSuchKey", "404"})


def make_client(*, connect_timeout_s: float = 1.0, read_timeout_s: float = 2.0, max_pool: int = 64) -> Any:
    """Creates an S3 client with short timeouts; botocore determines endpoint and credentials.

    Args:
        connect_timeout_s, read_timeout_s: timeouts of one try; there are two. The read timeout counts from the last
            byte received.
        max_pool: number of connections kept, which is the number of threads that can call at once without waiting.
    """
    config = Config(
        connect_timeout=connect_timeout_s,
        read_timeout=read_timeout_s,
        max_pool_connections=max_pool,
        retries={"mode": "standard", "total_max_attempts": 2},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.client("s3", config=config)


class S3Objects:
    """The port `headrace.objects.Objects` for one bucket. Thread-safe, as the client is."""

    def __init__(
        self,
        bucket: str,
        client: Any,
        *,
        fast: FastObjects | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Creates an adapter for `bucket` that uses `client` (a boto3 S3 client, see `make_client`).

        Args:
            fast: reads ranges, all at once, and puts; without it `client` does, one by one.
        """
        self._bucket = bucket
        self._client = client
        self._fast = fast
        self._sleep = sleep

    def get(self, key: str) -> bytes:
        """Returns the whole object. Raises ObjectMissing if there is none under this key."""
        with _translated(key):
            body: bytes = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
            return body

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Returns `length` bytes from `start` on; fewer, or none, at the end of the object. Raises ObjectMissing if it does
        not exist. Raises ValueError for a negative start or a length below 1.
        """
        if start < 0 or length < 1:
            raise ValueError(f"no such range: start={start} length={length}")
        wanted = f"bytes={start}-{start + length - 1}"
        with _translated(key):
            try:
                body: bytes = self._client.get_object(Bucket=self._bucket, Key=key, Range=wanted)["Body"].read()
            except ClientError as exc:
                if _status(exc) == 416:  # begins at or behind the end of the object
                    return b""
                raise
            return body

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Returns the bytes of each range, fewer at the end of an object. Raises ObjectMissing if one of the objects does
        not exist.
        """
        if self._fast is not None:
            return self._fast.get_ranges(ranges)
        return [self.get_range(*one) for one in ranges]

    def put(self, key: str, data: bytes) -> None:
        """Writes the object; replaces one that is already under this key."""
        if self._fast is not None:
            self._fast.put(key, data)
        else:
            with _translated(key, writes=True):
                self._client.put_object(Bucket=self._bucket, Key=key, Body=data)

    def create(self, key: str, data: bytes) -> bool:
        """Writes the object if the key is free; returns whether it was."""
        for attempt in range(1, _CONFLICT_TRIES + 1):
            with _translated(key, writes=True):
                try:
                    self._client.put_object(Bucket=self._bucket, Key=key, Body=data, IfNoneMatch="*")
                    return True
                except ClientError as exc:
                    was_taken = _status(exc) == 412
                    met_another = _status(exc) == 409
                    # A repeat inside the client may have met its own first try: then the outcome is unknown.
                    if was_taken and not _repeated(exc):
                        return False
                    if was_taken or not met_another or _repeated(exc) or attempt == _CONFLICT_TRIES:
                        raise
            self._sleep(_CONFLICT_PAUSE_S * attempt)
        raise AssertionError("the last try returns or raises")

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yields the keys that begin with `prefix` and come after `after`, in byte order; fetches further pages as they
        are needed.
        """
        wanted = {"Bucket": self._bucket, "Prefix": prefix, **({"StartAfter": after} if after else {})}
        pages = iter(self._client.get_paginator("list_objects_v2").paginate(**wanted))
        while True:
            with _translated(prefix):
                page = next(pages, None)
            if page is None:
                return
            for item in page.get("Contents", ()):
                yield item["Key"]

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects (in a versioned bucket they get a delete marker); missing ones are no error. Raises
        StoreThrottled or StoreTimeout if one could not be removed.
        """
        rest = iter(keys)
        while batch := list(islice(rest, _DELETE_BATCH)):
            removal = {"Objects": [{"Key": key} for key in batch], "Quiet": True}
            with _translated(batch[0], writes=True):
                answer = self._client.delete_objects(Bucket=self._bucket, Delete=removal)
            for error in answer.get("Errors", ()):
                kind = StoreThrottled if error.get("Code") in _THROTTLED else StoreTimeout
                raise kind(f"object is not deleted: object={error.get('Key')} code={error.get('Code')}")


@contextmanager
def _translated(key: str, *, writes: bool = False) -> Iterator[None]:
    """Converts botocore's errors in a block to those of the port; raises DeadlineExceeded before it if the request's time
    is over. An error that is not in the table is a bug or a wrong setting, and passes unchanged.
    """
    check_deadline()
    try:
        yield
    except ClientError as exc:
        found = _meaning(exc, key, writes=writes)
        if found is None:
            raise
        raise found from exc
    except _NO_WHOLE_ANSWER as exc:
        raise StoreTimeout(f"no whole answer from the object store: object={key}") from exc


def _meaning(exc: ClientError, key: str, *, writes: bool) -> StoreError | ObjectMissing | None:
    code = str(exc.response.get("Error", {}).get("Code", ""))
    return meaning_of(key, code, _status(exc), writes=writes, was_repeated=_repeated(exc))


def meaning_of(
    key: str, code: str, status: int, *, writes: bool, was_repeated: bool = False
) -> StoreError | ObjectMissing | None:
    """Returns the port's error for an answer of S3; None if it is a bug or a wrong setting, which no error of the port
    describes.

    Args:
        code: the error code of the answer; "" if it has none.
        was_repeated: there was an earlier try of the same call, whose outcome is unknown.
    """
    text = f"object={key} code={code} status={status}"
    refused = code in _THROTTLED or status == 429
    unclear = code in _UNKNOWN or status >= 500 or status == 412
    if refused and not (writes and was_repeated):  # the earlier try may have written
        return StoreThrottled(text)
    if refused or unclear:
        return StoreTimeout(text)
    if code in _MISSING and not writes:
        return ObjectMissing(key)
    return None


def _status(exc: ClientError) -> int:
    return int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _repeated(exc: ClientError) -> bool:
    """Returns whether the client had tried more than once before this answer."""
    return int(exc.response.get("ResponseMetadata", {}).get("RetryAttempts", 0)) > 0
