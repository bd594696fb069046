"""Collects what one process measures in a window of time. A window becomes interval records of the metrics profile.

Metric names, units and the shape of a histogram are those of the Prisma Streams server, so that its screens find them;
docs/streams.md lists the names. The profile computes percentiles from the histogram.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, Unpack

from headrace.batch import Batch
from headrace.clock import Clock
from headrace.errors import Overloaded, StoreThrottled
from headrace.index.fetching import RunCache
from headrace.log.requests import EVERYTHING, At, Bounds, ReadPage, Selection
from headrace.log.seam import Which, split
from headrace.log.stores import Stores
from headrace.objects import keys
from headrace.objects.observed import Request
from headrace.streams.values import METRIC_STREAMS, Appended, AppendRequest, Created, CreateRequest
from headrace.streams.verbs import Streams

MAX_STREAMS = 200  # that a window tells apart; the others of a busy interval are counted together, without a name

Unit = Literal["ns", "bytes", "count"]


class Series(NamedTuple):
    """A measured series: a metric in a unit, of a stream or of the process, with tags as sorted pairs."""

    metric: str
    unit: Unit
    stream: str | None = None
    tags: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Summary:
    """A summary of a series' values, which are not negative: count, sum, extremes, and the number of values per power
    of two.

    A bucket is named by the highest power of two that is not above its values; 0 and 1 share the first bucket.
    """

    count: int = 0
    sum: int = 0
    min: int = 0
    max: int = 0
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, value: int) -> None:
        """Adds a value."""
        self.min = min(self.min, value) if self.count else value
        self.max = max(self.max, value)
        self.count += 1
        self.sum += value
        bucket = 1 << (max(1, value).bit_length() - 1)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def merge(self, other: Summary) -> None:
        """Adds the values of another summary."""
        if not other.count:
            return
        self.min = min(self.min, other.min) if self.count else other.min
        self.max = max(self.max, other.max)
        self.count += other.count
        self.sum += other.sum
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count


class Window:
    """The values measured since the window's start, summarized by series."""

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms  # time of the newest value
        self._series: dict[Series, Summary] = {}
        self._streams: set[str] = set()

    def __len__(self) -> int:
        """Returns the number of series."""
        return len(self._series)

    def add(self, series: Series, value: int, at_ms: int) -> None:
        """Adds a value to a series. Beyond 200 streams in the window, values are added to a series without a stream."""
        self._of(series).add(value)
        self.last_ms = max(self.last_ms, at_ms)

    def merge(self, earlier: Window) -> None:
        """Adds all values of an earlier window, and starts where that one started."""
        self.start_ms = min(self.start_ms, earlier.start_ms)
        self.last_ms = max(self.last_ms, earlier.last_ms)
        for series, summary in earlier._series.items():
            self._of(series).merge(summary)

    def records(self, *, now_ms: int, interval_ms: int, instance: str) -> list[dict[str, Any]]:
        """Returns one record for each series: its names, the window's start and end, and the summary of its values.

        The interval ends `interval_ms` after its start, or with the newest value, but not after `now_ms`: a function
        that was frozen for an hour has not measured for an hour.
        """
        end_ms = max(self.start_ms, min(now_ms, max(self.start_ms + interval_ms, self.last_ms)))
        return [
            {
                "metric": series.metric,
                "unit": series.unit,
                "windowStart": self.start_ms,
                "windowEnd": end_ms,
                "instance": instance,
                "stream": series.stream,
                "tags": dict(series.tags),
                "count": summary.count,
                "sum": summary.sum,
                "min": summary.min,
                "max": summary.max,
                "buckets": {str(bucket): count for bucket, count in sorted(summary.buckets.items())},
            }
            for series, summary in self._series.items()
        ]

    def _of(self, series: Series) -> Summary:
        stream = series.stream
        if stream is not None and stream not in self._streams:
            if len(self._streams) < MAX_STREAMS:
                self._streams.add(stream)
            else:
                series = series._replace(stream=None)
        return self._series.setdefault(series, Summary())


