"""Reads one index run: decides which ranges of which parts answer a question, and decodes their bytes.

Every method that reads is a routine (`headrace.index.fetching`): if possible, all its ranges are asked for in one
round.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import Bounded
from headrace.errors import Damaged
from headrace.index import descriptors, families, postings
from headrace.index.descriptors import Descriptor, Family, Run
from headrace.index.fetching import Routine
from headrace.index.parts import Column, PartReader, check_whole, column, damage
from headrace.index.postings import Int64s, Postings, TermRequest
from headrace.objects import Range

_KEYS_PER_GROUP = 4096  # approximate keys in a row group of `lex`; unique keys need twice as much room
_MEMORY = 6  # a reader takes so many times the size of its descriptor's object, for decoded footers
_PLACE = ("rollup", "interval_ms", "start")  # the columns by which `agg` is sorted

Decoded = Bounded[tuple[str, Hashable], Column | Postings]
"""A cache of decoded columns and postings, by the key of the run's descriptor and what they are of."""


class Runs:
    """A cache of readers of runs, by descriptor; shared by the requests of a process. Thread-safe."""

    def __init__(self, *, readers_bytes: int = 64 * 1024 * 1024, decoded_bytes: int = 192 * 1024 * 1024) -> None:
        """Creates a cache of readers with a total of about `readers_bytes`, and of decoded columns and postings of
        `decoded_bytes`.
        """
        self._decoded: Decoded = Bounded(decoded_bytes, weigh=lambda value: value.nbytes)
        self._readers: Bounded[str, RunReader] = Bounded(
            readers_bytes, weigh=lambda reader: min(reader.nbytes, readers_bytes)
        )

    def open(self, run: Run) -> Routine[RunReader]:
        """Returns the reader of a run; the first call costs one GET.

        Raises (as every method of the reader does):
            Damaged: an object is missing, or differs from what the index manifest names.
        """
        kept = self._readers.get(run.descriptor)
        if kept is not None:
            return kept
        asked = [Range(run.descriptor, 0, run.size)]
        data = yield asked
        check_whole(data, asked)
        reader = RunReader(run, descriptors.open_descriptor(run, data[0]), self._decoded)
        self._readers.put(run.descriptor, reader)
        return reader


class _Group(NamedTuple):
    """A row group of a family: the part that holds it, and its number in that part."""

    part: PartReader
    number: int


