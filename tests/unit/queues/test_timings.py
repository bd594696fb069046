"""What events add to the timings of a queue, against a model that notes every job, one by one."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.definition import built_in
from headrace.json import jsontext
from headrace.query.language import canonical, rollup
from headrace.query.language.rollup import Groups, Part
from headrace.queues import events
from headrace.queues.events import Parts, Timings
from headrace.queues.projection import Projection, apply
from headrace.queues.timings import COUNTERS, ROLLUP, SUMMARIES, measure, parts
from headrace.topics.values import TIMINGS
from tests.support.examples import examples
from tests.unit.queues.desk import NOW_MS, Desk, seqs
from tests.unit.queues.histories import History

MINUTE_MS = 60_000


def bucket(value: int) -> str:
    """Returns the name of a value's bucket."""
    return str(2 ** int(math.log2(max(1, value))))


def expected(measured: list[tuple[int, str, int]]) -> Timings | None:
    """Returns what an event must say for which this was noted."""
    found: dict[str, Any] = {}
    for name in SUMMARIES:
        values = [value for _, what, value in measured if what == name]
        if values:
            buckets = Counter(map(bucket, values))
            found[name] = Parts(len(values), sum(values), min(values), max(values), dict(buckets))
    for name in COUNTERS:
        found[name] = sum(what == name for _, what, _ in measured)
    timings = Timings(**found)
    return None if timings == Timings() else timings


@examples(100)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_each_event_says_what_happened_to_its_jobs_and_the_rollup_is_their_sum(seed: int, steps: int) -> None:
    history, projection = History(seed), Projection()
    history.model.pass_time(NOW_MS + seed % (10 * MINUTE_MS))
    model, records = history.model, []
    for _ in range(steps):
        appended = {at: job.appended_ms for at, job in model.jobs.items()}
        count = len(model.measured)
        event = history.step()
        if event is not None:
            timings = measure(projection, event, appended)
            assert timings == expected(model.measured[count:])
            event = replace(event, timings=timings)
            records.append(events.encode(event))
            assert events.decode(records[-1], "test") == event
            projection = apply(projection, event)
    check_rollup(records, model.measured)


def check_rollup(records: list[bytes], measured: list[tuple[int, str, int]]) -> None:
    """Checks that the built-in rollup of these records has what was measured in each of its intervals."""
    definition = built_in(TIMINGS.nonce)
    assert definition is not None and definition.search is not None
    compiled = rollup.rollups(definition.search)
    groups = Groups(compiled.values())
    for data in records:
        document = jsontext.loads(data)
        groups.add(canonical.values(definition.search, 1, document, groups.fields), document)
    rows = {(row.interval_ms, row.start_ms): row.parts for row in groups.rows()}
    for interval in compiled[ROLLUP].intervals:
        for start in {at - at % interval for at, _, _ in measured}:
            found = dict(zip(compiled[ROLLUP].measures, rows.pop((interval, start)), strict=True))
            for name, part in found.items():
                values = [value for at, what, value in measured if what == name and at - at % interval == start]
                assert _shown(name, part) == _wanted(name, values), name
    # Events that measured nothing are in the other intervals.
    assert all(part.count == 0 for row in rows.values() for part in row)


def _shown(name: str, part: Part) -> Any:
    return part.sum or 0 if name in COUNTERS else (part.count, part.sum, part.min, part.max, part.histogram)


def _wanted(name: str, values: list[int]) -> Any:
    if name in COUNTERS:
        return sum(values)
    if not values:
        return 0, None, None, None, None
    return len(values), sum(values), min(values), max(values), dict(Counter(map(bucket, values)))


def _timings(desk: Desk) -> list[Timings | None]:
    return [events.decode(data, "test").timings for data in desk.written]


def test_decisions_measure_what_they_do() -> None:
    desk = Desk(lease_ms=1000)
    desk.produce(b"1", b"2")
    desk.now_ms += 40
    desk.produce(b"3")
    desk.now_ms += 10
    assert seqs(desk.claim("a", 3)) == [1, 2, 3]
    desk.now_ms += 700
    desk.ack("a", 1)
    desk.settle("nack", "a", [2])
    desk.now_ms += 2000
    assert seqs(desk.claim("b", 3)) == [2, 3]
    desk.now_ms += 5
    desk.settle("extend", "b", [2], lease_ms=5000)
    desk.now_ms += 5
    desk.ack("b", 2, 3)
    assert _timings(desk) == [
        Timings(wait=Parts(3, 110, 10, 50, {"32": 2, "8": 1})),
        Timings(run=Parts(1, 700, 700, 700, {"512": 1}), attempts=Parts(1, 1, 1, 1, {"1": 1})),
        Timings(nacked=1),
        Timings(redelivered=2, expired=1),
        None,
        Timings(run=Parts(2, 20, 10, 10, {"8": 2}), attempts=Parts(2, 4, 2, 2, {"2": 2})),
    ]


def test_requests_that_share_an_entry_note_an_end_of_a_lease_once() -> None:
    desk = Desk(lease_ms=100)
    desk.produce(b"1", b"2")
    desk.claim("a", 1)
    desk.now_ms += 101
    desk.ask(desk.claiming("b"), desk.claiming("c"))
    assert _timings(desk)[1:] == [
        Timings(redelivered=1, expired=1),
        Timings(wait=Parts(1, 101, 101, 101, {"64": 1})),
    ]


def test_a_lease_has_not_ended_in_its_last_millisecond() -> None:
    desk = Desk(lease_ms=100)
    desk.produce(b"1", b"2")
    desk.claim("a", 2)
    desk.now_ms += 100
    desk.settle("extend", "a", [1], lease_ms=100)
    desk.now_ms += 1
    desk.settle("extend", "a", [1], lease_ms=100)
    assert _timings(desk)[1:] == [None, Timings(expired=1)]


def test_members_of_a_window_measure_together() -> None:
    desk = Desk(claim_jitter_ms=20)
    desk.produce(b"1", b"2", b"3")
    share = desk.join("a", 2)
    desk.join("b", 2)
    desk.now_ms += 20
    desk.ask(share)
    assert _timings(desk) == [None, None, Timings(wait=Parts(3, 60, 20, 20, {"16": 3}))]


def test_a_job_of_a_clock_that_is_ahead_has_waited_for_nothing() -> None:
    desk = Desk()
    desk.produce(b"1")
    desk.now_ms -= 30
    desk.claim("a")
    assert _timings(desk) == [Timings(wait=Parts(1, 0, 0, 0, {"1": 1}))]


def test_a_summary_has_each_value_as_often_as_it_occurs() -> None:
    assert parts([]) is None
    assert parts([(7, 2), (1, 1), (7, 1)]) == Parts(4, 22, 1, 7, {"4": 3, "1": 1})
