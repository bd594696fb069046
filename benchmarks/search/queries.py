"""The questions that are measured, as HTTP requests. Their parameters rotate: no answer is that of the time before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.search.events import DAY_MS, FIRST_MS, SERVICES

SIZE = 100
_HOUR_MS = 3_600_000
_WORDS = ("timeout", "payment", "declined", "cache", "miss", "database", "slow", "query", "connection", "retry")
_PHRASES = ("upstream user", "request completed", "timeout connection", "completed request", "request timeout")


class Request(NamedTuple):
    """A resource of the stream, and its JSON body (a POST) or its query (a GET)."""

    resource: str
    body: dict[str, Any] | None = None
    query: dict[str, str] | None = None


class Search(NamedTuple):
    """`q` with `{parameters}`, and the order of the hits."""

    name: str
    q: str
    sort: str = "offset:desc"

    def request(self, parameters: dict[str, str]) -> Request:
        """Returns the request with parameters in place."""
        return Request("_search", {"q": self.q.format(**parameters), "size": SIZE, "sort": [self.sort]})


class Aggregate(NamedTuple):
    """All services, over some hours before the end of the day."""

    name: str
    interval: str
    hours: int

    def request(self, parameters: dict[str, str]) -> Request:
        """Windows of less than a day move back by an hour with each turn."""
        end = FIRST_MS + DAY_MS - FIRST_MS % _HOUR_MS
        if self.hours < 24:
            end -= int(parameters["turn"]) % 12 * _HOUR_MS
        start = end - self.hours * _HOUR_MS
        window = {"from": start, "to": end, "interval": self.interval}
        return Request("_aggregate", {"rollup": "requests", "group_by": ["service"], **window})


class RoutingKeys(NamedTuple):
    """A page of keys."""

    name: str

    def request(self, parameters: dict[str, str]) -> Request:
        """Returns the request for a page of keys, which begins after the turn's `request`."""
        return Request("_routing_keys", query={"limit": str(SIZE), "after": parameters["request"]})


Question = Search | Aggregate | RoutingKeys

QUESTIONS: tuple[Question, ...] = (
    Search("exact requestId", "requestId:{request}"),
    Search("service AND status>=500, newest", "service:{service} status:>=500"),
    Search("prefix requestId", "requestId:{request_start}*"),
    Search("prefix path, newest", "path:{path_start}*"),
    Search("text, common word, newest", "message:{word}"),
    Search("text, rare word, newest", "message:{rare}"),
    Search("text AND, newest", "message:{word} message:{other_word}"),
    Search("phrase, newest", 'message:"{phrase}"'),
    Search("(a OR b) AND NOT c AND d", "(service:{service} OR service:{other_service}) NOT level:info status:404"),
    Search("level:info, newest", "level:info"),
    Search("has:why, newest", "has:why"),
    Search("sort duration, level:error", "level:error", "duration:desc"),
    Search("sort duration, all", "has:duration", "duration:desc"),
    RoutingKeys("routing keys, page of 100"),
    Aggregate("aggregate 1m x service, 1 h", "1m", 1),
    Aggregate("aggregate 1m x service, 6 h", "1m", 6),
    Aggregate("aggregate 1m x service, 24 h", "1m", 24),
    Aggregate("aggregate 1h x service, 24 h", "1h", 24),
)


def parameters(samples: Sequence[dict[str, Any]], turn: int) -> dict[str, str]:
    """Returns the parameters of one turn, taken from events that exist, so that there are answers."""
    event = samples[turn % len(samples)]
    return {
        "turn": str(turn),
        "request": event["requestId"],
        "request_start": event["requestId"][:8],
        "path_start": event["path"][:10],
        "service": SERVICES[turn % len(SERVICES)],
        "other_service": SERVICES[(turn + 3) % len(SERVICES)],
        "word": _WORDS[turn % len(_WORDS)],
        "other_word": _WORDS[(turn + 1) % len(_WORDS)],
        "rare": max(event["message"].split(), key=len),
        "phrase": _PHRASES[turn % len(_PHRASES)],
    }
