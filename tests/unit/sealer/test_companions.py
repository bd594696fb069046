"""Names with companions: the sealer ends and removes every log of a name, and the rows in its surface's own table."""

from __future__ import annotations

import msgspec
import pytest

from functions.sealer.audit import audit, sweep
from functions.sealer.handler import hints_by_log
from functions.sealer.purge import Purged, purge
from headrace.clock import Budget
from headrace.errors import Damaged, OutcomeUnknown
from headrace.log.commit import Attempt
from headrace.log.context import Context as LogContext
from headrace.manifest.manifest import Description
from headrace.objects import keys
from headrace.tables.catalog import Row
from headrace.tables.follows import Follow
from tests.support.builders import next_entry
from tests.support.pairs import NOTES, PAIRS, SURFACE
from tests.unit.sealer.test_crashes import each_call, fails
from tests.unit.sealer.world import SETTINGS, Dies, Hook, World, dispatcher

AGE_S = SETTINGS.trim_age_ms / 1000


def fill(world: World) -> Row:
    """A pair with entries, large payloads and segments in both logs."""
    row = world.pairs.create("p")
    for which in ("p", ("p", NOTES)):
        for number in range(5):
            world.pairs.append(which, b"%d" % number, bytes(range(256)) * 20)
    for one in row.logs:
        world.seal(one.log_id)
        world.pairs.append((one.name, one.config.role), b"later")
    return row


def left(world: World, row: Row) -> list[tuple[list[str], list[str], bool]]:
    """Of each log: kinds of its entries, its objects, and whether its surface's table has rows of it."""
    tags = {log_id for log_id, _ in world.wal.tables["tags"].rows}
    return [
        (
            [entry.kind for entry in world.entries(one.log_id)],
            [key.rpartition("/")[2] for key in world.keys(one.log_id)],
            one.log_id in tags,
        )
        for one in row.logs
    ]


GONE = (["delete"], ["deleted.json", "log.json"], False)


def test_a_purge_of_a_main_log_removes_its_companions() -> None:
    world = World()
    row = fill(world)
    other = world.pairs.create("q")
    world.pairs.log.delete("p")
    assert purge(world.parts, row.log_id) == Purged(False, world.clock.now_ms() + SETTINGS.trim_age_ms)
    world.wait(AGE_S)
    assert not purge(world.parts, row.companions[0].log_id)  # its main log's does it
    assert purge(world.parts, row.log_id)
    assert left(world, row) == [GONE, GONE]
    assert {log_id for log_id, _ in world.wal.tables["tags"].rows} == {one.log_id for one in other.logs}
    for one in row.logs:
        (last,) = world.entries(one.log_id)
        assert world.stores.watermarks.get(one.log_id).end_slot >= last.slot
    assert purge(world.parts, row.log_id)  # again, and nothing changes
    assert left(world, row) == [GONE, GONE]
    assert list(world.wal.unpurged(2**62)) == []


def test_the_events_of_an_end_lead_to_the_purge_of_every_log() -> None:
    world = World()
    row = fill(world)
    world.pairs.log.delete("p")
    sealer, _ = dispatcher(world.parts)
    event = world.events(*(one.log_id for one in row.logs))
    assert len(hints_by_log(event["Records"])) == 2
    sealer.on_stream(event["Records"])
    world.wait(AGE_S)
    while messages := world.queue.receive(world.clock.now_ms()):
        sealer.run_each(messages)
    assert left(world, row) == [GONE, GONE]


def test_a_purge_removes_the_read_clock_and_the_followers_of_every_log() -> None:
    world = World()
    row = fill(world)
    other = world.pairs.create("q")
    logs = [one.log_id for one in (*row.logs, *other.logs)]
    for log_id in logs:
        world.stores.sessions.touch(log_id, 5)
    for which in ("p", ("p", NOTES), "q"):
        log_id = world.pairs.log.head(which).log_id
        world.pairs.log.follow(which, Follow(log_id, "router", "r"))
        world.pairs.log.follow(which, Follow(log_id, "bell", "b", until_ms=2**40))
    world.pairs.log.delete("p")
    world.wait(AGE_S)
    assert purge(world.parts, row.log_id)
    assert set(world.stores.sessions.clocks(logs)) == {one.log_id for one in other.logs}
    assert {log_id for log_id, _ in world.wal.follows.rows} == {other.log_id}


