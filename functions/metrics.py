"""The registry of all metrics that the functions write (names, units, meanings, writers), and the meter that writes
them.

No other metric can be written. Metrics are written as EMF lines: to standard output on Lambda, elsewhere to the file
that `HEADRACE_METRICS_FILE` names, if any. Writing them calls no store.

All metrics are in one namespace with two dimensions, `service` and `stack`: deployments in one account and region share
none. None has a dimension per stream: each value of a dimension is a metric that is billed, and there may be many
streams. The log line of an event names its stream.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from enum import Enum, unique
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, cast

from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import AmazonCloudWatchEMFProvider

from headrace.objects.observed import Request
from headrace.settings import Settings

NAMESPACE = "Headrace"
DIMENSION = "service"
STACK_DIMENSION = "stack"

Unit = Literal["Count", "Bytes", "Milliseconds"]
Kind = Literal["counter", "value", "age"]


class Spec(NamedTuple):
    """The definition of a metric.

    Attributes:
        kind: `counter`: one sum for each invocation; `value`: each measurement; `age`: a measurement of how long
            something has waited for scheduled work.
        zeros: whether a counter is also written when it is zero, because an alarm compares it with another metric, and
            CloudWatch computes nothing from missing data. Other counters are not, because a metric costs only while it
            is written.
    """

    unit: Unit
    kind: Kind
    meaning: str
    zeros: bool = False


class Metric(Enum):
    """A metric. The member's name is the metric's; its value is the metric's definition (`Spec`)."""

    service: ClassVar[str]  # the writer: the value of the dimension

    @property
    def spec(self) -> Spec:
        """The definition of the metric."""
        return cast(Spec, self.value)


def _counter(meaning: str, *, zeros: bool = False) -> Spec:
    return Spec("Count", "counter", meaning, zeros)


def _bytes(meaning: str) -> Spec:
    return Spec("Bytes", "counter", meaning)


def _values(meaning: str) -> Spec:
    return Spec("Count", "value", meaning)


def _latency(meaning: str) -> Spec:
    return Spec("Milliseconds", "value", meaning)


def _age(meaning: str) -> Spec:
    return Spec("Milliseconds", "age", meaning)


@unique
class ApiMetric(Metric):
    """The metrics of the api."""

    Requests = _counter("requests answered, but for preflights and `/health`")
    Creates = _counter("streams created")
    Deletes = _counter("streams deleted")
    Appends = _counter("appends that wrote")
    AppendedRecords = _counter("their records")
    AppendedBytes = _bytes("their data and keys")
    AppendMs = _latency("an append that wrote, from its whole body to its answer")
    SlotRaces = _counter("tries of those appends that found the slot taken by another writer", zeros=True)
    Reads = _counter("GET requests on streams")
    ReadRecords = _counter("records of catch-up pages, and of the first page of an SSE response")
    ReadBytes = _bytes("bytes of those pages")
    ReadMs = _latency("such a page")
    Lists = _counter("listings")
    Searches = _counter("searches asked for")
    SearchHits = _counter("hits of their pages")
    SearchMs = _latency("a search that was answered")
    SearchTimeouts = _counter("searches whose time was over, answered with what was found", zeros=True)
    Aggregates = _counter("aggregates asked for")
    AggregateMs = _latency("an aggregate that was answered")
    RoutingKeyPages = _counter("pages of routing keys asked for")
    QueryGets = _values("GETs from the bucket that one search, aggregate or page of routing keys made")
    TopicCreates = _counter("topics created by a PUT")
    TopicDeletes = _counter("topics deleted")
    TopicAppends = _counter("writes to topics, without repeats")
    TopicRecords = _counter("records of these writes")
    TopicAppendMs = _latency("the commit of such a write")
    Diffs = _counter("reads of topics")
    DiffRecords = _counter("records of their pages")
    DiffMs = _latency("such a read, without its waiting")
    RecordsErased = _counter("records of topics deleted by requests")
    Claims = _counter("claims of jobs, by requests and by streams")
    EmptyClaims = _counter("those of them that got none")
    ClaimMs = _latency("a claim by a request")
    JobsClaimed = _counter("jobs leased")
    JobsRedelivered = _counter("those of them that were delivered before", zeros=True)
    JobWaitMs = _age("age of the oldest job that was not delivered before, at a claim that gets it, or at a push")
    JobsAcked = _counter("jobs completed")
    JobsNacked = _counter("jobs given back")
    JobsExtended = _counter("leases extended")
    DeadLetters = _counter("jobs moved to a dead-letter topic")
    WorkStreams = _counter("streams of jobs opened")
    Registrations = _counter("registrations of feature tables that changed the registry")
    Pushes = _counter("pushes of events, without repeats")
    PushedEvents = _counter("their events")
    PushMs = _latency("such a push, without its body")
    FeatureReads = _counter("reads of feature tables")
    FeatureRows = _counter("entities asked for by them")
    FeatureReadMs = _latency("such a read, without its body")
    Sockets = _counter("sockets opened")
    SocketCommands = _counter("messages of clients over sockets")
    ObjectGets = _counter("GETs from the bucket")
    ObjectPuts = _counter("PUTs to the bucket")
    StoreThrottles = _counter("calls that a table or the bucket refused for load", zeros=True)
    ClientErrors = _counter("answers 4xx that no other counter has")
    Unauthorized = _counter("answers 401")
    Forbidden = _counter("answers 403")
    Timeouts = _counter("answers 408 to requests that write nothing")
    UnknownOutcomes = _counter("answers 408 to writes: they may have happened")
    Conflicts = _counter("answers 409")
    Overloads = _counter("answers 429")
    Failures = _counter("answers 500: damage, or a bug", zeros=True)
    StoreFailures = _counter("answers 503", zeros=True)
    BrokenAnswers = _counter("answers that broke off after their first byte", zeros=True)


