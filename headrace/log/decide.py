"""The rules of appending, pure: a log's state and a request give a new state, a duplicate, or a refusal.

Nothing here reads a clock or a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from headrace import offset as offsets
from headrace.errors import (
    Conflict,
    Gone,
    HeadraceError,
    InvalidRequest,
    NotFound,
    ProducerGap,
    SequenceConflict,
    StaleProducer,
    StreamClosed,
)
from headrace.limits import PRODUCERS_IN_STATE
from headrace.log.requests import Appended, AppendRequest
from headrace.wal.state import LogConfig, LogState, Producer, incarnation_of

_LATEST_MS = 253_402_300_799_999  # the end of year 9999: what RFC 3339 can say


class Accepted(NamedTuple):
    """The request changes the log: the state after it, the append time of its records, the producer that left."""

    state: LogState
    time_ms: int
    answer: Appended
    evicted: Producer | None = None


class Unchanged(NamedTuple):
    """The request is a repeat of something done already."""

    answer: Appended


class Refused(NamedTuple):
    """The request contradicts the state."""

    error: HeadraceError


Decision = Accepted | Unchanged | Refused


def ended(config: LogConfig, state: LogState) -> HeadraceError | None:
    """Why a log that has ended can't be used; None while it lives."""
    if not state.ended:
        return None
    if state.forks:
        return Gone(f"stream was {state.ended} and is kept for its forks: name={config.name}")
    return NotFound("stream expired" if state.ended == "expired" else f"stream not found: name={config.name}")


def deadline_ms(config: LogConfig, state: LogState, touched_ms: int) -> int | None:
    """When the log expires if nobody touches it; None if never. `touched_ms` is the last counted read."""
    if config.expires_at_ms is not None:
        return config.expires_at_ms
    if config.ttl_ms is None:
        return None
    return max(config.created_ms, state.touched_ms, touched_ms) + config.ttl_ms


def record_time(previous_ms: int, now_ms: int, hint_ms: int | None) -> int:
    """Append time of new records: the hint if there is one, else now; never before the previous record's."""
    return max(previous_ms, min(now_ms if hint_ms is None else hint_ms, _LATEST_MS))


def append(
    config: LogConfig,
    state: LogState,
    request: AppendRequest,
    now_ms: int,
    spilled: Mapping[str, Producer | None],
) -> Decision:
    """Decides one append or close.

    Args:
        config, state: of the log.
        request: what is asked.
        now_ms: the server's clock.
        spilled: rows of producers that are not in the state; needed if `unknown_producer` names the request's.
    """
    gone = ended(config, state)
    if gone is not None:
        return Refused(gone)
    known = _producer(state, request, spilled)
    tail = offsets.encode(incarnation_of(config, state), state.next_offset)
    if request.producer is not None:
        early = _check_producer(state, request.producer, known, tail)
        if early is not None:
            return early
    if state.closed:
        if not request.records and request.producer is None and request.close:
            return Unchanged(Appended(tail, True, True, None))
        return Refused(StreamClosed(tail))
    if request.records and request.content_type != config.content_type:
        return Refused(
            Conflict(
                f"content type differs from the stream's: stream={config.content_type} request={request.content_type}"
            )
        )
    if request.seq is not None and state.last_seq is not None and request.seq <= state.last_seq:
        return Refused(SequenceConflict(state.last_seq, request.seq))
    return _accept(config, state, request, now_ms)


def unknown_producer(state: LogState, request: AppendRequest) -> str | None:
    """The producer whose row must be read before `append` can decide; None if the state says enough."""
    if request.producer is None or not state.producers_spilled:
        return None
    if any(producer.id == request.producer.id for producer in state.producers):
        return None
    return request.producer.id


def _producer(state: LogState, request: AppendRequest, spilled: Mapping[str, Producer | None]) -> Producer | None:
    if request.producer is None:
        return None
    for producer in state.producers:
        if producer.id == request.producer.id:
            return producer
    return spilled.get(request.producer.id) if state.producers_spilled else None


def _check_producer(state: LogState, asked: Producer, known: Producer | None, tail: str) -> Decision | None:
    """The table of protocol § 5.2.1; None if the write is new."""
    if known is None or asked.epoch > known.epoch:
        if asked.seq == 0:
            return None
        if known is None:
            # The protocol leaves a first write that is not number 0 open; 409 lets a pipelining client wait for it.
            return Refused(StreamClosed(tail) if state.closed else ProducerGap(0, asked.seq))
        return Refused(InvalidRequest("a new producer epoch must start at sequence 0"))
    if asked.epoch < known.epoch:
        return Refused(StaleProducer(known.epoch))
    if asked.seq <= known.seq:
        return Unchanged(Appended(tail, state.closed, True, known))
    if asked.seq > known.seq + 1 and not state.closed:
        return Refused(ProducerGap(known.seq + 1, asked.seq))
    return None


def _accept(config: LogConfig, state: LogState, request: AppendRequest, now_ms: int) -> Accepted:
    producers, evicted = state.producers, None
    if request.producer is not None:
        rest = [producer for producer in producers if producer.id != request.producer.id]
        if len(rest) == PRODUCERS_IN_STATE:
            evicted = rest.pop(0)
        producers = (*rest, request.producer)
    time_ms = record_time(state.append_time_ms, now_ms, request.time_hint_ms)
    after = replace(
        state,
        next_offset=state.next_offset + len(request.records),
        append_time_ms=time_ms if request.records else state.append_time_ms,
        touched_ms=max(state.touched_ms, now_ms),
        total_bytes=state.total_bytes + len(request.records.data),
        last_seq=request.seq if request.seq is not None else state.last_seq,
        closed=request.close,
        closed_by=request.producer if request.close else None,
        producers=producers,
        producers_spilled=state.producers_spilled or evicted is not None,
    )
    tail = offsets.encode(incarnation_of(config, after), after.next_offset)
    return Accepted(after, time_ms, Appended(tail, request.close, False, request.producer), evicted)
