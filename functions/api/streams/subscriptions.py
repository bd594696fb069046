"""The routes of subscriptions, `/v1/stream/__ds/…` (protocol § 6 and 7). No stream has a name that begins so.

Calls that a wake's token allows (`callback`, `ack`, `release`) need no key. All others need a key that may read what the
pattern can match and each stream that is named, and write the wake stream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.api.context import Context
from functions.api.door import requests
from functions.api.door.entry import Surface, grant_of
from functions.api.door.errors import Row
from functions.api.door.requests import Headers, decode, run
from functions.api.door.routes import serve
from functions.api.streams.jwks import JWKS_PATH
from functions.api.streams.records import NO_STORE, PREFIX
from functions.subscribers import require
from headrace import decoding, instants
from headrace.limits import CONTROL_CHARACTER
from headrace.log.requests import JSON
from headrace.streams.values import check_name, check_writable
from headrace.subscriptions import patterns
from headrace.subscriptions.addresses import UrlRefused, check_url
from headrace.subscriptions.errors import (
    AlreadyClaimed,
    InvalidSubscription,
    NoSubscription,
    TokenInvalid,
    WebhookUrlRejected,
)
from headrace.subscriptions.values import MAX_ID_BYTES, MAX_LINKS, PULL, WEBHOOK, Config
from headrace.subscriptions.verbs import Ack, Allow, Claimed, Shown

ROOT = f"{PREFIX}__ds/"
MAX_BODY_BYTES = 1024 * 1024
_MAX_TEXT_BYTES = 1024
_MAX_CONFIG_BYTES = 256 * 1024  # it is a part of one item, of 400 KB at most
_LEASE_MS = range(1_000, 600_001)
_METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH")

SUBSCRIPTIONS = Surface(
    noun="subscription",
    prefix=ROOT,
    check=str,
    errors=(Row(TokenInvalid, 401, lambda _: {"WWW-Authenticate": "Bearer"}),),
    codes={"bad_request": InvalidSubscription.code, "not_found": NoSubscription.code},
    roots=(ROOT, ROOT.rstrip("/")),
    open_paths=frozenset({JWKS_PATH}),
    tokened=("/callback", "/ack", "/release"),
    max_body=MAX_BODY_BYTES,
)

B = TypeVar("B")


class _Webhook(msgspec.Struct):
    url: str


class _Asked(msgspec.Struct):
    type: Literal["webhook", "pull-wake"]
    pattern: str = ""
    streams: list[str] = []
    webhook: _Webhook | None = None
    wake_stream: str | None = None
    lease_ttl_ms: int = 30_000
    description: str | None = None
    start_offset: Literal["-1", "now"] = "now"


class _Streams(msgspec.Struct):
    streams: list[str]


class _Worker(msgspec.Struct):
    worker: str


class _StreamAck(msgspec.Struct):
    offset: str
    stream: str | None = None
    path: str | None = None


class _Wake(msgspec.Struct):
    wake_id: str
    generation: int


class _Acked(_Wake):
    acks: list[_StreamAck] = []
    done: bool = False


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the routes of subscriptions."""
    calls = _Calls(context)

    async def subscriptions(request: Request) -> Response:
        route, arguments = calls.find(SUBSCRIPTIONS.after_prefix(request.scope))
        handler = route.get(request.method)
        if handler is None:
            allowed = ", ".join(sorted({*route, "OPTIONS"}))
            return Response(
                "method not allowed", 405, {"Content-Type": "text/plain; charset=utf-8", "Allow": allowed}
            )
        return await handler(request, *arguments)

    for path, methods in calls.described().items():
        serve(app, f"{ROOT}subscriptions/{{id}}{path}", *methods)(subscriptions)
    serve(app, ROOT + "{rest:path}", *_METHODS, is_described=False)(
        subscriptions
    )  # ids with a slash, and other methods


