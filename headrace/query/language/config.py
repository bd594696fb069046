"""A search configuration, as values: what can be asked of a stream's records, and where the answers are in them.

The attributes are those of the document, in its order, so that a configuration prints as the document it came from.
`headrace.json.search_config` checks a document and makes these; no other module does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from headrace.limits import MAX_SAFE_INTEGER

Kind = Literal["keyword", "text", "integer", "float", "date", "bool"]

_BOOST = msgspec.Meta(gt=0, le=1_000_000)  # a score stays a number, whatever matches
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class _Value(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    pass


class Binding(_Value, frozen=True, kw_only=True):
    """Where a field's values are in records of a schema version, and of later ones up to the next binding."""

    version: Annotated[int, msgspec.Meta(ge=1, le=MAX_SAFE_INTEGER)]
    json_pointer: str


class Field(_Value, frozen=True, kw_only=True):
    """A field that can be asked for.

    Attributes:
        kind: which values count, and their canonical form (`headrace.query.language.canonical`).
        bindings: at least one, no version twice.
        normalizer: of keywords; None is `identity_v1`.
        analyzer: of text; always given there.
        exact: can be asked for a value.
        prefix: can be asked for values that begin with a text.
        column: can be compared.
        exists: can be asked whether it has a value.
        sortable, aggregatable: for sorting and for rollups.
        contains: reserved.
        positions: can be asked for phrases.
    """

    kind: Kind
    bindings: Annotated[tuple[Binding, ...], msgspec.Meta(min_length=1)]
    normalizer: Literal["identity_v1", "lowercase_v1"] | None = None
    analyzer: Literal["unicode_word_v1"] | None = None
    exact: bool = False
    prefix: bool = False
    column: bool = False
    exists: bool = False
    sortable: bool = False
    aggregatable: bool = False
    contains: bool = False
    positions: bool = False

    def bound_at(self, version: int) -> Binding | None:
        """Returns the binding of the highest version up to this one."""
        reached = [binding for binding in self.bindings if binding.version <= version]
        return max(reached, key=lambda binding: binding.version, default=None)


class DefaultField(_Value, frozen=True, kw_only=True):
    """A field that a bare word is looked for in. A match counts `boost` times, 1 if not given."""

    field: str
    boost: Annotated[int, _BOOST] | Annotated[float, _BOOST] | None = None


class Count(_Value, frozen=True, kw_only=True, tag_field="kind", tag="count"):
    """How many records, of those that the query `include` matches."""

    include: str | None = None


class Summary(_Value, frozen=True, kw_only=True, tag_field="kind", tag="summary"):
    """Count, sum, least and greatest value of a field, with a histogram or without."""

    field: str
    histogram: Literal["log2_v1"] | None = None


class SummaryParts(_Value, frozen=True, kw_only=True, tag_field="kind", tag="summary_parts"):
    """A summary merged from summaries that the records carry: pointers to its parts."""

    count_json_pointer: str
    sum_json_pointer: str
    min_json_pointer: str
    max_json_pointer: str
    histogram_json_pointer: str | None = None


Measure = Count | Summary | SummaryParts


class Rollup(_Value, frozen=True, kw_only=True):
    """Measures of the records of each interval of time and each combination of dimensions.

    Attributes:
        timestamp_field: a date field; says which interval a record belongs to.
        include: only records that this query matches.
        dimensions: fields with `exact`.
        intervals: as configured (`1m`); `interval_ms` reads them.
    """

    timestamp_field: str
    include: str | None = None
    dimensions: tuple[str, ...] | None = None
    intervals: tuple[str, ...]
    measures: dict[str, Measure]


class SearchConfig(_Value, frozen=True, kw_only=True, eq=False):
    """A stream's search configuration. Compare documents to compare two.

    Attributes:
        profile: the profile that it came with, if any.
        primary_timestamp_field: a date field: the time of a record.
        default_fields: what bare words are looked for in; see `targets`.
        contains_default_fields: reserved.
        aliases: other names of fields.
    """

    profile: str | None = None
    primary_timestamp_field: str
    default_fields: tuple[DefaultField, ...] | None = None
    contains_default_fields: tuple[str, ...] | None = None
    aliases: dict[str, str] | None = None
    fields: dict[str, Field]
    rollups: dict[str, Rollup] | None = None

    def resolve(self, name: str) -> str | None:
        """Returns the field that a name or an alias means, or None."""
        target = (self.aliases or {}).get(name, name)
        return target if target in self.fields else None

    def targets(self) -> tuple[DefaultField, ...]:
        """Returns where bare words are looked for: the default fields or, if there are none, every text field."""
        if self.default_fields:
            return self.default_fields
        return tuple(DefaultField(field=name) for name, field in self.fields.items() if field.kind == "text")

    def document(self) -> dict[str, Any]:
        """Returns the configuration as clients see it: absent, false and null members left out, rollups with their
        timestamp.
        """
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain


def interval_ms(interval: str) -> int:
    """Returns the length of a rollup's interval, one of `Rollup.intervals`, in milliseconds."""
    digits = interval.rstrip("mshd")
    return int(digits) * _UNITS_MS[interval[len(digits) :]]
