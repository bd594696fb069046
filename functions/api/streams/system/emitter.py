"""Writes a metrics stream: the first process that needs the stream creates it, and each window is appended as one
batch.

Creating it takes a create and a change of definition. Both do nothing if they were done before, so any number of
processes may do them at once; no process appends before it has seen the definition.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from functions.api.door.background import Periodic
from functions.api.door.requests import Load
from functions.api.streams.system.recorder import Recorder, Series, Window
from headrace.batch import Batch
from headrace.clock import Clock
from headrace.definition import Definition
from headrace.errors import NotFound, Overloaded, StoreThrottled
from headrace.json import jsontext, registry
from headrace.log.requests import JSON
from headrace.streams import profiles
from headrace.streams.values import SYSTEM_STREAM, AppendRequest, CreateRequest
from headrace.streams.verbs import Streams
from headrace.wal.state import LogConfig, LogState

_log = logging.getLogger(__name__)


def instance_id() -> str:
    """Returns a random id of this process, from the operating system, so that clones of a snapshot have different
    ones.
    """
    return f"{os.getpid()}-{os.urandom(4).hex()}"


class Emitter:
    """A writer that appends the metrics of a process to the metrics stream, in the background."""

    def __init__(
        self,
        recorder: Recorder,
        logs: Callable[[], Streams],
        gauges: Callable[[], Iterable[tuple[Series, int]]],
        clock: Clock,
        *,
        interval_ms: int,
        runs_between_requests: bool,
        streams: Sequence[str] = (SYSTEM_STREAM,),
    ) -> None:
        """Creates an emitter.

        Args:
            gauges: returns figures of the process; called when a window ends, they are appended with its measurements.
            streams: the streams that processes share; each writes to one, by the hash of its instance id.
            interval_ms, runs_between_requests: as of `Periodic`.
        """
        self._recorder = recorder
        self._logs = logs
        self._gauges = gauges
        self._clock = clock
        self._interval_ms = interval_ms
        self._instance: str | None = None
        self._streams = tuple(streams)
        self.stream = self._streams[0]
        self._is_open = False
        self._periodic = Periodic(
            self.flush,
            lambda: recorder.pending,
            clock,
            name="stream-metrics",
            interval_ms=interval_ms,
            runs_between_requests=runs_between_requests,
        )
        recorder.on_first = self._periodic.begun

    def invocation_ended(self) -> None:
        """Calls `flush`, on Lambda, if it is due; as `Periodic.invocation_ended`."""
        self._periodic.invocation_ended()

    def flush(self) -> None:
        """Appends what was measured so far. Never raises: no request fails because of a metric.

        Values that were certainly not stored are appended again with the next ones; after any other error they are
        dropped, since they may be stored.
        """
        window = self._recorder.take()
        if window is None:
            return
        try:
            self._append(window)
        except (Overloaded, StoreThrottled, NotFound) as exc:
            _log.warning("metrics wait: error=%s", type(exc).__name__)
            self._is_open = self._is_open and not isinstance(exc, NotFound)
            self._recorder.put_back(window)
        except Exception:  # noqa: BLE001 - as said
            _log.exception("metrics were not appended")

    def _append(self, window: Window) -> None:
        if self._instance is None:  # here and not before: a snapshot is taken of a process that did nothing yet
            self._instance = instance_id()
            self.stream = share(self._instance, self._streams)
        logs = self._logs()
        if not self._is_open:
            self._open(logs)
            self._is_open = True
        now_ms = self._clock.now_ms()
        for series, value in self._gauges():
            window.add(series, value, window.last_ms)
        found = window.records(now_ms=now_ms, interval_ms=self._interval_ms, instance=self._instance)
        records = Batch.of([jsontext.dumps(record) for record in found])
        logs.append(self.stream, AppendRequest(content_type=JSON, records=records))

    def _open(self, logs: Streams) -> None:
        created = logs.create(self.stream, CreateRequest(content_type=JSON))
        self._recorder.own_log(created.head.log_id)
        logs.define(self.stream, partial(_metrics_definition, self.stream))


def share(instance: str, streams: Sequence[str]) -> str:
    """Returns the stream that an instance writes to: one of them, evenly over many instances."""
    return streams[crc32(instance.encode()) % len(streams)]


def _metrics_definition(name: str, before: Definition, config: LogConfig, state: LogState) -> Definition:
    """Returns the definition that a metrics stream must have; `before` itself, if it already has the metrics profile."""
    wanted = profiles.of_system_stream(name)
    assert wanted is not None, "this is its name"
    update = profiles.install(
        profiles.of(before), wanted, content_type=config.content_type, is_empty=state.next_offset == 0
    )
    if update is None:
        return before
    return Definition(registry.install(update, name=name, next_offset=state.next_offset), wanted)


_STATUS = Path("/proc/self/status")
_LINE = re.compile(r"^(VmRSS|VmHWM|VmData|RssAnon|RssFile|RssShmem):\s+(\d+) kB$", re.MULTILINE)


class Memory(NamedTuple):
    """Memory of the process, in bytes.

    Attributes:
        resident, peak: in RAM, now and at the most.
        private: what the interpreter and its libraries have allocated, whether it is in RAM or not.
        anonymous, file, shared: parts of `resident`; None where the system does not distinguish them.
    """

    resident: int
    peak: int
    private: int
    anonymous: int | None
    file: int | None
    shared: int | None


def measure_memory() -> Memory:
    """Returns the memory of this process, now."""
    try:
        status = _STATUS.read_text()
    except OSError:
        status = ""
    return parse_status(status, _peak_bytes())


def parse_status(status: str, peak: int) -> Memory:
    """Parses `/proc/self/status`. Where there is none (no Linux), the text is empty, and all figures are `peak` or
    None.
    """
    found = {name: int(kilobytes) * 1024 for name, kilobytes in _LINE.findall(status)}
    return Memory(
        resident=found.get("VmRSS", peak),
        peak=max(found.get("VmHWM", 0), found.get("VmRSS", peak)),
        private=found.get("VmData", peak),
        anonymous=found.get("RssAnon"),
        file=found.get("RssFile"),
        shared=found.get("RssShmem"),
    )


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def gauges(load: Load, memory: Memory) -> list[tuple[Series, int]]:
    """Returns the gauges that each window of metrics gets: number and bytes of the writes in progress, and the bytes of
    memory in RAM.
    """
    return [
        (Series("tieredstore.ingest.queue.requests", "count"), load.writes),
        (Series("tieredstore.ingest.queue.bytes", "bytes"), load.write_bytes),
        (Series("process.rss.bytes", "bytes"), memory.resident),
    ]
