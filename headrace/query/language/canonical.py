"""The search configuration as values: which fields a stream has, where their values are in records, and the canonical
form in which values are compared. Records and queries, tail, segments and indexes all use this definition.

The attributes of a configuration are those of its document, in the same order, so that it is written as the document it
came from. Only `headrace.json.search_config` creates configurations, from checked documents.

    kind       what counts                                   canonical value
    keyword    a string                                      the string, lower case under `lowercase_v1`
    text       a string                                      its words, in order: a tuple, maybe empty
    integer    a whole number, or its decimal text           int, of any size
    float      a number, or its text                         float, finite
    date       an instant in text, or milliseconds           int: milliseconds since 1970
    bool       true, false, or their names                   bool

Anything else, null included, is no value, as if the field were absent. A record is first promoted to the current
schema, so the binding for that version applies, never the one for the version in which it was written.

A binding names a place in the record's data by a JSON pointer, or one of the columns that the log keeps beside the data
(`KEY`, `NODE`, `TIME`). Only surfaces bind fields to columns; the configurations of clients can't.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from headrace import instants
from headrace.json import jsontext
from headrace.limits import MAX_SAFE_INTEGER

Kind = Literal["keyword", "text", "integer", "float", "date", "bool"]

KEY, NODE, TIME = "@key", "@node", "@time"  # in place of a JSON pointer, which is empty or begins with a slash
COLUMNS = frozenset({KEY, NODE, TIME})


class RecordColumns(NamedTuple):
    """What a log keeps of a record beside its data: key, node, and append time (epoch ms)."""

    key: str | None
    node: str | None
    time_ms: int

    def at(self, pointer: str) -> str | int | None:
        """Returns the value of the column that `KEY`, `NODE` or `TIME` names."""
        if pointer == KEY:
            return self.key
        return self.node if pointer == NODE else self.time_ms


_BOOST = msgspec.Meta(gt=0, le=1_000_000)  # a score stays a number, whatever matches
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class _Value(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    pass


class Binding(_Value, frozen=True, kw_only=True):
    """The JSON pointer to a field's values in records of a schema version, and of later versions up to the next
    binding; or the name of a column.
    """

    version: Annotated[int, msgspec.Meta(ge=1, le=MAX_SAFE_INTEGER)]
    json_pointer: str


class Field(_Value, frozen=True, kw_only=True):
    """A search field.

    Attributes:
        kind: decides which values count, and their canonical form (a table is at the top of the module).
        bindings: at least one; at most one per version.
        normalizer: for keywords; None means `identity_v1`.
        analyzer: for text; always set there.
        exact: whether queries may ask for a value.
        prefix: whether queries may ask for values that begin with a text.
        column: whether queries may compare values.
        exists: whether queries may ask if a record has a value.
        sortable, aggregatable: whether it may be used for sorting, and in rollups.
        contains: whether `contains:` looks into it for any piece of text.
        positions: whether queries may ask for phrases.
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
        """Returns the binding with the highest version up to this one; None if there is none."""
        reached = [binding for binding in self.bindings if binding.version <= version]
        return max(reached, key=lambda binding: binding.version, default=None)


class DefaultField(_Value, frozen=True, kw_only=True):
    """A field in which bare words are looked for. A match is multiplied by `boost`, by default 1."""

    field: str
    boost: Annotated[int, _BOOST] | Annotated[float, _BOOST] | None = None


class Count(_Value, frozen=True, kw_only=True, tag_field="kind", tag="count"):
    """A measure: the number of records, or of those that match the query `include`."""

    include: str | None = None


class Summary(_Value, frozen=True, kw_only=True, tag_field="kind", tag="summary"):
    """A measure: count, sum, least and greatest value of a field, optionally with a histogram."""

    field: str
    histogram: Literal["log2_v1"] | None = None


class SummaryParts(_Value, frozen=True, kw_only=True, tag_field="kind", tag="summary_parts"):
    """A measure that merges summaries that the records themselves carry; it has pointers to the parts of a summary."""

    count_json_pointer: str
    sum_json_pointer: str
    min_json_pointer: str
    max_json_pointer: str
    histogram_json_pointer: str | None = None


Measure = Count | Summary | SummaryParts


