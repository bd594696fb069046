"""The ids of a watch's events: where its consumer is in each topic after an event, so that a new connection can go back to
that (§ 7.4). Clients hand them back as they came.

The id of a watch of few topics is a JSON object, topic to seq. Header lines are short, so that of many topics says only
what has changed since the stream began, by numbers; the session keeps what was then. It is enough to keep that of the
newest stream: a client with an id of an older one has had no event of the newest, and so is where that one began.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence

import msgspec

from headrace.topics.values import MAX_NUMBER

MAX_TOPICS = 64
MAX_BYTES = 2048
_DIGITS = 20  # of a seq, and what JSON puts around it

_map = msgspec.json.Decoder(dict[str, int])
_changes = msgspec.msgpack.Decoder(list[int])


def is_long(names: Sequence[str]) -> bool:
    """Returns whether the ids of a watch of these topics say only what has changed."""
    return len(names) > MAX_TOPICS or sum(len(name) + _DIGITS for name in names) * 4 > MAX_BYTES * 3


def encode(names: Sequence[str], seqs: Sequence[int], stream: int, base: Sequence[int]) -> str:
    """Returns the id of an event.

    Args:
        seqs: the seq in each topic, in the order of their names.
        stream: number of the stream.
        base: the seqs with which the stream began; empty if ids of this watch say them all.
    """
    if not base:
        data = msgspec.json.encode(dict(zip(names, seqs, strict=True)))
    else:
        changes, last = [stream], 0
        for number, (seq, before) in enumerate(zip(seqs, base, strict=True)):
            if seq != before:
                changes += (number - last, seq - before)
                last = number
        data = msgspec.msgpack.encode(changes)
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str, names: Sequence[str], stream: int, base: Sequence[int]) -> list[int | None] | None:
    """Returns the seq in each topic that an id says, None for topics that it does not name; None if it is no id of this
    watch. `stream` and `base` are those of the newest stream.
    """
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        if not base:
            found = _map.decode(data)
            return [_seq(found.get(name)) for name in names]
        number, *changes = _changes.decode(data)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return None
    seqs: list[int | None] = list(base)
    if number > stream or len(changes) % 2:
        return None
    if number == stream:
        at = 0
        for gap, change in zip(changes[::2], changes[1::2], strict=True):
            at += gap
            if not (gap >= 0 and at < len(seqs)):
                return None
            seqs[at] = _seq(base[at] + change)
    return seqs


def _seq(number: int | None) -> int | None:
    return number if number is not None and 0 <= number <= MAX_NUMBER else None
