"""`/v1/streams`: living streams in name order, as far as the key allows."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.api import times
from functions.api.access import Grant, Scope
from functions.api.blocking import run
from functions.api.door import GRANT
from functions.api.parts import Parts
from functions.api.queries import ListQuery, list_query
from headrace.catalog import Row
from headrace.log.logs import Logs


def add_routes(app: FastAPI, parts: Parts) -> None:
    """Adds the listing."""

    @app.api_route("/v1/streams", methods=["GET"])
    async def list_streams(request: Request) -> Response:
        grant: Grant = request.scope[GRANT]
        grant.require(Scope.READ)
        query = list_query(request.scope)
        rows = await run(_rows, parts.logs(), grant, query)
        parts.meter.count("Lists")
        headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
        return Response(orjson.dumps([_descriptor(row) for row in rows]), headers=headers)


def _rows(logs: Logs, grant: Grant, query: ListQuery) -> list[Row]:
    wanted = query.skip + query.limit
    found = [
        row
        for prefix in grant.within(query.prefix)  # no prefix covers another, and they come in order
        for row in logs.list(after=query.after, prefix=prefix, limit=wanted)
    ]
    return found[query.skip : wanted]


def _descriptor(row: Row) -> dict[str, Any]:
    config = row.config
    return {
        "name": row.name,
        "created_at": times.text_of(config.created_ms),
        "expires_at": None if row.deadline_ms is None else times.text_of(row.deadline_ms),
        "epoch": config.incarnation,
        "content_type": config.content_type,
        "profile": "generic",
    }