class Rollup(_Value, frozen=True, kw_only=True):
    """A rollup: measures of the records in each time interval, for each combination of dimensions.

    Attributes:
        timestamp_field: a date field, which decides the interval of a record.
        include: a query that records must match; None means all.
        dimensions: fields with `exact` by which records are grouped.
        intervals: lengths as configured (`1m`); `interval_ms` parses them.
    """

    timestamp_field: str
    include: str | None = None
    dimensions: tuple[str, ...] | None = None
    intervals: tuple[str, ...]
    measures: dict[str, Measure]


class SearchConfig(_Value, frozen=True, kw_only=True, eq=False):
    """A stream's search configuration. To compare two configurations, compare their documents.

    Attributes:
        profile: the profile that installed it, if any.
        primary_timestamp_field: the date field that holds a record's time.
        default_fields: the fields in which bare words are looked for; see `targets`.
        contains_default_fields: where `contains:` looks; all fields that offer it if there are none.
        aliases: other names of fields, by alias.
    """

    profile: str | None = None
    primary_timestamp_field: str
    default_fields: tuple[DefaultField, ...] | None = None
    contains_default_fields: tuple[str, ...] | None = None
    aliases: dict[str, str] | None = None
    fields: dict[str, Field]
    rollups: dict[str, Rollup] | None = None

    def resolve(self, name: str) -> str | None:
        """Returns the name of the field that a name or an alias stands for; None if there is none."""
        target = (self.aliases or {}).get(name, name)
        return target if target in self.fields else None

    def targets(self) -> tuple[DefaultField, ...]:
        """Returns the fields in which bare words are looked for: the default fields or, if there are none, every text
        field.
        """
        if self.default_fields:
            return self.default_fields
        return tuple(DefaultField(field=name) for name, field in self.fields.items() if field.kind == "text")

    @property
    def contains_fields(self) -> tuple[str, ...]:
        """The fields that `contains:` looks into."""
        offered = (name for name, field in self.fields.items() if field.contains)
        return tuple(offered) if self.contains_default_fields is None else self.contains_default_fields

    @property
    def reads_columns(self) -> bool:
        """Whether a field has its values in a column of records, not in their data."""
        return any(pointer in COLUMNS for pointer in self._pointers)

    @property
    def reads_data(self) -> bool:
        """Whether a field or a rollup may have its values in the data of records, so that it must be parsed."""
        return bool(self.rollups) or any(pointer not in COLUMNS for pointer in self._pointers)

    @property
    def _pointers(self) -> list[str]:
        return [binding.json_pointer for field in self.fields.values() for binding in field.bindings]

    def document(self) -> dict[str, Any]:
        """Returns the configuration as a JSON document: members that are absent, false or null are left out; rollups
        have their timestamp field.
        """
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain


def interval_ms(interval: str) -> int:
    """Converts the length of a rollup's interval, one of `Rollup.intervals`, to milliseconds."""
    digits = interval.rstrip("mshd")
    return int(digits) * _UNITS_MS[interval[len(digits) :]]


Value = str | int | float | bool | tuple[str, ...]

# White space of JavaScript: what the texts of numbers may be surrounded by, and what separates words of a query.
WHITE_SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)

_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,999})", re.ASCII)  # bounded: reading digits takes quadratic time
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WORD = re.compile(r"[^\W_]+")  # letters and numbers of Unicode: tested against its categories
_NUMBER_TEXT_LENGTH = 1000
_POINT_LIMITS = (-6, 21)  # ECMA-262 § 6.1.6.1.20: outside of these, numbers are printed with an exponent


def reader(field: Field) -> Callable[[Any], Value | None]:
    """Returns a function that converts a JSON value to a canonical value of the field. That function returns None for a
    value that does not count.
    """
    if field.kind == "keyword" and field.normalizer == "lowercase_v1":
        return _lower_keyword
    return _READERS[field.kind]


def raw_name(field: str) -> str:
    """Returns the name under which `values` has a field's texts as they are, in lower case: no field has it."""
    return f"{field}:raw"


def find_words(text: str) -> Iterator[re.Match[str]]:
    """Yields the matches of the words of a text that is in lower case."""
    return _WORD.finditer(text)


def words(text: str) -> tuple[str, ...]:
    """Splits text into words by `unicode_word_v1`: the longest sequences of letters and numbers, in lower case and in
    order.
    """
    return tuple(_WORD.findall(text.lower()))


