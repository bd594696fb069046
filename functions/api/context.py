"""The context of the api: everything that its routes use, created once for each process."""

from __future__ import annotations

import logging
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, TypeVar

from functions.access import Access, check_exposure
from functions.api.door.background import CountKeeper
from functions.api.door.requests import Traffic, on_lambda
from functions.api.door.slots import InFlight, StreamSlots
from functions.api.streams.inspection.inspector import Inspector
from functions.api.streams.system.emitter import Emitter, gauges, measure_memory
from functions.api.streams.system.recorder import MeasuredLogs, Recorder
from functions.api.topics.tally import Tally
from functions.metrics import ApiMetric, Meter
from functions.queue import LazyQueue, Message, Queue, SqsQueue, visit_when_due
from functions.subscribers import refusal
from functions.wiring import Wiring, open_wiring
from headrace.clock import Clock, SystemClock, within_deadline
from headrace.features.exports import Exports
from headrace.features.verbs import Features
from headrace.index.fetching import RunCache
from headrace.log.requests import Head
from headrace.log.stores import Stores
from headrace.objects.observed import ObservedObjects, Request, RequestCounts
from headrace.queues.verbs import Queues
from headrace.routers.verbs import Routers
from headrace.settings import Settings
from headrace.streams.values import METRIC_STREAMS
from headrace.streams.verbs import Streams
from headrace.subscriptions.desk import Desk
from headrace.subscriptions.signing import SigningKeyring
from headrace.subscriptions.verbs import Subscriptions
from headrace.tables.follows import Follow
from headrace.watch.verbs import Watches

if TYPE_CHECKING:  # at run time it would cost every process the import of numpy and pyarrow
    from headrace.query.engine.context import Engine
    from headrace.query.engine.hidden import Hidden


_log = logging.getLogger(__name__)
T = TypeVar("T")

DYNAMODB_TIMEOUT_S = 2.0  # timeout of one call to a store: an append has time for a second try
OBJECT_STORE_TIMEOUT_S = 2.0
# More than writing counts (1 s and a call) and metrics takes when stores are slow: their stream is created first.
SPARE_MS = 20_000


@dataclass(frozen=True, slots=True)
class Context:
    """What the routes of one process use.

    Attributes:
        logs: returns the verbs for one request: always the same object, or a fresh one in a process that keeps no
            caches.
        subscriptions: returns the verbs of subscriptions; like `logs`.
        topics: returns the verbs of topics and queues; like `logs`.
        routers: returns the verbs of routers; like `logs`.
        features: returns the verbs of feature tables; like `logs`.
        exports: returns the verbs of their exports; like `logs`.
        count: returns how many there are of what a counter counts.
        stores: the stores; what requests use goes through the verbs, which count it.
        ring: tells the relay of a follower that is due. Never raises: the sweep visits it if the message is lost.
        commits: counts what was committed to topics.
        slots: the slots of open streams of topics.
        watches: returns the verbs of watch sessions; like `logs`.
        in_flight: counts the requests to topics of each key.
        began: when a server began, in monotonic seconds; None in a Lambda function, whose snapshot holds no moment.
        inspector: returns the reader of what is shown about streams; like `logs`.
        engine, topic_engine, lane_engine: return the query engines of streams, of topics, and of the lanes of feature
            tables; like `logs`. The first call imports the modules that read indexes.
        counts: counts of requests to the object store.
        metrics: writes what was measured to the metrics stream.
        signing: the keys that sign webhooks.
        traffic: counts the requests in progress.
        is_server: whether background work runs in threads of its own; in a Lambda function, invocations end with it.
        random_below: returns a random integer from 0 to its argument, exclusive.
    """

    settings: Settings
    logs: Callable[[], Streams]
    access: Access
    meter: Meter[ApiMetric] = field(default_factory=lambda: Meter(ApiMetric))
    clock: Clock = field(default_factory=SystemClock)
    random_below: Callable[[int], int] = secrets.randbelow
    subscriptions: Callable[[], Subscriptions] = field(kw_only=True)
    topics: Callable[[], Queues] = field(kw_only=True)
    routers: Callable[[], Routers] = field(kw_only=True)
    features: Callable[[], Features] = field(kw_only=True)
    exports: Callable[[], Exports] = field(kw_only=True)
    count: Callable[[str], int] = field(kw_only=True)
    stores: Stores = field(kw_only=True)
    ring: Callable[[Follow], None] = field(kw_only=True)
    commits: Tally = field(default_factory=Tally, kw_only=True)
    slots: StreamSlots = field(kw_only=True)
    watches: Callable[[], Watches] = field(kw_only=True)
    in_flight: InFlight = field(kw_only=True)
    began: float | None = field(kw_only=True)
    inspector: Callable[[], Inspector] = field(kw_only=True)
    engine: Callable[[], Engine] = field(kw_only=True)
    topic_engine: Callable[[], Engine] = field(kw_only=True)
    lane_engine: Callable[[], Engine] = field(kw_only=True)
    counts: CountKeeper = field(kw_only=True)
    metrics: Emitter = field(kw_only=True)
    signing: SigningKeyring = field(kw_only=True)
    traffic: Traffic = field(kw_only=True)
    is_server: bool = field(kw_only=True)

    def invocation_ended(self, left_ms: float) -> None:
        """Does background work that is due (writing request counts and metrics), if the process is a Lambda function and
        has the time; does nothing in a server. Must be called at the end of each invocation, before Lambda is told that it
        is over: then the process is frozen, in whatever it does.

        Args:
            left_ms: milliseconds until Lambda ends the invocation.
        """
        if not self.is_server and left_ms >= SPARE_MS:
            self.counts.invocation_ended()
            self.metrics.invocation_ended()

    def request_ended(self, key_id: str) -> None:
        """Writes the metrics that were counted since the last call; must be called at the end of each request. Calls no
        store. A Lambda function, which serves one request at a time, says with them whose key it was.
        """
        if not self.is_server and key_id:
            self.meter.fields["key_id"] = key_id
        self.meter.flush()

    @contextmanager
    def query(self) -> Iterator[None]:
        """Adds to the metric `QueryGets` the number of objects that one query gets from the bucket inside the block;
        adds nothing if the block raises.
        """
        gets: list[int] = []
        token = _gets.set(gets)
        try:
            yield
        finally:
            _gets.reset(token)
        self.meter.add(ApiMetric.QueryGets, sum(gets))

    def ms_since(self, began: float) -> int:
        """Returns the milliseconds since a moment (monotonic seconds), rounded; never negative."""
        return max(0, round((self.clock.monotonic() - began) * 1000))

    def uptime_ms(self) -> int:
        """Returns the milliseconds since the server began; 0 in a Lambda function."""
        return self.ms_since(self.began) if self.began is not None else 0

    def finish(self) -> None:
        """Writes the counts and metrics that are left, so that a server that stops normally loses none."""
        self.counts.flush()
        self.metrics.flush()


