"""The definition of a log: its schema registry and what its surface adds, as one immutable value, and its object.

The registry (schemas, lenses, search) means the same on every surface. What a surface adds is its own: a stream's profile.
Here it is a document, with the two facts about it that indexes and listings need.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from headrace.json import lens, registry, search_config, validate
from headrace.json.lens import Lens
from headrace.json.registry import Registry
from headrace.json.validate import Validator
from headrace.objects import packed
from headrace.query.language.canonical import SearchConfig

T = TypeVar("T")

GENERIC = "generic"  # the kind of a definition to which a surface adds nothing


class Document(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the object holds.

    Attributes:
        own: what the surface adds.
        families: index families that a surface asks for besides those of the search configuration.
    """

    version: Literal[1]
    registry: Registry
    own: dict[str, Any]
    families: tuple[str, ...] = ()


class Own(Protocol):
    """What a surface adds to a definition."""

    @property
    def kind(self) -> str:
        """What listings show."""

    @property
    def families(self) -> tuple[str, ...]:
        """Index families that it asks for besides those of the search configuration."""

    def document(self) -> dict[str, Any]:
        """Returns it as it is stored."""


class Stored(msgspec.Struct, frozen=True):
    """What a surface added, as it is stored."""

    content: dict[str, Any]
    families: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What listings show."""
        return str(self.content.get("kind", GENERIC))

    def document(self) -> dict[str, Any]:
        """Returns it as it is stored."""
        return self.content


class Definition:
    """A registry and what a surface adds, with what is compiled from them when first needed. Immutable."""

    def __init__(self, registry_: Registry, own: Own) -> None:
        self.registry = registry_
        self.own = own
        self._derived: dict[Any, Any] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Definition) and self.document == other.document

    __hash__ = None  # type: ignore[assignment]

    def derive(self, make: Callable[[Definition], T]) -> T:
        """Returns what `make` makes of this definition. It is called once, and its result is kept with the definition."""
        if make not in self._derived:
            self._derived[make] = make(self)
        found: T = self._derived[make]
        return found

    @property
    def document(self) -> Document:
        """As it is stored."""
        return Document(1, self.registry, self.own.document(), tuple(self.own.families))

    @property
    def schema_version(self) -> int:
        """Version of the schema in force; 0 without one."""
        return self.registry.current_version

    @cached_property
    def validator(self) -> Validator | None:
        """Of the schema in force."""
        if not self.schema_version:
            return None
        return validate.compile(self.registry.schemas[str(self.schema_version)])

    @cached_property
    def lenses(self) -> tuple[Lens, ...]:
        """Number N (from 0 on) leads from version N + 1 to N + 2."""
        found = [self.registry.lenses[str(version)] for version in range(1, self.schema_version)]
        return tuple(lens.parse(one, one["schema"], version) for version, one in enumerate(found, start=1))

    @cached_property
    def search(self) -> SearchConfig | None:
        """The search configuration, if there is one."""
        if self.registry.search is None:
            return None
        return search_config.parse(self.registry.search, self.schema_version)


EMPTY = Definition(Registry(), Stored({"kind": GENERIC}))


def encode(definition: Definition) -> bytes:
    """Returns the object of a definition."""
    return packed.encode(definition.document)


def decode(data: bytes, source: str) -> Definition:
    """Returns the definition in an object.

    Args:
        data: what `encode` made.
        source: the object's key, for the error.

    Raises:
        Damaged: it is not a definition.
    """
    document = packed.decode(data, Document, source)
    return Definition(document.registry, Stored(document.own, document.families))


def for_fork(definition: Definition, base: int) -> Definition:
    """Returns the definition of a fork that begins at offset `base`: what it writes itself is of the current version."""
    moved = registry.cut(definition.registry, base)
    return Definition(moved, definition.own)
