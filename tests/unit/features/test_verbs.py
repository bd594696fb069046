"""Pushes, registrations, folds and reads, by any number of processes."""

from __future__ import annotations

import pytest

from headrace.errors import InvalidRequest, PayloadTooLarge
from headrace.features.errors import (
    EventNotFound,
    EventRefused,
    FeatureNotFound,
    ForceRequired,
    KeyRefused,
    RegistrationError,
    ResetDisabled,
    TableNotFound,
)
from headrace.features.rows import AsOf
from headrace.features.values import DryRun, GetRequest
from headrace.features.verbs import Features
from tests.unit.features.world import NS, World, event, table, tx


@pytest.fixture
def world() -> World:
    """A namespace with an event and a table."""
    return World(event(), table())


def test_a_read_shows_every_push_that_was_acknowledged_before(world: World) -> None:
    other = world.other()
    for number in range(1, 8):
        world.push(tx(amount=number))
        expected = {"c": number, "s": sum(range(number + 1))}
        assert world.get(by=other) == world.get() == expected
        if number % 3 == 0:
            assert world.fold().is_done
            assert world.get(by=other) == world.get(by=world.other()) == expected


def test_what_is_unknown_is_not_found(world: World) -> None:
    with pytest.raises(EventNotFound):
        world.push(event="Other")
    for name in ("Other", "Tx"):
        with pytest.raises(TableNotFound):
            world.get(table=name)
    with pytest.raises(FeatureNotFound):
        world.get(features=["c", "zz"])
    with pytest.raises(KeyRefused):
        world.get(key=["a", "b"])
    assert world.get(key="nobody") == {}
    assert world.get(features=[]) == {}


def test_an_event_that_does_not_fit_is_refused_and_changes_nothing(world: World) -> None:
    for data in ({"user": "a"}, {**tx(), "x": 1}, {**tx(), "n": "1"}, [], None, {**tx(), "n": 2**70}):
        with pytest.raises(EventRefused):
            world.api.push(NS, "Tx", [data])
    assert world.get() == {}
    assert world.as_of().lanes == {("Tx", 0): 0}


def test_acknowledgements_rise_and_say_where_the_event_is(world: World) -> None:
    acks = [world.push(by=by) for by in (world.api, world.other(), world.api)]
    assert [ack.end for ack in acks] == [1, 2, 3]
    numbers = [ack.ack_lsn for ack in acks]
    assert numbers == sorted(set(numbers))
    assert {ack.registry_version for ack in acks} == {1}
    assert world.as_of().lanes == {("Tx", 0): 3}


def test_a_batch_is_added_whole_or_not_at_all(world: World) -> None:
    ack = world.api.push(NS, "Tx", [tx(amount=1), tx(user="b"), tx(amount=4)])
    assert ack.end == 3
    with pytest.raises(EventRefused):
        world.api.push(NS, "Tx", [tx(), {**tx(), "n": "1"}])
    with pytest.raises(InvalidRequest):
        world.api.push(NS, "Tx", [])
    with pytest.raises(PayloadTooLarge):
        world.api.push(NS, "Tx", [tx()] * 10_001)
    assert (world.get(), world.get("b")) == ({"c": 2, "s": 5.0}, {"c": 1, "s": 1.0})


def test_requests_of_one_call_have_one_time_and_one_prefix(world: World) -> None:
    world.push(tx())
    requests = [
        GetRequest("U", "a"),
        GetRequest("No", "a"),
        GetRequest("U", ["a", 1]),
        GetRequest("U", "b"),
        GetRequest("U", ["a"]),
    ]
    answers = world.api.get(NS, requests)
    first, unknown, malformed, absent, again = answers.rows
    assert first == again == {"c": 1, "s": 1.0}
    assert absent == {}
    assert isinstance(unknown, TableNotFound)
    assert isinstance(malformed, KeyRefused)
    assert answers.as_of == AsOf(world.clock.now_ms(), {("Tx", 0): 1})