def text(value: str | int | float | bool) -> str:
    """Formats a canonical value as text, for a term or a group's key; numbers as JavaScript prints them."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _float_text(value)


def _keyword(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _lower_keyword(value: Any) -> str | None:
    return value.lower() if isinstance(value, str) else None


def _words(value: Any) -> tuple[str, ...] | None:
    return words(value) if isinstance(value, str) else None


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return _integer_text(value) if isinstance(value, str) else None


def _integer_text(value: str) -> int | None:
    match = _INTEGER.fullmatch(value.strip(WHITE_SPACE))
    return int(match[0]) if match else None


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        value = value.strip(WHITE_SPACE)
        if len(value) > _NUMBER_TEXT_LENGTH or not _NUMBER.fullmatch(value):
            return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _date(value: Any) -> int | None:
    if isinstance(value, str):
        stripped = value.strip(WHITE_SPACE)
        instant = instants.parse_ms(stripped)  # first: four digits are a year
        return _integer_text(stripped) if instant is None else instant
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _bool(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip(WHITE_SPACE).lower())
    return value if isinstance(value, bool) else None


_READERS: dict[str, Callable[[Any], Value | None]] = {
    "keyword": _keyword,
    "text": _words,
    "integer": _integer,
    "float": _float,
    "date": _date,
    "bool": _bool,
}


def _float_text(number: float) -> str:
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int), "finite"
    if digits == (0,):
        return "0"
    figures = "".join(map(str, digits))
    point = len(figures) + exponent  # figures before the point
    least, most = _POINT_LIMITS
    if not least < point <= most:
        fraction = f".{figures[1:]}" if len(figures) > 1 else ""
        printed = f"{figures[0]}{fraction}e{point - 1:+d}"
    elif point <= 0:
        printed = "0." + "0" * -point + figures
    elif point >= len(figures):
        printed = figures.ljust(point, "0")
    else:
        printed = f"{figures[:point]}.{figures[point:]}"
    return "-" * sign + printed


_Step = tuple[str, str, jsontext.Path, Callable[[Any], Value | None]]


def values(
    config: SearchConfig,
    version: int,
    document: Any,
    fields: frozenset[str] | None = None,
    columns: RecordColumns | None = None,
) -> dict[str, list[Value]]:
    """Returns the canonical values of a record by field; items of arrays, also of nested ones, count one by one, in
    order.

    A field without a value is left out: nothing at its path, null, an empty array, or a value of another kind.

    Args:
        config: the search configuration.
        version: the current schema version, to which the record was promoted.
        document: the parsed record.
        fields: names of the fields to return, and what `raw_name` returns for others; all fields by default.
        columns: the columns of the record, if it is known that a field may be bound to one.
    """
    found: dict[str, list[Value]] = {}
    for name, column, path, read in _plan(config, version, fields):
        if column:
            raw: Any = None if columns is None else columns.at(column)
        else:
            raw = jsontext.get(document, path)
        if isinstance(raw, list):
            read_values = [value for item in flat(raw) if (value := read(item)) is not None]
            if read_values:
                found[name] = read_values
        elif (value := read(raw)) is not None:
            found[name] = [value]
    return found


@lru_cache(maxsize=256)
def _plan(config: SearchConfig, version: int, fields: frozenset[str] | None) -> tuple[_Step, ...]:
    """Returns for each field its name, its column or else its path, and the function that reads its value."""
    bound = [
        (name, field, place_of(binding))
        for name, field in config.fields.items()
        if (binding := field.bound_at(version)) is not None
    ]
    wanted = [(name, *place, reader(field)) for name, field, place in bound if fields is None or name in fields]
    raw = [(raw_name(name), *place, _lower_keyword) for name, _, place in bound if raw_name(name) in (fields or ())]
    return (*wanted, *raw)


def place_of(binding: Binding) -> tuple[str, jsontext.Path]:
    """Returns where a binding's values are: the name of a column, or an empty text and the path in a record's data."""
    if binding.json_pointer in COLUMNS:
        return binding.json_pointer, ()
    return "", jsontext.parse_pointer(binding.json_pointer)


def flat(array: list[Any]) -> Iterator[Any]:
    """Yields the items of an array, and in place of nested arrays their items, at any depth."""
    levels = [iter(array)]
    while levels:
        for item in levels[-1]:
            if isinstance(item, list):
                levels.append(iter(item))
                break
            yield item
        else:
            levels.pop()