# Gets of one query, in all its threads: each gets a copy of the context with this same list in it.
_gets: ContextVar[list[int] | None] = ContextVar("gets of this query", default=None)


def _observe_query(request: Request) -> None:
    gets = _gets.get()
    if gets is not None and request.operation == "get":
        gets.append(len(request.keys))


_SCAN_SHARE = 0.6  # share of a request's time that a scan may take; then it answers with how far it came


def scan_until(context: Context) -> float:
    """Returns the time (monotonic seconds) at which a read with a key or filter that begins now must end: after 60% of
    the request timeout.
    """
    return context.clock.monotonic() + context.settings.request_timeout_ms * _SCAN_SHARE / 1000


def assemble(
    stores: Stores,
    access: Access,
    meter: Meter[ApiMetric] | None = None,
    signing: SigningKeyring | None = None,
    relay: Queue | None = None,
    sealer: Queue | None = None,
) -> Context:
    """Creates a context on `stores`. Its requests to the object store are counted and timed. Without `signing`, the keys
    that sign webhooks are those of the settings. Without `relay`, its queue, the relay does everything by its sweep;
    without `sealer`, its queue, nothing is sealed before its time.
    """
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
    topics = _topics_maker(measured)

    def ring(follow: Follow) -> None:
        if relay is None:
            return
        try:
            relay.send([visit_when_due(follow)], clock.now_ms())
        except Exception:  # noqa: BLE001 - the row says when the relay must visit it, and the sweep will see that
            _log.warning("relay was not told: follower=%s due_ms=%s", follow.key, follow.due_ms, exc_info=True)

    def seal(log_id: str) -> None:
        if sealer is None:
            return
        try:
            sealer.send([Message("seal", log_id, force=True)], clock.now_ms())
        except Exception:  # noqa: BLE001 - it is sealed by its age
            _log.warning("sealer was not told: log_id=%s", log_id, exc_info=True)

    features = _lazy(measured, lambda: Features(measured, may_reset=settings.allow_reset))
    traffic = Traffic()
    metrics = Emitter(
        recorder,
        logs,
        lambda: gauges(traffic.load(), measure_memory()),
        clock,
        interval_ms=settings.metrics_interval_ms,
        runs_between_requests=is_server,
        streams=METRIC_STREAMS[:1] if is_server else METRIC_STREAMS,
    )
    return Context(
        settings,
        logs,
        access,
        meter,
        clock,
        subscriptions=lambda: Subscriptions(
            Desk(measured, logs(), ring, SystemRandom().random, partial(refusal, access))
        ),
        topics=topics,
        routers=_routers_maker(measured, topics),
        features=features,
        exports=_lazy(measured, lambda: Exports(features(), seal)),
        count=partial(_count, measured),
        stores=stores,
        ring=ring,
        slots=StreamSlots(stores.sessions, settings, clock),
        watches=_watches_maker(measured, topics),
        in_flight=InFlight(settings.max_inflight_per_key),
        began=clock.monotonic() if is_server else None,
        inspector=inspector,
        engine=_lazy(measured, lambda: _stream_engine(measured, logs())),
        topic_engine=_lazy(measured, lambda: _topic_engine(measured, topics())),
        lane_engine=_lazy(measured, lambda: _lane_engine(measured, features())),
        counts=keeper,
        metrics=metrics,
        signing=signing or SigningKeyring(lambda: settings.signing_keys, clock, age_ms=settings.keys_age_ms),
        traffic=traffic,
        is_server=is_server,
    )


