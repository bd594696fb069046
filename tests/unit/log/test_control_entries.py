"""Forks and definitions are entries without records: however many are at one offset, a read finds its way past them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.definition import Definition
from headrace.log.requests import At
from headrace.streams import profiles
from headrace.streams.values import CreateRequest, ForkRequest
from headrace.wal import memory as wal_memory
from headrace.wal.state import Cursor
from tests.support.builders import JSON, appending
from tests.unit.log.world import Process, World

MANY = 25


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of the log holds a few entries, not a megabyte of them."""
    monkeypatch.setattr(wal_memory, "_PAGE_BYTES", 1500)


def forks(process: Process, number: int) -> None:
    process.logs.create(f"fork-{number}", CreateRequest(fork=ForkRequest("s")))


def definitions(process: Process, number: int) -> None:
    kind = ("metrics", "generic")[number % 2]
    process.logs.define("s", lambda before, *_: Definition(before.registry, profiles.parse({"kind": kind})))


@pytest.mark.parametrize("control", [forks, definitions])
@pytest.mark.parametrize("count", [2, 3, 4, MANY + 1])
@pytest.mark.parametrize("before", [0, 100])
def test_a_catch_up_read_passes_control_entries_at_its_offset(
    control: Callable[[Process, int], None], count: int, before: int
) -> None:
    world = World()
    process = world.process()
    process.create(content_type=JSON)
    batch = [b'{"n":%d}' % number for number in range(100)]
    if before:
        process.logs.append("s", appending(*batch, content_type=JSON))
    for number in range(2 * (count // 2)):
        control(process, number)
    for _ in range(12):
        process.logs.append("s", appending(*batch, content_type=JSON))
    for reader in (process, world.process()):
        page = reader.logs.read("s", At(Cursor(None, before)), max_records=3)
        assert page.data == batch[:3]
        assert len(reader.read("s", before)) == 1200


def test_a_read_past_control_entries_costs_a_query_for_each_page_of_them_and_no_more() -> None:
    world = World()
    process = world.process()
    process.create(content_type=JSON)
    for number in range(2):
        definitions(process, number)
    for _ in range(20):
        process.logs.append("s", appending(b"{}", b"{}", content_type=JSON))
    before = process.wal.calls["read"]
    process.logs.read("s", At(Cursor(None, 0)), max_records=3)
    assert process.wal.calls["read"] - before <= 3


def test_a_profile_that_others_changed_since_the_row_was_read_is_listed_as_it_is() -> None:
    world = World()
    process, other = world.process(), world.process()
    process.create(content_type=JSON)
    process.logs.forget()
    # The catalog says generic, then another process makes it metrics, then the newest entry is read, which says so.
    process.wal.on("newest", lambda: definitions(other, 0))
    definitions(process, 1)
    [row] = world.process().logs.list(limit=9)
    assert row.label == world.process().logs.head("s").state.label == "generic"
