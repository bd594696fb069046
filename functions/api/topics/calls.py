"""What all routes of topics share: what the door must know about them, and one request with its body and its answer.

Bodies are decoded into structs of msgspec, which are strict about types and ignore what they don't know. An answer is a
JSON object, to which the member `performance` is added (§ 0.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec, TypeVar

import msgspec
import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from functions.access import Grant, Scope
from functions.api.context import Context
from functions.api.door import requests
from functions.api.door.compression import answer
from functions.api.door.entry import Surface, grant_of
from functions.api.door.errors import Row
from functions.api.door.requests import Headers, query_of, run
from headrace import decoding
from headrace.errors import InvalidRequest, NotFound, OutcomeUnknown, Overloaded
from headrace.queues.verbs import Queues
from headrace.routers.errors import RouterNotFound
from headrace.routers.verbs import Routers
from headrace.topics.errors import TopicFull
from headrace.topics.values import MAX_BODY_BYTES, check_name
from headrace.watch.errors import WatchNotFound

PREFIX = "/v0/topics/"
JSON = "application/json"
MAX_REQUEST_BYTES = 1024 * 1024  # of a body that holds no records
_ALLOWED = ("Idempotency-Key", "Content-Encoding")

ERRORS = (
    Row(TopicFull, 422),
    Row(RouterNotFound, 404),
    Row(WatchNotFound, 404, code="not_found"),
    Row(NotFound, 404, code="topic_not_found"),
    Row(
        OutcomeUnknown,
        408,
        code="outcome_unknown",
        message="the request timed out and may have been applied; repeat a write with the same idempotency_key",
    ),
    Row(
        Overloaded,
        429,
        lambda error: {"Retry-After": str(error.retry_after_s)},
        code="throttled",
        detail=lambda error: getattr(error, "detail", None) or {"retry_after_ms": error.retry_after_s * 1000},
    ),
)
# What the contract calls the errors that all surfaces share (§ 0.6).
CODES = {
    "bad_request": "invalid_request",
    "unavailable": "not_ready",
    "stopping": "shutting_down",
}

TOPICS = Surface(
    noun="topic",
    prefix=PREFIX,
    check=check_name,
    allowed=_ALLOWED,
    exposed=("Content-Encoding",),
    errors=ERRORS,
    codes=CODES,
    roots=("/v0/", "/healthz", "/readyz"),
    open_paths=frozenset({"/v0/health", "/healthz", "/v0/ready", "/readyz"}),
    asking=("/diff", "/search", "/aggregate", "/timings"),
    keyed=("/work",),
    keyed_under=("/v0/watch/",),
    compresses=("",),
    max_body=MAX_BODY_BYTES,
)

B = TypeVar("B", bound=msgspec.Struct)
P = ParamSpec("P")
T = TypeVar("T")


class Call:
    """One request, while it is answered.

    Attributes:
        logs: the verbs of topics and queues.
        headers: the request's headers.
        verb_ms: how long the verbs took that `run` called.
    """

    def __init__(self, context: Context, request: Request) -> None:
        self.context = context
        self.request = request
        self.logs: Queues = context.topics()
        self.headers = Headers(request.scope)
        self.verb_ms = 0.0
        self._began = context.clock.monotonic()

    @property
    def routers(self) -> Routers:
        """The verbs of routers."""
        return self.context.routers()

    @property
    def grant(self) -> Grant:
        """What the request's key allows."""
        return grant_of(self.request)

    def name(self, scope: Scope, resource: str = "") -> str:
        """Returns the name in a path that ends with `resource`. Raises Forbidden if the key does not allow `scope`
        on it.
        """
        return TOPICS.allowed_name(self.request, scope, resource)

    def query(self, *known: str) -> Query:
        """Returns those parameters of the query string that are `known`. Raises InvalidRequest if one is repeated."""
        return Query(query_of(self.request.scope, frozenset(known)))

    async def body(self, kind: type[B]) -> B:
        """Reads the body as `read` does, and returns it decoded.

        Raises:
            InvalidRequest: the body is not JSON, or not such an object.
        """
        return decode(await self.read(), kind)

    async def read(self, limit: int = MAX_REQUEST_BYTES) -> bytes:
        """Reads and returns the body.

        Raises:
            HTTPException: there is a body that is not declared as JSON (415).
            PayloadTooLarge: it has more than `limit` bytes.
        """
        is_json = self.headers.content_type == JSON
        if not is_json and self.headers.content_length:
            raise _not_json()
        data = await requests.read(self.request, limit)
        if data and not is_json:
            raise _not_json()
        return data

    async def run(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a verb, which blocks, and returns its result. Its time is added to `verb_ms`."""
        with self.timed():
            return await run(verb, *args, **kwargs)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Adds the time of a block to `verb_ms`."""
        began = self.context.clock.monotonic()
        try:
            yield
        finally:
            self.verb_ms += (self.context.clock.monotonic() - began) * 1000

    async def reply(
        self,
        document: dict[str, Any],
        spliced: bytes = b"",
        status: int = 200,
        measured: Mapping[str, float] = MappingProxyType({}),
        tries: int = 0,
    ) -> Response:
        """Returns an answer.

        Args:
            document: its members.
            spliced: more members, as JSON text that begins with a comma.
            measured: more members of `performance`.
            tries: how many commits the request took; 0 if it made none.
        """
        body = b"".join((orjson.dumps(document)[:-1], spliced, b',"performance":', self._performance(measured), b"}"))
        response = await self.send(body, status)
        if tries:
            response.headers["Server-Timing"] = f'commit;desc="tries {tries}"'
        return response

    async def send(self, body: bytes, status: int = 200, content_type: str = JSON) -> Response:
        """Returns an answer with this body, compressed if the client wants that."""
        return await answer(self.headers, body, status, content_type)

    def _performance(self, measured: Mapping[str, float]) -> bytes:
        total = {"server_total_ms": (self.context.clock.monotonic() - self._began) * 1000, **measured}
        return orjson.dumps({name: round(value, 3) for name, value in total.items()})


def committed(context: Context, verb_ms: float, records: int, size: int, *, durable: bool) -> dict[str, float]:
    """Counts a commit of so many records and bytes, and returns what `performance` says of it: each one is durable, but
    only the class `fsync` promises it (§ 0.10).
    """
    context.commits.committed(records, size, verb_ms, durable=durable)
    return {"wal_append_ms": verb_ms, "fsync_ms": verb_ms if durable else 0.0}


def decode(data: bytes, kind: type[B]) -> B:
    """Decodes a JSON text into a struct; an empty text means an empty object.

    Raises:
        InvalidRequest: the text is not strict JSON, or a member is missing or of another type.
    """
    data = data or b"{}"
    try:
        requests.parsed(data)
        return decoding.from_json(data, kind)
    except (orjson.JSONDecodeError, msgspec.DecodeError, RecursionError) as exc:
        raise InvalidRequest(f"the body is not valid: {exc}") from exc


def _not_json() -> HTTPException:
    return HTTPException(415, f"content-type must be {JSON}")


class Query(NamedTuple):
    """The parameters of a request."""

    given: dict[str, str]

    def text(self, name: str) -> str:
        """Returns a parameter; empty if it is missing."""
        return self.given.get(name, "")

    def flag(self, name: str, default: bool) -> bool:
        """Returns a parameter that is `true` or `false`. Raises InvalidRequest if it is neither."""
        text = self.given.get(name)
        if text is None:
            return default
        if text not in ("true", "false"):
            raise InvalidRequest(f"{name} must be true or false")
        return text == "true"

    def number(self, name: str, default: int) -> int:
        """Returns a parameter that is a whole number from 0 on. Raises InvalidRequest if it is not."""
        text = self.given.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS:
            raise InvalidRequest(f"{name} must be a whole number from 0 on")
        return int(text)


_DIGITS = 18
