"""Reads many ranges of one bucket at the same time, through obstore: a hundred take little longer than one.

Threads on boto3 take six times as long and ten times the CPU. The event loop runs in a thread of its own, one for all
buckets of the process, so that callers stay synchronous. obstore and asyncio are imported with the first read, because
some processes never make one.
"""

from __future__ import annotations

import atexit
import re
import threading
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from headrace.clock import check_deadline
from headrace.errors import StoreThrottled, StoreTimeout
from headrace.objects import ObjectMissing, Range

if TYPE_CHECKING:
    import asyncio

    from obstore.store import S3Store

# An address comes before it, which may hold any digits but no space.
_STATUS = re.compile(r" Server returned non-2xx status code: (\d{3}) ")
_THROTTLED = ("429", "503")
_BEHIND_THE_END = "416"

T = TypeVar("T")


class ParallelRanges:
    """A reader of ranges of one bucket. Thread-safe."""

    def __init__(self, bucket: str, client: Any, *, connect_timeout_s: float = 1.0, timeout_s: float = 2.0) -> None:
        """Creates a reader for `bucket`. The endpoint is that of `client` (a boto3 S3 client); credentials are found as
        botocore finds them.

        Args:
            connect_timeout_s, timeout_s: timeouts of one try of one read; a failed read is tried once more.
        """
        self._bucket = bucket
        self._client = client
        self._connect_timeout = timedelta(seconds=connect_timeout_s)
        self._timeout = timedelta(seconds=timeout_s)
        self._lock = threading.Lock()

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Returns the bytes of each range, in their order; fewer at the end of an object.

        Raises:
            ObjectMissing: an object does not exist.
            StoreTimeout, StoreThrottled: a read was refused twice, or broke off.
            DeadlineExceeded: the request's time is over; nothing was read.
        """
        for one in ranges:
            if one.start < 0 or one.length < 1:
                raise ValueError(f"no such range: start={one.start} length={one.length}")
        check_deadline()
        with self._lock:
            store = self._store
        return _run(_all(store, ranges))

    @cached_property
    def _store(self) -> S3Store:
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
                "timeout": self._timeout,
            },
            retry_config={"max_retries": 1, "retry_timeout": 2 * self._timeout},
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
    from obstore.exceptions import GenericError

    try:
        return bytes(await get_range_async(store, one.key, start=one.start, length=one.length))
    except FileNotFoundError as exc:
        raise ObjectMissing(one.key) from exc
    except GenericError as exc:
        reason = str(exc)
        answer = _STATUS.search(reason)
        status = answer.group(1) if answer else None
        if status == _BEHIND_THE_END:
            return b""
        kind = StoreThrottled if status in _THROTTLED else StoreTimeout
        raise kind(f"no whole answer from the object store: object={one.key} reason={reason:.200}") from exc


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
            thread = threading.Thread(target=_loop.run_forever, name="object-ranges", daemon=True)
            thread.start()
            atexit.register(_end, _loop, thread)
    return asyncio.run_coroutine_threadsafe(work, _loop).result()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Stops the event loop before the interpreter exits: otherwise its thread would be cut off inside native code."""
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_END_S)
