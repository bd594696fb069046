"""One step of a router: it reads its source from its cursor on, and appends to its destination what it is to copy.

An append moves the cursor, too. So a step from an old cursor appends nothing: two processes may be at the
same router, and a step whose answer was lost may be repeated. Records that are not to be copied cost no entry of the
destination: the row in the table of followers says that they were looked at.

A router whose destination is full waits, and tries again after a pause that doubles up to a minute. It also follows its
destination for a while, so that what makes room there ends the wait.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from headrace.errors import Conflict, LimitReached
from headrace.log.seam import Which
from headrace.log.stores import Stores
from headrace.routers.values import ROUTER, Trail, decode_trail
from headrace.tables.follows import Follow
from headrace.topics.errors import TopicNotFound
from headrace.topics.feeds import STEP_BYTES, STEP_RECORDS, Forward, Forwarded, feed_in
from headrace.topics.values import LEASES, DiffRequest, TopicConfig, topic_of
from headrace.topics.verbs import Topics

MOST_PAUSE_S = 60
_WAITS_MS = 180_000  # how long a full destination is followed, unless that is renewed
_PROBED = 10  # records of a step to a destination that was full: each ack there may ask for one
_AGAIN = 0.0
_WAITING = "!"  # before the name of a router in the id of a row of its destination; no name begins so


class Stepper:
    """Takes steps of routers. Thread-safe."""

    def __init__(self, stores: Stores, topics: Topics, kick: Callable[[Follow], None]) -> None:
        """Creates a stepper.

        Args:
            topics: reads and writes the topics.
            kick: asks for a visit of a router that waits for a later one.
        """
        self._stores = stores
        self._topics = topics
        self._kick = kick

    def visit(self, follow: Follow) -> float | None:
        """Takes one step of the router that a row is about. Returns in how many seconds it must be visited again; None if
        it has nothing to do until something changes.
        """
        trail = decode_trail(follow.data)
        if not trail.waits_for:
            return self._step(follow, trail)
        own = self._stores.follows.get(trail.waits_for, ROUTER, trail.router)
        if own is not None and decode_trail(own.data).blocked_ms:
            self._kick(own)
        else:
            self._stores.follows.remove(follow)
        return None

    def _step(self, follow: Follow, trail: Trail) -> float | None:
        try:
            # Since the row was read: whatever changes the feed otherwise than by a step changes the row, too.
            topic = topic_of(self._topics.head(trail.dest).state)
            feed = feed_in(topic.fed_by, follow.id)
            if feed is None or feed.source_id != follow.log_id:
                return None  # the router is gone
            incarnation, offset = trail.position(feed)
            most = _PROBED if trail.blocked_ms else STEP_RECORDS
            request = DiffRequest(offset, most, max_bytes=STEP_BYTES, incarnation=incarnation)
            page = self._topics.diff(feed.source, request, touch=False)
        except TopicNotFound:
            return None
        copied = [record for record in page.records if feed.routing.passes(record)]
        is_cut = page.gap is not None and topic.config.type == "log"  # a queue's workers learn of no gaps
        if not copied and not is_cut:
            is_same = (page.incarnation, page.next_seq) == (incarnation, offset) and not trail.blocked_ms
            passed = Trail(trail.dest, "", "", page.incarnation, feed.offset, page.next_seq)
            if not page.caught_up:  # if it waits for room, nothing says that there is any
                passed = replace(passed, blocked_ms=trail.blocked_ms, tries=trail.tries)
            is_noted = is_same or self._note(follow, passed)
            return None if is_noted and page.caught_up else _AGAIN
        done = self._forward(trail.dest, Forward(feed, copied, page.incarnation, page.next_seq, is_cut))
        if done.outcome == "blocked":
            return self._wait(follow, trail, topic.config, is_new=bool(done.copied) or not trail.tries)
        is_done = done.outcome == "moved" and page.caught_up
        if done.outcome == "moved" and trail.blocked_ms:  # if that fails, the next visit does it
            is_done = self._note(follow, replace(trail, blocked_ms=0, tries=0)) and is_done
        return None if is_done else _AGAIN

    def _note(self, follow: Follow, trail: Trail) -> bool:
        """Writes what a router's row keeps. Returns False if the row has changed since it was read."""
        return self._stores.follows.put(replace(follow, data=trail.encode()), follow)

    def _forward(self, dest: str, step: Forward) -> Forwarded:
        try:
            forwarded: Forwarded = self._topics.appender.append(dest, step).answer
        except LimitReached:  # of the bytes of all topics
            return Forwarded("blocked")
        return forwarded

    def _wait(self, follow: Follow, trail: Trail, config: TopicConfig, *, is_new: bool) -> float:
        """Notes that the destination is full. Returns in how many seconds to try again."""
        now_ms = self._stores.clock.now_ms()
        tries = 1 if is_new else trail.tries + 1
        noted = replace(trail, blocked_ms=trail.blocked_ms or now_ms, tries=tries)
        self._note(follow, noted)
        logs: list[Which] = [trail.dest, (trail.dest, LEASES)] if config.type == "queue" else [trail.dest]
        for which in logs:
            self._follow_dest(which, follow, now_ms)
        # The first time it looks once more at once: what made room before it followed told nobody.
        return _AGAIN if is_new else min(2.0 ** (tries - 2), MOST_PAUSE_S)

    def _follow_dest(self, which: Which, follow: Follow, now_ms: int) -> None:
        head, follows = self._topics.head(which), self._stores.follows
        trail = Trail(head.config.name, waits_for=follow.log_id, router=follow.id)
        standing = follows.get(head.log_id, ROUTER, _WAITING + follow.id)
        if standing is None or standing.until_ms < now_ms + _WAITS_MS // 2:
            until_ms = now_ms + _WAITS_MS
            waiting = Follow(head.log_id, ROUTER, _WAITING + follow.id, trail.encode(), until_ms)
            with suppress(Conflict):  # another process follows for it just now
                self._topics.follow(which, waiting, replaces=standing)