class Recorder:
    """A collector of measured values, which any thread may call.

    Metrics streams themselves are not measured: otherwise a reader that waits on it would be woken by the record of its
    own read, forever.
    """

    def __init__(self, clock: Clock, *, enabled: bool = True) -> None:
        self._clock = clock
        self._enabled = enabled
        self._lock = threading.Lock()
        self._window: Window | None = None
        self._own_log: str | None = None
        self.on_first: Callable[[], None] = lambda: None  # called when there was no value, and now there is

    @property
    def pending(self) -> bool:
        """Whether there are values that were not taken yet."""
        return self._window is not None

    def own_log(self, log_id: str) -> None:
        """Sets the log of the metrics stream, whose objects are not measured."""
        self._own_log = log_id

    def count(self, metric: str, unit: Unit, value: int, stream: str | None = None, **tags: str) -> None:
        """Adds a measured value to the current window, in the series of this metric, stream and tags. Values of
        metrics streams are ignored.
        """
        if self._enabled and stream not in METRIC_STREAMS:
            self._add(Series(metric, unit, stream, tuple(sorted(tags.items()))), value)

    def observe(self, request: Request) -> None:
        """Adds the time of a get or a put of the object store; all other requests are ignored, and those for the
        metrics stream's objects. Ranges that are read together count as one get.
        """
        found = keys.artifact(request.keys[0]) if request.operation in ("get", "put") else None
        if found is None or found[0] == self._own_log:
            return
        outcome = request.outcome if request.outcome in ("ok", "miss") else "error"
        took_ns = round(request.took_s * 1_000_000_000)
        metric = f"tieredstore.objectstore.{request.operation}.latency"
        self.count(metric, "ns", took_ns, artifact=found[1], outcome=outcome)

    def take(self) -> Window | None:
        """Removes and returns all values so far; None if there are none."""
        with self._lock:
            taken, self._window = self._window, None
            return taken

    def put_back(self, taken: Window) -> None:
        """Puts values that were taken back, so that they are part of the next window."""
        with self._lock:
            was_empty = self._window is None
            if self._window is not None:
                self._window.merge(taken)
            else:
                self._window = taken
        if was_empty:
            self.on_first()

    def _add(self, series: Series, value: int) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            was_empty = self._window is None
            if self._window is None:
                self._window = Window(now_ms)
            self._window.add(series, value, now_ms)
        if was_empty:
            self.on_first()


T = TypeVar("T")


class MeasuredLogs(Streams):
    """The verbs of streams, with appends and reads measured."""

    def __init__(self, stores: Stores, recorder: Recorder, run_cache: RunCache | None = None) -> None:
        """Creates the verbs; `run_cache` as in `Streams`."""
        super().__init__(stores, run_cache=run_cache)
        self._recorder = recorder
        self._clock = stores.clock

    def create(self, name: str, request: CreateRequest) -> Created:
        """Creates a stream. If it is new and the request has records, they are measured as an append; otherwise nothing
        is measured, except an overload.
        """
        began = self._clock.monotonic()
        created = self._watched(name, lambda: super(MeasuredLogs, self).create(name, request))
        if created.created and request.records:
            self._appended(name, request.records, began)
        return created

    def append(self, name: str, request: AppendRequest) -> Appended:
        """Appends records; measured if any were written."""
        began = self._clock.monotonic()
        appended = self._watched(name, lambda: super(MeasuredLogs, self).append(name, request))
        if request.records and not appended.duplicate:
            self._appended(name, request.records, began)
        return appended

    def read(self, which: Which, at: At, selection: Selection = EVERYTHING, **bounds: Unpack[Bounds]) -> ReadPage:
        """Reads a page; measured unless it is only a poll of a waiting reader that finds nothing."""
        began = self._clock.monotonic()
        name, _ = split(which)
        page = self._watched(name, lambda: super(MeasuredLogs, self).read(which, at, selection, **bounds))
        if bounds.get("touch", True) or page.data:
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
