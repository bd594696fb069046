"""What the relay's verbs and its followers need; created once for each process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from functions import worker
from functions.access import Access
from functions.fold_queue import FoldQueue, MemoryFoldQueue, SqsFoldQueue
from functions.metrics import Meter, RelayMetric
from functions.queue import Message, Queue, SqsQueue
from functions.relay.webhooks import NoWebhooks, WebhookFunction
from headrace.log.stores import Stores
from headrace.sockets.connections import ApiGatewayConnections, Connections, MemoryConnections
from headrace.subscriptions.delivery import ATTEMPT_MS, Deliver
from headrace.subscriptions.signing import SigningKeyring
from headrace.tables.follows import Follow


@dataclass(frozen=True, slots=True)
class Context(worker.Context[RelayMetric]):
    """A worker's context, with the message that frees a follower.

    Attributes:
        deliver: posts webhooks.
        signing: the keys that sign them.
        access: what keys allow now.
        connections: the clients of open sockets.
        folds: messages to the folder.
    """

    deliver: Deliver
    signing: SigningKeyring
    access: Access = field(default_factory=lambda: Access({}))
    connections: Connections = field(default_factory=MemoryConnections)
    folds: FoldQueue = field(default_factory=MemoryFoldQueue)

    def kick(self, *follows: Follow) -> None:
        """Asks for a visit of followers now, also of those that wait for a later one: what they wait for has come."""
        now_ms = self.now_ms()
        self.queue.send([Message("visit", one.log_id, followers=(one.key,), force=True) for one in follows], now_ms)


def assemble(
    stores: Stores,
    queue: Queue,
    meter: Meter[RelayMetric] | None = None,
    deliver: Deliver | None = None,
    signing: SigningKeyring | None = None,
) -> Context:
    """Creates a context on given stores; their requests to the object store are counted in `meter` and per log. Without
    `deliver` no webhook is posted; without `signing` the keys are those of the settings.
    """
    meter = meter or Meter(RelayMetric)
    stores, counts = worker.count_requests(stores, meter)
    settings = stores.settings
    if signing is None:
        signing = SigningKeyring(lambda: settings.signing_keys, stores.clock, age_ms=settings.keys_age_ms)
    return Context(stores, stores.manifests(), queue, counts, meter, deliver or NoWebhooks(), signing)


def open_context() -> Context:
    """Creates the context from this process's environment variables.

    Raises:
        SettingsError: a setting is missing or invalid.
    """
    from functions.wiring import open_wiring  # AWS clients: not for those who bring their own stores

    wiring = open_wiring(RelayMetric)
    sqs = wiring.client("sqs", read_timeout_s=5.0)
    queue, folds = SqsQueue(sqs, wiring.settings.relay_queue_url), SqsFoldQueue(sqs, wiring.settings.fold_queue_url)
    # One try: a repeat would call the receiver again, and the relay does that by itself.
    lambda_client = wiring.client("lambda", read_timeout_s=ATTEMPT_MS / 1000 + 10, tries=1)
    deliver = WebhookFunction(lambda_client, wiring.settings.webhook_function)
    context = assemble(wiring.stores, queue, wiring.meter, deliver, wiring.signing())
    sockets = wiring.client("apigatewaymanagementapi", read_timeout_s=2.0, endpoint=wiring.settings.sockets_endpoint)
    return replace(context, access=wiring.access(), connections=ApiGatewayConnections(sockets), folds=folds)
