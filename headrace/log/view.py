"""Shows records as a read returns them: selected by key or filter, and promoted to the current schema."""

from __future__ import annotations

from collections.abc import Callable

from headrace.batch import Batch, Record
from headrace.definition import EMPTY, Definition
from headrace.errors import InvalidRequest, RequestTimeout
from headrace.json import jsontext, lens
from headrace.limits import FILTER_SCAN_BYTES
from headrace.log.requests import JSON, Selection
from headrace.objects import Objects
from headrace.query.language import canonical, grammar, query
from headrace.segment import reader
from headrace.segment.columns import ColumnCache
from headrace.segment.descriptor import Segment
from headrace.wal.state import Entry


class View:
    """A view of a log's records under a definition.

    Attributes:
        definition: the stream's current definition.
        key: the routing key that records must have; None means any.
        filter: the query that records must match; None means any.

    Raises:
        InvalidRequest: there is a filter, but the log is not JSON or has no search fields, or the filter is invalid.
    """

    def __init__(self, definition: Definition, selection: Selection, content_type: str, noun: str = "log") -> None:
        """Creates a view; `noun` is the word for the log in messages."""
        self.definition = definition
        self.key = selection.key
        self.filter: query.Node | None = None
        self._fields: frozenset[str] = frozenset()
        self._is_long = False
        if selection.filter is not None:
            if content_type != JSON:
                raise InvalidRequest(f"filter needs a {noun} of application/json")
            if definition.search is None:
                raise InvalidRequest("filter needs a schema with search fields")
            self.filter = grammar.parse_filter(selection.filter, definition.search)
            self._fields = query.fields_of(self.filter)
            self._is_long = query.is_long(self.filter)

    @property
    def scans(self) -> bool:
        """Whether every record must be read, because there is a filter."""
        return self.filter is not None

    @property
    def selects(self) -> bool:
        """Whether only some records are returned."""
        return self.filter is not None or self.key is not None

    def shows_all_from(self, offset: int) -> bool:
        """Returns whether every record from an offset on is returned exactly as it was appended, so that it need not be
        parsed.
        """
        if self.selects:
            return False
        current = self.definition.schema_version
        return current < 2 or self.definition.version_at(offset) == current

    def show(self, offset: int, data: bytes, check: query.Check) -> bytes | None:
        """Returns a record as it is shown; None if the filter rejects it. Does not check the routing key.

        Records to which no lens applies keep the bytes that were appended. `check` is called between the clauses of a
        long filter, and raises an error if the time is over.

        Raises:
            InvalidRequest: a lens can't promote the record.
        """
        current = self.definition.schema_version
        version = self.definition.version_at(offset) if current else 0
        is_old = 0 < version < current  # nothing is known of version 0, so there is no lens from it
        if not is_old and self.filter is None:
            return data
        document = jsontext.loads(data)
        if is_old:
            document = lens.promote(self.definition.lenses[version - 1 :], document)
            data = jsontext.dumps(document)
        if self.filter is not None:
            search = self.definition.search
            assert search is not None, "a filter was parsed"
            values = canonical.values(search, current, document, self._fields)
            if not query.matches(self.filter, values, check if self._is_long else None):
                return None
        return data


RAW = View(EMPTY, Selection(), JSON)


