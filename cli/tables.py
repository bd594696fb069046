"""Prints tables and trees on standard output, and formats numbers for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from cli.terminal import clean, console

_SIZES = ("B", "kB", "MB", "GB", "TB")
_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


class Column(NamedTuple):
    """A column's title, and whether it holds numbers, which are aligned to the right."""

    title: str
    is_number: bool = False


def counted(number: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun: `1 record`, `1,200 records`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Prints a table, one row per line if standard output is not a terminal. None is an empty cell."""
    table = Table(box=None, pad_edge=False, title=Text(clean(title)) if title else None, title_justify="left")
    for column in columns:
        table.add_column(Text(clean(column.title)), justify="right" if column.is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else clean(str(cell))) for cell in row))
    console().print(table)


def print_tree(label: str, value: Any) -> None:
    """Prints any JSON value as a tree."""
    tree = Tree(Text(label))
    _grow(tree, value)
    console().print(tree)


def size(count: int | str) -> str:
    """Returns a size in bytes for people: `12.3 MB`."""
    number = float(count)
    for unit in _SIZES[:-1]:
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} {_SIZES[-1]}"


def age(millis: int | str | None) -> str:
    """Returns a length of time for people: its two largest units, or milliseconds below a second; `-` for None."""
    if millis is None:
        return "-"
    left = int(millis)
    parts: list[str] = []
    for unit, length in _UNITS_MS:
        if left >= length or (parts and unit == "s"):
            parts.append(f"{left // length}{unit}")
            left %= length
    return " ".join(parts[:2]) if parts else f"{left}ms"


def _grow(tree: Tree, value: Any) -> None:
    if isinstance(value, Mapping):
        for name, part in value.items():
            _add(tree, str(name), part)
    else:
        for number, part in enumerate(value if isinstance(value, list) else [value], start=1):
            _add(tree, "" if _is_flat(part) else str(number), part)


def _add(tree: Tree, name: str, part: Any) -> None:
    if _is_flat(part):
        tree.add(Text(clean(f"{name}: {_flat(part)}" if name else _flat(part))))
    else:
        _grow(tree.add(Text(clean(name))), part)


def _is_flat(value: Any) -> bool:
    """Returns whether a value fits on one line: none of its parts is an object or array."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return not any(isinstance(part, Mapping | list) for part in parts)


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return "  ".join(f"{name}={_flat(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_flat, value))
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
