"""The operations of `durable.lens/v1`, as values.

Field names, defaults and strictness follow the peer's published JSON Schema of a lens. Paths are JSON pointers,
relative to the document or, inside `in` and `map`, to the nested object or item.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

API_VERSION = "durable.lens/v1"

JsonType = Literal["string", "number", "integer", "boolean", "null", "object", "array"]
BuiltinName = Literal[
    "lowercase", "uppercase", "string_to_int", "int_to_string", "rfc3339_to_unix_millis", "unix_millis_to_rfc3339"
]
Scalar = str | int | float | bool | None
Name = Annotated[str, Meta(min_length=1)]
Version = Annotated[int, Meta(ge=0)]


class _Strict(Struct, frozen=True, forbid_unknown_fields=True):
    """Takes no key that it does not name."""


class _Op(_Strict, frozen=True, tag_field="op", tag=str.lower):
    """An operation, told from the others by its `op`."""


class Rename(_Op, frozen=True):
    """Moves a value. What is at `to` is replaced."""

    from_: str = field(name="from")
    to: str


class Copy(_Op, frozen=True):
    """Duplicates a value. What is at `to` is replaced."""

    from_: str = field(name="from")
    to: str


class Add(_Op, frozen=True):
    """Sets a value. What is at `path` is replaced: as the peer does, although its reference says "if missing"."""

    path: str
    schema: dict[str, Any] | bool
    default: Any = UNSET


class Remove(_Op, frozen=True):
    """Deletes a value that must be there. `schema` and `default` tell a reader what it was."""

    path: str
    schema: dict[str, Any] | bool
    default: Any = UNSET


class Hoist(_Op, frozen=True):
    """Moves (or, without `removeFromHost`, copies) a member out of its object."""

    host: str
    name: Name
    to: str
    remove_from_host: bool = field(name="removeFromHost", default=True)


class Plunge(_Op, frozen=True):
    """Moves (or, without `removeFromSource`, copies) a value into an object, which `createHost` makes if missing."""

    from_: str = field(name="from")
    host: str
    name: Name
    create_host: bool = field(name="createHost", default=True)
    remove_from_source: bool = field(name="removeFromSource", default=True)


class Wrap(_Op, frozen=True):
    """Makes an array of one item of a value."""

    path: str
    mode: Literal["singleton"]
    reverse_mode: Literal["first"] = field(name="reverseMode", default="first")


class Head(_Op, frozen=True):
    """Replaces an array by its first item."""

    path: str
    reverse_mode: Literal["singleton"] = field(name="reverseMode", default="singleton")


class Transform(_Strict, frozen=True):
    """A table from the text of a scalar to a scalar, `default` for all that is not listed; or a builtin by name."""

    map: dict[str, Scalar] | UnsetType = UNSET
    default: Scalar | UnsetType = UNSET
    builtin: BuiltinName | UnsetType = UNSET

    def __post_init__(self) -> None:
        is_table = self.map is not UNSET
        is_builtin = self.builtin is not UNSET
        if is_table == is_builtin or (is_builtin and self.default is not UNSET):
            raise ValueError("expected a `map` with an optional `default`, or a `builtin`")


class Convert(_Op, frozen=True):
    """Replaces a value of one type by one of another. `backward` is kept, not run."""

    path: str
    from_type: JsonType = field(name="fromType")
    to_type: JsonType = field(name="toType")
    forward: Transform
    backward: Transform


class In(_Op, frozen=True):
    """Runs operations on a nested object."""

    path: str
    ops: Annotated[tuple[Op, ...], Meta(min_length=1)]


class Map(_Op, frozen=True):
    """Runs operations on each item of an array."""

    path: str
    ops: Annotated[tuple[Op, ...], Meta(min_length=1)]


Op = Rename | Copy | Add | Remove | Hoist | Plunge | Wrap | Head | Convert | In | Map


class Envelope(_Strict, frozen=True):
    """A lens document."""

    api_version: Literal["durable.lens/v1"] = field(name="apiVersion")
    schema: Name
    from_: Version = field(name="from")
    to: Version
    ops: Annotated[tuple[Op, ...], Meta(min_length=1)]
    description: str | UnsetType = UNSET