class Collector:
    """A page being filled: at least one record if there is any, then as many as fit.

    Args:
        late: returns whether the time for a scan is over; called only after something was looked at.
    """

    def __init__(
        self, view: View, max_records: int, max_bytes: int, late: Callable[[], bool] = lambda: False
    ) -> None:
        self.view = view
        self.data: list[bytes] = []
        self.max_records = max_records
        self.max_bytes = max_bytes
        self.size = 0
        self.scanned = 0
        self._looked = False
        self._stopped = False
        self.late = late

    @property
    def count(self) -> int:
        """The number of records in the page."""
        return len(self.data)

    @property
    def room_records(self) -> int:
        """The number of records that still fit."""
        return self.max_records - self.count

    @property
    def room_bytes(self) -> int:
        """The bytes that still fit; records are taken while this is above 0."""
        return self.max_bytes - self.size

    @property
    def full(self) -> bool:
        """Whether no more records are taken: the page has enough records or bytes, or a scan has reached its limit or its
        time.
        """
        if self._stopped or self.count >= self.max_records or self.size >= self.max_bytes or self.limit_reached:
            return True
        return self.view.selects and self._looked and self.late()

    @property
    def limit_reached(self) -> bool:
        """Whether a filter has looked at as much as one read may."""
        return self.view.scans and self.scanned >= FILTER_SCAN_BYTES

    def take(self, offset: int, batch: Batch) -> int:
        """Adds the selected ones of a batch of consecutive records to the page while there is room. The first is at
        `offset`.

        Returns:
            The number of records that were looked at.
        """
        if self.view.key is None:
            if self.view.shows_all_from(offset):  # else a record may be shown with fewer bytes than it has
                batch = batch.part(0, self.room_records)
                batch = batch.part(0, batch.room_for(self.room_bytes))
            return self.add(offset, batch.slices())
        looked = 0
        for data, key in zip(batch.slices(), batch.keys, strict=True):
            if key == self.view.key and not self.look(offset + looked, data):
                break
            looked += 1
            if self.full:
                break
        return looked

    def holds(self, entry: Entry) -> bool:  # noqa: ARG002 - others keep some
        """Returns whether `take_entry` needs no payload of this entry."""
        return False

    def take_entry(self, entry: Entry, first: int, end: int, read: Callable[[], Batch]) -> int:
        """Adds the selected ones of the records `[first, end)` of an entry to the page while there is room.

        Args:
            read: reads all records of the entry.

        Returns:
            The number of records that were looked at.
        """
        return self.take(first, read().part(first - entry.offset, end - entry.offset))

    def take_sealed(self, objects: Objects, segment: Segment, offset: int, max_records: int, max_bytes: int) -> int:
        """Adds the selected ones of consecutive records of a segment to the page, with one read of at most so many. They
        fit if the view shows all records.

        Returns:
            The number of records that were looked at.

        Raises:
            SegmentMissing: the segment does not exist.
        """
        return self.add(offset, reader.read_data(objects, segment, offset, max_records, max_bytes))

    def add(self, offset: int, data: list[bytes]) -> int:
        """Adds the selected ones of consecutive records to the page. If the view shows all records, the caller has made
        sure that they fit.

        Returns:
            The number of records that were looked at.
        """
        if self.view.shows_all_from(offset):
            size = sum(map(len, data))
            self.data += data
            self.size += size
            self.scanned += size
            return len(data)
        looked = 0
        for one in data:
            if not self.look(offset + looked, one):
                break
            looked += 1
            if self.full:
                break
        return looked

    def look(self, offset: int, data: bytes) -> bool:
        """Adds one record to the page if the view's filter accepts it; the caller has checked its routing key. Returns
        False if the time was over before that was decided: the page ends before the record.

        Raises:
            RequestTimeout: it was the first record of the page.
        """
        try:
            shown = self.view.show(offset, data, self._check)
        except query.OutOfTime:
            if not (self._looked or self.scanned):
                raise RequestTimeout from None
            self._stopped = True
            return False
        self.scanned += len(data)
        if shown is not None:
            self.data.append(shown)
            self.size += len(shown)
        return True

    def rows_of_key(self, objects: Objects, segment: Segment, key: str) -> list[int]:
        """Returns the offsets of a segment's records with a key. Costs one GET. Raises as `segment.reader.rows_of_key`."""
        return reader.rows_of_key(objects, segment, key)

    def look_sealed(self, objects: Objects, segment: Segment, offset: int, data: bytes) -> bool:  # noqa: ARG002
        """Adds one record of a segment as `look` does.

        Raises:
            SegmentMissing: as in `take_sealed`; the page is as it was.
        """
        return self.look(offset, data)

    def _check(self) -> None:
        if self.late():
            raise query.OutOfTime

    def passed(self) -> None:
        """Notes that something was looked at, even if the view selected no record of it."""
        self._looked = True


class DescribingCollector(Collector):
    """A page being filled with the selected records, each as a description of it.

    Args:
        page: an empty page with its limits.
        columns: the cache of key pages.
        describe: returns the text for a record, whose data is as the view shows it.
    """

    def __init__(self, page: Collector, columns: ColumnCache, describe: Callable[[Record], bytes]) -> None:
        super().__init__(page.view, page.max_records, page.max_bytes, page.late)
        self._columns = columns
        self._describe = describe

    def take(self, offset: int, batch: Batch) -> int:
        """Adds descriptions of the selected ones of a batch of consecutive records, as in `Collector`."""
        looked = 0
        for record in batch.records(offset):
            if self.view.key in (None, record.key) and not self._look(record):
                break
            looked += 1
            if self.full:
                break
        return looked

    def take_sealed(self, objects: Objects, segment: Segment, offset: int, max_records: int, max_bytes: int) -> int:
        """Adds descriptions of the selected ones of consecutive records of a segment, as in `Collector`."""
        return self.take(offset, self._columns.read(objects, segment, offset, max_records, max_bytes))

    def rows_of_key(self, objects: Objects, segment: Segment, key: str) -> list[int]:
        """Returns the offsets of a segment's records with a key, from the key page that `look_sealed` needs, too."""
        return [segment.first_offset + row for row in self._columns.columns(objects, segment).page.rows(key)]

    def look_sealed(self, objects: Objects, segment: Segment, offset: int, data: bytes) -> bool:
        """Adds the description of one record of a segment, as in `Collector`."""
        key, node, time_ms = self._columns.columns(objects, segment).row(offset - segment.first_offset)
        return self._look(Record(offset, time_ms, key, data, node))

    def _look(self, record: Record) -> bool:
        before = self.count
        is_decided = self.look(record.offset, record.data)
        if self.count > before:
            shown = self.data[-1]
            self.data[-1] = self._describe(record._replace(data=shown))
            self.size += len(self.data[-1]) - len(shown)
        return is_decided


class RecordCollector(Collector):
    """A page being filled with all records, and each with all its columns. Its size counts data and meta."""

    def __init__(self, columns: ColumnCache, max_records: int, max_bytes: int) -> None:
        super().__init__(RAW, max_records, max_bytes)
        self.records: list[Record] = []
        self._columns = columns

    @property
    def count(self) -> int:
        """The number of records in the page."""
        return len(self.records)

    def take(self, offset: int, batch: Batch) -> int:
        """Adds a batch of consecutive records, the first at `offset`, while there is room. Returns how many it added: none,
        and the page is full, if those before it were dropped while the page was read.
        """
        before = self.count
        if self.records and offset > self.records[-1].offset + 1:
            self._stopped = True
            return 0
        for record in batch.part(0, self.room_records).records(offset):
            self.records.append(record)
            self.size += len(record.data) + len(record.meta or b"")
            if self.full:
                break
        return self.count - before

    def take_sealed(self, objects: Objects, segment: Segment, offset: int, max_records: int, max_bytes: int) -> int:
        """Adds consecutive records of a segment, as in `Collector`."""
        return self.take(offset, self._columns.read(objects, segment, offset, max_records, max_bytes))
