"""Parses the search configuration of a schema registry, and checks every rule.

All rules for the document are here; an error names the place as a JSON pointer below the body. The options that each
kind of field allows:

    keyword                       normalizer, exact, prefix, column, exists, sortable, aggregatable, contains
    text                          analyzer (required), exists, positions, contains
    integer, float, date, bool    exact, column, exists, sortable, aggregatable

The rules follow the registry of Prisma Streams, except that these are refused, which it accepts and ignores: `exact`,
`prefix` and `normalizer` on text, `analyzer` on typed fields, bare words over typed fields, an `include` that is no
valid query, an alias that hides a field, a field with no binding for the current schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Sized
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec

from headrace import decoding
from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.query.language import grammar
from headrace.query.language.canonical import (
    COLUMNS,
    Count,
    DefaultField,
    Field,
    Measure,
    Rollup,
    SearchConfig,
    Summary,
    SummaryParts,
    interval_ms,
)

# Every record pays for every field, and every rollup for each of its intervals.
MAX_FIELDS = 500
MAX_ALIASES = 500
MAX_ROLLUPS = 50
MAX_DIMENSIONS = 16
MAX_INTERVALS = 16
MAX_MEASURES = 100
MAX_NAME_CHARS = 64

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_INTERVAL = re.compile(r"\d{1,9}(?:ms|s|m|h|d)", re.ASCII)
_OPTIONS = (
    "normalizer",
    "analyzer",
    "exact",
    "prefix",
    "column",
    "exists",
    "sortable",
    "aggregatable",
    "contains",
    "positions",
)
_TYPED = frozenset({"exact", "column", "exists", "sortable", "aggregatable"})
_ALLOWED = {
    "keyword": _TYPED | {"normalizer", "prefix", "contains"},
    "text": frozenset({"analyzer", "exists", "positions", "contains"}),
    "integer": _TYPED,
    "float": _TYPED,
    "date": _TYPED,
    "bool": _TYPED,
}

T = TypeVar("T")


def parse(search: Any, current_version: int, *, columns: bool = False) -> SearchConfig:
    """Parses a search configuration. `.document()` of the result is its normal form, which parses to an equal
    configuration.

    Args:
        search: the document, as a client sent it or a registry stores it.
        current_version: version of the schema that it is for. Each field must have a binding for that version or an
            earlier one; 0 means that this is not checked.
        columns: whether fields may be bound to columns of records; only a surface may do that, never a client.

    Raises:
        InvalidRequest: the document breaks a rule; the message says which and where.
    """
    at = "/search"
    outline = _shape(search, _Outline, at)
    fields = _fields(outline.fields, current_version, f"{at}/fields", columns=columns)
    _check_date(outline.primary_timestamp_field, fields, f"{at}/primaryTimestampField")
    config = SearchConfig(
        profile=outline.profile,
        primary_timestamp_field=outline.primary_timestamp_field,
        default_fields=outline.default_fields,
        contains_default_fields=outline.contains_default_fields,
        aliases=outline.aliases,
        fields=fields,
        rollups=None if outline.rollups is None else _rollups(outline, fields, f"{at}/rollups"),
    )
    _check_default_fields(config, at)
    _check_aliases(config, f"{at}/aliases")
    _check_includes(config, f"{at}/rollups")
    return config


class _Outline(msgspec.Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The document of a search configuration, with only its upper levels checked."""

    profile: str | None = None
    primary_timestamp_field: str
    default_fields: tuple[DefaultField, ...] | None = None
    contains_default_fields: tuple[str, ...] | None = None
    aliases: dict[str, str] | None = None
    fields: Annotated[dict[str, Any], msgspec.Meta(min_length=1)]
    rollups: dict[str, Any] | None = None


