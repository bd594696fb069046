"""`/v1/streams`: living streams in name order, as far as the key allows."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.api.door import times
from functions.api.door.access import Grant, Scope
from functions.api.door.layers import grant_of
from functions.api.door.waiting import run
from functions.api.parts import Parts
from functions.api.streams.inspection.fan_out import fan_out
from functions.api.streams.inspection.inspector import Inspector
from functions.api.streams.inspection.seen import Listed
from functions.api.streams.queries import ListQuery, list_query
from functions.api.streams.routes.resources import serve
from functions.metrics import ApiMetric
from headrace.log.logs import Logs


def add_routes(app: FastAPI, parts: Parts) -> None:
    """Adds the listing."""

    @serve(app, "/v1/streams", "GET")
    async def list_streams(request: Request) -> Response:
        grant = grant_of(request)
        grant.require(Scope.READ)
        query = list_query(request.scope)
        found = await run(_list, parts.logs(), parts.inspector(), grant, query)
        parts.meter.add(ApiMetric.Lists)
        headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
        return Response(orjson.dumps([_descriptor(listed) for listed in found]), headers=headers)


def _list(logs: Logs, inspector: Inspector, grant: Grant, query: ListQuery) -> list[Listed]:
    """The page. Rows of streams that have ended unnoticed are left out, and others take their place.

    The catalog is asked for no more than the page (and what it skips); its rows are then looked at side by side.
    """
    found: list[Listed] = []
    skip = query.skip
    for prefix in grant.within(query.prefix):  # no prefix covers another, and they come in order
        after = query.after
        while len(found) < query.limit:
            wanted = skip + query.limit - len(found)
            rows = logs.list(after=after, prefix=prefix, limit=wanted)
            found += [listed for listed in fan_out(inspector.listed, rows[skip:]) if listed is not None]
            skip = max(0, skip - len(rows))
            if len(rows) < wanted:
                break
            after = rows[-1].name
    return found


def _descriptor(listed: Listed) -> dict[str, Any]:
    config = listed.config
    return {
        "name": config.name,
        "created_at": times.text_of(config.created_ms),
        "expires_at": None if listed.deadline_ms is None else times.text_of(listed.deadline_ms),
        "epoch": listed.incarnation,
        "next_offset": str(listed.next_offset),
        "sealed_through": str(listed.sealed_through),
        "uploaded_through": str(listed.sealed_through),
        "content_type": config.content_type,
        "profile": listed.profile,
    }
