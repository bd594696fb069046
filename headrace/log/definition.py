"""The definitions of logs, each in force since a control entry named it.

A definition is an immutable object, written before the entry that names it. So an append under a definition costs no
read once this process has seen it, and no append slips between a change and its acknowledgement: the change took a slot.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.bounded import Bounded
from headrace.definition import EMPTY, Definition, decode, encode
from headrace.errors import Damaged
from headrace.log.stores import Stores
from headrace.objects import ObjectMissing, keys
from headrace.wal.state import DefinitionRef, LogConfig, LogState

_REMEMBERED = 256  # definitions of one process; a compiled schema takes some 10 KB


class Definitions:
    """The definitions of logs, kept by object: they never change."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._kept: Bounded[str, Definition] = Bounded(_REMEMBERED)

    def of(self, log_id: str, state: LogState) -> Definition:
        """The definition that a state names. One GET, the first time.

        Raises:
            Damaged: its object is missing, or is not a definition.
        """
        ref = state.definition
        if ref is None:
            return EMPTY
        key = keys.definition(log_id, ref.number, ref.nonce)
        return self._kept.load(key, lambda: self._fetch(key))

    def put(self, log_id: str, number: int, definition: Definition) -> DefinitionRef:
        """Writes a definition; nothing is in force before an entry names it."""
        nonce = self._stores.request_ids()
        key = keys.definition(log_id, number, nonce)
        self._stores.objects.put(key, encode(definition))
        self._kept.put(key, definition)
        return DefinitionRef(number, nonce, definition.schema_version, definition.profile.kind)

    def _fetch(self, key: str) -> Definition:
        try:
            data = self._stores.objects.get(key)
        except ObjectMissing as exc:
            raise Damaged(f"definition is missing: object={key}") from exc
        return decode(data, key)


Change = Callable[[Definition, LogConfig, LogState], Definition]
