"""The definition of a log: its schema registry and what its surface adds, as one immutable value and as an object of
the bucket.

The registry (schemas, lenses, search) means the same on every surface. A surface may add something of its own, such as
a stream's profile. This module handles that only as a document, with the two properties that indexes and listings need.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from headrace.clock import Bounded
from headrace.errors import Damaged
from headrace.json import lens, registry, search_config, validate
from headrace.json.lens import Lens
from headrace.json.registry import Boundary, Registry
from headrace.json.validate import Validator
from headrace.objects import ObjectMissing, Objects, keys, packed
from headrace.query.language import canonical
from headrace.query.language.canonical import Binding, Field, Kind, SearchConfig
from headrace.wal.state import DefinitionRef, LogState

T = TypeVar("T")

_REMEMBERED = 256  # definitions of one process; a compiled schema takes some 10 KB
GENERIC = "generic"  # the kind of a definition to which a surface adds nothing


class Document(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a definition's object.

    Attributes:
        own: the document of the surface's addition; only a `kind` if it adds nothing.
        families: index families that the surface needs in addition to those of the search configuration.
    """

    version: Literal[1]
    registry: Registry
    own: dict[str, Any]
    families: tuple[str, ...] = ()


class Own(Protocol):
    """The surface's addition to a definition, such as a stream's profile."""

    @property
    def kind(self) -> str:
        """The name of its kind, such as `evlog`; listings show it."""

    @property
    def families(self) -> tuple[str, ...]:
        """Index families that it needs in addition to those of the search configuration."""

    def document(self) -> dict[str, Any]:
        """Returns the addition as a document, for storage."""


class Stored(msgspec.Struct, frozen=True):
    """What a surface adds to a definition (see `Own`), as the plain document that storage has. Only the surface interprets
    it.
    """

    content: dict[str, Any]
    families: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The name of its kind, which listings show; `generic` if the content has none."""
        return str(self.content.get("kind", GENERIC))

    def document(self) -> dict[str, Any]:
        """Returns the addition as a document, for storage."""
        return self.content


class Definition:
    """A registry and a surface's addition, with values that are derived from them on first use. Immutable."""

    def __init__(self, registry_: Registry, own: Own) -> None:
        self.registry = registry_
        self.own = own
        self._derived: dict[Any, Any] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Definition) and self.document == other.document

    __hash__ = None  # type: ignore[assignment]

    def derive(self, make: Callable[[Definition], T]) -> T:
        """Returns the result of calling `make` with this definition. It is called only once per definition; the result
        is cached.
        """
        if make not in self._derived:
            self._derived[make] = make(self)
        found: T = self._derived[make]
        return found

    @property
    def document(self) -> Document:
        """The content of the definition's object."""
        return Document(1, self.registry, self.own.document(), tuple(self.own.families))

    @property
    def schema_version(self) -> int:
        """The version of the current schema; 0 if there is none."""
        return self.registry.current_version

    def version_at(self, offset: int) -> int:
        """Returns the schema version of the record at an offset; 0 before the first boundary."""
        boundaries = self.registry.boundaries
        position = bisect_right(boundaries, offset, key=lambda one: one.offset)
        return boundaries[position - 1].version if position else 0

    @cached_property
    def validator(self) -> Validator | None:
        """The validator of the current schema; None if there is none."""
        if not self.schema_version:
            return None
        return validate.compile(self.registry.schemas[str(self.schema_version)])

    @cached_property
    def lenses(self) -> tuple[Lens, ...]:
        """The compiled lenses. Number N (counted from 0) promotes records from version N + 1 to N + 2."""
        found = [self.registry.lenses[str(version)] for version in range(1, self.schema_version)]
        return tuple(lens.parse(one, one["schema"], version) for version, one in enumerate(found, start=1))

    @cached_property
    def search(self) -> SearchConfig | None:
        """The search configuration; None if there is none."""
        if self.registry.search is None:
            return None
        return search_config.parse(self.registry.search, self.schema_version, columns=True)


EMPTY = Definition(Registry(), Stored({"kind": GENERIC}))


def _column_field(kind: Kind, column: str, *, prefix: bool = False) -> Field:
    return Field(
        kind=kind,
        bindings=(Binding(version=1, json_pointer=column),),
        exact=True,
        prefix=prefix,
        column=True,
        exists=True,
        sortable=True,
        aggregatable=True,
    )


COLUMN_FIELDS = {
    "tag": _column_field("keyword", canonical.KEY, prefix=True),
    "node": _column_field("keyword", canonical.NODE, prefix=True),
    "ts": _column_field("date", canonical.TIME),
}
"""The search fields of a log that asks for its columns to be searched: key, node and append time of each record."""

COLUMNS = DefinitionRef(0, "columns", 1, GENERIC)
"""The reference to the built-in definition that has `COLUMN_FIELDS` and nothing else. A surface puts it into the state of
a new log; it needs no object, and any other definition replaces it.
"""

_BUILT_IN = {"": EMPTY}


def build_in(name: str, search: SearchConfig) -> None:
    """Adds a definition that accepts any record and needs no object: that of `DefinitionRef(0, name, 1, GENERIC)`. A
    surface calls it for each of its own, when the module that declares it is imported.
    """
    registry_ = Registry(
        current_version=1, schemas={"1": True}, boundaries=(Boundary(0, 1),), search=search.document()
    )
    _BUILT_IN[name] = Definition(registry_, EMPTY.own)


build_in(COLUMNS.nonce, SearchConfig(primary_timestamp_field="ts", fields=COLUMN_FIELDS))


def key_of(log_id: str, ref: DefinitionRef | None) -> str:
    """Returns the key of the object that holds a definition. For one without an object (`built_in`) it is a text without
    a slash, empty if there is no definition.
    """
    if ref is None:
        return ""
    return keys.definition(log_id, ref.number, ref.nonce) if ref.number else ref.nonce


def built_in(key: str) -> Definition | None:
    """Returns the definition that has no object and this key, by `key_of`; None for any other key."""
    return _BUILT_IN.get(key)


def encode(definition: Definition) -> bytes:
    """Encodes a definition as the bytes of its object."""
    return packed.encode(definition.document)


def decode(data: bytes, source: str) -> Definition:
    """Decodes a definition from the bytes of its object.

    Args:
        data: the bytes that `encode` returned.
        source: the object's key, for the error.

    Raises:
        Damaged: the bytes are not a definition.
    """
    document = packed.decode(data, Document, source)
    return Definition(document.registry, Stored(document.own, document.families))


def for_fork(definition: Definition, base: int) -> Definition:
    """Returns the definition of a fork that begins at offset `base`: records that the fork itself writes are of the
    current schema version.
    """
    moved = registry.cut(definition.registry, base)
    return Definition(moved, definition.own)


class Definitions:
    """A cache of the definitions of logs, by the key of their object; definitions never change."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._kept: Bounded[str, Definition] = Bounded(_REMEMBERED)

    def of(self, log_id: str, state: LogState) -> Definition:
        """Returns the definition that a state names; the empty one if it names none. Costs one GET if it has an object
        that is not cached.

        Raises:
            Damaged: the object is missing, or is not a definition.
        """
        key = key_of(log_id, state.definition)
        return built_in(key) or self._kept.load(key, lambda: self._fetch(key))

    def remember(self, key: str, definition: Definition) -> None:
        """Caches a definition that is, or will be, stored under a key."""
        self._kept.put(key, definition)

    def _fetch(self, key: str) -> Definition:
        try:
            data = self._objects.get(key)
        except ObjectMissing as exc:
            raise Damaged(f"definition is missing: object={key}") from exc
        return decode(data, key)
