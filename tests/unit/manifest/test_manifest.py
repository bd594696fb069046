"""Making the next generation, its bytes, and the rules between generations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headrace.errors import Damaged
from headrace.manifest import manifest as manifests
from headrace.manifest.invariants import check, check_whole
from headrace.manifest.manifest import Manifest, decode, decode_page, describe_page, encode, encode_page, first
from headrace.objects import packed
from headrace.objects.memory import MemoryObjects
from headrace.segment.descriptor import PageIndex
from headrace.wal.state import SLOT_SPAN
from tests.unit.manifest.samples import CLOSED, LOG, START_MS, config, controlled, data_entry, grown, segment

replace = msgspec.structs.replace


def test_a_generation_folds_segments_and_the_last_state_in() -> None:
    one = grown(None, 5)
    two = grown(one, 7, 1)
    assert (one.generation, one.end_slot, one.end_offset, one.sealed_bytes) == (1, 5 * SLOT_SPAN, 5, 50)
    assert (two.generation, two.end_slot, two.end_offset, two.sealed_bytes) == (2, 13 * SLOT_SPAN, 13, 130)
    assert (two.last_slot, two.last_id, two.state.next_offset) == (12 * SLOT_SPAN, "r13", 13)
    assert [s.number for s in two.open_page] == [0, 1, 2]
    check(None, one)
    check(one, two)


def test_the_first_generation_is_the_successor_of_nothing() -> None:
    made = [segment(0, 0, 4)]
    one = first(log_id=LOG, config=config(), segments=made, last_entry=data_entry(None, made), now_ms=START_MS)
    assert one == grown(None, 4)


def test_control_entries_alone_make_a_generation_without_segments() -> None:
    one = grown(None, 5)
    closed = controlled(one, extension=CLOSED)
    assert closed.open_page == one.open_page
    assert closed.state.is_final
    assert closed.end_slot == one.end_slot + 1
    check(one, closed)
    ended = controlled(closed, ended="deleted")
    check(closed, ended)


def test_a_fork_begins_at_its_base_offset() -> None:
    one = grown(None, 5, base=100)
    assert (one.open_page[0].first_offset, one.end_offset) == (100, 105)
    check(None, one)


def test_full_pages_leave_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "PAGE_SEGMENTS", 3)
    objects, newest = MemoryObjects(), None
    for count in (1, 2, 3, 4, 5, 6, 7, 8):
        following = grown(newest, count, objects=objects)
        check(newest, following)
        assert len(following.open_page) <= 3
        newest = following
    assert newest is not None
    pages = [decode_page(objects.get(page.key), page) for page in newest.pages]
    held = [s for page in (*pages, newest.open_page) for s in page]
    assert [s.count for s in held] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert newest.segment_count == 8
    assert newest.sealed_bytes == 360


def test_bytes_come_back_and_equal_values_give_equal_bytes() -> None:
    for value in (grown(None, 5), grown(grown(None, 5), 2, 3), controlled(grown(None, 5), extension=CLOSED)):
        assert decode(encode(value), "m") == value
        assert encode(decode(encode(value), "m")) == encode(value)


def test_altered_bytes_are_damaged_or_equal() -> None:
    value = grown(grown(None, 5), 2, 3)
    data = encode(value)
    for at in range(len(data)):
        with pytest.raises(Damaged, match="the-key"):
            decode(data[:at], "the-key")
        for bit in range(8):
            altered = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            try:
                assert decode(altered, "the-key") == value
            except Damaged as exc:
                assert "the-key" in str(exc)
    with pytest.raises(Damaged):
        decode(data + b"tail", "the-key")


def test_an_unknown_version_is_damaged() -> None:
    with pytest.raises(Damaged, match="version"):
        decode(packed.encode(replace(grown(None, 5), version=0)), "m")
    with pytest.raises(Damaged, match="the-key"):
        decode(packed.encode({"version": 0, "other": []}), "the-key")
    with pytest.raises(Damaged, match="the-key"):
        decode(packed.encode([1, 2]), "the-key")


def test_a_page_is_checked_against_what_the_manifest_says() -> None:
    held = grown(None, 1, 2, 3).open_page
    data = encode_page(held)
    page = describe_page("page-key", data, held)
    assert decode_page(data, page) == held
    with pytest.raises(Damaged, match="page-key"):
        decode_page(data[:-1], page)
    with pytest.raises(Damaged, match="page-key"):
        decode_page(encode_page(held[1:]), page)
    for lie in ({"first_offset": 1}, {"end_offset": 9}, {"count": 2}, {"max_time_ms": 5}, {"first_number": 1}):
        with pytest.raises(Damaged, match="page-key"):
            decode_page(data, replace(page, **lie))


def _with_segment(value: Manifest, at: int, **changes: Any) -> Manifest:
    page = list(value.open_page)
    page[at] = replace(page[at], **changes)
    return replace(value, open_page=tuple(page))


BROKEN: dict[str, Callable[[Manifest], Manifest]] = {
    "generation skipped": lambda m: replace(m, generation=3),
    "generation repeated": lambda m: replace(m, generation=1),
    "unknown version": lambda m: replace(m, version=2),
    "another log": lambda m: replace(m, log_id="c" * 32),
    "another configuration": lambda m: replace(m, config=replace(m.config, incarnation=2)),
    "end slot at another offset": lambda m: replace(m, end_slot=m.end_slot + SLOT_SPAN),
    "last entry above the end": lambda m: replace(m, last_slot=m.end_slot),
    "last entry already folded in": lambda m: replace(m, last_slot=4 * SLOT_SPAN),
    "state of another entry": lambda m: replace(m, state=replace(m.state, next_offset=9)),
    "append time fell": lambda m: replace(m, state=replace(m.state, append_time_ms=1)),
    "bytes fell": lambda m: replace(m, state=replace(m.state, total_bytes=1)),
    "bytes not counted": lambda m: replace(m, sealed_bytes=50),
    "segment missing": lambda m: replace(m, open_page=m.open_page[:-1]),
    "first segment missing": lambda m: replace(m, open_page=m.open_page[1:]),
    "segment twice": lambda m: replace(m, open_page=(*m.open_page, m.open_page[-1])),
    "segments not counted": lambda m: replace(m, segment_count=1),
    "published segment changed": lambda m: _with_segment(m, 0, sha256="f" * 64),
    "gap": lambda m: _with_segment(m, 1, first_offset=6),
    "overlap": lambda m: _with_segment(m, 1, first_offset=4),
    "empty segment": lambda m: _with_segment(m, 1, count=0),
    "wrong number": lambda m: _with_segment(m, 1, number=7),
    "times fall between segments": lambda m: _with_segment(m, 1, max_time_ms=START_MS - 9, min_time_ms=START_MS - 9),
    "times fall in a segment": lambda m: _with_segment(m, 1, min_time_ms=START_MS + 999),
    "page lists of unequal length": lambda m: _with_segment(m, 1, pages=PageIndex(4, (1, 2), (2,), (20,))),
    "no pages": lambda m: _with_segment(m, 1, pages=PageIndex(4, (), (), ())),
    "empty page": lambda m: _with_segment(m, 1, pages=PageIndex(4, (1, 2), (2, 0), (20, 0))),
    "pages hold other records": lambda m: _with_segment(m, 1, pages=PageIndex(4, (1,), (3,), (20,))),
    "pages hold other bytes": lambda m: _with_segment(m, 1, pages=PageIndex(4, (1,), (2,), (19,))),
    "pages beyond the object": lambda m: _with_segment(m, 1, pages=PageIndex(4, (997,), (2,), (20,))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_no_broken_successor_passes(name: str) -> None:
    one = grown(None, 5)
    two = grown(one, 2)
    check(one, two)
    with pytest.raises(Damaged, match="manifest "):
        check(one, BROKEN[name](two))


@pytest.mark.parametrize("state", [{"extension": None}, {"ended": ""}, {"ended": "expired"}, {"holds_source": True}])
def test_what_is_final_stays(state: dict[str, Any]) -> None:
    ended = controlled(controlled(grown(None, 5), extension=CLOSED), ended="deleted")
    following = controlled(ended)
    check(ended, following)
    with pytest.raises(Damaged):
        check(ended, replace(following, state=replace(following.state, **state)))


def test_nothing_new_is_no_generation() -> None:
    one = grown(None, 5)
    with pytest.raises(Damaged, match="last_slot"):
        check(one, replace(one, generation=2))


def test_the_first_generation_is_number_one_and_counts_its_bytes() -> None:
    one = grown(None, 5)
    for wrong in (replace(one, generation=2), replace(one, sealed_bytes=49), replace(one, generation=0)):
        with pytest.raises(Damaged):
            check(None, wrong)


def test_sealed_pages_neither_change_nor_appear_from_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "PAGE_SEGMENTS", 2)
    objects = MemoryObjects()
    two = grown(grown(None, 1, objects=objects), 2, objects=objects)
    three = grown(two, 3, objects=objects)
    four = grown(three, 4, objects=objects)
    check(two, three)
    page = three.pages[0]
    for lie in (
        {"count": 1},
        {"count": 3},
        {"first_number": 1},
        {"first_offset": 1},
        {"end_offset": 2},
        {"max_time_ms": page.max_time_ms - 1},
        {"max_time_ms": page.max_time_ms + 1},
    ):
        with pytest.raises(Damaged):
            check(two, replace(three, pages=(replace(page, **lie),)))
    with pytest.raises(Damaged):
        check(three, replace(four, pages=(replace(page, sha256="f" * 64), *four.pages[1:])))
    five = grown(four, 5, objects=objects)
    check(four, five)
    with pytest.raises(Damaged, match="sealed pages"):
        check(two, replace(five, generation=3))
    check_whole(five)
