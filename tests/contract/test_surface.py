"""A surface that no file of the engine knows (`tests/support/pairs.py`) lives on it as streams do, in memory and on AWS.

The emulated AWS is the hardened one: stock moto is not atomic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.purge import purge
from functions.sealer.seal import seal
from functions.sealer.trim import trim
from headrace.aws import aws_stores, region_of
from headrace.errors import Conflict, InvalidRequest, NotFound, Overloaded
from headrace.log.requests import At
from headrace.log.seam import Which
from headrace.log.stores import Stores
from headrace.memory import memory_stores
from headrace.objects import keys
from headrace.settings import Settings
from headrace.tables.catalog import Row
from headrace.tables.dynamodb import Store
from headrace.wal.dynamodb import DynamoWal
from headrace.wal.state import BEGINNING, LogState
from tests.support.clocks import ManualClock
from tests.support.emulated_cloud import emulated_cloud
from tests.support.faults import Faulty
from tests.support.pairs import NOTED, NOTES, PAIRS, TAGS, DynamoTags, Pairs, PairState, pairs_wal

NOTES_OF_P = ("p", NOTES)


@pytest.fixture(scope="module")
def emulated() -> Iterator[Stores]:
    """Yields the stores of a deployment, with the surface's table beside the engine's."""
    with pytest.MonkeyPatch.context() as patch, emulated_cloud() as cloud:
        for name, value in cloud.environment.items():
            patch.setenv(name, value)
        kinds = {"log_id": "HASH", "tag": "RANGE"}
        cloud.client("dynamodb").create_table(
            TableName=TAGS,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in kinds.items()],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in kinds],
        )
        settings, region = Settings.from_environment(cloud.environment), region_of(cloud.environment)
        store = Store(region)
        yield replace(
            aws_stores(settings, region, dynamodb_timeout_s=5, s3_read_timeout_s=5),
            wal=DynamoWal(store, {**settings.table_names, TAGS: TAGS}),
            tables={TAGS: DynamoTags(store, TAGS)},
            surfaces=(PAIRS,),
            clock=ManualClock(),
        )


@pytest.fixture(params=["memory", "emulated"])
def stores(request: pytest.FixtureRequest) -> Stores:
    """Stores that hold no pair `p`."""
    if request.param == "memory":
        return memory_stores(clock=ManualClock(), wal=pairs_wal(), surfaces=(PAIRS,))
    stores: Stores = request.getfixturevalue("emulated")
    return stores


def read(stores: Stores, which: Which) -> list[bytes]:
    """Returns all records of a log, as a process without memory reads them."""
    return Pairs(stores).log.read(which, At(BEGINNING), touch=False).data


def state(stores: Stores, log: Row) -> LogState:
    newest = stores.wal.newest(log.log_id)
    assert newest is not None
    return newest.state


def test_a_surface_lives_from_create_to_purge(stores: Stores) -> None:
    pairs, other = Pairs(stores), Pairs(stores)
    main = pairs.create("p")
    (notes,) = main.companions
    tags: Any = stores.tables[TAGS]
    assert [tags.of(log.log_id) for log in main.logs] == [{"created"}, {"created"}]

    # Appends: to one log, to the other, and one that commits an entry to each.
    assert (pairs.append("p", b"a"), pairs.append(NOTES_OF_P, b"1")) == (1, 1)
    assert other.append("p", b"b", key=NOTED) == 2
    entries = [stores.wal.read(log.log_id).entries for log in main.logs]
    assert [[entry.kind for entry in of_log] for of_log in entries] == [["create", "data", "data"]] * 2
    assert (read(stores, "p"), read(stores, NOTES_OF_P)) == ([b"a", b"b"], [b"1", b"b"])

    # A control kind of its own, which changes the extension and names an object: in force for every process at once.
    pairs.configure("p", 3, b"short is sweet")
    extension = state(stores, main).extension
    assert isinstance(extension, PairState)
    assert (extension.limit, stores.objects.get(extension.reason)) == (3, b"short is sweet")
    with pytest.raises(InvalidRequest, match="limit=3"):
        other.append("p", b"long")
    assert other.append("p", b"c") == 3

    # A guarded row: refused because of the stored row, though nothing in the log says so.
    pairs.tag("p", "blue")
    tags.put(main.log_id, "red")
    for tag in ("blue", "red"):
        with pytest.raises(Conflict, match=tag):
            other.tag("p", tag)
    assert tags.of(main.log_id) == {"created", "blue", "red"}

    # The real sealer: what is published and trimmed is read as before, and the extension is in the manifest.
    sealer = assemble(stores, MemoryQueue())
    before = read(stores, "p"), read(stores, NOTES_OF_P)
    for log in main.logs:
        seal(sealer, log.log_id, force=True)
    wait(stores)
    for log in main.logs:
        trim(sealer, log.log_id)
        assert len(stores.wal.read(log.log_id).entries) == 1
    assert (read(stores, "p"), read(stores, NOTES_OF_P)) == before
    manifest = stores.manifests().newest(main.log_id, None, 0)
    assert manifest is not None and manifest.state.extension == extension
    with pytest.raises(InvalidRequest, match="limit=3"):
        Pairs(stores).append("p", b"long")

    # The end: of both logs at once, for every process; then nothing is left but what says so.
    assert pairs.log.delete("p")
    for which in ("p", NOTES_OF_P):
        with pytest.raises(NotFound):
            other.append(which, b"d")
    wait(stores)
    assert purge(sealer, main.log_id)
    for log in (main, notes):
        assert [entry.kind for entry in stores.wal.read(log.log_id).entries] == ["delete"]
        assert sorted(stores.objects.list(keys.log_prefix(log.log_id))) == [
            keys.tombstone(log.log_id),
            keys.description(log.log_id),
        ]
        assert tags.of(log.log_id) == set()

    again = pairs.create("p")
    assert again.config.incarnation == 1 and read(stores, "p") == []


def wait(stores: Stores) -> None:
    """Waits for the age at which entries are trimmed and ended logs are purged."""
    assert isinstance(stores.clock, ManualClock)
    stores.clock.advance(stores.settings.trim_age_ms / 1000)


class Meeting:
    """Two processes over tables in memory; calls of the first to the write-ahead log can be broken."""

    def __init__(self) -> None:
        self.stores = memory_stores(clock=ManualClock(), wal=pairs_wal(), surfaces=(PAIRS,))
        self.wal = Faulty(self.stores.wal)
        self.first, self.second = Pairs(replace(self.stores, wal=self.wal)), Pairs(self.stores)
        self.main = self.first.create("p")
        self.first.append("p", b"0", key=NOTED)  # both logs are remembered

    def both(self) -> tuple[list[bytes], list[bytes]]:
        """Returns the records of both logs."""
        return read(self.stores, "p"), read(self.stores, NOTES_OF_P)


@pytest.mark.parametrize("which", ["p", NOTES_OF_P])
def test_an_append_to_two_logs_that_meets_a_writer_of_either_is_decided_again(which: Which) -> None:
    world = Meeting()
    world.wal.on("commit", lambda: world.second.append(which, b"first"))
    world.first.append("p", b"x", key=NOTED)
    meant = [b"0", b"first", b"x"]
    assert world.both() == ((meant, [b"0", b"x"]) if which == "p" else ([b"0", b"x"], meant))


def test_a_warm_append_to_two_logs_is_one_call() -> None:
    world = Meeting()
    before = world.wal.calls.total()
    world.first.append("p", b"x", key=NOTED)
    assert world.wal.calls.total() == before + 1


@pytest.mark.parametrize("after", [False, True])
def test_an_append_to_two_logs_whose_answer_is_lost_is_there_once(after: bool) -> None:
    world = Meeting()
    world.wal.fail("commit", after=after)
    world.first.append("p", b"x", key=NOTED)
    assert world.both() == ([b"0", b"x"], [b"0", b"x"])


def test_an_append_to_two_logs_into_a_slot_that_was_trimmed_writes_to_neither() -> None:
    world = Meeting()

    def sleep() -> None:
        for data in (b"first", b"newest"):
            world.second.append("p", data)
        entries = world.stores.wal.read(world.main.log_id).entries
        end = entries[-1]
        world.stores.watermarks.publish(end.log_id, 1, end.next_slot(), end.next_offset, end.state.total_bytes)
        world.stores.wal.remove(end.log_id, [entry.slot for entry in entries[:-1]])
        wait(world.stores)

    world.wal.on("commit", sleep)
    with pytest.raises(Overloaded):
        world.first.append("p", b"x", key=NOTED)
    assert read(world.stores, NOTES_OF_P) == [b"0"]
    assert [entry.count for entry in world.stores.wal.read(world.main.log_id).entries] == [1]


def test_a_control_that_meets_a_guarded_row_is_decided_again() -> None:
    world = Meeting()
    tags: Any = world.stores.tables[TAGS]
    world.wal.on("commit", lambda: tags.put(world.main.log_id, "blue"))
    with pytest.raises(Conflict, match="blue"):
        world.first.tag("p", "blue")
    assert [entry.kind for entry in world.stores.wal.read(world.main.log_id).entries] == ["create", "data"]
