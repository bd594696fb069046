"""How many modules a request runs through: each is a page that a reader of the path has to open."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.seal import seal
from headrace.settings import Settings
from tests.unit.api.asgi import JSON, Server
from tests.unit.search.samples import SEARCH

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(str(ROOT / folder) + "/" for folder in ("headrace", "functions"))
PLAIN, S = "/v1/stream/plain", "/v1/stream/s"
SCHEMA = {"schema": {"type": "object"}, "search": SEARCH}
RECORD = b'{"at":"2026-01-01T00:00:01Z","service":"auth"}'
# Lower them when a path gets shorter. The aim of issue 11 is 15 for an append and 30 for a search; keys are a module of
# their own since functions without a door check them, too.
MOST = {
    "append": 17,  # this one and all others: one since we choose the route, which Starlette did in 100 µs
    "search": 34,  # one since a search may have snippets
    "read": 23,
    "seal": 23,  # two since a floor can pass whole segments
    "topic append": 27,  # of topics and queues: one since values are decoded in one place
    "topic diff": 33,  # one since a view leaves out what a retention has ended
    "claim": 36,  # two since each event tells the timings of its jobs
    "ack": 30,
}


@contextmanager
def traced() -> Iterator[set[str]]:
    """Collects our modules of which a function runs inside, in this thread."""
    modules: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            modules.add(frame.f_code.co_filename.removeprefix(f"{ROOT}/"))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield modules
    finally:
        sys.setprofile(before)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server(settings=Settings(metrics_interval_ms=0, request_counts_ms=0))
    for name in (PLAIN, S):
        server("PUT", name, JSON)
    server("POST", f"{S}/_schema", JSON, json.dumps(SCHEMA).encode())
    server("POST", S, JSON, RECORD)
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "api")  # blocking calls run in this thread
    return server


def ask(server: Server, method: str, target: str, body: bytes = b"") -> None:
    answer = server(method, target, JSON, body)
    assert answer.status < 300, answer.body


def measure(name: str, run: Callable[[], object]) -> None:
    run()  # what is imported or cached at first is not of the path
    with traced() as modules:
        run()
    show(name, modules)


def show(name: str, modules: set[str]) -> None:
    print(f"{name}: {len(modules)}", *sorted(modules), sep="\n  ")
    assert len(modules) <= MOST[name]


def test_requests_run_through_few_modules(server: Server) -> None:
    measure("append", lambda: ask(server, "POST", PLAIN, RECORD))
    measure("search", lambda: ask(server, "GET", f"{S}/_search?q=service:auth"))
    measure("read", lambda: ask(server, "GET", f"{PLAIN}?offset=-1"))


def test_a_seal_runs_through_few_modules(server: Server) -> None:
    context = assemble(server.stores, MemoryQueue())
    row = server.stores.catalog.living("streams", after="", limit=10)[-1]

    with traced() as modules:
        seal(context, row.log_id, force=True)
    show("seal", modules)


def test_requests_to_topics_run_through_few_modules(server: Server) -> None:
    ask(server, "PUT", "/v0/topics/q", b'{"type":"queue"}')
    ask(server, "POST", "/v0/topics/q", b'{"records":[{"data":1},{"data":2},{"data":3}]}')
    write, worker = b'{"records":[{"data":1,"tag":"t"}]}', b'{"node":"w"}'
    measure("topic append", lambda: ask(server, "POST", "/v0/topics/t", write))
    measure("topic diff", lambda: ask(server, "POST", "/v0/topics/t/diff", b"{}"))
    measure("claim", lambda: ask(server, "POST", "/v0/topics/q/claim", worker))
    measure("ack", lambda: ask(server, "POST", "/v0/topics/q/ack", b'{"node":"w","seqs":[1]}'))
