"""What happened to feature tables in one round, and the laws of it. Pure: each says what contradicts it, and how often it
looked. Logs are those that a reader without faults finds when the round is over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from headrace.features.rows import AsOf
from tests.chaos.laws import Verdict
from tests.unit.features.oracle import Event, Shape, is_same, row

Lane = tuple[str, int]
"""The event, and the number of the lane."""


class Push(NamedTuple):
    """A push, from its first try to its last answer (monotonic seconds). `outcome`: acknowledged, unknown or refused; then
    every answer has said that nothing was written. `version` is the registry's, as acknowledged.
    """

    ids: tuple[str, ...]
    started: float
    ended: float
    outcome: str
    version: int = 0


class Registered(NamedTuple):
    """A registration that was answered with 200."""

    version: int
    started: float
    ended: float


class Read(NamedTuple):
    """An answer to a read: the rows of some entities, as of a prefix of each lane and a time."""

    started: float
    ended: float
    as_of: AsOf
    asked: tuple[tuple[str, str], ...]
    rows: tuple[dict[str, Any], ...]
    is_stale: bool = False


@dataclass
class Log:
    """A lane: its events, and the pipelines that apply to them, ascending."""

    shapes: Sequence[Shape]
    events: Sequence[Event]


@dataclass
class Tables:
    """Everything that happened in a round. `roots` is the event that each table comes from."""

    roots: Mapping[str, str] = field(default_factory=dict)
    pushes: list[Push] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    registered: list[Registered] = field(default_factory=list)
    logs: dict[Lane, Log] = field(default_factory=dict)

    @cached_property
    def places(self) -> dict[str, list[tuple[Lane, int]]]:
        """Lane and offset of each event in the logs, by its id."""
        found = defaultdict(list)
        for lane, log in self.logs.items():
            for event in log.events:
                found[event.data["id"]].append((lane, event.offset))
        return found

    @cached_property
    def of_user(self) -> dict[tuple[Lane, str], list[Event]]:
        """The events of each lane and user."""
        found = defaultdict(list)
        for lane, log in self.logs.items():
            for event in log.events:
                found[lane, event.data["user"]].append(event)
        return found

    def lane_of(self, table: str, key: str, read: Read) -> Lane:
        """Returns the lane of an entity: that of its events, if they are spread over several; one of the read if it has
        none.
        """
        lanes = [lane for lane in self.logs if lane[0] == self.roots[table]]
        of_read = next((lane for lane in lanes if lane in read.as_of.lanes), lanes[0])
        return next((lane for lane in lanes if len(lanes) > 1 and (lane, key) in self.of_user), of_read)

    def ends_of(self, push: Push) -> Iterator[tuple[Lane, int]]:
        """Yields the lane of a push's last event, and the offset after it."""
        for lane, offset in self.places.get(push.ids[-1], ()):
            yield lane, offset + 1


def what_was_acknowledged_is_in_the_log_once(tables: Tables) -> Verdict:
    """Checks that no acknowledged event is lost, and that none is there twice."""
    verdict = Verdict()
    for push in tables.pushes:
        for one in push.ids:
            count = len(tables.places.get(one, ()))
            verdict.require(count == 1 or (count == 0 and push.outcome != "acknowledged"), one, count, push)
    return verdict


def a_push_is_whole_or_absent(tables: Tables) -> Verdict:
    """Checks that the events of a push are side by side in one lane, or nowhere; and nowhere, if it was refused."""
    verdict = Verdict()
    for push in tables.pushes:
        at = [place for one in push.ids for place in tables.places.get(one, ())[:1]]
        is_absent = not at and push.outcome != "acknowledged"
        (event, number), first = at[0] if at else (("", 0), 0)
        is_whole = at == [((event, number), first + place) for place in range(len(push.ids))]
        verdict.require(is_absent or (is_whole and push.outcome != "refused"), push, at)
    return verdict


def a_read_has_all_that_was_acknowledged_before(tables: Tables) -> Verdict:
    """Checks that the prefix of a read has each push that was answered before the read began."""
    acked = [
        (push.ended, *end) for push in tables.pushes if push.outcome == "acknowledged" for end in tables.ends_of(push)
    ]
    return _reaches(tables, acked)


