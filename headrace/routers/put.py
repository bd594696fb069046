"""Creating and changing a router.

One commit has the feed in the destination's state, the number of followers in the source's, the row that the relay reads,
the row for listings, and the rise of the graph's version. A search for a cycle reads that version first, so that of two
routers that would close a cycle together the later one sees the other. Topics that do not exist yet are created in it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from headrace.errors import LimitReached
from headrace.log.commit import Found
from headrace.log.control import Controls
from headrace.log.following import followed
from headrace.log.seam import Decision, Draft, Ids, Look, Request, Rows
from headrace.log.stores import Stores
from headrace.routers.errors import FanIn, Repointed, RouterCycle
from headrace.routers.values import (
    GRAPH,
    ROUTER,
    ROUTERS,
    RouterRequest,
    Trail,
    decode_trail,
    ends_of,
    row_of,
)
from headrace.tables.catalog import PutRow, Row
from headrace.tables.counters import Count, one_more, put_counted
from headrace.tables.follows import Follow, PutFollow
from headrace.tables.items import Guard
from headrace.tables.parts import Part, PutPart
from headrace.topics import configure
from headrace.topics.errors import TopicNotFound
from headrace.topics.feeds import MAX_FEEDS, feed_in, with_feed
from headrace.topics.values import Feed, TopicConfig, topic_of
from headrace.wal.state import LogState, incarnation_of


class PutAnswer(NamedTuple):
    """The answer to a PUT: whether it created the router, and its feed."""

    created: bool
    feed: Feed


class Putting:
    """The decision of one PUT, with what it is decided on beside the states of both topics.

    Args:
        most: how many routers there may be; 0 for any number.
        most_topics: how many topics; likewise.
    """

    def __init__(self, stores: Stores, request: RouterRequest, most: int, most_topics: int) -> None:
        self._stores = stores
        self._request = request
        self._most = most
        self._most_topics = most_topics
        self._row: Row | None = None
        self._follow: Follow | None = None
        self._graph: Part | None = None
        self._cycle: list[str] = []

    def find(self, controls: Controls) -> Found:
        """Reads the topics and the rest."""
        request, stores = self._request, self._stores
        self._graph = stores.sessions.part(GRAPH, ROUTERS)  # before what it guards
        self._row = stores.catalog.get(ROUTERS, request.name)
        source, dest = controls.find_any(request.source), controls.find_any(request.dest)
        found = Found((*source.pictures, *dest.pictures), min(source.read, dest.read))
        (above,) = source.pictures
        self._follow, self._cycle = None, []
        if above is not None and not above.state.ended:
            self._follow = stores.follows.get(above.row.log_id, ROUTER, request.name)
            if not request.routing.allow_cycle:
                self._cycle = find_cycle(controls, request.source, request.dest, above.state)
        return found

    def decide(
        self, logs: Sequence[Look | None], _: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
    ) -> Decision:
        """Decides: `logs` are the source and the destination. The answer is a `PutAnswer`."""
        request, row = self._request, self._row
        dest = logs[1] if logs[1] is not None and not logs[1].state.ended else None
        if row is not None and not row.ended:
            ends = ends_of(row)
            if (ends.source, ends.dest) != (request.source, request.dest):
                raise Repointed(request.name, ends.source, ends.dest)
            feed = feed_in(topic_of(dest.state).fed_by, request.name) if dest is not None else None
            if dest is not None and feed is not None and feed.id == row.log_id:
                return self._change(dest, feed, row, now_ms)
        if dest is None and not request.create_dest:
            raise TopicNotFound(request.dest)
        self._check(topic_of(dest.state).fed_by if dest is not None else ())
        return self._create(logs, rows, now_ms, ids)

    def _check(self, feeds: Sequence[Feed]) -> None:
        request = self._request
        other = next((one.source for one in feeds if one.source != request.source), None)
        if other is not None:
            raise FanIn(request.dest, other)
        if self._cycle:
            raise RouterCycle(request.name, self._cycle)
        if len(feeds) >= MAX_FEEDS:
            raise LimitReached("max_routers_per_dest", MAX_FEEDS)

    def _change(self, dest: Look, feed: Feed, row: Row, now_ms: int) -> Decision:
        request = self._request
        if feed.routing == request.routing:
            return Decision((PutAnswer(False, feed),))
        if self._cycle and feed.routing.allow_cycle:
            raise RouterCycle(request.name, self._cycle)
        # What the old filter has passed over stays so: the cursor moves behind it, and the row forgets it.
        trail = decode_trail(self._follow.data) if self._follow is not None else Trail(request.dest)
        incarnation, offset = trail.position(feed)
        changed = replace(feed, incarnation=incarnation, offset=offset, routing=request.routing)
        guards: list[Guard] = [self._put_follow(feed.source_id), self._put_graph()]
        listed = row_of(changed, request.dest, now_ms)
        if listed.label != row.label:
            guards.append(PutRow(replace(row, label=listed.label), row.log_id))
        return Decision(
            (PutAnswer(False, changed),), (_fed(Draft(dest.log_id, "route", dest.state), changed),), tuple(guards)
        )

    def _create(self, logs: Sequence[Look | None], rows: Rows, now_ms: int, ids: Ids) -> Decision:
        request = self._request
        guards: list[Guard] = []

        def counts(what: str) -> Sequence[int]:
            held = list(rows.counts(what))
            for guard in guards:
                if isinstance(guard, Count) and guard.what == what:
                    held[guard.shard] += guard.change
            return held

        def draft(name: str, look: Look | None) -> tuple[Draft, int]:
            """Returns the entry of a topic, which is created if there is none; and its incarnation."""
            if look is not None and not look.state.ended:
                return Draft(look.log_id, "route", look.state), incarnation_of(look.config, look.state)
            (created, *_), new = configure.create(
                look, name, TopicConfig(), None, self._most_topics, counts, now_ms, ids
            )
            guards.extend(new)
            assert created.config is not None, "it is the first entry"
            return created, created.config.incarnation

        (above, incarnation), (below, _) = draft(request.source, logs[0]), draft(request.dest, logs[1])
        put = self._put_follow(above.log_id)  # in place of one that a disaster left, perhaps
        above = above._replace(state=followed(above.state, put.follow, put.replaces, now_ms))
        offset = above.state.next_offset
        feed = Feed(request.name, ids.log(), request.source, above.log_id, incarnation, offset, 0, request.routing)
        below = _fed(below, feed)
        row = row_of(feed, request.dest, now_ms)
        guards += put_counted(
            row, self._row, lambda: one_more(ROUTERS, request.name, self._most, rows.counts, ids.refused)
        )
        guards += (put, self._put_graph())
        return Decision((PutAnswer(True, feed),), (above, below), _merged(guards))

    def _put_follow(self, source_id: str) -> PutFollow:
        data, name = Trail(self._request.dest).encode(), self._request.name
        if self._follow is None:
            return PutFollow(Follow(source_id, ROUTER, name, data), None)
        return PutFollow(replace(self._follow, data=data), self._follow)

    def _put_graph(self) -> PutPart:
        return PutPart(self._graph or Part(GRAPH, ROUTERS), self._graph)


def find_cycle(controls: Controls, source: str, dest: str, state: LogState) -> list[str]:
    """Returns the topics of the cycle that a router would close, from the source to the source; empty if it closes none.

    Args:
        state: that of the source. A topic is fed by one other, so what leads to the source is a chain.
    """
    chain = [source]
    while (feeds := topic_of(state).fed_by) and feeds[0].source not in chain:
        chain.append(feeds[0].source)
        if chain[-1] == dest:
            return [source, *reversed(chain)]
        (above,) = controls.find_any(chain[-1]).pictures
        if above is None:
            break
        state = above.state
    return []


def _fed(draft: Draft, feed: Feed) -> Draft:
    topic = topic_of(draft.state)
    topic = replace(topic, fed_by=with_feed(topic.fed_by, feed))
    return draft._replace(state=replace(draft.state, extension=topic))


def _merged(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """Returns the guards with one for each shard of a counter: a commit may write a row once."""
    others: list[Guard] = []
    shards: dict[tuple[str, int], Count] = {}
    for guard in guards:
        if isinstance(guard, Count):
            same = shards.get((guard.what, guard.shard))
            change = guard.change + (same.change if same is not None else 0)
            shards[guard.what, guard.shard] = Count(guard.what, change, guard.most, guard.shard)
        else:
            others.append(guard)
    return (*others, *shards.values())
