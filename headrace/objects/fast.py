"""The two calls to a bucket that requests wait for most, through obstore: to read many ranges at once, and to write.

A hundred ranges take little longer than one; threads on boto3 take six times as long and ten times the CPU. A write of
70 KB takes a fifth of boto3's CPU. The event loop of the reads runs in a thread of its own, one for all buckets of the
process, so that callers stay synchronous. obstore and asyncio are imported with the first call.
"""

from __future__ import annotations

import atexit
import re
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from headrace.clock import check_deadline
from headrace.errors import StoreError, StoreTimeout
from headrace.objects import ObjectMissing, Range
from headrace.objects.s3 import meaning_of

if TYPE_CHECKING:
    import asyncio

    from obstore.store import S3Store

# How obstore tells an answer that is an error. An address comes before it, which may hold any digits but no space; then
# comes the body.
_STATUS = re.compile(r" Server returned non-2xx status code: (\d{3}) ")
_CODE = re.compile(r"<Code>([\w.]+)</Code>")
_BEHIND_THE_END = 416
_TRIES = 2
_PAUSE_S = 0.05  # before the second try of a put: a connection that the first one broke is then known to be broken

T = TypeVar("T")


class FastObjects:
    """A reader and writer of one bucket. Thread-safe."""

    def __init__(
        self,
        bucket: str,
        client: Any,
        *,
        connect_timeout_s: float = 1.0,
        timeout_s: float = 2.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Creates a reader and writer of `bucket`. The endpoint is that of `client` (a boto3 S3 client); credentials are
        found as botocore finds them.

        Args:
            connect_timeout_s: timeout of a connection.
            timeout_s: timeout of one try of one read, and half of that of a put, which sends up to 8 MiB. A failed call
                is tried once more.
            sleep: waits that many seconds before the second try of a put.
        """
        self._bucket = bucket
        self._client = client
        self._connect_timeout = timedelta(seconds=connect_timeout_s)
        self._timeout = timedelta(seconds=timeout_s)
        self._sleep = sleep
        self._lock = threading.Lock()

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Returns the bytes of each range, in their order; fewer at the end of an object.

        Raises:
            ObjectMissing: an object does not exist.
            StoreTimeout, StoreThrottled: a read was refused twice, or broke off.
            DeadlineExceeded: the request's time is over; nothing was read.
            ValueError: a range has a negative start or a length below 1.
        """
        for one in ranges:
            if one.start < 0 or one.length < 1:
                raise ValueError(f"no such range: start={one.start} length={one.length}")
        check_deadline()
        with self._lock:
            store = self._reads
        return _run(_all(store, ranges))

    def put(self, key: str, data: bytes) -> None:
        """Writes the object.

        Raises:
            StoreThrottled: every try was refused; nothing was written.
            StoreTimeout: a try failed or broke off; the object may exist, whole.
            DeadlineExceeded: the request's time is over; nothing was written.
            obstore.exceptions.BaseError: S3 refuses for a reason that another try would not change.
        """
        import obstore
        from obstore.exceptions import BaseError

        check_deadline()
        with self._lock:
            store = self._writes
        failures: list[StoreError] = []
        while len(failures) < _TRIES:
            if failures:
                self._sleep(_PAUSE_S)
            try:
                obstore.put(store, key, data, use_multipart=False)
                return
            except BaseError as exc:
                failure = _failure(key, exc, writes=True)
                if not isinstance(failure, StoreError):
                    raise
                failure.__cause__ = exc
                failures.append(failure)
        raise next((one for one in failures if isinstance(one, StoreTimeout)), failures[-1])

    @cached_property
    def _reads(self) -> S3Store:
        return self._open(tries=_TRIES, timeout=self._timeout)

    @cached_property
    def _writes(self) -> S3Store:
        # A repeat inside obstore would hide what its first try met.
        return self._open(tries=1, timeout=2 * self._timeout)

    def _open(self, *, tries: int, timeout: timedelta) -> S3Store:
        from obstore.auth.boto3 import Boto3CredentialProvider
        from obstore.store import S3Store

        endpoint: str = self._client.meta.endpoint_url
        is_aws = (urlsplit(endpoint).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))
        place: dict[str, Any] = {"virtual_hosted_style_request": True} if is_aws else {"endpoint": endpoint}
        return S3Store(
            self._bucket,
            region=self._client.meta.region_name,
            credential_provider=Boto3CredentialProvider(),
            client_options={
                "allow_http": not is_aws,
                "connect_timeout": self._connect_timeout,
                "timeout": timeout,
            },
            retry_config={"max_retries": tries - 1, "retry_timeout": tries * timeout},
            **place,
        )


async def _all(store: S3Store, ranges: Sequence[Range]) -> list[bytes]:
    import asyncio

    reads = [asyncio.ensure_future(_one(store, one)) for one in ranges]
    try:
        return await asyncio.gather(*reads)
    finally:
        for read in reads:
            read.cancel()


async def _one(store: S3Store, one: Range) -> bytes:
    from obstore import get_range_async
    from obstore.exceptions import BaseError

    try:
        return bytes(await get_range_async(store, one.key, start=one.start, length=one.length))
    except FileNotFoundError as exc:
        raise ObjectMissing(one.key) from exc
    except BaseError as exc:
        if _status(exc) == _BEHIND_THE_END:
            return b""
        failure = _failure(one.key, exc, writes=False)
        if failure is None:
            raise
        raise failure from exc


def _failure(key: str, exc: Exception, *, writes: bool) -> StoreError | ObjectMissing | None:
    """Returns the port's error for an error of obstore; None if it is a bug or a wrong setting."""
    status, code = _status(exc), _CODE.search(str(exc))
    if status is not None:
        return meaning_of(key, code[1] if code else "", status, writes=writes)
    reason = str(exc).partition("\n")[0].rpartition(" - ")[2]
    return StoreTimeout(f"no whole answer from the object store: object={key} reason={reason:.200}")


def _status(exc: Exception) -> int | None:
    answer = _STATUS.search(str(exc))
    return int(answer[1]) if answer else None


_END_S = 2.0  # that the end of the process waits for the event loop
_start = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in the event loop's thread and returns its result."""
    import asyncio

    global _loop
    with _start:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_loop.run_forever, name="object-reads", daemon=True)
            thread.start()
            atexit.register(_end, _loop, thread)
    return asyncio.run_coroutine_threadsafe(work, _loop).result()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Stops the event loop before the interpreter exits: otherwise its thread would be cut off inside native code."""
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_END_S)
