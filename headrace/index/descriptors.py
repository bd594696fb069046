"""The values that describe an index run, the plan that says what a run must hold, and the encoding of descriptors. Does
not import pyarrow.

A plan is derived from a log's definition and never chosen. Equal plans give equal runs of equal records, so a plan's
hash tells which runs can serve a log. `lex` does not depend on the definition: it holds routing keys as they were
stored, so the `lex` of any run can be used.

A descriptor says what a run covers, and holds everything that a reader needs to fetch from its parts. The first job
that finishes creates it, after all parts: a run without a descriptor does not exist.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from headrace.definition import Definition
from headrace.errors import Damaged
from headrace.objects import packed
from headrace.query.language.canonical import Count, DefaultField, Field, Kind, Rollup, Summary

VERSION = 1

Family = Literal["kw", "lex", "fts", "col", "agg", "mblk"]


class Part(msgspec.Struct, frozen=True):
    """One Parquet object of a family. The parts of a family are in order and their rows are sorted across them.

    Attributes:
        key: the object's key.
        size, sha256: size in bytes and hash of the object.
        rows: number of rows in all its row groups.
        footer: the last bytes of the object (its Parquet footer with length and magic), so that opening costs no GET.
        first: per row group, the sort key of its first row, cut to `families.CUT` bytes: terms of `kw` and `fts`,
            routing keys of `lex`, empty for the other families.
        chunks: per row group, the chunk of its first row; empty as `first` is.
        sums: per row group and Parquet column, the CRC-32 of all bytes of its column chunk, page headers included.
    """

    key: str
    size: int
    sha256: str
    rows: int
    footer: bytes
    first: tuple[bytes, ...]
    chunks: tuple[int, ...]
    sums: tuple[int, ...]


class FieldStats(msgspec.Struct, frozen=True):
    """Statistics of one search field in a run.

    Attributes:
        present: number of records that have a value.
        distinct: number of distinct canonical values (of a text field: words).
        lossy: number of records whose values the families can't hold exactly (several values in `col`, several texts,
            numbers out of range): their offsets are under the field's lossy term of `kw`, and a query that matches them
            looks at the record.
        column: whether the field has a column in `col`.
        least, greatest: bounds of the values in `col` of an integer, float or date field (milliseconds); None if there
            is no such value.
    """

    present: int
    distinct: int
    lossy: int = 0
    column: bool = False
    least: int | float | None = None
    greatest: int | float | None = None


class Run(msgspec.Struct, frozen=True):
    """A run as the index manifest lists it: enough to choose runs without opening them.

    Attributes:
        id: unique in its log; its objects are under `keys.run(log_id, id)`.
        level: 0 for a run built from segments, one more than its inputs' for a compacted one.
        plan: hash of the plan by which it was built.
        first_offset, end_offset: the range of records that it covers, without a gap.
        min_time_ms, max_time_ms: append times of the first and last of them.
        least_timestamp, greatest_timestamp: bounds of the records' primary timestamps, in milliseconds; None if no
            record has one.
        sizes: bytes of all objects of each family.
        descriptor: key of the object that holds the `Descriptor`.
        sha256, size: hash of that object, and its size in bytes.
        created_ms: when it was built.
        objects: number of parts of each family.
    """

    id: str
    level: int
    plan: str
    first_offset: int
    end_offset: int
    min_time_ms: int
    max_time_ms: int
    least_timestamp: int | None
    greatest_timestamp: int | None
    sizes: dict[Family, int]
    descriptor: str
    sha256: str
    size: int
    created_ms: int
    objects: dict[Family, int] = {}


class Descriptor(msgspec.Struct, frozen=True):
    """The content of the object that makes a run exist. The first job that finishes creates it, after all parts.

    Attributes:
        log_id, run_id, level, plan, first_offset, end_offset: as in `Run`.
        inputs: ids of the runs that it was compacted from.
        schema_version: the version to which records were promoted before their values were read.
        parts: the parts of each family, in order. A family that the plan does not ask for is absent; an empty family
            has no parts.
        fields: statistics by search field.
        rollups: names of the rollups in `agg`.
    """

    version: int
    log_id: str
    run_id: str
    level: int
    plan: str
    first_offset: int
    end_offset: int
    min_time_ms: int
    max_time_ms: int
    least_timestamp: int | None
    greatest_timestamp: int | None
    schema_version: int
    inputs: tuple[str, ...]
    parts: dict[Family, tuple[Part, ...]]
    fields: dict[str, FieldStats]
    rollups: tuple[str, ...]
    created_ms: int


_SORTED: frozenset[Family] = frozenset({"kw", "fts", "lex"})  # families whose parts say where each row group begins


def encode(descriptor: Descriptor) -> bytes:
    """Encodes a descriptor as the bytes of its object. Equal descriptors give equal bytes."""
    return packed.encode_msgpack(descriptor)


def decode(data: bytes, source: str) -> Descriptor:
    """Decodes a descriptor from the bytes of its object.

    Args:
        data: the bytes that `encode` returned.
        source: the object's key, for the error.

    Raises:
        Damaged: the object is truncated, altered, of an unknown version, or contradicts itself.
    """
    found = packed.decode_msgpack(data, Descriptor, source)
    if not 0 <= found.first_offset < found.end_offset:
        raise Damaged(f"index run covers nothing: object={source}")
    for family, parts in found.parts.items():
        for part in parts:
            says_where = bool(part.first) == (family in _SORTED)
            says_where = says_where and len(part.chunks) == len(part.first)
            if not (says_where and part.rows > 0 and 12 <= len(part.footer) + 4 <= part.size):
                raise Damaged(f"index run has a part that can't be: object={source} part={part.key}")
        firsts = [first for part in parts for first in part.first]
        if any(before > behind for before, behind in pairwise(firsts)):
            raise Damaged(f"index run has parts out of order: object={source} family={family}")
    return found


def describe(descriptor: Descriptor, key: str, data: bytes) -> Run:
    """Returns the entry for the index manifest of a run whose descriptor has the bytes `data` and the key `key`."""
    return Run(
        id=descriptor.run_id,
        level=descriptor.level,
        plan=descriptor.plan,
        first_offset=descriptor.first_offset,
        end_offset=descriptor.end_offset,
        min_time_ms=descriptor.min_time_ms,
        max_time_ms=descriptor.max_time_ms,
        least_timestamp=descriptor.least_timestamp,
        greatest_timestamp=descriptor.greatest_timestamp,
        sizes={family: sum(part.size for part in parts) for family, parts in descriptor.parts.items()},
        descriptor=key,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        created_ms=descriptor.created_ms,
        objects={family: len(parts) for family, parts in descriptor.parts.items()},
    )


def open_descriptor(run: Run, data: bytes) -> Descriptor:
    """Decodes a run's descriptor, and checks it against the run's entry in the index manifest.

    Raises:
        Damaged: the descriptor is another one than the index manifest names, or contradicts itself.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != run.sha256:
        raise Damaged(f"index run is another one: object={run.descriptor} expected={run.sha256} found={found}")
    descriptor = decode(data, run.descriptor)
    described = describe(descriptor, run.descriptor, data)
    if replace(described, objects=run.objects) != run:  # the number of objects is for people
        raise Damaged(f"index run is not what the manifest says: object={run.descriptor}")
    return descriptor


