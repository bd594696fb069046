"""The resources `…/_schema` and `…/_profile`: a stream's schema registry and its profile."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.access import Scope
from functions.api.context import Context
from functions.api.door.requests import read, run
from functions.api.door.routes import add
from functions.api.streams.records import NO_STORE, PATH, STREAMS
from headrace.definition import Definition
from headrace.errors import InvalidRequest
from headrace.json import jsontext, registry
from headrace.log.requests import JSON
from headrace.streams import profiles
from headrace.wal.state import LogConfig, LogState

MAX_DOCUMENT_BYTES = 1024 * 1024  # maximum size of a schema or a profile, which a process keeps in memory


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the routes of `_schema` and `_profile`."""

    async def show_schema(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.READ, "/_schema")
        definition = await run(context.logs().definition, name)
        return document(registry.document(definition.registry, name))

    async def change_schema(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.ADMIN, "/_schema")
        update = registry.parse_update(await _body(request), name)
        logs = context.logs()

        def change(before: Definition, config: LogConfig, state: LogState) -> Definition:
            if config.content_type != JSON:
                raise InvalidRequest("a schema needs a stream of application/json")
            after = registry.apply(
                before.registry,
                update,
                name=name,
                next_offset=state.next_offset,
                is_empty=state.next_offset == 0,
            )
            return Definition(after, before.own)

        return document(registry.document((await run(logs.define, name, change)).registry, name))

    async def show_profile(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.READ, "/_profile")
        definition = await run(context.logs().definition, name)
        return document(profiles.resource(profiles.of(definition)))

    async def change_profile(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.ADMIN, "/_profile")
        wanted = profiles.parse_update(jsontext.loads(await _body(request)))
        logs = context.logs()

        def change(before: Definition, config: LogConfig, state: LogState) -> Definition:
            update = profiles.install(
                profiles.of(before),
                wanted,
                content_type=config.content_type,
                is_empty=state.next_offset == 0,
            )
            if update is None:
                return Definition(before.registry, wanted)
            fresh = registry.install(update, name=name, next_offset=state.next_offset)
            return Definition(fresh, wanted)

        return document(profiles.resource(profiles.of(await run(logs.define, name, change))))

    add(app, PATH + "/_schema", GET=show_schema, POST=change_schema)
    add(app, PATH + "/_profile", GET=show_profile, POST=change_profile)


async def _body(request: Request) -> bytes:
    return await read(request, MAX_DOCUMENT_BYTES)


def document(value: Any) -> Response:
    """Returns a response with a JSON document that no cache may store."""
    return Response(jsontext.dumps(value), 200, {"Content-Type": JSON, "Cache-Control": NO_STORE})
