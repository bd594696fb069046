"""Health, readiness and metrics of a server (§ 8). Numbers about commits are those of this process since it began; numbers
about topics are read from the stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson
from starlette.responses import Response

from functions.access import Scope
from functions.api.door.requests import run
from functions.api.topics.calls import Call
from headrace import VERSION
from headrace.routers.values import ROUTERS
from headrace.topics.values import TOPICS, Durability, TopicView
from headrace.watch.values import SESSIONS

MAX_TOPICS = 200  # whose numbers one answer has
_TEXT = "text/plain; version=0.0.4"
_CLASSES: tuple[Durability, ...] = ("ephemeral", "memory", "disk", "fsync")


async def health(call: Call) -> Response:
    """Says that the process is alive, without calling a store (§ 8.1)."""
    return await call.send(orjson.dumps({"status": "ok", "version": VERSION, "uptime_ms": call.context.uptime_ms()}))


async def ready(call: Call) -> Response:
    """Says that the process can serve, after a call to the tables (§ 8.2). There is nothing to replay."""
    document = {"status": "ready", "wal_replay_complete": True, "topics": await run(call.context.count, TOPICS)}
    return await call.send(orjson.dumps(document))


class Gauge(NamedTuple):
    """A metric, and its values, each with its labels as text (empty without labels)."""

    name: str
    meaning: str
    values: Sequence[tuple[str, float]]


async def metrics(call: Call) -> Response:
    """Shows the numbers of § 8.3, as Prometheus text or as JSON. A key sees the topics that it may touch."""
    call.grant.require(Scope.READ)
    views, following = await run(call.logs.topics, call.grant.within(""), after="", limit=MAX_TOPICS)
    if call.grant.prefixes:
        prefixes = call.grant.within("")
        count, routers = len(views), len((await run(call.routers.routers, prefixes, limit=MAX_TOPICS))[0])
    else:
        count, routers = await run(call.context.count, TOPICS), await run(call.context.count, ROUTERS)
    summary = _summary(call, views, count)
    summary["routers"] = routers
    summary["watch_sessions"] = await run(call.context.count, SESSIONS)
    if "application/json" in (call.headers.get("accept") or ""):
        document = {**summary, "topics_by_class": _by_class(views), "per_topic": [_of_topic(view) for view in views]}
        document["topic_metrics_truncated"] = bool(following)
        document["wal"] = call.context.commits.document()
        return await call.send(orjson.dumps(document))
    gauges = [Gauge(f"topics_{name}", name.replace("_", " "), [("", value)]) for name, value in summary.items()]
    text = _text([*gauges, *_labelled(views, bool(following))]) + call.context.commits.text()
    return await call.send(text.encode(), content_type=_TEXT)


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


def _text(gauges: Iterable[Gauge]) -> str:
    """Returns metrics in the text format of Prometheus."""
    lines: list[str] = []
    for gauge in gauges:
        lines += (f"# HELP {gauge.name} {gauge.meaning}", f"# TYPE {gauge.name} gauge")
        lines += (
            f"{gauge.name}{{{labels}}} {value}" if labels else f"{gauge.name} {value}"
            for labels, value in gauge.values
        )
    return "\n".join(lines) + "\n"
