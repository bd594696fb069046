"""The operations of `durable.lens/v1`, as values.

Field names, defaults and strictness follow the JSON Schema of a lens that Prisma Streams publishes. Paths are JSON
pointers, relative to the document or, inside `in` and `map`, to the nested object or item.
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
    """The base of values that refuse unknown keys."""


class _Op(_Strict, frozen=True, tag_field="op", tag=str.lower):
    """The base of operations; the key `op` tells which one it is."""


class Rename(_Op, frozen=True):
    """The operation that moves a value from one path to another. A value that is already at `to` is replaced."""

    from_: str = field(name="from")
    to: str


class Copy(_Op, frozen=True):
    """The operation that copies a value to another path. A value that is already at `to` is replaced."""

    from_: str = field(name="from")
    to: str


class Add(_Op, frozen=True):
    """The operation that sets a value at a path. A value that is already there is replaced, as in Prisma Streams, although
    its reference says "if missing".
    """

    path: str
    schema: dict[str, Any] | bool
    default: Any = UNSET


class Remove(_Op, frozen=True):
    """The operation that deletes a value, which must exist. `schema` and `default` document what it was."""

    path: str
    schema: dict[str, Any] | bool
    default: Any = UNSET


class Hoist(_Op, frozen=True):
    """The operation that moves a member out of its object to another path; copies it if `removeFromHost` is false."""

    host: str
    name: Name
    to: str
    remove_from_host: bool = field(name="removeFromHost", default=True)


class Plunge(_Op, frozen=True):
    """The operation that moves a value into an object; copies it if `removeFromSource` is false. If the object is missing,
    `createHost` creates it.
    """

    from_: str = field(name="from")
    host: str
    name: Name
    create_host: bool = field(name="createHost", default=True)
    remove_from_source: bool = field(name="removeFromSource", default=True)


class Wrap(_Op, frozen=True):
    """The operation that replaces a value by an array with that value as its only item."""

    path: str
    mode: Literal["singleton"]
    reverse_mode: Literal["first"] = field(name="reverseMode", default="first")


class Head(_Op, frozen=True):
    """The operation that replaces an array by its first item."""

    path: str
    reverse_mode: Literal["singleton"] = field(name="reverseMode", default="singleton")


class Transform(_Strict, frozen=True):
    """A conversion of scalars: either a table from a scalar's text to a scalar, with `default` for values that are not
    listed, or a builtin by name.
    """

    map: dict[str, Scalar] | UnsetType = UNSET
    default: Scalar | UnsetType = UNSET
    builtin: BuiltinName | UnsetType = UNSET

    def __post_init__(self) -> None:
        is_table = self.map is not UNSET
        is_builtin = self.builtin is not UNSET
        if is_table == is_builtin or (is_builtin and self.default is not UNSET):
            raise ValueError("expected a `map` with an optional `default`, or a `builtin`")


class Convert(_Op, frozen=True):
    """The operation that replaces a value of one type by one of another type. `backward` is stored, but never run."""

    path: str
    from_type: JsonType = field(name="fromType")
    to_type: JsonType = field(name="toType")
    forward: Transform
    backward: Transform


class In(_Op, frozen=True):
    """The operation that runs other operations on a nested object."""

    path: str
    ops: Annotated[tuple[Op, ...], Meta(min_length=1)]


class Map(_Op, frozen=True):
    """The operation that runs other operations on each item of an array."""

    path: str
    ops: Annotated[tuple[Op, ...], Meta(min_length=1)]


Op = Rename | Copy | Add | Remove | Hoist | Plunge | Wrap | Head | Convert | In | Map


class Envelope(_Strict, frozen=True):
    """A lens document: the name of its stream, the versions it leads from and to, and its operations."""

    api_version: Literal["durable.lens/v1"] = field(name="apiVersion")
    schema: Name
    from_: Version = field(name="from")
    to: Version
    ops: Annotated[tuple[Op, ...], Meta(min_length=1)]
    description: str | UnsetType = UNSET
