"""Visits followers, and sees to it that an unfinished visit is followed by another.

A follower that must be visited again waits: its row says from when on (`Follow.due_ms`), and one message asks for the
visit. The row is written first. So of a follower that is not up to date either its row says so, or a message or batch that
is not done will visit it; and the sweep asks again for visits whose time has passed long ago.

A message to a waiting follower is numbered by that time: if the row says another, a later message has taken over. So
repeats, sweeps and appends never multiply the messages of a follower.

As long as a follower waits, appends do not lead to visits: a full destination or a silent receiver costs nothing more when
its source is busy. An append that came meanwhile is not missed: the visit that ends the waiting is followed by one more,
after the row says so. What was appended before that is found by this visit; what comes after it leads to its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from functions.metrics import RelayMetric
from functions.queue import Message
from functions.relay.context import Context
from functions.relay.followers import Follower, Hint
from headrace.clock import Budget, Threads, within_deadline
from headrace.errors import Overloaded
from headrace.tables.follows import Follow

BELL = "bell"
LOST_MS = 30_000  # after its time, a visit's message counts as lost: others then visit, too
NAMED = 25  # followers in a message
AT_ONCE = 400  # visits in one run: a bound where clocks stand still
FIRST_RETRY_S = 1.0
LAST_RETRY_S = 60.0
_TRIES = 8
_VISITORS = Threads(16, "visit")


class Limits(NamedTuple):
    """The bounds of one run: seconds in which visits are begun, and milliseconds in which each begins its store calls."""

    run_ms: int
    visit_ms: int


class Task(NamedTuple):
    """A visit to make.

    Attributes:
        follow: the follower's row, as read after what it is told of.
        turn: how many of its visits in a row have failed.
        force: whether the visit is wanted although the follower waits for a later one.
    """

    follow: Follow
    hint: Hint = Hint()
    turn: int = 0
    force: bool = False


def waits(follow: Follow, now_ms: int) -> bool:
    """Returns whether a later visit of the follower is asked for already, by a message that is not lost."""
    return bool(follow.due_ms) and now_ms < follow.due_ms + LOST_MS


class Visits:
    """The visits of one process.

    Args:
        followers: the followers by kind.
        failed: called for each visit that failed, while its error is being handled.
    """

    def __init__(self, parts: Context, followers: Mapping[str, Follower], failed: Callable[[Follow], None]) -> None:
        self._parts = parts
        self._follows = parts.stores.follows
        self._followers = followers
        self._failed = failed

    def run(self, tasks: Sequence[Task], limits: Limits) -> list[Message]:
        """Visits followers, several at a time, bells first; raises nothing. Returns the messages for what remains: they
        must be sent before what asked for the visits counts as done.
        """
        budget = Budget(self._parts.stores.clock, limits.run_ms)

        def visit(task: Task) -> tuple[bool, Message | None]:
            if budget.spent:
                return False, None
            return True, self._visit(task, limits)

        bells = [task for task in tasks if task.follow.kind == BELL]
        others = [task for task in tasks if task.follow.kind != BELL]
        ordered = [*bells, *others]
        begun = ordered[:AT_ONCE]
        ends = [
            *_VISITORS.map(visit, begun[: len(bells)]),
            *_VISITORS.map(visit, begun[len(bells) :]),
        ]
        late = [task for task, (done, _) in zip(begun, ends, strict=True) if not done] + ordered[AT_ONCE:]
        self._parts.meter.add(RelayMetric.VisitsPutOff, len(late))
        return [*(message for _, message in ends if message is not None), *put_off(late)]

    def _visit(self, task: Task, limits: Limits) -> Message | None:
        """Visits one follower. Returns the message that asks for its next visit; None if it needs none, or has one."""
        meter, follow, turn = self._parts.meter, task.follow, 0
        meter.add(RelayMetric.Visits)
        try:
            if follow.until_ms and follow.until_ms <= self._parts.now_ms():
                self._follows.remove(follow)  # or it was renewed, and then the renewal's entry is told of
                return None
            with within_deadline(limits.visit_ms):
                again_s = self._followers[follow.kind].visit(follow, task.hint)
            if again_s is not None:
                meter.add(RelayMetric.VisitsBlocked if again_s else RelayMetric.VisitsContinued)
        except Exception:  # noqa: BLE001 - one poisoned follower must not delay the others
            self._failed(follow)
            turn = task.turn + 1
            again_s = min(LAST_RETRY_S, FIRST_RETRY_S * 2 ** min(task.turn, 10))
        try:
            return self._end(follow, again_s, turn, limits)
        except Exception:  # noqa: BLE001 - as above; then the message alone remembers the follower
            self._failed(follow)
            return self._message(follow, force=True, not_before_ms=self._parts.now_ms() + 1000, turn=turn)

    def _end(self, seen: Follow, again_s: float | None, turn: int, limits: Limits) -> Message | None:
        """Notes in the follower's row whether it waits for another visit.

        Args:
            seen: the row as it was before the visit. Only who saw that it waits may end this: another visit may have
                found more to do since.
        """
        if again_s is None and not seen.due_ms:
            return None
        for _ in range(_TRIES):
            row = self._follows.get(seen.log_id, seen.kind, seen.id)
            if row is None:
                return None
            if row.due_ms != seen.due_ms and (again_s is None or row.due_ms):
                return None  # another visit has taken over
            due_ms = 0
            if again_s is not None:
                due_ms = self._parts.now_ms() + round(again_s * 1000)
                due_ms += due_ms == seen.due_ms  # the time numbers the message
            noted = replace(row, due_ms=due_ms)
            if not self._follows.put(noted, row):
                continue
            if due_ms:
                return self._message(row, due_ms=due_ms, not_before_ms=due_ms if again_s else 0, turn=turn)
            # A reader of the row before now has left what was appended until then to this visit.
            return self._visit(Task(replace(noted, version=row.version + 1)), limits)
        raise Overloaded(f"a follower's row changes all the time: log_id={seen.log_id} follower={seen.key}")

    @staticmethod
    def _message(follow: Follow, *, not_before_ms: int, turn: int, due_ms: int = 0, force: bool = False) -> Message:
        return Message(
            "visit",
            follow.log_id,
            not_before_ms=not_before_ms,
            force=force,
            followers=(follow.key,),
            due_ms=due_ms,
            turn=turn,
        )


def put_off(tasks: Iterable[Task]) -> Iterator[Message]:
    """Yields messages that ask for the same visits, of up to 25 followers of one log each."""
    named: dict[Message, list[str]] = {}
    for follow, _, turn, force in tasks:
        due_ms = 0 if force else follow.due_ms
        named.setdefault(Message("visit", follow.log_id, force=force, due_ms=due_ms, turn=turn), []).append(
            follow.key
        )
    for message, keys in named.items():
        for start in range(0, len(keys), NAMED):
            yield replace(message, followers=tuple(keys[start : start + NAMED]))
