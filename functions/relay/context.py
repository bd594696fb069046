"""What the relay's verbs and its followers need; created once for each process."""

from __future__ import annotations

from dataclasses import dataclass

from functions import worker
from functions.metrics import Meter, RelayMetric
from functions.queue import Message, Queue, SqsQueue
from headrace.log.stores import Stores
from headrace.tables.follows import Follow


@dataclass(frozen=True, slots=True)
class Context(worker.Context[RelayMetric]):
    """A worker's context, with the message that frees a follower."""

    def kick(self, *follows: Follow) -> None:
        """Asks for a visit of followers now, also of those that wait for a later one: what they wait for has come."""
        now_ms = self.now_ms()
        self.queue.send([Message("visit", one.log_id, followers=(one.key,), force=True) for one in follows], now_ms)


def assemble(stores: Stores, queue: Queue, meter: Meter[RelayMetric] | None = None) -> Context:
    """Creates a context on given stores; their requests to the object store are counted in `meter` and per log."""
    meter = meter or Meter(RelayMetric)
    stores, counts = worker.count_requests(stores, meter)
    return Context(stores, stores.manifests(), queue, counts, meter)


def open_context() -> Context:
    """Creates the context from this process's environment variables.

    Raises:
        SettingsError: a setting is missing or invalid.
    """
    from functions.wiring import open_wiring  # AWS clients: not for those who bring their own stores

    wiring = open_wiring(RelayMetric)
    queue = SqsQueue(wiring.client("sqs", read_timeout_s=5.0), wiring.settings.relay_queue_url)
    return assemble(wiring.stores, queue, wiring.meter)