NONE = "0" * 16  # plan of the runs of a stream without search fields: they hold `lex` alone
MAX_DICTIONARY = 65_536  # distinct values up to which a keyword that is `few` has a column

Column = Literal["always", "few", "none"]


class FieldPlan(msgspec.Struct, frozen=True):
    """What a run holds for one field.

    Attributes:
        pointer: JSON pointer to its values in promoted records.
        terms: whether `kw` has its canonical values.
        words: whether `fts` has its words.
        positions: whether `fts` also has the words' positions.
        column: whether it has a column in `col`; `few` means only if the run has at most `MAX_DICTIONARY` distinct
            values of it.
    """

    name: str
    kind: Kind
    normalizer: str | None
    analyzer: str | None
    pointer: str
    terms: bool
    words: bool
    positions: bool
    column: Column


class Plan(msgspec.Struct, frozen=True):
    """What the runs of a log must hold.

    Attributes:
        version: version of the format of runs.
        schema_version: the version to which records are promoted.
        origin: records below this offset have no schema version, and no lens promotes them.
        lenses: documents of the lenses, oldest first.
        fields: the search fields, in the order of their names.
        primary_timestamp: name of the field that holds a record's time.
        rollups: the configured rollups, in the order of their names.
        names: aliases and default fields, if a rollup has a query, whose meaning depends on them.
        families: the families of a run; some may be empty.
    """

    version: int
    schema_version: int
    origin: int
    lenses: tuple[Any, ...]
    fields: tuple[FieldPlan, ...]
    primary_timestamp: str
    rollups: dict[str, Rollup]
    names: tuple[dict[str, str], tuple[DefaultField, ...]] | None
    families: tuple[Family, ...]

    @property
    def hash(self) -> str:
        """A hash of 16 hex digits that changes whenever the content of a run could change."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:16]

    def field(self, name: str) -> FieldPlan | None:
        """Returns the plan of one field, by its name; None if it is no search field."""
        return next((field for field in self.fields if field.name == name), None)


def plan_of(definition: Definition) -> Plan | None:
    """Derives the plan from a definition. Returns None if there is no search configuration, so that runs hold only
    routing keys.
    """
    search = definition.search
    if search is None:
        return None
    version = definition.schema_version
    rollups = dict(sorted((search.rollups or {}).items()))
    in_columns = {search.primary_timestamp_field} | {name for one in rollups.values() for name in _needed(one)}
    fields = tuple(_field(name, field, version, name in in_columns) for name, field in sorted(search.fields.items()))
    families: list[Family] = ["kw", "lex", "col"]
    if any(field.words for field in fields):
        families.append("fts")
    if rollups:
        families.append("agg")
    if "mblk" in definition.own.families:
        families.append("mblk")
    registry = definition.registry
    return Plan(
        version=VERSION,
        schema_version=version,
        origin=registry.boundaries[0].offset if registry.boundaries else 0,
        lenses=tuple(registry.lenses[str(number)] for number in range(1, version)),
        fields=fields,
        primary_timestamp=search.primary_timestamp_field,
        rollups=rollups,
        names=(search.aliases or {}, search.targets()) if any(map(_asks, rollups.values())) else None,
        families=tuple(families),
    )


def hash_of(definition: Definition) -> str:
    """Returns the hash of a definition's plan; `NONE` (16 zeros) if it has no plan."""
    plan = plan_of(definition)
    return plan.hash if plan else NONE


def _field(name: str, field: Field, version: int, is_needed: bool) -> FieldPlan:
    binding = field.bound_at(version)
    return FieldPlan(
        name=name,
        kind=field.kind,
        normalizer=field.normalizer,
        analyzer=field.analyzer,
        pointer=binding.json_pointer if binding else "",
        terms=field.exact or field.prefix,
        words=field.kind == "text",
        positions=field.positions,
        column=_column(field, is_needed),
    )


def _column(field: Field, is_needed: bool) -> Column:
    if is_needed or field.column or field.sortable or field.aggregatable or field.kind == "text":
        return "always"
    return "few" if field.kind == "keyword" and (field.exact or field.prefix) else "none"


def _needed(rollup: Rollup) -> set[str]:
    """Returns the names of the fields from which a rollup is computed."""
    measured = {measure.field for measure in rollup.measures.values() if isinstance(measure, Summary)}
    return {rollup.timestamp_field, *(rollup.dimensions or ()), *measured}


def _asks(rollup: Rollup) -> bool:
    """Returns whether a rollup has a query that selects the records to count."""
    counts = (measure for measure in rollup.measures.values() if isinstance(measure, Count))
    return rollup.include is not None or any(count.include is not None for count in counts)