@unique
class SealerMetric(Metric):
    """The metrics of the sealer."""

    Sweeps = _counter("runs of the sweep, one a minute whatever else happens: the sealer's sign of life")
    StreamEvents = _counter("new entries that the WAL's stream told of", zeros=True)
    StreamLagMs = _age("age of the oldest of them in a batch")
    SegmentsSealed = _counter("segments published")
    SealedRecords = _counter("their records")
    SealedBytes = _bytes("their payload")
    UnsealedAgeMs = _age("age of a log's oldest unsealed entry when its seal began")
    SealLagMs = _age("the same, when everything that was due was published")
    SealRacesLost = _counter("generations that another sealer published first")
    ItemsTrimmed = _counter("entries removed from the WAL")
    TrimLagMs = _age("time that the oldest entry of a trim had stayed beyond the trim age")
    LogsExpired = _counter("logs that the sweep ended")
    DeadlinesMoved = _counter("deadlines that had been renewed")
    LogsPurged = _counter("logs removed")
    OrphansRemoved = _counter("objects that nothing named")
    WorkMissed = _counter("messages that the audit had to send again")
    SealFailures = _counter("seals that failed, of any cause")
    VerbFailures = _counter("other verbs that failed, of any cause")
    PoisonedLogs = _counter("failures that no repeat heals: damaged data, or a bug")
    ObjectGets = _counter("GETs from the bucket")
    ObjectPuts = _counter("PUTs to the bucket")
    StoreThrottles = _counter("calls that a table or the bucket refused for load")


@unique
class IndexerMetric(Metric):
    """The metrics of the indexer."""

    Ticks = _counter("looks at job runs, at least one a minute: the indexer's sign of life")
    JobsStarted = _counter("job runs started")
    TasksStarted = _counter("index runs that they are to make")
    IndexWaitMs = _age("how long the log that had waited longest had waited when a job run was started for it")
    JobAgeMs = _age("age of a job run that is not over, at each look")
    JobMs = _age("age of a job run when it was found to be over")
    JobsSucceeded = _counter("job runs that ended well")
    JobsFailed = _counter("job runs that failed, or were given up")
    RunsPublished = _counter("index runs published")
    SegmentsMerged = _counter("merged segments published")
    GenerationsRemoved = _counter("old generations of index manifests removed")
    RunsRetired = _counter("index runs retired by rebuilds")
    LogsWaiting = _counter("logs that an audit found to have work")
    IndexFailures = _counter("logs for which a job made nothing, or that could not be looked at")
    VerbFailures = _counter("verbs that failed, of any cause")
    PoisonedLogs = _counter("failures that no repeat heals: damaged data, or a bug")
    OrphansRemoved = _counter("objects that nothing named")
    ObjectGets = _counter("GETs from the bucket")
    ObjectPuts = _counter("PUTs to the bucket")
    StoreThrottles = _counter("calls that a table or the bucket refused for load")


