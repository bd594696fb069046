"""Registrations: each is an entry of the registry's log, and then an entry of every lane whose pipeline it changes.

The registry's entry comes first and is the truth. A lane takes a pipeline only from a higher version than its own, so it
does not matter who brings it, how often, or in which order. When all lanes have theirs, the registry takes an entry that
says so; until then the next registration, or the relay, goes on. A registration is answered after that entry.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from headrace.clock import Bounded, Moment
from headrace.definition import Definition, Stored
from headrace.errors import NotFound, RequestTimeout
from headrace.features.define import OtherLanes, decide_define, follower
from headrace.features.documents import Registered, RegistryView, read_lane, read_registry
from headrace.features.errors import ForceRequired, RegistrationError, ResetDisabled, TableNotFound
from headrace.features.events import Pipelines
from headrace.features.lanes import SURFACE
from headrace.features.pipeline.compiled import Building, PipelineDocument
from headrace.features.pipeline.nodes import Derivation, EventNode, parse_nodes
from headrace.features.pipeline.registry import Plan, Registry, build, end_build, pipeline_of, plan
from headrace.features.values import (
    EVENT,
    FEATURES,
    REGISTER,
    REGISTRY,
    DryRun,
    RegistryState,
    event_name,
    lane_state_of,
    registry_name,
    registry_state_of,
    role_of,
)
from headrace.json.registry import Registry as SchemaRegistry
from headrace.log.commit import Found
from headrace.log.control import Controls
from headrace.log.logs import Log
from headrace.log.requests import JSON, Head
from headrace.log.seam import (
    Decision,
    Draft,
    Ids,
    Look,
    Request,
    Rows,
    Which,
    name_definition,
)
from headrace.log.stores import Stores
from headrace.objects import keys
from headrace.tables.catalog import PutRow, Row
from headrace.tables.features import TABLE, FeatureRows
from headrace.tables.follows import PutFollow
from headrace.tables.marks import Mark
from headrace.wal.state import DefinitionRef, Entry, LogConfig, LogState, incarnation_of

_REMEMBERED = 1_000  # namespaces of one process
_LOST = 1_000  # registrations that a disaster may have taken: their versions name rows, and are not used again
_LOOKS = 4
_REMOVED = "removed"  # the member of a registry's definition that names the events that a reset has removed


class Registrations(Log):
    """The registries of namespaces, by name, and the lanes of their events. Methods block, and may be called by any
    thread.
    """

    def __init__(self, stores: Stores, *, may_reset: bool = False) -> None:
        """Creates the verbs. `may_reset` says whether a namespace may be reset."""
        super().__init__(stores, SURFACE)
        self.stores = stores
        self._may_reset = may_reset
        self._views: Bounded[str, RegistryView] = Bounded(_REMEMBERED)

    @property
    def rows(self) -> FeatureRows:
        """The table of feature rows."""
        table: Any = self.stores.tables[TABLE]
        rows: FeatureRows = table
        return rows

    def mark_of(self, head: Head) -> Mark | None:
        """Returns the mark of a lane; None if its present incarnation was never folded."""
        mark = self.rows.mark(head.log_id)
        return mark if mark is not None and mark.incarnation == head.incarnation else None

    def registry(self, namespace: str) -> RegistryView:
        """Returns a registry as it is now; an empty one if nothing was ever registered. Costs one query, and a catalog read
        if this process has not used it just now.
        """
        try:
            head = self.head(registry_name(namespace))
        except NotFound:
            return self._remember(namespace, RegistryView(Registry(), RegistryState(), 0))
        registry = self.definition_of(head).derive(read_registry)
        return self._remember(namespace, RegistryView(registry, registry_state_of(head.state), head.incarnation))

    def known(self, namespace: str) -> RegistryView:
        """Returns a registry as this process knows it, in whatever version; reads it if it knows none."""
        return self._views.get(namespace) or self.registry(namespace)

    def _remember(self, namespace: str, view: RegistryView) -> RegistryView:
        def newer(kept: RegistryView | None) -> RegistryView:
            return kept if kept is not None and kept.order > view.order else view

        return self._views.update(namespace, newer)

    def register(self, namespace: str, body: Any) -> Registered | DryRun:
        """Registers nodes. What they say is in force for each push and read that begins after the answer.

        Args:
            body: the decoded JSON body: `nodes`, and perhaps `force` and `dry_run`.

        Raises:
            RegistrationError: a node is refused; nothing was changed.
            ForceRequired: state would be dropped; nothing was changed.
            HeadraceError: it may be in force, now or soon.
        """

        def decide(looks: Sequence[Look | None], _: Sequence[Request], rows: Rows, now_ms: int, ids: Ids) -> Decision:
            (look,) = looks
            before = _registry_of(look, rows)
            try:
                parse_nodes(body, {node.name: node for node in before.nodes})
                is_dry = body.get("dry_run", False)
                planned = plan(before, body["nodes"], force=body.get("force", False) or is_dry)
            except (RegistrationError, ForceRequired) as refusal:
                refusal.version = before.version
                raise
            if is_dry:
                return Decision((DryRun(before.version, planned.diff),))
            registry = planned.registry
            answer = Registered(registry.version, planned.added, planned.already_present, registry)
            if not planned.changed:
                return Decision((answer,))
            names = _to_build(before, planned)
            if names:
                registry = build(
                    registry, {name: keys.made_id(now_ms, ids.log()) for name in names}, registry.version
                )
            return _enter(namespace, look, registry, _removed_of(look, rows), answer, now_ms, ids)

        answer: Registered | DryRun = self._change(namespace, decide)
        if isinstance(answer, Registered) and answer.version:  # else nothing was ever registered
            self.finish(namespace)
        return answer

    def build(self, namespace: str, table: str) -> Building:
        """Lets a table be back-filled (`headrace.features.backfill`). Returns the back-fill, the one that is under way if
        there is one. Raises TableNotFound; else as `register` does.
        """

        def decide(looks: Sequence[Look | None], _: Sequence[Request], rows: Rows, now_ms: int, ids: Ids) -> Decision:
            (look,) = looks
            before = _registry_of(look, rows)
            state = before.tables.get(table)
            if state is None:
                raise TableNotFound(table)
            if state.building is not None:
                return Decision((state.building,))
            registry = build(before, {table: keys.made_id(now_ms, ids.log())}, before.version + 1)
            answer = registry.tables[table].building
            return _enter(namespace, look, registry, _removed_of(look, rows), answer, now_ms, ids)

        building: Building = self._change(namespace, decide)
        self.finish(namespace)
        return building

    def end_build(self, namespace: str, table: str, generation: str, *, is_read: bool) -> None:
        """Ends a back-fill, if it is under way: its generation is read from now on, or given up. Raises as `register`."""

        def decide(looks: Sequence[Look | None], _: Sequence[Request], rows: Rows, now_ms: int, ids: Ids) -> Decision:
            (look,) = looks
            before = _registry_of(look, rows)
            registry = end_build(before, table, generation, is_read=is_read)
            if registry is before:
                return Decision((None,))
            return _enter(namespace, look, registry, _removed_of(look, rows), None, now_ms, ids)

        self._change(namespace, decide)
        self.finish(namespace)

    def reset(self, namespace: str) -> int:
        """Removes all nodes of a namespace, with their events and rows. Returns the registry's version then. Raises
        ResetDisabled.
        """
        if not self._may_reset:
            raise ResetDisabled

        def decide(looks: Sequence[Look | None], _: Sequence[Request], rows: Rows, now_ms: int, ids: Ids) -> Decision:
            (look,) = looks
            before = _registry_of(look, rows)
            version = before.version + 1
            events = {node.name: version for node in before.nodes if isinstance(node, EventNode)}
            removed = _removed_of(look, rows) | events
            return _enter(namespace, look, Registry(version), removed, version, now_ms, ids)

        version: int = self._change(namespace, decide)
        self.finish(namespace)
        return version

    def newest(self, which: Which) -> tuple[Head, Entry]:
        """Returns the current state of a log and its newest entry, without its records. Raises as `head` does."""
        for _ in range(_LOOKS):
            head = self.head(which)
            picture = self._context.pictures.warm(which)
            if picture is not None and picture.row.log_id == head.log_id:
                return head._replace(state=picture.state), picture.newest
        raise RequestTimeout

    def is_old(self, read: Moment) -> bool:
        """Returns whether what was read at a moment is too old to be decided on."""
        return self._context.pictures.is_old(read)

    def pipelines_of(self, head: Head, first: int) -> Pipelines:
        """Returns the pipelines of a lane that apply from the offset `first` on; costs one GET for each that this process
        does not know.
        """
        lane = self.definition_of(head).derive(read_lane)
        since = lane_state_of(head.state).since
        spans = [(since, lane.pipeline)]
        for one in reversed(lane.document.earlier):
            if spans[0][0] <= first:
                break
            ref = DefinitionRef(one.number, one.nonce, 0, EVENT)
            older = self.definition_of(head._replace(state=replace(head.state, definition=ref)))
            spans.insert(0, (one.since, older.derive(read_lane).pipeline))
        return Pipelines(spans)

    def realign(self, namespace: str, lost: Collection[str]) -> None:
        """Gives every lane the pipeline that the registry says, in a new version: after a disaster, in which lanes and
        registry may have gone back to different times. Back-fills that are under way begin again.

        Args:
            lost: tables that were back-filled, and of which no row is left: they are so again.
        """

        def decide(looks: Sequence[Look | None], _: Sequence[Request], rows: Rows, now_ms: int, ids: Ids) -> Decision:
            (look,) = looks
            assert look is not None, "it was found"
            registry = _registry_of(look, rows)
            version = registry.version + 1
            registry = replace(registry, version=version, touched=dict.fromkeys(registry.touched, version))
            states = registry.tables.items()
            names = [name for name, state in states if name in lost or state.building is not None]
            registry = build(registry, {name: keys.made_id(now_ms, ids.log()) for name in names}, version, lost)
            return _enter(namespace, look, registry, _removed_of(look, rows), None, now_ms, ids)

        name = registry_name(namespace)
        self.control(name, lambda controls: controls.find_living(name), decide)
        self.finish(namespace)

    def _change(self, namespace: str, decide: Any) -> Any:
        name = registry_name(namespace)
        return self.control(name, lambda controls: controls.find_any(name), decide)

    def finish(self, namespace: str) -> None:
        """Brings each lane the pipeline that the registry says, and then notes that all have theirs. Does nothing if they
        have.
        """
        name = registry_name(namespace)
        head = self.head(name)
        state = registry_state_of(head.state)
        definition = self.definition_of(head)
        registry = definition.derive(read_registry)
        self._remember(namespace, RegistryView(registry, state, head.incarnation))
        if not state.is_open:
            return
        for event, version in definition.own.document().get(_REMOVED, {}).items():
            self._remove(event_name(namespace, event), (head.incarnation, version))
        for node in registry.nodes:
            if isinstance(node, EventNode) and registry.touched[node.name] > state.done:
                document = pipeline_of(registry, node.name)
                self._define(namespace, node, document, (head.incarnation, document.version))

        def decide(looks: Sequence[Look | None], _: Sequence[Request], __: Rows, ___: int, ____: Ids) -> Decision:
            (look,) = looks
            assert look is not None, "it was found"
            now = registry_state_of(look.state)
            if now.done >= state.version:
                return Decision((look.state,))
            after = replace(look.state, extension=replace(now, done=state.version))
            return Decision((after,), (Draft(look.log_id, "done", after),))

        after: LogState = self.control(name, lambda controls: controls.find_living(name), decide)
        self._remember(namespace, RegistryView(registry, replace(state, done=state.version), head.incarnation))
        assert registry_state_of(after).done >= state.version, "done only rises"

    def _remove(self, name: str, registered: tuple[int, int]) -> None:
        """Deletes the lanes of an event, unless they have a pipeline of a later version already."""

        def check(looks: Sequence[Look | None]) -> None:
            for look in looks:
                if look is not None and lane_state_of(look.state).registered >= registered:
                    raise NotFound(name)

        with suppress(NotFound):
            self.delete(name, check)

    def _define(
        self, namespace: str, event: EventNode, document: PipelineDocument, registered: tuple[int, int]
    ) -> None:
        """Gives every lane of an event its pipeline, unless it has a later one; creates them first if there are none."""
        name = event_name(namespace, event.name)

        def find(controls: Controls) -> Found:
            found = controls.find_any(name)
            (main,) = found.pictures
            return controls.find_all(name) if main is not None and not main.state.ended else found

        def decide(looks: Sequence[Look | None], _: Sequence[Request], rows: Rows, now_ms: int, ids: Ids) -> Decision:
            return decide_define(looks, name, event, document, registered, rows, now_ms, ids)

        others = [(name, role_of(number)) for number in range(1, event.lanes)]
        for _ in range(_LOOKS):
            try:
                self.control(name, find, decide, None, *others)
                return
            except OtherLanes:
                self._remove(name, registered)
        raise RequestTimeout(f"lanes of earlier registrations are created again and again: event={event.name}")


def _to_build(before: Registry, planned: Plan) -> list[str]:
    """Returns the tables that a registration changes and wants back-filled, and whose event had been registered before."""
    known = {node.name for node in before.nodes}
    return [
        node.name
        for node in planned.registry.nodes
        if isinstance(node, Derivation)
        and node.backfill
        and node.name in planned.added
        and node.name in planned.registry.tables
        and (root := planned.registry.root_of(node.name)) is not None
        and root.name in known
    ]


def _registry_of(look: Look | None, rows: Rows) -> Registry:
    """Returns the registry that a decision is about; an empty one if there is none. After a recovery all its pipelines are
    of a new version, since lanes may have others, of registrations that are lost.
    """
    if look is None:
        return Registry()
    registry = rows.definition(look.log_id, look.state).derive(read_registry)
    if incarnation_of(look.config, look.state) == registry_state_of(look.state).incarnation:
        return registry
    version = registry.version + _LOST
    return replace(registry, version=version, touched=dict.fromkeys(registry.touched, version))


def _removed_of(look: Look | None, rows: Rows) -> dict[str, int]:
    """Returns the events that were removed and whose lanes may be left, with the version that removed each."""
    if look is None or not registry_state_of(look.state).is_open:
        return {}
    removed: dict[str, int] = rows.definition(look.log_id, look.state).own.document().get(_REMOVED, {})
    return removed


def _enter(
    namespace: str,
    look: Look | None,
    registry: Registry,
    removed: dict[str, int],
    answer: Any,
    now_ms: int,
    ids: Ids,
) -> Decision:
    """Decides the entry of a registry with its new content; creates its log if there is none."""
    log_id = look.log_id if look is not None else ids.log()
    content = {"kind": REGISTRY, REGISTRY: msgspec.to_builtins(registry), _REMOVED: removed}
    definition = Definition(SchemaRegistry(), Stored(content))
    number = look.state.definition.number + 1 if look is not None and look.state.definition is not None else 1
    ref, named = name_definition(log_id, number, definition, ids)
    if look is None:
        config = LogConfig(FEATURES, registry_name(namespace), 0, JSON, now_ms)
        extension = RegistryState(registry.version)
        state = LogState(touched_ms=now_ms, followers=1, definition=ref, extension=extension)
        guards = (PutRow(Row(log_id, config, label=ref.label), None), PutFollow(follower(config, log_id, REGISTER)))
        return Decision((answer,), (Draft(log_id, "create", state, config=config),), guards, (named,))
    now = incarnation_of(look.config, look.state)
    before = registry_state_of(look.state)
    extension = replace(before, version=registry.version, incarnation=now)
    if now != before.incarnation:
        extension = replace(extension, done=0)
    state = replace(look.state, definition=ref, extension=extension)
    return Decision((answer,), (Draft(log_id, "register", state),), (), (named,))
