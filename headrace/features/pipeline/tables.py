"""Compiles derivations: derived events into chains, tables into chains with aggregations."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import orjson

from headrace.features.errors import OperatorError, RegistrationError
from headrace.features.pipeline import keys
from headrace.features.pipeline.chain import Columns, StepFunction, compile_chain, event_columns, run, types_of
from headrace.features.pipeline.expr import compile_expression
from headrace.features.pipeline.features import FeatureSet, FeatureSpec, check_operator
from headrace.features.pipeline.nodes import Derivation, EventNode
from headrace.features.pipeline.syntax import ExpressionError, canonical
from headrace.features.pipeline.text import show

MAX_ROW_BYTES = 4 * 1024 * 1024  # worst case of a row, uncompressed: a row is read and written as a whole


class Building(msgspec.Struct, frozen=True):
    """A back-fill that is under way: beside the generation that is read, another one is computed from all events.

    Attributes:
        generation: the other one.
        job_id: the job that computes it up to where each lane was when it took this.
    """

    generation: str
    job_id: str


class TableState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the registry knows of a table beyond its node.

    Attributes:
        generation: the registry version in which the table's state began, as text; of a back-fill with a letter.
        started: the registry version in which each feature began, by its name.
        building: a back-fill that is under way.
        is_backfilled: whether the generation is that of a back-fill, so that its state begins before it.
    """

    generation: str
    started: dict[str, int]
    building: Building | None = None
    is_backfilled: bool = False


class Stream(NamedTuple):
    """The rows of an event or a derived event.

    Attributes:
        event: the event source that they come from.
        steps: from a row of the source to one of these.
        columns: the columns that they have.
        sources: the names of the source and of the derived events between, and of the stream itself.
    """

    event: EventNode
    steps: tuple[StepFunction, ...]
    columns: Columns
    sources: frozenset[str]


