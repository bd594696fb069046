"""Stateless operators: each takes a row and returns one, or None if it filters the row out.

The columns are inferred along the chain, from the fields of the event to what an aggregation sees.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from headrace.features.errors import RegistrationError
from headrace.features.pipeline import scalar
from headrace.features.pipeline.expr import Expression, compile_expression
from headrace.features.pipeline.nodes import FIELD_TYPES, MAX_FIELDS, TEXT_TYPES
from headrace.features.pipeline.syntax import ExpressionError
from headrace.features.pipeline.text import check_name, is_clean, join, show

MAX_TEXT_BYTES = 1024  # of a string that an operator keeps

Row = Mapping[str, Any]
StepFunction = Callable[[Row], Row | None]


class Column(NamedTuple):
    """A column of the rows at one place of a chain.

    Attributes:
        type: the type of its values.
        raw: the event's field that it is, unchanged; None if it was computed.
        texts: the event's fields of strings or JSON whose value it can have.
    """

    type: str
    raw: str | None = None
    texts: frozenset[str] = frozenset()


Columns = dict[str, Column]


class Chain(NamedTuple):
    """A compiled chain.

    Attributes:
        steps: the operators as functions, in order.
        columns: what the last of them returns.
    """

    steps: tuple[StepFunction, ...]
    columns: Columns


def event_columns(fields: Mapping[str, str]) -> Columns:
    """Returns the columns of an event as it was pushed."""
    return {
        name: Column(kind, name, frozenset({name}) if kind in TEXT_TYPES or kind == "json" else frozenset())
        for name, kind in fields.items()
    }


def types_of(columns: Columns) -> dict[str, str]:
    """Returns the type of each column."""
    return {name: column.type for name, column in columns.items()}


def compile_chain(ops: Iterable[dict[str, Any]], columns: Columns, sources: Collection[str], path: str) -> Chain:
    """Compiles stateless operators.

    Args:
        ops: flat documents, as `nodes` parses them.
        columns: the columns of the rows that come in.
        sources: names that can precede a field in an expression.
        path: the place of the list of operators in the registration, for errors.

    Raises:
        RegistrationError: an operator is unknown, malformed or does not fit the columns.
    """
    steps: list[StepFunction] = []
    for index, op in enumerate(ops):
        here = f"{path}[{index}]"
        compiler = _COMPILERS.get(op["op"])
        if compiler is None:
            known = ", ".join(sorted(_COMPILERS))
            _refuse(
                f"{here}.op", f"unknown operator {show(op['op'])}: use {known} or, at the end of a table, group_by"
            )
        step, columns = compiler(op, columns, sources, here)
        if not columns:
            _refuse(here, f"'{op['op']}' leaves no fields")
        if len(columns) > MAX_FIELDS:
            _refuse(here, f"{len(columns)} fields are too many: limit={MAX_FIELDS}")
        if step is not None:
            steps.append(step)
    return Chain(tuple(steps), columns)


def run(steps: Sequence[StepFunction], row: Row) -> Row | None:
    """Returns what a chain makes of a row, which it does not change; None if the row is filtered out."""
    current: Row | None = row
    for step in steps:
        current = step(current)  # type: ignore[arg-type]  # the loop ends at None
        if current is None:
            return None
    return current


def compile_at(text: Any, columns: Columns, sources: Collection[str], path: str) -> Expression:
    """Compiles an expression of a chain.

    Raises:
        RegistrationError: with the code `invalid_expression`.
    """
    try:
        return compile_expression(text, types_of(columns), sources)
    except ExpressionError as error:
        raise RegistrationError("invalid_expression", path, str(error)) from error


_Compiled = tuple[StepFunction | None, Columns]


def _filter(op: dict[str, Any], columns: Columns, sources: Collection[str], path: str) -> _Compiled:
    expression = compile_at(op.get("expr"), columns, sources, f"{path}.expr")
    if expression.type not in ("bool", "null"):
        reason = f"a filter must be true or false, not {expression.type}: {show(op['expr'])}"
        raise RegistrationError("invalid_expression", f"{path}.expr", reason)
    evaluate = expression.evaluate
    return lambda row: row if evaluate(row) is True else None, columns


def _select(op: dict[str, Any], columns: Columns, _: Collection[str], path: str) -> _Compiled:
    names = _read_fields(op, columns, path)
    return lambda row: {name: row[name] for name in names}, {name: columns[name] for name in names}


def _drop(op: dict[str, Any], columns: Columns, _: Collection[str], path: str) -> _Compiled:
    dropped = set(_read_fields(op, columns, path))
    kept = {name: column for name, column in columns.items() if name not in dropped}
    names = tuple(kept)
    return lambda row: {name: row[name] for name in names}, kept


def _rename(op: dict[str, Any], columns: Columns, _: Collection[str], path: str) -> _Compiled:
    mapping = _read_object(op, "mapping", path)
    for old, new in mapping.items():
        _check_field(old, columns, join(f"{path}.mapping", old))
        check_name(new, join(f"{path}.mapping", old), "a field")
    renamed: Columns = {}
    for old, column in columns.items():
        new = mapping.get(old, old)
        if new in renamed:
            _refuse(
                f"{path}.mapping.{next(o for o in mapping if mapping[o] == new)}",
                f"two fields would be named {show(new)}",
            )
        renamed[new] = column
    pairs = tuple((mapping.get(old, old), old) for old in columns)
    return lambda row: {new: row[old] for new, old in pairs}, renamed


def _with_columns(op: dict[str, Any], columns: Columns, sources: Collection[str], path: str) -> _Compiled:
    computed: list[tuple[str, Callable[[Row], Any]]] = []
    added: Columns = {}
    for name, text in _read_object(op, "exprs", path).items():
        here = join(f"{path}.exprs", name)
        check_name(name, here, "a field")
        expression = compile_at(text, columns, sources, here)
        if expression.type == "null":
            raise RegistrationError("invalid_expression", here, f"{show(text)} has no type: use cast(null, str)")
        texts = frozenset[str]()
        if expression.type in TEXT_TYPES or expression.type == "json":
            texts = texts.union(*(columns[field].texts for field in expression.fields))
        added[name] = Column(expression.type, None, texts)
        computed.append((name, expression.evaluate))

    def add(row: Row) -> Row:
        wider = dict(row)
        for name, evaluate in computed:
            wider[name] = evaluate(row)
        return wider

    return add, {**columns, **added}


def _cast(op: dict[str, Any], columns: Columns, _: Collection[str], path: str) -> _Compiled:
    casts: dict[str, Callable[[Any], Any]] = {}
    changed: Columns = {}
    for name, target in _read_object(op, "type_map", path).items():
        here = join(f"{path}.type_map", name)
        _check_field(name, columns, here)
        if not isinstance(target, str) or target not in scalar.CASTS:
            _refuse(here, f"unknown type {show(target)}: use str, int, float or bool")
        kind, casts[name] = scalar.CASTS[target]
        changed[name] = Column(kind, None, columns[name].texts if kind == "str" else frozenset())
    return lambda row: {**row, **{name: cast(row[name]) for name, cast in casts.items()}}, {**columns, **changed}


def _fillna(op: dict[str, Any], columns: Columns, _: Collection[str], path: str) -> _Compiled:
    defaults: dict[str, Any] = {}
    for name, value in _read_object(op, "defaults", path).items():
        here = join(f"{path}.defaults", name)
        _check_field(name, columns, here)
        kind = columns[name].type
        default = conform(value, kind) if kind in FIELD_TYPES and kind != "json" else None
        if default is None:
            _refuse(here, f"{show(value)} can't be the default of a field of type {kind}")
        if isinstance(default, str) and not (is_clean(default) and len(default.encode()) <= MAX_TEXT_BYTES):
            reason = f"a default can't have control characters or more than {MAX_TEXT_BYTES} bytes: {show(value)}"
            _refuse(here, reason)
        defaults[name] = default
    filled = {name: Column(columns[name].type, None, columns[name].texts) for name in defaults}

    def fill(row: Row) -> Row:
        missing = {name: default for name, default in defaults.items() if row[name] is None}
        return {**row, **missing} if missing else row

    return fill, {**columns, **filled}


def conform(value: Any, kind: str) -> Any:
    """Returns a JSON value as one of a field's type; None if it is none: an i64 is whole and of 64 bits, an f64 finite.
    Values of the type `json` are returned as they are.
    """
    if kind in TEXT_TYPES:
        return value if isinstance(value, str) else None
    if kind == "bool":
        return value if isinstance(value, bool) else None
    if kind == "json":
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if kind == "f64":
        return scalar.to_float(value)
    whole = scalar.to_int(value)
    return whole if whole == value else None


_COMPILERS: dict[str, Callable[[dict[str, Any], Columns, Collection[str], str], _Compiled]] = {
    "filter": _filter,
    "select": _select,
    "drop": _drop,
    "rename": _rename,
    "with_columns": _with_columns,
    "map": _with_columns,
    "cast": _cast,
    "fillna": _fillna,
}


def _read_fields(op: dict[str, Any], columns: Columns, path: str) -> tuple[str, ...]:
    fields = op.get("fields")
    if not isinstance(fields, list) or not fields:
        _refuse(f"{path}.fields", f"'{op['op']}' needs a list `fields` of names, not {show(fields)}")
    for index, name in enumerate(fields):
        _check_field(name, columns, f"{path}.fields[{index}]")
    if len(set(fields)) < len(fields):
        _refuse(f"{path}.fields", "a field is named twice")
    return tuple(fields)


def _read_object(op: dict[str, Any], key: str, path: str) -> dict[str, Any]:
    value = op.get(key)
    if not isinstance(value, dict) or not value:
        _refuse(f"{path}.{key}", f"'{op['op']}' needs the object `{key}` with at least one field, not {show(value)}")
    return value


def _check_field(name: Any, columns: Columns, path: str) -> None:
    if not isinstance(name, str) or name not in columns:
        known = ", ".join(list(columns)[:10]) + (" …" if len(columns) > 10 else "")
        _refuse(path, f"unknown field {show(name)}: the fields here are {known}")


def _refuse(path: str, reason: str) -> NoReturn:
    raise RegistrationError("invalid_registration", path, reason)
