"""A server in this process, on memory, with something to see of each kind; and a page of it in Debian's Chromium."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.unit.api.asgi import Server

PATIENCE_MS = 20_000  # other tests share the processor
expect.set_options(timeout=PATIENCE_MS)

KEY, READER = "key-of-everything", "key-of-a-reader"

REQUESTS = {
    "schema": {"type": "object"},
    "search": {
        "primaryTimestampField": "at",
        "fields": {
            "at": {
                "kind": "date",
                "bindings": [{"version": 1, "jsonPointer": "/at"}],
                "column": True,
                "sortable": True,
            },
            "service": {
                "kind": "keyword",
                "bindings": [{"version": 1, "jsonPointer": "/service"}],
                "exact": True,
                "prefix": True,
                "exists": True,
            },
            "status": {
                "kind": "integer",
                "bindings": [{"version": 1, "jsonPointer": "/status"}],
                "column": True,
                "sortable": True,
                "exact": True,
            },
            "ms": {
                "kind": "float",
                "bindings": [{"version": 1, "jsonPointer": "/ms"}],
                "column": True,
                "sortable": True,
                "aggregatable": True,
            },
        },
        "rollups": {
            "requests": {
                "dimensions": ["service", "status"],
                "intervals": ["1m", "1h"],
                "measures": {
                    "requests": {"kind": "count"},
                    "latency": {"kind": "summary", "field": "ms", "histogram": "log2_v1"},
                },
            }
        },
    },
}
NODES = [
    {
        "kind": "event",
        "name": "Txn",
        "search": True,
        "schema": {"fields": {"user_id": "str", "amount": "f64"}, "optional_fields": []},
    },
    {
        "kind": "derivation",
        "name": "Spend",
        "output_kind": "table",
        "table_primary_key": ["user_id"],
        "upstreams": ["Txn"],
        "ops": [
            {
                "op": "group_by",
                "keys": ["user_id"],
                "agg": {
                    "tx_count_1h": {"op": "count", "params": {"window": "1h"}},
                    "tx_sum_1h": {"op": "sum", "params": {"field": "amount", "window": "1h"}},
                },
            }
        ],
        "schema": {"fields": {"user_id": "str", "tx_count_1h": "i64", "tx_sum_1h": "f64"}, "optional_fields": []},
    },
]


@dataclass(frozen=True)
class World:
    """The address of a server, and how to ask it."""

    url: str

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Returns the JSON of an answer that must be a success."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        told = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}", **headers}
        request = urllib.request.Request(self.url + path, data, told, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            sent = answer.read()
        return json.loads(sent) if sent else None


@contextmanager
def serving(keys: str = f"{KEY},{READER}:read") -> Iterator[World]:
    """Serves an application on memory from a thread."""
    config = uvicorn.Config(Server(keys).app, log_level="error", http="httptools", lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield World(f"http://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            server.force_exit = server.should_exit = True
            thread.join(30)


def fill(world: World, now_ms: int) -> None:
    """Writes something of each kind; the newest record of the stream `requests` is of `now_ms`."""
    world.ask("PUT", "/v1/stream/requests")
    world.ask("POST", "/v1/stream/requests/_schema", REQUESTS)
    services = ("billing", "checkout", "search")
    records = [
        {
            "at": now_ms - 15_000 * (239 - n),
            "service": services[n * 7 % 11 % 3],
            "status": 503 if n % 17 == 3 else 404 if n % 13 == 1 else 200,
            "ms": n * 37 % 101 + 0.5,
            "path": f"/{services[n % 3]}/{n}",
        }
        for n in range(240)
    ]
    world.ask("POST", "/v1/stream/requests", records)
    world.ask("PUT", "/v1/stream/notes", b"first note\n", **{"Content-Type": "text/plain"})
    world.ask("PUT", "/v0/topics/readings", {"ttl_ms": 3_600_000})
    readings = [{"data": {"celsius": 20 + n / 4}, "tag": f"room:{n % 3}"} for n in range(24)]
    world.ask("POST", "/v0/topics/readings", {"node": "sensor-7", "records": readings})
    queue = {"type": "queue", "lease_ms": 600_000, "max_deliveries": 1, "dead_letter": "mail.dead"}
    world.ask("PUT", "/v0/topics/mail", queue)
    mails = [{"data": {"to": f"user-{n}", "cents": n}, "tag": "welcome"} for n in range(9)]
    # The number's own text must survive a retry.
    mails[0] = {"data": {"to": "user-0", "cents": 0}}
    body = json.dumps({"records": mails}).replace('"cents": 0', '"cents": 21.50').encode()
    world.ask("POST", "/v0/topics/mail", body)
    world.ask("POST", "/v0/topics/mail/claim", {"node": "worker-1", "max": 2})
    world.ask("POST", "/v0/topics/mail/nack", {"node": "worker-1", "seqs": [1, 2], "delay_ms": 0})
    world.ask("POST", "/v0/topics/mail/claim", {"node": "worker-2", "max": 3})
    for source, dest in (("readings", "alarms"), ("readings", "archive"), ("alarms", "pages")):
        world.ask("PUT", f"/v0/routers/{source}-%3E{dest}", {"source": source, "dest": dest})
    world.ask("POST", "/register", {"nodes": NODES})
    for user, amount in (("alice", 25), ("alice", 17.5), ("bob", 3)):
        world.ask("POST", "/push", {"event": "Txn", "data": {"user_id": user, "amount": amount}})


@contextmanager
def chromium() -> Iterator[Browser]:
    """Starts Debian's Chromium, driven by Playwright."""
    path = shutil.which("chromium")
    if path is None:
        pytest.fail("chromium is needed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watched:
    """A page of a server. `asked` are the addresses that it asked for, `problems` what it complained of."""

    page: Page
    world: World
    asked: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda said: self._note(said.type, said.text))

    def _note(self, kind: str, said: str) -> None:
        # A browser complains of each answer that is no success; pages say so themselves.
        if kind in ("error", "warning") and not said.startswith("Failed to load resource"):
            self.problems.append(said)

    def go(self, place: str) -> None:
        """Opens a place of the console by its address; loads it again if it is open."""
        url = self.world.url + place
        if self.page.url == url:
            self.page.reload()
        else:
            self.page.goto(url)

    def set_key(self, key: str) -> None:
        """Gives the open page a key, as if it had been typed."""
        self.page.evaluate("key => sessionStorage.setItem('headrace.key', key)", key)

    def check(self) -> None:
        """Fails if the page complained of something, or asked another server. Forgets what it did so far."""
        problems, self.problems[:] = self.problems[:], []
        asked, self.asked[:] = self.asked[:], []
        assert problems == []
        assert [url for url in asked if not url.startswith(self.world.url)] == []

    def enter_key(self, key: str) -> None:
        """Types a key into the dialog that asks for it."""
        dialog = self.page.get_by_role("dialog", name="Key of this server")
        dialog.get_by_label("Key").fill(key)
        dialog.get_by_role("button", name="Use it").click()


@contextmanager
def opened(browser: Browser, world: World, key: str = KEY, **options: Any) -> Iterator[Watched]:
    """Opens a page of a new session, which has a key unless that is empty."""
    page = browser.new_page(**options)
    if key:
        page.add_init_script(f"sessionStorage.setItem('headrace.key', {json.dumps(key)})")
    try:
        yield Watched(page, world)
    finally:
        page.close()
