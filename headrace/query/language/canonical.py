"""A search configuration, as values: what can be asked of a stream's records, where the answers are in them, and the form
in which they are compared. One definition for records and queries, tail, segments and indexes.

The attributes of a configuration are those of the document, in its order, so that it prints as the document it came from.
`headrace.json.search_config` checks a document and makes these; no other module does.

    kind       what counts                                   canonical value
    keyword    a string                                      the string, lower case under `lowercase_v1`
    text       a string                                      its words, in order: a tuple, maybe empty
    integer    a whole number, or its decimal text           int, of any size
    float      a number, or its text                         float, finite
    date       an instant in text, or milliseconds           int: milliseconds since 1970
    bool       true, false, or their names                   bool

Everything else, null included, is no value: the record is as if the field were absent. A record is first promoted to the
schema in force, so the binding that applies is the one of that schema and never of the version it was written in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from headrace import instants
from headrace.json import jsontext
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
        kind: which values count, and their canonical form (see above).
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
    """Returns what makes a canonical value of a JSON value, or None of what doesn't count."""
    if field.kind == "keyword" and field.normalizer == "lowercase_v1":
        return _lower_keyword
    return _READERS[field.kind]


def words(text: str) -> tuple[str, ...]:
    """Returns the words of `unicode_word_v1`: the longest sequences of letters and numbers, in lower case and in order."""
    return tuple(_WORD.findall(text.lower()))


def text(value: str | int | float | bool) -> str:
    """Returns a canonical value in print, as a term or a group's key: numbers as JavaScript prints them."""
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


_Step = tuple[str, jsontext.Path, Callable[[Any], Value | None]]


def values(
    config: SearchConfig, version: int, document: Any, fields: frozenset[str] | None = None
) -> dict[str, list[Value]]:
    """Returns the canonical values of a record, those of an array (of arrays) one by one, in order.

    What has none is left out: no such place, null, an empty array, or a value that is not of the field's kind.

    Args:
        config: says which fields there are, and where.
        version: of the schema in force, which the record was promoted to.
        document: the record, parsed.
        fields: only these; all by default.
    """
    found: dict[str, list[Value]] = {}
    for name, path, read in _plan(config, version, fields):
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
    """Returns per field: its name, where it is, and what reads it."""
    return tuple(
        (name, jsontext.parse_pointer(binding.json_pointer), reader(field))
        for name, field in config.fields.items()
        if (fields is None or name in fields) and (binding := field.bound_at(version)) is not None
    )


def flat(array: list[Any]) -> Iterator[Any]:
    """Returns the items of an array, with those of arrays in it in their place, however deep."""
    levels = [iter(array)]
    while levels:
        for item in levels[-1]:
            if isinstance(item, list):
                levels.append(iter(item))
                break
            yield item
        else:
            levels.pop()
