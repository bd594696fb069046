"""What clients ask of routers, as one object: it reads what is to be decided on, and leaves what to do to the rules."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice

from headrace.clock import Threads
from headrace.errors import HeadraceError, OutcomeUnknown, StoreError
from headrace.log.stores import Stores
from headrace.routers.errors import RouterNotFound
from headrace.routers.put import PutAnswer, Putting
from headrace.routers.remove import MOST, Forgetting, Removing
from headrace.routers.values import (
    ROUTER,
    ROUTERS,
    Ends,
    RouterRequest,
    RouterView,
    decode_trail,
    ends_of,
)
from headrace.tables.catalog import Row
from headrace.tables.follows import Follow
from headrace.topics.errors import Routed, TopicNotFound
from headrace.topics.feeds import feed_in
from headrace.topics.values import Feed, topic_of
from headrace.topics.verbs import Topics

_PAGE = 100  # rows of one query


class Routers:
    """The operations on routers, each by the router's name. Methods block, may be called by any thread, and raise the
    errors of `Topics` and of `headrace.routers.errors`.
    """

    def __init__(self, stores: Stores, topics: Topics) -> None:
        """Creates the verbs; `topics` are those of the topics that routers join."""
        self._stores = stores
        self._topics = topics
        self._threads = Threads(16, "routers")

    def put(self, request: RouterRequest, *, limit: int = 0, most_topics: int = 0) -> tuple[bool, Feed]:
        """Creates a router, or changes it. Its source is created if it does not exist, and its destination unless the
        request forbids it. Returns whether it was created, and its feed.

        Args:
            limit, most_topics: how many routers, and topics, there may be; 0 for any number.

        Raises:
            InvalidRequest: a name is none, or the source is the destination.
            TopicNotFound: the destination does not exist and is not to be created.
            RouterCycle: it would close a cycle that is not allowed.
            FanIn: another topic feeds the destination.
            Repointed: it exists with another source or destination.
            LimitReached: there are as many routers, or topics, as may be, or as many into the destination.
        """
        request.check()
        putting = Putting(self._stores, request, limit, most_topics)
        answer: PutAnswer = self._topics.control(request.source, putting.find, putting.decide, None, request.dest)
        return answer

    def view(self, name: str) -> RouterView:
        """Returns a router with its lag. Raises RouterNotFound."""
        with self._topics.in_time():
            row = self._row(name)
            ends = ends_of(row)
            feed = self._feed(row, ends)
            if feed is None:
                raise RouterNotFound(name)
            follow = self._stores.follows.get(feed.source_id, ROUTER, name)
            end = self._topics.head(ends.source).state.next_offset
            offset, blocked_ms = feed.offset, 0
            if follow is not None:
                trail = decode_trail(follow.data)
                offset, blocked_ms = trail.position(feed)[1], trail.blocked_ms
            return _view(feed, ends, lag=max(0, end - offset), blocked_ms=blocked_ms or None)

    def ends(self, name: str) -> Ends | None:
        """Returns the topics that a router joins; None if there is no such router."""
        with self._topics.in_time():
            row = self._stores.catalog.get(ROUTERS, name)
            return ends_of(row) if row is not None and not row.ended else None

    def routers(
        self, prefixes: Sequence[str] = ("",), *, source: str = "", dest: str = "", after: str = "", limit: int
    ) -> tuple[list[RouterView], str | None]:
        """Returns at most `limit` routers whose names begin with one of `prefixes` and come after `after`, in the order of
        their names; and the name after which more follow, None if none do.

        Args:
            prefixes: none is the beginning of another.
            source, dest: only those of this source, or destination; empty for all.
        """
        with self._topics.in_time():
            if source or dest:
                found = self._of_topic(source, dest, after, limit, tuple(prefixes))
            else:
                rows = [
                    self._stores.catalog.living(ROUTERS, after=after, prefix=prefix, limit=limit + 1)
                    for prefix in sorted(prefixes)
                ]
                found = list(islice(heapq.merge(*rows, key=lambda row: row.name.encode()), limit + 1))
            more = found[limit - 1].name if len(found) > limit else None

            def show(row: Row) -> RouterView | None:
                ends = ends_of(row)
                feed = self._feed(row, ends)
                return _view(feed, ends) if feed is not None else None

            return [view for view in self._threads.map(show, found[:limit]) if view is not None], more

    def remove(self, name: str) -> bool:
        """Deletes a router. What it has copied stays. Returns False if there is none."""
        return bool(self._remove([name]))

    def remove_topic(self, name: str, *, if_empty: bool = False) -> tuple[bool, list[str]]:
        """Deletes a topic, and before that the routers from it and into it. Returns whether there was one, and the names of
        these routers.

        Raises:
            NotEmpty: it must be empty and is not.
            OutcomeUnknown: as in an append; also if routers were removed before another error came, or the time was over.
                Then it may be repeated.
        """
        removed: list[str] = []
        with self._topics.in_time():
            while True:
                try:
                    try:
                        return self._topics.remove(name, if_empty=if_empty), sorted(removed)
                    except Routed:
                        removed += self._detach(name)
                except (HeadraceError, StoreError) as exc:
                    if removed:  # most errors say that nothing was written
                        raise OutcomeUnknown() from exc
                    raise

    def _detach(self, name: str) -> list[str]:
        """Removes some of the routers of a topic, and returns their names."""
        try:
            head = self._topics.head(name)
        except TopicNotFound:
            return []
        follows = list(islice(self._from(head.log_id), MOST))
        names = [feed.router for feed in topic_of(head.state).fed_by] + [follow.id for follow in follows]
        names = names[:MOST]
        removed = self._remove(names)
        if not removed:
            looked = [follow for follow in follows if follow.id in names]
            decide = Forgetting(head, names, looked, are_all=len(looked) == len(follows) < MOST).decide
            self._topics.control(name, lambda controls: controls.find_any(name), decide)
        return removed

    def _remove(self, names: Sequence[str]) -> list[str]:
        """Removes some routers at once, and returns the names of those that there were."""
        removing = Removing(self._stores, names)
        with self._topics.in_time():
            rows = [self._stores.catalog.get(ROUTERS, name) for name in names]
        topics = {name for row in rows if row is not None for name in _names(ends_of(row))}
        if not topics:
            return []
        removed: list[str] = self._topics.control(min(topics), removing.find, removing.decide, None, *topics)
        if removing.stray:
            with self._topics.in_time():
                self._stores.sessions.commit(removing.stray)
        return removed

    def _from(self, log_id: str, after: str = "") -> Iterator[Follow]:
        """Yields the rows of the routers from a topic, in the order of their names."""
        after = f"{ROUTER}#{after}" if after else ""
        while True:
            page = self._stores.follows.of(log_id, ROUTER, after, _PAGE)
            yield from (follow for follow in page if follow.stays)
            if len(page) < _PAGE:
                return
            after = page[-1].key

    def _of_topic(self, source: str, dest: str, after: str, limit: int, prefixes: tuple[str, ...]) -> list[Row]:
        """Returns the rows of routers from a topic, or into one, or both."""
        try:
            head = self._topics.head(dest or source)
        except TopicNotFound:
            return []
        if dest:
            feeds = topic_of(head.state).fed_by
            names: Iterator[str] = (feed.router for feed in feeds if source in ("", feed.source))
        else:
            names = (follow.id for follow in self._from(head.log_id, after))
        wanted = (name for name in names if name > after and name.startswith(prefixes))
        rows = (self._stores.catalog.get(ROUTERS, name) for name in islice(wanted, limit + 1))
        return [row for row in rows if row is not None and not row.ended]

    def _row(self, name: str) -> Row:
        row: Row | None = self._stores.catalog.get(ROUTERS, name)
        if row is None or row.ended:
            raise RouterNotFound(name)
        return row

    def _feed(self, row: Row, ends: Ends) -> Feed | None:
        """Returns the feed of a router's row; None if it has been removed since the row was read."""
        try:
            feed = feed_in(topic_of(self._topics.head(ends.dest).state).fed_by, row.name)
        except TopicNotFound:
            return None
        return feed if feed is not None and feed.id == row.log_id else None


def _names(ends: Ends) -> tuple[str, str]:
    return ends.source, ends.dest


def _view(feed: Feed, ends: Ends, lag: int | None = None, blocked_ms: int | None = None) -> RouterView:
    return RouterView(feed.router, feed.source, ends.dest, feed.routing, feed.total, lag, blocked_ms)
