"""Expressions of filters, computed columns and `where`: from text to a function of a row (the contract's § 7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from headrace.features.pipeline import scalar
from headrace.features.pipeline.nodes import TEXT_TYPES
from headrace.features.pipeline.syntax import ExpressionError, Step, parse
from headrace.features.pipeline.text import show

CLOSURE_HEIGHT = 64  # above it, a loop evaluates: each level of closures takes a frame of Python's 1,000

_LOGIC: dict[str, Callable[..., Any]] = {"and": scalar.both, "or": scalar.either, "not": scalar.negate}
_ARITIES = {"not": 1, "isnull": 1, "quadkey": 3}

Row = Mapping[str, Any]


class Expression(NamedTuple):
    """A compiled expression.

    Attributes:
        type: the type of its values; "null" if it is always null and has no type.
        fields: the fields that it reads.
        evaluate: computes the value for a row.
    """

    type: str
    fields: frozenset[str]
    evaluate: Callable[[Row], Any]


class _Operand(NamedTuple):
    """What the compiler knows of a subexpression. `run` is None above `CLOSURE_HEIGHT`."""

    type: str
    step: Step | None  # if it is a single one
    height: int
    run: Callable[[Row], Any] | None


def compile_expression(
    text: Any, types: Mapping[str, str], sources: Collection[str] = (), *, strict: bool = True
) -> Expression:
    """Compiles an expression for rows whose fields have the given types.

    Args:
        types: the type of each field.
        sources: names that can precede a field: `Txn.amount`.
        strict: whether a comparison of values of different kinds is refused; otherwise it is null.

    Raises:
        ExpressionError: it can't be parsed, names an unknown field, or applies an operator to a type that it does not
            take.
    """
    if not isinstance(text, str):
        raise ExpressionError(f"an expression must be a string, not {show(text)}")
    program: list[tuple[Any, Any]] = []  # arity and function, or None and a step
    operands: list[_Operand] = []
    fields: set[str] = set()
    for step in parse(text):
        if step.kind == "field":
            name = _resolve(step.value, types, sources)
            fields.add(name)
            step = Step("field", name)
            operands.append(_Operand(types[name], step, 1, _field(name)))
            program.append((None, step))
        elif step.kind == "literal":
            operands.append(_Operand(_type_of(step.value), step, 1, _literal(step.value)))
            program.append((None, step))
        else:
            arity = _ARITIES.get(step.value, 1 if step.value.startswith("cast:") else 2)
            arguments = operands[-arity:]
            result, apply = _resolve_call(step.value, arguments, strict)
            height = 1 + max(argument.height for argument in arguments)
            run = _close(step.value, apply, arguments) if height <= CLOSURE_HEIGHT else None
            operands[-arity:] = [_Operand(result, None, height, run)]
            program.append((arity, apply))
    whole = operands[0]
    return Expression(whole.type, frozenset(fields), whole.run or _interpret(program))


def _resolve(name: str, types: Mapping[str, str], sources: Collection[str]) -> str:
    source, _, field = name.rpartition(".")
    if field not in types or (source and source not in sources):
        known = ", ".join(list(types)[:10])
        raise ExpressionError(
            f"unknown field {show(name)}: the fields here are {known}{' …' if len(types) > 10 else ''}"
        )
    return field


def _type_of(value: Any) -> str:
    return {bool: "bool", int: "i64", float: "f64", str: "str"}.get(type(value), "null")


def _kind(type_name: str) -> str:
    return "number" if type_name in ("i64", "f64") else "string" if type_name in TEXT_TYPES else type_name


def _resolve_call(name: str, arguments: list[_Operand], strict: bool) -> tuple[str, Callable[..., Any]]:
    """Returns the type of a call's result, and the function of its arguments' values."""
    types = [argument.type for argument in arguments]
    kinds = [_kind(type_name) for type_name in types]
    if name in scalar.COMPARISONS:
        return "bool", _resolve_comparison(name, arguments, kinds, strict)
    if name in ("and", "or", "not"):
        _expect(name, types, kinds, "bool", "true or false")
        return "bool", _LOGIC[name]
    if name == "isnull":
        return "bool", scalar.is_null
    if name.startswith("cast:"):
        return scalar.CASTS[name[5:]]
    _expect(name, types, kinds, "number", "numbers")
    if name == "quadkey":
        zoom = arguments[2]
        if zoom.type == "f64" or (
            zoom.step and zoom.step.kind == "literal" and not 0 <= (zoom.step.value or 0) <= scalar.MAX_ZOOM
        ):
            what = "a float" if zoom.type == "f64" else show(zoom.step.value if zoom.step else None)
            raise ExpressionError(f"the zoom of quadkey must be an integer from 0 to {scalar.MAX_ZOOM}, not {what}")
        return "str", scalar.quadkey
    result = "f64" if "f64" in types or set(kinds) == {"null"} else "i64"
    return result, scalar.ARITHMETIC[name, result]


def _resolve_comparison(name: str, arguments: list[_Operand], kinds: list[str], strict: bool) -> Callable[..., Any]:
    left_null, right_null = (argument.step == Step("literal", None) for argument in arguments)
    if (left_null or right_null) and name in ("==", "!="):
        test = scalar.is_null if name == "==" else scalar.is_not_null
        return (lambda a, _: test(a)) if right_null else (lambda _, b: test(b))
    if "null" in kinds:
        return _always_null
    if kinds[0] == kinds[1] != "json":
        return scalar.compare(name)
    if strict:
        raise ExpressionError(
            f"'{name}' can't compare {arguments[0].type} with {arguments[1].type}: cast one of them"
        )
    return _always_null


def _expect(name: str, types: list[str], kinds: list[str], kind: str, what: str) -> None:
    for type_name, actual in zip(types, kinds, strict=True):
        if actual not in (kind, "null"):
            raise ExpressionError(f"'{name}' takes {what}, not {type_name}")


def _always_null(*_: Any) -> None:
    return None


def _field(name: str) -> Callable[[Row], Any]:
    return lambda row: row[name]


def _literal(value: Any) -> Callable[[Row], Any]:
    return lambda _: value


def _close(name: str, apply: Callable[..., Any], arguments: list[_Operand]) -> Callable[[Row], Any]:
    """Returns a call as a function of the row. The most frequent forms have functions of their own, for speed."""
    runs = [argument.run or _always_null for argument in arguments]  # none is None up to the height of closures
    if len(runs) == 1:
        only = runs[0]
        return lambda row: apply(only(row))
    if len(runs) == 3:
        first, second, third = runs
        return lambda row: apply(first(row), second(row), third(row))
    left, right = runs
    if name == "and":
        return lambda row: False if (a := left(row)) is False else scalar.both(a, right(row))
    if name == "or":
        return lambda row: True if (a := left(row)) is True else scalar.either(a, right(row))
    one, other = arguments[0].step, arguments[1].step
    comparable = _kind(arguments[0].type) == _kind(arguments[1].type) not in ("json", "null")
    if name in scalar.COMPARISONS and comparable and one and other and (one.kind, other.kind) == ("field", "literal"):
        field, value, holds = one.value, other.value, scalar.COMPARISONS[name]
        return lambda row: None if (a := row[field]) is None else holds(a, value)
    return lambda row: apply(left(row), right(row))


def _interpret(program: list[tuple[Any, Any]]) -> Callable[[Row], Any]:
    """Returns a function that evaluates postfix steps with a stack."""

    def run(row: Row) -> Any:
        stack: list[Any] = []
        for arity, work in program:
            if arity is None:
                stack.append(row[work.value] if work.kind == "field" else work.value)
            elif arity == 2:
                last = stack.pop()
                stack[-1] = work(stack[-1], last)
            else:
                stack[-arity:] = [work(*stack[-arity:])]
        return stack[0]

    return run
