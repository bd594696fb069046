"""Serves the console and the API reference. Neither has anything that a key protects: what they show, a browser asks the
other routes for, with the key that was typed in.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from functions.api.console.files import File, site
from functions.api.door import routes
from functions.api.door.compression import wants_gzip
from functions.api.door.requests import Headers, run

OPEN_PATHS = frozenset({"/", "/docs", "/openapi.json"})
OPEN_UNDER = ("/console/",)

_FOR_GOOD = "public, max-age=31536000, immutable"
# Nothing from elsewhere, no inline script, no markup made of texts, in no frame.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_CONSOLE_POLICY = f"{_POLICY}; require-trusted-types-for 'script'; trusted-types 'none'"
# Swagger UI writes styles into its markup.
_DOCS_POLICY = _POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
_PAGE = {"Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin"}


def add_routes(app: FastAPI) -> None:
    """Adds the routes."""

    async def show_console(request: Request) -> Response:
        """Shows the console."""
        return await _page(request, "console.html", _CONSOLE_POLICY)

    async def show_docs(request: Request) -> Response:
        """Shows the API reference, which reads `/openapi.json`."""
        return await _page(request, "docs.html", _DOCS_POLICY)

    async def show_asset(request: Request) -> Response:
        """Sends a file that a page uses. A page of another release may ask for it, too, during a deployment."""
        files = await run(site)
        file = files.assets.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        is_own = request.path_params["version"] == files.version
        return await _answer(request, file, {"Cache-Control": _FOR_GOOD if is_own else "no-cache"})

    routes.add(app, "/", False, GET=show_console, HEAD=show_console)
    routes.add(app, "/docs", False, GET=show_docs, HEAD=show_docs)
    routes.add(app, "/console/{version}/{name}", False, GET=show_asset, HEAD=show_asset)


async def _page(request: Request, name: str, policy: str) -> Response:
    file = (await run(site)).pages[name]
    return await _answer(request, file, {"Cache-Control": "no-cache", "Content-Security-Policy": policy, **_PAGE})


async def _answer(request: Request, file: File, headers: Mapping[str, str]) -> Response:
    asked = Headers(request.scope)
    told = {**headers, "ETag": file.etag, "Vary": "Accept-Encoding"}
    if file.etag in (tag.strip().removeprefix("W/") for tag in (asked.get("if-none-match") or "").split(",")):
        return Response(None, 304, told)
    body = file.body
    if wants_gzip(asked, len(body)):
        told["Content-Encoding"] = "gzip"
        body = await run(lambda: file.gzip)
    return Response(body, 200, {"Content-Type": file.content_type, **told})
