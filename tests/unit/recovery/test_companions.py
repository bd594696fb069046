"""Names with companions through disasters: every log of a name comes back with it, or ends with it."""

from __future__ import annotations

import pytest

from functions.sealer.purge import purge
from functions.sealer.seal import seal
from headrace.errors import NotFound
from headrace.log.requests import At
from headrace.log.seam import Which
from headrace.objects import keys
from headrace.recovery.recover import recover
from headrace.recovery.verify import verify
from headrace.tables.catalog import Row
from headrace.wal.state import BEGINNING
from tests.support.pairs import NOTES, PAIRS
from tests.unit.recovery.world import AGE_S, Ruins
from tests.unit.sealer.test_crashes import each_call, fails
from tests.unit.sealer.world import Dies, Hook

BOTH = ["", NOTES]


def fill(world: Ruins, *sealed: str) -> Row:
    """A pair with two records in each log; those of the roles in `sealed` are published."""
    row = world.pairs.create("p")
    for role in BOTH:
        world.pairs.append(("p", role), b"1", b"2")
    for role in sealed:
        log = row.log(role)
        assert log is not None
        world.seal(log.log_id)
    return row


def records(world: Ruins, which: Which) -> list[bytes]:
    """Everything in a log."""
    return world.pairs.log.read(which, At(cursor=BEGINNING), touch=False).data


def settle(world: Ruins) -> None:
    """A recovery has nothing more to do, and verification finds nothing."""
    assert not world.recover().changed
    assert world.verify().clean


@pytest.mark.parametrize("sealed", [["", NOTES], [NOTES], [""]])
def test_every_log_of_a_name_comes_back_as_far_as_it_was_published(sealed: list[str]) -> None:
    world = Ruins()
    row = fill(world, *sealed)
    assert world.verify().clean
    world.lose_tables()
    recovered = world.recovered()
    assert [recovered[one.log_id].status for one in row.logs] == ["restored", "restored"]
    assert [recovered[one.log_id].name for one in row.logs] == ["p", "p (notes)"]
    standing = world.stores.catalog.get(PAIRS, "p")
    assert standing is not None and standing.logs == row.logs
    for role in BOTH:
        assert records(world, ("p", role)) == ([b"1", b"2"] if role in sealed else [])
        world.pairs.append(("p", role), b"3")
        assert records(world, ("p", role))[-1] == b"3"
    settle(world)


def test_a_companion_that_only_its_own_objects_and_its_main_log_tell_of_comes_back() -> None:
    world = Ruins()
    row = fill(world, "")
    notes = row.log(NOTES)
    assert notes is not None
    world.stores.objects.put(keys.payload(notes.log_id, 0, "nonce"), b"of an entry that was lost")
    world.lose_tables()
    recovered = world.recovered()
    assert [recovered[one.log_id].status for one in row.logs] == ["restored", "restored"]
    assert (records(world, "p"), records(world, ("p", NOTES))) == ([b"1", b"2"], [])
    assert not world.recover().changed


def test_a_name_whose_row_is_lost_gets_it_back() -> None:
    world = Ruins()
    row = fill(world, NOTES)
    world.lose_catalog()
    assert world.kinds() == {"catalog.missing", "watermark.behind", "counter.differs"}
    recovered = world.recovered()
    assert recovered[row.log_id].wrote == ("entry", "row")
    assert world.stores.catalog.get(PAIRS, "p") == row
    assert records(world, ("p", NOTES)) == records(world, "p") == [b"1", b"2"]
    settle(world)


def test_a_purged_name_stays_gone() -> None:
    world = Ruins()
    row = fill(world, *BOTH)
    world.pairs.log.delete("p")
    world.wait(AGE_S)
    assert purge(world.parts, row.log_id)
    assert world.verify().clean
    world.lose_tables()
    recovered = world.recovered()
    assert {recovered[one.log_id].status for one in row.logs} == {"ended"}
    with pytest.raises(NotFound):
        world.pairs.append(("p", NOTES), b"1")
    settle(world)


