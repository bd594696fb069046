"""What the indexer's verbs act on: made once for each process."""

from __future__ import annotations

from dataclasses import dataclass, replace

from functions.indexer.policy import IndexLimits
from functions.indexer.runs import EmrRuns, JobRuns
from functions.metrics import IndexerMetric
from functions.observability import Meter
from functions.queue import Queue, SqsQueue
from headrace.index.manifest import IndexManifest, IndexManifestStore
from headrace.log.definition import Definitions
from headrace.log.stores import Stores
from headrace.manifest.merging import MergeLimits
from headrace.manifest.store import ManifestStore
from headrace.objects.observed import ObservedObjects, RequestCounts
from headrace.tables.jobs import DynamoJobs, Jobs

_DYNAMODB_TIMEOUT_S = 5.0  # no client waits for an answer here
_S3_READ_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Context:
    """The stores of the process, its queue, and job runs.

    Attributes:
        counts: requests to the object store that are not in the durable counters yet.
    """

    stores: Stores
    manifests: ManifestStore
    indexes: IndexManifestStore
    definitions: Definitions
    jobs: Jobs
    runs: JobRuns
    queue: Queue
    counts: RequestCounts
    meter: Meter[IndexerMetric]

    @property
    def limits(self) -> IndexLimits:
        """The limits of indexing and merging."""
        settings = self.stores.settings
        return IndexLimits(
            age_ms=settings.index_age_ms,
            segments=settings.index_segments,
            fanout=settings.compact_fanout,
            jobs=settings.index_jobs,
            retire_age_ms=settings.index_retire_age_ms,
            merge=MergeLimits(
                segments=settings.merge_segments,
                payload_bytes=settings.seal_bytes,
                records=settings.seal_records,
                age_ms=settings.merge_age_ms,
            ),
        )

    def publish(self, manifest: IndexManifest) -> bool:
        """Creates a generation of an index manifest, and says so beside the log; False if another took its number.

        Raises:
            StoreTimeout, StoreThrottled: it may be published; look again.
        """
        if not self.indexes.publish(manifest):
            return False
        self.stores.watermarks.publish_index(manifest.log_id, manifest.generation)
        return True

    def now_ms(self) -> int:
        """Returns the time by the server's clock, in ms since the epoch."""
        return self.stores.clock.now_ms()

    def new_id(self) -> str:
        """Returns an id of a run or a job: when it was made, which its age follows from, and a nonce."""
        return f"{self.now_ms():013d}-{self.stores.log_ids()[-12:]}"


def made_ms(made_id: str) -> int | None:
    """Returns when a run or a job was made, from its id; None if it is no such id."""
    time_ms, dash, _ = made_id.partition("-")
    return int(time_ms) if dash and len(time_ms) == 13 and time_ms.isdecimal() else None


def assemble(
    stores: Stores, jobs: Jobs, runs: JobRuns, queue: Queue, meter: Meter[IndexerMetric] | None = None
) -> Context:
    """Makes a context on given stores, with their requests to the object store counted."""
    counts, meter = RequestCounts(), meter or Meter(IndexerMetric)
    stores = replace(stores, objects=ObservedObjects(stores.objects, stores.clock, counts.observe, meter.observe))
    return Context(
        stores=stores,
        manifests=stores.manifests(),
        indexes=IndexManifestStore(stores.objects),
        definitions=Definitions(stores),
        jobs=jobs,
        runs=runs,
        queue=queue,
        counts=counts,
        meter=meter,
    )


def open_context() -> Context:
    """Makes the context that the environment names.

    Raises:
        SettingsError: the environment makes no sense.
    """
    from functions.wiring import open_wiring  # AWS clients: not for those who bring their own stores
    from headrace.tables.dynamodb import Store

    wiring = open_wiring(IndexerMetric, dynamodb_timeout_s=_DYNAMODB_TIMEOUT_S, s3_read_timeout_s=_S3_READ_TIMEOUT_S)
    settings, refused = wiring.settings, wiring.meter.count_throttle
    jobs = DynamoJobs(Store(wiring.region, timeout_s=_DYNAMODB_TIMEOUT_S, refused=refused), settings.jobs_table)
    runs = EmrRuns(wiring.client("emr-serverless", read_timeout_s=10.0), settings)
    queue = SqsQueue(wiring.client("sqs", read_timeout_s=10.0), settings.index_queue_url)
    return assemble(wiring.stores, jobs, runs, queue, wiring.meter)
