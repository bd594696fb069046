"""The routes that create, show, list and delete topics (§ 1)."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import msgspec
import orjson
from starlette.responses import Response

from functions.access import Scope
from functions.api.topics.calls import Call
from functions.api.topics.config import ConfigBody, clamped, shown
from functions.metrics import ApiMetric
from headrace import decoding
from headrace.errors import InvalidRequest
from headrace.topics.values import TopicView

PAGE = 100
MAX_PAGE = 1000


class _After(msgspec.Struct, frozen=True):
    """What a listing's cursor holds: the last name of the page before."""

    after: str


async def put(call: Call) -> Response:
    """Creates a topic, or replaces its configuration (§ 1.1)."""
    name = call.name(Scope.ADMIN)
    config = (await call.body(ConfigBody)).config()
    if config.dead_letter is not None:
        call.grant.require(Scope.ADMIN, config.dead_letter)
    created, config = await call.run(call.logs.put, name, config, limit=call.context.settings.max_topics)
    call.context.meter.add(ApiMetric.TopicCreates, int(created))
    document = {"topic": name, "created": created, "config": shown(config)}
    return await call.reply(document, status=201 if created else 200)


async def show(call: Call) -> Response:
    """Shows the state of a topic (§ 1.2)."""
    name = call.name(Scope.READ)
    touch = call.query("touch").flag("touch", True)
    return await call.reply(_state(await call.run(call.logs.view, name, touch=touch)))


async def remove(call: Call) -> Response:
    """Deletes a topic, with the routers from it and into it (§ 1.4)."""
    name = call.name(Scope.DELETE)
    if_empty = call.query("if_empty").flag("if_empty", False)
    deleted, routers = await call.run(call.routers.remove_topic, name, if_empty=if_empty)
    call.context.meter.add(ApiMetric.TopicDeletes, int(deleted))
    return await call.reply({"topic": name, "deleted": deleted, "routers_removed": routers})


async def list_topics(call: Call) -> Response:
    """Lists topics by name (§ 1.3), those that the key allows."""
    call.grant.require(Scope.READ)
    query = call.query("prefix", "page_size", "cursor", "touch")
    touch = query.flag("touch", False)
    limit = clamped(query.number("page_size", PAGE), 1, MAX_PAGE)
    after = decode_cursor(query.text("cursor"))
    views, following = await call.run(
        call.logs.topics, call.grant.within(query.text("prefix")), after=after, limit=limit, touch=touch
    )
    document: dict[str, Any] = {"topics": [_summary(view) for view in views]}
    if following:
        document["next_cursor"] = encode_cursor(following)
    return await call.reply(document)


def _state(view: TopicView) -> dict[str, Any]:
    """Returns the state of a topic as answers show it (§ 1.2)."""
    document: dict[str, Any] = {
        "topic": view.name,
        "type": view.config.type,
        "head_seq": view.head_seq,
        "earliest_seq": view.earliest_seq,
        "next_seq": view.head_seq + 1,
        "count": view.live,
        "bytes": view.bytes,
        "config": shown(view.config),
    }
    if view.queue is not None:
        document["queue"] = view.queue._asdict()
    document["effective_priority"] = view.effective_priority
    document["last_write_ts"] = view.last_write_ts
    document["last_read_ts"] = view.last_read_ts
    return document


def _summary(view: TopicView) -> dict[str, Any]:
    """Returns the state of a topic as listings show it (§ 1.3)."""
    return {
        "topic": view.name,
        "type": view.config.type,
        "head_seq": view.head_seq,
        "earliest_seq": view.earliest_seq,
        "count": view.live,
        "bytes": view.bytes,
        "durable": view.config.durable,
        "effective_priority": view.effective_priority,
    }


def encode_cursor(name: str) -> str:
    """Returns the cursor of the page after the topic `name`."""
    return urlsafe_b64encode(orjson.dumps({"after": name})).decode()


def decode_cursor(text: str) -> str:
    """Returns the name in a cursor; empty for an empty text. Raises InvalidRequest for what is no cursor."""
    if not text:
        return ""
    try:
        return decoding.from_json(urlsafe_b64decode(text.encode()), _After).after
    except ValueError as exc:  # those of base64 and msgspec are such
        raise InvalidRequest("cursor is malformed") from exc
