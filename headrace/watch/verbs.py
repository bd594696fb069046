"""Creates watch sessions, and opens their streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from headrace.clock import Threads
from headrace.errors import InvalidRequest, StoreThrottled
from headrace.log.stores import Stores
from headrace.tables import slots
from headrace.tables.parts import Part
from headrace.topics.errors import TopicNotFound
from headrace.topics.values import Extent
from headrace.topics.verbs import Topics
from headrace.watch import ids
from headrace.watch.errors import Fenced, WatchNotFound
from headrace.watch.stream import Stream
from headrace.watch.values import (
    KIND,
    MAX_NAMES_BYTES,
    MAX_TOPICS,
    SESSIONS,
    TTL_MS,
    Cursor,
    Cursors,
    Definition,
    Options,
    Session,
    Start,
)

_TRIES = 8
_KEPT_MS = 86_400_000  # of the rows that are not counted; renewed when half of it is over
_definition = msgspec.json.Decoder(Definition)
_session = msgspec.json.Decoder(Session)
_cursors = msgspec.json.Decoder(Cursors)


class Watched(NamedTuple):
    """A topic of a new session: where the watch begins in it, and which seqs it has."""

    from_seq: int
    extent: Extent


class Found(NamedTuple):
    """A session as its rows say it."""

    row: Part
    session: Session
    topics: Part
    definition: Definition


class Watches:
    """The watch sessions. Methods block, may be called by any thread, and raise the errors of the stores, too."""

    def __init__(self, stores: Stores, topics: Topics, new_id: Callable[[], str]) -> None:
        """Creates the verbs. `new_id` returns a random id that nobody can guess."""
        self._stores = stores
        self._topics = topics
        self._new_id = new_id
        self._threads = Threads(16, "watch")

    def create(
        self, starts: Mapping[str, Start], options: Options, key_id: str, *, lenient: bool = False, limit: int = 0
    ) -> tuple[str, dict[str, Watched]]:
        """Creates a session. Returns its id, and its topics.

        Args:
            starts: where to begin in each topic.
            key_id: id of the key that may open its streams; empty if none is needed.
            lenient: whether topics that do not exist are left out.
            limit: how many sessions there may be, 0 for any number.

        Raises:
            TopicNotFound: a topic does not exist.
            InvalidRequest: the topics are too many, or their names too long, for one session.
            LimitReached: there are as many sessions as may be.
        """
        with self._topics.in_time():
            if len(starts) > MAX_TOPICS:
                raise InvalidRequest(f"a watch has too many topics: limit={MAX_TOPICS} received={len(starts)}")
            if sum(map(len, starts)) > MAX_NAMES_BYTES:
                raise InvalidRequest(f"the names of the topics are too long together: limit={MAX_NAMES_BYTES}")
            watched: dict[str, Watched] = {}
            for (name, start), extent in zip(starts.items(), self._topics.extents(list(starts)), strict=True):
                if extent is not None:
                    watched[name] = Watched(extent.head_seq if start.tail else start.seq, extent)
                elif not lenient:
                    raise TopicNotFound(name)
            wid, now_ms = self._new_id(), self._stores.clock.now_ms()
            cursors = Cursors(0, tuple(Cursor(one.extent.incarnation, one.from_seq) for one in watched.values()))
            sessions, kept_ms = self._stores.sessions, now_ms + _KEPT_MS
            definition = Definition(tuple(watched), options)
            # The counted row comes last: a session without it is none, and its other rows expire by themselves.
            for part, value in (("topics", definition), ("at", cursors)):
                sessions.put_part(Part(KIND, wid, part, msgspec.json.encode(value), expires_ms=kept_ms), None)
            row = Part(KIND, wid, data=msgspec.json.encode(Session(key_id)), expires_ms=now_ms + TTL_MS)
            if slots.take(sessions, row, [slots.Limit("max_watch_sessions", SESSIONS, limit)], now_ms) is None:
                sessions.put_part(row, None)
            return wid, watched

    def find(self, wid: str) -> Found:
        """Returns a session. Raises WatchNotFound."""
        with self._topics.in_time():
            rows = {part.part: part for part in self._stores.sessions.parts(KIND, wid, limit=3)}
            row, topics = rows.get("-"), rows.get("topics")
            if row is None or topics is None or row.expires_ms <= self._stores.clock.now_ms():
                raise WatchNotFound
            return Found(row, _session.decode(row.data), topics, _definition.decode(topics.data))

    def open(self, wid: str, last_event_id: str, ends_ms: int) -> Stream:
        """Opens a stream of a session, which fences the one before. It begins where the session is, or where the event id
        says if that is before.

        Args:
            last_event_id: the id that the client gave; anything else is ignored.
            ends_ms: when the stream ends at the latest, in epoch milliseconds.

        Raises:
            WatchNotFound: there is no such session.
            Fenced: yet another stream was opened meanwhile.
            StoreThrottled: others keep opening it.
        """
        sessions, now_ms = self._stores.sessions, self._stores.clock.now_ms()
        for _ in range(_TRIES):
            found = self.find(wid)
            names, before = found.definition.names, found.session
            at, cursors = self._cursors(wid)
            said = ids.decode(last_event_id, names, before.stream, before.base) if last_event_id else None
            begin = [min(one, told or one) for one, told in zip(cursors.at, said or cursors.at, strict=True)]
            base = tuple(begin) if ids.is_long(names) else ()
            session = Session(before.key_id, before.stream + 1, base)
            row = replace(found.row, data=msgspec.json.encode(session), expires_ms=ends_ms + TTL_MS)
            if sessions.put_part(row, found.row):
                break
        else:
            raise StoreThrottled(f"others keep opening this watch: tries={_TRIES}")
        row = replace(row, version=found.row.version + 1)
        for _ in range(_TRIES):
            if cursors.stream >= session.stream:
                raise Fenced
            mine = Cursors(session.stream, tuple(begin), cursors.rung_ms)
            part = replace(at, data=msgspec.json.encode(mine), expires_ms=now_ms + _KEPT_MS)
            if sessions.put_part(part, at):
                break
            at, cursors = self._cursors(
                wid
            )  # the stream before has sent more; its client has it, or asks for it again
            if not last_event_id:
                begin = list(cursors.at)
        else:
            raise StoreThrottled(f"the stream before keeps this watch: tries={_TRIES}")
        if found.topics.expires_ms - now_ms < _KEPT_MS // 2:
            sessions.put_part(replace(found.topics, expires_ms=now_ms + _KEPT_MS), found.topics)
        return Stream(
            self._stores,
            self._topics,
            self._threads,
            found.definition,
            session,
            row,
            replace(part, version=at.version + 1),
            mine,
            ends_ms,
        )

    def _cursors(self, wid: str) -> tuple[Part, Cursors]:
        part = self._stores.sessions.part(KIND, wid, "at")
        if part is None:
            raise WatchNotFound
        return part, _cursors.decode(part.data)
