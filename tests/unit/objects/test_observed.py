"""Which requests are counted as what, and how they reach the durable counters."""

from __future__ import annotations

import pytest

from headrace.errors import StoreThrottled, StoreTimeout
from headrace.objects import ObjectMissing, Range, keys
from headrace.objects.memory import MemoryObjects
from headrace.objects.observed import ObservedObjects, RequestCounts
from headrace.tables.watermarks import MemoryWatermarks
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty

LOG = "0" * 32


def test_every_key_has_its_kind() -> None:
    segment = keys.segment(LOG, 1, "n")
    expected = {
        keys.payload(LOG, 1, "n"): "wal_payload",
        segment: "segment",
        keys.segment_keys(segment): "key_page",
        keys.manifest(LOG, 1): "manifest",
        keys.manifest_page(LOG, 1, "n"): "manifest_page",
        keys.definition(LOG, 1, "n"): "schema_registry",
        keys.definitions(LOG): "schema_registry",
        keys.removed(LOG, 1, "n"): "removed_records",
        keys.removed_page(LOG, 1, "n"): "removed_records",
        keys.snapshot(LOG, 1, "n"): "lease_snapshot",
        keys.description(LOG): "log",
        keys.tombstone(LOG): "log",
        keys.log_prefix(LOG): "log",
        keys.index_manifest(LOG, 1): "index_manifest",
        keys.index_manifests(LOG): "index_manifest",
        keys.run_descriptor(LOG, "run"): "index_run",
        keys.run_part(LOG, "run", "kw", 0, "n"): "index_run",
    }
    assert {key: keys.artifact(key) for key in expected} == {key: (LOG, kind) for key, kind in expected.items()}
    assert keys.artifact(keys.ROOT) is None
    assert keys.artifact("logs/x") is None
    assert keys.artifact("other/x/wal/1") is None


def flushed(counts: RequestCounts, log_id: str) -> dict[str, int]:
    """Flushes the counts and returns those of a log."""
    watermarks = MemoryWatermarks()
    counts.flush(watermarks)
    return watermarks.usage(log_id).requests


def test_every_method_is_counted_and_does_what_it_did() -> None:
    counts = RequestCounts()
    objects = ObservedObjects(MemoryObjects(), ManualClock(), counts.observe)
    key = keys.segment(LOG, 1, "n")
    objects.put(key, b"data")
    assert not objects.create(key, b"other")
    assert (objects.get(key), objects.get_range(key, 1, 2)) == (b"data", b"at")
    assert objects.get_ranges([Range(key, 1, 2), Range(key, 0, 1)]) == [b"at", b"d"]
    assert list(objects.list(keys.log_prefix(LOG))) == [key]
    objects.delete([key])
    with pytest.raises(ObjectMissing):
        objects.get(key)
    assert flushed(counts, LOG) == {"segment.put": 2, "segment.get": 5, "log.list": 1, "segment.delete": 1}
    assert len(counts) == 0


def test_a_long_list_is_as_many_requests_as_it_has_pages() -> None:
    for made, requests in ((0, 1), (1, 1), (1000, 1), (1001, 2), (2000, 2), (2001, 3)):
        counts, store = RequestCounts(), MemoryObjects()
        for number in range(made):
            store.put(keys.payload(LOG, number, "n"), b"")
        assert len(list(ObservedObjects(store, ManualClock(), counts.observe).list(keys.log_prefix(LOG)))) == made
        assert flushed(counts, LOG) == {"log.list": requests}


def test_what_is_no_log_is_not_counted() -> None:
    counts = RequestCounts()
    assert list(ObservedObjects(MemoryObjects(), ManualClock(), counts.observe).list(keys.ROOT)) == []
    assert len(counts) == 0


def test_counts_are_added_once_for_each_log() -> None:
    counts, watermarks = RequestCounts(), Faulty(MemoryWatermarks())
    for log, times in (("a", 2), ("b", 1)):
        for _ in range(times):
            counts.note(keys.manifest(log, 1), "get")
    counts.flush(watermarks)
    counts.flush(watermarks)
    assert watermarks.calls["count"] == 2
    assert watermarks.usage("a").requests == {"manifest.get": 2}
    assert watermarks.usage("b").requests == {"manifest.get": 1}


def test_what_is_refused_is_added_later_and_what_is_unknown_never_twice() -> None:
    counts, watermarks = RequestCounts(), Faulty(MemoryWatermarks())
    counts.note(keys.manifest("a", 1), "get")
    watermarks.fail("count", StoreThrottled)
    counts.flush(watermarks)
    assert len(counts) == 1
    watermarks.fail("count", StoreTimeout, after=True)
    counts.flush(watermarks)
    counts.flush(watermarks)
    assert watermarks.usage("a").requests == {"manifest.get": 1}


def test_the_first_count_after_a_flush_is_told() -> None:
    counts = RequestCounts()
    told: list[int] = []
    counts.on_first = lambda: told.append(len(counts))
    for _ in range(3):
        counts.note(keys.manifest("a", 1), "get")
    flushed(counts, LOG)
    counts.note(keys.manifest("a", 1), "get")
    assert told == [1, 1]
