"""What the sealer's verbs act on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from functions.sealer.policy import SealLimits
from functions.sealer.queue import DelayQueue
from headrace.log.control import worker_controls
from headrace.log.stores import Stores
from headrace.manifest.store import ManifestStore
from headrace.objects.counting import CountingObjects, RequestCounts
from headrace.tables.catalog import Row
from headrace.wal.state import LogConfig


@dataclass(frozen=True, slots=True)
class Parts:
    """The stores of the process, the queue, and two verbs of the library that write control entries.

    Attributes:
        expire_if_due: ends a log whose deadline has passed; the deadline (ms) if it still lies ahead.
        release_source: gives back what an ended fork holds of its source.
        counts: requests to the object store that are not in the durable counters yet.
    """

    stores: Stores
    manifests: ManifestStore
    queue: DelayQueue
    expire_if_due: Callable[[Row], int | None]
    release_source: Callable[[str, LogConfig], None]
    counts: RequestCounts

    @property
    def limits(self) -> SealLimits:
        """The limits of sealing and trimming."""
        settings = self.stores.settings
        return SealLimits(
            payload_bytes=settings.seal_bytes,
            records=settings.seal_records,
            age_ms=settings.seal_age_ms,
            trim_age_ms=settings.trim_age_ms,
        )

    def now_ms(self) -> int:
        """The server's clock."""
        return self.stores.clock.now_ms()


def assemble(stores: Stores, queue: DelayQueue) -> Parts:
    """The parts on given stores, with their requests to the object store counted."""
    counts = RequestCounts()
    stores = replace(stores, objects=CountingObjects(stores.objects, counts))
    controls = worker_controls(stores)
    return Parts(
        stores=stores,
        manifests=stores.manifests(),
        queue=queue,
        expire_if_due=controls.expire_if_due,
        release_source=controls.release_source,
        counts=counts,
    )
