"""Creating a log: its first entry and the row of its name commit together; for a fork its source's count with them."""

from __future__ import annotations

from msgspec.structs import replace

from headrace.batch import EMPTY, Batch, concat
from headrace.definition import for_fork
from headrace.errors import Conflict, InvalidRequest, NotFound
from headrace.limits import MAX_FORK_DEPTH
from headrace.log import decide
from headrace.log.commit import Budget, Committer
from headrace.log.definition import Definitions
from headrace.log.expire import Expirer, control_entry
from headrace.log.payload import Payloads
from headrace.log.picture import Picture, Pictures
from headrace.log.prepare import prepare
from headrace.log.read import Reader
from headrace.log.requests import JSON, Created, CreateRequest, ForkRequest, Head
from headrace.log.stores import Stores
from headrace.tables.catalog import PutRow, Row
from headrace.wal import Committed, GuardRefused
from headrace.wal import slot as slots
from headrace.wal.entry import PutEntry
from headrace.wal.state import (
    Ancestor,
    DefinitionRef,
    Entry,
    ForkSource,
    LogConfig,
    LogState,
    TimeRun,
    incarnation_of,
)

DEFAULT_CONTENT_TYPE = "application/octet-stream"


class Creator:
    """Creates streams and forks."""

    def __init__(
        self,
        stores: Stores,
        surface: str,
        pictures: Pictures,
        committer: Committer,
        expirer: Expirer,
        reader: Reader,
        definitions: Definitions,
    ) -> None:
        self._stores = stores
        self._surface = surface
        self._pictures = pictures
        self._committer = committer
        self._expirer = expirer
        self._reader = reader
        self._definitions = definitions

    def create(self, name: str, request: CreateRequest) -> Created:
        """Creates the stream, or finds an equal one.

        Raises:
            Conflict: one with another configuration stands there, or forks still need the name's data.
            NotFound, InvalidRequest: of a fork's source, or its offset.
        """
        budget = Budget(self._stores.clock, self._stores.settings.append_timeout_ms)
        while True:
            read = self._pictures.read_time()
            row = self._stores.catalog.get(self._surface, name)
            incarnation = 0
            if row is not None:
                picture = self._expirer.ensure_alive(name, self._pictures.look(name))
                row = picture.row
                if not picture.state.ended:
                    return Created(False, self._existing(picture, request))
                if picture.state.forks:
                    raise Conflict(f"stream was deleted and its forks still need its data: name={name}")
                incarnation = incarnation_of(row.config, picture.state) + 1
            source = self._source(request.fork) if request.fork is not None else None
            entry, row_put = self._first(name, row, incarnation, request, source)
            guards: list[PutRow | PutEntry] = [row_put]
            if source is not None:
                state = replace(source.state, forks=source.state.forks + 1)
                counted = control_entry(
                    source.newest, "fork", state, self._stores.request_ids(), self._stores.clock.now_ms()
                )
                guards.append(PutEntry(counted))
            oldest = source.read if source is not None else read
            outcome = self._committer.put(entry, guards, oldest, budget)
            if isinstance(outcome, Committed):
                self._pictures.remember(name, row_put.row, entry, read)
                return Created(True, head(row_put.row, entry.state, 0))
            assert isinstance(outcome, GuardRefused), "a new log's first slot was taken"
            budget.again("others keep changing this stream")

    def _existing(self, picture: Picture, request: CreateRequest) -> Head:
        config = picture.row.config
        expected = {
            "content type": request.content_type == config.content_type
            or (request.content_type is None and (config.source or config.content_type == DEFAULT_CONTENT_TYPE)),
            "expiry": _same_expiry(config, request),
            "closed": request.closed == picture.state.closed,
            "fork source": _same_source(config, request.fork),
        }
        for what, same in expected.items():
            if not same:
                raise Conflict(f"stream exists with another configuration: name={config.name} differs={what}")
        return head(picture.row, picture.state, self._pictures.touched_ms(picture.row.log_id))

    def _source(self, fork: ForkRequest) -> Picture:
        picture = self._expirer.ensure_alive(fork.source, self._pictures.look(fork.source))
        if picture.state.ended:
            if picture.state.forks:
                raise Conflict(f"fork source was deleted: name={fork.source}")
            raise NotFound(f"fork source not found: name={fork.source}")
        return picture

    def _first(
        self, name: str, old: Row | None, incarnation: int, request: CreateRequest, source: Picture | None
    ) -> tuple[Entry, PutRow]:
        now_ms = self._stores.clock.now_ms()
        log_id = self._stores.log_ids()
        records = request.records
        if source is None or request.fork is None:
            base = 0
            config = LogConfig(
                surface=self._surface,
                name=name,
                incarnation=incarnation,
                content_type=request.content_type or DEFAULT_CONTENT_TYPE,
                created_ms=now_ms,
                ttl_ms=request.ttl_ms,
                expires_at_ms=request.expires_at_ms,
            )
        else:
            base, partial = self._fork_point(source, request.fork)
            definition: DefinitionRef | None = None
            if source.state.definition is not None:
                inherited = for_fork(self._definitions.of(source.row.log_id, source.state), base)
                records = prepare(inherited, source.row.config.content_type, request.records, now_ms)
                definition = self._definitions.put(log_id, 1, inherited)
            records = concat([partial, records])
            config = _fork_config(name, incarnation, now_ms, request, request.fork, source, base, definition)
        slot = slots.first_slot(base)
        payload = Payloads(self._stores).of(log_id, slot, [records])
        time_ms = decide.record_time(0, now_ms, request.time_hint_ms)
        if source is not None:
            time_ms = max(time_ms, source.state.append_time_ms)  # inherited records are never younger than own ones
        state = LogState(
            next_offset=base + len(records),
            append_time_ms=time_ms if records or source is not None else 0,
            touched_ms=now_ms,
            total_bytes=len(records.data),
            closed=request.closed,
            holds_source=source is not None,
            definition=config.definition,
        )
        entry = Entry(
            log_id=log_id,
            slot=slot,
            kind="create",
            count=len(records),
            payload=payload.inline,
            payload_key=payload.key,
            times=(TimeRun(len(records), time_ms),) if records else (),
            state=state,
            request_ids=(self._stores.request_ids(),),
            committed_ms=now_ms,
            config=config,
        )
        row = Row(log_id, config, deadline_ms=decide.deadline_ms(config, state, 0), profile=state.profile)
        return entry, PutRow(row, old.log_id if old is not None else None)

    def _fork_point(self, source: Picture, fork: ForkRequest) -> tuple[int, Batch]:
        """Offset where the fork begins, and the part of a record that it takes over as its first."""
        tail = source.state.next_offset
        position = tail if fork.at is None else fork.at.position
        if fork.at is not None:
            self._reader.check_cursor(source.row.config, fork.at, source.state.recoveries)
        if position > tail:
            raise InvalidRequest(f"fork offset is beyond the stream: tail={tail} fork={position}")
        if not fork.sub_offset:
            return position, EMPTY
        if source.row.config.content_type == JSON:
            if position + fork.sub_offset > tail:
                raise InvalidRequest(f"fork sub-offset is beyond the stream: tail={tail}")
            return position + fork.sub_offset, EMPTY
        data = self._reader.read_one(source.row, position) if position < tail else b""
        if fork.sub_offset > len(data):
            raise InvalidRequest(
                f"fork sub-offset is beyond the record: length={len(data)} received={fork.sub_offset}"
            )
        if fork.sub_offset == len(data):
            return position + 1, EMPTY
        return position, Batch.of([data[: fork.sub_offset]])


