"""Which segments are scrubbed, the generation that says so, and that nothing else passes for one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Damaged
from headrace.manifest import manifest as manifests
from headrace.manifest import merging
from headrace.manifest.invariants import check
from headrace.manifest.manifest import Manifest, decode, encode
from headrace.manifest.merging import Scrub, merged, rewritten
from headrace.manifest.store import ManifestStore
from headrace.objects import keys
from headrace.objects.memory import MemoryObjects
from headrace.segment.descriptor import PageIndex, Segment
from tests.unit.manifest.samples import LOG, START_MS, grown

replace = msgspec.structs.replace
LATE_MS = START_MS + 3_600_000
DAY_MS = 24 * 3600 * 1000


_numbers = itertools.count()


def nonce() -> str:
    return f"z{next(_numbers)}"


def scrubbed(one: Segment, blanked: int) -> Segment:
    """Returns the segment that stands for one of which so many records are blank."""
    left = 10 * (one.count - blanked)
    return replace(
        one,
        key=keys.merged_segment(LOG, one.key, START_MS, f"x{blanked}"),
        payload_bytes=left,
        pages=PageIndex(4, (100,), (one.count,), (left,)),
        blanked=blanked,
    )


def scrub(before: Manifest, at: int, blanked: int) -> Manifest:
    one = before.open_page[at]
    found = merged(before, (one,), scrubbed(one, blanked), LATE_MS)
    assert found is not None
    return found


def test_one_segment_is_replaced_and_none_is_renumbered() -> None:
    before = grown(None, 2, 3, 4)
    after = scrub(before, 1, 2)
    check(before, after)
    assert decode(encode(after), "m") == after
    assert [one.number for one in after.open_page] == [0, 1, 2]
    assert (after.segment_count, after.merged_away, after.sealed_bytes) == (3, 0, before.sealed_bytes)
    assert [one.key for one in after.replaced] == [before.open_page[1].key]
    check(after, scrub(after, 1, 3))


def test_nothing_else_passes_for_a_scrub() -> None:
    before = grown(None, 2, 3, 4)
    after = scrub(before, 1, 2)
    one, rest = after.open_page[1], after.open_page
    for wrong in (
        replace(one, blanked=0),
        replace(one, blanked=4),
        replace(one, payload_bytes=31, pages=PageIndex(4, (100,), (3,), (31,))),
        replace(one, count=2, pages=PageIndex(4, (100,), (2,), (10,))),
        replace(one, first_offset=one.first_offset + 1),
        replace(one, min_time_ms=one.min_time_ms - 1),
        replace(one, max_time_ms=one.max_time_ms + 1),
        replace(one, key=before.open_page[1].key),
    ):
        with pytest.raises(Damaged):
            check(before, replace(after, open_page=(rest[0], wrong, rest[2])))
    for broken in (
        replace(after, sealed_bytes=after.sealed_bytes - 20),
        replace(after, replaced=()),
        replace(after, end_slot=after.end_slot + 1),
        replace(after, open_page=(scrubbed(rest[0], 1), *rest[1:])),
    ):
        with pytest.raises(Damaged):
            check(before, broken)


def test_what_was_blank_is_not_brought_back_by_a_scrub_or_a_merge() -> None:
    before = scrub(grown(None, 2, 3, 4), 1, 2)
    less = merged(before, before.open_page[1:2], replace(scrubbed(before.open_page[1], 1), key=f"{LOG}-y"), LATE_MS)
    assert less is not None
    with pytest.raises(Damaged):
        check(before, less)


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> tuple[Manifest, ManifestStore, MemoryObjects]:
    """Nine segments of two records in pages of two, and of two pages."""
    monkeypatch.setattr(manifests, "PAGE_SEGMENTS", 2)
    monkeypatch.setattr(manifests, "FAN_OUT", 2)
    objects = MemoryObjects()
    found: Manifest | None = None
    for _ in range(12):
        found = grown(found, 2, objects=objects)
    assert found is not None
    return found, ManifestStore(objects), objects


@pytest.mark.parametrize("number", [0, 1, 4, 7])
def test_a_segment_of_a_sealed_page_is_replaced_by_new_pages(
    tree: tuple[Manifest, ManifestStore, MemoryObjects], number: int
) -> None:
    before, store, objects = tree
    old = list(store.segments_from(before, 0))
    found = rewritten(before, store.parts, old[number], scrubbed(old[number], 1), LATE_MS, nonce)
    assert found is not None
    for key, data in found.pages.items():
        assert objects.create(key, data)
    after = found.manifest
    check(before, after)
    new = list(store.segments_from(after, 0))
    assert [one.number for one in new] == [one.number for one in old]
    assert [one for one, other in zip(new, old, strict=True) if one != other] == [scrubbed(old[number], 1)]
    assert {one.key for one in after.replaced[1:]} >= {page.key for page in before.pages if page not in after.pages}
    assert list(store.segments_from(before, 0)) == old, "readers of the generation before find all of it"
    page = next(one for one in after.pages if one not in before.pages)
    for wrong in (
        replace(page, count=page.count + 1),
        replace(page, end_offset=page.end_offset + 1),
        replace(page, min_time_ms=page.min_time_ms - 1),
    ):
        with pytest.raises(Damaged):
            check(before, replace(after, pages=tuple(wrong if one == page else one for one in after.pages)))
    with pytest.raises(Damaged):
        check(before, replace(after, replaced=after.replaced[:1]))


def test_a_segment_that_no_page_names_is_not_replaced(tree: tuple[Manifest, ManifestStore, MemoryObjects]) -> None:
    before, store, _ = tree
    last = before.open_page[-1]
    assert rewritten(before, store.parts, last, scrubbed(last, 1), LATE_MS, nonce) is None
    other = replace(next(store.segments_from(before, 0)), sha256="f" * 64)
    assert rewritten(before, store.parts, other, scrubbed(other, 1), LATE_MS, nonce) is None


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 70), st.integers(1, 9)), max_size=8),
)
def test_each_segment_gets_its_own_part_of_the_removed_runs(counts: list[int], found: list[tuple[int, int]]) -> None:
    segments = grown(None, *counts).open_page
    dead: list[tuple[int, int]] = []
    for first, length in sorted(found):
        if not dead or first > dead[-1][1]:
            dead.append((first, first + length))

    def segments_from(offset: int) -> Iterator[Segment]:
        return (one for one in segments if one.end_offset > offset)

    gone = {offset for first, end in dead for offset in range(first, end)}
    wanted = {
        one.number: {offset for offset in range(one.first_offset, one.end_offset) if offset in gone}
        for one in segments
    }
    scrubs = list(merging.with_dead(segments_from, dead))
    assert {
        segment.number: {offset for at in range(0, len(flat), 2) for offset in range(*flat[at : at + 2])}
        for segment, flat in scrubs
    } == {number: offsets for number, offsets in wanted.items() if offsets}


def test_a_quarter_is_enough_and_less_waits_for_the_day() -> None:
    (one,) = grown(None, 8).open_page
    monday = next(day * DAY_MS for day in range(20_000, 20_007) if merging.is_day(LOG, day * DAY_MS))
    assert merging.is_due(Scrub(one, (0, 2)), LOG, monday + DAY_MS, 0)
    assert not merging.is_due(Scrub(one, (0, 1)), LOG, monday + DAY_MS, 0)
    assert merging.is_due(Scrub(one, (0, 1)), LOG, monday, 0)
    assert not merging.is_due(Scrub(one, (0, 2)), LOG, monday + DAY_MS, 2), "the rest is dropped soon"
    assert merging.is_due(Scrub(one, (0, 2)), LOG, monday, 2)
    again = replace(scrubbed(one, 2), key=keys.merged_segment(LOG, one.key, monday, "x"))
    assert not merging.is_due(Scrub(again, (0, 2)), LOG, monday + 7 * DAY_MS, 0), "all of it is blank"
    assert not merging.is_due(Scrub(again, (0, 3)), LOG, monday + 1, 0), "it was scrubbed today"
    assert merging.is_due(Scrub(again, (0, 3)), LOG, monday + 7 * DAY_MS, 0)


def test_a_merge_puts_off_no_scrub() -> None:
    (one,) = grown(None, 8).open_page
    monday = next(day * DAY_MS for day in range(20_000, 20_007) if merging.is_day(LOG, day * DAY_MS))
    sunday = replace(scrubbed(one, 2), key=keys.merged_segment(LOG, one.key, monday - 1, "x"))
    assert merging.is_due(Scrub(sunday, (0, 3)), LOG, monday, 0), "it was not scrubbed today"
    for hours, is_held in ((-25, False), (-1, True), (0, True), (23, True), (24, False)):
        now_ms = monday + hours * 3_600_000
        assert merging.holds_up((sunday, one), LOG, now_ms) == is_held, hours
        assert not merging.holds_up((one, one), LOG, now_ms)
