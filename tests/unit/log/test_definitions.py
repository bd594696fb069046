"""Schema registry and profile under the commit protocol: no append slips between a change and its acknowledgement."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.seal import seal
from functions.sealer.trim import trim
from headrace.definition import Definition
from headrace.errors import Conflict, Damaged, InvalidRequest, NotFound
from headrace.json import registry
from headrace.log.requests import At, Selection
from headrace.streams import profiles
from headrace.streams.values import CreateRequest, ForkRequest
from headrace.wal.state import BEGINNING, LogConfig, LogState
from tests.support.builders import BYTES, JSON, appending
from tests.unit.log.world import Process, World

NUMBERS = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
RENAMED = {"type": "object", "required": ["m"], "properties": {"m": {"type": "integer"}}}
RENAME = {
    "apiVersion": "durable.lens/v1",
    "schema": "s",
    "from": 1,
    "to": 2,
    "ops": [{"op": "rename", "from": "/n", "to": "/m"}],
}
SEARCH = {
    "primaryTimestampField": "t",
    "fields": {
        "t": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/t"}], "column": True},
        "n": {
            "kind": "integer",
            "bindings": [{"version": 1, "jsonPointer": "/n"}, {"version": 2, "jsonPointer": "/m"}],
            "exact": True,
            "column": True,
        },
    },
}


def installing(name: str = "s", **body: Any) -> Any:
    update = registry.parse_update(json.dumps(body).encode(), name)

    def change(before: Definition, config: LogConfig, state: LogState) -> Definition:
        offset = state.next_offset
        after = registry.apply(before.registry, update, name=name, next_offset=offset, is_empty=offset == 0)
        return Definition(after, before.own)

    return change


def number(value: int, field: str = "n") -> Any:
    return appending(json.dumps({field: value}).encode(), content_type=JSON)


def with_schema(world: World, **extra: Any) -> tuple[Process, str]:
    process = world.process()
    log_id = process.create(content_type=JSON)
    process.logs.define("s", installing(schema=NUMBERS, **extra))
    return process, log_id


def sealed(world: World, log_id: str, process: Process) -> None:
    parts = assemble(process.stores, MemoryQueue())
    seal(parts, log_id, force=True)


def test_appends_are_checked_by_the_schema_in_force_on_every_process() -> None:
    world = World()
    process, _ = with_schema(world)
    for writer in (process, world.process()):
        writer.logs.append("s", number(1))
        with pytest.raises(InvalidRequest, match="required"):
            writer.logs.append("s", number(1, "m"))


def test_a_warm_append_under_a_schema_is_one_write() -> None:
    world = World()
    process, _ = with_schema(world)
    process.logs.append("s", number(1))
    before = process.calls
    process.logs.append("s", number(2))
    assert process.calls - before == 1


def test_a_cold_append_under_a_schema_costs_one_get_more() -> None:
    world = World()
    with_schema(world)
    cold = world.process()
    cold.logs.append("s", number(1))
    assert (cold.catalog.calls["get"], cold.wal.calls["newest"], cold.objects.calls["get"]) == (1, 1, 1)
    assert cold.wal.calls["commit"] == 1


def test_a_page_skips_nothing_when_records_are_shown_with_fewer_bytes_than_they_have() -> None:
    """The raw bytes fill the page in the middle of an entry, but what is shown of them does not."""
    world = World()
    process, _ = with_schema(world)
    padded = (f'{{"n":{" " * 40}{value}}}'.encode() for value in range(6))
    process.logs.append("s", appending(*padded, content_type=JSON))
    process.logs.append("s", appending(*(f'{{"n":{value}}}'.encode() for value in (6, 7, 8)), content_type=JSON))
    process.logs.define("s", installing(schema=RENAMED, lens=RENAME))
    page = process.logs.read("s", At(BEGINNING), max_bytes=50)
    assert page.data == [f'{{"m":{value}}}'.encode() for value in range(8)]
    assert page.next == 8


def test_an_append_that_was_checked_by_the_old_schema_is_checked_again_if_a_change_was_first() -> None:
    world = World()
    process, _ = with_schema(world)
    other = world.process()
    process.logs.append("s", number(1))

    def evolve() -> None:
        other.logs.define("s", installing(schema=RENAMED, lens=RENAME))

    process.wal.on("commit", evolve)
    with pytest.raises(InvalidRequest):
        process.logs.append("s", number(2))
    assert world.process().read() == [b'{"m":1}']


def test_a_refusal_by_an_old_schema_is_checked_once_more() -> None:
    world = World()
    process, _ = with_schema(world)
    process.logs.append("s", number(1))
    world.process().logs.define("s", installing(schema=RENAMED, lens=RENAME))
    process.logs.append("s", number(2, "m"))
    assert process.read() == [b'{"m":1}', b'{"m": 2}'], "promoted text is compact, a client's own stays as it came"


def test_a_first_schema_loses_to_an_append_that_was_first() -> None:
    world = World()
    process, other = world.process(), world.process()
    process.create(content_type=JSON)
    process.wal.on("commit", lambda: other.logs.append("s", number(1)))
    with pytest.raises(InvalidRequest, match="empty"):
        process.logs.define("s", installing(schema=NUMBERS))
    assert process.logs.definition("s").schema_version == 0


def test_of_two_changes_of_one_version_at_once_the_second_is_refused() -> None:
    world = World()
    with_schema(world)
    one, two = world.process(), world.process()
    one.wal.on("commit", lambda: two.logs.define("s", installing(schema=RENAMED, lens=RENAME)))
    with pytest.raises((InvalidRequest, Conflict)):
        one.logs.define("s", installing(schema=RENAMED, lens=RENAME))
    assert world.process().logs.definition("s").schema_version == 2


def test_a_change_of_unknown_outcome_is_settled() -> None:
    world = World()
    process, _ = with_schema(world)
    process.wal.fail("commit", after=True)
    process.logs.define("s", installing(schema=RENAMED, lens=RENAME))
    assert world.process().logs.definition("s").schema_version == 2


def test_a_change_that_changes_nothing_writes_nothing() -> None:
    world = World()
    process, log_id = with_schema(world)
    before = len(world.entries(log_id))
    process.logs.define("s", lambda definition, *_: definition)
    assert len(world.entries(log_id)) == before


def test_the_definition_survives_sealing_and_trimming_and_reads_promote_what_was_sealed() -> None:
    world = World()
    process, log_id = with_schema(world)
    for value in range(3):
        process.logs.append("s", number(value))
    process.logs.define("s", installing(schema=RENAMED, lens=RENAME, search=SEARCH))
    process.logs.append("s", number(3, "m"))
    sealed(world, log_id, process)
    process.clock.advance(3600)
    trim(assemble(process.stores, MemoryQueue()), log_id)
    assert len(world.entries(log_id)) == 1
    process.logs.append("s", number(4, "m"))
    reader = world.process()
    assert reader.read() == [b'{"m":0}', b'{"m":1}', b'{"m":2}', b'{"m": 3}', b'{"m": 4}']
    page = reader.logs.read("s", At(BEGINNING), Selection(filter="n:>=2"))
    assert page.data == [b'{"m":2}', b'{"m": 3}', b'{"m": 4}']
    assert page.next == 5


def test_keys_are_taken_from_records_and_found_in_segments_and_in_the_tail() -> None:
    world = World()
    schema = {"type": "object"}
    process = world.process()
    log_id = process.create(content_type=JSON)
    process.logs.define("s", installing(schema=schema, routingKey={"jsonPointer": "/k", "required": False}))
    texts = [json.dumps({"k": f"k{value % 3}", "n": value}).encode() for value in range(9)] + [b'{"n":9}']
    process.logs.append("s", appending(*texts, content_type=JSON))
    sealed(world, log_id, process)
    process.logs.append("s", appending(b'{"k":"k1"}', content_type=JSON))
    reader = world.process()
    page = reader.logs.read("s", At(BEGINNING), Selection(key="k1"))
    assert page.data == [texts[1], texts[4], texts[7], b'{"k":"k1"}']
    assert page.up_to_date
    first = reader.logs.read("s", At(BEGINNING), Selection(key="k1"), max_records=2)
    assert (first.data, first.next) == ([texts[1], texts[4]], 5)
    assert reader.logs.read("s", At(BEGINNING), Selection(key="none")).data == []


def test_a_scan_whose_time_is_over_returns_how_far_it_came() -> None:
    world = World()
    process, log_id = with_schema(world, search=SEARCH_1)
    for value in range(4):
        process.logs.append("s", number(value))
        sealed(world, log_id, process)
    late = process.clock.monotonic()  # over at once
    at, found, pages = At(BEGINNING), [], 0
    while True:
        page = process.logs.read("s", at, Selection(filter="n:3"), until=late)
        found += page.data
        pages += 1
        if page.up_to_date:
            break
        assert page.next > page.start, "no progress"
        at = At(BEGINNING._replace(incarnation=0, position=page.next))
    assert found == [b'{"n": 3}']
    assert pages > 1


SEARCH_1 = {
    **SEARCH,
    "fields": {
        "t": SEARCH["fields"]["t"],  # type: ignore[index]
        "n": {**SEARCH["fields"]["n"], "bindings": [{"version": 1, "jsonPointer": "/n"}]},  # type: ignore[index]
    },
}


def test_a_filter_needs_declared_fields() -> None:
    world = World()
    process, _ = with_schema(world)
    with pytest.raises(InvalidRequest, match="search"):
        process.logs.read("s", At(BEGINNING), Selection(filter="n:1"))


def test_a_fork_reads_and_writes_by_what_its_source_meant() -> None:
    world = World()
    process, _ = with_schema(world)
    for value in range(3):
        process.logs.append("s", number(value))
    process.logs.define("s", installing(schema=RENAMED, lens=RENAME))
    process.logs.append("s", number(3, "m"))
    at = BEGINNING._replace(incarnation=0, position=2)
    process.logs.create("fork", CreateRequest(fork=ForkRequest("s", at)))
    with pytest.raises(InvalidRequest):
        process.logs.append("fork", number(9))
    process.logs.append("fork", number(9, "m"))
    process.logs.delete("s")
    assert world.process().read("fork") == [b'{"m":0}', b'{"m":1}', b'{"m": 9}']


def test_a_deleted_stream_takes_its_definition_with_it() -> None:
    world = World()
    process, _ = with_schema(world)
    process.logs.delete("s")
    with pytest.raises(NotFound):
        process.logs.define("s", installing(schema=RENAMED, lens=RENAME))
    process.create(content_type=JSON)
    assert process.logs.definition("s").schema_version == 0


def test_a_profile_stands_in_the_row_that_listings_show() -> None:
    world = World()
    process = world.process()
    process.create(content_type=JSON)
    process.logs.define("s", lambda before, *_: Definition(before.registry, profiles.parse({"kind": "metrics"})))
    [row] = process.logs.list(limit=9)
    assert row.label == "metrics"


def test_a_missing_definition_is_damage_and_never_an_answer() -> None:
    world = World()
    with_schema(world)
    for key in list(world.objects.list("")):
        if "/registry/" in key:
            world.objects.delete([key])
    cold = world.process()
    with pytest.raises(Damaged, match="registry"):
        cold.logs.append("s", number(1))
    with pytest.raises(Damaged, match="registry"):
        cold.logs.read("s", At(BEGINNING))


def test_appends_of_many_threads_around_a_change_are_each_checked_by_one_schema() -> None:
    world = World()
    process, _ = with_schema(world)
    outcomes: list[tuple[str, bool]] = []

    def write(field: str) -> None:
        for value in range(40):
            try:
                process.logs.append("s", number(value, field))
                outcomes.append((field, True))
            except InvalidRequest:
                outcomes.append((field, False))

    threads = [threading.Thread(target=write, args=(field,)) for field in "nmnm"]
    for thread in threads:
        thread.start()
    process.logs.define("s", installing(schema=RENAMED, lens=RENAME))
    for thread in threads:
        thread.join()
    records = [json.loads(data) for data in process.read()]
    assert all(set(record) == {"m"} for record in records)
    assert len(records) == sum(accepted for _, accepted in outcomes)


def test_a_change_is_decided_on_the_log_that_it_will_be_written_to() -> None:
    """Between a look at a name and the change of it, the name can come to stand for another log."""
    world = World()
    process = world.process()
    process.create(content_type=JSON)
    seen: list[str] = []

    def change(before: Definition, config: LogConfig, state: LogState) -> Definition:
        seen.append(config.content_type)
        if config.content_type != JSON:
            raise InvalidRequest("not here")
        return installing(schema=NUMBERS)(before, config, state)

    def made_anew() -> None:
        other = world.process()
        other.logs.delete("s")
        other.create(content_type=BYTES)

    process.wal.on("commit", made_anew)
    with pytest.raises(InvalidRequest):
        process.logs.define("s", change)
    assert seen == [JSON, BYTES]
