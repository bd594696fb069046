"""The rules of creating a stream, or a fork of one, as pure functions, like those of an append."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from headrace.batch import EMPTY, Batch, concat
from headrace.definition import for_fork
from headrace.errors import BelowFloor, Conflict, InvalidRequest, NotFound
from headrace.log import seam as rules
from headrace.log.marks import Mark, below
from headrace.log.requests import JSON, Head, check_cursor
from headrace.log.seam import Decision, Draft, Ids, Look, NamedObject, Request, Rows, name_definition
from headrace.streams.profiles import prepare
from headrace.streams.values import (
    STREAMS,
    Created,
    CreateRequest,
    ForkRequest,
    Retention,
    StreamState,
    extension_of,
    marked,
    state_of,
)
from headrace.tables.catalog import PutRow, Row
from headrace.wal.state import (
    BEGINNING,
    DefinitionRef,
    ForkSource,
    LogConfig,
    LogState,
    TimeRun,
    encode_cursor,
    incarnation_of,
)

DEFAULT_CONTENT_TYPE = "application/octet-stream"


def decide_create(
    logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
) -> Decision:
    """Decides a create. `logs` has the name's current log (None if there is none) and, for a fork, the source's. The answer
    is a `Created`, also if an equal stream exists already. Raises Conflict, NotFound or InvalidRequest if the stream can't
    be created.
    """
    old, *sources = logs
    source = sources[0] if sources else None
    name, request = _named(requests[0])
    incarnation = 0
    if old is not None:
        if not old.state.ended:
            return _existing(old, request, now_ms)
        if old.state.forks:
            raise Conflict(f"stream was deleted and its forks still need its data: name={old.config.name}")
        incarnation = incarnation_of(old.config, old.state) + 1
    if source is not None and request.fork is not None and source.state.ended:
        if source.state.forks:
            raise Conflict(f"fork source was deleted: name={request.fork.source}")
        raise NotFound(f"fork source not found: name={request.fork.source}")
    return _create(name, old.log_id if old is not None else None, incarnation, request, source, rows, now_ms, ids)


def _existing(look: Look, request: CreateRequest, now_ms: int) -> Decision:
    """Decides a create of a stream that exists: an equal one is the answer. Its retention may be another, and is changed.
    Raises Conflict if anything else differs.
    """
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
    # What is too old, or too much, for the old retention stays gone under the new one.
    state = look.state.retained(now_ms)
    stream, wanted = state_of(state), request.retention
    if wanted is None or wanted == (stream.retention or Retention()):
        return Decision((Created(False, head_of(look.row, state, look.touched_ms)),))
    if wanted == Retention():
        stream = replace(stream, retention=None, marks=())
    else:
        marks = stream.marks or _mark_of_all(state, config.base_offset, state.next_offset)
        stream = replace(stream, retention=wanted, marks=marks)
    state = replace(state, extension=extension_of(stream))
    answer = Created(False, head_of(look.row, state, look.touched_ms))
    return Decision((answer,), (Draft(look.log_id, "configure", state),))


def _mark_of_all(state: LogState, base: int, end: int) -> tuple[Mark, ...]:
    """Returns the mark of the records below offset `end`, of a log that holds those from `base` on itself: together they
    are as old as the newest of them, and the bytes are a share of those that the log ever had.
    """
    live, own = end - state.floor, state.next_offset - base
    size = state.total_bytes * min(live, own) // own if own else 0
    return (Mark(end, state.append_time_ms, live, size),) if live > 0 else ()


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
    stream = StreamState(closed=request.closed, retention=request.retention or None)
    floor = 0
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
        source = source._replace(state=source.state.retained(now_ms))
        base, partial = _fork_point(source, request.fork, rows)
        floor, stream = source.state.floor, _inherited(stream, source, base)
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
        floor=floor,
        holds_source=source is not None,
        definition=config.definition,
        extension=extension_of(stream if stream.retention != Retention() else replace(stream, retention=None)),
    )
    state = marked(state, len(records), len(records.data))
    row = Row(log_id, config, deadline_ms=rules.deadline_ms(config, state, 0), label=state.label)
    times = (TimeRun(len(records), time_ms),) if records else ()
    entries = [Draft(log_id, "create", state, (records,), times, config=config)]
    if source is not None:
        entries.append(rules.counts_fork(source))
    answer = Created(True, head_of(row, state, 0))
    return Decision((answer,), tuple(entries), (PutRow(row, replaces),), objects)


def _inherited(stream: StreamState, source: Look, base: int) -> StreamState:
    """Returns a fork's part of its state: it has its source's retention, unless it was asked with one, and marks of what it
    inherits below offset `base`.
    """
    above = state_of(source.state)
    retention = stream.retention if stream.retention is not None else above.retention
    if retention is None or retention == Retention():
        return stream
    marks = above.marks or _mark_of_all(source.state, source.config.base_offset, source.state.next_offset)
    return replace(stream, retention=retention, marks=below(marks, base))


def _fork_point(source: Look, fork: ForkRequest, rows: Rows) -> tuple[int, Batch]:
    """Returns the offset where the fork begins, and the part of a record that it takes over as its first record; an empty
    batch if it begins between records. Raises InvalidRequest if the point is beyond the source.
    """
    tail = source.state.next_offset
    position = tail if fork.at is None else fork.at.position
    if fork.at is not None:
        check_cursor(source.config, fork.at, source.state.recoveries)
    if position < source.state.floor and fork.at != BEGINNING:
        raise BelowFloor(encode_cursor(incarnation_of(source.config, source.state), source.state.floor))
    position = max(position, source.state.floor)
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
    """Returns the `Head` of a stream, which callers get: id, configuration, state, and when it expires."""
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
