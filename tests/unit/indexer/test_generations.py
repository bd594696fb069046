"""Old generations of an index manifest go, and nobody who reads or verifies the log notices."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from functions.indexer.retire import remove_generations
from headrace.errors import Damaged, StoreThrottled, StoreTimeout
from headrace.index.manifest import IndexManifestStore
from headrace.manifest.store import KEPT_MS, outdated
from headrace.objects import keys
from headrace.recovery.bucket import check_indexes
from headrace.recovery.report import Notes
from tests.unit.indexer.world import World

HOUR_S = 3600


def built(generations: int, every_s: int) -> tuple[World, str]:
    """Returns a log with so many generations, made one after another."""
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id, 2)
    world.settle(log_id)
    while (newest := world.indexer.indexes.newest(log_id)).generation < generations:
        world.wait(every_s)
        following = replace(newest, generation=newest.generation + 1, created_ms=world.indexer.now_ms())
        assert world.indexer.publish(following, world.indexer.look())
    return world, log_id


def standing(world: World, log_id: str) -> list[int]:
    return world.indexer.indexes.standing(log_id)


def problems(world: World, log_id: str) -> list[str]:
    """Returns what `headrace verify` says of the generations; the runs of this world are made up."""
    notes = Notes(log_id)
    check_indexes(world.objects, notes, world.keys(log_id), world.indexer.now_ms())
    return [one.kind for one in notes.findings if one.where.startswith(keys.index_manifests(log_id))]


def test_generations_go_a_day_after_they_were_replaced_but_the_first_and_the_newest() -> None:
    world, log_id = built(30, HOUR_S)
    assert standing(world, log_id) == list(range(1, 31))
    # The newest was made now. The 6th, 24 hours old, replaced the 5th.
    assert remove_generations(world.indexer, log_id) == 4
    assert standing(world, log_id) == [1, *range(6, 31)]
    assert remove_generations(world.indexer, log_id) == 0
    world.wait(100 * HOUR_S)
    assert remove_generations(world.indexer, log_id) == 24
    assert standing(world, log_id) == [1, 30]
    assert problems(world, log_id) == []


@given(
    ages=st.lists(st.integers(0, 100), max_size=40).map(lambda ages: sorted(ages, reverse=True)),
    gone=st.sets(st.integers(2, 40)),
)
def test_what_goes_was_replaced_before_and_what_stays_may_be_in_hand(ages: Sequence[int], gone: set[int]) -> None:
    made = {number: 100 - age for number, age in enumerate(ages, 1) if number not in gone}
    numbers = sorted(made)
    doomed = outdated(numbers, made.__getitem__, 50, 40)
    for number, following in zip(numbers, [*numbers[1:], None], strict=False):
        is_outdated = following is not None and made[following] <= 50
        assert (number in doomed) == (is_outdated and number != 1)


def test_a_log_without_an_index_has_nothing_to_remove() -> None:
    world = World()
    log_id = world.create("a")
    assert remove_generations(world.indexer, log_id) == 0


def test_readers_find_the_newest_over_the_gap() -> None:
    world, log_id = built(30, HOUR_S)
    store = IndexManifestStore(world.objects)
    held = store.load(log_id, 3)
    world.wait(100 * HOUR_S)
    remove_generations(world.indexer, log_id)
    assert store.newest(log_id).generation == 30
    assert store.newest(log_id, held, 30).generation == 30
    assert store.newest(log_id, held, 20).generation == 30, "the generation that was named is gone"
    assert world.stores.watermarks.get(log_id).index_generation == 30


def test_the_watermark_names_the_newest_before_others_go() -> None:
    world, log_id = built(5, HOUR_S)
    newest = world.indexer.indexes.newest(log_id)
    late = replace(newest, generation=6, created_ms=world.indexer.now_ms())
    assert world.indexer.indexes.publish(late), "and its publisher died before the watermark was raised"
    world.wait(100 * HOUR_S)
    remove_generations(world.indexer, log_id)
    assert world.stores.watermarks.get(log_id).index_generation == 6


def test_a_removal_that_broke_off_is_no_damage_and_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    world, log_id = built(10, HOUR_S)
    world.wait(100 * HOUR_S)
    some = [keys.index_manifest(log_id, number) for number in (2, 5, 6)]

    def breaks_off(keys_: Sequence[str]) -> None:
        world.objects.delete(some)
        raise StoreTimeout("delete")

    with monkeypatch.context() as patched:
        patched.setattr(world.indexer.stores.objects, "delete", breaks_off)
        with pytest.raises(StoreTimeout):
            remove_generations(world.indexer, log_id)
    assert standing(world, log_id) == [1, 3, 4, 7, 8, 9, 10]
    assert problems(world, log_id) == []
    assert remove_generations(world.indexer, log_id) == 5
    assert standing(world, log_id) == [1, 10]


def test_an_indexer_whose_host_slept_for_days_publishes_no_generation_again() -> None:
    world, log_id = built(3, HOUR_S)
    began, newest = world.indexer.look(), world.indexer.indexes.newest(log_id)
    late = replace(newest, generation=4, created_ms=world.indexer.now_ms())
    for generation in (4, 5):
        world.wait(48 * HOUR_S)
        following = replace(newest, generation=generation, created_ms=world.indexer.now_ms())
        assert world.indexer.publish(following, world.indexer.look())
    world.wait(48 * HOUR_S)
    remove_generations(world.indexer, log_id)
    assert standing(world, log_id) == [1, 5], "the fourth is free"
    with pytest.raises(StoreThrottled):
        world.indexer.publish(late, began)
    assert standing(world, log_id) == [1, 5]


@pytest.mark.parametrize(("missing", "is_told"), [(1, True), (3, False), (6, True), (9, True)])
def test_a_generation_that_must_stand_is_missed(missing: int, is_told: bool) -> None:
    world, log_id = built(5, 1)
    world.wait(KEPT_MS // 1000)
    newest = world.indexer.indexes.newest(log_id)
    for generation in range(6, 11):  # the 5th is a day old, these are not
        made = replace(newest, generation=generation, created_ms=world.indexer.now_ms())
        assert world.indexer.publish(made, world.indexer.look())
    world.objects.delete([keys.index_manifest(log_id, missing)])
    assert problems(world, log_id) == (["index.missing"] if is_told else [])


def test_a_damaged_generation_stops_the_removal() -> None:
    world, log_id = built(10, HOUR_S)
    world.wait(100 * HOUR_S)
    for number in range(2, 10):
        world.objects.put(keys.index_manifest(log_id, number), b"?")
    with pytest.raises(Damaged):
        remove_generations(world.indexer, log_id)
    assert standing(world, log_id) == list(range(1, 11))
