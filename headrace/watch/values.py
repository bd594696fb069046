"""What a watch is, and the rows that a session has in the table of sessions.

A session has three rows: `-`, which is counted and so has the deadline; `topics`, which never changes; and `at`, which
follows the stream. Opening a stream writes `at`, and then the stream before can't write it any more.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headrace.topics.values import DEFAULT_LIMIT

KIND = "watch"
BELL = "bell"  # the kind of the rows by which topics ring for a watch
SESSIONS = "watch_sessions"  # the counter of sessions
TTL_MS = 300_000  # without a stream
FEW = 8  # topics that a stream reads one by one; of more it is told by a bell
HEARTBEAT_MS = (1000, 60_000)
DEFAULT_HEARTBEAT_MS = 15_000
DEFAULT_BATCH_BYTES = 256 * 1024
# Of one watch, whatever the settings say: a row has room for their cursors, of up to 30 bytes each.
MAX_TOPICS = 10_000
MAX_NAMES_BYTES = 300_000  # of all topics of one watch: a row has room for 400 KB


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a consumer asked for (§ 7.2), clamped.

    Attributes:
        node: the node whose records it does not get; None for none.
        limit, max_bytes: the most records, and about the most bytes, of one frame.
        meta, tags, data: whether records are shown with these.
    """

    node: str | None = None
    limit: int = DEFAULT_LIMIT
    max_bytes: int = DEFAULT_BATCH_BYTES
    heartbeat_ms: int = DEFAULT_HEARTBEAT_MS
    meta: bool = True
    tags: bool = False
    data: bool = True


class Definition(msgspec.Struct, frozen=True, array_like=True):
    """The row `topics`: what is watched. A topic's number is its place in `names`."""

    names: tuple[str, ...]
    options: Options = Options()


class Cursor(NamedTuple):
    """A cursor in a topic: everything up to `seq` of this incarnation was sent."""

    incarnation: int
    seq: int


class Session(msgspec.Struct, frozen=True, array_like=True):
    """The row `-`.

    Attributes:
        key_id: id of the key that created the session; empty if it needed none.
        stream: number of its newest stream; 0 if there was none.
        base: the cursor in each topic when that began; empty if its ids need none.
    """

    key_id: str
    stream: int = 0
    base: tuple[Cursor, ...] = ()


class Cursors(msgspec.Struct, frozen=True, array_like=True):
    """The row `at`: the cursor in each topic, as stream number `stream` sent it.

    Attributes:
        rung_ms: until when every topic rings the bell, in epoch milliseconds; 0 if not every one does.
    """

    stream: int
    at: tuple[Cursor, ...]
    rung_ms: int = 0


class Ringing(msgspec.Struct, frozen=True, array_like=True):
    """What the follower's row of a topic says: its number in the watch, and where its log ended before it began to ring."""

    number: int
    end: int


class Start(NamedTuple):
    """Where a watch begins in a topic: after `seq`, or with `tail` after what it has now."""

    seq: int = 0
    tail: bool = False
