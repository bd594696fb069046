"""Rings the bells of watch sessions: a log that has grown is a topic of theirs, by its number in the session."""

from __future__ import annotations

import msgspec

from functions.relay.context import Context
from functions.relay.followers import Hint
from headrace.tables.follows import Follow
from headrace.watch.values import Ringing

_ringing = msgspec.json.Decoder(Ringing)


class Bells:
    """The follower `bell`. One write for each visit."""

    def __init__(self, parts: Context) -> None:
        self._sessions = parts.stores.sessions

    def visit(self, follow: Follow, hint: Hint) -> None:
        """Adds the topic's number to what the session's bell rings for; not for the very entry that lets it ring, after
        which the stream reads the topic anyway.
        """
        ringing = _ringing.decode(follow.data)
        if hint.kind != "follow" or hint.offset != ringing.end:
            self._sessions.ring(follow.id, (ringing.number,), follow.until_ms)
