"""The definition of a stream: its schema registry and its profile, as one immutable value, and the object that holds it."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import msgspec

from headrace import profiles
from headrace.errors import Damaged, InvalidRequest
from headrace.json import lens, registry, search_config, validate
from headrace.json.lens import Lens
from headrace.json.registry import Registry
from headrace.json.validate import Validator
from headrace.objects import packed
from headrace.profiles import Profile
from headrace.query.language.config import SearchConfig


class Document(msgspec.Struct, frozen=True):
    """What the object holds."""

    version: Literal[1]
    registry: Registry
    profile: dict[str, Any]


class Definition:
    """A registry and a profile, with what is compiled from them when first needed. Immutable."""

    def __init__(self, registry_: Registry, profile: Profile) -> None:
        self.registry = registry_
        self.profile = profile

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Definition) and self.document == other.document

    __hash__ = None  # type: ignore[assignment]

    @property
    def document(self) -> Document:
        """As it is stored."""
        return Document(1, self.registry, self.profile.document())

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


EMPTY = Definition(Registry(), profiles.DEFAULT)


def encode(definition: Definition) -> bytes:
    """The object of a definition."""
    return packed.encode(definition.document)


def decode(data: bytes, source: str) -> Definition:
    """The definition in an object.

    Args:
        data: what `encode` made.
        source: the object's key, for the error.

    Raises:
        Damaged: it is not a definition, or its profile is none.
    """
    document = packed.decode(data, Document, source)
    try:
        return Definition(document.registry, profiles.parse(document.profile))
    except InvalidRequest as exc:
        raise Damaged(f"definition has a profile that is none: object={source} reason={exc}") from exc


def for_fork(definition: Definition, base: int) -> Definition:
    """The definition of a fork that begins at offset `base`: what it writes itself is of the current version."""
    moved = registry.cut(definition.registry, base)
    return Definition(moved, definition.profile)
