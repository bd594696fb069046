"""The follower of subscriptions: wakes them when one of their streams has new data, announces wakes or calls webhooks, and
ends leases.

A followed stream tells its subscription of data; that costs no call to a receiver. A subscription has a row of its own,
its timer, that is visited when something is due. Calls to receivers are made there, each by a message of its own.
"""

from __future__ import annotations

import logging
from functools import partial
from random import SystemRandom

import msgspec
from msgspec.structs import replace

from functions.metrics import RelayMetric
from functions.queue import Message, visit_when_due
from functions.relay.context import Context
from functions.relay.followers import Hint
from functions.subscribers import refusal
from headrace.errors import StoreError
from headrace.streams.verbs import Streams
from headrace.subscriptions.delivery import Delivered
from headrace.subscriptions.desk import Desk, timer_log
from headrace.subscriptions.rules import Outcome, outcome_of
from headrace.subscriptions.signing import HEADER
from headrace.subscriptions.verbs import Subscriptions
from headrace.subscriptions.wakes import Call
from headrace.tables.follows import Follow

_log = logging.getLogger(__name__)


class Wakes:
    """The follower of the kind `subscription`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._wakes = open_subscriptions(context).wakes

    def visit(self, follow: Follow, hint: Hint) -> float | None:  # noqa: ARG002
        """Visits a followed stream, or a subscription's timer."""
        if follow.log_id == timer_log(follow.id):
            return self._wakes.drive(follow.id, self.post)
        return self._wakes.hear(follow)

    def post(self, call: Call) -> Outcome:
        """Calls a webhook once."""
        body = msgspec.json.encode(call.document(self._context.stores.settings.base_url))
        try:
            signature = self._context.signing.keys().sign(body, self._context.now_ms() // 1000)
        except StoreError:
            return Outcome.FAILED  # the keys could not be read; that is logged
        began_ms = self._context.now_ms()
        delivered = self._context.deliver.post(
            call.url, body, {"Content-Type": "application/json", HEADER: signature}
        )
        self._measure(call, delivered, began_ms)
        if not delivered.is_accepted:
            _log.warning(
                "webhook failed: subscription=%s attempt=%s status=%s reason=%s",
                call.subscription.id,
                call.attempt,
                delivered.status,
                delivered.error,
            )
        return outcome_of(delivered)

    def _measure(self, call: Call, delivered: Delivered, began_ms: int) -> None:
        meter, now_ms, wake = self._context.meter, self._context.now_ms(), call.subscription.wake
        assert wake is not None, "it is being sent"
        meter.add(RelayMetric.Webhooks)
        meter.add(RelayMetric.WebhooksFailed, 0 if delivered.is_accepted else 1)
        meter.add(RelayMetric.WebhookMs, max(0, now_ms - began_ms))
        meter.add(RelayMetric.WebhookAgeMs, max(0, now_ms - wake.opened_ms))


def open_subscriptions(context: Context) -> Subscriptions:
    """Returns the verbs of subscriptions."""
    stores = context.stores

    def ring(follow: Follow) -> None:
        context.queue.send([visit_when_due(follow)], context.now_ms())

    may_not = partial(refusal, context.access)
    return Subscriptions(Desk(stores, Streams(stores), ring, SystemRandom().random, may_not))


def tell_of_new(context: Context, message: Message) -> None:
    """Has the next subscriptions that want a new stream follow it; the others are the matter of another message."""
    subscriptions = open_subscriptions(context)
    ids, after = subscriptions.links.created(message.log_id, message.after)
    for id_ in ids:
        subscriptions.wakes.open_next(id_)
    if after:
        context.queue.send([replace(message, after=after, not_before_ms=0)], context.now_ms())
