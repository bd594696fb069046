"""What is merged, the generation that says so, and that nothing else passes for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Damaged
from headrace.manifest import merging
from headrace.manifest.invariants import check
from headrace.manifest.manifest import Manifest, decode, encode, successor
from headrace.manifest.merging import MergeLimits, merged
from headrace.objects import keys
from headrace.segment.descriptor import Segment
from tests.unit.manifest.samples import LOG, START_MS, config, data_entry, grown, segment

replace = msgspec.structs.replace

LIMITS = MergeLimits(segments=4, payload_bytes=10_000, records=100, age_ms=1000)
LATE_MS = START_MS + 3_600_000
AGE_MS = 7_200_000


def page(*counts: int) -> tuple[Segment, ...]:
    return grown(None, *counts).open_page


def by(parts: tuple[Segment, ...], nonce: str = "x", planned_ms: int = START_MS) -> Segment:
    """Returns the segment that stands for these."""
    count = sum(one.count for one in parts)
    whole = segment(0, parts[0].first_offset, count)
    return replace(
        whole,
        key=keys.merged_segment(LOG, parts[0].key, planned_ms, nonce),
        min_time_ms=parts[0].min_time_ms,
        max_time_ms=parts[-1].max_time_ms,
    )


def merge(manifest: Manifest, start: int, end: int, now_ms: int = LATE_MS, nonce: str = "x") -> Manifest:
    parts = manifest.open_page[start:end]
    found = merged(manifest, parts, by(parts, nonce), now_ms)
    assert found is not None
    return found


def numbers(segments: tuple[Segment, ...]) -> list[int]:
    return [one.number for one in segments]


def test_enough_old_neighbours_that_fit_one_segment_are_merged() -> None:
    assert merging.groups(page(1, 1, 1), LATE_MS, LIMITS) == []
    (group,) = merging.groups(page(1, 1, 1, 1, 1), LATE_MS, LIMITS)
    assert numbers(group) == [0, 1, 2, 3, 4]
    assert merging.groups(page(1, 1, 1, 1), LATE_MS, LIMITS._replace(segments=0)) == []


def test_what_does_not_fit_one_segment_begins_the_next_group() -> None:
    found = merging.groups(page(*[20] * 11), LATE_MS, LIMITS)
    assert [numbers(group) for group in found] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    found = merging.groups(page(*[20] * 11), LATE_MS, LIMITS._replace(payload_bytes=800))
    assert [numbers(group) for group in found] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_young_segments_wait() -> None:
    segments = page(1, 1, 1, 1, 1)
    now_ms = segments[3].max_time_ms + LIMITS.age_ms
    assert numbers(merging.groups(segments, now_ms, LIMITS)[0]) == [0, 1, 2, 3]
    assert merging.groups(segments, now_ms - 1, LIMITS) == []


def test_a_segment_that_was_merged_waits_for_its_like() -> None:
    (group,) = merging.groups(page(16, 1, 1, 1, 1, 1), LATE_MS, LIMITS)
    assert numbers(group) == [1, 2, 3, 4, 5]
    (group,) = merging.groups(page(16, 16, 16, 16, 1, 1), LATE_MS, LIMITS)
    assert numbers(group) == [0, 1, 2, 3, 4, 5]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(0, 3000), st.integers(2, 6))
def test_groups_keep_to_the_limits_and_come_when_they_were_said_to(counts: list[int], at: int, least: int) -> None:
    segments, limits = page(*counts), LIMITS._replace(segments=least)
    now_ms = START_MS + at
    found = merging.groups(segments, now_ms, limits)
    for group in found:
        assert len(group) >= least
        assert sum(one.count for one in group) <= limits.records
        assert sum(one.payload_bytes for one in group) <= limits.payload_bytes
        assert group[-1].max_time_ms + limits.age_ms <= now_ms
        assert numbers(group) == list(range(group[0].number, group[-1].number + 1))
    taken = [one.number for group in found for one in group]
    assert taken == sorted(set(taken))
    due_ms = merging.due_ms(segments, limits)
    if due_ms is not None:
        assert merging.groups(segments, due_ms, limits)
    elif not found:
        assert not merging.groups(segments, LATE_MS, limits)


def test_small_segments_are_replaced_and_later_ones_renumbered() -> None:
    before = grown(None, 2, 3, 4, 5, 6)
    after = merge(before, 1, 4)
    check(before, after)
    assert decode(encode(after), "m") == after
    assert [(one.number, one.first_offset, one.count) for one in after.open_page] == [
        (0, 0, 2),
        (1, 2, 12),
        (2, 14, 6),
    ]
    assert (after.segment_count, after.merged_away, after.sealed_count) == (3, 2, 5)
    assert [one.key for one in after.replaced] == [one.key for one in before.open_page[1:4]]
    assert (after.end_slot, after.state, after.sealed_bytes) == (before.end_slot, before.state, before.sealed_bytes)


def test_a_log_goes_on_after_a_merge() -> None:
    before = merge(grown(None, 2, 3, 4), 0, 3)
    made = [replace(segment(1, 9, 5), key=keys.segment(LOG, before.sealed_count, "n"))]
    after = successor(
        before,
        log_id=LOG,
        config=config(),
        segments=made,
        last_entry=data_entry(before, made),
        sealed_page=None,
        now_ms=LATE_MS,
    )
    check(before, after)
    assert (after.segment_count, after.sealed_count, len(after.replaced)) == (2, 4, 3)
    again = merge(after, 0, 2, nonce="y")
    check(after, again)
    assert (again.segment_count, again.sealed_count, len(again.replaced)) == (1, 4, 5)


def test_only_the_very_same_neighbours_are_replaced() -> None:
    one = grown(None, 2, 3, 4)
    parts = one.open_page
    two = grown(one, 5)
    found = merged(two, parts, by(parts), LATE_MS)
    assert found is not None
    check(two, found)
    assert merged(found, parts, by(parts, "y"), LATE_MS) is None
    other = (parts[0], replace(parts[1], sha256="9" * 64), parts[2])
    assert merged(two, other, by(other), LATE_MS) is None
    assert merged(two, (parts[0], parts[2]), by(parts), LATE_MS) is None
    past = (*two.open_page[2:], parts[0])
    assert merged(two, past, by(past), LATE_MS) is None


def test_replaced_segments_are_named_for_two_generations_and_the_age() -> None:
    first = merge(grown(None, 2, 3, 4), 0, 3)
    at_ms = LATE_MS
    assert merging.removable(first, at_ms + 5 * AGE_MS, AGE_MS) == []
    assert len(merging.removable(first, at_ms + merging.IDLE_AGES * AGE_MS, AGE_MS)) == 3
    second = grown(first, 1)
    third = grown(second, 1)
    assert merging.removable(second, at_ms + AGE_MS, AGE_MS) == []
    assert merging.removable(third, at_ms + AGE_MS - 1, AGE_MS) == []
    assert len(merging.removable(third, at_ms + AGE_MS, AGE_MS)) == 3
    late = merge(third, 0, 2, now_ms=at_ms + AGE_MS, nonce="y")
    check(third, late)
    assert [one.generation for one in late.replaced] == [2, 2, 2, 5, 5], "a merge forgets nothing"
    assert merging.forgettable(first, at_ms + 99 * AGE_MS, AGE_MS) == []
    assert merging.forgettable(second, at_ms + 99 * AGE_MS, AGE_MS) == []
    assert merging.forgettable(third, at_ms + AGE_MS - 1, AGE_MS) == []
    assert merging.forgettable(late, at_ms + AGE_MS, AGE_MS) == [one.key for one in first.replaced]


def test_sealing_forgets_what_is_removed_and_two_generations_old() -> None:
    first = merge(grown(None, 2, 3, 4), 0, 3)
    second = grown(first, 1)
    third = grown(second, 1)
    key = first.replaced[0].key
    for before, may in ((first, False), (second, False), (third, True)):
        after = grown(before, 1)
        forgetful = replace(after, replaced=tuple(one for one in after.replaced if one.key != key))
        assert len(forgetful.replaced) == 2
        if may:
            check(before, forgetful)
        else:
            with pytest.raises(Damaged, match="two generations"):
                check(before, forgetful)


def test_the_end_was_published_when_it_was_sealed() -> None:
    sealed = grown(None, 2, 3, 4)
    assert sealed.end_published_ms == sealed.created_ms
    once = merge(sealed, 0, 2)
    twice = merge(once, 0, 2, now_ms=LATE_MS + 1, nonce="y")
    assert [one.end_published_ms for one in (once, twice)] == [sealed.created_ms] * 2
    check(once, twice)
    after = grown(twice, 1)
    assert after.end_published_ms == after.created_ms
    with pytest.raises(Damaged, match="breaks a rule"):
        check(once, replace(twice, sealed_ms=once.created_ms))
    with pytest.raises(Damaged, match="sealed_ms"):
        check(twice, replace(after, sealed_ms=1))


def _whole(**changes: Any) -> Callable[[Manifest], Manifest]:
    """Returns a function that changes the merged segment of a manifest."""

    def change(new: Manifest) -> Manifest:
        page = (new.open_page[0], replace(new.open_page[1], **changes), *new.open_page[2:])
        return replace(new, open_page=page)

    return change


BROKEN: dict[str, Callable[[Manifest], Manifest]] = {
    "another generation": lambda new: replace(new, generation=new.generation + 1),
    "another end": lambda new: replace(new, end_slot=new.end_slot + 1),
    "another last entry": lambda new: replace(new, last_id="other"),
    "another state": lambda new: replace(new, state=replace(new.state, ended="deleted")),
    "another configuration": lambda new: replace(new, config=config(0).__class__("streams", "o", 1, "x", START_MS)),
    "other bytes": lambda new: replace(new, sealed_bytes=new.sealed_bytes + 1),
    "a wrong count": lambda new: replace(new, merged_away=new.merged_away + 1),
    "nothing counted": lambda new: replace(new, merged_away=0),
    "fewer records": _whole(count=11),
    "another first offset": _whole(first_offset=1),
    "other payload": _whole(payload_bytes=119),
    "another first time": _whole(min_time_ms=START_MS),
    "another last time": _whole(max_time_ms=START_MS + 14),
    "one of the old objects": _whole(key=keys.segment(LOG, 1, "n")),
    "a later segment is another": lambda new: replace(
        new, open_page=(*new.open_page[:2], replace(new.open_page[2], sha256="9" * 64))
    ),
    "an earlier segment is another": lambda new: replace(
        new, open_page=(replace(new.open_page[0], sha256="9" * 64), *new.open_page[1:])
    ),
    "numbers as they were": lambda new: replace(
        new, open_page=(*new.open_page[:2], replace(new.open_page[2], number=4))
    ),
    "replaced are not named": lambda new: replace(new, replaced=()),
    "another is named": lambda new: replace(
        new, replaced=(*new.replaced, replace(new.replaced[0], key=keys.segment(LOG, 9, "n")))
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_nothing_else_passes_for_a_merge(name: str) -> None:
    before = grown(None, 2, 3, 4, 5, 6)
    with pytest.raises(Damaged, match="breaks a rule"):
        check(before, BROKEN[name](merge(before, 1, 4)))


def test_sealing_changes_nothing_of_what_was_merged() -> None:
    before = merge(grown(None, 2, 3, 4), 0, 3)
    after = grown(before, 5)
    check(before, after)
    for broken in (
        replace(after, replaced=()),
        replace(after, replaced=after.replaced[1:]),
        replace(after, merged_away=0),
        replace(after, replaced=(*after.replaced, replace(after.replaced[0], key="other"))),
    ):
        with pytest.raises(Damaged, match="breaks a rule"):
            check(before, broken)