class _RollupOutline(msgspec.Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    timestamp_field: str | None = None
    include: str | None = None
    dimensions: tuple[str, ...] | None = None
    intervals: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    measures: Annotated[dict[str, Any], msgspec.Meta(min_length=1)]


def _fields(documents: Mapping[str, Any], current_version: int, at: str, *, columns: bool) -> dict[str, Field]:
    _check_count(documents, MAX_FIELDS, at)
    fields = {}
    for name, document in documents.items():
        _check_name(name, at)
        here = f"{at}/{name}"
        fields[name] = field = _shape(document, Field, here)
        _check_field(field, here, columns=columns)
        if current_version and field.bound_at(current_version) is None:
            _refuse(f"no binding for schema version {current_version}", f"{here}/bindings")
    return fields


def _check_field(field: Field, at: str, *, columns: bool) -> None:
    for option in _OPTIONS:
        if getattr(field, option) and option not in _ALLOWED[field.kind]:
            _refuse(f"not supported for {field.kind} fields", f"{at}/{option}")
    if field.kind == "text" and field.analyzer is None:
        _refuse("required for text fields", f"{at}/analyzer")
    versions = [binding.version for binding in field.bindings]
    for number, binding in enumerate(field.bindings):
        if binding.version in versions[:number]:
            _refuse(f"version {binding.version} is bound twice", f"{at}/bindings/{number}")
        if not (columns and binding.json_pointer in COLUMNS):
            _check_pointer(binding.json_pointer, f"{at}/bindings/{number}/jsonPointer")


def _rollups(outline: _Outline, fields: Mapping[str, Field], at: str) -> dict[str, Rollup]:
    documents = outline.rollups or {}
    _check_count(documents, MAX_ROLLUPS, at)
    rollups = {}
    for name, document in documents.items():
        _check_name(name, at)
        here = f"{at}/{name}"
        shape = _shape(document, _RollupOutline, here)
        rollups[name] = Rollup(
            timestamp_field=shape.timestamp_field or outline.primary_timestamp_field,
            include=_stripped(shape.include, f"{here}/include"),
            dimensions=shape.dimensions,
            intervals=shape.intervals,
            measures=_measures(shape.measures, fields, f"{here}/measures"),
        )
        _check_rollup(rollups[name], fields, here)
    return rollups


def _check_rollup(rollup: Rollup, fields: Mapping[str, Field], at: str) -> None:
    _check_date(rollup.timestamp_field, fields, f"{at}/timestampField")
    dimensions = rollup.dimensions or ()
    _check_list(dimensions, MAX_DIMENSIONS, f"{at}/dimensions")
    for number, name in enumerate(dimensions):
        if not _known(name, fields, f"{at}/dimensions/{number}").exact:
            _refuse(f"field {name} is not exact", f"{at}/dimensions/{number}")
    _check_list(rollup.intervals, MAX_INTERVALS, f"{at}/intervals")
    for number, interval in enumerate(rollup.intervals):
        if not _INTERVAL.fullmatch(interval) or not interval_ms(interval):
            _refuse("not a duration above zero, such as 10s, 1m or 1h", f"{at}/intervals/{number}")


def _measures(documents: Mapping[str, Any], fields: Mapping[str, Field], at: str) -> dict[str, Measure]:
    _check_count(documents, MAX_MEASURES, at)
    measures: dict[str, Measure] = {}
    for name, document in documents.items():
        _check_name(name, at)
        here = f"{at}/{name}"
        measure: Measure = _shape(document, Measure, here)  # type: ignore[arg-type]
        if isinstance(measure, Count):
            measure = Count(include=_stripped(measure.include, f"{here}/include"))
        elif isinstance(measure, Summary):
            _check_summary(_known(measure.field, fields, f"{here}/field"), f"{here}/field")
        else:
            _check_parts(measure, here)
        measures[name] = measure
    return measures


def _check_summary(field: Field, at: str) -> None:
    if field.kind not in ("integer", "float"):
        _refuse("not an integer or float field", at)
    if not field.aggregatable:
        _refuse("not an aggregatable field", at)


def _check_parts(measure: SummaryParts, at: str) -> None:
    for name, text in msgspec.to_builtins(measure).items():
        if name != "kind":
            _check_pointer(text, f"{at}/{name}")


def _check_default_fields(config: SearchConfig, at: str) -> None:
    for number, default in enumerate(config.default_fields or ()):
        here = f"{at}/defaultFields/{number}/field"
        if _known(default.field, config.fields, here).kind not in ("keyword", "text"):
            _refuse("not a keyword or text field", here)
    for number, name in enumerate(config.contains_default_fields or ()):
        _known(name, config.fields, f"{at}/containsDefaultFields/{number}")


def _check_aliases(config: SearchConfig, at: str) -> None:
    aliases = config.aliases or {}
    _check_count(aliases, MAX_ALIASES, at)
    for alias, name in aliases.items():
        _check_name(alias, at)
        _known(name, config.fields, f"{at}/{alias}")
        if alias in config.fields and alias != name:
            _refuse("hides the field of that name", f"{at}/{alias}")


def _check_includes(config: SearchConfig, at: str) -> None:
    """Raises InvalidRequest if a query of a rollup (`include`) is invalid. This comes last, because it needs the
    complete configuration.
    """
    for name, rollup in (config.rollups or {}).items():
        includes = {f"{at}/{name}/include": rollup.include}
        for measure_name, measure in rollup.measures.items():
            if isinstance(measure, Count):
                includes[f"{at}/{name}/measures/{measure_name}/include"] = measure.include
        for here, include in includes.items():
            if include is not None:
                grammar.parse_query(include, config, here)


def _check_date(name: str, fields: Mapping[str, Field], at: str) -> None:
    if _known(name, fields, at).kind != "date":
        _refuse(f"field {name} is not a date", at)


def _known(name: str, fields: Mapping[str, Field], at: str) -> Field:
    if name not in fields:
        _refuse(f"no field of this name: {name[:MAX_NAME_CHARS]!r}", at)
    return fields[name]


def _check_name(name: str, at: str) -> None:
    if len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        _refuse(f"not a name: {name[:MAX_NAME_CHARS]!r}", at)


def _check_pointer(text: str, at: str) -> None:
    try:
        jsontext.parse_pointer(text)
    except InvalidRequest as exc:
        raise InvalidRequest(f"{at}: {exc}") from exc


def _check_count(members: Sized, limit: int, at: str) -> None:
    if len(members) > limit:
        _refuse(f"too many: limit={limit} received={len(members)}", at)


def _check_list(texts: Sequence[str], limit: int, at: str) -> None:
    _check_count(texts, limit, at)
    for number, text in enumerate(texts):
        if text in texts[:number]:
            _refuse("given twice", f"{at}/{number}")


def _stripped(text: str | None, at: str) -> str | None:
    if text is None:
        return None
    if not text.strip():
        _refuse("empty", at)
    return text.strip()


def _refuse(problem: str, at: str) -> NoReturn:
    raise InvalidRequest(f"{at}: {problem}")


_MAX_PROBLEM_CHARS = 200  # it quotes the document
_PLACE = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)


def _shape(document: Any, shape: type[T], at: str) -> T:
    """Converts a document to a value of this type. Raises InvalidRequest, with the place, for a wrong type, a missing
    member or an unknown one.
    """
    try:
        return decoding.from_builtins(document, shape)
    except msgspec.ValidationError as exc:
        match = _PLACE.fullmatch(str(exc))
        assert match is not None, "it matches anything"
        problem, place = match[1][:_MAX_PROBLEM_CHARS], match[2] or ""
        steps = re.sub(r"\[(\d+)\]", r"/\1", place.replace("[...]", "")).replace(".", "/")
        raise InvalidRequest(f"{at}{steps}: {problem[:1].lower()}{problem[1:]}") from exc
