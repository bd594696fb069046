"""The definition of a log: its schema registry and its profile, in force since a control entry named them.

A definition is an immutable object, written before the entry that names it. So an append under a definition costs no
read once this process has seen it, and no append slips between a change and its acknowledgement: the change took a slot.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import msgspec

from headrace import profiles
from headrace.errors import Damaged, InvalidRequest
from headrace.log.stores import Stores
from headrace.objects import ObjectMissing, keys, packed
from headrace.profiles import Profile
from headrace.schema import lens, registry, search_config, validate
from headrace.schema.lens import Lens
from headrace.schema.registry import Registry
from headrace.schema.validate import Validator
from headrace.search.config import SearchConfig
from headrace.wal.state import DefinitionRef, LogState

_REMEMBERED = 256  # definitions of one process; a compiled schema takes some 10 KB


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


class Definitions:
    """The definitions of logs, kept by object: they never change."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Definition] = OrderedDict()

    def of(self, log_id: str, state: LogState) -> Definition:
        """The definition that a state names. One GET, the first time.

        Raises:
            Damaged: its object is missing, or is not a definition.
        """
        ref = state.definition
        if ref is None:
            return EMPTY
        key = keys.definition(log_id, ref.number, ref.nonce)
        with self._lock:
            found = self._known.get(key)
        if found is None:
            try:
                data = self._stores.objects.get(key)
            except ObjectMissing as exc:
                raise Damaged(f"definition is missing: object={key}") from exc
            document = packed.decode(data, Document, key)
            try:
                found = Definition(document.registry, profiles.parse(document.profile))
            except InvalidRequest as exc:
                raise Damaged(f"definition has a profile that is none: object={key} reason={exc}") from exc
        self._remember(key, found)
        return found

    def put(self, log_id: str, number: int, definition: Definition) -> DefinitionRef:
        """Writes a definition; nothing is in force before an entry names it."""
        nonce = self._stores.request_ids()
        key = keys.definition(log_id, number, nonce)
        self._stores.objects.put(key, packed.encode(definition.document))
        self._remember(key, definition)
        return DefinitionRef(number, nonce, definition.schema_version, definition.profile.kind)

    def _remember(self, key: str, definition: Definition) -> None:
        with self._lock:
            self._known[key] = definition
            self._known.move_to_end(key)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)


def for_fork(definition: Definition, base: int) -> Definition:
    """The definition of a fork that begins at offset `base`: what it writes itself is of the current version."""
    moved = registry.cut(definition.registry, base)
    return Definition(moved, definition.profile)


Change = Callable[[Definition, LogState], Definition]
