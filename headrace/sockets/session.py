"""The row of an open socket, in the table of sessions: whose it is. It counts like an open stream, and is there until the
socket ends, or is known to have ended.
"""

from __future__ import annotations

import msgspec

from headrace.errors import Damaged
from headrace.sockets.channel import KIND
from headrace.tables.parts import Part
from headrace.tables.sessions import Sessions

LIFE_MS = 2 * 3600 * 1000  # API Gateway ends a socket then
_SPARE_MS = 60_000  # the row outlives the socket


class Session(msgspec.Struct, frozen=True):
    """An open socket.

    Attributes:
        key_id: the id of the key that opened it; empty if no key was needed. What the key allows is asked again each time.
    """

    key_id: str = ""


_decoder = msgspec.json.Decoder(Session)


def row_of(connection_id: str, session: Session, now_ms: int) -> Part:
    """Returns the row of a socket that is opened now."""
    return Part(KIND, connection_id, data=msgspec.json.encode(session), expires_ms=now_ms + LIFE_MS + _SPARE_MS)


def find(sessions: Sessions, connection_id: str) -> tuple[Part, Session] | None:
    """Returns an open socket and its row; None if it has ended. Raises Damaged if the row holds no session."""
    row = sessions.part(KIND, connection_id)
    if row is None:
        return None
    try:
        return row, _decoder.decode(row.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Damaged(f"session of a socket does not parse: connection_id={connection_id}") from exc
