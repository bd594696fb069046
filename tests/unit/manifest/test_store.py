"""Publication has one winner, a lost answer is found again, and reads load few pages."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Damaged
from headrace.log.context import Pictures
from headrace.log.seam import AnySurface
from headrace.manifest import manifest as manifests
from headrace.manifest.invariants import check_whole
from headrace.manifest.manifest import (
    Manifest,
    ManifestPage,
    Parts,
    Replaced,
    describe_page,
    encode,
    encode_page,
    full_page,
    weigh,
    weigh_parts,
)
from headrace.manifest.store import ManifestStore, outdated
from headrace.memory import memory_stores
from headrace.objects import keys
from headrace.objects.memory import MemoryObjects
from headrace.segment.descriptor import PageIndex, Segment
from headrace.wal.state import Producer
from tests.support.shaky import ShakyObjects
from tests.unit.manifest.samples import CLOSED, LOG, START_MS, controlled, data_entry, grown, segment


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
    objects, newest = paged
    kept = sum(weigh_parts(ManifestStore(objects).parts(page)) for page in newest.pages[-2:])
    objects.gets.clear()
    monkeypatch.setattr("headrace.manifest.store._KEEP_BYTES", kept)
    store = ManifestStore(objects)
    for _ in range(2):
        assert len(list(store.segments_from(newest, 0))) == 30
    assert len(objects.gets) == 14  # in order, a page is always gone before it is wanted again
    assert len(store._pages._values) == 2


def test_remembered_generations_are_bounded_by_their_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a store and those of a process's pictures: a heavy one takes the place of several light ones."""
    light, heavy = grown(None, 3), grown(None, *[3] * 200)
    monkeypatch.setattr("headrace.manifest.store._KEEP_BYTES", weigh(heavy) + weigh(light))
    for kept in (ManifestStore(MemoryObjects())._manifests, Pictures(memory_stores(), AnySurface())._manifests):
        for number in range(5):
            kept.put(f"light-{number}", light)
        assert len(kept._values) == 5
        kept.put("heavy", heavy)
        assert set(kept._values) == {"light-4", "heavy"}


def test_a_tree_of_pages_loses_nothing_and_finds_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "PAGE_SEGMENTS", 2)
    monkeypatch.setattr(manifests, "FAN_OUT", 3)
    objects = ShakyObjects()
    store, newest = ManifestStore(objects), None
    for number in range(120):
        newest = grown(newest, 1 + number % 5, objects=objects)
        assert store.publish(newest)  # which checks the rules
        assert len(newest.pages) <= 3 * 4
    assert newest is not None
    assert [page.level for page in newest.pages] == sorted((page.level for page in newest.pages), reverse=True)
    assert newest.pages[0].level == 3
    everything = list(ManifestStore(objects).segments_from(newest, 0))
    assert [one.number for one in everything] == list(range(120))
    for offset in range(0, newest.end_offset + 2, 7):
        objects.gets.clear()
        store = ManifestStore(objects)
        wanted = [one for one in everything if one.end_offset > offset]
        assert next(store.segments_from(newest, offset), None) == (wanted[0] if wanted else None)
        assert len(objects.gets) <= 4
        assert list(store.segments_from(newest, offset)) == wanted
        before = [one for one in everything if one.first_offset < offset]
        assert list(store.segments_before(newest, offset)) == before[::-1]
        objects.gets.clear()
        found = ManifestStore(objects).segment_for_time(newest, START_MS + offset)
        assert found == next((one for one in everything if one.max_time_ms >= START_MS + offset), None)
        assert len(objects.gets) <= 4
    assert sum(page.segment_bytes for page in newest.pages) == sum(page.count for page in newest.pages) * 1000


def wide_segment(number: int) -> Segment:
    """Returns a full segment of 16 MiB with meta, whose lists hold as many and as random numbers as they can."""
    dice = random.Random(number)

    def page_index() -> PageIndex:
        many = 16 * 1024 // 48 + 1
        lists = ([dice.randrange(20_000, 49_152) for _ in range(many)] for _ in range(2))
        return PageIndex(4, tuple(next(lists)), (20,) * many, tuple(next(lists)))

    nonce, sha256, keys_sha256 = dice.randbytes(11).hex(), dice.randbytes(32).hex(), dice.randbytes(32).hex()
    return msgspec.structs.replace(
        segment(number, 10_000 * number, 10_000),
        key=keys.segment(LOG, number, nonce),
        sha256=sha256,
        keys_sha256=keys_sha256,
        pages=page_index(),
        meta=page_index(),
    )


def page_of(parts: Parts, objects: MemoryObjects, nonce: str) -> ManifestPage:
    key, data = keys.manifest_page(LOG, 10**7, nonce), encode_page(parts)
    objects.put(key, data)
    return describe_page(key, data, parts)


