"""Rings the bells of watch sessions: a log that has grown is a topic of theirs, by its number in the session."""

from __future__ import annotations

import msgspec

from functions.relay.context import Context
from functions.relay.followers import Hint
from headrace.tables.follows import Follow

_number = msgspec.json.Decoder(int)


class Bells:
    """The follower `bell`. One write for each visit."""

    def __init__(self, parts: Context) -> None:
        self._sessions = parts.stores.sessions

    def visit(self, follow: Follow, hint: Hint) -> None:  # noqa: ARG002
        """Adds the topic's number to what the session's bell rings for."""
        self._sessions.ring(follow.id, (_number.decode(follow.data),), follow.until_ms)
