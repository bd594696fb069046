"""Short ways to write lenses and schemas."""

from __future__ import annotations

from typing import Any

from headrace.json import lens

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
DATE_TIME = {"type": "string", "format": "date-time"}


def lens_of(*ops: dict[str, Any]) -> lens.Lens:
    """Returns the parsed lens of the stream `s` from version 1 to 2."""
    return lens.parse(document_of(*ops), "s", 1)


def document_of(*ops: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "durable.lens/v1", "schema": "s", "from": 1, "to": 2, "ops": list(ops)}


def closed(members: dict[str, Any], *optional: str) -> dict[str, Any]:
    """Objects with these members and no other; all are required but the optional ones."""
    required = [name for name in members if name not in optional]
    return {"type": "object", "properties": members, "required": required, "additionalProperties": False}


def open_(members: dict[str, Any], *optional: str) -> dict[str, Any]:
    """Returns the schema that `closed` returns, but with any other members allowed."""
    return {**closed(members, *optional), "additionalProperties": True}


def array(items: Any, **keywords: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **keywords}


def rename(source: str, target: str) -> dict[str, Any]:
    return {"op": "rename", "from": source, "to": target}


def copy(source: str, target: str) -> dict[str, Any]:
    return {"op": "copy", "from": source, "to": target}


def add(path: str, *default: Any, schema: Any = True) -> dict[str, Any]:
    return {"op": "add", "path": path, "schema": schema, **({"default": default[0]} if default else {})}


def remove(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": path, "schema": True}


def hoist(host: str, name: str, to: str, **flags: bool) -> dict[str, Any]:
    return {"op": "hoist", "host": host, "name": name, "to": to, **flags}


def plunge(source: str, host: str, name: str, **flags: bool) -> dict[str, Any]:
    return {"op": "plunge", "from": source, "host": host, "name": name, **flags}


def wrap(path: str) -> dict[str, Any]:
    return {"op": "wrap", "path": path, "mode": "singleton"}


def head(path: str) -> dict[str, Any]:
    return {"op": "head", "path": path}


def convert(path: str, from_type: str, to_type: str, forward: Any) -> dict[str, Any]:
    """`forward` is a builtin's name or a table."""
    transform = {"builtin": forward} if isinstance(forward, str) else forward
    backward = {"builtin": "lowercase"}
    types = {"fromType": from_type, "toType": to_type}
    return {"op": "convert", "path": path, **types, "forward": transform, "backward": backward}


def inside(path: str, *ops: dict[str, Any]) -> dict[str, Any]:
    return {"op": "in", "path": path, "ops": list(ops)}


def each(path: str, *ops: dict[str, Any]) -> dict[str, Any]:
    return {"op": "map", "path": path, "ops": list(ops)}