class RunReader:
    """A reader of one run. Thread-safe. It keeps the run's footers, and puts what it decodes in a cache that all runs
    share.

    Raises (every method):
        Damaged: an object of the run is missing, or differs from what the descriptor says.

    Attributes:
        descriptor: the run's descriptor.
        nbytes: the memory that the reader takes, approximately.
    """

    def __init__(self, run: Run, descriptor: Descriptor, decoded: Decoded) -> None:
        """Creates a reader; use `Runs.open` instead."""
        self.descriptor = descriptor
        self.nbytes = run.size * _MEMORY
        self._key = run.descriptor
        self._cache = decoded
        self._lock = threading.RLock()
        self._groups: dict[Family, tuple[_Group, ...]] = {}
        self._firsts: dict[Family, tuple[bytes, ...]] = {
            family: tuple(first for part in parts for first in part.first)
            for family, parts in descriptor.parts.items()
            if family in families.POSTINGS
        }
        self._chunks: dict[Family, tuple[int, ...]] = {
            family: tuple(chunk for part in parts for chunk in part.chunks)
            for family, parts in descriptor.parts.items()
            if family in families.POSTINGS
        }

    def postings(self, requests: Sequence[TermRequest]) -> Routine[list[Postings]]:
        """Returns the postings for each request. Fetches at most one round of ranges; nothing if all are cached or
        can't exist.
        """
        known: dict[TermRequest, Postings] = {}
        missing: list[TermRequest] = []
        for request in dict.fromkeys(requests):
            kept = self._cache.get((self._key, request))
            if isinstance(kept, Postings):
                known[request] = kept
            else:
                missing.append(request)
        made = (yield from self._postings(missing)) if missing else []
        for request, one in zip(missing, made, strict=True):
            known[request] = one
            self._cache.put((self._key, request), one)
        return [known[request] for request in requests]

    def _postings(self, requests: Sequence[TermRequest]) -> Routine[list[Postings]]:
        wanted: dict[_Group, tuple[tuple[str, ...], Range]] = {}
        groups_of: list[list[_Group]] = []
        for request in requests:
            schema = families.POSTINGS[request.family]
            columns = tuple(schema.names if request.positions else schema.names[:3])
            groups = [self._family(request.family)[number] for number in self._candidates(request)]
            for group in groups:
                if len(wanted.get(group, ((), None))[0]) < len(columns):
                    wanted[group] = (columns, group.part.span(group.number, columns))
            groups_of.append(groups)
        ranges = [one for _, one in wanted.values()]
        found = (yield ranges) if ranges else []
        check_whole(found, ranges)
        tables = {
            group: group.part.table([group.number], columns, {one.start: data})
            for (group, (columns, one)), data in zip(wanted.items(), found, strict=True)
        }
        first, end = self.descriptor.first_offset, self.descriptor.end_offset
        with damage(self._key):
            return [
                postings.found(request, [tables[group] for group in groups], first, end, self._key)
                for request, groups in zip(requests, groups_of, strict=True)
            ]

    def columns(self, names: Sequence[str]) -> Routine[dict[str, Column]]:
        """Returns those of the named columns of `col` (`families.column_name`) that the run has. Fetches at most one
        round of ranges; nothing if all are cached.

        A field whose `FieldStats.column` is False has none.
        """
        result: dict[str, Column] = {}
        missing: dict[str, list[tuple[_Group, Range]]] = {}
        for name in dict.fromkeys(names):
            kept = self._cache.get((self._key, name))
            if isinstance(kept, Column):
                result[name] = kept
                continue
            groups = self._family("col")
            if groups and all(group.part.has(name) for group in groups):
                missing[name] = [(group, group.part.span(group.number, [name])) for group in groups]
        ranges = [one for places in missing.values() for _, one in places]
        found = (yield ranges) if ranges else []
        check_whole(found, ranges)
        data = iter(found)
        for name, places in missing.items():
            tables = [group.part.table([group.number], [name], {one.start: next(data)}) for group, one in places]
            with damage(self._key):
                result[name] = column(pa.concat_tables(tables).column(0))
            expected = self.descriptor.end_offset - self.descriptor.first_offset
            if len(result[name].values) != expected:
                raise Damaged(f"index run has other rows: object={self._key} expected={expected}")
            self._cache.put((self._key, name), result[name])
        return result

    def keys_after(self, after: str | None, limit: int) -> Routine[list[str]]:
        """Returns up to `limit` distinct routing keys above `after`, ascending as bytes; from the first key on if
        `after` is None.
        """
        groups = self._family("lex")
        low = families.text_bytes(after) if after is not None else None
        at = max(0, bisect_right(self._firsts.get("lex", ()), families.cut(low)) - 1) if low is not None else 0
        keys: list[str] = []
        while at < len(groups) and len(keys) < limit:
            more = 1 + (limit - len(keys)) // _KEYS_PER_GROUP
            round_ = groups[at : at + more]
            at += more
            ranges = [group.part.span(group.number, ["key"]) for group in round_]
            found = yield ranges
            check_whole(found, ranges)
            for group, one, data in zip(round_, ranges, found, strict=True):
                table = group.part.table([group.number], ["key"], {one.start: data})
                with damage(group.part.part.key):
                    _take_keys(keys, table.column(0), after, limit)
        return keys

    def rows_of_key(self, key: str, *, is_prefix: bool = False) -> Routine[Int64s]:
        """Returns the offsets of the records with this routing key, ascending; with `is_prefix`, of those whose routing
        key begins with it, which then must not be empty.
        """
        term = families.text_bytes(key)
        wanted = TermRequest.beginning("lex", term) if is_prefix else TermRequest("lex", term)
        found = yield from self.postings([wanted])
        return found[0].merged()

    def groups(
        self, rollup: str, interval_ms: int, start_ms: int, end_ms: int, columns: Sequence[str]
    ) -> Routine[pa.Table]:
        """Returns the rollup rows (`families.AGG`) of one rollup and interval whose time bucket starts in `[start_ms,
        end_ms)`, in order.

        Args:
            columns: the columns to return.
        """
        read = list(dict.fromkeys((*_PLACE, *columns)))
        wanted = [group for group in self._family("agg") if _may_hold(group, rollup, interval_ms, start_ms, end_ms)]
        ranges = [one for group in wanted for one in _spans(group, read)]
        found = (yield ranges) if ranges else []
        check_whole(found, ranges)
        spans: dict[PartReader, dict[int, bytes]] = {}
        numbers: dict[PartReader, list[int]] = {}
        data = iter(zip(ranges, found, strict=True))
        for group in wanted:
            numbers.setdefault(group.part, []).append(group.number)
            for _ in _spans(group, read):
                one, body = next(data)
                spans.setdefault(group.part, {})[one.start] = body
        tables = [part.table(numbers[part], read, spans[part]) for part in numbers]
        with damage(self._key):
            schema = pa.schema([families.AGG.field(name) for name in read])
            rows = pa.concat_tables([table.cast(schema) for table in tables]) if tables else schema.empty_table()
            start = rows.column("start").cast(pa.int64())
            is_wanted = pc.and_(
                pc.and_(pc.equal(rows.column("rollup"), rollup), pc.equal(rows.column("interval_ms"), interval_ms)),
                pc.and_(pc.greater_equal(start, start_ms), pc.less(start, end_ms)),
            )
            return rows.filter(is_wanted).select(list(columns))

    def _candidates(self, request: TermRequest) -> range:
        firsts = self._firsts.get(request.family, ())
        groups = postings.groups_of(firsts, request.low, request.high)
        if request.chunks is None or request.high is not None:
            return groups
        return postings.narrow(groups, firsts, self._chunks.get(request.family, ()), request.low, request.chunks)

    def _family(self, family: Family) -> tuple[_Group, ...]:
        """Returns the row groups of a family in all its parts, in order."""
        with self._lock:
            groups = self._groups.get(family)
            if groups is None:
                parts = self.descriptor.parts.get(family, ())
                readers = [PartReader(part, dictionaries=family == "col") for part in parts]
                groups = tuple(_Group(part, number) for part in readers for number in range(part.groups))
                if family in self._firsts and len(self._firsts[family]) != len(groups):
                    raise Damaged(f"index run has other row groups: object={self._key} family={family}")
                self._groups[family] = groups
            return groups


