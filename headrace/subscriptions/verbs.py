"""The verbs of subscriptions, as clients ask for them. Methods block, may be called by any thread, and raise the errors of
`headrace.subscriptions.errors` beside those of `headrace.log.logs.Log`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from headrace.subscriptions import rules
from headrace.subscriptions.desk import Desk
from headrace.subscriptions.errors import (
    InvalidOffset,
    InvalidSubscription,
    NoPendingWork,
    NoSubscription,
    SubscriptionExists,
)
from headrace.subscriptions.links import Links
from headrace.subscriptions.rows import MAX_ALIKE, Row, beginnings, pattern_beginning
from headrace.subscriptions.values import PULL, Config, Link, Seen, Subscription, View
from headrace.subscriptions.wakes import SECOND_LOOK_MS, Wakes, new_id, new_token
from headrace.tables.parts import PutPart

_KEPT_MS = 30 * 24 * 3600 * 1000  # what is left of a deleted subscription, for its generation


class Shown(NamedTuple):
    """A subscription with its links, in the order of their paths; and whether it is new."""

    subscription: Subscription
    links: Sequence[Link]
    is_new: bool = False


class Claimed(NamedTuple):
    """A wake that a worker has claimed: with its token, and the streams with their tails as they are now."""

    subscription: Subscription
    wake_id: str
    token: str
    streams: Sequence[View]


class Ack(NamedTuple):
    """What a worker or receiver says of its wake.

    Attributes:
        acks: stream and offset, in order.
        done: whether it ends the wake.
    """

    wake_id: str
    generation: int
    acks: Sequence[tuple[str, str]] = ()
    done: bool = False


Allow = Callable[[Config, Sequence[str]], None]
"""Raises an error if the client must not use a subscription of this configuration with these explicit links."""


class Subscriptions:
    """The operations on subscriptions, each by the subscription's id."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._rows = desk.rows
        self.links = Links(desk)
        self.wakes = Wakes(desk, self.links)

    # Subscriptions.

    def put(self, id_: str, config: Config, allow: Allow, key_id: str = "", *, from_start: bool = False) -> Shown:
        """Creates a subscription; returns the one that exists if its configuration is the same. Existing streams are linked
        before it answers.

        Args:
            key_id: the key of the client, on which the subscription depends from now on.
            from_start: whether a new one begins at the beginning of those streams; else at their tails.

        Raises:
            SubscriptionExists: it has another configuration.
            InvalidSubscription: too many streams match.
        """
        with self._desk.streams.in_time():
            allow(config, config.streams)
            row, is_new = self._create(id_, config, allow, key_id, from_start)
            try:
                self._link(row)
            except InvalidSubscription:
                if is_new:
                    self._end(row)
                raise
            if is_new and from_start:
                self.wakes.open_next(id_)
            return Shown(row.sub, self._links(id_), is_new)

    def _link(self, row: Row) -> None:
        """Links the streams that exist, unless the relay has done so, or another has deleted the subscription."""
        current: Row | None = row
        for _ in self._desk.tries("others keep changing this subscription"):
            if current is None or current.sub.linked or current.sub.created_ms != row.sub.created_ms:
                return
            if current.sub.is_deleted or self.links.link_existing(current, linked=1):
                return
            current = self._rows.get(row.sub.id)

    def _create(self, id_: str, config: Config, allow: Allow, key_id: str, from_start: bool) -> tuple[Row, bool]:
        for _ in self._desk.tries("others keep changing this subscription"):
            row = self._rows.get(id_)
            if row is not None and not row.sub.is_deleted:
                if row.sub.config != config:
                    raise SubscriptionExists(id_)
                adopted = self._adopt(row, allow, key_id)
                if adopted is None:
                    continue
                return adopted, False
            if row is not None:
                if not self.links.clean(row):
                    continue
                row = self._rows.get(id_)
                if row is None or not row.sub.is_deleted:
                    continue
            if config.pattern:
                self._check_room(id_, pattern_beginning(config.pattern))
            for beginning in beginnings(config, config.streams):
                self._rows.put_interest(beginning, id_)
            now_ms = self._desk.now_ms()
            self._desk.arm(id_, now_ms + SECOND_LOOK_MS, is_urgent=False)
            generation = row.sub.generation if row is not None else 0
            sub = Subscription(id_, config, now_ms, generation, from_start=from_start, key_id=key_id)
            if self._rows.put(row, sub):
                if row is not None:  # who cleaned up may have removed the timer meanwhile
                    self._desk.arm(id_, now_ms + SECOND_LOOK_MS, is_urgent=False)
                created = self._rows.get(id_)
                if created is not None and not created.sub.is_deleted:
                    return created, True
        raise AssertionError("tries end by an error")

    def _check_room(self, id_: str, beginning: str) -> None:
        """Raises InvalidSubscription if too many other subscriptions have patterns with this beginning."""
        if self._rows.interest(beginning, id_) is None and self._rows.is_crowded(beginning):
            raise InvalidSubscription(
                f"too many subscriptions have patterns that begin alike: beginning={beginning} limit={MAX_ALIKE}"
            )

    def _adopt(self, row: Row, allow: Allow, key_id: str) -> Row | None:
        """Has a subscription depend on another key. Returns its row then; None if another has changed it."""
        self._check_allowed(row.sub, allow)
        now_ms = self._desk.now_ms()
        after = rules.adopt(row.sub, key_id, now_ms)
        if after == row.sub:
            return row
        if after.wake != row.sub.wake:
            self._desk.arm(after.id, now_ms)  # first, so that what was refused is not forgotten if this process dies
        if not self._rows.put(row, after):
            return None
        adopted = self._rows.get(after.id)
        return adopted if adopted is not None and not adopted.sub.is_deleted else None

    def get(self, id_: str, allow: Allow) -> Shown:
        """Returns a subscription."""
        with self._desk.streams.in_time():
            row = self._row(id_)
            links = self._links(id_)
            allow(row.sub.config, [link.path for link in links if link.is_explicit])
            return Shown(row.sub, links)

    def delete(self, id_: str, allow: Allow) -> None:
        """Deletes a subscription with its wake; does nothing if there is none."""
        with self._desk.streams.in_time():
            for _ in self._desk.tries("others keep changing this subscription"):
                row = self._rows.get(id_)
                if row is None or row.sub.is_deleted:
                    return
                self._check_allowed(row.sub, allow)
                if self._end(row):
                    return

    def _end(self, row: Row) -> bool:
        """Deletes a subscription. Returns False if another has changed it."""
        left = replace(row.sub, wake=None, is_deleted=True)
        now_ms = self._desk.now_ms()
        self._desk.arm(left.id, now_ms, is_urgent=False)  # for what is left if this process dies
        if not self._rows.put(row, left, expires_ms=now_ms + _KEPT_MS):
            return False
        ended = self._rows.get(left.id)
        if ended is not None and ended.sub.is_deleted:
            self.links.clean(ended)  # the timer goes with the visit that finds nothing left
        return True

    def add(self, id_: str, paths: Sequence[str], allow: Allow) -> None:
        """Links streams by name, at their tails; those that do not exist yet, too."""
        with self._desk.streams.in_time():
            for _ in self._desk.tries("others keep changing this subscription"):
                row = self._row(id_)
                self._check_allowed(row.sub, allow, *paths)
                if row.sub.config.wake_stream in paths:
                    raise InvalidSubscription("a subscription cannot follow its own wake stream")
                if self.links.add(row, paths):
                    return

    def remove(self, id_: str, path: str, allow: Allow) -> None:
        """Removes a link that was made by name; does nothing if there is none."""
        with self._desk.streams.in_time():
            row = self._row(id_)
            self._check_allowed(row.sub, allow, path)
            self.links.remove(row.sub, path)

    # Workers and receivers.

    def claim(self, id_: str, worker: str, allow: Allow) -> Claimed:
        """Claims the wake of a pull-wake subscription for a worker; opens it first if a stream is pending.

        Raises:
            AlreadyClaimed: a worker holds the wake.
            NoPendingWork: no stream is pending; an announced wake has ended.
            InvalidSubscription: it is no pull-wake subscription.
        """
        with self._desk.streams.in_time():
            for _ in self._desk.tries("others keep changing this subscription"):
                row = self._row(id_)
                _check_type(row.sub, PULL)
                found = self._rows.links(id_)
                allow(row.sub.config, [one.link.path for one in found if one.link.is_explicit])
                now_ms = self._desk.now_ms()
                sub = rules.pass_time(row.sub, now_ms, self._desk.jitter())
                rules.check_unclaimed(sub)
                seen = rules.cut(self.links.look(found))
                if not seen or not seen[0].is_pending:
                    if row.sub.wake is not None and not self._rows.put(row, rules.end_wake(sub)):
                        continue
                    raise NoPendingWork
                claimed = self._claim(row, sub, worker, seen)
                if claimed is not None:
                    return claimed
        raise AssertionError("tries end by an error")

    def _claim(self, row: Row, sub: Subscription, worker: str, seen: Sequence[Seen]) -> Claimed | None:
        """Leases the wake, and appends its record if it is a new one. Returns None if another has changed the
        subscription.
        """
        now_ms, token, is_new = self._desk.now_ms(), new_token(), sub.wake is None
        if is_new:
            sub = rules.open_wake(sub, new_id(), seen[0].link.path, now_ms)
        sub = rules.claim(sub, worker, token, now_ms)
        assert sub.wake is not None, "it is leased"
        self._desk.arm(sub.id, sub.wake.until_ms)
        if not (self.wakes.announce(row, sub) if is_new else self._rows.put(row, sub)):
            return None
        return Claimed(sub, sub.wake.id, token, [one.show() for one in seen])

    def ack(self, id_: str, type_: str, token: str, ack: Ack) -> bool:
        """Moves cursors, and ends the wake or renews its lease. Returns whether the next wake is open.

        All is checked before anything changes, and up to 90 cursors move in one transaction with the wake. More move in
        parts, and the wake with the last: if this fails in between, some are where the worker acknowledged them, the
        others where they were, and the wake is as it was. None is past what was acknowledged, and the ack may be repeated.

        Args:
            type_: the type that the subscription must have.

        Raises:
            TokenInvalid, Fenced, InvalidOffset: nothing has changed; but of more than 90 acks some may count, if the
                wake or a stream ended while they were written.
            InvalidSubscription: it has another type.
        """
        with self._desk.streams.in_time():
            for _ in self._desk.tries("others keep changing this subscription"):
                row, sub = self._authorized(id_, type_, token, ack)
                moved = self._moved(id_, ack.acks)
                after = rules.end_wake(sub) if ack.done else rules.extend(sub, self._desk.now_ms())
                if self._rows.put_links(row, after, moved):
                    return ack.done and self.wakes.open_next(id_)
        raise AssertionError("tries end by an error")

    def release(self, id_: str, token: str, wake_id: str, generation: int) -> None:
        """Ends the wake of a worker; earlier acks stay. Raises as `ack` does."""
        with self._desk.streams.in_time():
            for _ in self._desk.tries("others keep changing this subscription"):
                row, sub = self._authorized(id_, PULL, token, Ack(wake_id, generation))
                if self._rows.put(row, rules.end_wake(sub)):
                    self.wakes.open_next(id_)
                    return

    def _authorized(self, id_: str, type_: str, token: str, ack: Ack) -> tuple[Row, Subscription]:
        row = self._row(id_)
        _check_type(row.sub, type_)
        bound = rules.find_token(row.sub, token)
        rules.check_fence(row.sub, bound, ack.wake_id, ack.generation)
        return row, row.sub

    def _moved(self, id_: str, acks: Sequence[tuple[str, str]]) -> list[PutPart]:
        """Checks all acks, and returns the guards that move the cursors. Of several for one stream, each must be right, and
        the last one counts.
        """
        by_path: dict[str, list[str]] = {}
        for path, offset in acks:
            by_path.setdefault(path, []).append(offset)
        if not by_path:
            return []
        rows = {row.link.path: row for row in self._rows.links(id_)}
        unknown = sorted(set(by_path) - set(rows))
        if unknown:
            raise InvalidOffset(f"subscription does not have the stream: stream={unknown[0]}")
        moved: list[PutPart] = []
        for seen in self.links.look(rows[path] for path in by_path):
            offset = ""
            for offset in by_path[seen.link.path]:
                rules.ack_position(seen, offset)
            if offset != seen.link.acked_offset:
                moved.append(rows[seen.link.path].put(replace(seen.link, acked_offset=offset)))
        return moved

    def _check_allowed(self, sub: Subscription, allow: Allow, *more: str) -> None:
        """Raises what `allow` raises if the client must not use a subscription that has `more` links by name, too."""
        allow(sub.config, [*(link.path for link in self._links(sub.id) if link.is_explicit), *more])

    def _row(self, id_: str) -> Row:
        row = self._rows.get(id_)
        if row is None or row.sub.is_deleted:
            raise NoSubscription(id_)
        return row

    def _links(self, id_: str) -> list[Link]:
        return [row.link for row in self._rows.links(id_)]


def _check_type(sub: Subscription, type_: str) -> None:
    if sub.config.type != type_:
        raise InvalidSubscription(f"this call is for subscriptions of another type: type={sub.config.type}")
