"""Followers of kind `socket`: topics that sockets are subscribed to. What a client has not got is posted to it, then its
cursor moves: after a crash between the two it gets some records again, and loses none.

Two visits may overlap (`functions/relay/visits.py`): then the client may get records twice, too. A visit that finds the row
changed leaves the rest to the one that changed it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain

from msgspec.structs import replace

from functions.access import Scope
from functions.metrics import RelayMetric
from functions.relay.context import Context
from functions.relay.followers import Hint
from headrace.errors import StoreThrottled
from headrace.queues.verbs import Queues
from headrace.sockets import session
from headrace.sockets.channel import Channel, decode, encode, error, messages
from headrace.tables.follows import Follow
from headrace.tables.parts import Part
from headrace.topics.errors import TopicNotFound
from headrace.topics.values import DiffPage
from headrace.watch.frames import Frame, Position, advance, end

STEP_BYTES = 1024 * 1024  # of messages in one visit
STEP_PAGES = 32  # read in one visit: of records that the client does not get, nothing is sent
REST_S = 1.0  # after API Gateway has refused a message for load
_log = logging.getLogger(__name__)


class Ended(Exception):
    """The socket has ended."""


class Sockets:
    """The follower of each topic of each socket."""

    def __init__(self, context: Context) -> None:
        self._stores = context.stores
        self._access = context.access
        self._connections = context.connections
        self._meter = context.meter
        self._topics = Queues(context.stores)  # of topics as well

    def visit(self, follow: Follow, hint: Hint) -> float | None:  # noqa: ARG002 - what is there is read
        """Pushes what a client has not got, up to a step. Returns when it must be visited again, as `Follower.visit`."""
        found = session.find(self._stores.sessions, follow.id)
        if found is None or found[0].expires_ms <= self._stores.clock.now_ms():
            self._stores.follows.remove(follow)
            return None
        row, opened = found
        channel = decode(follow)
        try:
            refusal = self._access.refusal(opened.key_id, lambda grant: grant.require(Scope.READ, channel.name))
            if refusal:
                self._post(follow, error(*refusal, channel.name))
                self._stores.follows.remove(follow)
                return None
            return self._push(follow, channel)
        except Ended:
            self._forget(follow, row)
            return None
        except StoreThrottled:
            return REST_S

    def _push(self, follow: Follow, channel: Channel) -> float | None:
        sent = 0
        for _ in range(STEP_PAGES):
            page = self._page(follow, channel)
            if page is None:
                self._send(follow, channel, [end(channel.position)])
                self._stores.follows.remove(follow)
                return None
            position, frames = advance(channel.position, page)
            sent += self._send(follow, channel, frames)
            if position != channel.position:
                moved = self._move(follow, channel, position)
                if moved is None:
                    return None
                follow, channel = moved
            if page.caught_up:
                return None
            if sent >= STEP_BYTES:
                break
        return 0.0

    def _page(self, follow: Follow, channel: Channel) -> DiffPage | None:
        """Reads the next page; returns None if the log that is followed has ended, whatever has its name now."""
        try:
            page = self._topics.diff(channel.name, channel.request(), touch=False)
            is_known = page.incarnation == channel.position.incarnation
            return page if is_known or self._topics.head(channel.name).log_id == follow.log_id else None
        except TopicNotFound:
            return None

    def _move(self, follow: Follow, channel: Channel, position: Position) -> tuple[Follow, Channel] | None:
        """Moves the cursor. Returns the row and the channel as they are then; None if the row has changed meanwhile."""
        after = replace(channel, position=position)
        row = replace(follow, data=encode(after))
        if not self._stores.follows.put(row, follow):
            return None
        return replace(row, version=follow.version + 1), after

    def _send(self, follow: Follow, channel: Channel, frames: Sequence[Frame]) -> int:
        """Sends frames, and returns how many bytes they were. Raises Ended as `_post` does."""
        sent = 0
        for message in chain.from_iterable(messages(channel, frame) for frame in frames):
            self._post(follow, message)
            sent += len(message)
        return sent

    def _post(self, follow: Follow, message: bytes) -> None:
        """Sends a message. Raises Ended if there is nobody to send it to."""
        if not self._connections.post(follow.id, message):
            raise Ended
        self._meter.add(RelayMetric.SocketMessages)

    def _forget(self, follow: Follow, row: Part) -> None:
        """Removes a socket that has ended without a word, and what it was subscribed to here."""
        _log.info("socket is gone: connection_id=%s", follow.id)
        self._meter.add(RelayMetric.SocketsGone)
        self._stores.sessions.drop_part(row)
        self._stores.follows.remove(follow)
