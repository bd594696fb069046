"""Metric math, as far as alarms and dashboard use it: arithmetic, comparison, AND, OR, IF, FILL.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html. A period for which a value is missing
gives none. What FILL makes of a metric without any value that CloudWatch was asked for, that page does not say: whoever
evaluates says whether it is filled, too.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence

from local.cloudwatch.samples import Series

Value = float | Series
_Operation = Callable[[float, float], float]

_BINARY: Mapping[type[ast.AST], _Operation] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.And: lambda one, other: float(bool(one) and bool(other)),
    ast.Or: lambda one, other: float(bool(one) or bool(other)),
}


class UnknownExpression(ValueError):
    """The expression uses what this module does not know."""


def evaluate(expression: str, metrics: Mapping[str, Series], periods: Sequence[int], *, fills_empty: bool) -> Series:
    """The value of each of `periods` that has one.

    Args:
        metrics: by the names that the expression uses.
        fills_empty: FILL fills a metric that has no value in any of the periods.

    Raises:
        UnknownExpression: as it says.
    """
    text = re.sub(r"\bAND\b|&&", " and ", re.sub(r"\bOR\b|\|\|", " or ", expression))
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as exc:
        raise UnknownExpression(expression) from exc
    found = _Evaluation(metrics, periods, fills_empty).of(tree)
    return found if isinstance(found, dict) else dict.fromkeys(periods, found)


class _Evaluation:
    def __init__(self, metrics: Mapping[str, Series], periods: Sequence[int], fills_empty: bool) -> None:
        self._metrics = metrics
        self._periods = periods
        self._fills_empty = fills_empty

    def of(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=int() | float() as number):
                return float(number)
            case ast.Name(id=name) if name in self._metrics:
                return {at: value for at, value in self._metrics[name].items() if at in self._periods}
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._divide(self.of(left), self.of(right))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _combine(_BINARY[type(op)], self.of(left), self.of(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _BINARY:
                return _combine(_BINARY[type(op)], self.of(left), self.of(right))
            case ast.BoolOp(op=op, values=values):
                found = self.of(values[0])
                for value in values[1:]:
                    found = _combine(_BINARY[type(op)], found, self.of(value))
                return found
            case ast.Call(func=ast.Name(id="FILL"), args=[ast.expr() as inner, ast.expr() as filling]):
                return self._fill(self.of(inner), self.of(filling))
            case ast.Call(
                func=ast.Name(id="IF"), args=[ast.expr() as condition, ast.expr() as yes, ast.expr() as no]
            ):
                return self._choose(self.of(condition), self.of(yes), self.of(no))
        raise UnknownExpression(ast.unparse(node))

    def _fill(self, series: Value, filling: Value) -> Value:
        if not isinstance(series, dict) or isinstance(filling, dict):
            raise UnknownExpression("FILL takes a series and a number")
        if not series and not self._fills_empty:
            return series
        return {at: series.get(at, filling) for at in self._periods}

    def _divide(self, one: Value, other: Value) -> Value:
        """What is divided by zero is missing."""
        if isinstance(other, dict):
            other = {at: value for at, value in other.items() if value}
        elif not other:
            return {}
        return _combine(operator.truediv, one, other)

    def _choose(self, condition: Value, yes: Value, no: Value) -> Value:
        """Only the value that is chosen must be there."""
        if not isinstance(condition, dict):
            condition = dict.fromkeys(self._periods, condition)
        chosen = {at: yes if holds else no for at, holds in condition.items()}
        values = {at: value.get(at) if isinstance(value, dict) else value for at, value in chosen.items()}
        return {at: value for at, value in values.items() if value is not None}


def _combine(operation: _Operation, one: Value, other: Value) -> Value:
    if isinstance(one, dict) and isinstance(other, dict):
        return {at: float(operation(value, other[at])) for at, value in one.items() if at in other}
    if isinstance(one, dict):
        assert not isinstance(other, dict)
        return {at: float(operation(value, other)) for at, value in one.items()}
    if isinstance(other, dict):
        return {at: float(operation(one, value)) for at, value in other.items()}
    return float(operation(one, other))
