"""What attributes of telemetry must not be stored: secrets, statements of databases, the queries of URLs, and what is more
than the limits allow.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from headrace.errors import InvalidRequest
from headrace.json import jsontext

REDACTED = "[REDACTED]"
REDACT_KEYS = (
    *("password", "token", "secret", "authorization", "cookie"),
    *("apikey", "api_key", "set-cookie", "x-api-key"),
)
REQUEST_ID_ATTRIBUTES = (
    *("request.id", "http.request_id"),
    *("http.request.header.x_request_id", "http.request.header.x-request-id"),
    *("http.request.header.x_correlation_id", "http.request.header.x-correlation-id", "correlation.id"),
)
STATEMENTS = ("db.statement", "db.query.text")
# maximum depth of an attribute's value: those of events are four levels deep, and stored records must be readable again
MAX_DEPTH = jsontext.MAX_DEPTH - 5
# Of the paths that a record says were redacted: without a limit, a long key above many secrets is repeated for each.
MAX_PATHS, MAX_PATH_CHARS = 1000, 1024

_REMEMBERED_CHARS = 256  # of keys
_SEPARATORS = re.compile(r"[._-]+")
_URLS = ("url.full", "http.url", "http.target")
_QUERIES = ("url.query",)


class Limits(msgspec.Struct, frozen=True, rename="camel"):
    """What one span may have; more is cut off, and counted under `dropped`."""

    max_attribute_value_bytes: int = 8192
    max_attributes_per_span: int = 256
    max_events_per_span: int = 128
    max_links_per_span: int = 128
    max_statement_bytes: int = 4096


class Store(msgspec.Struct, frozen=True, rename="camel"):
    """Which parts of a span are stored as they came, in addition to the fields that are derived from them."""

    raw_resource_attributes: bool = True
    raw_span_attributes: bool = True
    raw_events: bool = True
    raw_links: bool = True


class Policy(msgspec.Struct, frozen=True):
    """How spans are normalised.

    Attributes:
        secrets: keys of attributes that are redacted, in lower case and without separators.
        request_id_attributes: where the request id may be; the first that has one counts.
        keeps_statements: whether statements of databases are stored.
        keeps_queries: whether URLs keep their query and fragment.
    """

    secrets: frozenset[str]
    request_id_attributes: tuple[str, ...] = REQUEST_ID_ATTRIBUTES
    limits: Limits = Limits()
    store: Store = Store()
    keeps_statements: bool = False
    keeps_queries: bool = False


def secrets(*names: str) -> frozenset[str]:
    """Returns the built-in keys to redact, and others, in the form in which `is_secret` compares them."""
    return frozenset(_SEPARATORS.sub("", name.lower()) for name in (*REDACT_KEYS, *names))


def is_secret(key: str, keys: frozenset[str]) -> bool:
    """Returns whether an attribute is redacted: its key, or the end of it from a separator on, is one of `keys`. So
    `authorization` redacts `http.request.header.authorization`, and `x-api-key` redacts `rpc.metadata.x_api_key`.
    """
    return (_is_secret if len(key) <= _REMEMBERED_CHARS else _is_secret.__wrapped__)(key, keys)


@lru_cache(8192)
def _is_secret(key: str, keys: frozenset[str]) -> bool:
    end, longest = "", max(map(len, keys))
    for part in reversed(_SEPARATORS.split(key.lower())):
        end = part + end
        if end in keys:
            return True
        if len(end) > longest:
            return False
    return False


def path_of(place: str, key: str | int) -> str:
    """Returns the path of what is under a key, or at an index, of the value at `place`; of a long one its beginning."""
    return (f"{place}.{key}" if place else f"{key}")[:MAX_PATH_CHARS]


def note_path(paths: list[str], path: str) -> None:
    """Adds the path of what was redacted, unless there are `MAX_PATHS` already."""
    if len(paths) < MAX_PATHS:
        paths.append(path)


class Cleaner:
    """The removal of what must not be stored from attributes, with the paths of what it redacted first."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.redacted: list[str] = []

    def attributes(self, given: Any, place: str) -> tuple[dict[str, Any], int]:
        """Returns the attributes that are stored, and how many were left out because there are too many."""
        if not isinstance(given, dict):
            return {}, 0
        most = self.policy.limits.max_attributes_per_span
        return self._clean(dict(islice(given.items(), most)), place, 0), max(0, len(given) - most)

    def _clean(self, given: dict[str, Any], place: str, depth: int) -> dict[str, Any]:
        clean: dict[str, Any] = {}
        for key, value in given.items():
            path = path_of(place, key)
            if value is not None and self._is_hidden(key):
                note_path(self.redacted, path)
                clean[key] = REDACTED
            else:
                clean[key] = self._value(key, value, path, depth + 1)
        return clean

    def _is_hidden(self, key: str) -> bool:
        policy = self.policy
        if key in STATEMENTS:
            return not policy.keeps_statements
        return (key in _QUERIES and not policy.keeps_queries) or is_secret(key, policy.secrets)

    def _value(self, key: str, value: Any, path: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise InvalidRequest(f"otel-traces record is nested too deeply: limit={MAX_DEPTH}")
        if isinstance(value, str):
            if key in _URLS and not self.policy.keeps_queries:
                value = without_query(value)
            return cut(value, self.policy.limits.max_attribute_value_bytes)
        if isinstance(value, list):
            return [self._value(key, item, path_of(path, index), depth + 1) for index, item in enumerate(value)]
        return self._clean(value, path, depth) if isinstance(value, dict) else value


def cut(text: str, most_bytes: int) -> str:
    """Returns as much of a text as `most_bytes` of UTF-8 hold."""
    if len(text) * 4 <= most_bytes:
        return text
    return text.encode()[:most_bytes].decode(errors="ignore")


def without_query(url: str) -> str:
    """Returns a URL without its query and fragment."""
    return url.split("#", 1)[0].split("?", 1)[0]
