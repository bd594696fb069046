"""Filtered and keyed reads agree with a naive look at every record: tail, segments, forks, across schema changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.seal import SourceUnsealed, seal
from functions.sealer.trim import trim
from headrace.batch import Record
from headrace.log import join as tail
from headrace.log import read, view
from headrace.log.requests import At, Bounds, Head, ReadPage, Selection
from headrace.segment import reader as segments
from headrace.segment import writer
from headrace.streams.values import CreateRequest, ForkRequest
from headrace.wal import memory as wal_memory
from headrace.wal.state import Cursor
from tests.support.builders import JSON, appending
from tests.support.clocks import ManualClock
from tests.support.examples import examples
from tests.unit.log import selections
from tests.unit.log.selections import KEYS, LAST_VERSION, Made, Tree
from tests.unit.log.test_definitions import installing
from tests.unit.log.world import World

SCAN_LIMIT = 700  # bytes, instead of 100 MiB

_SMALL: tuple[tuple[Any, str, Any], ...] = (
    (view, "FILTER_SCAN_BYTES", SCAN_LIMIT),
    (read, "SCAN_CHUNK_BYTES", 200),
    (segments, "_RUN_BYTES", 250),
    (writer, "_PAGE_BYTES", 1),
    (writer, "_BATCHES", (2, 1)),
    (tail, "RECENT", 3),
    (tail, "_FEWEST", 2),
    (wal_memory, "_PAGE_BYTES", 1500),
)


@pytest.fixture(autouse=True, scope="module")
def _small_pages() -> Iterator[None]:
    """Pages, chunks and limits that a dozen records reach."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, value in _SMALL:
            patch.setattr(owner, name, value)
        yield


class Stored(NamedTuple):
    """A record as it is stored."""

    made: Made
    version: int
    text: bytes
    time_ms: int


class Asked(NamedTuple):
    """What one read of the whole wants, and how it pages: bounds of each page in turn, and whether its time is over."""

    key: str | None
    tree: Tree | None
    since: float | None  # the share of the records that are older
    bounds: tuple[tuple[int, int], ...]
    late: bool
    cold: bool


def _described(_head: Head, record: Record) -> bytes:
    return json.dumps([record.offset, record.time_ms, record.key]).encode() + b"\n" + record.data


