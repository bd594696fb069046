"""What the indexer's verbs need; created once for each process."""

from __future__ import annotations

from dataclasses import dataclass

from functions import worker
from functions.indexer.policy import IndexLimits
from functions.indexer.runs import EmrRuns, JobRuns
from functions.metrics import IndexerMetric, Meter
from functions.queue import Queue, SqsQueue
from headrace.definition import Definitions
from headrace.index.manifest import IndexManifest, IndexManifestStore
from headrace.log.stores import Stores
from headrace.manifest.merging import FindDead, MergeLimits
from headrace.manifest.store import NewestLook
from headrace.objects import keys
from headrace.tables.jobs import DynamoJobs, Jobs


@dataclass(frozen=True, slots=True)
class Context(worker.Context[IndexerMetric]):
    """A worker's context, with the limits of indexing and the port for job runs.

    Attributes:
        dead: returns the removed records of a log.
    """

    indexes: IndexManifestStore
    definitions: Definitions
    jobs: Jobs
    runs: JobRuns
    dead: FindDead

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

    def newest_index(self, log_id: str) -> IndexManifest:
        """Returns the newest generation of a log's index manifest, from the one that the watermark names on: generations
        after one in hand may have been removed.

        Raises:
            Damaged: the object of a generation is not that generation, or breaks a rule.
            StoreTimeout, StoreThrottled: repeat later.
        """
        return self.indexes.newest(log_id, at_least=self.stores.watermarks.get(log_id).index_generation)

    def publish(self, manifest: IndexManifest, look: NewestLook) -> bool:
        """Publishes a generation of an index manifest, and raises its number in the log's watermark row. Returns False
        if another caller took the number. `look` is the one that found the generation before.

        Raises:
            StoreTimeout, StoreThrottled: it may have been published; look again.
        """
        if not self.indexes.publish(manifest, look):
            return False
        self.stores.watermarks.publish_index(manifest.log_id, manifest.generation)
        return True

    def new_id(self) -> str:
        """Returns a new id for an index run or a job: the current time in ms (13 digits), a dash, and 12 random
        characters.
        """
        return keys.made_id(self.now_ms(), self.stores.log_ids())


def assemble(
    stores: Stores,
    jobs: Jobs,
    runs: JobRuns,
    queue: Queue,
    meter: Meter[IndexerMetric] | None = None,
    dead: FindDead | None = None,
) -> Context:
    """Creates a context on given stores; their requests to the object store are counted in `meter` and per stream. `dead`
    finds the removed records of a log, by default as the stores do.
    """
    meter = meter or Meter(IndexerMetric)
    stores, counts = worker.count_requests(stores, meter)
    indexes, definitions = IndexManifestStore(stores.objects), Definitions(stores.objects)
    return Context(
        stores,
        stores.manifests(),
        queue,
        counts,
        meter,
        indexes,
        definitions,
        jobs,
        runs,
        dead or stores.find_dead(stores),
    )


def open_context() -> Context:
    """Creates the context from this process's environment variables.

    Raises:
        SettingsError: a setting is missing or invalid.
    """
    from functions.wiring import (  # AWS clients: not for those who bring their own stores
        DYNAMODB_TIMEOUT_S,
        open_wiring,
    )
    from headrace.aws import open_store

    wiring = open_wiring(IndexerMetric)
    settings, refused = wiring.settings, wiring.meter.count_throttle
    jobs = DynamoJobs(open_store(wiring.region, timeout_s=DYNAMODB_TIMEOUT_S, refused=refused), settings.jobs_table)
    runs = EmrRuns(wiring.client("emr-serverless", read_timeout_s=10.0), settings)
    queue = SqsQueue(wiring.client("sqs", read_timeout_s=10.0), settings.index_queue_url)
    return assemble(wiring.stores, jobs, runs, queue, wiring.meter)
