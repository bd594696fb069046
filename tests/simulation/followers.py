"""Who follows a log: what processes ask, the laws, and mutants.

A process that was told where its following begins was promised to hear of all that is appended after it: each entry must be
sent to the relay, and the follower's row be there, when it is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from headrace.errors import Damaged, HeadraceError, StoreError
from headrace.log import following, logs
from headrace.log.logs import Log
from headrace.recovery import survey
from headrace.tables.follows import Follow
from headrace.topics.values import LEASES
from headrace.wal.state import Entry
from tests.simulation.log_model import LogModel
from tests.simulation.mutant import Mutant
from tests.simulation.plan import TOPIC_NAMES

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import Running, World

LONGEST_MS = 60_000


class Promise(NamedTuple):
    """From which offset on a follower hears, and until when; 0: for ever."""

    first: int
    until_ms: int

    def is_about(self, entry: Entry) -> bool:
        """Whether it must hear of an entry."""
        in_time = not self.until_ms or entry.committed_ms < self.until_ms
        return bool(entry.count) and entry.offset >= self.first and in_time


class FollowOperations:
    """One operation of a follower."""

    def __init__(self, world: World, process: Process, running: Running) -> None:
        self._world = world
        self._running = running
        self._dice = running.op.dice
        name = running.op.name
        self._log: Log = process.topics if name in TOPIC_NAMES else process.logs
        self._follows = process.stores.follows
        is_lease_log = name.startswith("q") and self._dice[0] < 0.3
        self._which = (name, LEASES if is_lease_log else "")
        self._now_ms = process.clock.now_ms()

    def kind(self) -> str:
        """Returns what the operation does."""
        return self._running.op.kind

    def failed(self, exc: Exception) -> None:
        """The verb raised."""
        if isinstance(exc, Damaged) or not isinstance(exc, (HeadraceError, StoreError)):
            self._world.broken("no unexpected error", f"{exc!r}")

    def _key(self) -> tuple[str, str]:
        is_topic = self._which[0] in TOPIC_NAMES and not self._which[1]  # one with routers is not deleted
        return ("router" if self._dice[1] < 0.5 and not is_topic else "bell"), f"f{int(self._dice[2] * 2)}"

    def follow(self) -> None:
        """A follower comes, or is renewed."""
        kind, name = self._key()
        log_id = self._log.head(self._which).log_id
        lasts_ms = 0 if kind == "router" else self._now_ms + int(self._dice[3] * LONGEST_MS)
        standing = self._follows.get(log_id, kind, name) if self._dice[4] < 0.8 else None
        follow = Follow(log_id, kind, name, b"%d" % int(self._dice[5] * 2), lasts_ms)
        head = self._log.follow(self._which, follow, replaces=standing)
        if self._world.tracing:
            self._world.trace(f"   -> {head.log_id[-8:]} {head.state.next_offset} followers={head.state.followers}")
        self._world.followers.promise(follow, head.state.next_offset, self._running.start)

    def unfollow(self) -> None:
        """A follower goes."""
        kind, name = self._key()
        log_id = self._log.head(self._which).log_id
        standing = self._follows.get(log_id, kind, name)
        if standing is not None:
            self._log.unfollow(self._which, replace(standing, version=1) if self._dice[4] < 0.5 else standing)


class Followers:
    """The laws of followers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._heard: dict[tuple[str, int, str], frozenset[str]] = {}  # by entry: who was told
        self._promises: dict[tuple[str, str], list[Promise]] = {}
        self._left: dict[tuple[str, str], int] = {}  # the step at which one went

    def _law(self, law: str) -> str:
        self._world.checked[law] += 1
        return law

    def _rows(self, log_id: str) -> list[Follow]:
        return [row for (log, _), row in self._world.raw["follows"].rows.items() if log == log_id]

    def committed(self, log: LogModel, entry: Entry) -> None:
        """An entry of the chain took effect, with its guards."""
        keys = {row.key for row in self._rows(log.log_id)}
        told = frozenset(keys) if entry.state.is_followed(entry.committed_ms) else frozenset[str]()
        self._heard[log.log_id, entry.slot, entry.id] = told
        for (log_id, key), promises in self._promises.items():
            if log_id == log.log_id:
                for one in promises:
                    self._hears(key, one, entry)
        if entry.kind in ("follow", "unfollow"):
            law, before = self._law("who follows changes nothing else"), log.entries[-2].state
            state = entry.state
            after = replace(before, followers=state.followers, followed_ms=state.followed_ms)
            after = replace(after, extension=state.extension)  # any entry of a topic may reserve bytes
            if entry.state != after or entry.count:
                self._world.broken(law, f"{log.log_id[-8:]} {entry.state} was {before}")
        if not self._world.model.recovering:
            self._counts(log)

    def _hears(self, key: str, promise: Promise, entry: Entry) -> None:
        law = self._law("a follower hears of all that is appended")
        told = self._heard.get((entry.log_id, entry.slot, entry.id))
        if promise.is_about(entry) and told is not None and key not in told:
            self._world.broken(law, f"{key} {promise} of {entry.log_id[-8:]}: {entry.kind} at {entry.offset}")

    def promise(self, follow: Follow, first: int, start: int) -> None:
        """A process was told where following begins; it asked at step `start`."""
        log = self._world.model.logs.get(follow.log_id)
        if log is None or self._left.get((follow.log_id, follow.key), -1) >= start:
            return
        promise = Promise(first, follow.until_ms)
        self._promises.setdefault((follow.log_id, follow.key), []).append(promise)
        for entry in log.entries:
            self._hears(follow.key, promise, entry)

    def left(self, follow: Follow) -> None:
        """Somebody who wanted so removed a follower."""
        self._promises.pop((follow.log_id, follow.key), None)
        self._left[follow.log_id, follow.key] = self._world.scheduler.step()

    def rewind(self) -> None:
        """The tables are others: nothing that was promised holds."""
        self._promises.clear()
        self._heard.clear()

    def at_rest(self) -> None:
        """Every log says who follows it."""
        for log in self._world.model.logs.values():
            self._counts(log)

    def _counts(self, log: LogModel) -> None:
        law, model = self._law("a log's followers are its rows"), self._world.model
        if log.now.ended or log.log_id in model.left_alone or log.log_id in model.refused:
            return
        state, rows = log.tip.state, self._rows(log.log_id)
        if state.followers != sum(row.stays for row in rows):
            self._world.broken(law, f"{log.log_id[-8:]} counts {state.followers}: {rows}")
        if any(row.until_ms > state.followed_ms for row in rows):
            self._world.broken(law, f"{log.log_id[-8:]} is followed until {state.followed_ms}: {rows}")