def test_registrations_are_incremental_and_what_drops_state_needs_force(world: World) -> None:
    world.push(tx(amount=3))
    world.fold()
    added = world.register(table("ByN", keys=["n"]))
    assert (added.version, added.added, added.already_present) == (2, ["ByN"], [])
    assert [node.name for node in added.registry.nodes] == ["Tx", "U", "ByN"]
    assert world.register(event(), table()).added == []
    world.push(tx(amount=4))
    assert (world.get(), world.get("1", "ByN")) == ({"c": 2, "s": 7.0}, {"c": 1, "s": 4.0})

    changed = table(c="count", s=("sum", {"field": "n"}))
    with pytest.raises(ForceRequired) as refused:
        world.register(changed)
    assert refused.value.version == 2
    tried = world.register(changed, dry_run=True)
    assert isinstance(tried, DryRun)
    assert tried.diff["destructive"]
    assert world.get() == {"c": 2, "s": 7.0}
    assert world.register(changed, force=True).version == 3
    assert world.get(by=world.other()) == world.get() == {}
    world.push(tx(n=5))
    assert world.get() == {"c": 1, "s": 5.0}
    assert world.get("1", "ByN") == {"c": 1, "s": 4.0}


def test_an_added_feature_begins_empty_and_the_others_go_on(world: World) -> None:
    for number in range(3):
        world.push(tx(amount=number))
        if number == 1:
            world.fold()
    world.register(table(c="count", s=("sum", {"field": "amount"}), m=("max", {"field": "amount"})))
    assert world.get() == {"c": 3, "s": 3.0, "m": None}
    world.push(tx(amount=0.5))
    for _ in range(2):
        assert world.get(by=world.other()) == world.get() == world.naive("a") == {"c": 4, "s": 3.5, "m": 0.5}
        world.fold()


def test_a_registration_that_is_refused_changes_nothing(world: World) -> None:
    with pytest.raises(RegistrationError) as refused:
        world.register(event("New"), table("Bad", upstream="Nope"))
    assert (refused.value.path, refused.value.version) == ("nodes[1].upstreams[0]", 1)
    assert [node.name for node in world.api.registry(NS).registry.nodes] == ["Tx", "U"]
    with pytest.raises(EventNotFound):
        world.push(event="New")


def test_a_reset_removes_everything_and_the_version_rises(world: World) -> None:
    world.push()
    world.fold()
    with pytest.raises(ResetDisabled):
        Features(world.stores).reset(NS)
    assert world.api.reset(NS) == 2
    for by in (world.api, world.other()):
        with pytest.raises(TableNotFound):
            world.get(by=by)
        with pytest.raises(EventNotFound):
            world.push(by=by)
    assert world.register(event(lanes=2, lane_key="user"), table()).version == 3
    assert world.get() == {}
    world.push()
    assert world.get(by=world.other()) == {"c": 1, "s": 1.0}


def test_namespaces_are_apart(world: World) -> None:
    world.api.register("other", {"nodes": [event(), table()]})
    world.push()
    assert world.api.get("other", [GetRequest("U", "a")]).rows == [{}]
    assert world.api.registry("third").state.version == 0


def test_events_of_several_lanes_meet_in_rows_of_their_own_lane() -> None:
    world = World(event(lanes=4, lane_key="user"), table(), table("UN", keys=["n", "user"]))
    users = [f"u{number}" for number in range(12)]
    lanes = {world.push(tx(user=user, n=number % 2)).lane for number, user in enumerate(users * 2)}
    assert lanes == {0, 1, 2, 3}
    for _ in range(2):
        for user in users:
            assert world.get(user, by=world.other()) == world.get(user) == {"c": 2, "s": 2.0}
        assert world.get(["1", "u1"], "UN") == {"c": 2, "s": 2.0}
        for number in range(4):
            world.fold(number=number)
    with pytest.raises(InvalidRequest):
        world.api.push(NS, "Tx", [tx(user=user) for user in users])


def test_a_dedupe_value_counts_once_within_its_window() -> None:
    world = World(event(dedupe_key="n", dedupe_window_ms=60_000), table())
    first = world.push(tx(n=7))
    again = world.push(tx(n=7, amount=99), by=world.other())
    assert (again.is_replay, again.ack_lsn, again.registry_version) == (True, first.ack_lsn, first.registry_version)
    assert world.get() == {"c": 1, "s": 1.0}
    assert not world.push(tx(n=8)).is_replay
    world.clock.advance(60)
    assert not world.push(tx(n=7), by=world.other()).is_replay
    assert world.get() == {"c": 3, "s": 3.0}
    batch = world.api.push(NS, "Tx", [tx(n=7), tx(n=9)])
    assert (batch.is_replay, world.get()["c"]) == (False, 4)
    with pytest.raises(InvalidRequest):
        world.api.push(NS, "Tx", [tx(n=number) for number in range(91)])


def test_a_stale_read_costs_no_tail_and_shows_what_is_folded(world: World) -> None:
    world.push()
    world.fold()
    assert world.get() == {"c": 1, "s": 1.0}
    world.push(by=world.other())
    assert world.get(stale=True) == {"c": 1, "s": 1.0}
    assert world.get() == {"c": 2, "s": 2.0}


