"""What every `FeatureRows` adapter does: one suite, on memory and on DynamoDB."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from headrace.errors import Damaged
from headrace.memory import memory_stores
from headrace.tables import features as table
from headrace.tables.dynamodb import Store
from headrace.tables.features import PIECE_BYTES, SHARDS, DynamoFeatures, Key, StateRow
from headrace.tables.marks import Build, Dropped, Mark, Stop
from tests.contract.conftest import Ports, dynamodb_ports
from tests.support.aws import dynamodb_stores
from tests.support.builders import log_id

GENERATION = "spend.3.0"


def key_of(log: str, entity: str = "user|1", generation: str = GENERATION) -> Key:
    return Key(log, generation, entity)


def put(ports: Ports, key: Key, as_of: int, data: bytes, replaces: StateRow | None = None) -> StateRow:
    row = ports.features.put(StateRow(key, as_of, data), replaces)
    assert row is not None, "it replaces what is there"
    return row


def read(ports: Ports, key: Key) -> tuple[int, bytes] | None:
    row = ports.features.get([key]).get(key)
    return None if row is None else (row.as_of, row.data)


def large(number: int, pieces: int) -> bytes:
    """Returns data that need so many items, other ones for each number."""
    return bytes([number]) * ((pieces - 1) * PIECE_BYTES + 1)


# Rows.


def test_a_row_comes_back_as_it_was(ports: Ports) -> None:
    log = log_id()
    keys = [key_of(log, entity) for entity in ("%", "a", "ü%7C|\U0001f600", "x" * 900)]
    for number, key in enumerate(keys):
        ports.features.put(StateRow(key, number, bytes([number]), 1_900_000_000 + number), None)
    found = ports.features.get([*keys, key_of(log, "absent"), key_of(log_id(), "a"), key_of(log, "a", "spend.4.0")])
    assert {key: (row.key, row.as_of, row.data, row.expires_at) for key, row in found.items()} == {
        key: (key, number, bytes([number]), 1_900_000_000 + number) for number, key in enumerate(keys)
    }
    assert ports.features.get(keys[:1], consistent=False).keys() == {keys[0]}
    assert ports.features.get([]) == {}


def test_a_row_is_written_only_in_place_of_the_one_that_was_read(ports: Ports) -> None:
    key = key_of(log_id())
    assert ports.features.put(StateRow(key, 5, b"b"), StateRow(key, 3, b"")) is None, "there is none"
    first = put(ports, key, 3, b"a")
    assert ports.features.put(StateRow(key, 5, b"b"), None) is None, "there is one"
    second = put(ports, key, 5, b"b", first)
    assert ports.features.put(StateRow(key, 6, b"c"), first) is None, "another folder has written since"
    assert read(ports, key) == (5, b"b")
    put(ports, key, 9, b"c", second._replace(data=b""))
    assert read(ports, key) == (9, b"c")


def test_many_rows_are_read_at_once(ports: Ports) -> None:
    log = log_id()
    keys = [key_of(log, f"user{number}") for number in range(230)]
    for number, key in enumerate(keys[:215]):
        put(ports, key, number, b"")
    assert {key: row.as_of for key, row in ports.features.get(keys).items()} == {
        key: number for number, key in enumerate(keys[:215])
    }


def test_the_rows_of_a_generation_are_all_found(ports: Ports) -> None:
    log = log_id()
    wanted = {key_of(log, f"user{number}"): number for number in range(50)}
    for key, number in wanted.items():
        put(ports, key, number, b"r")
    put(ports, key_of(log, "large"), 50, large(1, 3))
    put(ports, key_of(log, "user1", "spend.4.0"), 99, b"other generation")
    put(ports, key_of(log_id(), "user1"), 99, b"other log")
    found = {row.key: (row.as_of, row.data) for row in ports.features.rows(log, GENERATION)}
    assert found.pop(key_of(log, "large")) == (50, large(1, 3))
    assert found == {key: (number, b"r") for key, number in wanted.items()}
    assert list(ports.features.rows(log_id(), GENERATION)) == []


# Rows that are larger than an item.


def test_a_large_row_grows_and_shrinks(ports: Ports) -> None:
    key = key_of(log_id())
    row = put(ports, key, 1, b"small")
    for as_of, pieces in ((2, 2), (3, 5), (4, 2), (5, 1), (6, 3)):
        data = large(as_of, pieces)
        row = put(ports, key, as_of, data, row._replace(data=b""))
        assert read(ports, key) == (as_of, data)
        assert ports.features.get([key])[key]._replace(data=b"") == row._replace(data=b"")


def test_data_of_one_piece_are_in_the_row_itself(ports: Ports) -> None:
    key = key_of(log_id())
    row = put(ports, key, 1, b"x" * PIECE_BYTES)
    assert row.pieces == 0
    assert read(ports, key) == (1, b"x" * PIECE_BYTES)


def test_large_rows_are_removed_with_their_pieces(ports: Ports) -> None:
    log = log_id()
    row = put(ports, key_of(log), 1, large(1, 3))
    put(ports, key_of(log), 2, large(2, 2), row)
    assert ports.features.remove(log, GENERATION)
    assert read(ports, key_of(log)) is None
    put(ports, key_of(log), 3, b"new")
    assert read(ports, key_of(log)) == (3, b"new")


@pytest.fixture
def pieces(store: Store) -> tuple[Ports, DynamoFeatures]:
    """Returns ports on new tables of DynamoDB, and their table of feature rows."""
    ports = dynamodb_ports(store)
    assert isinstance(ports.features, DynamoFeatures)
    return ports, ports.features


def _items(features: DynamoFeatures, key: Key) -> list[str]:
    """Returns the range keys of the items in the partition of a row."""
    query = {
        "TableName": features._table,
        "KeyConditionExpression": "id = :id",
        "ExpressionAttributeValues": {":id": table._item_key(key)["id"]},
    }
    return [item["part"]["S"] for item in features._store.query(query)]


def test_pieces_go_one_write_after_their_row_was_replaced(pieces: tuple[Ports, DynamoFeatures]) -> None:
    """A reader may have read the row that names them just before."""
    ports, features = pieces
    key = key_of(log_id(), "e")
    row = put(ports, key, 1, large(1, 3))
    assert _items(features, key) == ["e", "e\x011.0", "e\x011.1", "e\x011.2"]
    row = put(ports, key, 2, large(2, 2), row)
    assert _items(features, key) == ["e", *(f"e\x011.{n}" for n in range(3)), "e\x012.0", "e\x012.1"]
    row = put(ports, key, 3, b"small", row)
    assert _items(features, key) == ["e", "e\x012.0", "e\x012.1"]
    put(ports, key, 4, b"small", row)
    assert _items(features, key) == ["e"]


class _Between(DynamoFeatures):
    """Has something done between the read of a row and that of its pieces, `times` times."""

    def __init__(self, store: Store, name: str, action: Any, times: int) -> None:
        super().__init__(store, name)
        self._action, self._times = action, times

    def _whole(self, key: Key, item: Any) -> StateRow | None:
        if self._times:
            self._times -= 1
            self._action()
        return super()._whole(key, item)


def test_a_reader_sees_one_row_whole_however_often_it_is_replaced_meanwhile(
    store: Store, pieces: tuple[Ports, DynamoFeatures]
) -> None:
    ports, features = pieces
    key = key_of(log_id())
    rows = [put(ports, key, 1, large(1, 2))]

    def replace_twice() -> None:  # so that the pieces that the reader looks for are gone
        for _ in range(2):
            as_of = rows[-1].as_of + 1
            rows.append(put(ports, key, as_of, large(as_of, 2), rows[-1]))

    reader = _Between(store, features._table, replace_twice, times=2)
    row = reader.get([key])[key]
    assert (row.as_of, row.data) == (5, large(5, 2))
    listed = _Between(store, features._table, replace_twice, times=1)
    assert [(row.as_of, row.data) for row in listed.rows(key.log_id, GENERATION)] == [(7, large(7, 2))]


def test_a_piece_that_is_gone_for_good_is_damage(pieces: tuple[Ports, DynamoFeatures]) -> None:
    ports, features = pieces
    key = key_of(log_id(), "e")
    put(ports, key, 1, large(1, 2))
    gone = {"id": table._item_key(key)["id"], "part": {"S": "e\x011.1"}}
    features._store.delete(features._table, [gone])
    with pytest.raises(Damaged, match="pieces of a row are missing"):
        features.get([key])


def test_a_write_that_lost_leaves_the_row_that_won(ports: Ports) -> None:
    """Two folders write the same events' row: the loser's pieces are those of the winner, or are never named."""
    key = key_of(log_id())
    first = put(ports, key, 1, large(1, 2))
    put(ports, key, 3, large(3, 3), first)
    assert ports.features.put(StateRow(key, 3, large(3, 3)), first) is None
    assert ports.features.put(StateRow(key, 2, large(2, 2)), first) is None
    assert read(ports, key) == (3, large(3, 3))


# Marks.


def test_a_mark_comes_back_as_it_was(ports: Ports) -> None:
    log = log_id()
    assert ports.features.mark(log) is None
    dropped, stopped = (Dropped("old.1.0", 7, 1),), (Stop("bad.2.0", 4, "why"),)
    generations, builds = (GENERATION, "bad.2.0"), (Build("new.3b.0", 2, 5),)
    mark = Mark(log, 2, 9, 100, 4, generations, dropped, builds, stopped, "bad.2.0")
    written = ports.features.put_mark(mark)
    assert written == replace(mark, version=1)
    assert ports.features.mark(log) == written
    assert ports.features.mark(log_id()) is None


def test_a_mark_is_written_only_in_place_of_the_one_that_was_read(ports: Ports) -> None:
    log = log_id()
    fresh = Mark(log, 0, 3)
    assert ports.features.put_mark(replace(fresh, version=1)) is None, "there is none"
    first = ports.features.put_mark(fresh)
    assert first is not None
    assert ports.features.put_mark(fresh) is None, "there is one"
    assert ports.features.put_mark(replace(first, folded=5)) == Mark(log, 0, 5, version=2)
    assert ports.features.put_mark(replace(first, folded=4)) is None, "another folder has written since"
    assert ports.features.mark(log) == Mark(log, 0, 5, version=2)


# Removal.


def test_a_generation_is_removed_in_parts(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "PURGED_AT_ONCE", 40)
    log = log_id()
    keys = [key_of(log, f"user{number}") for number in range(60)]
    kept = [key_of(log, "user1", "spend.4.0"), key_of(log_id(), "user1")]
    for key in (*keys, *kept):
        put(ports, key, 1, b"")
    assert not ports.features.remove(log, GENERATION)
    assert len(ports.features.get(keys)) == 20
    assert ports.features.remove(log, GENERATION)
    assert ports.features.remove(log, GENERATION)
    assert not ports.features.get(keys)
    assert ports.features.get(kept).keys() == set(kept)


def test_a_purge_removes_every_generation_that_a_mark_knows_and_the_mark_last(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "PURGED_AT_ONCE", 40)
    log, other = log_id(), log_id()
    keys = [key_of(log, f"user{number}", GENERATION if number % 2 else "old.1.0") for number in range(100)]
    for key in (*keys, key_of(other)):
        put(ports, key, 1, b"")
    for one in (log, other):
        ports.features.put_mark(Mark(one, 0, 1, generations=(GENERATION,), dropped=(Dropped("old.1.0", 0),)))
    runs = 0
    while not ports.features.purge(log):
        runs += 1
        assert ports.features.mark(log) is not None, "it says which rows are left"
        assert runs < 10, "each run removes some"
    assert runs
    assert not ports.features.get(keys)
    assert ports.features.mark(log) is None
    assert ports.features.purge(log)
    assert read(ports, key_of(other)) == (1, b"")
    assert ports.features.mark(other) is not None


def test_entities_are_spread_over_the_partitions_of_their_generation() -> None:
    log = log_id()
    used = {table._item_key(key_of(log, f"user{number}"))["id"]["S"] for number in range(200)}
    assert used == {f"{log}#{GENERATION}#{shard}" for shard in SHARDS}


def test_the_stores_of_a_process_have_the_table(store: Store) -> None:
    stores = dynamodb_stores(store, memory_stores().objects)
    assert isinstance(stores.tables[table.TABLE], DynamoFeatures)
