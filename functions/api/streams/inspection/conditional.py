"""A document of a stream, unless the client has it already; with `live` the answer waits until it changes."""

from __future__ import annotations

from typing import Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from functions.api.door.headers import headers_of
from functions.api.door.waiting import listening, run
from functions.api.parts import Parts
from functions.api.streams import pages
from functions.api.streams.inspection import details, status
from functions.api.streams.inspection.inspector import Inspector
from functions.api.streams.inspection.query import InspectionQuery
from functions.api.streams.inspection.seen import Version
from headrace.errors import RequestTimeout
from headrace.json import jsontext
from headrace.log.requests import JSON

Kind = Literal["details", "index_status"]


class _Answer(NamedTuple):
    """A document, its tag, and the version of the stream that it shows."""

    version: Version
    etag: str
    body: bytes


async def answer(parts: Parts, request: Request, name: str, kind: Kind, query: InspectionQuery) -> Response:
    """200 with the document; 304 if the client has it, and it has not changed until the wait is over.

    Raises:
        RequestTimeout: a longer wait was asked for than a request may take, and nothing changed.
        HeadraceError: there is no such stream; also when it is deleted meanwhile.
    """
    headers = headers_of(request.scope)
    logs, inspector = parts.logs(), parts.inspector()
    if not query.live:
        found = await run(_build, inspector, name, kind)
        return _response(found, changed=not headers.matches(found.etag))
    settings = parts.settings
    asked_ms = settings.live_timeout_ms if query.timeout_ms is None else query.timeout_ms
    deadline = parts.clock.monotonic() + min(asked_ms, settings.request_timeout_ms) / 1000
    with listening(logs, name) as waiter:
        found = await run(_build, inspector, name, kind)
        while headers.matches(found.etag):
            left_s = deadline - parts.clock.monotonic()
            if left_s <= 0:
                if asked_ms > settings.request_timeout_ms:
                    raise RequestTimeout
                return _response(found, changed=False)
            await waiter.pause(left_s)
            if await request.is_disconnected():
                return _response(found, changed=False)
            if await run(inspector.version, name) != found.version:
                found = await run(_build, inspector, name, kind)
    return _response(found, changed=True)


def _build(inspector: Inspector, name: str, kind: Kind) -> _Answer:
    version, seen = inspector.look(name)
    shows_all = kind == "details"
    found = details.document(seen, inspector.requests(version.log_id)) if shows_all else status.document(seen)
    return _Answer(version, details.etag(kind, found), jsontext.dumps(found))


def _response(found: _Answer, *, changed: bool) -> Response:
    headers = {"ETag": found.etag, "Cache-Control": pages.NO_STORE}
    if not changed:
        return Response(None, 304, headers)
    return Response(found.body, 200, {"Content-Type": JSON, **headers})
