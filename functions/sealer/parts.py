"""What the sealer's verbs act on: made once for each process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from functions.metrics import SealerMetric
from functions.observability import Meter
from functions.queue import Queue, SqsQueue
from functions.sealer.policy import SealLimits
from headrace.log.control import worker_controls
from headrace.log.stores import Stores
from headrace.manifest.store import ManifestStore
from headrace.objects.observed import ObservedObjects, RequestCounts
from headrace.tables.catalog import Row
from headrace.wal.state import LogConfig

_DYNAMODB_TIMEOUT_S = 5.0  # no client waits for an answer here
_S3_READ_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Context:
    """The stores of the process, the queue, and two verbs of the library that write control entries.

    Attributes:
        expire_if_due: ends a log whose deadline has passed; the deadline (ms) if it still lies ahead.
        release_source: gives back what an ended fork holds of its source.
        counts: requests to the object store that are not in the durable counters yet.
    """

    stores: Stores
    manifests: ManifestStore
    queue: Queue
    expire_if_due: Callable[[Row], int | None]
    release_source: Callable[[str, LogConfig], None]
    counts: RequestCounts
    meter: Meter[SealerMetric]

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
        """Returns the server's clock."""
        return self.stores.clock.now_ms()


def assemble(stores: Stores, queue: Queue, meter: Meter[SealerMetric] | None = None) -> Context:
    """Makes a context on given stores, with their requests to the object store counted."""
    counts, meter = RequestCounts(), meter or Meter(SealerMetric)
    stores = replace(stores, objects=ObservedObjects(stores.objects, stores.clock, counts.observe, meter.observe))
    controls = worker_controls(stores)
    return Context(
        stores=stores,
        manifests=stores.manifests(),
        queue=queue,
        expire_if_due=controls.expire_if_due,
        release_source=controls.release_source,
        counts=counts,
        meter=meter,
    )


def open_context() -> Context:
    """Makes the context that the environment names.

    Raises:
        SettingsError: the environment makes no sense.
    """
    from functions.wiring import open_wiring  # AWS clients: not for those who bring their own stores

    wiring = open_wiring(SealerMetric, dynamodb_timeout_s=_DYNAMODB_TIMEOUT_S, s3_read_timeout_s=_S3_READ_TIMEOUT_S)
    queue = SqsQueue(wiring.client("sqs", read_timeout_s=5.0), wiring.settings.delay_queue_url)
    return assemble(wiring.stores, queue, wiring.meter)
