"""How a log's state and the rows of its followers (`headrace.tables.follows`) change together.

A follower is told of what is appended after its row was written: its row comes first, or with the entry that counts it, and
only then the log is read for where following begins. Each entry from there on is committed on a state that says that
somebody follows, since no writer can pass the entry that said it first; so each of them is sent to the relay, and the relay
finds the row.

For followers that last for a while the state has one deadline, which an entry raises to twice the time that one of them
asks for. So most of those that come, and renew their rows at half of their time, need no entry of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from headrace.errors import Conflict, NotFound
from headrace.log.seam import Decide, Decision, Draft, Ids, Look, Request, Rows
from headrace.tables.follows import DropFollow, Follow, PutFollow
from headrace.wal.state import LogState


def followed(state: LogState, follow: Follow | None, replaces: Follow | None, now_ms: int) -> LogState:
    """Returns the state of a log in which `follow` takes the place of `replaces`; either may be None. It is equal to
    `state` if only the row changes.
    """
    change = _counts(follow) - _counts(replaces)
    followed_ms = state.followed_ms
    if follow is not None and follow.until_ms > followed_ms:
        followed_ms = follow.until_ms + max(0, follow.until_ms - now_ms)
    return replace(state, followers=max(0, state.followers + change), followed_ms=followed_ms)


def following(follow: Follow, replaces: Follow | None) -> Decide:
    """Returns a decision function that lets `follow` take the place of `replaces`. Its answer is the row if no entry is
    needed, and then the caller writes the row; else None.

    Raises (the function):
        NotFound: the follower is one of another log, which had this name.
        Conflict: another row is there than `replaces`, and it is not this one.
    """

    def decide(looks: Sequence[Look | None], _: Sequence[Request], __: Rows, now_ms: int, ids: Ids) -> Decision:
        (look,) = looks
        assert look is not None, "it was found"
        check_log(follow, look.log_id)
        for guard, standing in ids.refused:
            if isinstance(guard, PutFollow):
                check_same(follow, standing)
                return Decision((None,))
        state = followed(look.state, follow, replaces, now_ms)
        if state == look.state:
            return Decision((follow,))
        return Decision((None,), (Draft(look.log_id, "follow", state),), (PutFollow(follow, replaces),))

    return decide


def unfollowing(follow: Follow) -> Decide:
    """Returns a decision function that removes a follower that stays, in whatever version its row is. Its answer is whether
    there was one. Of a log that has ended it removes none; the purge does.
    """

    def decide(looks: Sequence[Look | None], _: Sequence[Request], __: Rows, now_ms: int, ids: Ids) -> Decision:
        (look,) = looks
        assert look is not None, "it was found"
        refused = [standing for guard, standing in ids.refused if isinstance(guard, DropFollow)]
        row: Follow | None = refused[-1] if refused else follow
        if row is None or look.state.ended or look.log_id != row.log_id:
            return Decision((False,))
        state = followed(look.state, None, row, now_ms)
        return Decision((True,), (Draft(look.log_id, "unfollow", state),), (DropFollow(row),))

    return decide


def check_log(follow: Follow, log_id: str) -> None:
    """Raises NotFound if a follower is one of another log than the one with this id, which has the name now."""
    if follow.log_id != log_id:
        raise NotFound(f"the log that was to be followed has ended: log_id={follow.log_id}")


def check_same(follow: Follow, standing: Follow | None) -> None:
    """Raises Conflict if another row is in the place of a follower than its own, which an earlier try may have written, and
    the relay may have visited.
    """
    if standing is None or (standing.data, standing.until_ms) != (follow.data, follow.until_ms):
        raise Conflict(f"follower changed meanwhile: log_id={follow.log_id} follower={follow.key}")


def _counts(follow: Follow | None) -> int:
    return int(follow is not None and follow.stays)