class _Calls:
    """The handlers, by what the path says."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._of_one = {"PUT": self._put, "GET": self._show, "DELETE": self._delete}
        self._actions = {
            "streams": {"POST": self._add},
            "claim": {"POST": self._claim},
            "callback": {"POST": self._callback},
            "ack": {"POST": self._ack},
            "release": {"POST": self._release},
        }

    def described(self) -> dict[str, Iterable[str]]:
        """Returns the methods of each path after an id, as the OpenAPI document names it."""
        actions = {f"/{action}": handlers for action, handlers in self._actions.items()}
        return {"": self._of_one, **actions, "/streams/{path:path}": ("DELETE",)}

    def find(self, path: bytes) -> tuple[Mapping[str, Callable[..., Awaitable[Response]]], Sequence[str]]:
        """Returns the handlers of a path by method, and the arguments that the path holds.

        Raises:
            InvalidRequest: the path has a broken escape, or an id that can't be.
            NoSubscription: nothing has this path.
        """
        kind, _, rest = path.partition(b"/")
        encoded, _, rest = rest.partition(b"/")
        if kind != b"subscriptions" or not encoded:
            raise NoSubscription(decode(path, "path"))
        id_ = _checked_id(decode(encoded, "subscription id"))
        action, slash, more = decode(rest, "path").partition("/")
        if not action and not slash:
            return self._of_one, (id_,)
        if action == "streams" and slash:
            return {"DELETE": self._remove}, (id_, _path(more))
        if slash or action not in self._actions:
            raise NoSubscription(id_)
        return self._actions[action], (id_,)

    # Subscriptions.

    async def _put(self, request: Request, id_: str) -> Response:
        asked = await _body(request, _Asked)
        config = self._config(asked)
        from_start, key_id = asked.start_offset == "-1", grant_of(request).key_id
        put = self._context.subscriptions().put
        shown = await run(put, id_, config, _allow(request), key_id, from_start=from_start)
        return _json(await run(self._document, shown), 201 if shown.is_new else 200)

    async def _show(self, request: Request, id_: str) -> Response:
        shown = await run(self._context.subscriptions().get, id_, _allow(request))
        return _json(await run(self._document, shown))

    async def _delete(self, request: Request, id_: str) -> Response:
        await run(self._context.subscriptions().delete, id_, _allow(request))
        return _nothing()

    async def _add(self, request: Request, id_: str) -> Response:
        paths = _paths((await _body(request, _Streams)).streams)
        if not paths:
            raise InvalidSubscription("no streams are named")
        await run(self._context.subscriptions().add, id_, paths, _allow(request))
        return _nothing()

    async def _remove(self, request: Request, id_: str, path: str) -> Response:
        await run(self._context.subscriptions().remove, id_, path, _allow(request))
        return _nothing()

    def _config(self, asked: _Asked) -> Config:
        """Returns what a client asks for, checked and in its canonical form."""
        streams, pattern = _paths(asked.streams), asked.pattern.strip("/")
        if not pattern and not streams:
            raise InvalidSubscription("a subscription needs a pattern or streams")
        if asked.lease_ttl_ms not in _LEASE_MS:
            raise InvalidSubscription(f"lease_ttl_ms is not from {_LEASE_MS[0]} to {_LEASE_MS[-1]}")
        try:
            patterns.split(_bounded(pattern, "pattern") or "*")
        except ValueError as exc:
            raise InvalidSubscription(f"pattern is malformed: {exc}") from exc
        _bounded(asked.description or "", "description")
        config = Config(
            asked.type,
            pattern,
            streams,
            lease_ttl_ms=asked.lease_ttl_ms,
            description=asked.description,
        )
        size = len(msgspec.json.encode(config))
        if size > _MAX_CONFIG_BYTES:
            raise InvalidSubscription(f"the names are too long together: limit={_MAX_CONFIG_BYTES} received={size}")
        if asked.type == WEBHOOK:
            return msgspec.structs.replace(config, url=self._checked_url(asked.webhook))
        wake_stream = _path(asked.wake_stream or "")
        check_writable(wake_stream)
        if wake_stream in streams:
            raise InvalidSubscription("a subscription cannot follow its own wake stream")
        return msgspec.structs.replace(config, wake_stream=wake_stream)

    def _checked_url(self, webhook: _Webhook | None) -> str:
        settings = self._context.settings
        if webhook is None or not webhook.url:
            raise InvalidSubscription("a webhook subscription needs webhook.url")
        if not settings.base_url:
            raise InvalidSubscription("webhooks are off: this server does not know its own URL (HEADRACE_BASE_URL)")
        try:
            check_url(webhook.url, allow_loopback=settings.webhook_loopback)
        except UrlRefused as exc:
            raise WebhookUrlRejected(str(exc)) from exc
        return webhook.url

    def _document(self, shown: Shown) -> dict[str, Any]:
        sub, config = shown.subscription, shown.subscription.config
        document: dict[str, Any] = {
            "id": sub.id,
            "subscription_id": sub.id,
            "type": config.type,
            "pattern": config.pattern or None,
            "streams": [
                {"path": link.path, "link_type": link.link_type, "acked_offset": link.acked_offset}
                for link in shown.links
                if link.is_explicit or link.log_id
            ],
            "wake_stream": config.wake_stream or None,
            "lease_ttl_ms": config.lease_ttl_ms,
            "created_at": instants.text_of(sub.created_ms),
            "status": sub.status,
            "description": config.description,
        }
        if config.type == WEBHOOK:
            kid = self._context.signing.keys().current(self._context.clock.now_ms() // 1000).kid
            jwks_url = f"{self._context.settings.base_url.rstrip('/')}{JWKS_PATH}"
            signing = {"alg": "ed25519", "kid": kid, "jwks_url": jwks_url}
            document["webhook"] = {"url": config.url, "signing": signing}
        if sub.wake is not None and sub.wake.refused:
            code, message = sub.wake.refused
            document["last_error"] = {"code": code, "message": message}
        return document

    # Workers and receivers.

    async def _claim(self, request: Request, id_: str) -> Response:
        worker = _bounded((await _body(request, _Worker)).worker, "worker")
        if not worker:
            raise InvalidSubscription("worker is empty")
        try:
            claimed = await run(self._context.subscriptions().claim, id_, worker, _allow(request))
        except AlreadyClaimed as exc:
            told = {"code": exc.code, "current_holder": exc.holder, "generation": exc.generation}
            return _json({"error": told}, 409)
        return _json(_claim_document(claimed))

    async def _callback(self, request: Request, id_: str) -> Response:
        return await self._acknowledge(request, id_, WEBHOOK)

    async def _ack(self, request: Request, id_: str) -> Response:
        return await self._acknowledge(request, id_, PULL)

    async def _acknowledge(self, request: Request, id_: str, type_: str) -> Response:
        token, body = _token(request), await _body(request, _Acked)
        acks = [(_path(one.stream or one.path or ""), one.offset) for one in body.acks]
        ack = Ack(body.wake_id, body.generation, acks, body.done)
        is_next = await run(self._context.subscriptions().ack, id_, type_, token, ack)
        return _json({"ok": True, "next_wake": is_next})

    async def _release(self, request: Request, id_: str) -> Response:
        token, body = _token(request), await _body(request, _Wake)
        await run(self._context.subscriptions().release, id_, token, body.wake_id, body.generation)
        return _nothing()


def _claim_document(claimed: Claimed) -> dict[str, Any]:
    return {
        "wake_id": claimed.wake_id,
        "generation": claimed.subscription.generation,
        "token": claimed.token,
        "lease_ttl_ms": claimed.subscription.config.lease_ttl_ms,
        "streams": claimed.streams,
    }


def _allow(request: Request) -> Allow:
    """Returns what checks that a request's key may use a subscription. Raises Forbidden."""
    return partial(require, grant_of(request))