def _take_keys(keys: list[str], found: pa.ChunkedArray, after: str | None, limit: int) -> None:
    """Appends the distinct keys above `after` to `keys`, until there are `limit`. Rows of the same key are
    neighbours.
    """
    names = pa.concat_arrays(found.chunks)
    if after is not None:
        names = names.filter(pc.greater(names, after))
    # A key may have many rows: one per chunk. Distinct ones keep their order.
    last = keys[-1] if keys else None
    distinct = [key for key in names.unique().slice(0, limit - len(keys) + 1).to_pylist() if key != last]
    keys += distinct[: limit - len(keys)]


def _may_hold(group: _Group, rollup: str, interval_ms: int, start_ms: int, end_ms: int) -> bool:
    """Returns whether a row group of `agg` can have rows of this rollup and interval that start in this range, by its
    statistics.
    """
    names, lengths, starts = (group.part.statistics(group.number, column) for column in _PLACE)
    name = rollup.encode()
    has_name = names is None or names[0] <= name <= names[1]
    has_length = lengths is None or lengths[0] <= interval_ms <= lengths[1]
    has_start = starts is None or (starts[0] < end_ms and start_ms <= starts[1])
    return has_name and has_length and has_start


def _spans(group: _Group, columns: Sequence[str]) -> list[Range]:
    """Returns the ranges to fetch of a row group of `agg`: one for all columns by which it is sorted, and one for each
    other column.
    """
    others = [column for column in columns if column not in _PLACE]
    return [group.part.span(group.number, list(_PLACE)), *(group.part.span(group.number, [one]) for one in others)]
