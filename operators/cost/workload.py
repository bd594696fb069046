"""The workload of a deployment in a month, and what the model assumes where nothing was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

HOURS = 730.0  # hours of a month, as AWS counts them
SECONDS = HOURS * 3600
DAYS = HOURS / 24
GB = 1e9


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A month's workload, spread evenly over the month; that is the most expensive case for everything that is billed
    by time.

    Attributes:
        appends: number of append requests.
        record_bytes: size of a record.
        batch: records per append request.
        streams: number of streams over which appends are spread.
        retention_days: how long data is kept; the bill is for a month in which as much data expires as arrives.
        readers: how often each append is read while it is new, one request each.
        replayed_gb: GB of record data read from segments.
        searches: number of searches of the class `query`, one of docs/benchmarks.md, or of the mean of all classes.
        cold_share: share of requests that reach a process with empty caches.
        followers: number of long-polls or server-sent events that are always open on the Lambda door.
        jobs: jobs that go through queues: enqueued, claimed and acknowledged, `job_batch` of them in one request.
        copies: appends that routers copy, counted once for each router.
        watches: number of watches that are always open on the streaming door, over `watch_topics` topics each.
        sockets: number of sockets that are always open.
        pushes: messages that are pushed to sockets: one for each append and socket.
        webhooks: deliveries of webhooks.
        events: events that are pushed to feature tables, `event_batch` of them in one push, into `lanes` lanes.
        deduped: whether they have a dedupe value.
        feature_tables: rows that each event changes: one in each of this many tables, and no row twice in one pass.
        feature_rows: rows that the tables have.
        row_bytes: size of a row.
        feature_reads: strong reads of one row each.
        indexed: whether the stream has search fields or keys, so that job runs index it.
        spill_bytes, seal_bytes, seal_records, seal_age_s, trim_age_s, index_age_s, metrics_s: settings; a `metrics_s`
            of 0 means no metrics stream.
        environment: the preset that is deployed, `dev` or `prod`.
        noncurrent_days: how long the bucket keeps replaced and deleted objects.
    """

    appends: float = 0
    record_bytes: int = 500
    batch: int = 1
    streams: int = 1
    retention_days: float = 30
    readers: float = 1
    replayed_gb: float = 0
    searches: float = 0
    query: str | None = None
    cold_share: float = 0.001
    followers: float = 0
    jobs: float = 0
    job_batch: int = 1
    copies: float = 0
    watches: float = 0
    watch_topics: int = 1
    sockets: float = 0
    pushes: float = 0
    webhooks: float = 0
    events: float = 0
    event_batch: int = 1
    lanes: int = 1
    deduped: bool = False
    feature_tables: int = 1
    feature_rows: float = 0
    row_bytes: int = 1000
    feature_reads: float = 0
    indexed: bool = False
    spill_bytes: int = 32 * 1024
    seal_bytes: int = 16 * 1024 * 1024
    seal_records: int = 100_000
    seal_age_s: float = 300
    trim_age_s: float = 900
    index_age_s: float = 900
    metrics_s: float = 60
    environment: str = "prod"
    noncurrent_days: float = 30

    @property
    def records(self) -> float:
        """Returns the number of records of a month."""
        return self.appends * self.batch

    @property
    def event_pushes(self) -> float:
        """Returns the number of requests of a month that push events."""
        return self.events / self.event_batch

    @property
    def payload_bytes(self) -> int:
        """Returns the size of an append's records in bytes."""
        return self.record_bytes * self.batch

    @property
    def gb(self) -> float:
        """Returns the GB of record data of a month."""
        return self.appends * self.payload_bytes / GB

    @property
    def kept_gb(self) -> float:
        """Returns the GB of record data that are kept at any time."""
        return self.gb * self.retention_days / DAYS

    @property
    def segments(self) -> float:
        """Returns the number of segments written in a month: because of size, of records, or because their first entry
        reached the seal age.
        """
        of_one = self.appends / self.streams
        by_age = min(of_one, SECONDS / self.seal_age_s)
        by_size = of_one * max(self.payload_bytes / self.seal_bytes, self.batch / self.seal_records)
        return self.streams * max(by_age, by_size)

    @property
    def entries(self) -> float:
        """Returns the number of entries of a month of which the sealer is told."""
        return self.appends + self.copies + 3 * self.jobs / self.job_batch + self.event_pushes

    @property
    def requests(self) -> float:
        """Returns the number of requests of a month, without those of followers."""
        streams = self.appends * (1 + self.readers) + self.searches
        return streams + 3 * self.jobs / self.job_batch + self.event_pushes + self.feature_reads

    @property
    def flushes(self) -> float:
        """Returns how often processes append to the metrics stream in a month; there is one process, unless there are
        more requests than one can serve.
        """
        return min(self.requests, SECONDS / self.metrics_s) if self.metrics_s else 0

    @property
    def metrics_segments(self) -> float:
        """Returns the number of segments of the metrics stream in a month."""
        return min(self.flushes, SECONDS / self.seal_age_s)

    def idle(self) -> Workload:
        """Returns the workload of the same deployment without requests and data."""
        return replace(self.alone(), appends=0, replayed_gb=0)

    def alone(self) -> Workload:
        """Returns the workload without what is done beside appending to streams and reading them."""
        streams = replace(self, searches=0, followers=0, jobs=0, copies=0, watches=0, sockets=0, pushes=0, webhooks=0)
        return replace(streams, events=0, feature_rows=0, feature_reads=0)


@dataclass(frozen=True)
class Assumptions:
    """The figures that were not measured but assumed. They are printed with each bill.

    Attributes:
        dynamodb_ms, s3_get_ms, s3_put_ms: duration of a call, during which Lambda is billed.
        invocation_ms: time that the runtime and request handling take in each invocation.
        record_ms: time to check and frame a record.
        log_bytes: bytes that an invocation of the api logs: the platform's three lines and one of metrics.
        access_log_bytes: bytes that the HTTP API logs per request.
        kms_requests: KMS requests per month; tables and bucket cache data keys for minutes.
        pollers, poll_s: number of Lambda's pollers per queue, and how long each poll lasts.
        sqs_requests: SQS requests per message: send, receive, delete.
        stream_batch_s: how long Lambda gathers items of the table's stream.
        follower_poll_s: how often an open follower looks for new records.
        long_poll_s: how long one long-poll is open.
        stream_s: how long one stream of a watch is open.
        watch_check_s: how often it looks whether there is a newer one.
        watch_in_turn: how many topics it reads at each look at its bell.
        receiver_ms: how long a receiver of webhooks takes to answer.
        fold_s: time within which all events of a lane lead to one pass of the folder.
        fold_writers: how many rows a pass writes at a time.
        job_start_s, job_least_s: time until a job run works, and the least time that is billed.
        page_bytes, page_records: size of a page of a read.
    """

    dynamodb_ms: float = 5
    s3_get_ms: float = 15
    s3_put_ms: float = 40
    invocation_ms: float = 3
    record_ms: float = 0.005
    log_bytes: float = 1070
    access_log_bytes: float = 410
    kms_requests: float = 50_000
    pollers: float = 5
    poll_s: float = 20
    sqs_requests: float = 3
    stream_batch_s: float = 5
    follower_poll_s: float = 0.25
    long_poll_s: float = 3
    stream_s: float = 60
    watch_check_s: float = 2
    watch_in_turn: float = 3
    receiver_ms: float = 200
    fold_s: float = 2
    fold_writers: float = 8
    job_start_s: float = 40
    job_least_s: float = 60
    page_bytes: float = 1024 * 1024
    page_records: float = 1000
