"""The entry of the door, an ASGI layer: it checks keys, limits how many requests run at once, adds headers to answers,
and converts errors to responses.

It is plain ASGI, so that an SSE response can stream through it. Preflight requests and the liveness route need no key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from starlette.datastructures import Headers as AnswerHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Asgi

from functions.access import SCHEME, Access
from functions.access import Grant as Grant  # what a request brings, and
from functions.access import Scope as Scope  # what a route asks of it
from functions.api.door import errors
from functions.api.door.answers import AnswerTooLarge, fits
from functions.api.door.compression import expanded
from functions.api.door.errors import Codes, Envelope, Row
from functions.api.door.requests import (
    Headers,
    Traffic,
    decode,
    is_buffered,
    raw_path,
    refresh,
    take_parameter,
)
from functions.metrics import ApiMetric, Meter
from headrace.errors import InvalidRequest, Overloaded, PayloadTooLarge

_WRITES = frozenset({"POST", "PUT", "DELETE"})
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Surface:
    """What the door must know about a surface, and the parsing of names in its paths. A request is of the surface that
    owns its path; the errors that the door itself answers are that surface's, too.

    Everything in a path after `prefix` is the name, percent-decoded once; slashes belong to it, also as `%2F`.

    Attributes:
        noun: the word for one of its named things in messages.
        check: returns a name if it is valid; else raises InvalidRequest.
        check_writable: raises InvalidRequest if clients may not write this name.
        allowed, exposed: request headers that pages of other origins may send, and response headers that they may read,
            in addition to the common ones.
        errors: the responses to its own errors.
        codes: what it calls the error codes that all surfaces share, where it differs.
        shape: returns what builds the error responses of a request, if their bodies have another form than usual.
        roots: the beginnings of its paths; by default it owns all, also the `*` of `OPTIONS *`, which has no slash.
        open_paths, open_under: paths that are answered without a key, and not counted; and the beginnings of other such
            paths.
        asking: what follows a name in paths where a POST never writes, because the body is a query.
        asking_at: other paths, whole, where a POST never writes.
        waiting: the same of paths where many requests may wait for long; they count as reads.
        tokened: the same of paths where a POST needs no key, because it has a token of its own, which the route checks.
        keyed, keyed_under: the same of paths where a GET may have its key as the parameter `token`, because the browsers'
            own EventSource sends no headers; and the beginnings of other such paths.
        compresses, compresses_at: the same of paths where bodies may be compressed; and other such paths, whole.
        max_body: the most bytes of a body that writes, if that may be more than the process accepts of all together: so a
            larger one is told apart from too many.
    """

    noun: str
    prefix: str
    check: Callable[[str], str]
    check_writable: Callable[[str], None] = lambda _: None
    allowed: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    errors: tuple[Row, ...] = ()
    codes: Codes = field(default_factory=dict)
    shape: Callable[[Mapping[str, Any]], Envelope] = lambda _: errors.envelope
    roots: tuple[str, ...] = ("",)
    open_paths: frozenset[str] = frozenset()
    open_under: tuple[str, ...] = ()
    asking: tuple[str, ...] = ()
    asking_at: frozenset[str] = frozenset()
    waiting: tuple[str, ...] = ()
    tokened: tuple[str, ...] = ()
    keyed: tuple[str, ...] = ()
    keyed_under: tuple[str, ...] = ()
    compresses: tuple[str, ...] = ()
    compresses_at: frozenset[str] = frozenset()
    max_body: int | None = None

    @cached_property
    def always(self) -> list[tuple[bytes, bytes]]:
        """The headers of every answer."""
        return [*_ALWAYS, (b"access-control-expose-headers", ", ".join((*_EXPOSED, *self.exposed)).encode())]

    @cached_property
    def preflight(self) -> dict[str, str]:
        """The headers of the answer to a browser that asks what a page may send."""
        return {**_PREFLIGHT, "Access-Control-Allow-Headers": ", ".join((*_ALLOWED, *self.allowed))}

    def response_to(self, error: Exception, method: str, scope: Mapping[str, Any] = _NOTHING) -> Response:
        """Returns the response to a request with `method` that ended with `error`."""
        return errors.response_to(error, method, self.errors, self.codes, self.shape(scope))

    def at_shutdown(self, method: str, scope: Mapping[str, Any]) -> Response:
        """Returns the response to a request with `method` that is broken off because the server stops."""
        return errors.at_shutdown(method, self.errors, self.codes, self.shape(scope))

    def _ends(self, scope: Asgi, ends: tuple[str, ...]) -> bool:
        return bool(scope["path"].removeprefix(self.prefix).endswith(ends))

    def is_open(self, scope: Asgi) -> bool:
        """Returns whether the request needs no key, whatever its method."""
        return scope["path"] in self.open_paths or scope["path"].startswith(self.open_under)

    def only_asks(self, scope: Asgi) -> bool:
        """Returns whether the request is a POST that never writes, because its body is a query."""
        return scope["method"] == "POST" and (scope["path"] in self.asking_at or self._ends(scope, self.asking))

    def has_token(self, scope: Asgi) -> bool:
        """Returns whether the request has a token of its own in place of a key."""
        return scope["method"] == "POST" and self._ends(scope, self.tokened)

    def takes_token(self, scope: Asgi) -> bool:
        """Returns whether the request may have its key as a parameter."""
        is_keyed = self._ends(scope, self.keyed) or scope["path"].startswith(self.keyed_under)
        return scope["method"] == "GET" and is_keyed

    def expands(self, scope: Asgi) -> bool:
        """Returns whether the request's body may be compressed."""
        return scope["path"] in self.compresses_at or self._ends(scope, self.compresses)

    def is_write(self, scope: Asgi) -> bool:
        """Returns whether the request counts as a write: a POST, PUT or DELETE that is no query and does not wait for
        long.
        """
        return scope["method"] in _WRITES and not self._ends(scope, self.waiting) and not self.only_asks(scope)

    def check_size(self, size: int) -> None:
        """Raises PayloadTooLarge if a body has more than `max_body` bytes."""
        if self.max_body is not None and size > self.max_body:
            raise PayloadTooLarge(f"body is too large: limit={self.max_body}")

    def after_prefix(self, scope: Mapping[str, Any]) -> bytes:
        """Returns the part of the path after `prefix`, still encoded. Raises InvalidRequest if the path spells the
        prefix another way (with percent escapes).
        """
        raw, prefix = raw_path(scope), self.prefix.encode()
        if not raw.startswith(prefix):
            # The router matched a path that is spelled another way (`/v1/%73tream/…`): one way is enough.
            raise InvalidRequest(f"the path does not begin with {self.prefix}")
        return raw[len(prefix) :]

    def decode_name(self, encoded: bytes) -> str:
        """Percent-decodes a name and returns it. Raises InvalidRequest if the encoding is broken or the name is not
        valid.
        """
        return self.check(decode(encoded, f"{self.noun} name"))

    def name_in(self, scope: Mapping[str, Any], resource: str = "") -> str:
        """Returns the name in a path that ends with `resource`, such as `/_schema`. Raises InvalidRequest if the path
        does not, or the name is not valid.
        """
        encoded, suffix = self.after_prefix(scope), resource.encode()
        if not encoded.endswith(suffix):
            raise InvalidRequest(f"the path does not end with {resource}")
        return self.decode_name(encoded[: len(encoded) - len(suffix)])

    def require(self, request: Request, scope: Scope, name: str) -> None:
        """Checks that the request's key allows `scope` on `name`.

        Raises:
            Forbidden: the key does not allow it.
            InvalidRequest: only the server writes this name, and the request is no read.
        """
        grant_of(request).require(scope, name)
        if scope is not Scope.READ:
            self.check_writable(name)

    def allowed_name(self, request: Request, scope: Scope, resource: str = "") -> str:
        """Returns the name in a path that ends with `resource`, checked as by `name_in`. Raises Forbidden if the
        request's key does not allow `scope` on it, and InvalidRequest as `name_in` and `require` do.
        """
        name = self.name_in(request.scope, resource)
        self.require(request, scope, name)
        return name


