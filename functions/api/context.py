"""The context of the api: what its routes work with, made once for each process."""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from functions.api.door.access import Keyring, check_exposure, parse
from functions.api.door.background import CountKeeper
from functions.api.door.entry import Access, Traffic
from functions.api.door.requests import on_lambda
from functions.api.streams.inspection.inspector import Inspector
from functions.api.streams.system.emitter import Emitter, gauges, measure_memory
from functions.api.streams.system.recorder import MeasuredLogs, Recorder
from functions.metrics import ApiMetric, Meter
from functions.wiring import Wiring, open_wiring
from headrace.clock import Clock, SystemClock
from headrace.index.fetching import RunCache
from headrace.log.context import Stores
from headrace.objects.observed import ObservedObjects, Request, RequestCounts
from headrace.settings import Settings
from headrace.streams.verbs import Streams

if TYPE_CHECKING:  # at run time it would cost every process the import of numpy and pyarrow
    from headrace.query.engine.context import Engine


DYNAMODB_TIMEOUT_S = 2.0  # of one call to a store: within the budget of an append there is time for a second try
OBJECT_STORE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Context:
    """The context of one process.

    Attributes:
        logs: the verbs for one request: the same object each time, or, in a process that forgets everything after each
            request, a fresh one.
        inspector: reads what is shown about streams; like `logs`.
        engine: answers searches and aggregates; like `logs`. The first call imports what reads indexes.
        counts: requests to the object store.
        metrics: what was measured, on its way to the metrics stream.
        traffic: requests under way.
        is_server: background work has threads of its own; a Lambda function starts it with a request.
        random_below: a random integer from 0 to its argument, exclusive.
    """

    settings: Settings
    logs: Callable[[], Streams]
    access: Access
    meter: Meter[ApiMetric] = field(default_factory=lambda: Meter(ApiMetric))
    clock: Clock = field(default_factory=SystemClock)
    random_below: Callable[[int], int] = secrets.randbelow
    inspector: Callable[[], Inspector] = field(kw_only=True)
    engine: Callable[[], Engine] = field(kw_only=True)
    counts: CountKeeper = field(kw_only=True)
    metrics: Emitter = field(kw_only=True)
    traffic: Traffic = field(kw_only=True)
    is_server: bool = field(kw_only=True)

    def request_began(self) -> None:
        """Must be called at the start of each request. Returns at once."""
        if not self.is_server:
            self.counts.request_began()
            self.metrics.request_began()

    def request_ended(self) -> None:
        """Must be called when a request has its answer; calls no store."""
        self.meter.flush()

    @contextmanager
    def query(self) -> Iterator[None]:
        """Around the work of one query: counts its GETs."""
        gets: list[int] = []
        token = _gets.set(gets)
        try:
            yield
        finally:
            _gets.reset(token)
        self.meter.add(ApiMetric.QueryGets, sum(gets))

    def ms_since(self, began: float) -> int:
        """Milliseconds since a moment (monotonic seconds)."""
        return max(0, round((self.clock.monotonic() - began) * 1000))

    def finish(self) -> None:
        """Does what was left for later: a server that ends in good order loses no numbers."""
        self.counts.flush()
        self.metrics.flush()


# Gets of one query, in all its threads: each gets a copy of the context with this same list in it.
_gets: ContextVar[list[int] | None] = ContextVar("gets of this query", default=None)


def _observe_query(request: Request) -> None:
    gets = _gets.get()
    if gets is not None and request.operation == "get":
        gets.append(len(request.keys))


_SCAN_SHARE = 0.6  # of a request's time that a scan may take: then it answers with how far it came


def scan_until(context: Context) -> float:
    """Returns when a read that selects records, and begins now, ends (monotonic seconds)."""
    return context.clock.monotonic() + context.settings.request_timeout_ms * _SCAN_SHARE / 1000