@pytest.mark.parametrize("after", [False, True])
def test_a_purge_that_dies_is_finished_by_the_next(after: bool) -> None:
    def run(hook: Hook) -> bool:
        world = World()
        row = fill(world)
        world.pairs.log.delete("p")
        world.wait(AGE_S)
        died = fails(lambda parts: purge(parts, row.log_id), world.watched(hook))
        is_marked = row.log_id in world.wal.unpurged(2**62)
        assert is_marked or left(world, row) == [GONE, GONE], "only the main log's mark brings the purge back"
        assert purge(world.parts, row.log_id)
        assert left(world, row) == [GONE, GONE]
        return died

    assert each_call(lambda at: Dies(at, after=after), run) > 20


def test_a_purge_of_an_old_name_spares_the_logs_of_the_new_one() -> None:
    world = World()
    old = fill(world)
    world.pairs.log.delete("p")
    new = fill(world)
    before = left(world, new)
    world.wait(AGE_S)
    assert purge(world.parts, old.log_id)
    assert left(world, old) == [GONE, GONE]
    assert left(world, new) == before


@pytest.mark.parametrize("role", ["", NOTES])
def test_a_late_writer_is_not_acknowledged_into_a_purged_log(role: str) -> None:
    world = World()
    row = world.pairs.create("p")
    context = LogContext(world.stores, SURFACE)
    picture = context.pictures.look(("p", role))
    late = next_entry(picture.newest)
    world.pairs.append(("p", role), b"1")
    world.pairs.log.delete("p")
    world.wait(AGE_S)
    assert purge(world.parts, row.log_id)
    with pytest.raises(OutcomeUnknown):
        Attempt(context, Budget(world.clock, 3000)).put(late, [], picture.read)
    assert [kinds for kinds, _, _ in left(world, row)] == [["delete"], ["delete"]]


def test_a_companion_that_lives_is_not_removed() -> None:
    world = World()
    row = fill(world)
    newest = [world.wal.newest(one.log_id) for one in row.logs]
    world.pairs.log.delete("p")
    assert newest[1] is not None
    world.wal.remove(row.companions[0].log_id, [newest[1].next_slot()])  # as if it had been restored to before
    world.wait(AGE_S)
    with pytest.raises(Damaged, match="outlived"):
        purge(world.parts, row.log_id)
    assert len(world.entries(row.log_id)) > 1


def test_the_sweep_expires_every_log_of_a_name() -> None:
    world = World()
    row = world.pairs.create("p", ttl_ms=1000)
    world.wait(2)
    assert sweep(world.parts).ended == 1
    assert [kinds[-1] for kinds, _, _ in left(world, row)] == ["expire", "expire"]


def test_the_audit_asks_for_what_events_of_a_companion_missed() -> None:
    world = World()
    row = world.pairs.create("p")
    for one in row.logs:
        world.pairs.append((one.name, one.config.role), b"a")
    world.wait(2 * SETTINGS.seal_age_ms / 1000)
    world.queue.receive(2**60)
    missed, sent = world.audit(audit, world.parts)
    assert sum(missed) == 2
    assert {(message.verb, message.log_id) for message in sent} == {
        (verb, one.log_id) for one in row.logs for verb in ("seal", "orphans")
    }


def test_the_audit_asks_for_a_purge_of_the_main_log_alone() -> None:
    world = World()
    row = world.pairs.create("p")
    kept = world.wal.catalog.rows[PAIRS, "p"]
    world.pairs.log.delete("p")
    world.wal.catalog.rows[PAIRS, "p"] = kept  # as if who deleted it had died before it marked the row
    missed, sent = world.audit(audit, world.parts)
    assert sum(missed) == 1
    assert [(message.verb, message.log_id) for message in sent] == [("purge", row.log_id)]


def test_the_first_generation_of_a_companion_describes_its_main_log() -> None:
    world = World()
    row = world.pairs.create("p")
    (notes,) = row.companions
    world.pairs.append(("p", NOTES), b"1")
    world.seal(notes.log_id)
    for one in row.logs:
        description = msgspec.json.decode(world.objects.get(keys.description(one.log_id)), type=Description)
        assert description == Description(one.log_id, one.config)
