"""After a disaster: the rows of routers, which only repeat what the states of topics say.

The feed in a destination's state is the router. So a row without a feed goes, and a feed without its rows gets them again;
a feed whose source is gone goes, too. No writer may run meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from headrace.errors import StoreError
from headrace.log.seam import Decision, Draft, Ids, Look, Request, Rows
from headrace.log.stores import Stores
from headrace.routers.values import ROUTER, ROUTERS, Trail, row_of
from headrace.tables.catalog import MarkEnded, PutRow, Row
from headrace.tables.follows import Follow
from headrace.tables.items import Guard
from headrace.topics.values import TOPICS, Feed, topic_of
from headrace.topics.verbs import Topics
from headrace.wal.state import LogState

_PAGE = 500


class _Topic(NamedTuple):
    """A living topic: its log, and its state."""

    log_id: str
    state: LogState


def restore(stores: Stores, repair: bool) -> list[str]:
    """Returns what is wrong with the rows of routers, and sets it right with `repair`. Reads the newest entry of every
    topic. Raises StoreError.
    """
    return list(_Restoring(stores, repair).run())


class _Restoring:
    def __init__(self, stores: Stores, repair: bool) -> None:
        self._stores = stores
        self._verbs = Topics(stores)
        self._repair = repair
        self._topics: dict[str, _Topic] = {}
        for row in _rows(stores, TOPICS):
            newest = stores.wal.newest(row.log_id)
            if newest is not None and not newest.state.ended:
                self._topics[row.name] = _Topic(row.log_id, newest.state)
        self._listed = {row.name: row for row in _rows(stores, ROUTERS)}

    def run(self) -> Iterator[str]:
        """Yields what is wrong, before it is set right."""
        feeds: dict[str, Feed] = {}
        for dest, topic in self._topics.items():
            for feed in topic_of(topic.state).fed_by:
                source = self._topics.get(feed.source)
                if source is None or source.log_id != feed.source_id or feed.router in feeds:
                    yield f"feed without a source: router={feed.router} topic={dest}"
                    self._drop(dest, feed)
                    continue
                feeds[feed.router] = feed
                yield from self._check(feed, dest)
        for row in self._listed.values():
            if row.name not in feeds and not row.ended:
                yield f"row without a feed: router={row.name}"
                self._commit(MarkEnded(row))
        for name, topic in self._topics.items():
            for follow in self._followers(topic):
                own = feeds.get(follow.id)
                if own is None or own.source_id != topic.log_id:
                    yield f"follower without a feed: router={follow.id} topic={name}"
                    if self._repair:
                        self._verbs.unfollow(name, follow)

    def _check(self, feed: Feed, dest: str) -> Iterator[str]:
        listed = self._listed.get(feed.router)
        row = row_of(feed, dest, self._stores.clock.now_ms())
        if listed is None or listed.ended or (listed.log_id, listed.label) != (row.log_id, row.label):
            yield f"feed without a row: router={feed.router} topic={dest}"
            self._commit(PutRow(row, listed.log_id if listed is not None else None))
        if self._stores.follows.get(feed.source_id, ROUTER, feed.router) is None:
            yield f"feed without a follower: router={feed.router} topic={dest}"
            if self._repair:
                self._verbs.follow(feed.source, Follow(feed.source_id, ROUTER, feed.router, Trail(dest).encode()))

    def _followers(self, topic: _Topic) -> list[Follow]:
        found: list[Follow] = []
        while topic.state.followers:
            page = self._stores.follows.of(topic.log_id, ROUTER, found[-1].key if found else "", _PAGE)
            found += page
            if len(page) < _PAGE:
                break
        return [follow for follow in found if follow.stays]

    def _drop(self, dest: str, feed: Feed) -> None:
        def decide(looks: Sequence[Look | None], _: Sequence[Request], __: Rows, ___: int, ____: Ids) -> Decision:
            (look,) = looks
            assert look is not None, "it was found"
            topic = topic_of(look.state)
            rest = tuple(one for one in topic.fed_by if one.id != feed.id)
            state = replace(look.state, extension=replace(topic, fed_by=rest))
            return Decision((None,), (Draft(look.log_id, "unroute", state),))

        if self._repair:
            self._verbs.control(dest, lambda controls: controls.find_living(dest), decide)

    def _commit(self, guard: Guard) -> None:
        if self._repair and self._stores.sessions.commit([guard]) is not None:
            raise StoreError("routers were changed meanwhile; run the recovery again, alone")


def _rows(stores: Stores, surface: str) -> Iterator[Row]:
    """Yields the rows of a surface that are not damaged: others are reported for their logs."""
    after = ""
    while True:
        page = stores.catalog.every(surface, after=after, limit=_PAGE)
        yield from (row for row in page if isinstance(row, Row))
        if len(page) < _PAGE:
            return
        after = page[-1].name
