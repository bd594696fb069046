"""Records as documents of the schema in force, for what no index answers, and the records of hits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from headrace.definition import Definition
from headrace.errors import Damaged
from headrace.index.fetching import Routine
from headrace.json import extract, jsontext, lens, pointer, registry
from headrace.objects import Objects
from headrace.query.engine.sources import Range, SegmentRange, Snapshot
from headrace.query.language import canonical
from headrace.query.language.canonical import Value
from headrace.query.language.config import Field
from headrace.segment import reader as segments
from headrace.segment import scattered
from headrace.segment.descriptor import Segment

_CHUNK_BYTES = 16 * 1024 * 1024  # payload that one GET of a scan fetches: a whole segment, as a rule


class Document(NamedTuple):
    """A record that was looked at.

    Attributes:
        offset: its place.
        data: its JSON text, promoted; as it was appended if no lens touches it.
        value: the same, parsed.
    """

    offset: int
    data: bytes
    value: Any


class Promoter:
    """Turns what was appended into documents of the schema in force."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._current = definition.schema_version

    def document(self, offset: int, data: bytes) -> Document:
        """Returns the record at an offset.

        Raises:
            InvalidRequest: a lens can't promote it.
        """
        version = registry.version_at(self._definition.registry, offset) if self._current else 0
        value = jsontext.loads(data)
        if 0 < version < self._current:  # of version 0 nothing is known, so no lens leads from there
            value = lens.promote(self._definition.lenses[version - 1 :], value)
            data = jsontext.dumps(value)
        return Document(offset, data, value)

    def values(self, document: Document, fields: frozenset[str] | None = None) -> dict[str, list[Value]]:
        """Returns the canonical values of these fields; all by default. A stream without a search configuration has
        none.
        """
        search = self._definition.search
        return {} if search is None else extract.values(search, self._current, document.value, fields)

    def fields(self, document: Document) -> dict[str, Any]:
        """Returns what is where the declared fields are, as it was written: one value alone, several as an array."""
        found: dict[str, Any] = {}
        for name, path, counts in self._places:
            raw = pointer.get(document.value, path)
            if isinstance(raw, list):
                several = [one for one in _flat(raw) if counts(one)]
                if several:
                    found[name] = several[0] if len(several) == 1 else several
            elif counts(raw):
                found[name] = raw
        return found

    @cached_property
    def _places(self) -> list[tuple[str, pointer.Path, Callable[[Any], bool]]]:
        """Returns per field: its name, where it is, and what says whether a value counts."""
        search = self._definition.search
        return [
            (name, pointer.parse(binding.json_pointer), _counts(field))
            for name, field in (search.fields.items() if search is not None else ())
            if (binding := field.bound_at(self._current)) is not None
        ]


def _counts(field: Field) -> Callable[[Any], bool]:
    """Returns whether a value is of the field's kind; texts are not cut into words to see it."""
    if field.kind in ("keyword", "text"):
        return _is_text
    read = canonical.reader(field)
    return lambda value: read(value) is not None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _flat(value: Any) -> Iterator[Any]:
    """Returns the value, or the items of an array, those of arrays in it in their place."""
    if isinstance(value, list):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def of_tail(snapshot: Snapshot, promoter: Promoter) -> Iterator[Document]:
    """Returns the documents of the tail, ascending."""
    return (promoter.document(record.offset, record.data) for record in snapshot.tail)


def of_segment(objects: Objects, found: SegmentRange, promoter: Promoter) -> Iterator[Document]:
    """Returns the documents of a segment, ascending. One GET for each 16 MiB of them.

    Raises:
        Damaged: the object is missing, or is not what the manifest says. InvalidRequest: as `Promoter.document`.
    """
    position = found.first
    while position < found.end:
        for data in segments.read_data(objects, found.segment, position, found.end - position, _CHUNK_BYTES):
            yield promoter.document(position, data)
            position += 1


def of_segments(objects: Objects, newest_first: Iterable[SegmentRange], promoter: Promoter) -> Iterator[Document]:
    """Returns the documents of several segments, one segment after another as they come, ascending in each."""
    for found in newest_first:
        yield from of_segment(objects, found, promoter)


def fetch_records(snapshot: Snapshot, offsets: Sequence[int]) -> Routine[dict[int, bytes]]:
    """Returns the data of published records, by offset, in the order of offsets; one round.

    Args:
        offsets: ascending.

    Raises:
        Damaged: one of them is in no segment, or an object is not what the manifest says.
    """
    wanted: list[tuple[Segment, Sequence[int]]] = []
    for part in snapshot.parts:
        at, end = bisect_left(offsets, part.first), bisect_left(offsets, part.published)
        while at < end:
            # Segments are found one after another from the first wanted record on; those between are skipped.
            found = snapshot.segments_in(part, Range(offsets[at], offsets[at] + 1))[0].segment
            stop = bisect_left(offsets, found.end_offset, at, end)
            wanted.append((found, offsets[at:stop]))
            at = stop
    if not wanted:
        return {}
    records = yield from scattered.read(wanted)
    if len(records) != len(offsets):
        missing = sorted(set(offsets) - set(records))
        raise Damaged(f"records stand in no segment: stream={snapshot.name} offsets={missing[:5]}")
    return records
