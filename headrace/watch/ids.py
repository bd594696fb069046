"""The ids of a watch's events: where its consumer is in each topic after an event, so that a new connection can go back to
that (§ 7.4). Clients hand them back as they came.

The id of a watch of few topics is a JSON object, topic to seq; the name of a topic that was created again has its
incarnation behind an `@`, which no name has. Header lines are short, so that of many topics says only what has changed
since the stream began, by numbers; the session keeps what was then. It is enough to keep that of the newest stream: a
client with an id of an older one has had no event of the newest, and so is where that one began.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence

import msgspec

from headrace.topics.values import MAX_NUMBER
from headrace.watch.values import Cursor

MAX_TOPICS = 64
MAX_BYTES = 2048
_DIGITS = 20  # of a seq, and what JSON puts around it

_map = msgspec.json.Decoder(dict[str, int])
_changes = msgspec.msgpack.Decoder(list[int])


def is_long(names: Sequence[str]) -> bool:
    """Returns whether the ids of a watch of these topics say only what has changed."""
    return len(names) > MAX_TOPICS or sum(len(name) + _DIGITS for name in names) * 4 > MAX_BYTES * 3


def encode(names: Sequence[str], at: Sequence[Cursor], stream: int, base: Sequence[Cursor]) -> str:
    """Returns the id of an event.

    Args:
        at: the cursor in each topic, in the order of their names.
        stream: number of the stream.
        base: the cursors with which the stream began; empty if ids of this watch say them all.
    """
    if not base:
        data = msgspec.json.encode({_named(name, one): one.seq for name, one in zip(names, at, strict=True)})
    else:
        changes, last = [stream], 0
        for number, (now, before) in enumerate(zip(at, base, strict=True)):
            if now == before:
                continue
            is_new = now.incarnation != before.incarnation
            changes += (2 * (number - last) + is_new, now.seq - before.seq)
            if is_new:
                changes.append(now.incarnation)
            last = number
        data = msgspec.msgpack.encode(changes)
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _named(name: str, at: Cursor) -> str:
    return f"{name}@{at.incarnation}" if at.incarnation else name


def decode(text: str, names: Sequence[str], stream: int, base: Sequence[Cursor]) -> list[Cursor | None] | None:
    """Returns the cursor in each topic that an id says, None for topics that it does not name; None if it is no id of this
    watch. `stream` and `base` are those of the newest stream.
    """
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        if not base:
            found = dict(_told(key, seq) for key, seq in _map.decode(data).items())
            return [found.get(name) for name in names]
        number, *changes = _changes.decode(data)
        if number > stream:
            return None
        return [*base] if number < stream else _changed(base, iter(changes))
    except (binascii.Error, ValueError, IndexError, StopIteration, msgspec.DecodeError):
        return None


def _told(key: str, seq: int) -> tuple[str, Cursor | None]:
    name, _, incarnation = key.partition("@")
    return name, _cursor(int(incarnation or 0), seq)


def _changed(base: Sequence[Cursor], changes: Iterator[int]) -> list[Cursor | None]:
    at: list[Cursor | None] = list(base)
    number = 0
    for step in changes:
        number += step // 2
        if step < 0:
            raise ValueError("steps go forward")
        change = next(changes)
        incarnation = next(changes) if step % 2 else base[number].incarnation
        at[number] = _cursor(incarnation, base[number].seq + change)
    return at


def _cursor(incarnation: int, seq: int) -> Cursor | None:
    return Cursor(incarnation, seq) if 0 <= seq <= MAX_NUMBER and 0 <= incarnation <= MAX_NUMBER else None
