"""What is asked of a deployment in a month, and what the model assumes where nothing was counted."""

from __future__ import annotations

from dataclasses import dataclass, replace

HOURS = 730.0  # of a month, as AWS counts
SECONDS = HOURS * 3600
DAYS = HOURS / 24
GB = 1e9


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Evenly spread over a month: for the parts that cost by the time that passes this is the dearest way.

    Attributes:
        appends: requests that append.
        record_bytes: of a record.
        batch: records of a request.
        streams: that the appends are spread over.
        retention_days: how long data are kept; the bill is that of a month in which as much goes as comes.
        readers: how often each append is read while it is new, one request each.
        replayed_gb: record data read from segments.
        searches: of the class `query`, one of docs/benchmarks.md, or of the mean of them all.
        cold_share: of requests that meet a process that knows nothing.
        followers: long-polls or server-sent events that are always open on the Lambda door.
        indexed: the stream has search fields or keys, so that job runs index it.
        spill_bytes, seal_bytes, seal_records, seal_age_s, trim_age_s, index_age_s, metrics_s: settings; a `metrics_s` of 0
            means no metrics stream.
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
    indexed: bool = False
    spill_bytes: int = 32 * 1024
    seal_bytes: int = 16 * 1024 * 1024
    seal_records: int = 100_000
    seal_age_s: float = 300
    trim_age_s: float = 900
    index_age_s: float = 60
    metrics_s: float = 10
    noncurrent_days: float = 30

    @property
    def records(self) -> float:
        """Returns the records of a month."""
        return self.appends * self.batch

    @property
    def payload_bytes(self) -> int:
        """Returns the bytes of an append."""
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
        """Returns the segments made in a month: by size, by records, or because their first entry reached the seal
        age.
        """
        of_one = self.appends / self.streams
        by_age = min(of_one, SECONDS / self.seal_age_s)
        by_size = of_one * max(self.payload_bytes / self.seal_bytes, self.batch / self.seal_records)
        return self.streams * max(by_age, by_size)

    @property
    def requests(self) -> float:
        """Returns the requests of a month at the door, without those of followers."""
        return self.appends * (1 + self.readers) + self.searches

    @property
    def flushes(self) -> float:
        """Returns how often a process appends to the metrics stream: one process, unless there are more requests than
        one serves.
        """
        return min(self.requests, SECONDS / self.metrics_s) if self.metrics_s else 0

    @property
    def metrics_segments(self) -> float:
        """Segments of the metrics stream."""
        return min(self.flushes, SECONDS / self.seal_age_s)

    def idle(self) -> Workload:
        """Returns the same deployment without requests and without data."""
        return replace(self, appends=0, replayed_gb=0, searches=0, followers=0)


@dataclass(frozen=True)
class Assumptions:
    """The figures that no count gives. They are printed with each bill.

    Attributes:
        dynamodb_ms, s3_get_ms, s3_put_ms: a call's wait, during which Lambda is paid.
        invocation_ms: of the runtime and the door, for each invocation.
        record_ms: to check and frame a record.
        log_bytes: that an invocation logs: the platform's three lines and one of metrics.
        access_log_bytes: that the HTTP API logs for a request.
        kms_requests: in a month; tables and bucket keep data keys for minutes.
        pollers, poll_s: how Lambda waits for messages of a queue.
        sqs_requests: of a message: sent, received, deleted.
        stream_batch_s: how long Lambda gathers items of the table's stream.
        follower_poll_s: how often an open follower looks for news.
        long_poll_s: how long one long-poll is open.
        job_start_s, job_least_s: of a job run until it works; billed at least.
        page_bytes, page_records: of a read.
    """

    dynamodb_ms: float = 5
    s3_get_ms: float = 15
    s3_put_ms: float = 40
    invocation_ms: float = 3
    record_ms: float = 0.005
    log_bytes: float = 900
    access_log_bytes: float = 350
    kms_requests: float = 50_000
    pollers: float = 5
    poll_s: float = 20
    sqs_requests: float = 3
    stream_batch_s: float = 5
    follower_poll_s: float = 0.25
    long_poll_s: float = 3
    job_start_s: float = 40
    job_least_s: float = 60
    page_bytes: float = 1024 * 1024
    page_records: float = 1000
