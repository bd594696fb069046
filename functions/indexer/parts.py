"""What the indexer's verbs act on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from functions.indexer.policy import IndexLimits
from functions.indexer.queue import WakeQueue
from functions.indexer.runs import JobRuns
from headrace.index.manifest import IndexManifest, IndexManifestStore
from headrace.log.definition import Definitions
from headrace.log.stores import Stores
from headrace.manifest.merging import MergeLimits
from headrace.manifest.store import ManifestStore
from headrace.names import STREAMS
from headrace.objects.counting import CountingObjects, RequestCounts
from headrace.tables.jobs import Jobs


@dataclass(frozen=True, slots=True)
class Parts:
    """The stores of the process, its queue, and job runs.

    Attributes:
        surface: the surface whose catalog rows the audit walks.
        counts: requests to the object store that are not in the durable counters yet.
    """

    stores: Stores
    manifests: ManifestStore
    indexes: IndexManifestStore
    definitions: Definitions
    jobs: Jobs
    runs: JobRuns
    queue: WakeQueue
    surface: str
    counts: RequestCounts

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
        """The server's clock."""
        return self.stores.clock.now_ms()

    def new_id(self) -> str:
        """Of a run or a job: the time it was made, which its age follows from, and a nonce. Letters, digits, dashes."""
        return f"{self.now_ms():013d}-{self.stores.log_ids()[-12:]}"


def made_ms(made_id: str) -> int | None:
    """When a run or a job was made, from its id; None if it is no such id."""
    time_ms, dash, _ = made_id.partition("-")
    return int(time_ms) if dash and len(time_ms) == 13 and time_ms.isdecimal() else None


def assemble(stores: Stores, jobs: Jobs, runs: JobRuns, queue: WakeQueue) -> Parts:
    """The parts on given stores, with their requests to the object store counted."""
    counts = RequestCounts()
    stores = replace(stores, objects=CountingObjects(stores.objects, counts))
    return Parts(
        stores=stores,
        manifests=stores.manifests(),
        indexes=IndexManifestStore(stores.objects),
        definitions=Definitions(stores),
        jobs=jobs,
        runs=runs,
        queue=queue,
        surface=STREAMS,
        counts=counts,
    )
