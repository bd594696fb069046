"""The rules of appending as a table, and what holds for every state."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from headrace.errors import Conflict, Gone, InvalidRequest, NotFound
from headrace.limits import PRODUCERS_IN_STATE
from headrace.log import seam as rules
from headrace.streams import verbs as decide
from headrace.streams.errors import ProducerGap, SequenceConflict, StaleProducer, StreamClosed
from headrace.streams.values import AppendRequest, StreamState, state_of
from headrace.streams.verbs import Accepted, Refused, Unchanged
from headrace.wal.state import LogState, Producer
from tests.support.builders import appending, closing, config, producing

NOW_MS = 1_700_000_000_000
OPEN = LogState(next_offset=7, append_time_ms=NOW_MS - 5, producers=(Producer("p", 3, 4),))
CLOSED = replace(OPEN, extension=StreamState(closed=True))


def decided(state: LogState, request: AppendRequest, **spilled: Any) -> Any:
    decision = decide.append(config(), state, request, NOW_MS, spilled)
    return type(decision.error) if isinstance(decision, Refused) else type(decision)


@pytest.mark.parametrize(
    ("epoch", "seq", "if_open", "if_closed"),
    [
        (2, 0, StaleProducer, StaleProducer),
        (2, 99, StaleProducer, StaleProducer),
        (3, 0, Unchanged, Unchanged),
        (3, 4, Unchanged, Unchanged),
        (3, 5, Accepted, StreamClosed),
        (3, 6, ProducerGap, StreamClosed),
        (4, 0, Accepted, StreamClosed),
        (4, 1, InvalidRequest, InvalidRequest),
    ],
)
def test_a_known_producer(epoch: int, seq: int, if_open: type, if_closed: type) -> None:
    request = producing("p", seq, b"x", epoch=epoch)
    assert decided(OPEN, request) is if_open
    assert decided(CLOSED, request) is if_closed


@pytest.mark.parametrize(
    ("seq", "if_open", "if_closed"), [(0, Accepted, StreamClosed), (1, ProducerGap, StreamClosed)]
)
def test_an_unknown_producer(seq: int, if_open: type, if_closed: type) -> None:
    assert decided(OPEN, producing("q", seq, b"x")) is if_open
    assert decided(CLOSED, producing("q", seq, b"x")) is if_closed


def test_a_spilled_producer_is_known_only_where_some_were_spilled() -> None:
    row = Producer("q", 0, 5)
    spilled = replace(OPEN, producers_spilled=True)
    assert decide.unknown_producer(OPEN, producing("q", 5)) is None
    assert decide.unknown_producer(spilled, producing("q", 5)) == "q"
    assert decide.unknown_producer(spilled, producing("p", 5)) is None
    assert decide.unknown_producer(spilled, appending(b"x")) is None
    assert decided(spilled, producing("q", 5, b"x"), q=row) is Unchanged
    assert decided(spilled, producing("q", 6, b"x"), q=row) is Accepted
    assert decided(spilled, producing("q", 0, b"x"), q=None) is Accepted


def test_the_least_recent_producer_leaves_and_says_so() -> None:
    state, left = LogState(), []
    for number in [*range(PRODUCERS_IN_STATE), 0, *range(PRODUCERS_IN_STATE, PRODUCERS_IN_STATE + 3)]:
        known = any(producer.id == f"p{number}" for producer in state.producers)
        decision = decide.append(config(), state, producing(f"p{number}", int(known), b"x"), NOW_MS, {})
        assert isinstance(decision, Accepted)
        state = decision.state
        left += [decision.evicted.id] if decision.evicted else []
        assert state.producers_spilled == bool(left)
    assert left == ["p1", "p2", "p3"]
    assert len(state.producers) == PRODUCERS_IN_STATE


def test_what_is_closed_stays_closed_and_says_where_it_ends() -> None:
    assert decided(CLOSED, closing()) is Unchanged
    assert decided(CLOSED, closing(b"x")) is StreamClosed
    assert decided(CLOSED, appending(b"x", content_type="other/type")) is StreamClosed
    decision = decide.append(config(), CLOSED, appending(b"x"), NOW_MS, {})
    assert isinstance(decision, Refused)
    assert decision.error.next_offset == decide.append(config(), CLOSED, closing(), NOW_MS, {}).answer.next_offset  # type: ignore[union-attr,attr-defined]


def test_the_content_type_matters_where_there_is_content() -> None:
    assert decided(OPEN, appending(b"x", content_type="text/plain")) is Conflict
    assert decided(OPEN, appending(b"x", content_type=None)) is Conflict
    assert decided(OPEN, closing(content_type="text/plain")) is Accepted


@pytest.mark.parametrize(
    ("last", "seq", "outcome"), [(None, "", Accepted), ("a", "a", SequenceConflict), ("a", "b", Accepted)]
)
def test_stream_seq_rises(last: str | None, seq: str, outcome: type) -> None:
    assert decided(replace(OPEN, extension=StreamState(last)), appending(b"x", seq=seq)) is outcome


def test_a_request_without_a_sequence_keeps_the_last_one() -> None:
    decision = decide.append(config(), replace(OPEN, extension=StreamState("m")), appending(b"x"), NOW_MS, {})
    assert isinstance(decision, Accepted)
    assert state_of(decision.state).last_seq == "m"


@pytest.mark.parametrize(("forks", "error"), [(0, NotFound), (1, Gone)])
@pytest.mark.parametrize("ended", ["deleted", "expired"])
def test_what_has_ended_accepts_nothing(ended: Any, forks: int, error: type) -> None:
    state = replace(OPEN, ended=ended, forks=forks)
    for request in (appending(b"x"), closing(), producing("p", 4, b"x")):
        assert decided(state, request) is error


@pytest.mark.parametrize(
    ("hint_ms", "time_ms"),
    [
        (None, NOW_MS),
        (NOW_MS - 3, NOW_MS - 3),
        (NOW_MS - 99, NOW_MS - 5),
        (NOW_MS + 9, NOW_MS + 9),
        (2**60, 253_402_300_799_999),
    ],
)
def test_append_times_never_fall_and_can_be_written_down(hint_ms: int | None, time_ms: int) -> None:
    decision = decide.append(config(), OPEN, appending(b"x", time_hint_ms=hint_ms), NOW_MS, {})
    assert isinstance(decision, Accepted)
    assert (decision.time_ms, decision.state.append_time_ms, decision.state.touched_ms) == (time_ms, time_ms, NOW_MS)


def test_a_close_without_records_is_no_append_time() -> None:
    decision = decide.append(config(), OPEN, closing(time_hint_ms=NOW_MS + 9), NOW_MS, {})
    assert isinstance(decision, Accepted)
    assert decision.state.append_time_ms == OPEN.append_time_ms
    assert (decision.state.is_final, decision.state.next_offset) == (True, 7)


def test_deadlines() -> None:
    touched = replace(OPEN, touched_ms=50)
    assert rules.deadline_ms(config(), touched, 99) is None
    assert rules.deadline_ms(config(expires_at_ms=7), touched, 99) == 7
    assert rules.deadline_ms(config(ttl_ms=10, created_ms=40), touched, 0) == 60
    assert rules.deadline_ms(config(ttl_ms=10, created_ms=40), touched, 99) == 109
    assert rules.deadline_ms(config(ttl_ms=10, created_ms=70), touched, 0) == 80
