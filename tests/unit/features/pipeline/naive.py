"""Random expressions, each with its value by a plain reading of the contract (§ 7): trees that recurse, apart from the
product's parser, compiler and functions.
"""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from typing import Any

TYPES = {"a": "i64", "b": "i64", "x": "f64", "y": "f64", "s": "str", "t": "str", "p": "bool", "q": "bool"}
_VALUES: dict[str, list[Any]] = {
    "i64": [0, 1, -1, 7, -8, 2**63 - 1, -(2**63), 3_000_000_000],
    "f64": [0.0, 1.5, -2.25, 1e308, -1e-300, 7.0],
    "str": ["", "a", "it's", 'say "x"', "back\\slash", "ünï", "12", "-7", "1.5", "true"],
    "bool": [True, False],
}
_ORDERED = (">", ">=", "<", "<=", "==", "!=")


def random_row(random: Random) -> dict[str, Any]:
    """Returns a row in which a quarter of the values is null."""
    return {name: None if random.random() < 0.25 else random.choice(_VALUES[kind]) for name, kind in TYPES.items()}


def random_tree(random: Random, kind: str, depth: int) -> tuple[Any, ...]:
    """Returns a tree whose values are of a type: ("field", name), ("literal", value) or (operator, tree, ...)."""
    if depth == 0 or random.random() < 0.15:
        if random.random() < 0.6:
            return ("field", random.choice([name for name, of in TYPES.items() if of == kind]))
        return ("literal", random.choice(_VALUES[kind]))
    any_kind = random.choice(list(_VALUES))
    if kind == "bool":
        shape = random.randrange(6)
        if shape == 0:
            return ("not", random_tree(random, "bool", depth - 1))
        if shape == 1:
            return ("isnull", random_tree(random, any_kind, depth - 1))
        if shape == 2:
            return (random.choice(["== null", "!= null"]), random_tree(random, any_kind, depth - 1))
        if shape == 3:
            other = random.choice(["i64", "f64"]) if any_kind in ("i64", "f64") else any_kind
            operands = random_tree(random, any_kind, depth - 1), random_tree(random, other, depth - 1)
            return (random.choice(_ORDERED), *operands)
        return (
            random.choice(["and", "or"]),
            random_tree(random, "bool", depth - 1),
            random_tree(random, "bool", depth - 1),
        )
    if kind == "str" or random.random() < 0.3:
        target = {"i64": "int", "f64": "float", "str": "str"}[kind]
        return (
            f"cast {target}",
            random_tree(random, any_kind if kind != "str" else random.choice(["i64", "bool", "str"]), depth - 1),
        )
    operands = [random_tree(random, kind, depth - 1), random_tree(random, random.choice(["i64", kind]), depth - 1)]
    random.shuffle(operands)
    return (random.choice("+-*/"), *operands)


def write(tree: tuple[Any, ...], random: Random) -> str:
    """Returns the text of a tree, with either quotes and with redundant parentheses here and there."""
    operator, *operands = tree
    texts = [write(operand, random) for operand in operands] if operator not in ("field", "literal") else []
    if operator == "field":
        text = random.choice(["", "Ev."]) + operands[0]
    elif operator == "literal":
        text = _write_literal(operands[0], random)
    elif operator == "not":
        text = f"(not {texts[0]})"
    elif operator == "isnull":
        text = f"isnull({texts[0]})"
    elif operator in ("== null", "!= null"):
        text = f"({texts[0]} {operator})"
    elif operator.startswith("cast "):
        text = f"cast({texts[0]}, {operator[5:]})"
    else:
        text = f"({texts[0]} {operator} {texts[1]})"
    return f"({text})" if random.random() < 0.1 else text


def evaluate(tree: tuple[Any, ...], row: dict[str, Any]) -> Any:
    """Returns the value of a tree for a row."""
    operator, *operands = tree
    if operator == "field":
        return row[operands[0]]
    if operator == "literal":
        return operands[0]
    values = [evaluate(operand, row) for operand in operands]
    if operator in ("isnull", "== null"):
        return values[0] is None
    if operator == "!= null":
        return values[0] is not None
    if operator == "and":
        return False if False in values else None if None in values else True
    if operator == "or":
        return True if True in values else None if None in values else False
    if None in values:
        return None
    if operator == "not":
        return not values[0]
    if operator.startswith("cast "):
        return _cast(values[0], operator[5:])
    return _apply(operator, *values)


def _apply(operator: str, a: Any, b: Any) -> Any:
    match operator:
        case ">":
            return a > b
        case ">=":
            return a >= b
        case "<":
            return a < b
        case "<=":
            return a <= b
        case "==":
            return a == b
        case "!=":
            return a != b
    if operator == "/" and b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        exact = {"+": a + b, "-": a - b, "*": a * b, "/": int(Fraction(a, b or 1))}[operator]
        return max(-(2**63), min(2**63 - 1, exact))
    a, b = float(a), float(b)
    try:
        result = a + b if operator == "+" else a - b if operator == "-" else a * b if operator == "*" else a / b
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def _cast(value: Any, target: str) -> Any:
    try:
        if target == "str":
            return str(value).lower() if isinstance(value, bool) else str(value)
        if target == "float":
            return float(value)
        number = int(value)
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**63 else None


def _write_literal(value: Any, random: Random) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    quote = random.choice("'\"")
    return quote + value.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote
