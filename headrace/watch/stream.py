"""One open stream of a watch: it reads the topics, and keeps in the session what was sent.

A watch of few topics reads each of them again and again. More topics ring a bell: each has a follower's row, and the
relay adds the topic's number to the bell's when something was appended. The stream looks at the bell alone. A ring may be
lost, with a process of the relay; so the stream reads a few topics in turn, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from headrace.clock import Threads
from headrace.errors import Conflict, HeadraceError, NotFound, StoreError
from headrace.log.stores import Stores
from headrace.tables.follows import Follow
from headrace.tables.parts import Part
from headrace.topics.values import DiffPage, DiffRequest
from headrace.topics.verbs import Topics
from headrace.watch import frames, ids
from headrace.watch.errors import Fenced, WatchNotFound
from headrace.watch.frames import Frame, Position
from headrace.watch.values import BELL, FEW, TTL_MS, Cursor, Cursors, Definition, Ringing, Session

_RINGS_MS = 600_000  # how long topics ring after the end of a stream: so the next ones need not follow them again
_cursors = msgspec.json.Decoder(Cursors)
_log = logging.getLogger(__name__)


class News(NamedTuple):
    """What a read of a topic found: frames to send, and the position after them. `error` if it could not be read."""

    number: int
    after: Position
    frames: Sequence[Frame] = ()
    is_drained: bool = True
    error: Exception | None = None


class Stream:
    """A stream. `read` may be called by any thread, but only one call of all methods at a time.

    Attributes:
        names, options: the definition of the watch.
        rings: whether topics ring a bell.
        living: the numbers of the topics that are not gone.
    """

    def __init__(
        self,
        stores: Stores,
        topics: Topics,
        threads: Threads,
        definition: Definition,
        session: Session,
        row: Part,
        at: Part,
        cursors: Cursors,
        ends_ms: int,
    ) -> None:
        """Opens a stream; `row` and `at` are the session's rows as they stand, which `session` and `cursors` say."""
        self.names, self.options = definition.names, definition.options
        self.rings = len(self.names) > FEW
        self.living = dict.fromkeys(range(len(self.names)))
        self._stores = stores
        self._topics = topics
        self._threads = threads
        self._session = session
        self._row = row
        self._at = at
        self._sent = list(cursors.at)
        self._saved = cursors
        self._positions = [Position(*one) for one in cursors.at]
        self._rung_ms = ends_ms + _RINGS_MS
        self._rung = set[int]()  # was taken from the bell, and is not heard yet
        is_rung = cursors.rung_ms >= ends_ms
        self._silent = set() if is_rung or not self.rings else set(self.living)
        self._all_rung_ms = cursors.rung_ms if is_rung else 0

    def bound(self, max_bytes: int) -> None:
        """Makes frames at most about so large."""
        self.options = replace(self.options, max_bytes=min(self.options.max_bytes, max_bytes))

    # What is read.

    def read(self, numbers: Sequence[int]) -> list[News]:
        """Reads the next page of each of some topics, at the same time."""
        unheard = [number for number in numbers if number in self._silent]
        followed = dict(self._threads.map(self._let_ring, unheard))
        requests = [(self.names[number], self._request(number)) for number in numbers]
        found = zip(numbers, self._topics.diffs(requests), strict=True)
        news = []
        for number, page in found:
            rings = followed.get(number)
            if isinstance(rings, NotFound | Conflict) and not isinstance(page, Exception):
                news.append(News(number, self._positions[number], is_drained=False))  # it is silent
            elif isinstance(rings, Exception) and not isinstance(rings, NotFound | Conflict):
                news.append(News(number, self._positions[number], error=rings))
            else:
                news.append(self._news(number, page, rings))
        return news

    def _request(self, number: int) -> DiffRequest:
        position, options = self._positions[number], self.options
        nodes = frozenset() if options.node is None else frozenset({options.node})
        return DiffRequest(position.seq, options.limit, nodes, options.max_bytes, position.incarnation)

    def _news(self, number: int, page: DiffPage | Exception, rings: int | Exception | None) -> News:
        position = self._positions[number]
        if isinstance(page, NotFound):
            return News(number, position, [frames.end(position)])
        if isinstance(page, Exception):
            return News(number, position, error=page)
        after, sent = frames.advance(position, page)
        if after.incarnation not in (position.incarnation, rings) and self.rings:
            self._silent.add(number)  # it is another log now, which may not ring yet
            return News(number, position, is_drained=False)
        return News(number, after, sent, page.caught_up)

    def _let_ring(self, number: int) -> tuple[int, int | Exception]:
        """Lets a topic ring the bell; returns in which incarnation. What is appended before that is read afterwards."""
        name, wid = self.names[number], self._row.id
        try:
            head = self._topics.head(name)
            data = msgspec.json.encode(Ringing(number, head.state.next_offset))
            follow = Follow(head.log_id, BELL, wid, data, self._rung_ms)
            try:
                self._topics.follow(name, follow)
            except Conflict:  # that of another stream; a visit for which it waits may be one that failed
                before = self._stores.follows.get(head.log_id, BELL, wid)
                if before is not None:
                    until_ms = max(before.until_ms, self._rung_ms)
                    follow = replace(follow, due_ms=before.due_ms, until_ms=until_ms)
                self._topics.follow(name, follow, replaces=before)
        except (HeadraceError, StoreError) as exc:
            return number, exc
        self._silent.discard(number)
        return number, head.config.incarnation

    # What was sent.

    def event_id(self, news: News, frame: Frame) -> str:
        """Returns the id of the event with a frame."""
        at = list(self._sent)
        at[news.number] = self._after(news, frame.seq)
        return ids.encode(self.names, at, self._session.stream, self._session.base)

    def _after(self, news: News, seq: int) -> Cursor:
        before = self._sent[news.number]
        return Cursor(before.incarnation if news.after.incarnation is None else news.after.incarnation, seq)

    def sent(self, news: News, frame: Frame) -> None:
        """Notes that a frame was sent."""
        if isinstance(frame, frames.TopicDeleted):
            self.living.pop(news.number, None)
        else:
            self._sent[news.number] = self._after(news, frame.seq)

    def passed(self, news: News) -> None:
        """Notes that all frames of a page were sent."""
        self._positions[news.number] = news.after
        self._sent[news.number] = self._after(news, news.after.seq)

    @property
    def is_saved(self) -> bool:
        """Whether the session has what was sent."""
        return self._cursors() == self._saved

    def _cursors(self) -> Cursors:
        if self.rings and not self._silent:
            self._all_rung_ms = self._all_rung_ms or self._rung_ms
        return Cursors(self._session.stream, tuple(self._sent), self._all_rung_ms)

    def save(self) -> None:
        """Writes what was sent to the session. Raises Fenced if a newer stream was opened."""
        with self._topics.in_time():
            cursors = self._cursors()
            part = replace(self._at, data=msgspec.json.encode(cursors))
            if not self._stores.sessions.put_part(part, self._at):
                self._at = self._check()  # an earlier write has arrived after all
                if not self._stores.sessions.put_part(part, self._at):
                    raise Fenced
            self._at, self._saved = replace(part, version=self._at.version + 1), cursors

    def check(self) -> None:
        """Raises Fenced if a newer stream was opened, or the session is gone."""
        with self._topics.in_time():
            self._check()

    def _check(self) -> Part:
        part = self._stores.sessions.part(*self._at.key)
        if part is None:
            raise WatchNotFound
        if _cursors.decode(part.data).stream != self._session.stream:
            raise Fenced
        return part

    def close(self) -> None:
        """Ends the stream: the session is kept for a while from now on. Does nothing if there is a newer stream."""
        try:
            with self._topics.in_time():
                if not self.is_saved:
                    self.save()
                ends_ms = self._stores.clock.now_ms() + TTL_MS
                if ends_ms < self._row.expires_ms:
                    self._stores.sessions.put_part(replace(self._row, expires_ms=ends_ms), self._row)
        except (HeadraceError, StoreError) as exc:  # the session expires later; its cursors are a moment old
            _log.info("watch was not saved: error=%s", type(exc).__name__)

    # What is heard.

    def hear(self) -> Iterable[int]:
        """Returns the numbers of the topics that have rung. Raises Fenced if a newer stream was opened."""
        wid, sessions = self._row.id, self._stores.sessions
        with self._topics.in_time():
            if not self._rung and not sessions.peek_bell(wid):
                return ()
            rung = sessions.take_bell(wid)
            self._rung.update(self.living if rung is None else rung)
            try:
                self._check()  # if that fails, they are heard the next time
            except Fenced:  # they have rung for the newer one
                sessions.ring(wid, self._rung or (0,), self._rung_ms)
                raise
            heard, self._rung = sorted(self._rung), set()
            return heard