def prefixes_never_shrink(tables: Tables) -> Verdict:
    """Checks that the prefix of a read has that of each read that was answered before it began."""
    reads = [read for read in tables.reads if not read.is_stale]
    return _reaches(tables, [(read.ended, lane, end) for read in reads for lane, end in read.as_of.lanes.items()])


def _reaches(tables: Tables, known: Sequence[tuple[float, Lane, int]]) -> Verdict:
    """Checks that a read that began after a moment has what was known of a lane then."""
    verdict = Verdict()
    moments, ends = defaultdict[Lane, list[float]](list), defaultdict[Lane, list[int]](lambda: [0])
    for moment, lane, end in sorted(known):
        moments[lane].append(moment)
        ends[lane].append(max(end, ends[lane][-1]))
    for read in tables.reads:
        for lane, end in read.as_of.lanes.items():
            least = ends[lane][bisect_left(moments[lane], read.started)]
            verdict.require(read.is_stale or end >= least, lane, end, least, read.asked)
    return verdict


def a_row_is_that_of_its_prefix(tables: Tables) -> Verdict:
    """Checks that each row is what a naive computation makes of the prefix that the answer names, under the pipelines that
    were in force there.
    """
    verdict = Verdict()
    for read in tables.reads:
        for (table, key), found in zip(read.asked, read.rows, strict=True):
            lane = tables.lane_of(table, key, read)
            wanted = list(_rows(tables, read, lane, table, key)) if lane in read.as_of.lanes else []
            holds = any(one is not None and is_same(found, one) for one in wanted)
            verdict.require(holds, table, key, read.as_of, "is", found, "and should be", wanted)
    return verdict


def _rows(tables: Tables, read: Read, lane: Lane, table: str, key: str) -> Iterator[dict[str, Any] | None]:
    """Yields what a row of a lane can be: a registration at the very end of the prefix may be in force, or not yet."""
    log, end = tables.logs[lane], read.as_of.lanes[lane]
    version = max((one.version for one in tables.registered if one.ended < read.started), default=0)
    keys = log.shapes[-1].tables[table].keys
    parts: list[Any] = [] if not keys else [key] if keys == ("user",) else [int(key)]
    events = tables.of_user.get((lane, key), []) if keys == ("user",) else log.events
    prefix = [event for event in events if event.offset < end]
    for place, shape in enumerate(log.shapes, 1):
        following = log.shapes[place].since if place < len(log.shapes) else end
        is_due = place < len(log.shapes) and log.shapes[place].version <= version
        if shape.since <= end <= following and not is_due:
            yield row(log.shapes[:place], prefix, table, parts, read.as_of.now_ms, lane[1])


def no_push_is_taken_under_an_old_pipeline(tables: Tables) -> Verdict:
    """Checks that an event that was pushed after a registration was answered comes after the registration's entry; that it
    is acknowledged with the version of the pipeline at its offset, or a later one; and that it fits that pipeline.
    """
    verdict = Verdict()
    acked = [(push, *end) for push in tables.pushes if push.outcome == "acknowledged" for end in tables.ends_of(push)]
    for registered in tables.registered:
        since = {
            lane: shape.since
            for lane, log in tables.logs.items()
            for shape in reversed(log.shapes)
            if shape.version >= registered.version
        }
        for push, lane, end in acked:
            if push.started > registered.ended:
                verdict.require(end - len(push.ids) >= since.get(lane, 0), registered, push, since)
    for push, lane, end in acked:
        log = tables.logs[lane]
        shape = [one for one in log.shapes if one.since < end][-1]
        verdict.require(push.version >= shape.version, push, shape)
        verdict.require(all(shape.fits(one.data) for one in log.events[end - len(push.ids) : end]), push, shape)
    return verdict


LAWS: tuple[Callable[[Tables], Verdict], ...] = (
    what_was_acknowledged_is_in_the_log_once,
    a_push_is_whole_or_absent,
    a_read_has_all_that_was_acknowledged_before,
    prefixes_never_shrink,
    a_row_is_that_of_its_prefix,
    no_push_is_taken_under_an_old_pipeline,
)


def judge(tables: Tables) -> dict[str, Verdict]:
    """Returns the verdict of each law."""
    return {law.__name__.replace("_", " "): law(tables) for law in LAWS}
