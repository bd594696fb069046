"""How a lane takes a pipeline: pure decisions about the logs of an event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from headrace.definition import COLUMN_FIELDS, Definition, Stored
from headrace.features.documents import Earlier, LaneDocument, read_lane
from headrace.features.pipeline.compiled import PipelineDocument
from headrace.features.pipeline.nodes import EventNode
from headrace.features.values import EVENT, FEATURES, FOLD, MAX_EARLIER, LaneState, lane_state_of, role_of
from headrace.json.registry import Boundary
from headrace.json.registry import Registry as SchemaRegistry
from headrace.log.requests import JSON
from headrace.log.seam import Decision, Draft, Ids, Look, NamedObject, Rows, name_companions, name_definition
from headrace.query.language.canonical import Binding, Field, SearchConfig
from headrace.tables.catalog import PutRow, Row
from headrace.tables.follows import Follow, PutFollow
from headrace.tables.items import Guard
from headrace.wal.state import LogConfig, LogState, incarnation_of


class OtherLanes(Exception):
    """An event has another number of lanes than its registration says: they are of an earlier one."""


def decide_define(
    looks: Sequence[Look | None],
    name: str,
    event: EventNode,
    document: PipelineDocument,
    registered: tuple[int, int],
    rows: Rows,
    now_ms: int,
    ids: Ids,
) -> Decision:
    """Decides an entry for each lane of an event that has an earlier pipeline than this one; the lanes' first entries, in
    one commit, if there are none.

    Args:
        name: that of the lanes.
        registered: the incarnation and the version of the registry that says so.

    Raises:
        OtherLanes: the lanes must be deleted first. A process created them that was late: their event had been removed.
    """
    main = looks[0]
    if main is None or main.state.ended:
        return _create(main, name, event, document, registered, now_ms, ids)
    if len(looks) != event.lanes and lane_state_of(main.state).registered < registered:
        raise OtherLanes
    drafts: list[Draft] = []
    objects: list[NamedObject] = []
    for look in looks:
        if look is None or look.state.ended:
            continue
        now = lane_state_of(look.state)
        if now.registered >= registered:
            continue
        lane = LaneDocument(document, _earlier(look, rows))
        ref, named = _lane_definition(look.log_id, event, lane, look.state, ids)
        extension = LaneState(look.state.next_offset, registered, now.ack)
        drafts.append(Draft(look.log_id, "define", replace(look.state, definition=ref, extension=extension)))
        objects.append(named)
    return Decision((None,), tuple(drafts), objects=tuple(objects))


def _create(
    old: Look | None,
    name: str,
    event: EventNode,
    document: PipelineDocument,
    registered: tuple[int, int],
    now_ms: int,
    ids: Ids,
) -> Decision:
    """Decides the first entries of an event's lanes, in one commit."""
    incarnation = incarnation_of(old.config, old.state) + 1 if old is not None else 0
    plain = LogConfig(FEATURES, name, incarnation, JSON, now_ms)
    roles = {role_of(number): JSON for number in range(1, event.lanes)}
    row = Row(ids.log(), name_companions(plain, roles, ids), label=EVENT)
    drafts: list[Draft] = []
    objects: list[NamedObject] = []
    guards: list[Guard] = [PutRow(row, old.log_id if old is not None else None)]
    for one in row.logs:
        ref, named = _lane_definition(one.log_id, event, LaneDocument(document), LogState(), ids)
        extension = LaneState(0, registered)
        state = LogState(touched_ms=now_ms, followers=1, definition=ref, extension=extension)
        drafts.append(Draft(one.log_id, "create", state, config=one.config))
        objects.append(named)
        guards.append(PutFollow(follower(one.config, one.log_id, FOLD)))
    return Decision((None,), tuple(drafts), tuple(guards), tuple(objects))


def follower(config: LogConfig, log_id: str, kind: str) -> Follow:
    """Returns the row by which the relay hears of a lane's or a registry's entries: it names the log."""
    return Follow(log_id, kind, "-", msgspec.json.encode([config.name, config.role]))


def _earlier(look: Look, rows: Rows) -> tuple[Earlier, ...]:
    """Returns references to the pipelines of a lane so far, as far as there are events to which they apply."""
    ref, state = look.state.definition, lane_state_of(look.state)
    if ref is None:
        return ()
    before = rows.definition(look.log_id, look.state).derive(read_lane).document.earlier
    found = [*before, Earlier(state.since, ref.number, ref.nonce)]
    ends = [*(one.since for one in found[1:]), look.state.next_offset]
    used = [one for one, end in zip(found, ends, strict=True) if one.since < end and end > look.state.floor]
    return tuple(used[-MAX_EARLIER:])


def _lane_definition(
    log_id: str, event: EventNode, document: LaneDocument, state: LogState, ids: Ids
) -> tuple[Any, NamedObject]:
    """Returns the reference to a lane's definition, and its object."""
    schemas = SchemaRegistry()
    if event.search:
        search = search_of(event).document()
        schemas = SchemaRegistry(1, {"1": True}, boundaries=(Boundary(0, 1),), search=search)
    content = {"kind": EVENT, **msgspec.to_builtins(document)}
    number = state.definition.number + 1 if state.definition is not None else 1
    return name_definition(log_id, number, Definition(schemas, Stored(content)), ids)


_SEARCHED: dict[str, Any] = {
    "str": {"kind": "keyword", "prefix": True, "exact": True},
    "i64": {"kind": "integer", "column": True, "aggregatable": True, "sortable": True},
    "f64": {"kind": "float", "column": True, "aggregatable": True, "sortable": True},
    "bool": {"kind": "bool", "exact": True},
    "datetime": {"kind": "date", "column": True, "sortable": True},
}


def search_of(event: EventNode) -> SearchConfig:
    """Returns by which fields the events of a lane are searched: each of its own, and the time of their arrival, `ts`, or
    `arrived_at` if the event has a field `ts`.
    """
    time = "arrived_at" if "ts" in event.fields else "ts"
    fields = {
        name: Field(bindings=(Binding(version=1, json_pointer=f"/{name}"),), exists=True, **_SEARCHED[kind])
        for name, kind in event.fields.items()
        if kind in _SEARCHED
    }
    return SearchConfig(primary_timestamp_field=time, fields={**fields, time: COLUMN_FIELDS["ts"]})