class Table(NamedTuple):
    """A compiled table.

    Attributes:
        generation: see `TableState`.
        keys: the columns of the key, of the types `key_types`; none for one global row.
        types: the type of each feature's value.
        features: the state of a row.
        cold_after_ms: the idle time after which a row is cold; None: never.
        lane_key_at: the index of the event's lane key among the keys; None if it is not among them, unchanged.
        texts: the event's fields of which operators keep values of any length.
        steps: from a row of the event to one that the features see.
    """

    name: str
    generation: str
    keys: tuple[str, ...]
    key_types: tuple[str, ...]
    types: dict[str, str]
    features: FeatureSet
    cold_after_ms: int | None
    lane_key_at: int | None
    lanes: int
    texts: frozenset[str]
    steps: tuple[StepFunction, ...]

    @property
    def aligned(self) -> bool:
        """Whether each row gets the events of one lane only."""
        return self.lanes == 1 or self.lane_key_at is not None

    def entity_of(self, row: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
        """Returns the key of the table's row that an event belongs to, as stored text, and what the features see of the
        event. None if the event is filtered out or a part of the key is null.

        Args:
            row: a checked event.
        """
        derived = run(self.steps, row)
        if derived is None:
            return None
        values = [derived[key] for key in self.keys]
        return None if None in values else (keys.encode(values), derived)

    def entity_for(self, key: Any) -> str:
        """Returns the stored text of a request's key: a string, or a list of values.

        Raises:
            KeyRefused: it has another number of parts, or a part of another type.
        """
        return keys.encode(keys.parse(key, self.key_types))

    def lane_value_for(self, key: Any) -> Any:
        """Returns the value of the lane key in a request's key.

        Raises:
            KeyRefused: see `entity_for`.
        """
        assert self.lane_key_at is not None, "the table is aligned to lanes"
        return keys.parse(key, self.key_types)[self.lane_key_at]


def open_event(event: EventNode) -> Stream:
    """Returns the rows of an event as they are pushed."""
    return Stream(event, (), event_columns(event.fields), frozenset({event.name}))


def derive(node: Derivation, upstream: Stream, path: str) -> Stream:
    """Compiles a derived event.

    Args:
        path: the place of the node in the registration, for errors.

    Raises:
        RegistrationError: an operator does not fit the upstream's columns.
    """
    chain = compile_chain(node.ops, upstream.columns, upstream.sources, f"{path}.ops")
    return Stream(upstream.event, upstream.steps + chain.steps, chain.columns, upstream.sources | {node.name})


def aggregate(node: Derivation, upstream: Stream, state: TableState, path: str) -> Table:
    """Compiles a table.

    Args:
        state: which features began when.
        path: the place of the node in the registration, for errors.

    Raises:
        RegistrationError: an operator or aggregation does not fit the columns, the row can become too large, or the
            table would need events of several lanes for one row.
    """
    chain = compile_chain(node.ops[:-1], upstream.columns, upstream.sources, f"{path}.ops")
    here = f"{path}.ops[{len(node.ops) - 1}]"
    columns, event = chain.columns, upstream.event
    for index, key in enumerate(node.primary_key):
        if key not in columns:
            reason = f"unknown field {show(key)}: the fields here are {', '.join(list(columns)[:10])}"
            raise RegistrationError("aggregation_unknown_field", f"{here}.keys[{index}]", reason)
        if columns[key].type == "json":
            reason = f"{show(key)} is a json field, and can't be a key: cast it to str"
            raise RegistrationError("invalid_registration", f"{here}.keys[{index}]", reason)
    specs, types, texts = _compile_features(node, columns, upstream.sources, state, f"{here}.agg")
    features = FeatureSet(specs)
    if features.max_bytes > MAX_ROW_BYTES:
        reason = f"a row can become {features.max_bytes} bytes large: limit={MAX_ROW_BYTES}; use several tables"
        raise RegistrationError("invalid_registration", f"{here}.agg", reason)
    raws = [columns[key].raw for key in node.primary_key]
    lane_key_at = raws.index(event.lane_key) if event.lane_key in raws and event.lane_key is not None else None
    if event.lanes > 1 and lane_key_at is None:
        reason = (
            f"the events of {event.name!r} are spread over {event.lanes} lanes by {event.lane_key!r}: "
            "the key of the table must have this field, unchanged but for its name"
        )
        raise RegistrationError("invalid_registration", f"{path}.table_primary_key", reason)
    return Table(
        name=node.name,
        generation=state.generation,
        keys=node.primary_key,
        key_types=tuple(columns[key].type for key in node.primary_key),
        types=types,
        features=features,
        cold_after_ms=event.cold_after_ms,
        lane_key_at=lane_key_at,
        lanes=event.lanes,
        texts=texts,
        steps=upstream.steps + chain.steps,
    )


class NormalAggregation(NamedTuple):
    """An aggregation in a form that two equal ones share.

    Attributes:
        window: the window, as `check_operator` normalised it; None for a lifetime.
        rest: everything else.
    """

    window: Any
    rest: str


def normalise(op: str, params: dict[str, Any], types: Mapping[str, str]) -> NormalAggregation:
    """Returns the normal form of an aggregation that was checked against the types of its fields, without these types: an
    event says itself that they changed.
    """
    where = params.get("where")
    normal = check_operator(op, {key: value for key, value in params.items() if key != "where"}, types)[1]
    rest = {key: value for key, value in normal.items() if key not in ("window", "type")}
    return NormalAggregation(normal.get("window"), _dumps([_ALIASES.get(op, op), rest, where and canonical(where)]))


_ALIASES = {"ema": "ewma"}


def _compile_features(
    node: Derivation, columns: Columns, sources: frozenset[str], state: TableState, path: str
) -> tuple[list[FeatureSpec], dict[str, str], frozenset[str]]:
    column_types = types_of(columns)
    specs: list[FeatureSpec] = []
    types: dict[str, str] = {}
    texts: set[str] = set()
    for name, aggregation in node.ops[-1]["agg"].items():
        here = f"{path}.{name}"
        if name in node.primary_key:
            reason = f"the feature {name!r} has the name of a key: use another one"
            raise RegistrationError("aggregation_group_key_collides_with_feature", here, reason)
        op, params = aggregation["op"], dict(aggregation["params"])
        where = params.pop("where", None)
        evaluate = None
        if where is not None:
            try:
                condition = compile_expression(where, column_types, sources, strict=False)
            except ExpressionError as error:
                raise RegistrationError("aggregation_invalid_where", f"{here}.params.where", str(error)) from error
            if condition.type not in ("bool", "null"):
                reason = f"where must be true or false, not {condition.type}: {show(where)}"
                raise RegistrationError("aggregation_invalid_where", f"{here}.params.where", reason)
            evaluate = condition.evaluate
        try:
            types[name], normal = check_operator(op, params, column_types)
        except OperatorError as error:
            place = f"{here}.op" if error.param is None else f"{here}.params.{error.param}"
            raise RegistrationError(error.code, place, error.reason) from error
        identity = _dumps([_ALIASES.get(op, op), normal, where and canonical(where), state.started[name]])
        digest = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
        specs.append(FeatureSpec(name, digest, op, normal, evaluate))
        for value in normal.values():
            if isinstance(value, str) and value in columns:
                texts |= columns[value].texts
    return specs, types, frozenset(texts)


def _dumps(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