@unique
class RelayMetric(Metric):
    """The metrics of the relay."""

    Sweeps = _counter("runs of the sweep, one a minute whatever else happens: the relay's sign of life")
    StreamEvents = _counter("entries of followed logs, and creates, that the WAL's stream told of")
    RelayLagMs = _age("age of the oldest of them when the followers of its batch were visited")
    Visits = _counter("visits of followers")
    VisitsPutOff = _counter("visits left to messages, because the time of their batch was over")
    VisitsContinued = _counter("visits that left work for another one at once")
    VisitsBlocked = _counter("visits that must wait: a destination is full, a receiver does not answer")
    VisitFailures = _counter("visits that failed, of any cause; each is tried again")
    VisitsMissed = _counter("visits that the sweep had to ask for again")
    Webhooks = _counter("calls of webhooks")
    WebhooksFailed = _counter("those of them that no receiver accepted; each is tried again", zeros=True)
    WebhookMs = _latency("a call of a webhook, to the end of its answer")
    WebhookAgeMs = _age("age of a wake when a call of its webhook had ended, accepted or not")
    BackfillAgeMs = _age("age of the oldest back-fill of a namespace that is under way, when the relay looked at it")
    SocketMessages = _counter("messages sent to clients over sockets")
    SocketsGone = _counter("sockets that had ended without a word")
    VerbFailures = _counter("other verbs that failed, of any cause")
    PoisonedLogs = _counter("failures that no repeat heals: damaged data, or a bug")
    ObjectGets = _counter("GETs from the bucket")
    ObjectPuts = _counter("PUTs to the bucket")
    StoreThrottles = _counter("calls that a table or the bucket refused for load")


@unique
class FolderMetric(Metric):
    """The metrics of the folder."""

    Passes = _counter("passes over lanes")
    EventsFolded = _counter("events that they brought into rows")
    FoldLagMs = _age("age of the oldest event of a pass when it was in the rows")
    PassesOvertaken = _counter("passes that gave up, because another folder wrote the same rows")
    PassFailures = _counter("passes that failed, of any cause")
    TablesStopped = _counter("feature tables that stopped in a lane, because of an event")
    PoisonedLogs = _counter("failures that no repeat heals: damaged data, or a bug")
    ObjectGets = _counter("GETs from the bucket")
    ObjectPuts = _counter("PUTs to the bucket")
    StoreThrottles = _counter("calls that a table or the bucket refused for load")


ApiMetric.service = "api"
SealerMetric.service = "sealer"
IndexerMetric.service = "indexer"
RelayMetric.service = "relay"
FolderMetric.service = "folder"

REGISTRY: tuple[type[Metric], ...] = (ApiMetric, SealerMetric, IndexerMetric, RelayMetric, FolderMetric)


def table() -> str:
    """Returns a Markdown table of all metrics: service, name, unit and meaning."""
    head = "| service | metric | unit | what |\n|---|---|---|---|\n"
    rows = (
        f"| {metrics.service} | `{metric.name}` | {_shown(metric.spec)} | {metric.spec.meaning} |"
        for metrics in REGISTRY
        for metric in metrics
    )
    return head + "\n".join(rows) + "\n"


def _shown(spec: Spec) -> str:
    unit = {"Count": "count", "Bytes": "bytes", "Milliseconds": "ms"}[spec.unit]
    return unit if spec.kind == "counter" else f"{unit}, each"


