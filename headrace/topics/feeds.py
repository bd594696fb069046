"""What a topic knows of the routers that copy records into it: one feed for each, which is part of the topic's state.

A feed has the router's cursor. The entry that adds copies moves the cursor, too: so a copy and the cursor behind it are
stored together or not at all, and every record is copied once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from headrace.batch import Batch, Record
from headrace.topics.values import Feed

MAX_FEEDS = 16  # routers into one topic: each entry of the topic has them in its state
STEP_RECORDS = 1000
STEP_BYTES = 4 * 1024 * 1024
STAMP = "_topics_router"  # the member of meta by which copies say where they are from

VOID = Batch.of([b"null"])  # stands for records that the source lost; it is gone as soon as it is there

_meta = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.Encoder().encode


class Forward(NamedTuple):
    """A request to append copies to a topic.

    Attributes:
        feed: the router's feed, as it was when the source was read.
        records: the records to copy, ascending; maybe none.
        incarnation, next: the cursor after all of them.
        is_cut: whether readers of the topic must learn that the source lost records between the cursor and these.
    """

    feed: Feed
    records: Sequence[Record]
    incarnation: int
    next: int
    is_cut: bool = False

    @property
    def size(self) -> int:
        """The bytes of the records' data and meta."""
        return sum(map(size_of, self.records))


class Forwarded(NamedTuple):
    """The answer to it.

    Attributes:
        outcome: whether all were copied; if not, whether there was no room for the rest, or the router's feed is another
            one by now, so that nothing was.
        copied: how many records were.
    """

    outcome: Literal["moved", "blocked", "stale"]
    copied: int = 0


def feed_in(feeds: Iterable[Feed], router: str) -> Feed | None:
    """Returns the feed of a router; None if there is none."""
    return next((feed for feed in feeds if feed.router == router), None)


def with_feed(feeds: Iterable[Feed], changed: Feed) -> tuple[Feed, ...]:
    """Returns the feeds with this one in the place of the router's other one, or added."""
    rest = [feed for feed in feeds if feed.router != changed.router]
    return tuple(sorted([*rest, changed], key=lambda feed: feed.router))


def size_of(record: Record) -> int:
    """Returns the bytes of a record's data and meta, which caps count."""
    return len(record.data) + len(record.meta or b"")


def fitting(records: Sequence[Record], room: int | None, room_bytes: int | None) -> int:
    """Returns how many of the first records fit into a topic that has room for so many, and so many bytes; None means any
    number.
    """
    count = len(records) if room is None else max(0, min(len(records), room))
    if room_bytes is None:
        return count
    for number in range(count):
        room_bytes -= size_of(records[number])
        if room_bytes < 0:
            return number
    return count


def copies(feed: Feed, records: Sequence[Record], incarnation: int) -> Batch:
    """Returns what a router appends for these records of its source, which has this incarnation."""
    routing = feed.routing
    return Batch.of(
        [record.data for record in records],
        key=[record.key for record in records] if routing.preserve_tag else None,
        node=[record.node for record in records] if routing.preserve_node else None,
        meta=[_stamped(feed, record, incarnation) if routing.exactly_once else record.meta for record in records],
        hops=[record.hops + 1 for record in records],
    )


def _stamped(feed: Feed, record: Record, incarnation: int) -> bytes:
    """Returns the meta of a copy that says where it is from. That may be more than a client's meta can be."""
    seq = record.offset + 1
    stamp = {
        "idempotency_key": f"{feed.router}:{feed.source_id}:{incarnation}:{seq}",
        "router": feed.router,
        "source_topic": feed.source,
        "source_topic_id": feed.source_id,
        "source_epoch": incarnation,
        "source_seq": seq,
    }
    meta = _meta.decode(record.meta) if record.meta else {}
    return _encode({**meta, STAMP: stamp})
