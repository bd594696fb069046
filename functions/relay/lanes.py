"""The followers of feature tables: those of kind `fold` follow lanes, those of kind `register` registries."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from functions.fold_queue import Fold
from functions.metrics import RelayMetric
from functions.queue import Message
from functions.relay.context import Context
from functions.relay.followers import Hint
from headrace import decoding
from headrace.clock import Bounded
from headrace.tables.follows import Follow

if TYPE_CHECKING:
    from headrace.features.backfill import Backfills
    from headrace.features.register import Registrations

DONE = "done"  # the kind of the entry that ends a registration
BUILD_MS = 5_000  # between looks at back-fills that are under way
_SLACK_MS = 1_000
_REMEMBERED = 1_000
# After a registration: when the rows that it has made useless may go, and when they may go again, each a little later.
_LOOKS_MS = (330_000, 86_400_000 + 900_000)


class LaneFollower:
    """Has the folder look at a lane."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def visit(self, follow: Follow, hint: Hint) -> float | None:  # noqa: ARG002 - the folder reads what there is
        """Sends the folder a message."""
        name, role = decoding.from_json(follow.data, tuple[str, str])
        self._context.folds.send([Fold(follow.log_id, name, role)], self._context.now_ms())
        return None


class RegistryFollower:
    """Ends registrations whose process did not, goes on with back-fills, and has rows removed that no registration names
    any longer.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        # When this process has asked to look again at the back-fills of a registry, by the id of its log.
        self._next_ms: Bounded[str, int] = Bounded(_REMEMBERED)

    @cached_property
    def _registrations(self) -> Registrations:
        from headrace.features.register import Registrations  # with the pipeline: few relays meet a registration

        return Registrations(self._context.stores)

    def visit(self, follow: Follow, hint: Hint) -> float | None:
        """Ends a registration that is under way. After one has ended, asks for two later visits: the folder removes rows
        with a pass, and a lane may get no event that leads to one. A visit that was asked for looks for such lanes. While
        a back-fill is under way, each asks for the next one.
        """
        name, _ = decoding.from_json(follow.data, tuple[str, str])
        namespace = name.partition("/")[0]
        self._registrations.finish(namespace)
        now_ms, later_ms = self._context.now_ms(), list[int]()
        folds: list[Fold] = []
        if not hint.kind:
            folds += self._overdue(name, now_ms)
        elif hint.kind == DONE:
            later_ms += _LOOKS_MS
        self._context.folds.send(folds, now_ms)
        left = self._backfills.advance(namespace) if not hint.kind or hint.kind == DONE else []
        for each in left:
            self._context.folds.send(
                [Fold(one.log_id, one.config.name, one.config.role) for one in each.heads], now_ms
            )
        if left:
            self._context.meter.add(RelayMetric.BackfillAgeMs, max(each.age_ms for each in left))
        if left and (self._next_ms.get(follow.log_id) or 0) < now_ms + _SLACK_MS:  # else one is asked for already
            later_ms.append(BUILD_MS)
        visit = Message("visit", follow.log_id, followers=(follow.key,))
        self._context.queue.send([replace(visit, not_before_ms=now_ms + ms) for ms in later_ms], now_ms)
        if BUILD_MS in later_ms:
            self._next_ms.put(follow.log_id, now_ms + BUILD_MS)
        return None

    @cached_property
    def _backfills(self) -> Backfills:
        from headrace.features.backfill import Backfills

        return Backfills(self._registrations)

    def _overdue(self, name: str, now_ms: int) -> list[Fold]:
        """Returns messages for the lanes of a namespace that have rows whose time to go has come."""
        from headrace.features.pipeline.nodes import EventNode
        from headrace.features.values import FEATURES, event_name

        namespace = name.partition("/")[0]
        events = [
            node for node in self._registrations.registry(namespace).registry.nodes if isinstance(node, EventNode)
        ]
        found = []
        for event in events:
            row = self._context.stores.catalog.get(FEATURES, event_name(namespace, event.name))
            for log in row.logs if row is not None else ():
                mark = self._registrations.rows.mark(log.log_id)
                if mark is not None and any(one.next_ms <= now_ms for one in mark.dropped):
                    found.append(Fold(log.log_id, log.config.name, log.config.role))
        return found