def head(row: Row, state: LogState, touched_ms: int) -> Head:
    """A stream as callers see it."""
    return Head(row.log_id, row.config, state, decide.deadline_ms(row.config, state, touched_ms))


def _fork_config(
    name: str,
    incarnation: int,
    now_ms: int,
    request: CreateRequest,
    fork: ForkRequest,
    source: Picture,
    base: int,
    definition: DefinitionRef | None,
) -> LogConfig:
    parent = source.row.config
    if request.content_type is not None and request.content_type != parent.content_type:
        raise Conflict(f"fork's content type differs: source={parent.content_type} request={request.content_type}")
    inherited = [replace(ancestor, through=min(ancestor.through, base)) for ancestor in parent.lineage]
    lineage = [*inherited, *_incarnations(source, base)]
    # An ancestor that adds nothing below the fork point is not needed; the source is, for its cursors.
    kept, reached = [], 0
    for ancestor in lineage:
        if ancestor.through > reached:
            kept.append(ancestor)
            reached = ancestor.through
    if not kept or kept[-1] != lineage[-1]:
        kept.append(lineage[-1])
    if len(kept) > MAX_FORK_DEPTH:
        raise Conflict(f"forks are nested too deep: limit={MAX_FORK_DEPTH}")
    own_expiry = request.ttl_ms is not None or request.expires_at_ms is not None
    return LogConfig(
        surface=parent.surface,
        name=name,
        incarnation=max(incarnation, incarnation_of(parent, source.state)),
        content_type=parent.content_type,
        created_ms=now_ms,
        ttl_ms=request.ttl_ms if own_expiry else parent.ttl_ms,
        expires_at_ms=request.expires_at_ms if own_expiry else parent.expires_at_ms,
        lineage=tuple(kept),
        source=ForkSource(
            name=fork.source,
            log_id=source.row.log_id,
            offset=fork.at.position if fork.at is not None else None,
            sub_offset=fork.sub_offset,
            own_expiry=own_expiry,
        ),
        definition=definition,
    )


def _incarnations(source: Picture, base: int) -> list[Ancestor]:
    """The source as an ancestor, once for each incarnation that recoveries gave it: its older cursors stay accepted."""
    found, incarnation = [], source.row.config.incarnation
    for recovery in source.state.recoveries:
        found.append(Ancestor(source.row.log_id, incarnation, min(recovery.at, base)))
        incarnation = recovery.incarnation
    return [*found, Ancestor(source.row.log_id, incarnation, base)]


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
