"""Reads that select records, over index runs: what they find is what they find without, at fewer requests."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.seal import seal
from functions.sealer.trim import trim
from headrace.batch import Batch
from headrace.index import evaluate
from headrace.index.fetching import RunCache
from headrace.index.manifest import IndexManifests, IndexManifestStore
from headrace.log import prune, view
from headrace.log.requests import At, ReadPage, Selection
from headrace.manifest.store import KEPT_MS
from headrace.objects import Range, keys
from headrace.objects.memory import MemoryObjects
from headrace.query.engine import context as engines
from headrace.query.engine.search import search
from headrace.streams.values import AppendRequest
from headrace.wal.state import Cursor
from tests.support import index_runs
from tests.support.builders import JSON
from tests.support.examples import examples
from tests.unit.log import selections
from tests.unit.log.test_definitions import installing
from tests.unit.log.test_selection_properties import _BATCH, _SMALL, SCAN_LIMIT, Asked, Run, _asked
from tests.unit.log.world import Process, World


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are asked for a record, and again each time."""
    _make_eager(monkeypatch)


def _make_eager(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(prune, "KEYED_SEGMENTS", 1)
    patch.setattr(prune, "FILTERED_BYTES", 0)
    patch.setattr(prune, "LACKING_AGE_S", -1)


# Any stream, any query.


class IndexedRun(Run):
    """A stream of which index runs are built now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.names = [self.name]

    def fork(self, share: float, made: list[Any]) -> None:
        super().fork(share, made)
        if self.name not in self.names:
            self.names.append(self.name)

    def index(self, span: int) -> None:
        """Seals everything, and builds runs of so many segments."""
        self.seal()
        for name in self.names:
            index_runs.index(self.process.stores, self.process.logs, name, span=span)

    def compact(self) -> None:
        """Merges the runs of each log, if there are several."""
        for name in self.names:
            head = self.process.logs.head(name)
            plan = index_runs.descriptors.hash_of(self.process.logs.definition_of(head))
            if len(IndexManifestStore(self.world.objects).newest(head.log_id).of_plan(plan)) > 1:
                index_runs.compact(self.process.stores, self.process.logs, name)

    def _check_page(self, page: ReadPage, asked: Asked, max_records: int, max_bytes: int) -> None:
        """As for any read, but that fewer records are looked at."""
        scan = page.scan
        if scan is None:
            super()._check_page(page, asked, max_records, max_bytes)
            return
        passed = self.records[page.start : page.next]
        of_key = [one for one in passed if asked.key is None or one.made.key == asked.key]
        wanted = [one for one in of_key if asked.tree is None or self._matches(one, asked.tree)]
        assert sum(len(one.text) for one in wanted) <= scan.bytes <= sum(len(one.text) for one in of_key)
        assert scan.limit_reached == (scan.bytes >= SCAN_LIMIT)
        assert len(page.data) == len(wanted)
        for one, shown in zip(wanted, page.data, strict=True):
            expected = selections.promoted(one.made, one.version, self.version)
            assert json.loads(shown) == expected if one.version < self.version else shown == one.text
        is_full = len(page.data) == max_records or sum(map(len, page.data)) >= max_bytes
        assert page.up_to_date or is_full or scan.limit_reached or asked.late, "a page ends early for a reason"


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), _BATCH),
        st.tuples(st.just("append"), _BATCH),
        st.tuples(st.just("index"), st.integers(1, 3)),
        st.tuples(st.just("index"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["seal", "trim", "evolve", "compact"])),
        st.tuples(st.just("fork"), st.floats(0, 1), st.lists(selections.records(), max_size=2)),
    ),
    min_size=2,
    max_size=12,
)


@examples(60)
@given(_STEPS, st.data())
def test_a_pruned_read_is_what_a_look_at_every_record_finds(
    steps: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, value in (*_SMALL, (prune, "ROUND_BYTES", 300), (evaluate, "FEW", 1)):
            patch.setattr(owner, name, value)
        _make_eager(patch)
        run = IndexedRun()
        for verb, *rest in steps:
            getattr(run, verb)(*rest)
        for number in range(3):
            run.check(data.draw(_asked(run.version), label=f"read {number}"))
        run.index(2)
        run.compact()
        run.trim()
        run.check(data.draw(_asked(run.version), label="read of what is indexed and trimmed"))


# What it costs.

SEARCH = {
    "primaryTimestampField": "at",
    "fields": {
        "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": True},
        "n": {"kind": "integer", "bindings": [{"version": 1, "jsonPointer": "/n"}], "exact": True, "column": True},
        "who": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/who"}], "exact": True},
    },
}
PER_SEGMENT = 40


class Counted(MemoryObjects):
    """Keeps what is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.rounds = 0

    def get(self, key: str) -> bytes:
        self.asked.append(key)
        self.rounds += 1
        return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get_ranges([Range(key, start, length)])[0]

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        self.asked += [one.key for one in ranges]
        self.rounds += 1
        return [MemoryObjects.get(self, one.key)[one.start : one.start + one.length] for one in ranges]

    def take(self, *kinds: str) -> dict[str, int]:
        """Returns how many keys of each kind were asked for since the last call."""
        asked, self.asked = self.asked, []
        return {kind: sum(kind in key for key in asked) for kind in kinds}


class Shop:
    """A stream of segments with records of 40 keys, one of each in a segment."""

    def __init__(self, segments: int) -> None:
        self.objects = Counted()
        self.world = World()
        self.world.objects = self.objects
        self.maker = self.world.process()
        self.log_id = self.maker.create(content_type=JSON)
        self.maker.logs.define("s", installing(schema={"type": "object"}, search=SEARCH))
        self.parts = assemble(self.maker.stores, MemoryQueue())
        for segment in range(segments):
            self.append(segment)
            self.seal()

    def seal(self) -> None:
        """Moves all records to a segment, so that they are nowhere else."""
        seal(self.parts, self.log_id, force=True)
        self.maker.clock.advance(3600)
        trim(self.parts, self.log_id)

    def append(self, segment: int) -> None:
        rows = range(PER_SEGMENT)
        records = Batch.of(
            [json.dumps({"n": segment, "who": f"w{row}", "pad": "x" * 200}).encode() for row in rows],
            key=[f"k{row}" for row in rows],
        )
        self.maker.logs.append("s", _append(records))

    def index(self, span: int = 16) -> None:
        index_runs.index(self.maker.stores, self.maker.logs, "s", span=span)

    def process(self) -> Process:
        """Another process, that has seen the stream once."""
        process = self.world.process()
        process.logs.read("s", At(Cursor(None, 0)), max_records=1)
        self.objects.take()
        return process


def _append(records: Batch) -> AppendRequest:
    return AppendRequest(content_type=JSON, records=records)


def found(process: Process, key: str | None = None, query: str | None = None) -> list[Any]:
    """Returns everything selected, page by page."""
    records: list[Any] = []
    at = At(Cursor(None, 0))
    while True:
        page = process.logs.read("s", at, Selection(key, query))
        records += [json.loads(data) for data in page.data]
        if page.up_to_date:
            return records
        at = At(Cursor(page.head.incarnation, page.next))


def test_a_key_costs_a_lookup_for_each_run_and_pages_not_a_key_page_for_each_segment() -> None:
    shop = Shop(segments=12)
    expected = found(shop.process(), key="k7")
    assert [record["n"] for record in expected] == list(range(12))
    unpruned = shop.objects.take("/segments/", ".keys.zst")
    assert unpruned[".keys.zst"] == 12

    shop.index(span=6)
    process = shop.process()
    assert found(process, key="k7") == expected
    cold = shop.objects.take(".keys.zst", "/lex-", "run.msgpack.zst", "/segments/")
    assert cold == {".keys.zst": 0, "/lex-": 2, "run.msgpack.zst": 2, "/segments/": 12}
    before = shop.objects.rounds
    assert found(process, key="k8") == [{**record, "who": "w8"} for record in expected]
    warm = shop.objects.take(".keys.zst", "run.msgpack.zst", "/manifests/")
    assert warm == {".keys.zst": 0, "run.msgpack.zst": 0, "/manifests/": 0}
    assert shop.objects.rounds - before <= 4, "the pages of a run are fetched at once"


def test_reads_and_searches_share_what_they_keep_of_runs(eager: None) -> None:
    shop = Shop(segments=8)
    shop.index()
    process = shop.process()
    found(process, key="k7")
    assert shop.objects.take("run.msgpack.zst", "/lex-") == {"run.msgpack.zst": 1, "/lex-": 1}
    engine = engines.assemble(process.stores, process.logs)
    assert len(search(engine, "s", {"q": "who:w7"}).hits) == 8
    assert shop.objects.take("run.msgpack.zst", "/col-") == {"run.msgpack.zst": 0, "/col-": 1}
    found(process, query="who:w7")
    assert shop.objects.take("run.msgpack.zst", "/col-") == {"run.msgpack.zst": 0, "/col-": 0}


def test_a_filter_looks_at_what_a_run_points_at(eager: None) -> None:
    shop = Shop(segments=8)
    shop.index()
    process = shop.process()
    page = process.logs.read("s", At(Cursor(None, 0)), Selection(filter="who:w3 n:>=6"))
    assert [json.loads(data)["n"] for data in page.data] == [6, 7]
    assert page.up_to_date
    assert page.scan is not None
    assert page.scan.bytes == sum(map(len, page.data))
    assert shop.objects.take("/segments/") == {"/segments/": 2}


def test_what_no_run_covers_is_looked_at(eager: None) -> None:
    shop = Shop(segments=4)
    shop.index()
    for segment in (4, 5):
        shop.append(segment)
        shop.seal()
    shop.append(6)
    for chosen in ({"key": "k1"}, {"query": "who:w1"}):
        assert [record["n"] for record in found(shop.process(), **chosen)] == list(range(7))


def test_a_short_read_asks_no_run() -> None:
    shop = Shop(segments=3)
    shop.index()
    process = shop.process()
    assert len(found(process, key="k1")) == 3
    assert shop.objects.take("/index/", ".keys.zst") == {"/index/": 0, ".keys.zst": 3}


def test_an_older_plan_prunes_keys_and_no_filter(eager: None) -> None:
    shop = Shop(segments=4)
    shop.index()
    shop.maker.logs.define("s", installing(search={**SEARCH, "fields": {**SEARCH["fields"], "new": _NEW}}))
    assert len(found(shop.process(), key="k1")) == 4
    assert shop.objects.take(".keys.zst") == {".keys.zst": 0}
    assert len(found(shop.process(), query="new:w1")) == 4
    assert shop.objects.take("run.msgpack.zst") == {"run.msgpack.zst": 0}


_NEW = {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/who"}], "exact": True}


@pytest.mark.parametrize("harm", ["missing", "altered", "descriptor"])
def test_a_broken_run_costs_time_and_no_record(eager: None, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(segments=4)
    shop.index()
    harmed = ("run.msgpack",) if harm == "descriptor" else ("/lex-", "/kw-", "/col-")
    for key in [key for key in shop.objects.list("logs/") if any(kind in key for kind in harmed)]:
        data = shop.objects.get(key)
        shop.objects.delete([key])
        if harm == "altered":
            shop.objects.put(key, bytes(reversed(data)))
    with caplog.at_level(logging.WARNING):
        for chosen in ({"key": "k1"}, {"query": "who:w1"}):
            assert [record["n"] for record in found(shop.process(), **chosen)] == list(range(4))
    assert "a run can't be read" in caplog.text


def test_a_run_that_was_replaced_and_removed_is_found_in_the_newer_manifest() -> None:
    shop = Shop(segments=8)
    shop.index(span=4)
    process = shop.process()
    assert len(found(process, key="k1")) == 8
    before = IndexManifestStore(shop.objects).newest(shop.log_id)
    index_runs.compact(shop.maker.stores, shop.maker.logs, "s")
    for run in before.runs:
        shop.objects.delete(list(shop.objects.list(run.descriptor.rpartition("/")[0])))
    shop.objects.take()
    assert len(found(process, key="k2")) == 8
    assert shop.objects.take(".keys.zst") == {".keys.zst": 0}


def test_new_runs_are_seen_after_a_while() -> None:
    shop = Shop(segments=6)
    process = shop.process()
    reads: Callable[[], dict[str, int]] = lambda: (found(process, key="k1"), shop.objects.take("/lex-"))[1]  # noqa: E731
    assert reads() == {"/lex-": 0}
    shop.index()
    assert reads() == {"/lex-": 0}, "the manifest in hand is young"
    process.clock.advance(prune.LACKING_AGE_S + 1)
    assert reads() == {"/lex-": 1}
    process.clock.advance(prune.AGE_S + 1)
    shop.objects.take()
    found(process, key="k1")
    assert shop.objects.take("/index/manifests/") == {"/index/manifests/": 1}, "a look for a newer one"


def test_a_manifest_in_hand_for_days_is_not_taken_for_the_newest(eager: None) -> None:
    shop = Shop(segments=2)
    shop.index(span=1)
    process = shop.process()
    expected = found(process, key="k1")
    store = IndexManifestStore(shop.objects)
    newest = store.newest(shop.log_id)
    for generation in range(newest.generation + 1, newest.generation + 4):
        newest = replace(newest, generation=generation)
        assert store.publish(newest)
    shop.objects.delete([keys.index_manifest(shop.log_id, newest.generation - back) for back in (1, 2)])
    process.clock.advance(KEPT_MS / 1000)
    shop.objects.take()
    assert found(process, key="k1") == expected
    asked = [key for key in shop.objects.asked if "/index/manifests/" in key]
    assert keys.index_manifest(shop.log_id, newest.generation) in asked, "the gap did not end the search"


def test_what_is_known_ends_where_the_question_ends() -> None:
    """A run may begin behind it: a fork reads of its source what was before the fork point."""
    shop = Shop(segments=6)
    shop.index(span=3)
    store = IndexManifestStore(shop.objects)
    before = store.newest(shop.log_id)
    later = before.runs[1]
    assert store.publish(replace(before, generation=before.generation + 1, runs=(later,)))
    stores = shop.process().stores
    pruner = prune.Pruner(
        IndexManifests(stores.objects, stores.clock), RunCache(stores.objects, stores.clock.monotonic)
    )
    keyed = view.View(shop.maker.logs.definition("s"), Selection(key="k1"), JSON)
    assert pruner.ahead(shop.log_id, 0, 10, keyed) == (10, None)
    assert pruner.ahead(shop.log_id, 0, 1000, keyed) == (later.first_offset, None)
    end, offsets = pruner.ahead(shop.log_id, later.first_offset, later.first_offset + 50, keyed)
    assert (end, offsets.tolist()) == (later.first_offset + 50, [later.first_offset + 1, later.first_offset + 41])
