"""Servers in this process, on stores in memory: what a push asks, since a request takes a millisecond there."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import replace

import httpx
from msgspec.structs import replace as with_fields

from functions.access import parse
from functions.api.context import assemble
from headrace.memory import memory_stores
from headrace.settings import Settings
from tests.conformance.topics.client import Server
from tests.unit.api import asgi

MEMORY = "memory"  # the name of this configuration: what most tests are asked in at a push
URL = "http://localhost"


class InTurn(httpx.BaseTransport):
    """Sends each request to the next of several applications, as a load balancer sends them to processes."""

    def __init__(self, environment: Mapping[str, str], processes: int) -> None:
        """Creates applications that share their stores, and nothing else, with the settings of an environment. Of several
        the last one forgets everything after each request.
        """
        settings = Settings.from_environment(environment)
        stores, access = memory_stores(settings), parse(settings.api_keys, "*")
        servers = []
        for number in range(processes):
            own = with_fields(settings, cold=0 < number == processes - 1)
            servers.append(asgi.Server(settings=own, parts=assemble(replace(stores, settings=own), access)))
        self._servers = itertools.cycle(servers)
        self._lock = threading.Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            server = next(self._servers)
        headers = {name.decode("latin-1"): value for name, value in request.headers.raw}
        answer = server(request.method, request.url.raw_path, headers, request.read())
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)


def client(environment: Mapping[str, str], processes: int) -> httpx.Client:
    """Returns a client of processes with these settings."""
    return httpx.Client(transport=InTurn(environment, processes))


def serving(environment: Mapping[str, str], processes: int, key: str | None = None) -> Server:
    """Returns processes with these settings, asked with a key."""
    return Server(URL, client(environment, processes), key)
