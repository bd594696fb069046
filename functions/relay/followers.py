"""The port of a follower: what the relay asks of it. `functions/relay/kinds.py` names those that there are."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headrace.tables.follows import Follow


class Hint(NamedTuple):
    """What the stream of entries said about a log. It may be wrong: an item of the stream need not be a confirmed entry. So
    a follower reads confirmed entries itself.

    Attributes:
        kind: kind of the newest entry; empty if this visit was asked for by a message, an hour ago perhaps.
        offset: the newest known end of the log; 0 if not known.
    """

    kind: str = ""
    offset: int = 0


class Follower(Protocol):
    """A kind of followers. Visits run in several threads and processes at once, also of one follower.

    Rules for `visit`:
      - One step: at most about 1 MiB, so that others have their turn. Its store calls must begin within seconds; a call to
        anybody else (a webhook) is made only if `hint.kind` is empty: such a visit has a message of its own.
      - It must be harmless to visit a follower too early, or twice.
      - A follower that waits for a later visit (`follow.due_ms`) is not visited for each append meanwhile. Who knows that
        it need not wait any longer calls `Context.kick`.
      - Its row may be written or removed meanwhile, by the visit too.
    """

    def visit(self, follow: Follow, hint: Hint) -> float | None:
        """Does the next step of one follower's work.

        Args:
            follow: the follower's row, just read.

        Returns:
            None if the follower has everything that was in the log when the visit began; else in how many seconds it must
            be visited again (0: at once).

        Raises:
            Exception: the visit is counted as failed, and repeated, each time later. Others are not affected.
        """