_CACHE_BYTES = 256 * 1024 * 1024  # out of the 512 MB that a Lambda function has in its temporary directory


def _makers(stores: Stores, recorder: Recorder) -> tuple[Callable[[], Streams], Callable[[], Inspector]]:
    if stores.settings.cold:
        return lambda: MeasuredLogs(stores, recorder), lambda: Inspector(stores, Streams(stores))
    directory = Path(tempfile.gettempdir()) / "headrace-index" if on_lambda() else None
    cache = RunCache(stores.objects, stores.clock.monotonic, directory=directory, directory_bytes=_CACHE_BYTES)
    logs = MeasuredLogs(stores, recorder, cache)
    inspector = Inspector(stores, logs)
    return lambda: logs, lambda: inspector


def _topics_maker(stores: Stores) -> Callable[[], Queues]:
    if stores.settings.cold:
        return lambda: Queues(stores)
    queues = Queues(stores)
    return lambda: queues


def _routers_maker(stores: Stores, topics: Callable[[], Queues]) -> Callable[[], Routers]:
    if stores.settings.cold:
        return lambda: Routers(stores, topics())
    routers = Routers(stores, topics())
    return lambda: routers


def _watches_maker(stores: Stores, topics: Callable[[], Queues]) -> Callable[[], Watches]:
    def create() -> Watches:
        return Watches(stores, topics(), lambda: "wid_" + secrets.token_urlsafe(16))

    if stores.settings.cold:
        return create
    watches = create()
    return lambda: watches


def _count(stores: Stores, what: str) -> int:
    with within_deadline(stores.settings.request_timeout_ms):
        return max(0, sum(stores.sessions.counts(what)))


def _lazy(stores: Stores, create: Callable[[], T]) -> Callable[[], T]:
    """Returns a function that returns what `create` does, which is called the first time (with the setting `cold`, each
    time): so a process that never searches does not import the query engine.
    """
    lock = threading.Lock()
    made: list[T] = []

    def make() -> T:
        if stores.settings.cold:
            return create()
        with lock:
            if not made:
                made.append(create())
        return made[0]

    return make


def _stream_engine(stores: Stores, logs: Streams) -> Engine:
    from headrace.query.engine import context

    return context.assemble(stores, logs, find_hidden=_below_the_floor)


def _topic_engine(stores: Stores, topics: Queues) -> Engine:
    from headrace.query.engine import context
    from headrace.query.engine.hidden import Hidden

    return context.assemble(stores, topics, find_hidden=lambda head: Hidden(topics.gone(head.config.name, head)))


def _lane_engine(stores: Stores, features: Features) -> Engine:
    from headrace.query.engine import context

    return context.assemble(stores, features, find_hidden=_below_the_floor)


def _below_the_floor(head: Head) -> Hidden:
    """Returns the records below a log's floor, which no answer shows."""
    from headrace.query.engine.hidden import NOTHING, Hidden

    floor = head.state.floor
    return Hidden([(0, floor)]) if floor else NOTHING


def open_context() -> Context:
    """Creates the context of this process from its environment variables.

    Raises:
        SettingsError: a setting is missing or invalid.
        AccessError: the keys are malformed, or there are none although they are required.
    """
    wiring = open_wiring(
        ApiMetric,
        dynamodb_timeout_s=DYNAMODB_TIMEOUT_S,
        s3_read_timeout_s=OBJECT_STORE_TIMEOUT_S,
        fast=True,
    )

    def queue(url: str) -> Queue:
        return LazyQueue(lambda: SqsQueue(wiring.client("sqs", read_timeout_s=1.0), url))

    relay, sealer = queue(wiring.settings.relay_queue_url), queue(wiring.settings.delay_queue_url)
    return assemble(wiring.stores, _access(wiring), wiring.meter, wiring.signing(), relay, sealer)


def _access(wiring: Wiring[ApiMetric]) -> Access:
    settings = wiring.settings

    def check(access: Access) -> None:
        check_exposure(
            access, host=settings.host, on_lambda=on_lambda(), allow_insecure=settings.allow_insecure_no_auth
        )

    return wiring.access(check)
