"""The routes that add up: the live records of a topic by a rollup of its search configuration, and the timings of a queue
by the built-in rollup of its lease log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

from functions.access import Scope
from functions.api.context import Context
from functions.api.topics.calls import Call
from functions.metrics import ApiMetric
from headrace import instants
from headrace.json import jsontext
from headrace.log.seam import Which
from headrace.queues.timings import COUNTERS, ROLLUP
from headrace.topics.values import LEASES

if TYPE_CHECKING:  # at run time it would cost every process the import of numpy and pyarrow
    from headrace.query.engine.aggregate import Aggregated


async def aggregate(call: Call) -> Response:
    """Adds up the live records of a topic. The body is that of a stream's aggregate."""
    name = call.name(Scope.READ, "/aggregate")
    answer = await _run(call, _aggregate, name, jsontext.loads(await call.read() or b"{}"))
    coverage = answer.members(int)
    coverage["head_seq"] = coverage.pop("stream_head_offset")
    coverage["visible_through_seq"] = coverage.pop("visible_through_offset")
    document = {"topic": name, "rollup": answer.request.rollup.name, **_window(answer), "coverage": coverage}
    if answer.explain is not None:
        document["explain"] = answer.explain
    return await _reply(call, document, ",".join(answer.buckets).encode())


async def timings(call: Call) -> Response:
    """Returns the timings of a queue by interval: what happened to jobs, how often, and how long they waited and ran. All
    intervals that the time from `from` to `to` touches are answered as wholes.
    """
    name = call.name(Scope.READ, "/timings")
    asked = jsontext.loads(await call.read() or b"{}")
    if isinstance(asked, dict):
        asked = {
            "rollup": ROLLUP,
            **{member: asked[member] for member in ("from", "to", "interval") if member in asked},
        }
    answer = await _run(call, _timings, name, asked)
    coverage = answer.members(int)
    del coverage["stream_head_offset"], coverage["visible_through_offset"]  # of the lease log, which has no seqs
    document = {"topic": name, **_window(answer), "coverage": coverage}
    return await _reply(call, document, b",".join(map(_bucket, answer.buckets)))


async def _run(call: Call, verb: Callable[[Context, str, Any], Aggregated], name: str, asked: Any) -> Aggregated:
    meter = call.context.meter
    meter.add(ApiMetric.Aggregates)
    answer = await call.run(verb, call.context, name, asked)
    meter.add(ApiMetric.AggregateMs, round(call.verb_ms))
    return answer


def _timings(context: Context, name: str, asked: Any) -> Aggregated:
    with context.topics().of_queue(name):
        return _aggregate(context, (name, LEASES), asked, is_widened=True)


def _aggregate(context: Context, which: Which, asked: Any, *, is_widened: bool = False) -> Aggregated:
    engine = context.topic_engine()  # the first call imports what follows
    from headrace.query.engine.aggregate import aggregate as add_up

    with context.query():
        return add_up(engine, which, asked, context.settings.request_timeout_ms, is_widened=is_widened)


def _window(answer: Aggregated) -> dict[str, Any]:
    window = answer.request.window
    return {
        "from": instants.render(window.start_ms),
        "to": instants.render(window.end_ms),
        "interval": answer.request.interval,
    }


async def _reply(call: Call, document: dict[str, Any], buckets: bytes) -> Response:
    return await call.reply(document, b',"buckets":[%b]' % buckets, measured={"aggregate_ms": call.verb_ms})


def _bucket(text: str) -> bytes:
    """Returns a bucket of the built-in rollup, which has one group, as the bucket of an answer."""
    bucket = orjson.loads(text)
    (group,) = bucket.pop("groups")
    measures = group["measures"]
    counts = {name: measures[name]["sum"] or 0 for name in COUNTERS}
    return orjson.dumps(
        {
            **bucket,
            "claimed": measures["wait"]["count"] + counts["redelivered"],
            "acked": measures["run"]["count"],
            **counts,
            "wait_ms": measures["wait"],
            "run_ms": measures["run"],
            "attempts": measures["attempts"],
        }
    )
