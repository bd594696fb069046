"""The rules of creating a stream, or a fork of one, as pure functions, like those of an append."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.batch import EMPTY, Batch, concat
from headrace.definition import for_fork
from headrace.errors import Conflict, InvalidRequest, NotFound
from headrace.log import seam as rules
from headrace.log.requests import JSON, Head, check_cursor
from headrace.log.seam import Decision, Draft, Ids, Look, NamedObject, Request, Rows, name_definition
from headrace.streams.profiles import prepare
from headrace.streams.values import (
    STREAMS,
    Created,
    CreateRequest,
    ForkRequest,
    StreamState,
    extension_of,
)
from headrace.tables.catalog import PutRow, Row
from headrace.wal.state import DefinitionRef, ForkSource, LogConfig, LogState, TimeRun, incarnation_of

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
    """Returns the offset where the fork begins, and the part of a record that it takes over as its first record; an empty
    batch if it begins between records. Raises InvalidRequest if the point is beyond the source.
    """
    tail = source.state.next_offset
    position = tail if fork.at is None else fork.at.position
    if fork.at is not None:
        check_cursor(source.config, fork.at, source.state.recoveries)
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
