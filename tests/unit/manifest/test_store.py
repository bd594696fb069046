"""Publication has one winner, a lost answer is found again, and reads load few pages."""

from __future__ import annotations

import threading

import msgspec
import pytest

from headrace.errors import Damaged
from headrace.manifest import manifest as manifests
from headrace.manifest.manifest import Manifest, encode
from headrace.manifest.store import ManifestStore
from headrace.objects import keys
from headrace.objects.memory import MemoryObjects
from tests.support.shaky import ShakyObjects
from tests.unit.manifest.samples import CLOSED, LOG, START_MS, controlled, grown


def rival_of(manifest: Manifest) -> Manifest:
    return msgspec.structs.replace(manifest, created_ms=manifest.created_ms + 1)


def test_what_is_published_is_loaded() -> None:
    objects = MemoryObjects()
    one = grown(None, 5)
    assert ManifestStore(objects).publish(one)
    assert ManifestStore(objects).load(LOG, 1) == one
    assert ManifestStore(objects).load(LOG, 2) is None


def test_of_two_publishers_one_wins() -> None:
    objects = MemoryObjects()
    one = grown(None, 5)
    assert ManifestStore(objects).publish(one)
    assert not ManifestStore(objects).publish(rival_of(one))
    assert ManifestStore(objects).load(LOG, 1) == one


def test_of_many_publishing_threads_one_wins() -> None:
    objects = MemoryObjects()
    ManifestStore(objects).publish(one := grown(None, 5))
    rivals = [msgspec.structs.replace(grown(one, 3), created_ms=START_MS + number) for number in range(8)]
    won: list[Manifest] = []
    barrier = threading.Barrier(len(rivals))

    def publish(mine: Manifest) -> None:
        barrier.wait()
        if ManifestStore(objects).publish(mine):
            won.append(mine)

    threads = [threading.Thread(target=publish, args=(mine,)) for mine in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [ManifestStore(objects).load(LOG, 2)]


def test_a_lost_answer_is_found_again() -> None:
    objects = ShakyObjects()
    objects.creates = ["lost after"]
    assert ManifestStore(objects).publish(one := grown(None, 5))
    assert ManifestStore(objects).load(LOG, 1) == one


def test_a_lost_answer_to_the_loser_is_a_loss() -> None:
    objects = ShakyObjects()
    one = grown(None, 5)
    ManifestStore(objects).publish(one)
    objects.creates = ["lost after"]
    assert not ManifestStore(objects).publish(rival_of(one))


def test_what_breaks_a_rule_is_not_published() -> None:
    objects = MemoryObjects()
    store = ManifestStore(objects)
    store.publish(one := grown(None, 5))
    two = grown(one, 3)
    before = list(objects.list(""))
    for wrong in (msgspec.structs.replace(two, end_offset=9), msgspec.structs.replace(two, generation=3)):
        with pytest.raises(Damaged):
            store.publish(wrong)
    assert list(objects.list("")) == before


def test_the_newest_is_found_from_any_start() -> None:
    objects = MemoryObjects()
    store = ManifestStore(objects)
    assert store.newest(LOG, None, 0) is None
    made = [grown(None, 5)]
    made += [grown(made[0], 2)]
    made += [controlled(made[1], extension=CLOSED)]
    for manifest in made:
        assert store.publish(manifest)
    for known in (None, *made):
        for at_least in range(4):
            assert ManifestStore(objects).newest(LOG, known, at_least) == made[-1]
    with pytest.raises(Damaged, match="missing"):
        ManifestStore(objects).newest(LOG, made[0], 4)


def test_what_was_loaded_is_not_loaded_again() -> None:
    objects = ShakyObjects()
    store = ManifestStore(objects)
    store.publish(one := grown(None, 5))
    store.publish(grown(one, 2))
    newest = store.newest(LOG, None, 2)
    objects.gets.clear()
    assert store.newest(LOG, newest, 1) == newest
    assert store.newest(LOG, None, 2) == newest
    assert objects.gets == [keys.manifest(LOG, 3)] * 2


def test_a_manifest_in_the_wrong_place_or_altered_is_damaged() -> None:
    objects = MemoryObjects()
    store = ManifestStore(objects)
    one = grown(None, 5)
    objects.put(keys.manifest(LOG, 2), encode(one))
    with pytest.raises(Damaged, match="wrong place"):
        store.load(LOG, 2)
    objects.put(keys.manifest("b" * 32, 1), encode(one))
    with pytest.raises(Damaged, match="wrong place"):
        store.load("b" * 32, 1)
    objects.put(keys.manifest(LOG, 1), encode(msgspec.structs.replace(one, end_offset=4)))
    with pytest.raises(Damaged, match="rule"):
        store.load(LOG, 1)


@pytest.fixture
def paged(monkeypatch: pytest.MonkeyPatch) -> tuple[ShakyObjects, Manifest]:
    """Returns a log of 30 segments in pages of 4."""
    monkeypatch.setattr(manifests, "PAGE_SEGMENTS", 4)
    objects = ShakyObjects()
    store, newest = ManifestStore(objects), None
    for number in range(30):
        newest = grown(newest, 1 + number % 5, objects=objects)
        assert store.publish(newest)
    assert newest is not None
    assert len(newest.pages) == 7
    objects.gets.clear()
    return objects, newest


def test_segments_are_found_from_any_offset_with_the_pages_that_hold_them(
    paged: tuple[ShakyObjects, Manifest],
) -> None:
    objects, newest = paged
    everything = list(ManifestStore(objects).segments_from(newest, 0))
    assert [s.number for s in everything] == list(range(30))
    for offset in range(newest.end_offset + 2):
        store = ManifestStore(objects)
        objects.gets.clear()
        wanted = [s for s in everything if s.end_offset > offset]
        assert next(store.segments_from(newest, offset), None) == (wanted[0] if wanted else None)
        assert len(objects.gets) <= 1
        assert list(store.segments_from(newest, offset)) == wanted
        assert len(objects.gets) == len(set(objects.gets)) == sum(p.end_offset > offset for p in newest.pages)


def test_the_segment_of_a_time_is_found_with_one_page(paged: tuple[ShakyObjects, Manifest]) -> None:
    objects, newest = paged
    everything = list(ManifestStore(objects).segments_from(newest, 0))
    for time_ms in range(START_MS - 1, START_MS + newest.end_offset + 2):
        objects.gets.clear()
        wanted = next((s for s in everything if s.max_time_ms >= time_ms), None)
        assert ManifestStore(objects).segment_for_time(newest, time_ms) == wanted
        assert len(objects.gets) <= 1


def test_an_altered_or_missing_page_is_damaged(paged: tuple[ShakyObjects, Manifest]) -> None:
    objects, newest = paged
    key = newest.pages[2].key
    data = objects.get(key)
    objects.put(key, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(Damaged, match=key):
        list(ManifestStore(objects).segments_from(newest, 0))
    objects.delete([key])
    with pytest.raises(Damaged, match="missing"):
        ManifestStore(objects).segment_for_time(newest, newest.pages[2].max_time_ms)
    assert list(ManifestStore(objects).segments_from(newest, newest.pages[2].end_offset))


def test_few_pages_are_kept(paged: tuple[ShakyObjects, Manifest], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.manifest.store._KEEP_SEGMENTS", 9)
    objects, newest = paged
    store = ManifestStore(objects)
    for _ in range(2):
        assert len(list(store.segments_from(newest, 0))) == 30
    assert len(objects.gets) == 14  # in order, a page is always gone before it is wanted again
    assert len(store._pages._values) == 2
