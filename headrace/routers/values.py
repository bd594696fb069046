"""The values of routers: names, requests, what is kept of a router beside its feed, and views."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from headrace.errors import InvalidRequest
from headrace.tables.catalog import Row
from headrace.topics.values import Feed, Routing, check_name
from headrace.wal.state import LogConfig

ROUTERS = "routers"  # their rows in the catalog, their counter, and the limit `max_routers`
ROUTER = "router"  # the kind of their rows in the table of followers
GRAPH = "graph"  # the row whose version rises with each new router: searches for cycles are decided under it

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}\Z")
_encode = msgspec.json.Encoder().encode


def check_router_name(name: str) -> str:
    """Checks that a text can be the name of a router, and returns it. Raises InvalidRequest."""
    if not _NAME.match(name):
        raise InvalidRequest(
            "a router name has 1 to 255 letters, digits and . _ : - > and begins with a letter or digit"
        )
    return name


class RouterRequest(NamedTuple):
    """A request to create or change a router.

    Attributes:
        create_dest: whether the destination is created if it does not exist.
    """

    name: str
    source: str
    dest: str
    routing: Routing = Routing()
    create_dest: bool = True

    def check(self) -> None:
        """Raises InvalidRequest if a name is none, or the source is the destination."""
        check_router_name(self.name)
        check_name(self.source)
        check_name(self.dest)
        if self.source == self.dest:
            raise InvalidRequest("source and dest must differ")


class Ends(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a router's row in the catalog says of it, for listings."""

    source: str
    dest: str
    exactly_once: bool = False


_ends = msgspec.json.Decoder(Ends)


def ends_of(row: Row) -> Ends:
    """Returns what the row of a router says."""
    return _ends.decode(row.label)


def row_of(feed: Feed, dest: str, now_ms: int) -> Row:
    """Returns the row of a router."""
    label = _encode(Ends(feed.source, dest, feed.routing.exactly_once)).decode()
    return Row(feed.id, LogConfig(ROUTERS, feed.router, 0, "", now_ms), label=label)


class Trail(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a row in the table of followers keeps of a router.

    Attributes:
        dest: the destination.
        waits_for: if the row is one of the destination's, whose changes the router waits for while it is full: the id of
            the source's log. Else empty.
        router: the router's name, if `waits_for` is not empty.
        incarnation, first, end: records `[first, end)` of the source, in its incarnation, of which none is to be copied:
            they cost no entry of the destination. It counts if the cursor is in it, or right behind; or at `first`, if a
            recovery of the source has ended before that: `end` may be less then.
        blocked_ms: since when the destination is full (epoch ms); 0 if it is not.
        tries: how often it was found to be full since then.
    """

    dest: str
    waits_for: str = ""
    router: str = ""
    incarnation: int = 0
    first: int = 0
    end: int = 0
    blocked_ms: int = 0
    tries: int = 0

    def encode(self) -> bytes:
        """Encodes the trail for its row."""
        return _encode(self)

    def position(self, feed: Feed) -> tuple[int, int]:
        """Returns where the router is in its source: the incarnation that the offset belongs to, and the offset."""
        is_lost = self.first == feed.offset and feed.incarnation < self.incarnation
        if is_lost or (self.first <= feed.offset <= self.end and feed.incarnation <= self.incarnation):
            return self.incarnation, self.end
        return feed.incarnation, feed.offset


decode_trail = msgspec.json.Decoder(Trail).decode


class RouterView(NamedTuple):
    """A router as clients see it.

    Attributes:
        forwarded: how many records it has copied.
        lag: how many records of the source it has yet to look at; None in listings.
        blocked_ms: since when the destination has no room (epoch ms); None if it has.
    """

    name: str
    source: str
    dest: str
    routing: Routing
    forwarded: int
    lag: int | None = None
    blocked_ms: int | None = None
