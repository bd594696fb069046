"""What time and appends bring about: wakes are opened, announced or sent, and end with their leases.

Each transition is one compare-and-set on the subscription's row. A pull-wake's record is appended in the same commit, so
that there is one for each generation. Of a webhook, the row says that a call begins before it begins: a process that dies
meanwhile leaves a call that fails when its time is over.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from headrace.batch import Batch
from headrace.errors import Conflict, Gone, HeadraceError, InvalidRequest, NotFound
from headrace.log.control import Asked
from headrace.log.requests import JSON
from headrace.log.seam import Decision, Ids, Look, Request
from headrace.log.seam import Rows as LogRows
from headrace.streams.values import AppendRequest
from headrace.streams.verbs import decide_appends
from headrace.subscriptions import rules
from headrace.subscriptions.desk import Desk
from headrace.subscriptions.errors import InvalidSubscription
from headrace.subscriptions.links import Links, Unlinked, followed
from headrace.subscriptions.rows import Row
from headrace.subscriptions.rules import Outcome
from headrace.subscriptions.values import PULL, Seen, Snapshot, Subscription, View
from headrace.tables.follows import Follow
from headrace.tables.items import Guard
from headrace.tables.parts import PutPart
from headrace.wal.state import decode_cursor

_log = logging.getLogger(__name__)
_STEPS = 4  # of one visit
_UNLINKED_S = 1.0
SECOND_LOOK_MS = 60_000  # after which the listing of names has every stream that was there


class Call(NamedTuple):
    """A call of a webhook, to be made once.

    Attributes:
        attempt: its number among those of the wake.
        token: what the receiver may call back with. It is stored nowhere.
        streams: what the wake says of the streams; the same at each attempt.
    """

    subscription: Subscription
    url: str
    wake_id: str
    generation: int
    attempt: int
    token: str
    streams: tuple[View, ...]

    def document(self, base_url: str) -> dict[str, object]:
        """Returns what the receiver is sent. `base_url` is where it reaches the api."""
        path = f"/v1/stream/__ds/subscriptions/{quote(self.subscription.id, safe='')}/callback"
        return {
            "subscription_id": self.subscription.id,
            "wake_id": self.wake_id,
            "generation": self.generation,
            "streams": self.streams,
            "callback_url": base_url.rstrip("/") + path,
            "callback_token": self.token,
        }


Post = Callable[[Call], Outcome]
"""Makes a call, and returns what its answer means. It must not raise for what a receiver does."""


class Wakes:
    """The wakes of subscriptions."""

    def __init__(self, desk: Desk, links: Links) -> None:
        self._desk = desk
        self._rows = desk.rows
        self._links = links

    # Opening.

    def open_next(self, id_: str, *, is_driven: bool = False) -> bool:
        """Opens a wake if the subscription is idle and a stream is pending. Returns whether a wake is open now. Must be
        called after each end of a wake.

        Args:
            is_driven: whether the caller goes on with the wake, so that the relay need not be told of it.
        """
        for _ in self._desk.tries("others keep changing this subscription"):
            row = self._rows.get(id_)
            if row is None or row.sub.is_deleted:
                return False
            if row.sub.wake is not None:
                return True
            seen = self._links.look(self._rows.links(id_))
            pending = [one for one in seen if one.is_pending]
            if not pending:
                return False
            if self._open(row, seen, self._trigger(row.sub, pending), is_driven=is_driven):
                return True
        raise AssertionError("tries end by an error")

    def _open(self, row: Row, seen: Sequence[Seen], trigger: str, *, is_driven: bool) -> bool:
        now_ms = self._desk.now_ms()
        sub = rules.open_wake(row.sub, new_id(), trigger, now_ms)
        assert sub.wake is not None, "it was opened"
        if not is_driven:
            self._desk.arm(sub.id, sub.wake.until_ms)
        if sub.config.type == PULL:
            return self._announce(row, sub)
        kept = rules.cut(seen)
        snapshot = Snapshot(sub.wake.id, tuple(one.show() for one in kept), tuple(one.link.log_id for one in kept))
        return self._rows.put(row, sub, self._rows.put_snapshot(sub.id, snapshot))

    def _trigger(self, sub: Subscription, pending: Sequence[Seen]) -> str:
        """Returns the pending stream that a wake names: the first of which the key of the subscription allows it, or else
        the first.
        """
        paths = [one.link.path for one in pending]
        return next((path for path in paths if self._desk.refusal(sub, (path,)) is None), paths[0])

    def _announce(self, before: Row, after: Subscription) -> bool:
        """Announces a wake as `announce` does, if the key of the subscription still allows it; else only notes that."""
        assert after.wake is not None, "a wake is announced"
        refused = self._desk.refusal(after, (after.wake.trigger,))
        return self.announce(before, after) if refused is None else self._refuse(before, after, refused)

    def _refuse(self, before: Row, after: Subscription, refused: tuple[str, str]) -> bool:
        """Writes a subscription whose open wake is not sent, with why. Returns False if another has changed it."""
        _log.warning("wake is not sent: subscription=%s key_id=%s reason=%s", after.id, after.key_id, refused[1])
        return self._rows.put(before, rules.refuse(after, refused, self._desk.now_ms(), self._desk.jitter()))

    def announce(self, before: Row, after: Subscription) -> bool:
        """Writes a subscription with an open wake, and appends the wake's record in the same commit. If the wake stream
        does not take it, there is no record: workers can claim without one. Returns False, and changes nothing, if
        another has changed the subscription.
        """
        wake, name = after.wake, after.config.wake_stream
        assert wake is not None, "a wake is announced"
        event = {
            "type": "wake",
            "subscription_id": after.id,
            "stream": wake.trigger,
            "generation": after.generation,
            "ts": self._desk.now_ms(),
        }
        own = before.put(after)

        def decide(
            looks: Sequence[Look | None], _: Sequence[Request], rows: LogRows, now_ms: int, ids: Ids
        ) -> Decision:
            if any(guard == own for guard, _ in ids.refused):
                return Decision((False,))
            (look,) = looks
            assert look is not None, "it was found"
            content_type = look.config.content_type
            data = msgspec.json.encode(event) + (b"" if content_type == JSON else b"\n")
            asked = Asked(AppendRequest(content_type=content_type, records=Batch.of((data,))))
            decision = decide_appends(looks, (asked,), rows, now_ms, ids)
            if isinstance(decision.answers[0], HeadraceError):
                raise decision.answers[0]
            guards: tuple[Guard, ...] = (*decision.guards, own)
            return decision._replace(answers=(True,), guards=guards)

        try:
            return bool(self._desk.streams.control(name, lambda controls: controls.find_living(name), decide))
        except (NotFound, Gone, Conflict, InvalidRequest) as exc:
            _log.warning("wake has no record: subscription=%s wake_stream=%s reason=%s", after.id, name, exc)
            return self._rows.put(before, after)

    # Visits.

    def hear(self, follow: Follow) -> float | None:
        """Does what an append to a followed stream, or its end, brings about. Returns in how many seconds it must be called
        again; None if it need not.
        """
        row = self._rows.get(follow.id)
        if row is None or row.sub.is_deleted:
            self._links.drop_follow(follow)
            return None
        newest = self._desk.stores.wal.newest(follow.log_id)
        try:
            if newest is None or newest.state.ended:
                self._links.ended(follow.id, follow.log_id, followed(follow).path)
            elif self._links.appended(row, follow, newest) is not None:
                self.open_next(follow.id)
        except Unlinked:
            return _UNLINKED_S
        return None

    def drive(self, id_: str, post: Post) -> float | None:
        """Does what is due of a subscription. Returns in how many seconds it must be visited again; None if only an append
        or a client can change it.
        """
        for _ in range(_STEPS):
            row = self._rows.get(id_)
            if row is None or row.sub.is_deleted:
                if row is not None and not self._links.clean(row):
                    continue
                self._desk.drop_timer(id_)
                row = self._rows.get(id_)
                if row is not None and not row.sub.is_deleted:  # the id was used again, with the timer that went
                    self._desk.arm(id_, self._desk.now_ms())
                return None
            if row.sub.linked < 2 and self._desk.now_ms() >= row.sub.created_ms + SECOND_LOOK_MS:
                self.finish_linking(row)
                continue
            wait_ms = self._step(row, post)
            if wait_ms is not None and row.sub.linked < 2:
                second_ms = row.sub.created_ms + SECOND_LOOK_MS - self._desk.now_ms()
                wait_ms = max(1, min(wait_ms or second_ms, second_ms))
            if wait_ms is not None:
                return wait_ms / 1000 or None
        return 0.0

    def finish_linking(self, row: Row) -> bool:
        """Links the streams that existed when the subscription was created; once more a while later, because the listing of
        names lags. Returns False if another has changed the subscription.
        """
        linked = 1 if row.sub.linked == 0 else 2
        try:
            return self._links.link_existing(row, linked)
        except InvalidSubscription as exc:  # there were fewer when it was created
            _log.error("streams are not linked: subscription=%s reason=%s", row.sub.id, exc)
            return self._rows.put(row, replace(row.sub, linked=linked))

    def _step(self, row: Row, post: Post) -> int | None:
        """Does one step of a subscription. Returns the milliseconds until the next one, 0 if it is idle; None if there may
        be more to do at once.
        """
        now_ms = self._desk.now_ms()
        sub = rules.pass_time(row.sub, now_ms, self._desk.jitter())
        wake = sub.wake
        if sub is not row.sub:
            self._rows.put(row, sub)
            return None
        if wake is None:
            return None if self.open_next(sub.id, is_driven=True) else 0
        if wake.until_ms > now_ms:
            return wake.until_ms - now_ms
        if wake.stage == "announced":
            self._announce_again(row)
        else:
            self._call(row, post)
        return None

    def _announce_again(self, row: Row) -> None:
        """Announces an unclaimed wake once more. One that was refused ends if nothing is pending any more, and else names
        a stream of which the key allows it: the one that it was refused for may be linked no more.
        """
        sub = rules.announce_again(row.sub, self._desk.now_ms())
        assert row.sub.wake is not None and sub.wake is not None, "it is announced"
        if row.sub.wake.refused:
            pending = [one for one in self._links.look(self._rows.links(sub.id)) if one.is_pending]
            if not pending:
                self._rows.put(row, rules.end_wake(sub))
                return
            sub = replace(sub, wake=replace(sub.wake, trigger=self._trigger(sub, pending)))
        self._announce(row, sub)

    # Webhooks.

    def _call(self, row: Row, post: Post) -> None:
        """Calls the webhook once, if its key allows it and nobody else does, and commits the outcome."""
        standing = self._rows.snapshot(row.sub.id)
        if standing is None:
            return
        _, snapshot = standing
        refused = self._desk.refusal(row.sub, (view.path for view in snapshot.streams))
        if refused is not None:
            before, snapshot = snapshot, self._still_linked(row.sub.id, snapshot)
            if not any(view.has_pending for view in snapshot.streams):
                self._rows.put(row, rules.end_wake(row.sub))
                return
            if snapshot != before:
                refused = self._desk.refusal(row.sub, (view.path for view in snapshot.streams))
        if refused is not None:
            self._refuse(row, row.sub, refused)
            return
        token = new_token()
        sub = rules.begin_call(row.sub, token, self._desk.now_ms())
        if not self._rows.put(row, sub):
            return
        assert sub.wake is not None, "it is being sent"
        wake_id, attempt = sub.wake.id, sub.wake.attempts
        outcome = Outcome.FAILED
        if snapshot.wake_id == wake_id:
            outcome = post(Call(sub, sub.config.url, wake_id, sub.generation, attempt, token, snapshot.streams))
        for _ in self._desk.tries("others keep changing this subscription"):
            current = self._rows.get(sub.id)
            if current is None:
                return
            after = rules.finish_call(
                current.sub, wake_id, attempt, outcome, self._desk.now_ms(), self._desk.jitter()
            )
            if after is current.sub:
                return
            links = self._acked(sub.id, snapshot) if outcome is Outcome.DONE else []
            if self._rows.put_links(current, after, links):
                return

    def _still_linked(self, id_: str, snapshot: Snapshot) -> Snapshot:
        """Returns a snapshot without the streams that the subscription has no more: the key need not allow these."""
        paths = {row.link.path for row in self._rows.links(id_)}
        kept = [pair for pair in zip(snapshot.streams, snapshot.log_ids, strict=True) if pair[0].path in paths]
        return replace(snapshot, streams=tuple(view for view, _ in kept), log_ids=tuple(log_id for _, log_id in kept))

    def _acked(self, id_: str, snapshot: Snapshot) -> list[PutPart]:
        """Returns the guards that move the cursors of links to where a snapshot saw the tails. None moves back, and none of
        a stream that was created again.
        """
        told = {view.path: (view, log_id) for view, log_id in zip(snapshot.streams, snapshot.log_ids, strict=True)}
        moved: list[PutPart] = []
        for row in self._rows.links(id_):
            view, log_id = told.get(row.link.path, (None, ""))
            if view is None or not view.has_pending or row.link.log_id != log_id:
                continue
            if decode_cursor(row.link.acked_offset).position < decode_cursor(view.tail_offset).position:
                moved.append(row.put(replace(row.link, acked_offset=view.tail_offset)))
        return moved


def new_id() -> str:
    """Returns a new id of a wake."""
    return f"w_{secrets.token_hex(12)}"


def new_token() -> str:
    """Returns a new token of a wake."""
    return secrets.token_urlsafe(32)
