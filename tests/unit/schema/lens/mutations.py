"""A schema a little wider, narrower, or just different."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

from tests.unit.schema.lens.generators import NAMES, SCALARS, TYPES, Schemas

_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMaximum")
_DROPPED = ("pattern", "propertyNames", "uniqueItems")
_CHILDREN = ("items", "additionalProperties", "additionalItems", "not", "contains")
_OTHERS = ("required", "const", "enum", "type")


def mutated(random: Random, schema: Any) -> Any:
    """Returns a copy with one or two keywords changed."""
    changed = copy.deepcopy(schema)
    spots = list(_spots(changed))
    for container, key in random.sample(spots, min(len(spots), random.randint(1, 2))):
        if _is_there(container, key):
            _mutate(random, container, key)
    return changed


def _spots(schema: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(schema, list):
        for at, child in enumerate(schema):
            yield schema, at
            yield from _spots(child)
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        if keyword in ("properties", "patternProperties"):
            for name, child in value.items():
                yield value, name
                yield from _spots(child)
        elif keyword in ("anyOf", "allOf") or (keyword == "items" and isinstance(value, list)):
            yield from _spots(value)
        elif keyword in _CHILDREN:
            yield schema, keyword
            yield from _spots(value)
        elif keyword in (*_COUNTS, *_BOUNDS, *_DROPPED, *_OTHERS):
            yield schema, keyword


def _is_there(container: Any, key: Any) -> bool:
    return key < len(container) if isinstance(container, list) else key in container


def _mutate(random: Random, container: Any, key: Any) -> None:
    value = container[key]
    if key == "required":
        kept = [name for name in value if random.random() < 0.7]
        container[key] = sorted({*kept, *random.sample(NAMES, random.randint(0, 1))})
    elif key in _COUNTS:
        container[key] = max(0, value + random.choice((-1, 1)))
    elif key in _BOUNDS:
        container[key] = value + random.choice((-1, 1, 0.5))
    elif key == "const":
        del container[key]
        container["enum"] = [value, random.choice(SCALARS)]
    elif key == "enum":
        container[key] = value[:-1] if random.random() < 0.3 and len(value) > 1 else [*value, random.choice(SCALARS)]
    elif key == "type":
        container[key] = sorted({*([value] if isinstance(value, str) else value), random.choice(TYPES)})
    elif key in _DROPPED:
        del container[key]
    elif isinstance(value, (dict, bool)):
        schemas = Schemas(random, refers=False)
        container[key] = random.choice(
            (True, schemas.scalar(), {"anyOf": [value, schemas.scalar()]}, schemas.object(1))
        )
