"""What the sealer's verbs need; created once for each process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from functions import worker
from functions.metrics import Meter, SealerMetric
from functions.queue import Queue, SqsQueue
from functions.sealer.policy import SealLimits
from headrace.log.control import worker_controls
from headrace.log.stores import Stores
from headrace.manifest.merging import FindDead
from headrace.tables.catalog import Row
from headrace.wal.state import LogConfig


@dataclass(frozen=True, slots=True)
class Context(worker.Context[SealerMetric]):
    """A worker's context, with three verbs of the library that write control entries.

    Attributes:
        expire_if_due: ends the logs of a name whose deadline has passed, and returns None; returns the deadline (epoch
            ms) if it is in the future.
        release_source: releases an ended fork's hold on its source.
        rest: writes an entry after the one at a slot, if that is a log's newest, so that it can be trimmed.
        dead: returns the removed records of a log.
    """

    expire_if_due: Callable[[Row], int | None]
    release_source: Callable[[str, LogConfig], None]
    rest: Callable[[Row, int], None]
    dead: FindDead
    limits: SealLimits


def assemble(stores: Stores, queue: Queue, meter: Meter[SealerMetric] | None = None) -> Context:
    """Creates a context on given stores; their requests to the object store are counted in `meter` and per stream."""
    meter = meter or Meter(SealerMetric)
    stores, counts = worker.count_requests(stores, meter)
    controls, settings = worker_controls(stores), stores.settings
    return Context(
        stores,
        stores.manifests(),
        queue,
        counts,
        meter,
        controls.expire_if_due,
        controls.release_source,
        controls.rest,
        stores.find_dead(stores),
        SealLimits(settings.seal_bytes, settings.seal_records, settings.seal_age_ms, settings.trim_age_ms),
    )


def open_context() -> Context:
    """Creates the context from this process's environment variables.

    Raises:
        SettingsError: a setting is missing or invalid.
    """
    from functions.wiring import open_wiring  # AWS clients: not for those who bring their own stores

    wiring = open_wiring(SealerMetric)
    queue = SqsQueue(wiring.client("sqs", read_timeout_s=5.0), wiring.settings.delay_queue_url)
    return assemble(wiring.stores, queue, wiring.meter)
