"""A lane's pipeline: what checks its events, and the tables that they feed."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, NoReturn

import msgspec
import orjson

from headrace.features.errors import EventRefused
from headrace.features.pipeline.chain import MAX_TEXT_BYTES, conform
from headrace.features.pipeline.nodes import EVENT_TIME_FIELDS, Derivation, EventNode
from headrace.features.pipeline.scalar import MAX_I64, MIN_I64
from headrace.features.pipeline.tables import Building, Table, TableState, aggregate, derive, open_event
from headrace.features.pipeline.text import is_clean, show
from headrace.instants import is_date_time

MAX_JSON_DEPTH = 200  # of a value of the type json; orjson writes at most 254 levels

__all__ = ["Building", "Pipeline", "PipelineDocument", "Table", "TableState", "compile_pipeline"]


class PipelineDocument(msgspec.Struct, frozen=True):
    """What a lane needs to know of the registry; stored in the lane's definition.

    Attributes:
        version: the registry version in which this pipeline last changed.
        derivations: the derived events and tables that come from the event, upstreams first.
        tables: the state of each of these tables, by name.
    """

    version: int
    event: EventNode
    derivations: tuple[Derivation, ...]
    tables: dict[str, TableState]


class _Field(NamedTuple):
    name: str
    kind: str
    exact: Any  # the class that most of its values have, which are checked without a call
    is_optional: bool
    is_kept: bool  # operators keep its values, so their length is limited


class Pipeline:
    """A compiled pipeline. It never changes, so threads can share it.

    Attributes:
        document: what it was compiled from.
        event: the lane's event.
        tables: the tables by name.
        building: those that are back-filled, in the generation that is not read yet.
    """

    def __init__(self, document: PipelineDocument, tables: dict[str, Table]) -> None:
        self.document = document
        self.event = document.event
        self.tables = tables
        self.building = {
            name: tables[name]._replace(generation=state.building.generation)
            for name, state in document.tables.items()
            if state.building is not None
        }
        kept = frozenset[str]().union(*(table.texts for table in tables.values()))
        optional = frozenset(self.event.optional)
        self._names = frozenset(self.event.fields)
        self._fields = [
            _Field(name, kind, _EXACT.get(kind), name in optional, name in kept)
            for name, kind in self.event.fields.items()
        ]

    @property
    def generations(self) -> list[Table]:
        """The tables in each of their generations."""
        return [*self.tables.values(), *self.building.values()]

    def table(self, name: str, generation: str) -> Table | None:
        """Returns a table in a generation; None if there is none."""
        for tables in (self.tables, self.building):
            found = tables.get(name)
            if found is not None and found.generation == generation:
                return found
        return None

    def check(self, data: Any) -> dict[str, Any]:
        """Checks a pushed event and returns its row: every field, null for those that are absent, numbers as their
        field's type. Does not change `data`.

        Raises:
            EventRefused: it does not match the schema, or has a string that is too long or has control characters.
        """
        if not isinstance(data, dict):
            raise EventRefused("invalid_event", f"the data of an event must be an object, not {show(data)}")
        if data.keys() != self._names and not data.keys() <= self._names:
            self._refuse_unknown(data)
        row: dict[str, Any] = {}
        for name, kind, exact, is_optional, is_kept in self._fields:
            value = data.get(name)
            if value is None:
                if not is_optional:
                    what = "is null" if name in data else "is missing"
                    raise EventRefused("invalid_event", f"field '{name}' {what}, and is not optional")
            elif value.__class__ is not exact:
                value = _conform(name, kind, value, is_kept)
            elif exact is str:
                if not value.isprintable() and not is_clean(value):
                    _refuse_control(name)
                if is_kept and len(value) > _SURELY_SHORT:
                    _check_length(name, len(value.encode()))
                if kind == "datetime" and not is_date_time(value):
                    _refuse_type(name, kind, value)
            elif exact is float:
                if not -_INFINITY < value < _INFINITY:
                    _refuse_type(name, kind, value)
            elif exact is int and not MIN_I64 <= value <= MAX_I64:
                _refuse_type(name, kind, value)
            row[name] = value
        return row

    def _refuse_unknown(self, data: dict[str, Any]) -> NoReturn:
        unknown = [name for name in data if name not in self._names]
        for name in unknown:
            if name in EVENT_TIME_FIELDS:
                reason = f"field '{name}' is not supported: events have the time of their arrival. Remove it"
                raise EventRefused("unknown_field_event_time_v0", reason)
        known = ", ".join(list(self.event.fields)[:10]) + (" …" if len(self._names) > 10 else "")
        reason = f"field {show(unknown[0])} is not in the schema of '{self.event.name}': its fields are {known}"
        raise EventRefused("unknown_field_v0", reason)


_EXACT = {"str": str, "bytes": str, "datetime": str, "f64": float, "i64": int, "bool": bool}
_INFINITY = math.inf
_SURELY_SHORT = MAX_TEXT_BYTES // 4  # characters; UTF-8 has at most 4 bytes for each


def compile_pipeline(document: PipelineDocument) -> Pipeline:
    """Compiles a pipeline.

    Raises:
        RegistrationError: the document is not one that `registry` made: a derivation does not fit its upstream.
    """
    streams = {document.event.name: open_event(document.event)}
    tables: dict[str, Table] = {}
    for node in document.derivations:
        upstream = streams[node.upstreams[0]]
        if node.output_kind == "table":
            tables[node.name] = aggregate(node, upstream, document.tables[node.name], node.name)
        else:
            streams[node.name] = derive(node, upstream, node.name)
    return Pipeline(document, tables)


def _conform(name: str, kind: str, value: Any, is_kept: bool) -> Any:
    """Returns a value as one of its field's type: a whole float for an i64, an integer for an f64, any for json."""
    if kind == "json":
        _check_json(name, value, is_kept)
        return value
    if value.__class__ is str and not is_clean(value):
        _refuse_control(name)
    checked = conform(value, kind)
    if checked is None:
        _refuse_type(name, kind, value)
    return checked


def _check_json(name: str, value: Any, is_kept: bool) -> None:
    """Checks the strings and the depth of a value, level by level."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_JSON_DEPTH:
            raise EventRefused("invalid_event", f"field '{name}' is deeper than {MAX_JSON_DEPTH} levels")
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                if not is_clean(item):
                    _refuse_control(name)
            elif isinstance(item, dict):
                below.extend(item)
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = below
    if is_kept:
        try:
            _check_length(name, len(orjson.dumps(value)))
        except orjson.JSONEncodeError as error:
            raise EventRefused("invalid_event", f"field '{name}' has a number that is too large: {error}") from error


def _check_length(name: str, size: int) -> None:
    if size > MAX_TEXT_BYTES:
        reason = f"field '{name}' has {size} bytes, and features keep its values: limit={MAX_TEXT_BYTES} bytes"
        raise EventRefused("invalid_event", reason)


def _refuse_type(name: str, kind: str, value: Any) -> NoReturn:
    raise EventRefused("invalid_event", f"field '{name}' must be of type {kind}, not {show(value)}")


def _refuse_control(name: str) -> NoReturn:
    reason = f"field '{name}' has a control character, or half of a surrogate pair: remove it"
    raise EventRefused("control_character_in_string", reason)
