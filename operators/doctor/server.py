"""Asks a server over HTTP how it is. Each question is asked once: a doctor does not retry."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import httpx

from operators.doctor.facts import ServerFacts

PINGS = 5
TIMEOUT_S = 15.0
VERSION_HEADER = "headrace-version"
_LOCAL = ("127.0.0.1", "::1", "localhost")


def is_local(url: str) -> bool:
    """The address is one of this machine."""
    return urlsplit(url).hostname in _LOCAL


def look(
    url: str,
    key: str | None,
    *,
    transport: httpx.BaseTransport | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> ServerFacts:
    """Facts about the server at `url`; an error is a fact, too."""
    local = is_local(url)
    try:
        with httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=not local, transport=transport) as http:
            latencies, version = [], ""
            for _ in range(PINGS):
                began = monotonic()
                answer = http.get("/health")
                latencies.append((monotonic() - began) * 1000)
                if answer.status_code != 200:
                    return ServerFacts(error=f"GET /health: status {answer.status_code}", is_local=local)
                version = answer.headers.get(VERSION_HEADER, "")
            bearer = {"authorization": f"Bearer {key.strip()}"} if key else None
            return ServerFacts(
                latencies_ms=tuple(latencies),
                version=version,
                status_without_key=_status(http, "/v1/streams?limit=1"),
                status_with_key=_status(http, "/v1/streams?limit=1", bearer) if bearer else None,
                status_as_admin=_status(http, "/v1/server/_details", bearer) if bearer else None,
                is_local=local,
            )
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeEncodeError) as exc:
        return ServerFacts(error=str(exc) or type(exc).__name__, is_local=local)


def _status(http: httpx.Client, path: str, headers: Mapping[str, str] | None = None) -> int:
    return http.get(path, headers=headers).status_code
