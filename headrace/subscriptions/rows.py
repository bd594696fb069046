"""The rows of subscriptions in the table of sessions.

    subscription#<id>, -                the subscription
    subscription#<id>, link#<digest>    a link, by the digest of its path, which may be longer than a key
    subscription#<id>, snapshot         what the newest wake of a webhook says
    interest#<beginning>, <id>          that a subscription waits for streams that begin so

A new stream is matched only with subscriptions that may want it: those whose pattern begins with its first segments
(`/orders`, `/orders/eu`) or with a wildcard (`*`), and those that name it (`=orders/17`). Of one beginning there are at
most `MAX_ALIKE` patterns, and what a new stream is compared with at
once is bounded, too: the rest follows by messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from headrace import decoding
from headrace.errors import Damaged
from headrace.subscriptions import patterns
from headrace.subscriptions.values import KIND, MAX_LINKS, Config, Link, Snapshot, Subscription, digest
from headrace.tables.items import Guard
from headrace.tables.parts import DropPart, Part, PutPart
from headrace.tables.sessions import Sessions

INTEREST = "interest"
_LINK = "link#"
_SNAPSHOT = "snapshot"
_PAGE = 500
MAX_ALIKE = 1_000  # subscriptions whose patterns begin alike
_SEGMENTS = 3  # of a beginning
_LINKS_AT_ONCE = 90  # a transaction has at most 100 items

T = TypeVar("T")


class Row(NamedTuple):
    """A subscription with the row that it was read from."""

    part: Part
    sub: Subscription

    def put(self, sub: Subscription) -> PutPart:
        """Returns the guard that writes a later state in place of this one."""
        return PutPart(_part(sub, 0), self.part)


class LinkRow(NamedTuple):
    """A link with the row that it was read from."""

    part: Part
    link: Link

    def put(self, link: Link) -> PutPart:
        """Returns the guard that writes the link in place of this one."""
        return PutPart(msgspec.structs.replace(self.part, data=_encode(link)), self.part)


class Rows:
    """Reads and writes the rows of subscriptions."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def get(self, id_: str) -> Row | None:
        """Returns a subscription, deleted or not; None if there never was one, or it was forgotten."""
        part = self._sessions.part(KIND, id_)
        return Row(part, _decode(part, Subscription)) if part is not None else None

    def put(self, before: Row | None, sub: Subscription, *others: Guard, expires_ms: int = 0) -> bool:
        """Writes a subscription in place of `before` (None: there is none), with other rows. Returns False, and changes
        nothing, if one of them is not the one that was read.
        """
        own = PutPart(_part(sub, expires_ms), before.part if before is not None else None)
        if not others:
            return self._sessions.put_part(own.part, own.replaces)
        return self._sessions.commit((own, *others)) is None

    def put_links(self, before: Row, after: Subscription, links: Sequence[PutPart]) -> bool:
        """Writes a subscription with some of its links; if these are too many for one transaction, first links, some at a
        time, each time under the condition that nothing else has changed the subscription. Returns False if something has.

        Up to 90 links change with the subscription, or nothing does. Of more, some may have changed although this returns
        False or raises an error: each to what its guard says, and the subscription not at all. Writing them again is
        harmless.
        """
        while len(links) > _LINKS_AT_ONCE:
            if not self.put(before, before.sub, *links[:_LINKS_AT_ONCE]):
                return False
            before = Row(msgspec.structs.replace(before.part, version=before.part.version + 1), before.sub)
            links = links[_LINKS_AT_ONCE:]
        return self.put(before, after, *links)

    def drop(self, before: Row, parts: Sequence[Part]) -> bool:
        """Removes other rows of a subscription, some at a time, each time under the condition that it is unchanged. Returns
        False, and leaves the rest, if it is not, or one of them has changed.
        """
        for start in range(0, len(parts), _LINKS_AT_ONCE):
            drops = [DropPart(part) for part in parts[start : start + _LINKS_AT_ONCE]]
            if not self.put(before, before.sub, *drops, expires_ms=before.part.expires_ms):
                return False
            before = Row(msgspec.structs.replace(before.part, version=before.part.version + 1), before.sub)
        return True

    # Links.

    def link(self, id_: str, path: str) -> LinkRow | None:
        """Returns the link of a subscription to a path; None if there is none."""
        part = self._sessions.part(KIND, id_, _LINK + digest(path))
        return LinkRow(part, _decode(part, Link)) if part is not None else None

    def links(self, id_: str) -> list[LinkRow]:
        """Returns the links of a subscription, in the order of their paths. Writers that do not know of each other may have
        made a few more than `MAX_LINKS`.
        """
        parts: list[Part] = []
        while len(parts) < 2 * MAX_LINKS:
            after = parts[-1].part if parts else ""
            page = self._sessions.parts(KIND, id_, prefix=_LINK, after=after, limit=_PAGE)
            parts += page
            if len(page) < _PAGE:
                break
        return sorted((LinkRow(part, _decode(part, Link)) for part in parts), key=lambda row: row.link.path)

    def new_link(self, id_: str, link: Link) -> PutPart:
        """Returns the guard that writes a link that is not there. It must be written with its subscription, or a link that
        was written late would outlast it.
        """
        return PutPart(Part(KIND, id_, _LINK + digest(link.path), _encode(link)))

    def put_link(self, before: LinkRow, link: Link) -> bool:
        """Writes a link in place of `before`. Returns False if that has changed."""
        own = before.put(link)
        return self._sessions.put_part(own.part, own.replaces)

    def drop_link(self, row: LinkRow) -> bool:
        """Removes a link. Returns False if it has changed."""
        return self._sessions.drop_part(row.part)

    # Snapshots.

    def snapshot(self, id_: str) -> tuple[Part, Snapshot] | None:
        """Returns what the newest wake of a webhook says of the streams, with its row."""
        part = self._sessions.part(KIND, id_, _SNAPSHOT)
        return (part, _decode(part, Snapshot)) if part is not None else None

    def put_snapshot(self, id_: str, snapshot: Snapshot) -> PutPart:
        """Returns the guard that writes a snapshot in place of the current one."""
        standing = self.snapshot(id_)
        part = Part(KIND, id_, _SNAPSHOT, _encode(snapshot))
        return PutPart(part, standing[0] if standing is not None else None)

    # Interests.

    def interested(self, name: str, after: str = "", limit: int = _PAGE) -> list[tuple[str, str]]:
        """Returns the next subscriptions that may want a new stream of this name: for each the text to go on after, and its
        id. One may come more than once.
        """
        segments = name.split("/")[:_SEGMENTS]
        of_segments = (_beginning(segments[: n + 1]) for n in range(len(segments)))
        first, _, last = after.partition("#")
        found: list[tuple[str, str]] = []
        for number, beginning in enumerate(("*", *of_segments, f"={name}")):
            if number < int(first or 0) or len(found) == limit:
                continue
            parts = self._sessions.parts(
                INTEREST, beginning, after=last if first == str(number) else "", limit=limit - len(found)
            )
            found += [(f"{number}#{part.part}", part.part) for part in parts]
        return found

    def is_crowded(self, beginning: str) -> bool:
        """Returns whether no more subscriptions may wait for streams that begin so."""
        return len(self._sessions.parts(INTEREST, beginning, limit=MAX_ALIKE)) >= MAX_ALIKE

    def put_interest(self, beginning: str, id_: str) -> None:
        """Writes that a subscription waits for streams, if that is not known yet."""
        self._sessions.put_part(Part(INTEREST, beginning, id_), None)

    def interest(self, beginning: str, id_: str) -> Part | None:
        """Returns the row that says so; None if there is none."""
        return self._sessions.part(INTEREST, beginning, id_)

    def drop_interest(self, beginning: str, id_: str) -> None:
        """Removes that again."""
        part = self.interest(beginning, id_)
        if part is not None:
            self._sessions.drop_part(part)


def beginnings(config: Config, paths: Iterable[str]) -> list[str]:
    """Returns under which beginnings a subscription must be found: of its pattern, and of paths that it names."""
    found = [f"={path}" for path in paths]
    if config.pattern:
        found.append(pattern_beginning(config.pattern))
    return found


def pattern_beginning(pattern: str) -> str:
    """Returns under which beginning a pattern is found."""
    segments = patterns.literal_segments(pattern)[:_SEGMENTS]
    return _beginning(segments) if segments else "*"


def _beginning(segments: Sequence[str]) -> str:
    return "/" + "/".join(segments)


def _part(sub: Subscription, expires_ms: int) -> Part:
    return Part(KIND, sub.id, data=_encode(sub), expires_ms=expires_ms)


_encode = msgspec.json.Encoder().encode


def _decode(part: Part, type_: type[T]) -> T:
    try:
        return decoding.from_json(part.data, type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Damaged(f"row of a subscription does not parse: id={part.id} part={part.part}") from exc
