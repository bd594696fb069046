"""What a run of a stream holds: derived from the stream's definition, never chosen.

Two definitions with equal plans give equal runs of equal records, so a plan's hash says which runs serve a stream.
`lex` depends on no definition: it holds routing keys as they were stored, so that of any run serves.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from headrace.definition import Definition
from headrace.index.descriptors import VERSION, Family
from headrace.query.language.config import Count, DefaultField, Field, Kind, Rollup, Summary

NONE = "0" * 16  # plan of the runs of a stream without search fields: they hold `lex` alone
MAX_DICTIONARY = 65_536  # distinct values up to which a keyword that is `few` has a column

Column = Literal["always", "few", "none"]


class FieldPlan(msgspec.Struct, frozen=True):
    """What a run holds of one field.

    Attributes:
        pointer: where its values are in promoted records.
        terms: its canonical values are in `kw`.
        words: its words are in `fts`.
        positions: with their places.
        column: it is in `col`; `few`: if the run has at most `MAX_DICTIONARY` distinct values of it.
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
    """What runs of a stream hold.

    Attributes:
        version: of the format of runs.
        schema_version: that records are promoted to.
        origin: records below this offset are of no version, and no lens promotes them.
        lenses: their documents, oldest first.
        fields: in the order of their names.
        primary_timestamp: the field that is a record's time.
        rollups: as configured, in the order of their names.
        names: aliases and default fields, if a rollup asks a query; what its words mean depends on them.
        families: what a run has, besides those that turn out empty.
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
        """16 hex digits that change whenever what a run would hold could."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:16]

    def field(self, name: str) -> FieldPlan | None:
        """Returns what is held of a field."""
        return next((field for field in self.fields if field.name == name), None)


def plan_of(definition: Definition) -> Plan | None:
    """Returns the plan of a stream; None if it has no search configuration, and its runs hold routing keys alone."""
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
    """Returns the hash of a stream's plan, or `NONE`."""
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
    """Returns the fields that a rollup is computed from."""
    measured = {measure.field for measure in rollup.measures.values() if isinstance(measure, Summary)}
    return {rollup.timestamp_field, *(rollup.dimensions or ()), *measured}


def _asks(rollup: Rollup) -> bool:
    """Returns whether only records count that a query matches."""
    counts = (measure for measure in rollup.measures.values() if isinstance(measure, Count))
    return rollup.include is not None or any(count.include is not None for count in counts)