if __name__ == "__main__":
    print(table(), end="")


METRICS_FILE = "HEADRACE_METRICS_FILE"
# Of one metric in one EMF line:
# https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
_MAX_VALUES = 100


M = TypeVar("M", bound=Metric)
Write = Callable[[str], None]


class Meter(Generic[M]):
    """A collector of one function's metrics; `flush` writes what was added since the last flush. Thread-safe.

    Args:
        metrics: the metrics that it accepts.
        write: writes a line; without it, metrics are dropped.
        stack: the deployment that the metrics are of.
    """

    def __init__(self, metrics: type[M], write: Write | None = None, *, stack: str = "") -> None:
        self._metrics = metrics
        self._emf = AmazonCloudWatchEMFProvider(namespace=NAMESPACE, service=metrics.service)
        self._emf.add_dimension(STACK_DIMENSION, stack or Settings().stack)
        self._write = write
        self._lock = threading.Lock()
        self._values: dict[M, list[int]] = {}
        self.fields: dict[str, str] = {}
        """What each line says beside its metrics: fields of the log, of which no metric is made."""

    def add(self, metric: M, value: int = 1) -> None:
        """Adds to a counter, or records a measured value of a metric of another kind. A counter's zero is only recorded
        if its definition says so.
        """
        if self._write is None:
            return
        is_counter = metric.spec.kind == "counter"
        if is_counter and not value and not metric.spec.zeros:
            return
        with self._lock:
            values = self._values.setdefault(metric, [])
            if is_counter and values:
                values[0] += value
            else:
                values.append(value)

    def observe(self, request: Request) -> None:
        """Counts a request to the object store: `ObjectGets` for each key, `ObjectPuts`, and `StoreThrottles` if it was
        throttled. Every function's metrics include these three.
        """
        if request.operation == "get":
            self.add(self._metrics["ObjectGets"], len(request.keys))
        elif request.operation == "put":
            self.add(self._metrics["ObjectPuts"])
        if request.outcome == "throttled":
            self.count_throttle()

    def count_throttle(self) -> None:
        """Counts a call that a store refused because of load."""
        self.add(self._metrics["StoreThrottles"])

    def count_damage(self) -> None:
        """Counts a damaged row that a listing passed over, as `PoisonedLogs`. The api has no such metric: each audit meets
        the row, too.
        """
        if "PoisonedLogs" in self._metrics.__members__:
            self.add(self._metrics["PoisonedLogs"])

    def flush(self) -> None:
        """Writes what was added since the last flush as one line of JSON, or several if a metric has more than 100
        values; nothing if nothing was added.
        """
        with self._lock:
            values, self._values = self._values, {}
        while values and self._write is not None:
            self._write(self._line({metric: some[:_MAX_VALUES] for metric, some in values.items()}))
            values = {metric: some[_MAX_VALUES:] for metric, some in values.items() if len(some) > _MAX_VALUES}

    def _line(self, values: Mapping[M, list[int]]) -> str:
        metrics = {metric.name: {"Unit": metric.spec.unit, "Value": some} for metric, some in values.items()}
        found: Any = self._emf.serialize_metric_set(metrics=metrics)
        return json.dumps({**found, **self.fields}, separators=(",", ":"))


def make_meter(metrics: type[M], environment: Mapping[str, str], *, stack: str = "") -> Meter[M]:
    """Creates the meter of a function in a deployment: it writes to the file that `HEADRACE_METRICS_FILE` names, else on
    Lambda to standard output, else nowhere.
    """
    path = environment.get(METRICS_FILE)
    if path:
        return Meter(metrics, _to_file(path), stack=stack)
    return Meter(metrics, _print if "AWS_LAMBDA_FUNCTION_NAME" in environment else None, stack=stack)


def _print(line: str) -> None:
    print(line, flush=True)


def _to_file(path: str) -> Write:
    """Returns a function that appends each line to a file with one write, so that several processes can share the
    file.
    """
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(line: str) -> None:
        os.write(file, f"{line}\n".encode())

    return write
