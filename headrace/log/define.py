"""Changing the definition of a log: a control entry that names a new one."""

from __future__ import annotations

from msgspec.structs import replace

from headrace.definition import Definition
from headrace.log import decide
from headrace.log.commit import Budget, Committer
from headrace.log.definition import Change, Definitions
from headrace.log.expire import Expirer, control_entry
from headrace.log.picture import Pictures
from headrace.log.stores import Stores
from headrace.tables.catalog import PutRow
from headrace.wal import Committed
from headrace.wal.state import DefinitionRef


class Definer:
    """Reads and changes definitions."""

    def __init__(
        self, stores: Stores, pictures: Pictures, committer: Committer, expirer: Expirer, definitions: Definitions
    ) -> None:
        self._stores = stores
        self._pictures = pictures
        self._committer = committer
        self._expirer = expirer
        self._definitions = definitions

    def define(self, name: str, change: Change) -> Definition:
        """Puts in force what `change` makes of the definition in force, given the log's configuration and the state
        that it will follow.

        A change that changes nothing writes nothing. `change` may be called more than once.

        Raises:
            NotFound, Gone: there is no such stream. Overloaded, OutcomeUnknown: as an append.
            HeadraceError: what `change` raises; then nothing was written.
        """
        budget = Budget(self._stores.clock, self._stores.settings.append_timeout_ms)
        written: tuple[str, Definition] | None = None
        ref: DefinitionRef | None = None
        while True:
            picture = self._expirer.ensure_alive(name, self._pictures.look(name))
            row, state = picture.row, picture.state
            error = decide.ended(row.config, state)
            if error is not None:
                self._pictures.drop(name)
                raise error
            before = self._definitions.of(row.log_id, state)
            after = change(before, row.config, state)
            if after == before:
                return before
            number = state.definition.number + 1 if state.definition is not None else 1
            if ref is None or written != (row.log_id, after) or ref.number != number:
                ref = self._definitions.put(row.log_id, number, after)
                written = (row.log_id, after)
            entry = control_entry(
                picture.newest,
                "define",
                replace(state, definition=ref),
                self._stores.request_ids(),
                self._stores.clock.now_ms(),
            )
            # The row in hand may be older than the state: only when both agree does it need no change.
            is_listed = row.profile == state.profile == ref.profile
            guards = [] if is_listed else [PutRow(replace(row, profile=ref.profile), row.log_id)]
            outcome = self._committer.put(entry, guards, picture.read, budget)
            if isinstance(outcome, Committed):
                named = guards[0].row if guards else row
                self._pictures.remember(name, named, entry, picture.read)
                return after
            budget.again("others keep changing this stream")
