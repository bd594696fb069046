"""What a record says about the fields of a search configuration: canonical values, by field.

The one definition of it: filters over tail and segments, and later the indexes, ask here. A record is first promoted to
the schema in force, so the binding that applies is the one of that schema and never of the version it was written in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from headrace.json import pointer
from headrace.query.language import canonical
from headrace.query.language.canonical import Value
from headrace.query.language.config import SearchConfig

_Step = tuple[str, pointer.Path, Callable[[Any], Value | None]]


def values(
    config: SearchConfig, version: int, document: Any, fields: frozenset[str] | None = None
) -> dict[str, list[Value]]:
    """Returns the canonical values of a record, those of an array (of arrays) one by one, in order.

    What has none is left out: no such place, null, an empty array, or a value that is not of the field's kind.

    Args:
        config: says which fields there are, and where.
        version: of the schema in force, which the record was promoted to.
        document: the record, parsed.
        fields: only these; all by default.
    """
    found: dict[str, list[Value]] = {}
    for name, path, read in _plan(config, version, fields):
        raw = pointer.get(document, path)
        if isinstance(raw, list):
            read_values = [value for item in _flat(raw) if (value := read(item)) is not None]
            if read_values:
                found[name] = read_values
        elif (value := read(raw)) is not None:
            found[name] = [value]
    return found


@lru_cache(maxsize=256)
def _plan(config: SearchConfig, version: int, fields: frozenset[str] | None) -> tuple[_Step, ...]:
    """Returns per field: its name, where it is, and what reads it."""
    return tuple(
        (name, pointer.parse(binding.json_pointer), canonical.reader(field))
        for name, field in config.fields.items()
        if (fields is None or name in fields) and (binding := field.bound_at(version)) is not None
    )


def _flat(array: list[Any]) -> Iterator[Any]:
    """Returns the items of an array, with those of arrays in it in their place, however deep."""
    levels = [iter(array)]
    while levels:
        for item in levels[-1]:
            if isinstance(item, list):
                levels.append(iter(item))
                break
            yield item
        else:
            levels.pop()
