"""The routes that push events (§ 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.responses import Response

from functions.access import Scope
from functions.api.features.calls import REPLAY, Call, parse
from functions.metrics import ApiMetric
from headrace.errors import InvalidRequest
from headrace.features.errors import CodedRefusal
from headrace.features.pipeline.text import show
from headrace.features.values import Ack

Pushed = tuple[Ack, int]
"""An acknowledgement, and of how many events."""


async def push(call: Call) -> Response:
    """Pushes the event in a body `{"event","data"}`."""
    return await _answer(call, _push_named)


async def push_data(call: Call) -> Response:
    """Pushes an event that the path names; the body is its data."""
    return await _answer(call, lambda call, data: _push(call, call.part(1), [parse(data)]))


async def push_batch(call: Call) -> Response:
    """Pushes the events in an array, all or none."""
    return await _answer(call, _push_array)


async def _answer(call: Call, verb: Callable[[Call, bytes], Pushed]) -> Response:
    data = await call.read()
    began = call.context.clock.monotonic()
    ack, count = await call.run(verb, call, data)
    if not ack.is_replay:
        call.context.meter.add(ApiMetric.Pushes)
        call.context.meter.add(ApiMetric.PushedEvents, count)
        call.context.meter.add(ApiMetric.PushMs, call.context.ms_since(began))
    document = {"ack_lsn": ack.ack_lsn, "idempotent_replay": False, "registry_version": ack.registry_version}
    # a replay has the body of the first answer: only the header tells them apart
    return await call.reply(document, {REPLAY: "1"} if ack.is_replay else {})


def _push_named(call: Call, data: bytes) -> Pushed:
    body = parse(data)
    event = body.get("event") if isinstance(body, dict) else None
    if not isinstance(event, str) or not event:
        reason = f"the body must be an object with the name `event` and the object `data`, not {show(body)}"
        raise CodedRefusal("missing_event_name_in_body", reason)
    return _push(call, event, [body.get("data")])


def _push_array(call: Call, data: bytes) -> Pushed:
    events = parse(data)
    if not isinstance(events, list):
        raise InvalidRequest(f"the body must be an array of events, not {show(events)}")
    return _push(call, call.part(1), events)


def _push(call: Call, event: str, events: Sequence[Any]) -> Pushed:
    call.require_event(Scope.WRITE, event)
    return call.features.push(call.namespace, event, events), len(events)
