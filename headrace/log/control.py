"""The control verbs: everything that changes a log except an append. One loop reads the logs, decides, puts the
entries, and repeats if another writer was first.

This includes how logs end. A log ends by one control entry, and that is final when it is answered; its companions end
in the same commit. Expiry is conditional on an unchanged last touch. Reads and appends renew a sliding deadline:
appends by the commit time of their own entry, reads by a counted write on the touch row, at most one in a tenth of the
TTL. Before anything answers "expired", that row is read consistently and the entry is committed, so that the answer is
final on every process.

A log from which forks read stays readable for them until its last fork ends; that may end logs further up a chain of
forks. A crash between the steps leaves work for the sweep: every step checks before it acts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from headrace.clock import Budget, Moment
from headrace.errors import Damaged, HeadraceError, NotFound
from headrace.log.commit import Attempt, Found
from headrace.log.context import Context, Picture
from headrace.log.seam import (
    AnySurface,
    Decide,
    Decision,
    Draft,
    Ids,
    Look,
    Request,
    Rows,
    Which,
    deadline_ms,
)
from headrace.log.stores import Stores
from headrace.tables.catalog import Row
from headrace.tables.watermarks import TouchUnchanged
from headrace.wal import Committed
from headrace.wal.state import Entry, LogConfig, LogState

_TOUCH_FRACTION = 10


@dataclass
class Asked:
    """A control request, in the form that `Decide` takes."""

    request: Any = None
    memo: Any = None
    request_id: str = ""


class Controls:
    """The control verbs of one surface: all operations that change its logs, except appends."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stores = context.stores
        self._surface = context.surface
        self._pictures = context.pictures

    def run(self, find: Callable[[], Found], decide: Decide, request: Any = None) -> Any:
        """Finds logs, decides, commits the decision, and returns the answer. `find` and `decide` may be called more
        than once.

        Raises:
            HeadraceError: the error that `find` or `decide` raises or answers; nothing was written. Overloaded,
                OutcomeUnknown: as in an append.
        """
        context, clock = self._context, self._stores.clock
        attempt = Attempt(context, Budget(clock, self._stores.settings.append_timeout_ms))
        while True:
            found = find()
            looks = [context.look_at(picture) if picture is not None else None for picture in found.pictures]
            now_ms = clock.now_ms()
            decision = decide(looks, (Asked(request),), context, now_ms, attempt)
            answer = decision.answers[0]
            if isinstance(answer, HeadraceError):
                raise answer
            if not decision.entries or isinstance(attempt.commit(found, decision, now_ms), Committed):
                return answer
            attempt.budget.again(f"others keep changing this {self._surface.noun}")

    # What a decision is about.

    def ensure_alive(self, picture: Picture) -> Picture:
        """Returns the picture if, as far as this process knows, its log is not due to expire. Otherwise ends the log,
        unless something renewed it, and returns a fresh picture, of a log that has ended or not.
        """
        if not self._context.is_due(picture):
            return picture
        config = picture.row.config
        self.expire_if_due(picture.row)
        return self._pictures.look((config.name, config.role))

    def living(self, picture: Picture) -> Picture:
        """Returns the picture of a log that has not ended; a newer one if the log had to be read to know that.

        Raises:
            HeadraceError: the log has ended.
        """
        picture = self.ensure_alive(picture)
        error = self._surface.ended(picture.row.config, picture.state)
        if error is not None:
            self._pictures.drop(picture.row)
            raise error
        return picture

    def find_any(self, name: str) -> Found:
        """Returns the main log of a name, ended or not, with None in place of its picture if the name does not exist."""
        read = self._pictures.read_time()
        if self._stores.catalog.get(self._surface.name, name) is None:
            return Found((None,), read)
        return Found((self.ensure_alive(self._pictures.look(name)),), read)

    def find(self, *logs: Which) -> Found:
        """Returns logs as they are now, ended or not.

        Raises:
            HeadraceError: a name does not exist, or has no log with this role.
        """
        pictures = tuple(self.ensure_alive(self._pictures.look(which)) for which in logs)
        return Found(pictures, min(picture.read for picture in pictures))

    def find_living(self, *logs: Which) -> Found:
        """Returns logs as they are now, all of which live.

        Raises:
            HeadraceError: a name does not exist, has no log with this role, or has ended.
        """
        pictures = tuple(self.living(self._pictures.look(which)) for which in logs)
        return Found(pictures, min(picture.read for picture in pictures))

    def find_all(self, name: str) -> Found:
        """Returns all logs of a name as they are now, the main one first, ended or not.

        Raises:
            HeadraceError: the name does not exist.
        """
        main = self.ensure_alive(self._pictures.look(name))
        companions = tuple(self._pictures.look_at(row, main.read) for row in main.row.companions)
        return Found((main, *companions), main.read)

    # Ends.

    def delete(self, name: str, check: Callable[[Sequence[Look | None]], None] = lambda _: None) -> bool:
        """Deletes a name with all its logs. Returns False if it was deleted before and no fork needs its data.

        Args:
            check: raises an error if the name must not be deleted; gets all its logs, the main one first.

        Raises:
            NotFound: the name never existed; or it has expired, and no fork needs its data.
            Gone: it was deleted before or has expired, and forks still need its data.
        """
        ended: list[Look] = []

        def decide(looks: Sequence[Look | None], _: Sequence[Request], __: Rows, ___: int, ____: Ids) -> Decision:
            look = looks[0]
            assert look is not None, "it was found"
            if look.state.ended:
                if look.state.ended == "deleted" and not look.state.forks:
                    return Decision((False,))
                return Decision((self._surface.ended(look.config, look.state) or NotFound(name),))
            check(looks)
            ended[:] = [look]
            return Decision((True,), _end(looks, "delete", "deleted"))

        if not self.run(lambda: self.find_all(name), decide):
            return False
        # It is deleted now, and that is the answer, whatever becomes of the rest: the purge does it again.
        with suppress(Exception):
            self._stores.mark_ended(ended[0].row, ended[0].state)
            self.release_source(ended[0].log_id, ended[0].config)
        return True

    def expire_if_due(self, row: Row) -> int | None:
        """Ends a main log and its companions if the deadline has passed and nothing renewed it.

        Returns:
            The deadline in epoch milliseconds if it is in the future; None if the log has ended, or never expires.
        """
        has_ended = False
        touched_ms = 0
        last: LogState | None = None

        def find() -> Found:
            nonlocal touched_ms
            read = self._pictures.read_time()
            touched_ms = self._stores.watermarks.usage(row.log_id).touched_ms
            self._pictures.remember_touch(row.log_id, touched_ms)
            newest = [(one, self._stores.wal.newest(one.log_id)) for one in row.logs]
            return Found(tuple(Picture(one, last, read) if last is not None else None for one, last in newest), read)

        def decide(looks: Sequence[Look | None], _: Sequence[Request], __: Rows, now_ms: int, ____: Ids) -> Decision:
            nonlocal has_ended, last
            look = looks[0]
            has_ended = True
            last = look.state if look is not None else None
            if look is None or look.state.ended:
                return Decision((None,))
            ends_ms = deadline_ms(row.config, look.state, touched_ms)
            if ends_ms is None or now_ms < ends_ms:
                has_ended = False
                return Decision((ends_ms,))
            guard = TouchUnchanged(row.log_id, touched_ms)
            return Decision((None,), _end(looks, "expire", "expired"), (guard,))

        ends_ms: int | None = self.run(find, decide)
        if has_ended:
            self._stores.mark_ended(row, last)
        return ends_ms

    def rest(self, row: Row, slot: int) -> None:
        """Writes an entry after the entry at a slot, so that it can be trimmed; does nothing if it is not the newest entry
        of a living log. It changes nothing but the floor, if there are records that are kept no longer.
        """

        def find() -> Found:
            read = self._pictures.read_time()
            newest = self._stores.wal.newest(row.log_id)
            is_it = newest is not None and newest.slot == slot and not newest.state.ended
            return Found((Picture(row, newest, read) if newest is not None and is_it else None,), read)

        def decide(looks: Sequence[Look | None], _: Sequence[Request], __: Rows, now_ms: int, ____: Ids) -> Decision:
            (look,) = looks
            return Decision(
                (None,), (Draft(row.log_id, "rest", look.state.retained(now_ms)),) if look is not None else ()
            )

        self.run(find, decide)

    def touch(self, picture: Picture) -> None:
        """Renews the sliding deadline, if the log has one and, as far as this process knows, a tenth of the TTL has passed
        since the last renewal.
        """
        ttl_ms = picture.row.config.ttl_ms
        if ttl_ms is None:
            return
        log_id = picture.row.log_id
        now_ms = self._stores.clock.now_ms()
        known_ms = max(picture.state.touched_ms, self._pictures.touched_ms(log_id))
        if now_ms - known_ms >= ttl_ms // _TOUCH_FRACTION:
            self._stores.watermarks.touch(log_id, now_ms)
            self._pictures.remember_touch(log_id, now_ms)

    # Forks.

    def release_source(self, log_id: str, config: LogConfig) -> None:
        """Releases a fork's hold on its source, if the fork has ended and has no forks of its own. Repeats this for the
        source if it has ended, too.
        """
        while config.source is not None:
            has_ended = self.run(partial(self._fork_and_source, log_id, config), _release)
            if not has_ended:
                return
            upper = self._config(config.source.log_id, config.source.name, config)
            if upper is None:
                return
            log_id, config = config.source.log_id, upper

    def _fork_and_source(self, log_id: str, config: LogConfig) -> Found:
        """Reads the newest entries of a fork and its source, without their names' rows. Finds None for both if the fork is
        still in use or no longer holds its source. Raises Damaged if the source is missing.
        """
        read = self._pictures.read_time()
        fork = self._stores.wal.newest(log_id)
        assert config.source is not None
        if fork is None or not fork.state.ended or fork.state.forks or not fork.state.holds_source:
            return Found((None, None), read, is_named=False)
        source = self._stores.wal.newest(config.source.log_id)
        if source is None:
            raise Damaged(f"a fork's source is gone: fork={log_id} source={config.source.log_id}")
        pictures = (_nameless(fork, config, read), _nameless(source, config, read))
        return Found(pictures, read, is_named=False)

    def _config(self, log_id: str, name: str, fork: LogConfig) -> LogConfig | None:
        """Returns the configuration of a source from its name's row; None if the row is that of another log. The row
        remains until the name is created again, which living forks prevent.
        """
        row: Row | None = self._stores.catalog.get(fork.surface, name)
        return row.config if row is not None and row.log_id == log_id else None


