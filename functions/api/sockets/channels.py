"""The commands that subscribe a socket to topics and unsubscribe it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from functions.access import Grant, Scope
from functions.api.context import Context
from functions.api.sockets.commands import MAX_NODES, Start, Subscribe
from functions.api.topics.config import clamped
from functions.api.topics.records import check_text
from headrace.clock import Threads
from headrace.errors import Conflict, InvalidRequest, NotFound
from headrace.sockets.channel import KIND, MAX_LIMIT, PAGE_BYTES, Channel, encode
from headrace.tables.follows import Follow
from headrace.topics.errors import TopicNotFound
from headrace.topics.values import MAX_NODE_BYTES, check_name
from headrace.watch.frames import Position

_THREADS = Threads(16, "channel")
_TRIES = 4  # a subscription may be replaced, and pushed to, between a look and a write


class Opened(NamedTuple):
    """A topic that a socket was subscribed to (§ 7.1): the cursor, and the seqs that the topic has."""

    from_seq: int
    head_seq: int
    earliest_seq: int


class Planned(NamedTuple):
    """A topic that a socket is to be subscribed to: its log, what is stored of it, and what the client is told."""

    log_id: str
    channel: Channel
    opened: Opened


class Channels:
    """The topics that sockets are subscribed to."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def open(self, connection_id: str, grant: Grant, command: Subscribe, until_ms: int) -> dict[str, Opened]:
        """Subscribes a socket to topics, each from where the command says, also if it is subscribed to one already. Returns
        the topics; if the command is lenient, without those that do not exist.

        Args:
            until_ms: when the socket ends at the latest.

        Raises:
            Forbidden: the key may not read one of them. Nothing was done.
            TopicNotFound: one does not exist. Nothing was done, unless it was deleted meanwhile.
        """
        starts = command.starts()
        for name in starts:
            grant.require(Scope.READ, check_name(name))
        options = _options(command)
        found = _THREADS.map(lambda one: self._plan(*one, options, lenient=command.lenient), list(starts.items()))
        planned = [one for one in found if one is not None]
        _THREADS.map(lambda one: self._follow(connection_id, one, until_ms), planned)
        return {one.channel.name: one.opened for one in planned}

    def close(self, connection_id: str, names: Sequence[str]) -> None:
        """Unsubscribes a socket from topics. Nothing happens for one that it is not subscribed to."""
        logs = self._context.topics()
        for name in names:
            try:
                log_id = logs.head(check_name(name)).log_id
                row = self._context.stores.follows.get(log_id, KIND, connection_id)
                if row is not None:
                    logs.unfollow(name, row)
            except NotFound:  # its followers go with it
                continue

    def _plan(self, name: str, start: Start, options: Channel, *, lenient: bool) -> Planned | None:
        """Returns how to follow a topic; None if it may be missing, and is."""
        logs = self._context.topics()
        try:
            head = logs.head(name)
            view = logs.view(name, touch=False)
        except TopicNotFound:
            if lenient:
                return None
            raise
        end = head.state.next_offset
        # Of a cursor that the client gives, the incarnation is not known.
        position = Position(head.incarnation, end, end) if start.tail else Position(seq=start.from_seq)
        opened = Opened(position.seq, view.head_seq, view.earliest_seq)
        return Planned(head.log_id, replace(options, name=name, position=position), opened)

    def _follow(self, connection_id: str, planned: Planned, until_ms: int) -> None:
        """Puts the row of a channel, and asks the relay to push what is there. Until then the row says that it waits for
        this visit (`functions/relay/visits.py`): what is appended meanwhile is not pushed twice.
        """
        log_id, channel, _ = planned
        now_ms, logs = self._context.clock.now_ms(), self._context.topics()
        for tries_left in reversed(range(_TRIES)):
            before = self._context.stores.follows.get(log_id, KIND, connection_id)
            due_ms = now_ms if before is None or before.due_ms != now_ms else now_ms + 1  # it numbers the message
            follow = Follow(log_id, KIND, connection_id, encode(channel), until_ms, due_ms)
            try:
                logs.follow(channel.name, follow, replaces=before)
                break
            except Conflict:
                if not tries_left:
                    raise
        self._context.ring(follow)


def _options(command: Subscribe) -> Channel:
    """Returns a channel with the options of a command. Raises InvalidRequest for too many or too long nodes."""
    nodes = [command.node] if isinstance(command.node, str) else command.node or []
    if len(nodes) > MAX_NODES:
        raise InvalidRequest(f"too many nodes: limit={MAX_NODES} received={len(nodes)}")
    for node in nodes:
        check_text("node", node, MAX_NODE_BYTES)
    return Channel(
        "",
        nodes=tuple(nodes),
        limit=clamped(command.limit or MAX_LIMIT, 1, MAX_LIMIT),
        max_bytes=clamped(command.max_batch_bytes or PAGE_BYTES, 1, PAGE_BYTES),
        data=command.include_data,
        tags=command.include_tags,
        meta=command.include_meta,
    )
