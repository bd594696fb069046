"""Segments that are dropped: what is left is found, what is gone is not, and no manifest breaks a rule."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from headrace.errors import Damaged
from headrace.manifest import dropping
from headrace.manifest import manifest as manifests
from headrace.manifest.dropping import is_removable, is_worth
from headrace.manifest.invariants import check
from headrace.manifest.manifest import Begin, Manifest, ManifestPage, Replaced, decode, encode
from headrace.manifest.store import ManifestStore
from headrace.objects import keys
from headrace.objects.memory import MemoryObjects
from headrace.recovery.bucket import segments_of
from headrace.recovery.report import Notes
from tests.unit.manifest.samples import LOG, START_MS, controlled, grown

NOW_MS = START_MS + 1_000_000


def drop(store: ManifestStore, manifest: Manifest, pages: tuple[str, ...] = ()) -> Manifest:
    """Returns the generation that drops what is below the floor."""
    first = next(store.segments_from(manifest, manifest.state.floor), None)
    sealed = keys.sealed_number(first.key) if first is not None else manifest.sealed_count
    successor = dropping.dropped(manifest, first, sealed, pages, NOW_MS)
    assert successor is not None
    return successor


def floored(manifest: Manifest, floor: int) -> Manifest:
    """Returns the generation that publishes a floor."""
    return controlled(manifest, floor=floor)


@pytest.mark.parametrize("in_pages", [False, True])
def test_what_is_left_is_found_and_what_is_gone_is_not(monkeypatch: pytest.MonkeyPatch, in_pages: bool) -> None:
    if in_pages:
        monkeypatch.setattr(manifests, "PAGE_SEGMENTS", 3)
        monkeypatch.setattr(manifests, "FAN_OUT", 3)
    dice = Random(4)
    objects = MemoryObjects()
    store = ManifestStore(objects)
    whole: Manifest | None = None
    for _ in range(40):
        whole = grown(whole, dice.randint(1, 9), objects=objects)
    assert whole is not None
    assert any(page.level for page in whole.pages) == in_pages
    segments = list(store.segments_from(whole, 0))
    manifest = whole
    for floor in sorted(dice.randrange(whole.end_offset) for _ in range(12)):
        raised = floored(manifest, floor)
        check(manifest, raised)
        left = [one for one in segments if one.end_offset > floor]
        manifest = raised
        if left[0].number > raised.begin_number:
            manifest = drop(store, raised)
            check(raised, manifest)
            assert decode(encode(manifest), "m") == manifest
            assert dropping.dropped(manifest, left[0], 0, (), NOW_MS) is None
        assert (manifest.begin_offset, manifest.begin_number) == (left[0].first_offset, left[0].number)
        assert list(store.segments_from(manifest, 0)) == left
        assert list(store.segments_before(manifest, whole.end_offset)) == left[::-1]
        for segment in segments:
            known = segment in left
            assert next(store.segments_from(manifest, segment.first_offset)) == (segment if known else left[0])
            found = store.segment_for_time(manifest, segment.max_time_ms)
            assert found == (segment if known else left[0])
    emptied = drop(store, raised := floored(manifest, whole.end_offset))
    check(raised, emptied)
    assert list(store.segments_from(emptied, 0)) == list(store.segments_before(emptied, whole.end_offset)) == []
    assert store.segment_for_time(emptied, 0) is None
    assert (emptied.pages, emptied.open_page, emptied.segment_count) == ((), (), 40)
    state = replace(emptied.state, next_offset=whole.end_offset + 3, total_bytes=emptied.state.total_bytes + 30)
    after = grown(emptied, 3, objects=objects)
    after = replace(after, state=replace(state, append_time_ms=after.state.append_time_ms))
    check(emptied, after)
    assert [one.number for one in store.segments_from(after, 0)] == [40]


def test_a_dropped_page_within_a_page_that_stays_is_never_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "PAGE_SEGMENTS", 2)
    monkeypatch.setattr(manifests, "FAN_OUT", 2)
    objects = MemoryObjects()
    whole: Manifest | None = None
    for _ in range(8):
        whole = grown(whole, 5, objects=objects)
    assert whole is not None
    store = ManifestStore(objects)
    segments = list(store.segments_from(whole, 0))
    outer = whole.pages[0]
    gone, kept = store.parts(outer)
    assert isinstance(gone, ManifestPage) and isinstance(kept, ManifestPage)
    manifest = drop(store, floored(whole, kept.first_offset))
    assert manifest.pages[0] == outer
    objects.delete([gone.key])
    left = segments[kept.first_number :]
    cold = ManifestStore(objects)
    assert list(cold.segments_from(manifest, 0)) == left
    assert list(cold.segments_before(manifest, whole.end_offset)) == left[::-1]
    for segment in segments:
        assert cold.segment_for_time(manifest, segment.max_time_ms) == (segment if segment in left else left[0])
    notes = Notes(LOG)
    assert segments_of(objects, notes, manifest)[0] == left
    assert notes.findings == []
    objects.delete([kept.key])
    segments_of(objects, notes, manifest)
    assert [(one.kind, one.where) for one in notes.findings] == [("page.missing", kept.key)]


def test_a_manifest_of_which_nothing_was_dropped_keeps_its_bytes() -> None:
    one = grown(None, 5, 5)
    assert b"begin" not in manifests.packed.unframe(encode(one), "m")
    assert not is_worth(one)
    assert not is_worth(controlled(one, floor=0))
    assert is_worth(controlled(one, floor=5))


def _begin(manifest: Manifest, **changes: int) -> Manifest:
    assert isinstance(manifest.begin, Begin)
    return replace(manifest, begin=replace(manifest.begin, **changes))


BROKEN: dict[str, Callable[[Manifest], Manifest]] = {
    "a live segment": lambda m: replace(_begin(m, number=3, offset=9, sealed=3), open_page=m.open_page[1:]),
    "number": lambda m: _begin(m, number=1),
    "offset": lambda m: _begin(m, offset=4),
    "key of a live segment": lambda m: _begin(m, sealed=9),
    "key of nothing": lambda m: _begin(m, sealed=0),
    "generation": lambda m: _begin(m, generation=1),
    "time": lambda m: _begin(m, at_ms=1),
    "segments lost": lambda m: replace(m, open_page=m.open_page[:-1]),
    "state": lambda m: replace(m, state=replace(m.state, touched_ms=1)),
    "bytes": lambda m: replace(m, sealed_bytes=1),
    "end published now": lambda m: replace(m, sealed_ms=0),
    "replaced before": lambda m: replace(m, replaced=(Replaced("k", 1, 1),)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_no_broken_drop_passes(name: str) -> None:
    before = floored(grown(grown(None, 2, 3), 4, 5), 7)
    after = drop(ManifestStore(MemoryObjects()), before)
    check(before, after)
    assert (after.begin_number, after.begin_offset) == (2, 5)
    with pytest.raises(Damaged):
        check(before, BROKEN[name](after))


def test_the_floor_and_the_beginning_never_fall() -> None:
    before = floored(grown(None, 2, 3), 3)
    after = drop(ManifestStore(MemoryObjects()), before)
    check(after, controlled(after, floor=4))
    with pytest.raises(Damaged, match="floor never falls"):
        check(before, controlled(before, floor=2))
    for begin in (before.begin, Begin(1, 2, 1, 9, NOW_MS)):
        with pytest.raises(Damaged):
            check(after, replace(controlled(after), begin=begin))
    with pytest.raises(Damaged):
        check(None, replace(grown(None, 5), begin=Begin(0, 0, 0, 1, START_MS)))


def test_dropped_objects_stay_for_a_while_and_two_generations() -> None:
    manifest = drop(ManifestStore(MemoryObjects()), floored(grown(None, 2, 3), 3))
    assert not is_removable(manifest, NOW_MS + 1000, 1000)
    assert is_removable(manifest, NOW_MS + 6000, 1000)
    later = controlled(controlled(manifest))
    assert is_removable(later, NOW_MS + 1000, 1000)
    assert not is_removable(later, NOW_MS + 999, 1000)
    assert is_removable(grown(None, 2), NOW_MS, 1000)
