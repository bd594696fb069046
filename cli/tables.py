"""Prints tables and trees on standard output, and formats numbers for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from cli.terminal import clean, console, say

_SIZES = ("B", "kB", "MB", "GB", "TB")
_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))
_GAP = 2  # between two columns
_WHOLE_NAME = 40
_WHOLE_WORD = 13  # a time of day is not broken
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT)(\d\d:\d\d:\d\d(?:\.\d{1,3})?Z)")


class Column(NamedTuple):
    """A column's title, and whether it holds numbers, which are aligned to the right."""

    title: str
    is_number: bool = False


def counted(number: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun: `1 record`, `1,200 records`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Prints a table, one row per line if standard output is not a terminal. None is an empty cell.

    On a terminal texts are wrapped, but neither numbers nor the first column, by which a row is named. If there is no room
    even so, the last columns are left out, and standard error says which.
    """
    cells = [["" if cell is None else clean(str(cell)) for cell in row] for row in rows]
    to = console()
    widths = [_Width.of(column, [row[at] for row in cells], at == 0) for at, column in enumerate(columns)]
    if to.is_terminal:
        widths = _fit(widths, to.width)
    table = Table(box=None, pad_edge=False, title=Text(clean(title)) if title else None, title_justify="left")
    for width, column in zip(widths, columns, strict=False):
        table.add_column(
            Text(clean(column.title)),
            justify="right" if column.is_number else "left",
            overflow="fold",
            width=width.now if to.is_terminal else None,
        )
    for row in cells:
        table.add_row(*(Text(width.broken(cell)) for width, cell in zip(widths, row, strict=False)))
    to.print(table)
    if left_out := [column.title for column in columns[len(widths) :]]:
        say(f"no room for {', '.join(left_out)}: a wider terminal shows more, --json all", err=True)


@dataclass
class _Width:
    """A column's width on a terminal: `now`; the one that breaks no `word`; and the `least`, which breaks long ones."""

    now: int
    word: int
    least: int

    @classmethod
    def of(cls, column: Column, cells: Sequence[str], is_name: bool) -> _Width:
        title = [cell_len(word) for word in clean(column.title).split()]
        whole = max(map(cell_len, cells), default=0)
        words = max((cell_len(word) for cell in cells for word in _MOMENT.sub(r"\1 \2", cell).split()), default=0)
        is_whole = column.is_number or (is_name and whole <= _WHOLE_NAME)
        word = whole if is_whole else words
        least = whole if is_whole else min(words, _WHOLE_WORD)
        return cls(max(whole, cell_len(clean(column.title))), max(word, *title, 1), max(least, *title, 1))

    def broken(self, cell: str) -> str:
        """Returns a cell's text; a moment that is too long has its day on a line of its own."""
        return _MOMENT.sub("\\1\n\\2", cell) if cell_len(cell) > self.now else cell


def _fit(widths: list[_Width], room: int) -> list[_Width]:
    """Returns the first columns, as many as have room, the widest of them narrowed."""
    while len(widths) > 1 and sum(width.least for width in widths) + _GAP * (len(widths) - 1) > room:
        widths = widths[:-1]
    room -= _GAP * (len(widths) - 1)
    while sum(width.now for width in widths) > room:
        wide = [width for width in widths if width.now > width.word] or [
            width for width in widths if width.now > width.least
        ]
        if not wide:
            break
        max(wide, key=lambda width: width.now).now -= 1
    return widths


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