class Run:
    """A stream, and what it holds."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.world = World(seal_records=9, spill_bytes=300)
        self.process = self.world.process(self.clock)
        self.parts = assemble(self.process.stores, MemoryQueue())
        self.name = "s"
        self.log_ids = [self.process.create(content_type=JSON)]
        self.version = 0
        self.evolve()
        self.records: list[Stored] = []

    def append(self, made: list[Made]) -> None:
        """One batch."""
        self.clock.advance(0.007)
        stored = [self._stored(one) for one in made]
        self.process.logs.append(self.name, appending(*(one.text for one in stored), content_type=JSON))
        self.records += stored

    def _stored(self, made: Made) -> Stored:
        return Stored(made, self.version, selections.text(made, self.version), self.clock.now_ms())

    def evolve(self) -> None:
        """The next version of the schema, if there is one."""
        if self.version < LAST_VERSION:
            body = selections.update(self.version + 1, self.name)
            self.process.logs.define(self.name, installing(self.name, **body))
            self.version += 1

    def seal(self) -> None:
        """Everything that is there, of every log."""
        for log_id in self.log_ids:
            try:
                seal(self.parts, log_id, force=True)
            except SourceUnsealed as exc:
                raise AssertionError("sources are sealed first here") from exc

    def trim(self) -> None:
        """Whatever is sealed; other processes' pictures are old then."""
        self.clock.advance(3600)
        for log_id in self.log_ids:
            trim(self.parts, log_id)

    def fork(self, share: float, made: list[Made]) -> None:
        """The stream goes on as a fork of itself."""
        if len(self.log_ids) > 2:
            return
        position = round(share * len(self.records))
        self.clock.advance(0.007)
        own = [self._stored(one) for one in made]
        name = f"fork{len(self.log_ids)}"
        created = self.process.logs.create(
            name,
            CreateRequest(
                fork=ForkRequest(self.name, Cursor(None, position)),
                records=appending(*(one.text for one in own), content_type=JSON).records,
            ),
        )
        self.name = name
        self.log_ids.append(created.head.log_id)
        self.records = self.records[:position] + own

    def check(self, asked: Asked) -> None:
        """Reads the stream from page to page; each must be what a look at every record says."""
        logs = (self.world.process(self.clock) if asked.cold else self.process).logs
        selection = Selection(asked.key, None if asked.tree is None else selections.query(asked.tree))
        at, start = self._beginning(asked)
        pages = 0
        while True:
            max_records, max_bytes = asked.bounds[pages % len(asked.bounds)]
            until = self.clock.monotonic() if asked.late else None
            page = logs.read(self.name, at, selection, max_records=max_records, max_bytes=max_bytes, until=until)
            assert page.start == start
            self._check_page(page, asked, max_records, max_bytes)
            bounds = Bounds(max_records=max_records, max_bytes=max_bytes, until=until, describe=_described)
            self._check_descriptions(page, logs.read(self.name, at, selection, **bounds))
            if page.up_to_date:
                return
            assert page.next > page.start, "no progress"
            pages += 1
            start, at = page.next, At(Cursor(page.head.incarnation, page.next))

    def _beginning(self, asked: Asked) -> tuple[At, int]:
        if asked.since is None:
            return At(Cursor(None, 0)), 0
        at = round(asked.since * len(self.records))
        since_ms = self.records[at].time_ms if at < len(self.records) else self.clock.now_ms() + 1
        found = (offset for offset, one in enumerate(self.records) if one.time_ms >= since_ms)
        return At(since_ms=since_ms), next(found, len(self.records))

    def _check_page(self, page: ReadPage, asked: Asked, max_records: int, max_bytes: int) -> None:
        passed = self.records[page.start : page.next]
        of_key = [one for one in passed if asked.key is None or one.made.key == asked.key]
        wanted = [one for one in of_key if asked.tree is None or self._matches(one, asked.tree)]
        assert page.end == len(self.records)
        assert len(page.data) == len(wanted)
        for one, shown in zip(wanted, page.data, strict=True):
            if one.version == self.version:
                assert shown == one.text, "bytes that no lens touches are a client's own"
            else:
                assert json.loads(shown) == selections.promoted(one.made, one.version, self.version)
        assert len(page.data) <= max_records
        assert sum(map(len, page.data[:-1])) < max_bytes
        scanned = sum(len(one.text) for one in of_key)
        assert (page.scan is None) == (asked.tree is None)
        if page.scan is not None:
            assert page.scan == (scanned, scanned >= SCAN_LIMIT)
        is_late = asked.late and (asked.key is not None or asked.tree is not None)
        is_full = len(page.data) == max_records or sum(map(len, page.data)) >= max_bytes
        at_limit = page.scan is not None and page.scan.limit_reached
        assert page.up_to_date or is_full or at_limit or is_late, "a page ends early for a reason"

    def _check_descriptions(self, page: ReadPage, described: ReadPage) -> None:
        """Descriptions are of the records that a page has; they may be longer, so that it has fewer of them."""
        assert described.next > described.start or page.next == page.start
        assert page.data[:1] == [text.partition(b"\n")[2] for text in described.data[:1]]
        for text, shown in zip(described.data, page.data, strict=False):
            about, _, data = text.partition(b"\n")
            offset, time_ms, key = json.loads(about)
            one = self.records[offset]
            assert (time_ms, key, data) == (one.time_ms, one.made.key, shown)

    def _matches(self, one: Stored, tree: Tree) -> bool:
        return selections.holds(tree, selections.truth_at(one.made, one.version, self.version))


_BATCH = st.lists(selections.records(), min_size=1, max_size=6)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), _BATCH),
        st.tuples(st.just("append"), _BATCH),
        st.tuples(st.sampled_from(["seal", "seal", "trim", "evolve", "evolve"])),
        st.tuples(st.just("fork"), st.floats(0, 1), st.lists(selections.records(), max_size=2)),
    ),
    min_size=2,
    max_size=12,
)


def _asked(version: int) -> SearchStrategy[Asked]:
    bounds = st.tuples(st.integers(1, 5), st.sampled_from([1, 60, 400, 10_000]))
    return st.builds(
        Asked,
        key=st.none() | st.sampled_from(KEYS),
        tree=st.none() | selections.filters(version),
        since=st.none() | st.floats(0, 1),
        bounds=st.lists(bounds, min_size=1, max_size=3).map(tuple),
        late=st.booleans(),
        cold=st.booleans(),
    )


@examples(150)
@given(_STEPS, st.data())
def test_a_selected_read_is_what_a_look_at_every_record_finds(
    steps: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    run = Run()
    for verb, *rest in steps:
        getattr(run, verb)(*rest)
    for number in range(3):
        run.check(data.draw(_asked(run.version), label=f"read {number}"))
    run.seal()
    run.trim()
    run.check(data.draw(_asked(run.version), label="read of what is sealed and trimmed"))
