"""The resource `__ds/jwks.json`: the public keys with which receivers verify webhooks. It is readable without a key."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.api.context import Context
from functions.api.door.requests import run
from functions.api.door.routes import add
from functions.api.streams.records import PREFIX
from headrace.json import jsontext
from headrace.subscriptions.signing import JWKS_AGE_S

JWKS_PATH = f"{PREFIX}__ds/jwks.json"
_HEADERS = {"Content-Type": "application/jwk-set+json", "Cache-Control": f"public, max-age={JWKS_AGE_S}"}


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the route. Must be called before the routes of streams are added."""

    async def show(_: Request) -> Response:
        keys = await run(context.signing.keys)
        return Response(jsontext.dumps(keys.jwks(context.clock.now_ms() // 1000)), headers=_HEADERS)

    add(app, JWKS_PATH, GET=show)
