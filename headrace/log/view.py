"""How a read shows records: promoted to the schema in force, and only those that were asked for."""

from __future__ import annotations

from collections.abc import Callable

from headrace.batch import Batch
from headrace.definition import EMPTY, Definition
from headrace.errors import InvalidRequest
from headrace.json import jsontext, lens
from headrace.limits import FILTER_SCAN_BYTES
from headrace.log.requests import JSON, Selection
from headrace.query.language import canonical, query


class View:
    """Shows the records of a log under a definition.

    Attributes:
        definition: in force.
        key: the routing key of the records that are wanted; None: any.
        filter: the query that they match; None: any.

    Raises:
        InvalidRequest: there is a filter, and the log holds no JSON, or declares no fields, or the filter is wrong.
    """

    def __init__(self, definition: Definition, selection: Selection, content_type: str, noun: str = "log") -> None:
        """`noun`: what the log is called in messages."""
        self.definition = definition
        self.key = selection.key
        self.filter: query.Node | None = None
        self._fields: frozenset[str] = frozenset()
        if selection.filter is not None:
            if content_type != JSON:
                raise InvalidRequest(f"filter needs a {noun} of application/json")
            if definition.search is None:
                raise InvalidRequest("filter needs a schema with search fields")
            self.filter = query.parse_filter(selection.filter, definition.search)
            self._fields = query.fields_of(self.filter)

    @property
    def scans(self) -> bool:
        """Every record must be looked at."""
        return self.filter is not None

    @property
    def selects(self) -> bool:
        """Not every record is shown."""
        return self.filter is not None or self.key is not None

    def shows_all_from(self, offset: int) -> bool:
        """Returns whether every record from an offset on is shown, with the bytes that were appended: no look into it
        is needed.
        """
        if self.selects:
            return False
        current = self.definition.schema_version
        return current < 2 or self.definition.version_at(offset) == current

    def show(self, offset: int, data: bytes) -> bytes | None:
        """Returns the record at an offset, or None if the filter rejects it.

        Bytes that no lens touches are shown as they were appended.

        Raises:
            InvalidRequest: a lens can't promote the record.
        """
        current = self.definition.schema_version
        version = self.definition.version_at(offset) if current else 0
        is_old = 0 < version < current  # of version 0 nothing is known, so no lens leads from there
        if not is_old and self.filter is None:
            return data
        document = jsontext.loads(data)
        if is_old:
            document = lens.promote(self.definition.lenses[version - 1 :], document)
            data = jsontext.dumps(document)
        if self.filter is not None:
            search = self.definition.search
            assert search is not None, "a filter was parsed"
            if not query.matches(self.filter, canonical.values(search, current, document, self._fields)):
                return None
        return data


RAW = View(EMPTY, Selection(), JSON)


class Collector:
    """Fills a page: at least one record if there is any, then as many as fit.

    Args:
        late: says whether the time for a scan is over; asked only when something was looked at already.
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
        self._late = late

    @property
    def room_records(self) -> int:
        """How many records more it takes."""
        return self.max_records - len(self.data)

    @property
    def room_bytes(self) -> int:
        """It takes records while this is above 0."""
        return self.max_bytes - self.size

    @property
    def full(self) -> bool:
        """Nothing more is taken."""
        if len(self.data) >= self.max_records or self.size >= self.max_bytes or self.limit_reached:
            return True
        return self.view.selects and self._looked and self._late()

    @property
    def limit_reached(self) -> bool:
        """A filter has looked at as much as one read may."""
        return self.view.scans and self.scanned >= FILTER_SCAN_BYTES

    def take(self, offset: int, batch: Batch) -> int:
        """Takes the wanted ones of consecutive records, the first one at `offset`, while there is room.

        Returns:
            How many were looked at.
        """
        if self.view.key is None:
            if self.view.shows_all_from(offset):  # else a record may be shown with fewer bytes than it has
                batch = batch.part(0, self.room_records)
                batch = batch.part(0, batch.room_for(self.room_bytes))
            return self.add(offset, batch.slices())
        looked = 0
        for data, key in zip(batch.slices(), batch.keys, strict=True):
            if key == self.view.key:
                self.look(offset + looked, data)
            looked += 1
            if self.full:
                break
        return looked

    def add(self, offset: int, data: list[bytes]) -> int:
        """Takes the wanted ones of consecutive records that are not too many for a page that shows all.

        Returns:
            How many were looked at.
        """
        if self.view.shows_all_from(offset):
            size = sum(map(len, data))
            self.data += data
            self.size += size
            self.scanned += size
            return len(data)
        looked = 0
        for one in data:
            self.look(offset + looked, one)
            looked += 1
            if self.full:
                break
        return looked

    def look(self, offset: int, data: bytes) -> None:
        """Takes the record if it is wanted."""
        self.scanned += len(data)
        shown = self.view.show(offset, data)
        if shown is not None:
            self.data.append(shown)
            self.size += len(shown)

    def passed(self) -> None:
        """Something was looked at, if only to see that it holds nothing wanted."""
        self._looked = True