_log = logging.getLogger(__name__)

GRANT = "headrace.grant"
SURFACE = "headrace.surface"
METHODS = "GET, HEAD, PUT, POST, DELETE, OPTIONS"

_WITH_EACH_REQUEST = (
    ApiMetric.Failures,
    ApiMetric.StoreFailures,
    ApiMetric.BrokenAnswers,
    ApiMetric.StoreThrottles,
)

_EXPOSED = ("Content-Type", "ETag", "Location", "Retry-After")
_ALLOWED = ("Authorization", "Content-Type", "If-None-Match", "Accept", "Cache-Control", "Last-Event-ID")
_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"cross-origin"),
    (b"access-control-allow-origin", b"*"),
]
_PREFLIGHT = {
    "Access-Control-Allow-Methods": METHODS,
    "Access-Control-Max-Age": "86400",
    "Cache-Control": "no-store",
}


def grant_of(request: Request) -> Grant:
    """Returns the grant that the door stored with a request: what its key allows."""
    grant: Grant = request.scope[GRANT]
    return grant


def key_id_of(request: Request) -> str:
    """Returns the id of a request's key; empty if it needs none."""
    return grant_of(request).key_id if GRANT in request.scope else ""


class Door:
    """The layer around the application that checks keys, handles CORS, turns exceptions into responses, counts requests
    and limits the writes in progress.
    """

    def __init__(
        self,
        app: ASGIApp,
        surfaces: Sequence[Surface],
        access: Access,
        meter: Meter[ApiMetric],
        traffic: Traffic,
        ended: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Creates the layer. A path is of the first of `surfaces` that owns it; the last one owns all paths."""
        self._app = app
        self._surfaces = surfaces
        self._access = access
        self._meter = meter
        self._traffic = traffic
        self._ended = ended

    async def __call__(self, scope: Asgi, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        surface = scope[SURFACE] = next(one for one in self._surfaces if scope["path"].startswith(one.roots))
        try:
            writes = surface.is_write(scope)
            plain = expanded(scope, receive) if surface.expands(scope) else receive
            with self._traffic.request(plain, writes=writes) as counted:
                size = 0

                async def receive_checked() -> Message:
                    nonlocal size
                    message = await counted()
                    size += len(message.get("body", b""))
                    surface.check_size(size)
                    self._check_load()
                    return message

                await self._answer(surface, scope, receive_checked if writes else counted, send, writes)
        finally:
            self._ended(scope[GRANT].key_id if GRANT in scope else "")

    async def _answer(self, surface: Surface, scope: Asgi, receive: Receive, send: Send, writes: bool) -> None:
        method = scope["method"]
        # an error of a POST that only asks is answered as for a GET
        meant = "GET" if surface.only_asks(scope) else method
        is_open = surface.is_open(scope)
        buffered = is_buffered(scope)
        start: Message | None = None  # not sent yet
        started = False
        unknown = False  # the answer says that a write may have happened

        async def send_dressed(message: Message) -> None:
            nonlocal start, started
            is_start = message["type"] == "http.response.start"
            if is_start:
                start = message
                if buffered:  # until it is known whether the answer fits
                    return
            if start is not None:
                headers = start["headers"]
                content_type = AnswerHeaders(raw=headers).get("content-type", "") if buffered else ""
                if buffered and not fits(message.get("body", b""), content_type):
                    raise AnswerTooLarge
                if method != "OPTIONS" and not is_open:
                    self._count(start["status"], unknown)
                dressed = {**start, "headers": [*self._dressed(headers, method, is_open), *surface.always]}
                start, started = None, True
                await send(dressed)
            if not is_start:
                await send({**message, "body": b""} if method == "HEAD" else message)

        try:
            headers = Headers(scope)
            token = take_parameter(scope, "token") if surface.takes_token(scope) else None
            if method == "OPTIONS":  # of everybody: it changes and shows nothing, and the request itself is checked
                await Response(None, 204, surface.preflight)(scope, receive, send_dressed)
                return
            if not is_open and not surface.has_token(scope):
                self._access.check_sender(headers.get("host"), headers.get("origin"))
                await refresh(self._access)
                authorization = headers.get("authorization")
                scope[GRANT] = self._access.grant(
                    f"{SCHEME}{token}" if token and not authorization else authorization
                )
            if writes:
                surface.check_size(headers.content_length or 0)
                self._check_load(headers.content_length or 0)
            await self._app(scope, receive, send_dressed)
        except ClientDisconnect:  # before the end of its body: nothing was done, and nobody waits for an answer
            _log.info("client left before the end of its body: method=%s path=%s", method, scope["path"])
        except asyncio.CancelledError:  # the server ends and waits no longer
            if not started:
                unknown = meant not in errors.SAFE_METHODS
                await surface.at_shutdown(meant, scope)(scope, receive, send_dressed)
            raise
        except Exception as exc:  # the one place where every error becomes an answer
            if started:
                self._meter.add(ApiMetric.BrokenAnswers)
                _log.exception("response broke off: method=%s path=%s", method, scope["path"])
                raise
            answer = surface.response_to(exc, meant, scope)
            unknown = errors.may_have_written(exc, meant)
            await answer(scope, receive, send_dressed)

    def _count(self, status: int, unknown: bool) -> None:
        self._meter.add(ApiMetric.Requests)
        for metric in _WITH_EACH_REQUEST:
            self._meter.add(metric, 0)
        if status >= 400:
            self._meter.add(errors.error_metric(status, may_have_written=unknown))

    def _dressed(self, headers: list[tuple[bytes, bytes]], method: str, is_open: bool) -> list[tuple[bytes, bytes]]:
        if method == "HEAD":
            headers = [(name, value) for name, value in headers if name != b"content-length"]
        if is_open or not self._access.restricted:
            return headers
        return [
            (name, b"private, " + value) if name == b"cache-control" and value != b"no-store" else (name, value)
            for name, value in headers
        ]

    def _check_load(self, announced: int = 0) -> None:
        """Raises Overloaded if the process has more writes in progress, or more bytes of them, than it accepts. This
        request is among those counted; the bytes that it has announced are not, except here.
        """
        load = self._traffic.load()
        if load._replace(write_bytes=load.write_bytes + announced).full:
            raise Overloaded("too many writes are under way")
