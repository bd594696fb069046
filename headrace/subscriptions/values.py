"""The values of subscriptions: what is stored of one, its wake, its links; and what is pending."""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

import msgspec

from headrace.subscriptions import patterns
from headrace.wal.state import START, LogState, decode_cursor, encode_cursor

KIND = "subscription"  # of rows in the tables `sessions` and `follows`
WEBHOOK = "webhook"
PULL = "pull-wake"
MAX_LINKS = 1_000
MAX_ID_BYTES = 256
MAX_TOKENS = 16

Stage = Literal["announced", "leased", "due", "sending", "accepted", "failed"]
"""How far a wake is. Of pull-wake: `announced` by a record, `leased` by a worker. Of a webhook: `due` for its first call,
`sending`, `accepted` by an answer without `done`, `failed` and to be tried again.
"""


class Token(msgspec.Struct, frozen=True, array_like=True):
    """A token of a wake, as it is stored: its digest, and the wake and generation that it is bound to."""

    digest: str
    wake_id: str
    generation: int


class Wake(msgspec.Struct, frozen=True, omit_defaults=True):
    """The open wake of a subscription.

    Attributes:
        trigger: the path of a stream that was pending.
        until_ms: when something happens by itself: an announcement is repeated (announced), the lease ends (leased,
            accepted), the webhook is called (due, failed), or its call counts as failed (sending).
        holder: the worker that claimed it.
        attempts: calls of the webhook that were begun, or announcements.
        failures: calls that failed.
        began_ms: when the newest call began; its lease counts from then.
        opened_ms: when the wake was opened.
        refused: why the newest call or announcement was not made: code and message.
    """

    id: str
    trigger: str
    stage: Stage
    until_ms: int
    holder: str = ""
    attempts: int = 0
    failures: int = 0
    began_ms: int = 0
    opened_ms: int = 0
    refused: tuple[str, str] | None = None


class Config(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a client asks for when it creates a subscription. Two are the same if these values are equal.

    Attributes:
        streams: paths of explicit links, sorted and unique.
        url: of a webhook, as it was written.
        wake_stream: of pull-wake.
    """

    type: Literal["webhook", "pull-wake"]
    pattern: str = ""
    streams: tuple[str, ...] = ()
    url: str = ""
    wake_stream: str = ""
    lease_ttl_ms: int = 30_000
    description: str | None = None

    def matches(self, name: str) -> bool:
        """Returns whether the pattern matches a stream. It never matches the subscription's own wake stream."""
        return bool(self.pattern) and name != self.wake_stream and patterns.matches(self.pattern, name)


class Subscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """A subscription, as it is stored.

    Attributes:
        generation: number of wakes so far; it goes on when the id is used again.
        wake: the open wake; None if the subscription is idle.
        tokens: of the newest wakes, newest last.
        linked: how far the streams that existed at its creation are linked: 0 not all yet, 1 all that the listing of names
            had then, 2 also those that it had later. The listing lags.
        from_start: whether those streams are linked at their beginning, instead of their tails.
        is_deleted: whether this is what is left of a deleted subscription.
        key_id: of the key that made it, or adopted it, as logs call it; empty if none was needed. What is sent on the
            subscription's behalf, this key must be allowed to read.
    """

    id: str
    config: Config
    created_ms: int
    generation: int = 0
    wake: Wake | None = None
    tokens: tuple[Token, ...] = ()
    linked: Literal[0, 1, 2] = 0
    from_start: bool = False
    is_deleted: bool = False
    key_id: str = ""

    @property
    def status(self) -> str:
        """`failed` while a webhook waits to be called again, or its key is refused; else `active`."""
        wake = self.wake
        return "failed" if wake is not None and (wake.stage == "failed" or wake.refused) else "active"


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stream of a subscription, and how far it is acknowledged.

    Attributes:
        is_explicit: whether it was named; else it is linked only because the pattern matches it.
        log_id: the log that has the name; empty if none does. The cursor is of this log.
        incarnation: of that log's configuration.
        acked_offset: the cursor: `-1` or a position as text.
    """

    path: str
    is_explicit: bool = False
    log_id: str = ""
    incarnation: int = 0
    acked_offset: str = START

    @property
    def link_type(self) -> str:
        """`explicit` if it was named, else `glob`."""
        return "explicit" if self.is_explicit else "glob"


class View(msgspec.Struct, frozen=True):
    """A link as wakes and claims show it: with the tail of its stream."""

    path: str
    link_type: str
    acked_offset: str
    tail_offset: str
    has_pending: bool


class Snapshot(msgspec.Struct, frozen=True):
    """What one wake of a webhook says of the streams. It never changes: `done` acknowledges this, and nothing newer.

    Attributes:
        log_ids: the log of each stream.
    """

    wake_id: str
    streams: tuple[View, ...]
    log_ids: tuple[str, ...]


class Seen(NamedTuple):
    """A link, and its log's state, as they were read; None if no living log has the name."""

    link: Link
    state: LogState | None

    @property
    def is_pending(self) -> bool:
        """Whether there is data past the cursor."""
        return self.state is not None and self.state.next_offset > acked_position(self.link, self.state)

    @property
    def tail_offset(self) -> str:
        """The end of the stream as cursor text; `-1` if there is no stream."""
        if self.state is None:
            return START
        recoveries = self.state.recoveries
        incarnation = recoveries[-1].incarnation if recoveries else self.link.incarnation
        return encode_cursor(incarnation, self.state.next_offset)

    def show(self) -> View:
        """Returns the link as wakes and claims show it."""
        link = self.link
        return View(link.path, link.link_type, link.acked_offset, self.tail_offset, self.is_pending)


def acked_position(link: Link, state: LogState) -> int:
    """Returns the position of a link's cursor in its log, which is in `state`. Records that a recovery lost are not
    acknowledged: other records get their offsets.
    """
    cursor = decode_cursor(link.acked_offset)
    position = cursor.position
    for recovery in state.recoveries:
        if cursor.incarnation is not None and recovery.incarnation > cursor.incarnation:
            position = min(position, recovery.at)
    return position


def digest(text: str) -> str:
    """Returns the SHA-256 digest of a text in hex: how tokens are stored, and how paths are keyed."""
    return hashlib.sha256(text.encode()).hexdigest()
