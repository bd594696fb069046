"""Evaluates the expressions of DynamoDB's API that Headrace uses, and refuses every other one with a ValueError.

Conditions: `AND`, `OR`, parentheses, comparisons, `BETWEEN`, `begins_with`, `attribute_exists`, `attribute_not_exists`.
Updates: `SET name = :value`, `REMOVE name`, `ADD name :value` to numbers and sets of numbers. A path names an attribute.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from headrace.tables.items import Item

_TOKEN = re.compile(r"\s*(<=|>=|[()=<>,]|[#:]?\w+)")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Condition(NamedTuple):
    """A node of a parsed condition.

    Attributes:
        kind: "AND", "OR", "BETWEEN", a comparison, or the name of a function.
        parts: the operands of AND and OR.
        path: the attribute that any other node is about.
        values: the placeholders that it is compared with.
    """

    kind: str
    parts: tuple[Condition, ...] = ()
    path: str = ""
    values: tuple[str, ...] = ()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        if "".join(self._tokens) != re.sub(r"\s", "", text):
            raise ValueError(f"not supported in an expression: {text}")
        self._at = 0

    @property
    def next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self, *wanted: str) -> str:
        """Returns the next token. Raises ValueError if it is none of those wanted; without any, if there is none."""
        token = self.next
        if not token or (wanted and token not in wanted):
            raise ValueError(f"expected {wanted or 'more'}, not {token!r}: {self._text}")
        self._at += 1
        return token

    def path(self) -> str:
        """Returns the next token, which must be the name of an attribute, or a placeholder of one."""
        token = self.take()
        if token.startswith(":") or not token.lstrip("#").isidentifier():
            raise ValueError(f"expected an attribute, not {token!r}: {self._text}")
        return token

    def value(self) -> str:
        """Returns the next token, which must be the placeholder of a value."""
        token = self.take()
        if not token.startswith(":"):
            raise ValueError(f"expected a value, not {token!r}: {self._text}")
        return token

    def any_of(self) -> Condition:
        return self._joined("OR", self.all_of)

    def all_of(self) -> Condition:
        return self._joined("AND", self.term)

    def _joined(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self.next == word:
            self.take(word)
            parts.append(part())
        return parts[0] if len(parts) == 1 else Condition(word, tuple(parts))

    def term(self) -> Condition:
        if self.next == "(":
            self.take("(")
            inner = self.any_of()
            self.take(")")
            return inner
        if self.next in ("attribute_exists", "attribute_not_exists", "begins_with"):
            kind = self.take()
            self.take("(")
            path, operands = self.path(), list[str]()
            if kind == "begins_with":
                self.take(",")
                operands.append(self.value())
            self.take(")")
            return Condition(kind, path=path, values=tuple(operands))
        path = self.path()
        kind = self.take("BETWEEN", *_COMPARISONS)
        operands = [self.value()]
        if kind == "BETWEEN":
            self.take("AND")
            operands.append(self.value())
        return Condition(kind, path=path, values=tuple(operands))


@lru_cache(maxsize=256)
def parse_condition(text: str) -> Condition:
    """Parses a condition, of a write or of the keys of a query. Raises ValueError if it is not supported."""
    parser = _Parser(text)
    found = parser.any_of()
    if parser.next:
        raise ValueError(f"not supported in a condition: {text}")
    return found


def holds(condition: Condition, item: Item, names: Mapping[str, str], values: Item) -> bool:
    """Returns whether a condition holds of an item; of an absent one, which is empty, as of one without attributes.

    Args:
        names: the attribute of each placeholder `#name`.
        values: the value of each placeholder `:name`.

    Raises:
        ValueError: it compares values of two types, or of a type that has no order.
    """
    match condition.kind:
        case "AND":
            return all(holds(part, item, names, values) for part in condition.parts)
        case "OR":
            return any(holds(part, item, names, values) for part in condition.parts)
    found = item.get(attribute(condition.path, names))
    match condition.kind:
        case "attribute_exists":
            return found is not None
        case "attribute_not_exists":
            return found is None
    if found is None:
        return False
    kind, own = comparable(found)
    others = []
    for name in condition.values:
        other_kind, other = comparable(values[name])
        if other_kind != kind:
            raise ValueError(f"{condition.path} is of type {kind}, not {other_kind}")
        others.append(other)
    match condition.kind:
        case "begins_with":
            return bool(own.startswith(others[0]))
        case "BETWEEN":
            return bool(others[0] <= own <= others[1])
    return _COMPARISONS[condition.kind](own, others[0])


def attribute(path: str, names: Mapping[str, str]) -> str:
    """Returns the attribute that a path of an expression names."""
    return names[path] if path.startswith("#") else path


def comparable(value: Mapping[str, Any]) -> tuple[str, Any]:
    """Returns the type of an attribute's value, and the value as Python compares it. Raises ValueError for a type that has
    no order.
    """
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return kind, _number(content)
        case "S" | "B":
            return kind, content
    raise ValueError(f"values of type {kind} are not compared")


def _number(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:
        return Decimal(text)


class Update(NamedTuple):
    """A parsed update: pairs of attribute and placeholder to set and to add, and attributes to remove."""

    sets: tuple[tuple[str, str], ...]
    adds: tuple[tuple[str, str], ...]
    removes: tuple[str, ...]


@lru_cache(maxsize=256)
def parse_update(text: str) -> Update:
    """Parses an update. Raises ValueError if it is not supported."""
    parser = _Parser(text)
    sets: list[tuple[str, str]] = []
    adds: list[tuple[str, str]] = []
    removes: list[str] = []
    while parser.next:
        section = parser.take("SET", "ADD", "REMOVE")
        while True:
            path = parser.path()
            if section == "SET":
                parser.take("=")
                sets.append((path, parser.value()))
            elif section == "ADD":
                adds.append((path, parser.value()))
            else:
                removes.append(path)
            if parser.next != ",":
                break
            parser.take(",")
    return Update(tuple(sets), tuple(adds), tuple(removes))


def updated(update: Update, item: Item, names: Mapping[str, str], values: Item) -> Item:
    """Returns an item with the changes of an update. Raises ValueError if it adds to anything but a number or a set of
    numbers.
    """
    changed = dict(item)
    for path, name in update.sets:
        changed[attribute(path, names)] = values[name]
    for path in update.removes:
        changed.pop(attribute(path, names), None)
    for path, name in update.adds:
        own = attribute(path, names)
        changed[own] = _sum(changed.get(own), values[name])
    return changed


def touched(update: Update, names: Mapping[str, str]) -> list[str]:
    """Returns the attributes that an update is about."""
    return [attribute(path, names) for path in (*dict(update.sets), *dict(update.adds), *update.removes)]


def _sum(own: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    match own or {}, more:
        case {"N": one}, {"N": other}:
            return {"N": str(_number(one) + _number(other))}
        case {"NS": some}, {"NS": others}:
            return {"NS": sorted({*some, *others})}
        case {}, {"N": _} | {"NS": _} if not own:
            return dict(more)
    raise ValueError(f"not added: {own} and {more}")


def projected(text: str, item: Item, names: Mapping[str, str]) -> Item:
    """Returns the attributes of an item that a projection names."""
    wanted = [attribute(path.strip(), names) for path in text.split(",")]
    return {name: item[name] for name in wanted if name in item}
