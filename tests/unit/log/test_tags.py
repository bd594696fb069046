"""Records by key or the beginning of one, and sizes: what every record says of itself, at the cost of key pages."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from headrace.index.manifest import IndexManifestStore
from headrace.log import prune
from headrace.objects import keys
from tests.support import index_runs
from tests.unit.log.test_records import Topic, kind

TEXTS = ("", "a", "b", "ba", "bab", "zz")


def expected(topic: Topic, text: str, is_prefix: bool, first: int, end: int) -> list[tuple[int, int]]:
    return [
        (one.offset, len(one.data) + len(one.meta or b""))
        for one in topic.written[first:end]
        if one.key is not None and (one.key.startswith(text) if is_prefix else one.key == text)
    ]


def check(topic: Topic, dice: random.Random) -> None:
    """Every text, over the whole log and over a part of it."""
    reader, count = topic.cold(), len(topic.written)
    head = reader.log.head("p")
    low = dice.randrange(count + 1)
    among = sorted(dice.sample(range(-1, count + 5), dice.randrange(count)))
    for first, end in ((0, count), (low, dice.randrange(low, count + 1)), (low, count + 7)):
        for text in TEXTS:
            for is_prefix in (False, True):
                found = list(reader.log.tagged(head, text, is_prefix, first, end))
                assert found == expected(topic, text, is_prefix, first, end)
                found = list(reader.log.tagged(head, text, is_prefix, first, end, among))
                assert found == [one for one in expected(topic, text, is_prefix, first, end) if one[0] in among]
        sizes = [len(one.data) + len(one.meta or b"") for one in topic.written[first:end]]
        assert reader.log.sizes(head, first, end) == sizes
        found = list(reader.log.tagged(head, None, False, first, end, among))
        assert found == [(offset, size) for offset, size in enumerate(sizes, first) if offset in among]


@pytest.mark.parametrize("indexed", [0, 2, 9])
@pytest.mark.parametrize(("sealed", "tail"), [((), (5, 9)), ((9, 1, 8, 10, 4, 7, 3, 2, 9), (3, 6)), ((6,) * 9, ())])
def test_records_are_found_by_key_and_by_its_beginning(
    sealed: tuple[int, ...], tail: tuple[int, ...], indexed: int
) -> None:
    topic = Topic(sealed, tail, has_meta=indexed != 2)
    if indexed and sealed:
        index_runs.index(topic.world.stores, topic.reader.log, "p", span=2, skip=9 - indexed)
        if indexed > 2:
            index_runs.compact(topic.world.stores, topic.reader.log, "p")
    for seed in range(3):
        check(topic, random.Random(seed))


def test_records_below_the_floor_are_not_found() -> None:
    topic = Topic((9, 9), (5,))
    topic.world.pairs.raise_floor("p", 12)
    head = topic.reader.log.head("p")
    assert list(topic.reader.log.tagged(head, "b", True, 0, 99)) == expected(topic, "b", True, 12, 99)
    assert len(topic.reader.log.sizes(head, 0, 99)) == 23 - 12


def test_runs_say_which_key_pages_need_not_be_read() -> None:
    topic = Topic((8,) * prune.KEYED_SEGMENTS, (1,))
    topic.append(1, key="rare/1")
    for _ in range(prune.KEYED_SEGMENTS):
        topic.append(3)
        topic.world.seal(topic.log_id)
    count = len(topic.written)

    def costs() -> Counter[str]:
        seen = len(topic.objects.seen)
        reader = topic.cold()
        found = list(reader.log.tagged(reader.log.head("p"), "rare/", True, 0, count))
        assert found == expected(topic, "rare/", True, 0, count)
        made = topic.objects.seen[seen:]
        return Counter(kind(args[0]) for method, args in made if method == "get")

    assert costs()["key_page"] == 2 * prune.KEYED_SEGMENTS
    index_runs.index(topic.world.stores, topic.reader.log, "p", span=20)
    assert costs()["key_page"] == 1

    (run,) = IndexManifestStore(topic.world.objects).newest(topic.log_id).runs
    topic.world.objects.delete([keys.run_descriptor(topic.log_id, run.id)])
    assert costs()["key_page"] == 2 * prune.KEYED_SEGMENTS, "a run that is gone is no answer"