# Mutants.


def follow_late(self: Log, which: Any, follow: Follow, *, replaces: Follow | None = None) -> Any:
    """The log is read, and then the row is written."""
    head = self.head(which)
    _follow(self, which, follow, replaces=replaces)
    return head


def _unfollow_once_more(follow: Follow) -> Any:
    """One less follows, even if another took the row away."""
    decide = _unfollowing(follow)

    def decide_again(looks: Any, requests: Any, rows: Any, now_ms: int, ids: Any) -> Any:
        decision = decide(looks, requests, rows, now_ms, ids)
        return decision._replace(guards=())

    return decide_again


def _deadline_of_the_row(state: Any, follow: Any, replaces: Any, now_ms: int) -> Any:
    """An entry is written only when under half of the time remains, whenever the row ends."""
    after = _followed(state, follow, replaces, now_ms)
    lasts = follow is not None and follow.until_ms
    if not lasts or state.followed_ms - now_ms >= (follow.until_ms - now_ms) / 2:
        return replace(after, followed_ms=state.followed_ms)
    return replace(after, followed_ms=max(state.followed_ms, follow.until_ms))


def _look_without_followers(*asked: Any, **more: Any) -> Any:
    return replace(_look(*asked, **more), followers=None, followed_ms=0)


_follow, _unfollowing, _followed, _look = Log.follow, logs.unfollowing, following.followed, survey.look

MUTANTS = (
    Mutant("follow row late", "a follower misses an append", (Log, "follow", follow_late)),
    Mutant(
        "one that went is counted off without its row",
        "two remove one follower",
        (logs, "unfollowing", _unfollow_once_more),
    ),
    Mutant(
        "row that outlasts the state's deadline",
        "a follower misses an append",
        (following, "followed", _deadline_of_the_row),
    ),
    Mutant(
        "recovery counts no followers",
        "rows of another moment than the entries",
        (survey, "look", _look_without_followers),
    ),
)
