"""The links of subscriptions: which streams they have, how these are followed, and how far each is.

A log is followed (`headrace.log.logs.Log.follow`) from before its link says where the cursor is, so that no append after
the cursor is missed. A stream that is created empty is followed at once, and linked by its first append.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from headrace import decoding
from headrace.clock import Threads
from headrace.errors import Gone, NotFound
from headrace.log.requests import Head
from headrace.streams.values import STREAMS
from headrace.subscriptions import patterns
from headrace.subscriptions.desk import Desk
from headrace.subscriptions.errors import InvalidSubscription
from headrace.subscriptions.rows import LinkRow, Row, beginnings
from headrace.subscriptions.values import KIND, MAX_LINKS, Config, Link, Seen, Subscription
from headrace.tables.catalog import Row as Name
from headrace.tables.follows import Follow
from headrace.tables.parts import PutPart
from headrace.wal.state import START, Entry, LogConfig, encode_cursor

_log = logging.getLogger(__name__)
_LOOKERS = Threads(16, "links")
_LAG_MS = 60_000  # of the listing of names
LINKING_MS = 10_000  # in which a log that is followed is linked, or never
JOINED = 25  # subscriptions that are asked at once whether they want a new stream
_MAX_LOOKED = 20_000  # names, among which those that match are searched


class Followed(msgspec.Struct, frozen=True):
    """What the row of a followed log remembers.

    Attributes:
        path: its name.
        incarnation: that of its cursors.
        start: the offset from which on its records are news. The row is there before its link, and what is appended in
            between makes the relay write the link.
        since_ms: when it began to be followed.
    """

    path: str
    incarnation: int
    start: int
    since_ms: int


class Unlinked(Exception):
    """A followed log has data, and is not linked yet: the link is being made."""


def followed(follow: Follow) -> Followed:
    """Returns what the row of a followed log remembers."""
    return decoding.from_json(follow.data, Followed)


class Links:
    """The links of subscriptions."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._rows = desk.rows

    def look(self, rows: Iterable[LinkRow]) -> list[Seen]:
        """Returns links with the states of their logs, as they are now. Costs a query for each, several at a time."""
        return _LOOKERS.map(self.see, [row.link for row in rows])

    def see(self, link: Link) -> Seen:
        """Returns a link with the state of its log, as it is now."""
        newest = self._desk.stores.wal.newest(link.log_id) if link.log_id else None
        return Seen(link, newest.state if newest is not None and not newest.state.ended else None)

    # Following and linking.

    def link_existing(self, row: Row, linked: int) -> bool:
        """Links the streams that exist already, those that are named and those that the pattern matches, and notes how far
        that is. What is linked keeps its cursor. Returns False if another has changed the subscription: some may be linked,
        and this must be repeated with the row as it is now.
        """
        sub = row.sub
        named = sub.config.streams if sub.linked == 0 else ()
        parts = self._named(sub, named)
        names = [name for name in self.matching(sub.config) if name.name not in named]
        parts += _some(_LOOKERS.map(lambda one: self._new(sub, one.name, created=one.config), names))
        return self._rows.put_links(row, replace(sub, linked=linked), parts)

    def matching(self, config: Config) -> list[Name]:
        """Lists existing streams that a pattern matches.

        Raises:
            InvalidSubscription: they are more than a subscription can have, or must be searched among too many.
        """
        found: list[Name] = []
        after, looked = "", 0
        while config.pattern:
            prefix = patterns.literal_prefix(config.pattern)
            page = self._desk.stores.catalog.living(STREAMS, after=after, prefix=prefix, limit=MAX_LINKS)
            found += [name for name in page if config.matches(name.name)]
            looked += len(page)
            if len(found) > MAX_LINKS:
                raise InvalidSubscription(f"too many streams match the pattern: limit={MAX_LINKS}")
            if len(page) < MAX_LINKS:
                break
            if looked >= _MAX_LOOKED:
                raise InvalidSubscription(f"too many streams begin like the pattern: limit={_MAX_LOOKED}")
            after = page[-1].name
        return found

    def add(self, row: Row, paths: Sequence[str]) -> bool:
        """Links streams by name, at their tails; those that do not exist yet, too. Links that exist keep their cursors.
        Returns False if another has changed the subscription: some may be linked, and this must be repeated with the row as
        it is now.

        Raises:
            InvalidSubscription: they would be too many.
        """
        parts = self._named(row.sub, paths)
        return not parts or self._rows.put_links(row, row.sub, parts)

    def _named(self, sub: Subscription, paths: Sequence[str]) -> list[PutPart]:
        known = {row.link.path for row in self._rows.links(sub.id)} if paths else set[str]()
        if len(known | set(paths)) > MAX_LINKS:
            raise InvalidSubscription(f"a subscription has too many streams: limit={MAX_LINKS}")
        for beginning in beginnings(replace(sub.config, pattern=""), paths):
            self._rows.put_interest(beginning, sub.id)
        return _some(_LOOKERS.map(lambda path: self._new(sub, path, is_explicit=True), list(dict.fromkeys(paths))))

    def _new(
        self, sub: Subscription, path: str, *, is_explicit: bool = False, created: LogConfig | None = None
    ) -> PutPart | None:
        """Has a subscription follow a stream. Returns the guard that writes its link; None if there is nothing to write."""
        row = self._rows.link(sub.id, path)
        if row is not None:
            is_known = row.link.is_explicit or not is_explicit
            return None if is_known else row.put(replace(row.link, is_explicit=True))
        # What came with the subscription would never be told of if it was linked at its tail.
        is_late = is_explicit and sub.config.matches(path) and not self._is_older(sub, path)
        if created is not None:
            is_late = sub.linked == 1 and created.created_ms > sub.created_ms - _LAG_MS
        is_from_start = is_late or (sub.from_start and (not is_explicit or path in sub.config.streams))
        head = self.follow(sub.id, path, is_from_start=is_from_start)
        if head is None and not is_explicit:
            return None
        link = Link(path, is_explicit)
        if head is not None:
            link = replace(link, log_id=head.log_id, incarnation=head.config.incarnation)
            if not is_from_start:
                link = replace(link, acked_offset=head.next_offset)
        return self._rows.new_link(sub.id, link)

    def follow(self, id_: str, path: str, *, is_from_start: bool) -> Head | None:
        """Has a subscription follow the stream that has a name. Returns a state of the stream from which on each append is
        told; None if there is no such stream. If the relay writes the link, its cursor is where the stream began or, unless
        `is_from_start`, where it ended before.
        """
        streams = self._desk.streams
        try:
            head = streams.head(path)
            if self._desk.stores.follows.get(head.log_id, KIND, id_) is None:
                # A fork's inherited records are no news.
                start = head.config.base_offset if is_from_start else head.state.next_offset
                remembered = Followed(path, head.config.incarnation, start, self._desk.now_ms())
                return streams.follow(path, Follow(head.log_id, KIND, id_, msgspec.json.encode(remembered)))
            return streams.head(path)
        except (NotFound, Gone):
            return None

    def _is_older(self, sub: Subscription, path: str) -> bool:
        """Returns whether a stream that the pattern matches may have been there before the subscription. A later one is
        about to be linked at its beginning.
        """
        try:
            created_ms = self._desk.streams.head(path).config.created_ms
        except (NotFound, Gone):
            return False
        return sub.linked == 0 or created_ms <= sub.created_ms - _LAG_MS

    def _unfollow(self, id_: str, link: Link) -> None:
        follow = self._desk.stores.follows.get(link.log_id, KIND, id_) if link.log_id else None
        if follow is not None:
            self.drop_follow(follow)

    def drop_follow(self, follow: Follow) -> None:
        """Ends that a subscription follows a log; does nothing if the log has ended, because its rows go with it."""
        try:
            self._desk.streams.unfollow(followed(follow).path, follow)
        except (NotFound, Gone):
            return

    # What happens to streams.

    def created(self, log_id: str, after: str = "") -> tuple[list[str], str]:
        """Has the next subscriptions that want a new stream follow it, `JOINED` of those that may. Returns the ids of those
        that have data of it to read, and the text to go on after; an empty one after the last.

        May be called more than once, and late.
        """
        entries = self._desk.stores.wal.read(log_id, limit=1).entries
        config = entries[0].config if entries else None
        if entries and config is None:  # the entry that had it is trimmed, so it was published
            manifest = self._desk.stores.manifests().newest(log_id, None, 0)
            config = manifest.config if manifest is not None else None
        if config is None or config.surface != STREAMS or config.role:
            return [], ""
        found = self._rows.interested(config.name, after, JOINED)
        joined = [id_ for _, id_ in found if self._join(id_, config, log_id)]
        return joined, found[-1][0] if len(found) == JOINED else ""

    def _join(self, id_: str, config: LogConfig, log_id: str) -> bool:
        row, path = self._rows.get(id_), config.name
        if row is None or row.sub.is_deleted:
            return False
        link = self._rows.link(id_, path)
        if link is None and row.sub.linked == 0 and config.created_ms <= row.sub.created_ms:
            return False  # the PUT is about to link it, at its tail
        if link is None and not row.sub.config.matches(path) and self._rows.interest(f"={path}", id_) is None:
            return False  # by name, its link may be about to be written: then it is followed, and waits for that
        head = self.follow(id_, path, is_from_start=True)
        if head is None or head.log_id != log_id:
            return False  # it has ended; a later one has an event of its own
        newest = self._desk.stores.wal.newest(log_id)
        follow = self._desk.stores.follows.get(log_id, KIND, id_)
        try:
            return newest is not None and follow is not None and self.appended(row, follow, newest) is not None
        except Unlinked:
            return False  # its name was removed meanwhile; the entry that follows it is told, which ends that

    def appended(self, row: Row, follow: Follow, newest: Entry) -> Link | None:
        """Links a log at its first append, or attaches it to the link that waits for its name. Returns the link if there is
        data past its cursor, else None. Raises Unlinked.
        """
        current: Row | None = row
        at = followed(follow)
        for _ in self._desk.tries("a link changes all the time"):
            if current is None or current.sub.is_deleted:
                self.drop_follow(follow)
                return None
            sub = current.sub
            found = self._rows.link(sub.id, at.path)
            link = found.link if found is not None else Link(at.path)
            if link.log_id != follow.log_id:
                if newest.state.next_offset <= at.start and not link.is_explicit:
                    return None
                if found is None and not sub.config.matches(at.path):
                    if self._desk.now_ms() < at.since_ms + LINKING_MS:
                        raise Unlinked
                    self.drop_follow(follow)
                    return None
                if found is None and len(self._rows.links(sub.id)) >= MAX_LINKS:
                    _log.error("stream is not linked: subscription=%s is full: stream=%s", sub.id, at.path)
                    self.drop_follow(follow)
                    return None
                start = encode_cursor(at.incarnation, at.start) if at.start else START
                link = replace(link, log_id=follow.log_id, incarnation=at.incarnation, acked_offset=start)
                own = found.put(link) if found is not None else self._rows.new_link(sub.id, link)
                if not self._rows.put(current, sub, own):
                    current = self._rows.get(sub.id)
                    continue
            return link if Seen(link, newest.state).is_pending else None
        raise AssertionError("tries end by an error")

    def ended(self, id_: str, log_id: str, path: str) -> None:
        """Removes the link to a log that has ended. One by name stays, without a cursor: it waits for the name."""
        for _ in self._desk.tries("a link changes all the time"):
            found = self._rows.link(id_, path)
            if found is None or found.link.log_id != log_id:
                return
            if found.link.is_explicit:
                if self._rows.put_link(found, Link(path, is_explicit=True)):
                    return
            elif self._rows.drop_link(found):
                return

    # Removing.

    def remove(self, sub: Subscription, path: str) -> None:
        """Removes a link that was made by name. If the pattern matches the stream, the link stays with its cursor, as one
        of the pattern.
        """
        for _ in self._desk.tries("a link changes all the time"):
            found = self._rows.link(sub.id, path)
            if found is None or not found.link.is_explicit:
                return
            if found.link.log_id and sub.config.matches(path):
                if self._rows.put_link(found, replace(found.link, is_explicit=False)):
                    break
            elif self._rows.drop_link(found):
                self._unfollow(sub.id, found.link)
                break
        self._rows.drop_interest(f"={path}", sub.id)

    def clean(self, row: Row) -> bool:
        """Removes what a deleted subscription leaves behind. A log that it follows without a link is left: its next append
        ends that. Returns False, and leaves the rest, if another cleans or has used the id again: all rows are removed
        under the condition that the subscription's own is unchanged.
        """
        sub, links = row.sub, self._rows.links(row.sub.id)

        def unfollow(link: Link) -> None:
            current = self._rows.get(sub.id)
            if current is not None and current.part.version == row.part.version:
                self._unfollow(sub.id, link)

        _LOOKERS.map(unfollow, [one.link for one in links])
        paths = dict.fromkeys([*sub.config.streams, *(one.link.path for one in links)])
        found = _LOOKERS.map(lambda one: self._rows.interest(one, sub.id), beginnings(sub.config, paths))
        standing = self._rows.snapshot(sub.id)
        parts = [*(one.part for one in links), *(one for one in found if one), *(standing[:1] if standing else ())]
        return self._rows.drop(row, parts)


def _some(parts: Iterable[PutPart | None]) -> list[PutPart]:
    return [part for part in parts if part is not None]
