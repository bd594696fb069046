"""Removing routers: one by its name, or those of a topic that is to be deleted. A transaction removes at most `MOST`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from headrace.clock import moment
from headrace.log.commit import Found
from headrace.log.control import Controls
from headrace.log.requests import Head
from headrace.log.seam import Decision, Draft, Ids, Look, Request, Rows
from headrace.log.stores import Stores
from headrace.routers.values import ROUTER, ROUTERS, ends_of
from headrace.tables.catalog import MarkEnded, Row
from headrace.tables.counters import Count, usual_shard
from headrace.tables.follows import DropFollow, Follow
from headrace.tables.items import Guard
from headrace.topics.feeds import feed_in
from headrace.topics.values import topic_of

MOST = 18  # a transaction has 100 members; a router takes five of them, and two topics two more each


class Removing:
    """The decision to remove some routers, with what it is decided on beside the states of their topics.

    Attributes:
        stray: what to commit by itself if no topic of theirs has anything to forget: a disaster took it.
    """

    def __init__(self, stores: Stores, names: Sequence[str]) -> None:
        self._stores = stores
        self._names = names
        self._rows: list[Row] = []
        self._follows: dict[str, Follow] = {}
        self.stray: tuple[Guard, ...] = ()

    def find(self, controls: Controls) -> Found:
        """Reads the routers' rows, their topics, and their rows among the followers of these."""
        stores, read = self._stores, moment(self._stores.clock)
        found = (stores.catalog.get(ROUTERS, name) for name in self._names)
        self._rows = [row for row in found if row is not None and not row.ended]
        ends = {row.name: ends_of(row) for row in self._rows}
        names = dict.fromkeys(name for one in ends.values() for name in (one.source, one.dest))
        pictures = {name: controls.find_any(name).pictures[0] for name in names}
        self._follows = {}
        for name, one in ends.items():
            source = pictures[one.source]
            follow = stores.follows.get(source.row.log_id, ROUTER, name) if source is not None else None
            if follow is not None:
                self._follows[name] = follow
        return Found(tuple(pictures.values()), read)

    def decide(self, logs: Sequence[Look | None], _: Sequence[Request], __: Rows, ___: int, ____: Ids) -> Decision:
        """Decides: `logs` are the topics. The answer is the names of the routers that are removed."""
        looks = {look.row.name: look for look in logs if look is not None and not look.state.ended}
        states = {name: look.state for name, look in looks.items()}
        guards: list[Guard] = []
        for row in self._rows:
            ends, follow = ends_of(row), self._follows.get(row.name)
            guards.append(MarkEnded(row))
            if follow is not None and ends.source in states:
                guards.append(DropFollow(follow))
                source = states[ends.source]
                states[ends.source] = replace(source, followers=max(0, source.followers - 1))
            if ends.dest in states:
                dest = states[ends.dest]
                topic = topic_of(dest)
                feed = feed_in(topic.fed_by, row.name)
                rest = tuple(one for one in topic.fed_by if one is not feed)
                states[ends.dest] = replace(dest, extension=replace(topic, fed_by=rest))
        names = [row.name for row in self._rows]
        if not names:
            return Decision((names,))
        # Where they were counted: a shard that counts less than it has would take more than its part of a lower limit.
        left = Counter(usual_shard(name, 0) for name in names)
        guards += (Count(ROUTERS, -number, 0, shard) for shard, number in left.items())
        entries = tuple(
            Draft(look.log_id, "unroute", states[name]) for name, look in looks.items() if states[name] != look.state
        )
        self.stray = () if entries else tuple(guards)
        return Decision((names,), entries, tuple(guards))


class Forgetting:
    """The decision that a topic has not some of the routers that its state has: a disaster took all else of them.

    Args:
        head: the topic as it was when that was found out. If it has changed since, nothing is decided.
        names: of these routers.
        follows: the rows that are left of them among the topic's followers.
        are_all: whether there are no other rows of routers. Then the topic has no followers that stay, whatever its state
            has counted.
    """

    def __init__(self, head: Head, names: Sequence[str], follows: Sequence[Follow], *, are_all: bool) -> None:
        self._head = head
        self._names = names
        self._follows = follows
        self._are_all = are_all

    def decide(self, logs: Sequence[Look | None], _: Sequence[Request], __: Rows, ___: int, ____: Ids) -> Decision:
        """Decides. The answer is None."""
        (look,) = logs
        if look is None or (look.log_id, look.state) != (self._head.log_id, self._head.state):
            return Decision((None,))
        followers = 0 if self._are_all else max(0, look.state.followers - len(self._follows))
        topic = topic_of(look.state)
        rest = tuple(feed for feed in topic.fed_by if feed.router not in self._names)
        state = replace(look.state, followers=followers, extension=replace(topic, fed_by=rest))
        return Decision((None,), (Draft(look.log_id, "unroute", state),), tuple(map(DropFollow, self._follows)))
