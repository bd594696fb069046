"""What the folder needs; created once for each process."""

from __future__ import annotations

from dataclasses import dataclass

from functions.fold_queue import FoldQueue, SqsFoldQueue
from functions.metrics import FolderMetric, Meter
from functions.worker import count_requests
from headrace.features.fold import Folder
from headrace.features.register import Registrations
from headrace.log.stores import Stores
from headrace.objects.observed import RequestCounts


@dataclass(frozen=True, slots=True)
class Context:
    """The folder of this process.

    Attributes:
        counts: requests to the object store that are not in the durable counters yet.
        queue: where what is left of a pass is asked for.
    """

    stores: Stores
    counts: RequestCounts
    meter: Meter[FolderMetric]
    queue: FoldQueue
    folder: Folder


def assemble(stores: Stores, queue: FoldQueue, meter: Meter[FolderMetric] | None = None) -> Context:
    """Creates a context on given stores; their requests to the object store are counted in `meter` and per log."""
    meter = meter or Meter(FolderMetric)
    stores, counts = count_requests(stores, meter)
    return Context(stores, counts, meter, queue, Folder(Registrations(stores)))


def open_context() -> Context:
    """Creates the context from this process's environment variables.

    Raises:
        SettingsError: a setting is missing or invalid.
    """
    from functions.wiring import open_wiring  # AWS clients: not for those who bring their own stores

    wiring = open_wiring(FolderMetric)
    queue = SqsFoldQueue(wiring.client("sqs", read_timeout_s=5.0), wiring.settings.fold_queue_url)
    return assemble(wiring.stores, queue, wiring.meter)