def test_a_stale_answer_names_no_events_since_each_row_may_have_others(world: World) -> None:
    world.push()
    world.fold()
    world.push()
    answer = world.api.get(NS, [GetRequest("U", "a")], stale=True)
    assert (answer.rows, answer.as_of.lanes) == ([{"c": 1, "s": 1.0}], {})
    assert answer.as_of.now_ms >= world.clock.now_ms()


def test_a_process_that_knows_another_order_of_a_key_reads_the_lane_of_the_new_one() -> None:
    fields = {"user": "str", "shop": "str"}
    world = World(event(fields=fields, lanes=2, lane_key="user"), table(keys=["user", "shop"], c="count"))
    others = {f"u{number}": world.other() for number in range(8)}
    assert all(world.get([user, "x"], by=other) == {} for other in others.values() for user in others)
    world.register(table(keys=["shop", "user"], c="count"), force=True)
    for user in others:
        world.push({"user": user, "shop": "x"})
    assert [world.get(["x", user], by=other) for user, other in others.items()] == [{"c": 1}] * 8


def test_a_row_forgets_what_left_its_windows_and_a_cold_row_is_absent() -> None:
    world = World(event(cold_after_ms=60_000), table(c=("count", {"window": "1m"})))
    world.push()
    world.fold()
    assert world.get() == {"c": 1}
    world.clock.advance(61)
    assert world.get() == {"c": 0}
    world.clock.advance(60)
    assert world.get() == {}
    world.push()
    assert world.get() == {"c": 1}


def test_a_global_table_has_one_row(world: World) -> None:
    world.register(table("All", keys=[]))
    world.push(tx(user="a"))
    world.push(tx(user="b"))
    assert world.get("", "All") == {"c": 2, "s": 2.0}
    world.fold()
    assert world.get([], "All") == {"c": 2, "s": 2.0}


def test_a_process_that_knows_an_older_key_reads_rows_of_the_new_one(world: World) -> None:
    other = world.other()
    world.push(tx(n=3))
    assert world.get(by=other) == {"c": 1, "s": 1.0}
    world.register(table(keys=["user", "n"]), force=True)
    world.push(tx(n=3))
    assert world.get("a|3", by=other) == {"c": 1, "s": 1.0}
    with pytest.raises(KeyRefused):
        world.get("a", by=other)


def test_a_process_that_knows_an_older_type_of_a_key_reads_the_row_of_the_new_one() -> None:
    world = World(event(fields={"user": "f64"}), table(c="count"))
    other = world.other()
    world.push({"user": 1.0})
    assert world.get("1.0", by=other) == {"c": 1}
    world.register(event(fields={"user": "str"}), force=True)
    world.push({"user": "1.0"})
    assert world.get("1.0", by=other) == {"c": 1}, "as a number its name would be that of 1"


def test_a_stale_read_knows_features_that_were_registered_before(world: World) -> None:
    other = world.other()
    assert world.get(by=other, stale=True) == {}
    world.register(table(c="count", new="count"), force=True)
    assert world.get(by=other, stale=True, features=["new"]) == {}


def test_a_stale_read_goes_by_no_picture_that_is_older_than_a_minute(world: World) -> None:
    other = world.other()
    world.push()
    world.fold()
    assert world.get(by=other, stale=True) == {"c": 1, "s": 1.0}
    world.register(table(c=("sum", {"field": "amount"})), force=True)
    world.push()
    world.fold()
    assert world.get(by=other, stale=True) == {"c": 1, "s": 1.0}
    world.clock.advance(61)
    assert world.get(by=other, stale=True) == {"c": 1.0}


def test_an_event_with_fewer_lanes_after_a_reset_takes_batches_from_every_process() -> None:
    world = World(event(lanes=4, lane_key="user"), table())
    other = world.other()
    users = [tx(user=f"u{number}") for number in range(12)]
    with pytest.raises(InvalidRequest):
        other.push(NS, "Tx", users)
    world.api.reset(NS)
    world.register(event(), table())
    other.push(NS, "Tx", users)
    assert world.get("u3", by=other) == {"c": 1, "s": 1.0}


def test_an_empty_registration_is_no_change_also_where_nothing_is_registered() -> None:
    world = World()
    answer = world.register()
    assert (answer.version, answer.added, answer.registry.nodes) == (0, [], ())
    assert world.api.registry(NS).state.version == 0
