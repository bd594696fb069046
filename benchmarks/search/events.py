"""The events that searches are measured on: request logs of one day, the same for the same number of them.

20 services, 5,000 paths and 50,000 users of Zipf-like frequency; random request and trace ids; 2.6 % server errors, which
alone carry `why`; messages of 5 to 20 words of a vocabulary of 20,000. About 461 bytes each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import orjson

Array = Any
FIRST_MS = 1_760_000_000_000
DAY_MS = 24 * 3600 * 1000
_SEED = 42
_BLOCK = 50_000
_COMMON = """request completed timeout connection retry failed upstream user payment declined cache miss hit database slow
 query the for to after"""
_SYLLABLES = """ba co di fe gu ha jo ki lu me no pa qui ro su te ul vi wa xe yo zi ner tor ment ing ed al ex pro con in re
 ser lat time out ack fail queue"""
SERVICES = [
    f"{team}-{part}"
    for team in ("api", "auth", "billing", "checkout", "search")
    for part in ("gateway", "worker", "core", "edge")
]
_METHODS = {"GET": 0.62, "POST": 0.25, "PUT": 0.06, "DELETE": 0.04, "PATCH": 0.03}
_STATUSES = {
    200: 0.78, 201: 0.05, 204: 0.03, 301: 0.01, 304: 0.02, 400: 0.015, 401: 0.01, 403: 0.008, 404: 0.04, 409: 0.004,
    429: 0.007, 500: 0.012, 502: 0.006, 503: 0.006, 504: 0.002,
}  # fmt: skip
_ENVIRONMENTS = {"prod": 0.8, "staging": 0.15, "dev": 0.05}
_REGIONS = ("eu-west-1", "us-east-1", "ap-south-1")


class _Choice(NamedTuple):
    """Values with the shares of the probability that lie before and at each."""

    values: list[Any]
    ends: Array

    def draw(self, rng: Any, count: int) -> list[Any]:
        picks = np.searchsorted(self.ends, rng.random(count)).clip(0, len(self.values) - 1)
        return [self.values[pick] for pick in picks.tolist()]


def _weighted(shares: dict[Any, float]) -> _Choice:
    return _Choice(list(shares), np.cumsum(list(shares.values())))


def _zipf(values: list[Any], exponent: float) -> _Choice:
    """Returns a choice that draws the value of rank r with a frequency of r ** -exponent."""
    weights = 1 / np.arange(1, len(values) + 1) ** exponent
    return _Choice(values, np.cumsum(weights / weights.sum()))


def _vocabulary(rng: Any) -> list[str]:
    words = dict.fromkeys(_COMMON.split())
    syllables = _SYLLABLES.split()
    while len(words) < 20_000:
        picks = rng.integers(0, len(syllables), rng.integers(2, 5))
        words["".join(syllables[pick] for pick in picks)] = None
    return list(words)


def blocks(count: int) -> Iterator[list[bytes]]:
    """Yields the events in order of time, as JSON, some ten thousand at a time."""
    rng = np.random.default_rng(_SEED)
    words = _vocabulary(rng)
    paths = [f"/v{rng.integers(1, 4)}/{words[20 + i % 900]}/{words[100 + i * 7 % 4000]}/{i}" for i in range(5000)]
    vocabulary, services, frequent = _zipf(words, 1.0), _zipf(SERVICES, 0.7), _zipf(paths, 0.9)
    users = _zipf([f"user_{i:05d}" for i in range(50_000)], 0.6)
    methods, statuses, environments = _weighted(_METHODS), _weighted(_STATUSES), _weighted(_ENVIRONMENTS)
    for begin in range(0, count, _BLOCK):
        size = min(_BLOCK, count - begin)
        times = FIRST_MS + np.arange(begin, begin + size) * DAY_MS // count + rng.integers(-1500, 1500, size)
        texts = np.datetime_as_string(times.astype("datetime64[ms]"), unit="ms").tolist()
        drawn = [choice.draw(rng, size) for choice in (services, frequent, methods, statuses, users, environments)]
        durations = np.round(np.exp(rng.normal(3.2, 1.1, size)), 2).tolist()
        lengths = rng.integers(5, 21, size)
        spoken = vocabulary.draw(rng, int(lengths.sum()))
        ends = np.cumsum(lengths).tolist()
        requests, traces, spans = (rng.bytes(size * width) for width in (8, 16, 8))
        regions = rng.integers(0, 3, size).tolist()
        block = []
        for i in range(size):
            service, path, method, status, user, environment = (column[i] for column in drawn)
            said = spoken[ends[i - 1] if i else 0 : ends[i]]
            event = {
                "timestamp": texts[i] + "Z",
                "level": "error" if status >= 500 else "warn" if status >= 400 else "info",
                "service": service,
                "environment": environment,
                "region": _REGIONS[regions[i]],
                "requestId": f"req_{requests[8 * i : 8 * i + 8].hex()}",
                "traceId": traces[16 * i : 16 * i + 16].hex(),
                "spanId": spans[8 * i : 8 * i + 8].hex(),
                "method": method,
                "path": path,
                "status": status,
                "duration": durations[i],
                "message": " ".join(said),
                "context": {"userId": user},
            }
            if status >= 500:
                event["why"] = f"upstream {said[0]} unavailable"
            block.append(orjson.dumps(event))
        yield block


def _field(kind: str, pointer: str, *capabilities: str, **more: str) -> dict[str, Any]:
    bindings = [{"version": 1, "jsonPointer": pointer}]
    return {"kind": kind, "bindings": bindings, **dict.fromkeys(capabilities, True), **more}


_NAMES = {name: f"/{name}" for name in ("level", "service", "environment", "requestId", "traceId", "method", "path")}
_NUMBER = ("exact", "column", "exists", "sortable", "aggregatable")
_TEXT = ("exists", "positions")

SCHEMA_UPDATE: dict[str, Any] = {
    "schema": {"type": "object"},
    "routingKey": {"jsonPointer": "/requestId", "required": True},
    "search": {
        "primaryTimestampField": "timestamp",
        "defaultFields": [{"field": "message"}],
        "fields": {
            "timestamp": _field("date", "/timestamp", "column", "exists", "sortable"),
            **{
                name: _field("keyword", pointer, "exact", "prefix", "exists")
                for name, pointer in {**_NAMES, "userId": "/context/userId"}.items()
            },
            "status": _field("integer", "/status", "column", "exists", "sortable"),
            "duration": _field("float", "/duration", "column", "exists", "sortable", "aggregatable"),
            "message": _field("text", "/message", *_TEXT, analyzer="unicode_word_v1"),
            "why": _field("text", "/why", *_TEXT, analyzer="unicode_word_v1"),
        },
        "rollups": {
            "requests": {
                "dimensions": ["service"],
                "intervals": ["1m", "1h"],
                "measures": {"latency": {"kind": "summary", "field": "duration", "histogram": "log2_v1"}},
            }
        },
    },
}
