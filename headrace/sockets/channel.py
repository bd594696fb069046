"""A topic that a socket is subscribed to: what its follower's row holds, and the messages that its frames become.

Pure rules. A message is a JSON text of at most 96 KiB: API Gateway takes 128 KiB, of any characters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import orjson

from headrace.errors import Damaged
from headrace.tables.follows import Follow
from headrace.topics.diff import shown
from headrace.topics.values import DiffRequest
from headrace.watch.frames import CaughtUp, Frame, Position, Records, Tombstone, TopicDeleted

KIND = "socket"  # of followers and of sessions
MAX_MESSAGE_BYTES = 96 * 1024
MAX_LIMIT = 1000  # records of a message
PAGE_BYTES = 256 * 1024  # of one read
_TOO_LARGE = (
    f"the record is too large for a message: limit={MAX_MESSAGE_BYTES}; a POST to the topic's /diff returns it"
)


class Channel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A topic that a socket is subscribed to.

    Attributes:
        name: the topic's name.
        position: what the client was sent.
        nodes: whose records the client does not get.
        limit, max_bytes: the most records, and about the most bytes of data and meta, of one message.
        data, tags, meta: whether records are shown with these.
    """

    name: str
    position: Position = Position()
    nodes: tuple[str, ...] = ()
    limit: int = MAX_LIMIT
    max_bytes: int = PAGE_BYTES
    data: bool = True
    tags: bool = False
    meta: bool = True

    def request(self) -> DiffRequest:
        """Returns the read of the next page."""
        at = self.position
        return DiffRequest(at.seq, self.limit, frozenset(self.nodes), self.max_bytes, at.incarnation)


_decoder = msgspec.json.Decoder(Channel)


def encode(channel: Channel) -> bytes:
    """Returns a channel as its follower's row holds it."""
    return msgspec.json.encode(channel)


def decode(follow: Follow) -> Channel:
    """Returns the channel in a follower's row. Raises Damaged if there is none."""
    try:
        return _decoder.decode(follow.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Damaged(f"channel of a socket does not parse: log_id={follow.log_id} follower={follow.key}") from exc


def messages(channel: Channel, frame: Frame) -> Iterator[bytes]:
    """Yields the messages that tell a client of a frame. A record that fits into none is an error message in its place."""
    match frame:
        case Records():
            yield from _records(channel, frame)
        case Tombstone():
            document = {**frame._asdict(), "op": "tombstone", "topic": channel.name}
            del document["seq"]
            yield orjson.dumps(document)
        case CaughtUp():
            yield orjson.dumps({"op": "caught_up", "topic": channel.name, "head_seq": frame.head_seq})
        case TopicDeleted():
            document = {"op": "topic_deleted", "topic": channel.name, "head_seq": frame.head_seq}
            yield orjson.dumps({**document, "reason": frame.reason})


def error(code: str, message: str, topic: str, **members: Any) -> bytes:
    """Returns the message of an error about a topic that no command has caused."""
    return orjson.dumps({"op": "error", "code": code, "message": message, "topic": topic, **members})


def _records(channel: Channel, frame: Records) -> Iterator[bytes]:
    """Yields messages with the records of a frame, as many in each as fit."""
    begin = frame.from_seq
    texts: list[bytes] = []

    def message(to_seq: int) -> bytes:
        document = {"op": "record", "topic": channel.name, "from_seq": begin, "to_seq": to_seq}
        head = orjson.dumps({**document, "head_seq": frame.head_seq})
        return b'%b,"records":[%b]}' % (head[:-1], b",".join(texts))

    room = MAX_MESSAGE_BYTES - len(message(frame.head_seq)) - len(str(frame.head_seq))
    size, last = 0, begin
    for record in frame.records:
        text = shown(record, tag=channel.tags, meta=channel.meta, data=channel.data)
        if texts and size + 1 + len(text) > room:
            yield message(last)
            begin, size = last, 0
            texts.clear()
        last = record.offset + 1
        if len(text) > room:
            told = (
                f"a record is too large for a message: limit={MAX_MESSAGE_BYTES} read it with POST /v0/topics/…/diff"
            )
            yield error("record_too_large", told, channel.name, seq=last)
            begin = last
        else:
            texts.append(text)
            size += len(text) + 1
    if texts:
        yield message(frame.seq)
