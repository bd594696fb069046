"""Health, readiness and metrics of a server (§ 8). Numbers about commits are those of this process since it began; numbers
about topics are read from the stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from starlette.responses import Response

from functions.access import Scope
from functions.api.door.gauges import CONTENT_TYPE, Gauge
from functions.api.door.gauges import text_of as gauges_text
from functions.api.door.requests import run
from functions.api.topics.calls import Call
from headrace import VERSION
from headrace.routers.values import ROUTERS
from headrace.topics.values import TOPICS, Durability, TopicView
from headrace.watch.values import SESSIONS

MAX_TOPICS = 200  # whose numbers one answer has
_CLASSES: tuple[Durability, ...] = ("ephemeral", "memory", "disk", "fsync")


async def health(call: Call) -> Response:
    """Says that the process is alive, without calling a store (§ 8.1)."""
    return await call.send(orjson.dumps({"status": "ok", "version": VERSION, "uptime_ms": call.context.uptime_ms()}))


async def ready(call: Call) -> Response:
    """Says that the process can serve, after a call to the tables (§ 8.2). There is nothing to replay."""
    document = {"status": "ready", "wal_replay_complete": True, "topics": await run(call.context.count, TOPICS)}
    return await call.send(orjson.dumps(document))


async def metrics(call: Call) -> Response:
    """Shows the numbers of § 8.3, as Prometheus text or as JSON. A key sees the topics that it may touch."""
    call.grant.require(Scope.READ)
    if "application/json" not in (call.headers.get("accept") or ""):
        return await call.send((await text_of(call)).encode(), content_type=CONTENT_TYPE)
    summary, views, is_cut = await _numbers(call)
    document = {**summary, "topics_by_class": _by_class(views), "per_topic": [_of_topic(view) for view in views]}
    document["topic_metrics_truncated"] = is_cut
    document["wal"] = call.context.commits.document()
    return await call.send(orjson.dumps(document))


async def text_of(call: Call) -> str:
    """Returns the numbers as Prometheus text."""
    summary, views, is_cut = await _numbers(call)
    gauges = [Gauge(f"topics_{name}", name.replace("_", " "), [("", value)]) for name, value in summary.items()]
    return gauges_text([*gauges, *_labelled(views, is_cut)]) + call.context.commits.text()


async def _numbers(call: Call) -> tuple[dict[str, float], list[TopicView], bool]:
    """Returns numbers of the server, and the topics whose numbers are shown; and whether there are more."""
    views, following = await run(call.logs.topics, call.grant.within(""), after="", limit=MAX_TOPICS)
    if call.grant.prefixes:
        prefixes = call.grant.within("")
        count, routers = len(views), len((await run(call.routers.routers, prefixes, limit=MAX_TOPICS))[0])
    else:
        count, routers = await run(call.context.count, TOPICS), await run(call.context.count, ROUTERS)
    summary = _summary(call, views, count)
    summary["routers"] = routers
    summary["watch_sessions"] = await run(call.context.count, SESSIONS)
    return summary, views, bool(following)


def _summary(call: Call, views: list[TopicView], count: int) -> dict[str, float]:
    queues = [view.queue for view in views if view.queue is not None]
    return {
        "topics": count,
        "records_live": sum(view.live for view in views),
        "bytes_live": sum(view.bytes for view in views),
        "queue_topics": len(queues),
        "queue_leases_in_flight": sum(queue.in_flight for queue in queues),
        "sse_connections": call.context.commits.streams,
        "ready": 1,
        "recovery_progress": 1,
        "uptime_ms": call.context.uptime_ms(),
    }


def _by_class(views: Iterable[TopicView]) -> dict[str, int]:
    found = [view.config.durability for view in views]
    return {name: found.count(name) for name in _CLASSES}


def _of_topic(view: TopicView) -> dict[str, Any]:
    numbers = {
        "head_seq": view.head_seq,
        "earliest_seq": view.earliest_seq,
        "records_live": view.live,
        "bytes_live": view.bytes,
    }
    if view.queue is not None:
        numbers |= {"queue_ready": view.queue.ready, "queue_in_flight": view.queue.in_flight}
    return {"topic": view.name, **numbers}


def _labelled(views: list[TopicView], is_cut: bool) -> list[Gauge]:
    """Returns the metrics that have labels. Names of topics need no escapes."""
    by_class = [(f'class="{name}"', count) for name, count in _by_class(views).items()]
    series: dict[str, list[tuple[str, float]]] = {}
    for view in views:
        numbers = _of_topic(view)
        label = f'topic="{numbers.pop("topic")}"'
        for name, value in numbers.items():
            series.setdefault(name, []).append((label, value))
    return [
        Gauge("topics_topics_by_class", "topics by durability class, of those shown", by_class),
        *(Gauge(f"topics_topic_{name}", name.replace("_", " ") + " by topic", rows) for name, rows in series.items()),
        Gauge("topics_topic_metrics_truncated", "1 if there are more topics than are shown", [("", int(is_cut))]),
    ]
