"""The rules of streams, as pure functions: from requests and the logs' states to entries, and to answers (also repeats
and refusals).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from headrace import offset as offsets
from headrace.batch import EMPTY, Batch, concat
from headrace.definition import for_fork
from headrace.errors import Conflict, HeadraceError, InvalidRequest, NotFound
from headrace.log import seam as rules
from headrace.log.read import Reader
from headrace.log.requests import JSON, Head
from headrace.log.seam import Decision, Draft, Ids, Look, NamedObject, Request, Rows, Surface, name_definition
from headrace.streams.errors import ProducerGap, SequenceConflict, StaleProducer, StreamClosed
from headrace.streams.prepare import prepare
from headrace.streams.values import (
    STREAMS,
    Appended,
    AppendRequest,
    Created,
    CreateRequest,
    ForkRequest,
    StreamState,
    extension_of,
    state_of,
)
from headrace.tables.catalog import PutRow, Row
from headrace.tables.producers import PutProducer
from headrace.wal.state import DefinitionRef, ForkSource, LogConfig, LogState, Producer, TimeRun, incarnation_of

DEFAULT_CONTENT_TYPE = "application/octet-stream"


class Accepted(NamedTuple):
    """The verdict that a request changes the log: the state after it, the append time of its records, the answer, and
    the producer that leaves the state.
    """

    state: LogState
    time_ms: int
    answer: Appended
    evicted: Producer | None = None


class Unchanged(NamedTuple):
    """The verdict that the request is a repeat of something done before."""

    answer: Appended


class Refused(NamedTuple):
    """The verdict that the request contradicts the state."""

    error: HeadraceError


Verdict = Accepted | Unchanged | Refused


class Prepared(NamedTuple):
    """A request that was checked under one definition of a log, with the error if its records are invalid."""

    log_id: str
    definition: DefinitionRef | None
    request: AppendRequest
    fault: HeadraceError | None


class StreamSurface(Surface):
    """The surface of streams."""

    name = STREAMS
    noun = "stream"

    def decide(
        self, logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
    ) -> Decision:
        """Decides appends and closes of one stream."""
        return decide_appends(logs, requests, rows, now_ms, ids)


SURFACE = StreamSurface()


def decide_appends(
    logs: Sequence[Look | None],
    requests: Sequence[Request],
    rows: Rows,
    now_ms: int,
    ids: Ids,  # noqa: ARG001
) -> Decision:
    """Decides appends and closes of one stream; all that are accepted share one entry."""
    (look,) = logs
    assert look is not None, "an append looks at a log"
    state = look.state
    answers: list[Appended | HeadraceError] = []
    accepted: list[int] = []
    batches: list[Batch] = []
    times: list[TimeRun] = []
    evicted: dict[str, Producer] = {}
    for number, asked in enumerate(requests):
        prepared = asked.memo = _prepare(look, asked, rows, now_ms)
        request = prepared.request
        verdict = append(look.config, state, request, now_ms, _spilled(look, state, request, evicted, rows))
        if prepared.fault is not None and isinstance(verdict, Accepted):
            verdict = Refused(prepared.fault)
        if isinstance(verdict, Refused):
            answers.append(verdict.error)
            continue
        answers.append(verdict.answer)
        if isinstance(verdict, Accepted):
            state = verdict.state
            accepted.append(number)
            if request.producer is not None:
                evicted.pop(request.producer.id, None)
            if verdict.evicted is not None:
                evicted[verdict.evicted.id] = verdict.evicted
            if request.records:
                times.append(TimeRun(len(request.records), verdict.time_ms))
                batches.append(request.records)
    if not accepted:
        return Decision(answers)
    kind = "data" if batches else "close"
    entry = Draft(look.log_id, kind, state, batches, tuple(times), tuple(accepted))
    return Decision(answers, (entry,), tuple(PutProducer(look.log_id, one) for one in evicted.values()))


def _prepare(look: Look, asked: Request, rows: Rows, now_ms: int) -> Prepared:
    """Checks and normalizes a request's records under the current definition; the result is kept until the definition
    changes.
    """
    log_id, ref = look.log_id, look.state.definition
    request: AppendRequest = asked.request
    known: Prepared | None = asked.memo
    if known is not None and (known.log_id, known.definition) == (log_id, ref):
        return known
    if ref is None or not request.records:
        return Prepared(log_id, ref, request, None)
    definition = rows.definition(log_id, look.state)
    try:
        records = prepare(definition, request.content_type, request.records, now_ms)
    except HeadraceError as exc:
        return Prepared(log_id, ref, request, exc)
    return Prepared(log_id, ref, replace(request, records=records), None)


def _spilled(
    look: Look, state: LogState, request: AppendRequest, evicted: Mapping[str, Producer], rows: Rows
) -> dict[str, Producer | None]:
    wanted = unknown_producer(state, request)
    if wanted is None:
        return {}
    return {wanted: evicted[wanted] if wanted in evicted else rows.producer(look.log_id, wanted)}


def append(
    config: LogConfig,
    state: LogState,
    request: AppendRequest,
    now_ms: int,
    spilled: Mapping[str, Producer | None],
) -> Verdict:
    """Decides one append or close.

    Args:
        config, state: configuration and state of the log.
        request: the append or close.
        now_ms: the server's clock.
        spilled: rows of producers that are not in the state; required if `unknown_producer` returns the request's
            producer.
    """
    gone = SURFACE.ended(config, state)
    if gone is not None:
        return Refused(gone)
    known, stream = _producer(state, request, spilled), state_of(state)
    if request.producer is not None:
        early = _check_producer(config, state, request.producer, known)
        if early is not None:
            return early
    if stream.closed:
        if not request.records and request.producer is None and request.close:
            return Unchanged(Appended(_tail(config, state), True, True, None))
        return Refused(StreamClosed(_tail(config, state)))
    if request.records and request.content_type != config.content_type:
        return Refused(
            Conflict(
                f"content type differs from the stream's: stream={config.content_type} request={request.content_type}"
            )
        )
    if request.seq is not None and stream.last_seq is not None and request.seq <= stream.last_seq:
        return Refused(SequenceConflict(stream.last_seq, request.seq))
    return _accept(config, state, request, now_ms)


def unknown_producer(state: LogState, request: AppendRequest) -> str | None:
    """Returns the producer whose row must be read before `append` can decide; None if the state is enough."""
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


def _check_producer(config: LogConfig, state: LogState, asked: Producer, known: Producer | None) -> Verdict | None:
    """Applies the table of protocol § 5.2.1 to a producer's epoch and sequence number. Returns None if the write is
    new.
    """
    if known is None or asked.epoch > known.epoch:
        if asked.seq == 0:
            return None
        if known is None:
            # The protocol leaves a first write that is not number 0 open; 409 lets a pipelining client wait for it.
            return Refused(StreamClosed(_tail(config, state)) if state.is_final else ProducerGap(0, asked.seq))
        return Refused(InvalidRequest("a new producer epoch must start at sequence 0"))
    if asked.epoch < known.epoch:
        return Refused(StaleProducer(known.epoch))
    if asked.seq <= known.seq:
        return Unchanged(Appended(_tail(config, state), state.is_final, True, known))
    if asked.seq > known.seq + 1 and not state.is_final:
        return Refused(ProducerGap(known.seq + 1, asked.seq))
    return None


def _accept(config: LogConfig, state: LogState, request: AppendRequest, now_ms: int) -> Accepted:
    grown = rules.grow(state, request.records, now_ms, request.time_hint_ms, request.producer)
    after = grown.state
    if request.seq is not None or request.close:
        last_seq = request.seq if request.seq is not None else state_of(state).last_seq
        after = replace(after, extension=extension_of(StreamState(last_seq, request.close)))
    answer = Appended(_tail(config, after), request.close, False, request.producer)
    return Accepted(after, grown.time_ms, answer, grown.evicted)


def _tail(config: LogConfig, state: LogState) -> str:
    return offsets.encode(incarnation_of(config, state), state.next_offset)


# Creating.


def decide_create(
    logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
) -> Decision:
    """Decides a create. The first log is the name's current log, the second one a fork's source.

    The answer says whether a stream was created, and has its state.
    """
    old, *sources = logs
    source = sources[0] if sources else None
    name, request = _named(requests[0])
    incarnation = 0
    if old is not None:
        if not old.state.ended:
            return Decision((_existing(old, request),))
        if old.state.forks:
            raise Conflict(f"stream was deleted and its forks still need its data: name={old.config.name}")
        incarnation = incarnation_of(old.config, old.state) + 1
    if source is not None and request.fork is not None and source.state.ended:
        if source.state.forks:
            raise Conflict(f"fork source was deleted: name={request.fork.source}")
        raise NotFound(f"fork source not found: name={request.fork.source}")
    return _create(name, old.log_id if old is not None else None, incarnation, request, source, rows, now_ms, ids)


def _existing(look: Look, request: CreateRequest) -> Created:
    config = look.config
    expected = {
        "content type": request.content_type == config.content_type
        or (request.content_type is None and (config.source or config.content_type == DEFAULT_CONTENT_TYPE)),
        "expiry": _same_expiry(config, request),
        "closed": request.closed == look.state.is_final,
        "fork source": _same_source(config, request.fork),
    }
    for what, same in expected.items():
        if not same:
            raise Conflict(f"stream exists with another configuration: name={config.name} differs={what}")
    return Created(False, head_of(look.row, look.state, look.touched_ms))


def _named(asked: Request) -> tuple[str, CreateRequest]:
    name, request = asked.request
    return name, request


def _create(
    name: str,
    replaces: str | None,
    incarnation: int,
    request: CreateRequest,
    source: Look | None,
    rows: Rows,
    now_ms: int,
    ids: Ids,
) -> Decision:
    log_id = ids.log()
    records = request.records
    objects: tuple[NamedObject, ...] = ()
    if source is None or request.fork is None:
        base = 0
        config = LogConfig(
            surface=STREAMS,
            name=name,
            incarnation=incarnation,
            content_type=request.content_type or DEFAULT_CONTENT_TYPE,
            created_ms=now_ms,
            ttl_ms=request.ttl_ms,
            expires_at_ms=request.expires_at_ms,
        )
    else:
        base, partial = _fork_point(source, request.fork, rows)
        definition: DefinitionRef | None = None
        if source.state.definition is not None:
            inherited = for_fork(rows.definition(source.log_id, source.state), base)
            records = prepare(inherited, source.config.content_type, request.records, now_ms)
            definition, named = name_definition(log_id, 1, inherited, ids)
            objects = (named,)
        records = concat([partial, records])
        config = _fork_config(name, incarnation, now_ms, request, request.fork, source, base, definition)
    time_ms = rules.record_time(0, now_ms, request.time_hint_ms)
    if source is not None:
        time_ms = max(time_ms, source.state.append_time_ms)  # inherited records are never younger than own ones
    state = LogState(
        next_offset=base + len(records),
        append_time_ms=time_ms if records or source is not None else 0,
        touched_ms=now_ms,
        total_bytes=len(records.data),
        holds_source=source is not None,
        definition=config.definition,
        extension=extension_of(StreamState(closed=request.closed)),
    )
    row = Row(log_id, config, deadline_ms=rules.deadline_ms(config, state, 0), label=state.label)
    times = (TimeRun(len(records), time_ms),) if records else ()
    entries = [Draft(log_id, "create", state, (records,), times, config=config)]
    if source is not None:
        entries.append(rules.counts_fork(source))
    answer = Created(True, head_of(row, state, 0))
    return Decision((answer,), tuple(entries), (PutRow(row, replaces),), objects)


def _fork_point(source: Look, fork: ForkRequest, rows: Rows) -> tuple[int, Batch]:
    """Returns the offset where the fork begins, and the part of a record that it takes over as its first record."""
    tail = source.state.next_offset
    position = tail if fork.at is None else fork.at.position
    if fork.at is not None:
        Reader.check_cursor(source.config, fork.at, source.state.recoveries)
    if position > tail:
        raise InvalidRequest(f"fork offset is beyond the stream: tail={tail} fork={position}")
    if not fork.sub_offset:
        return position, EMPTY
    if source.config.content_type == JSON:
        if position + fork.sub_offset > tail:
            raise InvalidRequest(f"fork sub-offset is beyond the stream: tail={tail}")
        return position + fork.sub_offset, EMPTY
    data = rows.record(source.row, position) if position < tail else b""
    if fork.sub_offset > len(data):
        raise InvalidRequest(f"fork sub-offset is beyond the record: length={len(data)} received={fork.sub_offset}")
    if fork.sub_offset == len(data):
        return position + 1, EMPTY
    return position, Batch.of([data[: fork.sub_offset]])


def head_of(row: Row, state: LogState, touched_ms: int) -> Head:
    """Returns the state of a stream in the form that callers get."""
    return Head(row.log_id, row.config, state, rules.deadline_ms(row.config, state, touched_ms))


def _fork_config(
    name: str,
    incarnation: int,
    now_ms: int,
    request: CreateRequest,
    fork: ForkRequest,
    source: Look,
    base: int,
    definition: DefinitionRef | None,
) -> LogConfig:
    parent = source.config
    if request.content_type is not None and request.content_type != parent.content_type:
        raise Conflict(f"fork's content type differs: source={parent.content_type} request={request.content_type}")
    own_expiry = request.ttl_ms is not None or request.expires_at_ms is not None
    return LogConfig(
        surface=parent.surface,
        name=name,
        incarnation=max(incarnation, incarnation_of(parent, source.state)),
        content_type=parent.content_type,
        created_ms=now_ms,
        ttl_ms=request.ttl_ms if own_expiry else parent.ttl_ms,
        expires_at_ms=request.expires_at_ms if own_expiry else parent.expires_at_ms,
        lineage=rules.lineage_of(source, base),
        source=ForkSource(
            name=fork.source,
            log_id=source.log_id,
            offset=fork.at.position if fork.at is not None else None,
            sub_offset=fork.sub_offset,
            own_expiry=own_expiry,
        ),
        definition=definition,
    )


def _same_expiry(config: LogConfig, request: CreateRequest) -> bool:
    if config.source is not None and not config.source.own_expiry:
        return request.ttl_ms is None and request.expires_at_ms is None
    return (config.ttl_ms, config.expires_at_ms) == (request.ttl_ms, request.expires_at_ms)


def _same_source(config: LogConfig, fork: ForkRequest | None) -> bool:
    if config.source is None or fork is None:
        return config.source is None and fork is None
    offset = fork.at.position if fork.at is not None else None
    return (config.source.name, config.source.offset, config.source.sub_offset) == (
        fork.source,
        offset,
        fork.sub_offset,
    )
