"""Reads records: joins the published part of a log with the tail of the write-ahead log.

The tail is read first, so that a delete or a close is final the moment it is answered; only a contiguous chain is
returned. If tail and manifest don't join, the watermark and newer manifests are read, and joined again. A gap that
remains raises `Damaged` and is never an answer. If a segment is gone and a newer manifest names another one, it was
merged, and reading continues with that one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice, pairwise, takewhile

from headrace.batch import Record
from headrace.errors import BelowFloor, Damaged, SegmentMissing
from headrace.index import fetching
from headrace.limits import PAGE_BYTES, PAGE_RECORDS, SCAN_CHUNK_BYTES
from headrace.log import join, prune
from headrace.log.context import Context, Picture
from headrace.log.control import Controls
from headrace.log.join import PayloadTrimmed, Tail, fetch_payloads, read_payload
from headrace.log.prune import Ahead, Pruner
from headrace.log.requests import (
    EVERYTHING,
    At,
    Describe,
    Head,
    ReadPage,
    RecordsPage,
    Scan,
    Selection,
    check_cursor,
)
from headrace.log.seam import Which, split
from headrace.log.times import TimeFinder
from headrace.log.view import RAW, Collector, DescribingCollector, RecordCollector, View
from headrace.manifest.manifest import Manifest
from headrace.objects import ObjectMissing
from headrace.segment import reader
from headrace.segment.columns import ColumnCache
from headrace.segment.descriptor import Segment
from headrace.tables.catalog import Row
from headrace.wal.state import BEGINNING, Cursor, Entry, LogConfig, encode_cursor

NEAR_RECORDS = 1000  # so close to the end, the newest entries probably hold a cursor


class Reader:
    """The reads of one surface's logs: pages of records, or one record, from the published part and the tail.

    Attributes:
        columns: the cache of key pages.
    """

    def __init__(self, context: Context, controls: Controls, pruner: Pruner) -> None:
        self._context = context
        self._stores = context.stores
        self._pictures = context.pictures
        self._manifests = context.manifests
        self._controls = controls
        self._pruner = pruner
        self.columns = ColumnCache()
        self._times = TimeFinder(self._stores, self._manifests, self.refresh_manifest)

    def read(
        self,
        which: Which,
        at: At,
        selection: Selection = EVERYTHING,
        *,
        touch: bool = True,
        max_records: int = PAGE_RECORDS,
        max_bytes: int = PAGE_BYTES,
        until: float | None = None,
        describe: Describe | None = None,
    ) -> ReadPage:
        """Returns one page of records.

        Args:
            at: where the page begins.
            selection: which records to return.
            touch: whether the read renews a sliding TTL.
            until: monotonic seconds at which a selecting read ends with what it has, and says how far it came.
            describe: returns what the page has instead of a record's data.

        Raises:
            InvalidRequest: the cursor is of a future incarnation.
            Gone: it is of an older one.
            BelowFloor: it points to records that were removed. (The beginning is where the records begin.)
            Also the errors of `Log.head`.
        """
        for _ in join.looks(split(which)[0], "below the floor"):
            page = self._read(which, at, selection, touch, max_records, max_bytes, until, describe)
            manifest = self._pictures.manifest(page.head.log_id)
            begin = 0 if manifest is None else manifest.begin_offset
            if begin <= max(page.start, page.head.config.base_offset):
                return page
            # Records were dropped since the page's head was read: a newer one has the floor.
        raise AssertionError("the last look raises")

    def _read(
        self,
        which: Which,
        at: At,
        selection: Selection,
        touch: bool,
        max_records: int,
        max_bytes: int,
        until: float | None,
        describe: Describe | None,
    ) -> ReadPage:
        """Returns a page as `read` does; records that are dropped meanwhile are left out of it."""
        end, head, picture = self._end(which, at)
        config = head.config
        view = View(
            self._context.definition(head.log_id, head.state),
            selection,
            config.content_type,
            self._context.surface.noun,
        )
        if at.cursor is not None:
            foreign = check_cursor(config, at.cursor, head.state.recoveries)
            position = at.cursor.position
            if position < head.state.floor and at.cursor != BEGINNING:
                raise BelowFloor(encode_cursor(head.incarnation, head.state.floor))
        else:
            foreign = False
            position = head.state.next_offset if at.since_ms is None else self._times.position(head, at.since_ms)
        position = max(position, head.state.floor)
        if touch:
            self._controls.touch(picture)
        monotonic = self._stores.clock.monotonic
        page = Collector(view, max_records, max_bytes, lambda: until is not None and monotonic() >= until)
        if describe is not None:
            page = DescribingCollector(page, self.columns, partial(describe, head))
        start = position
        position = self.fill_all(head.log_id, config, position, head.state.next_offset, end, page)
        scan = Scan(page.scanned, page.limit_reached) if view.scans else None
        return ReadPage(head, start, position, head.state.next_offset, page.data, page.size, foreign, scan)

    def records(self, which: Which, position: int, max_records: int, max_bytes: int) -> RecordsPage:
        """Returns consecutive records with all their columns, from `position` on, or from the log's floor if that is
        higher.

        Raises:
            The errors of `Log.head`.
        """
        for _ in join.looks(split(which)[0], f"position={position}"):
            end, head, _ = self._end(which, At(Cursor(None, position)))
            position = max(position, head.state.floor)
            page = RecordCollector(self.columns, max_records, max_bytes)
            after = self.fill_all(head.log_id, head.config, position, head.state.next_offset, end, page)
            if (page.records[0].offset if page.records else after) == position:
                return RecordsPage(head, page.records, position + len(page.records), head.state.next_offset)
            # Records were dropped since `head` was read: a newer one has the floor.
        raise AssertionError("the last look raises")

    def page(self, row: Row, position: int, max_records: int, max_bytes: int) -> list[Record]:
        """Returns consecutive records with all their columns, from `position` on: all `max_records` of them must exist, but
        those that were dropped meanwhile are left out. At least one, unless `max_records` is 0, and no more once their data
        and meta reach `max_bytes`.
        """
        page = RecordCollector(self.columns, max_records, max_bytes)
        self.fill_all(row.log_id, row.config, position, position + max_records, None, page)
        return page.records

    def read_one(self, row: Row, position: int) -> bytes:
        """Returns the data of the record at a position, which must exist."""
        page = Collector(RAW, 1, 1)
        self.fill_all(row.log_id, row.config, position, position + 1, None, page)
        return page.data[0]

    def fill_all(
        self, log_id: str, config: LogConfig, position: int, stop: int, end: Tail | None, page: Collector
    ) -> int:
        """Adds records of a log, inherited ones too, to the page, from `position` on and not past `stop`. Returns the
        position after the last record looked at.

        Args:
            end: a tail that was read already and may hold the records; None if there is none.
        """
        for ancestor in config.lineage:
            while position < min(ancestor.through, stop) and not page.full:
                position, _ = self._fill(ancestor.log_id, position, min(ancestor.through, stop), None, page)
        sample = self._sample(log_id, config) if end is None else end
        while position < stop and not page.full:
            position, sample = self._fill(log_id, position, stop, end, page, sample)
        return position

    def segments(self, log_id: str, position: int, stop: int) -> list[Segment]:
        """Returns the first few of a log's own segments with records of `[position, stop)`: as many as make it worth to
        ask index runs. Looks for newer manifests only if this process knows none.
        """
        manifest = self._pictures.manifest(log_id) or self.refresh_manifest(log_id)
        return (
            [] if manifest is None else list(islice(self._segments(manifest, position, stop), prune.KEYED_SEGMENTS))
        )

    def _end(self, which: Which, at: At) -> tuple[Tail, Head, Picture]:
        """Reads the end of the log: a tail that includes the newest entry, and the log's state and picture as of it. Raises
        Damaged if the log has no entry.
        """
        read = self._pictures.read_time()
        picture = self._pictures.warm(which)
        row = picture.row if picture is not None else self._pictures.row(which)
        found = Tail([], None)
        position = at.cursor.position if at.cursor is not None else None
        if picture is not None and (position is None or not 0 < picture.newest.offset - position <= NEAR_RECORDS):
            # At the end, or far from it: what came after the newest entry known here says where the end is.
            known = picture.newest
            if position is not None and known.offset <= position < known.next_offset:
                found = join.read_after(self._stores.wal, row.log_id, known.slot)
            else:
                found = join.read_beyond(self._stores.wal, known)
                if self._pictures.is_old(picture.read):  # it took so long that the log may have been purged meanwhile
                    found = Tail([], None)
                elif found.newest is known:
                    read = picture.read  # nothing followed the entry, but it was not seen again itself
        if found.newest is None:
            found = join.read_newest(self._stores.wal, row.log_id)
        if found.newest is None:
            raise Damaged(f"log has no entry: log_id={row.log_id} name={row.name}")
        if found.newest.state.ended and picture is not None:
            picture = self._pictures.look(which)  # perhaps the name has another log by now
            if picture.row.log_id != row.log_id:
                row = picture.row
                found = join.read_newest(self._stores.wal, row.log_id)
        assert found.newest is not None
        picture = self._pictures.remember(row, found.newest, read)
        living = self._controls.living(picture)
        if living is not picture:
            found = Tail([], None)  # it was renewed, perhaps as another log: that was not its end
        return found, self._context.head(living), living

    def _sample(self, log_id: str, config: LogConfig) -> Tail | None:
        """Returns the newest entry of a log, without its records, as far as this process knows it: others may hold as many
        records.
        """
        picture = self._pictures.warm((config.name, config.role))
        return Tail([picture.newest], None) if picture is not None and picture.row.log_id == log_id else None

    def _fill(
        self, log_id: str, position: int, stop: int, end: Tail | None, page: Collector, sample: Tail | None = None
    ) -> tuple[int, Tail | None]:
        """Adds records of one log to the page, from `position` on and not past `stop`. Returns the position after the
        last record looked at, which is above `position`, and a sample of the log's entries. If the record there was
        dropped, it adds none, and returns where the log begins.

        Args:
            end: as in `fill_all`.
            sample: entries that tell how many to ask for.
        """
        manifest = self._pictures.manifest(log_id)
        for _ in join.looks(log_id, f"position={position}"):
            if manifest is not None and position < manifest.begin_offset:
                return manifest.begin_offset, sample
            if manifest is not None and position < manifest.end_offset:
                try:
                    return self._fill_sealed(manifest, position, stop, page), sample
                except SegmentMissing:
                    newest = self.refresh_manifest(log_id)
                    if newest is None or newest.generation == manifest.generation:
                        raise
                    manifest = newest
                    continue
            if end is not None and end.covers(position):
                found = end
            else:
                room = page.room_records, page.room_bytes
                limit = None if page.view.selects else join.estimate_entries(*room, sample)
                found = join.read_around(self._stores.wal, log_id, position, limit)
            if found.covers(position):
                try:
                    return self._fill_tail(found.entries, position, stop, page), found
                except PayloadTrimmed:
                    pass  # published and trimmed since we looked
            end = None
            manifest = self.refresh_manifest(log_id)
        raise AssertionError("the last look raises")

    def refresh_manifest(self, log_id: str) -> Manifest | None:
        """Reads the watermark and newer manifests, and caches and returns the newest; None if nothing was published yet."""
        known = self._pictures.manifest(log_id)
        newest = join.newest_manifest(self._stores, self._manifests, log_id, known)
        if newest is not None:
            self._pictures.remember_manifest(newest)
        return newest

    def _fill_sealed(self, manifest: Manifest, position: int, stop: int, page: Collector) -> int:
        """Adds published records to the page, from `position` on. Returns the position after the last record looked at.

        Raises:
            SegmentMissing: nothing was read, because the first segment does not exist.
        """
        end = min(manifest.end_offset, stop)
        if not page.view.selects or not prune.is_worth(self._segments(manifest, position, end), page.view):
            return self._fill_segments(manifest, position, end, page)
        start = position
        while position < end and not page.full:
            ahead = self._pruner.ahead(manifest.log_id, position, end, page.view)
            try:
                if ahead.offsets is None:
                    position = self._fill_segments(manifest, position, ahead.end, page)
                else:
                    position = self._fill_scattered(manifest, position, ahead, page)
            except SegmentMissing:
                if position == start:
                    raise
                break
        return position

    def _segments(self, manifest: Manifest, position: int, end: int) -> Iterator[Segment]:
        """Yields the segments with records of `[position, end)`."""
        found = self._manifests.segments_from(manifest, position)
        return takewhile(lambda segment: segment.first_offset < end, found)

    def _fill_scattered(self, manifest: Manifest, position: int, ahead: Ahead, page: Collector) -> int:
        """Adds only the records that a run points at. Returns the position after the last record that was decided. Raises
        SegmentMissing if nothing was read because a segment does not exist.
        """
        at, start = 0, position
        while at < len(ahead.offsets) and not page.full:
            wanted = prune.next_round(self._manifests, manifest, ahead.offsets[at:], page.room_records)
            try:
                found = fetching.run(reader.read_scattered(wanted), self._stores.objects)
            except ObjectMissing as exc:
                if at:
                    return position
                raise SegmentMissing(f"a segment is missing: one of={[one.key for one, _ in wanted]}") from exc
            segments = {offset: segment for segment, offsets in wanted for offset in offsets}
            for offset, data in found.items():
                try:
                    is_decided = page.look_sealed(self._stores.objects, segments[offset], offset, data)
                except SegmentMissing:
                    if position == start:
                        raise
                    return position
                if not is_decided:
                    return position
                page.passed()
                position = offset + 1
                if page.full:
                    return position
            at += len(found)
        page.passed()
        return ahead.end

    def _fill_segments(self, manifest: Manifest, position: int, stop: int, page: Collector) -> int:
        """Adds the selected records of consecutive segments, up to a segment that does not exist. Returns the position
        after the last record looked at.
        """
        start = position
        for segment in self._segments(manifest, position, stop):
            through = min(segment.end_offset, stop)
            try:
                if page.view.key is not None:
                    position = self._fill_by_key(segment, page.view.key, position, through, page)
                    if position < through:
                        break
                while position < through and not page.full:
                    position = self._fill_run(segment, position, through, page)
            except SegmentMissing:
                if position == start:
                    raise
                break
            if page.full or position >= stop:
                break
        return position

    def _fill_run(self, segment: Segment, position: int, through: int, page: Collector) -> int:
        """Adds those of consecutive records of a segment that the view selects, with one read. Returns the position after
        the last record looked at.
        """
        if page.view.scans:
            wanted, room = through - position, SCAN_CHUNK_BYTES
        else:
            wanted, room = min(page.room_records, through - position), page.room_bytes
        position += page.take_sealed(self._stores.objects, segment, position, wanted, room)
        page.passed()
        return position

    def _fill_by_key(self, segment: Segment, key: str, position: int, through: int, page: Collector) -> int:
        """Adds the records of a segment that have this routing key, from `position` up to, but not including, `through`.
        Returns the position after the last record looked at.
        """
        rows = page.rows_of_key(self._stores.objects, segment, key)
        wanted = [offset for offset in rows if position <= offset < through]
        start = position
        try:
            for offset, data in reader.read_rows(self._stores.objects, segment, wanted):
                if not page.look_sealed(self._stores.objects, segment, offset, data):
                    return position
                page.passed()
                position = offset + 1
                if page.full:
                    return position
        except SegmentMissing:
            if position == start:
                raise
            return position
        page.passed()
        return through

    def _fill_tail(self, entries: list[Entry], start: int, stop: int, page: Collector) -> int:
        position = start
        fetched: dict[str, bytes] | None = None
        for number, entry in enumerate(entries):
            if position >= stop or page.full:
                break
            if entry.next_offset <= position:
                continue
            if fetched is None and position > start and not page.view.selects:
                # From the second entry on it is known how many records the page takes of each.
                wanted = _until_full(entries, number, stop, page)
                fetched = fetch_payloads(self._stores, (one for one in wanted if not page.holds(one)))
            read = partial(read_payload, self._stores, entry, fetched or {})
            try:
                position += page.take_entry(entry, position, min(entry.next_offset, stop), read)
            except PayloadTrimmed:
                if position == start:
                    raise
                break  # records already added stay; the next look begins after them
            page.passed()
            if position < min(entry.next_offset, stop):
                break  # the rest of this entry comes before the next one
        return position


def _until_full(entries: list[Entry], first: int, stop: int, page: Collector) -> Iterator[Entry]:
    """Yields the entries, from number `first` (above 0) on, until their records fill the page; judged by the entries'
    states alone.
    """
    before = entries[first - 1]
    size, count = before.state.total_bytes + page.room_bytes, before.next_offset + page.room_records
    for previous, entry in pairwise(entries[first - 1 :]):
        if entry.offset >= min(stop, count) or previous.state.total_bytes >= size:
            return
        yield entry
