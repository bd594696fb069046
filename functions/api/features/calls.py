"""What all routes of feature tables share: what the door must know about them, and one request with its body and its
answer.

Success is always 200, and all else has a JSON body: of a registration `{"error":{"code","path","reason"},
"registry_version"}`, of other requests `{"error":{"code","message"}}`. A method that a path does not have gives
`{"error":{"code","method","path"}}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

import msgspec
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope as Asgi

from functions.access import Grant, Scope
from functions.api.context import Context
from functions.api.door import requests
from functions.api.door.answers import ANSWER_BYTES, AnswerTooLarge
from functions.api.door.compression import answer
from functions.api.door.entry import Surface, grant_of
from functions.api.door.errors import Envelope, Failure, Row, refusal
from functions.api.door.requests import Headers, decode, raw_path
from headrace import decoding
from headrace.errors import InvalidRequest, NotFound, OutcomeUnknown
from headrace.features.errors import (
    Behind,
    CodedRefusal,
    EventNotFound,
    ForceRequired,
    RegistrationError,
    ResetDisabled,
    Stopped,
    Unfolded,
)
from headrace.features.pipeline.text import IDENTIFIER, MAX_NAME_CHARS, show
from headrace.features.values import DEFAULT_NAMESPACE, check_namespace, event_name
from headrace.features.verbs import Features

PREFIX = "/features/"
JSON = "application/json"
AS_OF = "Headrace-As-Of"
REPLAY = "X-Beava-Idempotent-Replay"
MAX_WRITE_BYTES = 4 * 1024 * 1024  # the contract's § 10; a push must not outgrow what one read folds
_ASKING = ([b"get"], [b"batch_get"], [b"search"], [b"ping"])
_CHANGING = ([b"register"], [b"reset"])
_STARTING = ([b"backfill"], [b"snapshot"], [b"training-set"])

P = ParamSpec("P")
T = TypeVar("T")


class ChangeUnknown(OutcomeUnknown):
    """A registration or reset did not end in time, or a store failed: it may be in force, now or soon."""

    code = "wal_unavailable"


class JobUnknown(OutcomeUnknown):
    """A job may have been asked for."""


class NameNotFound(NotFound):
    """Neither a table nor a feature has the name of a legacy read, or the key may not read it."""

    code = "feature_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"no table and no feature has this name: {name[:128]}")


class KeyNotFound(NotFound):
    """The entity of a legacy read has no row."""

    code = "key_not_found"

    def __init__(self) -> None:
        super().__init__("no event has touched this key")


def _retry_after(seconds: int) -> Callable[[Any], dict[str, str]]:
    return lambda error: {"Retry-After": str(getattr(error, "retry_after_s", seconds))}


ERRORS = (
    Row(
        RegistrationError,
        400,
        detail=lambda error: {"path": error.path, "reason": error.reason, "version": error.version},
    ),
    Row(ForceRequired, 409, detail=lambda error: {"diff": error.diff, "version": error.version}),
    Row(
        ChangeUnknown,
        503,
        _retry_after(1),
        message="the change may have been written, and take effect now or soon: register again, which changes nothing then",
    ),
    Row(
        JobUnknown,
        408,
        code="outcome_unknown",
        message="a job may have been asked for: then it runs, and an export that is asked for again is another job; a "
        "back-fill that is under way is the same",
    ),
    Row(ResetDisabled, 403),
    Row(Behind, 503, _retry_after(2)),
    Row(Unfolded, 429, _retry_after(2)),
    Row(Stopped, 503),
    Row(
        OutcomeUnknown,
        408,
        code="outcome_unknown",
        message="the request timed out, and the event may have been written: it counts twice if it is pushed again, unless "
        "it has a dedupe value",
    ),
)
CODES = {"bad_request": "invalid_request", "internal": "internal_error"}


def parts_of(scope: Mapping[str, Any]) -> tuple[bytes | None, list[bytes]]:
    """Returns the namespace in a path (None if it has none) and the parts after it, all still encoded."""
    _, *parts = raw_path(scope).split(b"/")
    if parts[0] == b"features" and len(parts) > 1:
        return parts[1], parts[2:]
    return None, parts


def shape(scope: Mapping[str, Any]) -> Envelope:
    """Returns the function that builds the error responses of a request."""

    def build(failure: Failure) -> Response:
        status, code, message, headers, detail = failure
        if status == 405:
            where = {"method": scope["method"], "path": scope["path"]}
            return refusal(status, {"error": {"code": code, **where}}, headers)
        known = dict(detail or {})
        if not scope or parts_of(scope)[1] != [b"register"]:
            return refusal(status, {"error": failure._replace(detail=known or None).error}, headers)
        version = known.pop("version", 0)
        path = {} if "diff" in known else {"path": known.pop("path", scope["path"])}
        told = {"code": code, **path, "reason": known.pop("reason", message), **known}
        return refusal(status, {"error": told, "registry_version": version}, headers)

    return build


class FeatureSurface(Surface):
    """Feature tables, as the door knows them. A POST that only asks is known by its whole path: `/push/get` pushes an event
    that is called `get`.
    """

    def only_asks(self, scope: Asgi) -> bool:
        """Returns whether the request is a POST that never writes, because its body is a query."""
        return scope["method"] == "POST" and parts_of(scope)[1] in _ASKING

    def at_shutdown(self, method: str, scope: Mapping[str, Any]) -> Response:
        """Returns the response to a request with `method` that is broken off because the server stops."""
        if parts_of(scope)[1] in _CHANGING:
            return self.response_to(ChangeUnknown(), method, scope)
        if parts_of(scope)[1] in _STARTING:
            return self.response_to(JobUnknown(), method, scope)
        return super().at_shutdown(method, scope)


FEATURES = FeatureSurface(
    noun="namespace",
    prefix=PREFIX,
    check=check_namespace,
    allowed=("Content-Encoding",),
    exposed=(AS_OF, REPLAY, "Content-Encoding"),
    errors=ERRORS,
    codes=CODES,
    shape=shape,
    roots=(
        *("/register", "/registry", "/push", "/get", "/batch_get", "/search", "/ping", "/reset", "/ready"),
        *("/backfill", "/snapshot", "/training-set", "/jobs"),
        PREFIX,
    ),
    open_paths=frozenset({"/ready"}),
    compresses=("",),
)


class Call:
    """One request, while it is answered.

    Attributes:
        headers: the request's headers.
        namespace: the namespace of its path.
        features: the verbs of feature tables.
    """

    def __init__(self, context: Context, request: Request, path: str) -> None:
        """Creates the call. `path` is that of the route, without a namespace. Raises InvalidRequest if the request's path
        spells it another way, or names no namespace.
        """
        encoded, self._parts = parts_of(request.scope)
        expected = path.encode().split(b"/")[1:]
        is_alike = len(expected) == len(self._parts) or path.endswith(":path}")
        if not is_alike or any(a != b for a, b in zip(expected, self._parts, strict=False) if b"{" not in a):
            raise InvalidRequest(f"the path is not spelled {path.replace(':path', '')}")
        self.context = context
        self.request = request
        self.headers = Headers(request.scope)
        self.namespace = DEFAULT_NAMESPACE if encoded is None else FEATURES.decode_name(encoded)
        self.features: Features = context.features()

    @property
    def grant(self) -> Grant:
        """What the request's key allows."""
        return grant_of(self.request)

    def require(self, scope: Scope, name: str) -> None:
        """Raises Forbidden if the key does not allow `scope` on a node of the namespace."""
        self.grant.require(scope, event_name(self.namespace, name))

    def require_event(self, scope: Scope, name: str) -> None:
        """Raises Forbidden if the key does not allow `scope` on an event; EventNotFound if no event can have the name, as
        that of the registry's log.
        """
        self.require(scope, name)
        if not IDENTIFIER.fullmatch(name) or len(name) > MAX_NAME_CHARS:
            raise EventNotFound(name[:MAX_NAME_CHARS])

    def may_touch(self, name: str) -> bool:
        """Returns whether the key's prefixes allow a node of the namespace."""
        return is_within(self.grant, self.namespace, name)

    def part(self, number: int) -> str:
        """Returns a part of the path, decoded. Raises InvalidRequest if it is not UTF-8."""
        return decode(self._parts[number], "the path")

    def rest(self, number: int) -> str:
        """Returns the path from a part on, decoded. Raises InvalidRequest if it is not UTF-8."""
        return decode(b"/".join(self._parts[number:]), "the path")

    async def read(self, limit: int = MAX_WRITE_BYTES) -> bytes:
        """Reads and returns the body. Raises PayloadTooLarge if it has more than `limit` bytes."""
        return await requests.read(self.request, limit)

    async def run(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function that blocks, and returns its result."""
        return await requests.run(verb, *args, **kwargs)

    async def reply(self, document: Any, headers: Mapping[str, str] = MappingProxyType({})) -> Response:
        """Returns an answer. Raises AnswerTooLarge if it is larger than the api may answer through any door."""
        body = orjson.dumps(document)
        if len(body) > ANSWER_BYTES:
            raise AnswerTooLarge
        return await answer(self.headers, body, headers=headers)


def is_within(grant: Grant, namespace: str, name: str) -> bool:
    """Returns whether a key's prefixes allow a node of a namespace."""
    return not grant.prefixes or event_name(namespace, name).startswith(grant.prefixes)


def parse(data: bytes) -> Any:
    """Returns a JSON body as a value. Raises CodedRefusal if it is not strict JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        raise CodedRefusal("invalid_json_body", f"the body is not JSON: {exc}") from exc


def convert(body: Any, kind: type[T]) -> T:
    """Returns a parsed JSON body as a value of a type. Raises InvalidRequest if it is none."""
    if not isinstance(body, dict):
        raise InvalidRequest(f"the body must be an object, not {show(body)}")
    try:
        return decoding.from_builtins(body, kind)
    except msgspec.ValidationError as exc:
        raise InvalidRequest(f"the body is not valid: {exc}") from exc
