"""Records at scattered offsets: the same bytes, from the pages that hold them and no others."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from headrace.errors import Damaged
from headrace.objects import Range
from headrace.objects.memory import MemoryObjects
from headrace.segment import reader
from headrace.segment.descriptor import Segment
from tests.unit.segment.samples import mixed, stored


def fetched(
    objects: MemoryObjects, wanted: Sequence[tuple[Segment, Sequence[int]]]
) -> tuple[dict[int, bytes], list[Range]]:
    routine = reader.read_scattered(wanted)
    asked = next(routine)
    try:
        routine.send([objects.get_range(*one) for one in asked])
    except StopIteration as end:
        return end.value, asked
    raise AssertionError("one round is enough")


def test_any_offsets_give_their_records() -> None:
    content, objects = mixed(300), MemoryObjects()
    segment = stored(content, objects)
    choose = random.Random(1)
    first = content[0].offset
    for count in (1, 2, 10, 100, 300):
        offsets = sorted(choose.sample(range(first, first + 300), count))
        found, asked = fetched(objects, [(segment, offsets)])
        assert found == {offset: content[offset - first].data for offset in offsets}
        assert len(asked) == len(set(asked)) <= len(segment.pages.sizes)


def test_only_pages_that_hold_records_are_asked_for() -> None:
    content, objects = mixed(300), MemoryObjects()
    segment = stored(content, objects)
    _, asked = fetched(objects, [(segment, [content[0].offset, content[299].offset])])
    assert len(asked) == 2
    assert asked[0].start == segment.pages.start


def test_every_flipped_bit_is_noticed() -> None:
    content, objects = mixed(60), MemoryObjects()
    segment = stored(content, objects)
    whole = objects.get(segment.key)
    start, end = segment.pages.start, segment.pages.start + sum(segment.pages.sizes)
    offsets = [record.offset for record in content]
    choose = random.Random(1)
    for at in (choose.randrange(start, end) for _ in range(300)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << choose.randrange(8)
        objects.put(segment.key, bytes(damaged))
        with pytest.raises(Damaged, match=segment.key):
            fetched(objects, [(segment, offsets)])


def test_a_truncated_segment_is_damaged() -> None:
    content, objects = mixed(60), MemoryObjects()
    segment = stored(content, objects)
    objects.put(segment.key, objects.get(segment.key)[: segment.pages.start + 10])
    with pytest.raises(Damaged, match=segment.key):
        fetched(objects, [(segment, [content[0].offset])])