def _token(request: Request) -> str:
    """Returns the wake token of a request. Raises TokenInvalid if it has none."""
    scheme, _, token = (Headers(request.scope).get("authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise TokenInvalid
    return token


async def _body(request: Request, kind: type[B]) -> B:
    data = await requests.read(request, MAX_BODY_BYTES)
    try:
        return decoding.from_json(data, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidSubscription(f"body is malformed: {exc}") from exc


def _path(text: str) -> str:
    """Returns the name of a stream in its canonical form: without outer slashes."""
    return check_name(text.strip("/"))


def _paths(texts: Sequence[str]) -> tuple[str, ...]:
    if len(texts) > MAX_LINKS:
        raise InvalidSubscription(f"too many streams are named: limit={MAX_LINKS} received={len(texts)}")
    return tuple(sorted(set(map(_path, texts))))


def _bounded(text: str, what: str, limit: int = _MAX_TEXT_BYTES) -> str:
    if len(text.encode(errors="replace")) > limit or CONTROL_CHARACTER.search(text):
        raise InvalidSubscription(f"{what} is longer than {limit} bytes, or has a control character")
    return text


def _checked_id(text: str) -> str:
    return _bounded(text, "subscription id", MAX_ID_BYTES)


def _json(document: dict[str, Any], status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status, {"Content-Type": JSON, "Cache-Control": NO_STORE})


def _nothing() -> Response:
    return Response(None, 204, {"Cache-Control": NO_STORE})