def test_a_name_whose_companion_was_purged_has_ended() -> None:
    world = Ruins()
    row = fill(world, *BOTH)
    main = set(world.keys(row.log_id))
    world.pairs.log.delete("p")
    world.wait(AGE_S)
    kept = {key: world.objects.get(key) for key in main}
    assert purge(world.parts, row.log_id)
    for key, data in kept.items():  # as if the purge had died between the two logs, and then the tables were lost
        world.objects.put(key, data)
    world.objects.delete([keys.tombstone(row.log_id)])
    world.lose_tables()
    world.recover()
    for one in row.logs:
        newest = world.wal.newest(one.log_id)
        assert newest is not None and newest.state.ended == "deleted"
    world.wait(AGE_S)
    assert purge(world.parts, row.log_id)
    assert {key.rpartition("/")[2] for one in row.logs for key in world.keys(one.log_id)} == {
        "deleted.json",
        "log.json",
    }
    settle(world)


@pytest.mark.parametrize("lost", [0, 1])
def test_an_end_that_one_log_has_forgotten_is_that_of_the_name(lost: int) -> None:
    world = Ruins()
    row = fill(world, *BOTH)
    world.pairs.log.delete("p")
    newest = world.wal.newest(row.logs[lost].log_id)
    assert newest is not None
    world.wal.remove(newest.log_id, [newest.slot])
    world.lose_catalog()
    world.recover()
    for one in row.logs:
        end = world.wal.newest(one.log_id)
        assert end is not None and end.state.ended == "deleted"
    settle(world)


def test_logs_of_a_name_that_was_created_again_are_left_alone() -> None:
    world = Ruins()
    old = fill(world, *BOTH)
    world.pairs.log.delete("p")
    new = fill(world, *BOTH)
    world.lose_tables()
    recovered = world.recovered()
    assert {recovered[one.log_id].status for one in old.logs} == {"superseded"}
    assert {recovered[one.log_id].status for one in new.logs} == {"restored"}
    standing = world.stores.catalog.get(PAIRS, "p")
    assert standing is not None and standing.logs == new.logs
    assert not world.recover().changed


def test_a_rewound_name_gets_a_new_incarnation_in_every_log() -> None:
    world = Ruins()
    row = fill(world, *BOTH)
    before = world.snapshot()
    world.pairs.append(("p", NOTES), b"lost")
    world.rewind(before)
    recovered = world.recovered(rewound=True)
    assert {recovered[one.log_id].incarnation for one in row.logs} == {world.seconds()}
    assert world.verify().clean


def test_a_companion_without_its_main_log_is_refused() -> None:
    world = Ruins()
    row = fill(world, *BOTH)
    world.lose_tables()
    world.objects.delete(world.keys(row.log_id))
    recovered = world.recovered()
    assert recovered[row.companions[0].log_id].status == "refused"
    assert "main log" in recovered[row.companions[0].log_id].reason


@pytest.mark.parametrize("after", [False, True])
def test_a_companion_whose_first_seal_died_anywhere_is_not_refused(after: bool) -> None:
    def run(hook: Hook) -> bool:
        world = Ruins()
        (notes,) = fill(world).companions
        died = fails(lambda parts: seal(parts, notes.log_id, force=True), world.watched(hook))
        world.lose_tables()
        assert world.recover().clean
        assert not world.recover().changed
        assert {one.kind for one in world.verify().findings} <= {"bucket.orphan"}
        return died

    assert each_call(lambda at: Dies(at, after=after), run) > 10


@pytest.mark.parametrize("after", [False, True])
def test_a_companion_that_a_recovery_published_before_it_died_is_not_refused(after: bool) -> None:
    def run(hook: Hook) -> bool:
        world = Ruins()
        row = fill(world)
        world.lose_tables()
        world.wal.catalog.rows[PAIRS, "p"] = row
        died = fails(lambda parts: recover(parts.stores), world.watched(hook))
        world.lose_tables()
        assert world.recover().clean
        settle(world)
        return died

    assert each_call(lambda at: Dies(at, after=after), run) > 10


def test_verification_looks_at_every_log_of_a_name() -> None:
    world = Ruins()
    row = fill(world)
    (notes,) = row.companions
    assert [log.name for log in world.verify().logs] == ["p", "p (notes)"]
    world.wal.remove(notes.log_id, [entry.slot for entry in world.entries(notes.log_id)])
    assert {(one.kind, one.log_id) for one in world.verify().findings} == {("wal.empty", notes.log_id)}
    assert verify(world.stores, row.log_id).clean
