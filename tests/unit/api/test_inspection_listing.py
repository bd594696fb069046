"""`/v1/streams`: what each row says, and what a page costs."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from functions.access import Access, parse
from functions.api.context import assemble
from functions.api.streams.inspection import routes
from functions.queue import MemoryQueue
from functions.sealer.audit import sweep
from functions.sealer.context import assemble as assemble_sealer
from functions.sealer.seal import seal
from headrace.clock import check_deadline
from headrace.memory import memory_stores
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty, LaggingIndex
from tests.unit.api.asgi import JSON, QUIET, TEXT, Server


def listed(server: Server, query: str = "", key: str | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server("GET", "/v1/streams" + query, key=key).json
    return found


def names(server: Server, query: str = "") -> list[str]:
    return [row["name"] for row in listed(server, query)]


def test_a_row_says_how_far_the_stream_is() -> None:
    server = Server()
    server("PUT", "/v1/stream/s", JSON, b"[1,2]")
    (row,) = listed(server)
    assert (row["next_offset"], row["sealed_through"], row["uploaded_through"]) == ("2", "-1", "-1")
    log_id = server.parts.logs().head("s").log_id
    seal(assemble_sealer(server.stores, MemoryQueue()), log_id, force=True)
    server("POST", "/v1/stream/s", JSON, b"3")
    server("POST", "/v1/stream/s/_profile", JSON, b'{"profile":{"kind":"state-protocol"}}')
    (row,) = listed(server)
    assert row == {
        "name": "s",
        "created_at": row["created_at"],
        "expires_at": None,
        "epoch": 0,
        "next_offset": "3",
        "sealed_through": "1",
        "uploaded_through": "1",
        "content_type": "application/json",
        "profile": "state-protocol",
    }


def test_a_fork_shows_where_it_stands() -> None:
    server = Server()
    server("PUT", "/v1/stream/a", TEXT, b"x")
    server("PUT", "/v1/stream/b", {**TEXT, "stream-forked-from": "/v1/stream/a"})
    assert [(row["next_offset"], row["sealed_through"]) for row in listed(server)] == [("1", "-1"), ("1", "0")]


def test_a_stream_made_again_has_a_higher_epoch() -> None:
    server = Server()
    server("PUT", "/v1/stream/s", TEXT)
    server("DELETE", "/v1/stream/s")
    server("PUT", "/v1/stream/s", TEXT)
    assert [row["epoch"] for row in listed(server)] == [1]


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_stream_made_again_is_shown_while_the_index_lags(is_lost: bool) -> None:
    stores = memory_stores(QUIET)
    lagging = Faulty(stores.catalog)
    server = Server(parts=assemble(replace(stores, catalog=lagging), Access({})))
    for name in ("gone", "s"):
        server("PUT", f"/v1/stream/{name}", TEXT, b"a")
    old = server.parts.logs().head("s").log_id
    lagging.target = LaggingIndex(stores.catalog)
    for name in ("gone", "s"):
        server("DELETE", f"/v1/stream/{name}")
    server("PUT", "/v1/stream/s", TEXT)
    if is_lost:  # by a disaster; the recovery has left it alone, for it had lost its name
        stores.wal.remove(old, [entry.slot for entry in stores.wal.read(old).entries])
    assert [(row["name"], row["epoch"], row["next_offset"]) for row in listed(server)] == [("s", 1, "0")]


def test_a_stream_whose_own_log_has_no_entry_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """It made every page that it was on fail."""
    server = Server()
    for name in "abc":
        server("PUT", f"/v1/stream/{name}", TEXT)
    log_id, wal = server.parts.logs().head("b").log_id, server.stores.wal
    wal.remove(log_id, [entry.slot for entry in wal.read(log_id).entries])
    assert names(server, "?limit=2") == ["a", "c"]
    assert f"log could not be listed: name=b reason=log has no entry: log_id={log_id} name=b" in caplog.messages
    server.parts.logs().forget()  # a process that knows the newest entry asks only for what follows
    assert server("GET", "/v1/stream/b").status == 500


def test_streams_that_expired_unnoticed_are_left_out_and_the_page_is_full() -> None:
    clock = ManualClock()
    server = Server(parts=assemble(memory_stores(QUIET, clock), Access({})))
    for name in "abcdef":
        ttl = {"stream-ttl": "10"} if name in "bcd" else {}
        server("PUT", f"/v1/stream/{name}", {**TEXT, **ttl})
    clock.advance(9)
    server("GET", "/v1/stream/c")
    clock.advance(2)
    assert names(server) == ["a", "c", "e", "f"]
    assert names(server, "?limit=2") == ["a", "c"]
    assert names(server, "?limit=2&after=a") == ["c", "e"]
    assert names(server, "?limit=3&after=e") == ["f"]


def test_a_listing_keeps_the_deadline_of_its_request_in_every_thread() -> None:
    stores = memory_stores(msgspec.structs.replace(QUIET, request_timeout_ms=20))
    wal, catalog = Faulty(stores.wal), Faulty(stores.catalog)
    counted = replace(stores, wal=wal, catalog=catalog)
    server = Server(parts=assemble(counted, Access({})))
    for name in "abc":
        server("PUT", f"/v1/stream/{name}", TEXT)
    wal.on("newest", check_deadline, times=math.inf)  # as the adapter in DynamoDB does before each call
    assert names(server) == ["a", "b", "c"]
    catalog.on("living", lambda: time.sleep(0.03), after=True)
    assert server("GET", "/v1/streams").status == 408


def test_a_listing_gives_up_on_streams_that_only_the_sweep_can_take_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_MAX_GONE", 3)
    clock = ManualClock()
    stores = memory_stores(QUIET, clock)
    server = Server(parts=assemble(stores, Access({})))
    for name in "abcdez":
        server("PUT", f"/v1/stream/{name}", {**TEXT, **({} if name == "z" else {"stream-ttl": "10"})})
    clock.advance(11)
    answer = server("GET", "/v1/streams?limit=1")
    assert (answer.status, answer.headers["retry-after"]) == (429, "60")
    assert names(server, "?limit=1&after=b") == ["z"]
    assert sweep(assemble_sealer(stores, MemoryQueue())) == (5, 0, 0, 0, [])
    assert names(server, "?limit=1") == ["z"]


def test_pages_by_name_and_by_row_see_every_stream_once() -> None:
    server = Server()
    made = sorted(f"s{number:02d}" for number in range(23))
    for name in reversed(made):
        server("PUT", f"/v1/stream/{name}", TEXT)
    by_name: list[str] = []
    while page := names(server, f"?limit=5&after={by_name[-1] if by_name else ''}"):
        by_name += page
    assert by_name == made
    assert [name for skip in range(0, 25, 5) for name in names(server, f"?limit=5&offset={skip}")] == made


def test_prefixes_of_a_key_are_paged_as_one_list() -> None:
    server = Server(keys="k:read:a|c,all")
    for name in ("a1", "a2", "b1", "c1", "c2"):
        server("PUT", f"/v1/stream/{name}", TEXT, key="all")
    pages = [listed(server, f"?limit=2&offset={skip}", key="k") for skip in (0, 1, 2, 3)]
    assert [[row["name"] for row in page] for page in pages] == [["a1", "a2"], ["a2", "c1"], ["c1", "c2"], ["c2"]]


def test_a_page_costs_one_listing_and_one_query_and_one_item_read_for_each_row() -> None:
    stores = memory_stores(QUIET)
    wal, catalog, watermarks = Faulty(stores.wal), Faulty(stores.catalog), Faulty(stores.watermarks)
    counted = replace(stores, wal=wal, catalog=catalog, watermarks=watermarks)
    server = Server(parts=assemble(counted, parse("")))
    for number in range(60):
        server("PUT", f"/v1/stream/s{number:02d}", TEXT, b"x" if number % 2 else b"")
    for port in (wal, catalog, watermarks):
        port.calls.clear()
    assert len(listed(server, "?limit=20&offset=10")) == 20
    assert catalog.calls == {"living": 1}
    assert wal.calls == {"newest": 20}
    assert watermarks.calls == {"get": 10}  # nothing of an empty stream is sealed