def assemble(stores: Stores, access: Access, meter: Meter[ApiMetric] | None = None) -> Context:
    """Context on top of `stores`, with what they do counted and measured."""
    settings, clock = stores.settings, stores.clock
    is_server = not on_lambda()
    counts = RequestCounts()
    keeper = CountKeeper(
        counts,
        stores.watermarks,
        clock,
        interval_ms=settings.request_counts_ms,
        runs_between_requests=is_server,
    )
    recorder = Recorder(clock, enabled=settings.metrics_interval_ms > 0)
    meter = meter or Meter(ApiMetric)
    objects = ObservedObjects(stores.objects, clock, counts.observe, recorder.observe, meter.observe, _observe_query)
    measured = replace(stores, objects=objects)
    logs, inspector = _makers(measured, recorder)
    traffic = Traffic()
    metrics = Emitter(
        recorder,
        logs,
        lambda: gauges(traffic.load(), measure_memory()),
        clock,
        interval_ms=settings.metrics_interval_ms,
        runs_between_requests=is_server,
    )
    return Context(
        settings,
        logs,
        access,
        meter,
        clock,
        inspector=inspector,
        engine=_engine_maker(measured, logs),
        counts=keeper,
        metrics=metrics,
        traffic=traffic,
        is_server=is_server,
    )


_CACHE_BYTES = 256 * 1024 * 1024  # of the 512 MB that a Lambda function has below its temporary directory


def _makers(stores: Stores, recorder: Recorder) -> tuple[Callable[[], Streams], Callable[[], Inspector]]:
    if stores.settings.cold:
        return lambda: MeasuredLogs(stores, recorder), lambda: Inspector(stores, Streams(stores))
    directory = Path(tempfile.gettempdir()) / "headrace-index" if on_lambda() else None
    cache = RunCache(stores.objects, stores.clock.monotonic, directory=directory, directory_bytes=_CACHE_BYTES)
    logs = MeasuredLogs(stores, recorder, cache)
    inspector = Inspector(stores, logs)
    return lambda: logs, lambda: inspector


def _engine_maker(stores: Stores, logs: Callable[[], Streams]) -> Callable[[], Engine]:
    """Makes an engine when the first one is asked for: a process that never searches does not import one."""
    lock = threading.Lock()
    made: list[Engine] = []

    def make() -> Engine:
        from headrace.query.engine import context

        if stores.settings.cold:
            return context.assemble(stores, logs())
        with lock:
            if not made:
                made.append(context.assemble(stores, logs()))
        return made[0]

    return make


def open_context() -> Context:
    """Returns the context of this process, from its environment.

    Raises:
        SettingsError: the environment makes no sense.
        AccessError: the keys are malformed, or there are none where there must be.
    """
    wiring = open_wiring(ApiMetric, dynamodb_timeout_s=DYNAMODB_TIMEOUT_S, s3_read_timeout_s=OBJECT_STORE_TIMEOUT_S)
    return assemble(wiring.stores, _access(wiring), wiring.meter)


def _access(wiring: Wiring[ApiMetric]) -> Access:
    settings = wiring.settings

    def check(access: Access) -> None:
        check_exposure(
            access, host=settings.host, on_lambda=on_lambda(), allow_insecure=settings.allow_insecure_no_auth
        )

    if settings.api_keys or not settings.api_keys_secret:
        access = parse(settings.api_keys)
        check(access)
        return access
    read = _secret_reader(settings.api_keys_secret, wiring)
    return Keyring(read, SystemClock(), age_ms=settings.keys_age_ms, check=check)


def _secret_reader(name: str, wiring: Wiring[ApiMetric]) -> Callable[[], str]:
    """Reads the text of a Secrets Manager secret. A request may wait for it. No connection is kept for a snapshot."""
    client = wiring.client("secretsmanager", read_timeout_s=1.0, tries=2)

    def read() -> str:
        try:
            return str(client.get_secret_value(SecretId=name)["SecretString"])
        finally:
            client.close()

    return read
