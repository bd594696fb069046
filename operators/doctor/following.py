"""Gathers facts about what follows appends: visits of the relay, routers, subscriptions, and queues of jobs. It only
reads, a bounded number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from headrace.errors import HeadraceError
from headrace.log.stores import Stores
from headrace.queues.verbs import Queues
from headrace.routers.errors import RouterNotFound
from headrace.routers.verbs import Routers
from headrace.subscriptions.desk import timer_log
from headrace.subscriptions.rows import Rows
from headrace.subscriptions.values import KIND
from headrace.tables.follows import Follow
from headrace.topics.errors import TopicNotFound
from headrace.topics.values import TopicView
from operators.doctor.facts import FollowingFacts, JobQueueFacts, RouterFacts, SubscriptionFacts, VisitFacts
from operators.stores import threads

MAX_VISITS = 1_000
MAX_ROUTERS = 200
MAX_TOPICS = 200
_SOON_MS = 15 * 60_000  # an open wake is due within this time: a webhook within a minute, an announcement within ten

T = TypeVar("T")
U = TypeVar("U")


def attempt(ask: Callable[[], T]) -> tuple[T | None, str]:
    """Calls a function and returns its result and an empty text; if the call fails, None and the reason."""
    try:
        return ask(), ""
    except (ClientError, BotoCoreError, HeadraceError) as exc:
        return None, str(exc) or type(exc).__name__
    except Exception as exc:  # noqa: BLE001 - pynamodb passes a missing table on as an error of its own
        return None, f"{type(exc).__name__}: {exc}"


class Following:
    """A gatherer of these facts about one deployment."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._topics = Queues(stores)
        self._routers = Routers(stores, self._topics)

    def look(self) -> FollowingFacts:
        """Gathers and returns all facts; what could not be asked is an error text among them."""
        due, visits_error = attempt(self._due)
        visits, subscriptions = due or ((), ())
        routers, routers_error = attempt(self._look_at_routers)
        queues, queues_error = attempt(self._look_at_queues)
        return FollowingFacts(
            visits=visits,
            subscriptions=subscriptions,
            visits_error=visits_error,
            routers=routers or (),
            routers_error=routers_error,
            queues=queues or (),
            queues_error=queues_error,
        )

    def _due(self) -> tuple[tuple[VisitFacts, ...], tuple[SubscriptionFacts, ...]]:
        """Returns the visits that are due already, and the subscriptions that have an open wake, or another reason for a
        visit soon.
        """
        now_ms = self._stores.clock.now_ms()
        rows = list(islice(self._stores.follows.due(now_ms + _SOON_MS), MAX_VISITS))
        late = tuple(VisitFacts(row.kind, row.id, now_ms - row.due_ms) for row in rows if row.due_ms <= now_ms)
        timers = [row for row in rows if row.kind == KIND and row.log_id == timer_log(row.id)]
        return late, _known(self._subscription, timers)

    def _subscription(self, timer: Follow) -> SubscriptionFacts | None:
        row, error = attempt(lambda: Rows(self._stores.sessions).get(timer.id))
        if error:
            return SubscriptionFacts(timer.id, error=error)
        if row is None or row.sub.is_deleted or row.sub.wake is None:
            return None
        wake, now_ms = row.sub.wake, self._stores.clock.now_ms()
        refused = ": ".join(wake.refused) if wake.refused else ""
        return SubscriptionFacts(
            timer.id, row.sub.config.type, wake.stage, wake.failures, now_ms - wake.opened_ms, refused
        )

    def _look_at_routers(self) -> tuple[RouterFacts, ...]:
        views, _ = self._routers.routers(limit=MAX_ROUTERS)
        return _known(self._router, [view.name for view in views])

    def _router(self, name: str) -> RouterFacts | None:
        try:
            view = self._routers.view(name)
            waited_ms = self._waited_ms(view.source, view.lag) if view.lag else 0
        except (RouterNotFound, TopicNotFound):
            return None  # it was deleted meanwhile
        except Exception as exc:  # noqa: BLE001 - one that can't be read must not hide the others
            return RouterFacts(name, error=str(exc) or type(exc).__name__)
        blocked_ms = self._stores.clock.now_ms() - view.blocked_ms if view.blocked_ms is not None else None
        return RouterFacts(name, view.source, view.dest, view.lag or 0, waited_ms, blocked_ms)

    def _waited_ms(self, source: str, lag: int) -> int:
        """Returns for how long the first of the last `lag` records of a topic has been there."""
        position = self._topics.head(source).state.next_offset - lag
        records = self._topics.records(source, position, max_records=1, max_bytes=1).records
        return self._stores.clock.now_ms() - records[0].time_ms if records else 0

    def _look_at_queues(self) -> tuple[JobQueueFacts, ...]:
        views, _ = self._topics.topics(limit=MAX_TOPICS)
        return _known(self._queue, [view for view in views if view.queue is not None])

    def _queue(self, view: TopicView) -> JobQueueFacts | None:
        assert view.queue is not None, "it is a queue"
        dead = view.config.dead_letter

        def ask() -> tuple[int | None, int]:
            self._topics.head(view.name)
            oldest_ms = self._topics.oldest_wait_ms(view.name)
            try:
                return oldest_ms, self._topics.view(dead, touch=False).live if dead is not None else 0
            except TopicNotFound:
                return oldest_ms, 0  # it is created by its first record

        found, error = attempt(ask)
        oldest_ms, dead_letters = found or (None, 0)
        return JobQueueFacts(view.name, view.queue.ready, oldest_ms, dead or "", dead_letters, error)


def _known(look: Callable[[U], T | None], these: list[U]) -> tuple[T, ...]:
    """Looks at several things at once; leaves out those that are gone."""
    return tuple(found for found in threads().map(look, these) if found is not None)