def worker_controls(stores: Stores) -> Controls:
    """Returns controls that can expire and release logs of every surface, for worker processes."""
    return Controls(Context(stores, AnySurface()))


def _end(looks: Sequence[Look | None], kind: str, how: str) -> tuple[Draft, ...]:
    """Returns drafts of the entries that end those logs of a name that have not ended."""
    living = [look for look in looks if look is not None and not look.state.ended]
    return tuple(Draft(look.log_id, kind, replace(look.state, ended=how)) for look in living)


def _nameless(newest: Entry, config: LogConfig, read: Moment) -> Picture:
    """Returns a picture from a log's newest entry alone, without the row of its name."""
    return Picture(Row(newest.log_id, config), newest, read)


def _release(looks: Sequence[Look | None], _: Sequence[Request], __: Rows, ___: int, ____: Ids) -> Decision:
    """Decides that a fork no longer holds its source; writes nothing if there is no fork or no source. The answer is
    whether the source has ended.
    """
    fork, source = looks
    if fork is None or source is None:
        return Decision((False,))
    released = replace(fork.state, holds_source=False)
    uncounted = replace(source.state, forks=max(0, source.state.forks - 1))
    entries = (Draft(fork.log_id, "release", released), Draft(source.log_id, "unfork", uncounted))
    return Decision((bool(uncounted.ended),), entries)
