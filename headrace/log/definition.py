"""The definitions of logs, each in force since a control entry named it.

A definition is an immutable object, written before the entry that names it. So an append under a definition costs no
read once this process has seen it, and no append slips between a change and its acknowledgement: the change took a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from headrace.bounded import Bounded
from headrace.definition import EMPTY, Definition, decode, encode
from headrace.errors import Damaged
from headrace.log.seam import Decide, Decision, Draft, Ids, Look, NamedObject, Request, Rows
from headrace.log.stores import Stores
from headrace.objects import ObjectMissing, keys
from headrace.tables.catalog import PutRow
from headrace.wal.state import DefinitionRef, LogConfig, LogState

_REMEMBERED = 256  # definitions of one process; a compiled schema takes some 10 KB


class Definitions:
    """The definitions of logs, kept by object: they never change."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._kept: Bounded[str, Definition] = Bounded(_REMEMBERED)

    def of(self, log_id: str, state: LogState) -> Definition:
        """Returns the definition that a state names. One GET, the first time.

        Raises:
            Damaged: its object is missing, or is not a definition.
        """
        ref = state.definition
        if ref is None:
            return EMPTY
        key = keys.definition(log_id, ref.number, ref.nonce)
        return self._kept.load(key, lambda: self._fetch(key))

    def remember(self, key: str, definition: Definition) -> None:
        """Keeps a definition that is, or is about to be, at a key."""
        self._kept.put(key, definition)

    def _fetch(self, key: str) -> Definition:
        try:
            data = self._stores.objects.get(key)
        except ObjectMissing as exc:
            raise Damaged(f"definition is missing: object={key}") from exc
        return decode(data, key)


Change = Callable[[Definition, LogConfig, LogState], Definition]
"""Makes a definition of the one in force, given the log's configuration and the state that it will follow."""


def name_definition(log_id: str, number: int, definition: Definition, ids: Ids) -> tuple[DefinitionRef, NamedObject]:
    """Returns how a state names a definition, and the object that it names."""
    data = encode(definition)
    ref = DefinitionRef(number, ids.nonce(data), definition.schema_version, definition.own.kind)
    return ref, NamedObject(keys.definition(log_id, number, ref.nonce), data, definition)


def deciding(change: Change) -> Decide:
    """Returns the decision that puts in force what `change` makes; the answer is the definition after it.

    A change that changes nothing writes nothing. The row of the name is put with the entry when its label changes.
    """

    def decide(looks: Sequence[Look | None], _: Sequence[Request], rows: Rows, __: int, ids: Ids) -> Decision:
        (look,) = looks
        assert look is not None, "it was found"
        row, state = look.row, look.state
        before = rows.definition(row.log_id, state)
        after = change(before, row.config, state)
        if after == before:
            return Decision((before,))
        number = state.definition.number + 1 if state.definition is not None else 1
        ref, named = name_definition(row.log_id, number, after, ids)
        entry = Draft(row.log_id, "define", replace(state, definition=ref))
        # The row in hand may be older than the state: only when both agree does it need no change.
        is_listed = row.label == state.label == ref.label or bool(row.config.role)  # listings show main logs
        guards = () if is_listed else (PutRow(replace(row, label=ref.label), row.log_id),)
        return Decision((after,), (entry,), guards, (named,))

    return decide
