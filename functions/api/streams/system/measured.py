"""The verbs of streams, measured. Nothing of what they do is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from functions.api.streams.system.recorder import Recorder
from headrace.batch import Batch
from headrace.clock import Clock
from headrace.errors import Overloaded, StoreThrottled
from headrace.index.fetching import RunCache
from headrace.limits import PAGE_BYTES, PAGE_RECORDS
from headrace.log.requests import EVERYTHING, At, ReadPage, Selection
from headrace.log.stores import Stores
from headrace.streams.requests import Appended, AppendRequest, Created, CreateRequest
from headrace.streams.verbs import Streams

T = TypeVar("T")


class MeasuredLogs(Streams):
    """Streams whose appends and reads are measured."""

    def __init__(self, stores: Stores, recorder: Recorder, run_cache: RunCache | None = None) -> None:
        """`run_cache` as in `Streams`."""
        super().__init__(stores, run_cache=run_cache)
        self._recorder = recorder
        self._clock = stores.clock

    def create(self, name: str, request: CreateRequest) -> Created:
        """Measured as an append if it brings records."""
        began = self._clock.monotonic()
        created = self._watched(name, lambda: super(MeasuredLogs, self).create(name, request))
        if created.created and request.records:
            self._appended(name, request.records, began)
        return created

    def append(self, name: str, request: AppendRequest) -> Appended:
        """Measured if it wrote records."""
        began = self._clock.monotonic()
        appended = self._watched(name, lambda: super(MeasuredLogs, self).append(name, request))
        if request.records and not appended.duplicate:
            self._appended(name, request.records, began)
        return appended

    def read(
        self,
        name: str,
        at: At,
        selection: Selection = EVERYTHING,
        *,
        touch: bool = True,
        max_records: int = PAGE_RECORDS,
        max_bytes: int = PAGE_BYTES,
        until: float | None = None,
    ) -> ReadPage:
        """Measured, but not when it merely looks again for one who waits, and finds nothing."""
        began = self._clock.monotonic()
        page = self._watched(
            name,
            lambda: super(MeasuredLogs, self).read(
                name, at, selection, touch=touch, max_records=max_records, max_bytes=max_bytes, until=until
            ),
        )
        if touch or page.data:
            self._recorder.count("tieredstore.read.bytes", "bytes", page.size, name)
            self._recorder.count("tieredstore.read.entries", "count", len(page.data), name)
            self._recorder.count("tieredstore.read.latency", "ns", _since(self._clock, began), name)
        return page

    def _watched(self, name: str, verb: Callable[[], T]) -> T:
        try:
            return verb()
        except (Overloaded, StoreThrottled):
            self._recorder.count("tieredstore.backpressure.over_limit", "count", 1, name)
            raise

    def _appended(self, name: str, records: Batch, began: float) -> None:
        self._recorder.count("tieredstore.append.bytes", "bytes", len(records.data), name)
        self._recorder.count("tieredstore.append.entries", "count", len(records), name)
        self._recorder.count("tieredstore.ingest.flush.latency", "ns", _since(self._clock, began), name)


def _since(clock: Clock, began: float) -> int:
    return max(0, round((clock.monotonic() - began) * 1_000_000_000))