def test_a_generation_of_ten_million_segments_takes_64_kib_and_finds_each_with_four_pages() -> None:
    """Built as sealing would have left it, but for pages beside the way to one segment, whose objects do not exist."""
    dice = random.Random(0)
    objects = ShakyObjects()
    per_leaf = next(n for n in range(1, 257) if full_page(holding(tuple(map(wide_segment, range(n))))))
    assert per_leaf < 20
    wanted = 4_321_987  # a segment somewhere in the middle
    leaf = wanted // per_leaf
    way = page_of(tuple(map(wide_segment, range(leaf * per_leaf, (leaf + 1) * per_leaf))), objects, "leaf")

    def beside(like: ManifestPage, at: int) -> ManifestPage:
        """Returns the reference to the page of this level that is number `at` from the left."""
        segments, records = like.count, like.end_offset - like.first_offset
        return msgspec.structs.replace(
            like,
            key=keys.manifest_page(LOG, at, dice.randbytes(11).hex()),
            sha256=dice.randbytes(32).hex(),
            first_number=at * segments,
            first_offset=at * records,
            end_offset=(at + 1) * records,
            min_time_ms=START_MS + at * records,
            max_time_ms=START_MS + (at + 1) * records - 1,
        )

    levels = [way]
    for level in range(1, 4):
        index = levels[-1].first_number // levels[-1].count
        siblings = range(index // 64 * 64, index // 64 * 64 + 64)
        listed = tuple(levels[-1] if at == index else beside(levels[-1], at) for at in siblings)
        levels.append(page_of(listed, objects, f"level-{level}"))
    pages: list[ManifestPage] = []
    number = 0
    for page in reversed(levels):  # as many of each level as fit below ten million
        while number + page.count <= 10_000_000 - per_leaf:
            index = number // page.count
            pages.append(page if page.first_number == number else beside(page, index))
            number += page.count
    open_page = tuple(map(wide_segment, range(number, number + per_leaf - 1)))
    one = holding(open_page, tuple(pages))
    replaced = tuple(Replaced(keys.segment(LOG, n, dice.randbytes(11).hex()), 9, START_MS + n) for n in range(256))
    producers = tuple(Producer(dice.randbytes(16).hex(), 3, n) for n in range(8))
    state = msgspec.structs.replace(one.state, producers=producers)
    one = msgspec.structs.replace(one, replaced=replaced, state=state)
    check_whole(one)
    assert number + len(open_page) > 9_999_900
    most = tuple(beside(level, 100 + at) for level in reversed(levels) for at in range(63))
    assert len(encode(msgspec.structs.replace(one, pages=most))) <= 64 * 1024, "whatever its length"
    assert len(encode(one)) <= 64 * 1024
    assert weigh(one) < 1024 * 1024
    (expected,) = (found for found in ManifestStore(objects).parts(way) if found.first_offset == 10_000 * wanted)
    assert next(ManifestStore(objects).segments_from(one, 10_000 * wanted)) == expected
    assert len(objects.gets) == 5, "four, and one that the test itself asked for"
    objects.gets.clear()
    assert ManifestStore(objects).segment_for_time(one, expected.max_time_ms) == expected
    assert len(objects.gets) == 4
    objects.gets.clear()
    assert next(ManifestStore(objects).segments_before(one, expected.end_offset)) == expected
    assert len(objects.gets) == 4


def holding(open_page: tuple[Segment, ...], pages: tuple[ManifestPage, ...] = ()) -> Manifest:
    """Returns a generation that names these."""
    before = grown(None, 5)
    last = open_page[-1]
    entry = data_entry(before, [last])
    return msgspec.structs.replace(
        before,
        generation=10**7,
        segment_count=last.number + 1,
        end_offset=last.end_offset,
        last_slot=entry.slot,
        end_slot=entry.next_slot(deleting=True),
        state=msgspec.structs.replace(entry.state, append_time_ms=last.max_time_ms),
        pages=pages,
        open_page=open_page,
    )


def aged(numbers: Iterable[int], objects: MemoryObjects) -> dict[int, Manifest]:
    """Publishes generations an hour apart; those outside of `numbers` are removed again."""
    made: dict[int, Manifest] = {}
    for number in range(1, max(numbers) + 1):
        after = grown(made.get(number - 1), 1)
        made[number] = msgspec.structs.replace(after, created_ms=START_MS + number * 3_600_000)
        objects.put(keys.manifest(LOG, number), encode(made[number]))
    objects.delete(keys.manifest(LOG, number) for number in set(made) - set(numbers))
    return made


def test_the_newest_is_found_although_older_ones_are_gone() -> None:
    objects = ShakyObjects()
    made = aged([1, 30, 31, 32], objects)
    assert ManifestStore(objects).newest(LOG, None, 30) == made[32]
    assert ManifestStore(objects).newest(LOG, made[3], 31) == made[32]
    assert ManifestStore(objects).newest(LOG, None, 0) == made[32], "by a listing"
    assert ManifestStore(objects).newest(LOG, None, 7) == made[32], "tables that were restored"
    with pytest.raises(Damaged, match="missing"):
        ManifestStore(objects).newest(LOG, None, 33)
    assert ManifestStore(objects).newest("b" * 32, None, 0) is None
    assert ManifestStore(objects).standing(LOG) == [1, 30, 31, 32]


@given(
    gaps=st.lists(st.integers(0, 30), min_size=1, max_size=30), watermark=st.integers(0, 31), now=st.integers(0, 900)
)
def test_what_goes_was_replaced_and_the_watermark_knows(gaps: list[int], watermark: int, now: int) -> None:
    times = dict(enumerate(itertools.accumulate(gaps), 1))
    gone = set(outdated(list(times), times.__getitem__, now, watermark))
    for number in times:
        is_passed = number + 1 in times and times[number + 1] <= now and number + 1 <= watermark
        assert (number in gone) == (is_passed and number != 1)
