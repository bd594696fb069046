"""The routes of routers (§ 6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import msgspec
from starlette.responses import Response

from functions.access import Scope
from functions.api.topics.appends import match_of
from functions.api.topics.calls import TOPICS, Call
from functions.api.topics.config import clamped
from functions.api.topics.topics import MAX_PAGE, PAGE, decode_cursor, encode_cursor
from functions.refusals import Forbidden
from headrace.routers.values import RouterRequest, RouterView, check_router_name
from headrace.topics.values import Match, Routing, check_name

PREFIX = "/v0/routers/"
ROUTERS = replace(TOPICS, noun="router", prefix=PREFIX, check=check_router_name)

_GUARANTEES = ("at_least_once", "exactly_once")


class RouterBody(msgspec.Struct, frozen=True):
    """The body of a PUT of a router."""

    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: str | list[str] | None = None
    allow_cycle: bool = False
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"

    def request(self, name: str) -> RouterRequest:
        """Returns the request to put the router. Raises InvalidRequest if its filter is none."""
        exactly_once = self.guarantee == "exactly_once"
        routing = Routing(
            self.preserve_node, self.preserve_tag, match_of(self.filter), self.allow_cycle, exactly_once
        )
        return RouterRequest(name, self.source, self.dest, routing, self.create_dest)


async def put(call: Call) -> Response:
    """Creates a router, or changes it."""
    name = ROUTERS.allowed_name(call.request, Scope.ADMIN)
    request = (await call.body(RouterBody)).request(name)
    for topic in (request.source, request.dest):
        call.grant.require(Scope.ADMIN, topic)
    settings = call.context.settings
    created, feed = await call.run(
        call.routers.put, request, limit=settings.max_routers, most_topics=settings.max_topics
    )
    document = {"router": name, "created": created, **_definition(request.source, request.dest, feed.routing)}
    return await call.reply(document, status=201 if created else 200)


async def show(call: Call) -> Response:
    """Shows a router: beside its definition how many records it has copied, how many it has yet to look at, and since when
    its destination has no room.
    """
    name = await _allowed(call, Scope.READ)
    view = await call.run(call.routers.view, name)
    return await call.reply(
        {
            "router": name,
            **_definition(view.source, view.dest, view.routing),
            "forwarded_total": view.forwarded,
            "lag": view.lag,
            "blocked_since": view.blocked_ms,
        }
    )


async def remove(call: Call) -> Response:
    """Deletes a router."""
    name = await _allowed(call, Scope.DELETE)
    deleted = await call.run(call.routers.remove, name)
    return await call.reply({"router": name, "deleted": deleted})


async def list_routers(call: Call) -> Response:
    """Lists routers by name, those that the key allows."""
    call.grant.require(Scope.READ)
    query = call.query("prefix", "source", "dest", "page_size", "cursor")
    views, following = await call.run(
        call.routers.routers,
        call.grant.within(query.text("prefix")),
        source=_topic(query.text("source")),
        dest=_topic(query.text("dest")),
        after=decode_cursor(query.text("cursor")),
        limit=clamped(query.number("page_size", PAGE), 1, MAX_PAGE),
    )
    document: dict[str, Any] = {"routers": [_summary(view) for view in views if _is_allowed(call, view)]}
    if following:
        document["next_cursor"] = encode_cursor(following)
    return await call.reply(document)


async def _allowed(call: Call, scope: Scope) -> str:
    """Returns the name in the path. Raises Forbidden if the key does not allow the scope on it and on both topics."""
    name = ROUTERS.allowed_name(call.request, scope)
    if call.grant.prefixes:
        ends = await call.run(call.routers.ends, name)
        for topic in (ends.source, ends.dest) if ends is not None else ():
            call.grant.require(scope, topic)
    return name


def _topic(name: str) -> str:
    return check_name(name) if name else ""


def _is_allowed(call: Call, view: RouterView) -> bool:
    try:
        call.grant.require(Scope.READ, view.source)
        call.grant.require(Scope.READ, view.dest)
    except Forbidden:
        return False
    return True


def _definition(source: str, dest: str, routing: Routing) -> dict[str, Any]:
    return {
        "source": source,
        "dest": dest,
        "preserve_node": routing.preserve_node,
        "preserve_tag": routing.preserve_tag,
        "filter": _shown(routing.filter),
        "allow_cycle": routing.allow_cycle,
        "guarantee": _GUARANTEES[routing.exactly_once],
    }


def _shown(match: Match | None) -> list[str] | None:
    if match is None:
        return None
    return ["tag", "Glob", f"{match.text}*"] if match.is_prefix else ["tag", "Eq", match.text]


def _summary(view: RouterView) -> dict[str, Any]:
    return {
        "router": view.name,
        "source": view.source,
        "dest": view.dest,
        "guarantee": _GUARANTEES[view.routing.exactly_once],
        "forwarded_total": view.forwarded,
    }
