"""The registry of a namespace, and how a registration changes it.

Registration is incremental: nodes that a call does not mention stay. What would drop state needs `force`; then the changed
nodes and all that comes from them start again, empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, NoReturn

import msgspec
from msgspec.structs import replace

from headrace.features.errors import ForceRequired, RegistrationError
from headrace.features.pipeline.chain import compile_chain, types_of
from headrace.features.pipeline.compiled import PipelineDocument
from headrace.features.pipeline.diff import Change, derivation_change, event_change, is_same, kind_change, new_node
from headrace.features.pipeline.nodes import Derivation, EventNode, Node, parse_list
from headrace.features.pipeline.tables import Building, Stream, TableState, aggregate, derive, open_event
from headrace.features.pipeline.text import show

MAX_REGISTERED = 10_000  # nodes of a namespace: each registration reads and writes the registry as a whole

__all__ = [
    "Building",
    "Plan",
    "PipelineDocument",
    "Registry",
    "TableState",
    "build",
    "end_build",
    "pipeline_of",
    "plan",
]


class Registry(msgspec.Struct, frozen=True):
    """What is registered in a namespace.

    Attributes:
        version: rises by one with each registration that changes something.
        nodes: in the order of their registration.
        tables: the state of each table, by name.
        touched: the version in which the pipeline of an event last changed, by the event's name.
    """

    version: int = 0
    nodes: tuple[EventNode | Derivation, ...] = ()
    tables: dict[str, TableState] = {}  # msgspec copies an empty default
    touched: dict[str, int] = {}

    @property
    def building(self) -> dict[str, Building]:
        """The back-fills that are under way, by table."""
        return {name: state.building for name, state in self.tables.items() if state.building is not None}

    def root_of(self, name: str) -> EventNode | None:
        """Returns the event from which a node comes; None if there is no such node."""
        nodes = {node.name: node for node in self.nodes}
        node = nodes.get(name)
        while isinstance(node, Derivation):
            node = nodes[node.upstreams[0]]
        return node


class Plan(NamedTuple):
    """What a registration does.

    Attributes:
        registry: the registry afterwards; the same one if nothing changes.
        diff: lists `additive`, `destructive` and `already_present`.
        added: the nodes that are new or changed, in the order of the call.
        already_present: the nodes of the call that change nothing.
        affected: the events whose pipeline changes.
    """

    registry: Registry
    diff: dict[str, Any]
    added: list[str]
    already_present: list[str]
    affected: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether anything changes."""
        return bool(self.added)

    @property
    def is_destructive(self) -> bool:
        """Whether state is dropped."""
        return bool(self.diff["destructive"])


def plan(registry: Registry, nodes: Sequence[Any], *, force: bool) -> Plan:
    """Plans a registration. A dry run is a plan with `force` that is not applied.

    Args:
        registry: what is registered.
        nodes: the node documents of the call.
        force: whether state may be dropped.

    Raises:
        RegistrationError: a node is refused, or one that depends on it no longer compiles.
        ForceRequired: state would be dropped, and `force` is not set.
    """
    registered = {node.name: node for node in registry.nodes}
    parsed = parse_list(nodes, registered)
    merged: dict[str, Node] = {**registered, **{node.name: node for node in parsed}}
    if len(merged) > MAX_REGISTERED:
        _refuse("<body>", f"{len(merged)} nodes would be registered: limit={MAX_REGISTERED}; use another namespace")
    paths = {node.name: f"nodes[{index}]" for index, node in enumerate(parsed)}
    _check_upstreams(parsed, registered, merged)
    order = _sort(merged, paths)
    dirty = _descend({node.name for node in parsed if not is_same(registered.get(node.name), node)}, order, merged)

    before, after = _Compiler(registered), _Compiler(merged)
    for node in parsed:
        if node.name in dirty:
            after.check(node, paths[node.name])
    changes = {
        node.name: _change(registered[node.name], node, before, after) for node in parsed if node.name in registered
    }
    added = [node.name for node in parsed if node.name not in changes or any(changes[node.name])]
    present = [node.name for node in parsed if node.name in changes and not any(changes[node.name])]
    additive = [changes[node.name].additive if node.name in changes else [new_node(node)] for node in parsed]
    diff = {
        "additive": list(chain.from_iterable(additive)),
        "destructive": list(chain.from_iterable(change.destructive for change in changes.values())),
        "already_present": present,
    }
    if diff["destructive"] and not force:
        raise ForceRequired(diff)
    for name in order:
        if name in dirty and name not in paths:
            _check_dependent(merged[name], merged, paths, after)
    if not added:
        return Plan(registry, diff, added, present, ())

    # A document that only looks different is not stored: its lanes would get a pipeline that changes nothing.
    kept = {**merged, **{name: registered[name] for name in present}}
    reset = _descend({name for name, change in changes.items() if change.destructive}, order, merged)
    version = registry.version + 1
    tables = {
        node.name: _begin(node, None if node.name in reset else registry.tables.get(node.name), version)
        for node in kept.values()
        if isinstance(node, Derivation) and node.output_kind == "table"
    }
    changed = Registry(version, tuple(kept.values()), tables)
    old_pipelines, new_pipelines = _pipelines(registry), _pipelines(changed)
    affected = tuple(event for event, pipeline in new_pipelines.items() if pipeline != old_pipelines.get(event))
    touched = {event: version if event in affected else registry.touched[event] for event in new_pipelines}
    return Plan(replace(changed, touched=touched), diff, added, present, affected)


def build(registry: Registry, job_ids: Mapping[str, str], version: int, lost: Collection[str] = ()) -> Registry:
    """Returns a registry in a new version, in which tables are back-filled.

    Args:
        job_ids: the job that computes each table, by the table's name.
        lost: tables of which no row is left: meanwhile they begin again, empty.
    """
    fresh = TableState(str(version), {})
    tables = {
        name: replace(
            registry.tables[name] if name not in lost else replace(fresh, started=registry.tables[name].started),
            building=Building(f"{version}b", job_id),
        )
        for name, job_id in job_ids.items()
    }
    return _change_tables(registry, tables, version)


def end_build(registry: Registry, name: str, generation: str, *, is_read: bool) -> Registry:
    """Returns a registry in its next version, in which a back-fill has ended: its generation is read from now on, or it is
    given up. The same registry, if this back-fill is not under way.
    """
    state = registry.tables.get(name)
    if state is None or state.building is None or state.building.generation != generation:
        return registry
    changed = replace(state, building=None)
    if is_read:
        changed = replace(changed, generation=generation, is_backfilled=True)
    return _change_tables(registry, {name: changed}, registry.version + 1)


def _change_tables(registry: Registry, tables: Mapping[str, TableState], version: int) -> Registry:
    roots = {root.name for name in tables if (root := registry.root_of(name)) is not None}
    return replace(
        registry,
        version=version,
        tables={**registry.tables, **tables},
        touched={event: version if event in roots else before for event, before in registry.touched.items()},
    )


def pipeline_of(registry: Registry, event: str) -> PipelineDocument:
    """Returns what the lanes of an event must know. The event is registered."""
    pipeline = _pipelines(registry)[event]
    return replace(pipeline, version=registry.touched[event])


def _pipelines(registry: Registry) -> dict[str, PipelineDocument]:
    """Returns the pipeline of each event, all with version 0."""
    nodes = {node.name: node for node in registry.nodes}
    roots: dict[str, str] = {}
    derivations: dict[str, list[Derivation]] = {}
    for name in _sort(nodes, {}):
        node = nodes[name]
        roots[name] = name if isinstance(node, EventNode) else roots[node.upstreams[0]]
        if isinstance(node, Derivation):
            derivations.setdefault(roots[name], []).append(node)
    pipelines = {}
    for root in registry.nodes:
        if isinstance(root, EventNode):
            own = tuple(derivations.get(root.name, ()))
            tables = {node.name: registry.tables[node.name] for node in own if node.name in registry.tables}
            pipelines[root.name] = PipelineDocument(0, root, own, tables)
    return pipelines


class _Compiler:
    """Compiles nodes of a registry, each stream once."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._streams: dict[str, Stream] = {}

    def stream(self, name: str) -> Stream:
        """Returns the rows of an event or derived event; compiles its upstreams first.

        Raises:
            RegistrationError: it does not compile; the path begins with the node's name.
        """
        waiting = [name]
        while name not in self._streams:
            node = self._nodes[waiting[-1]]
            if isinstance(node, EventNode):
                self._streams[node.name] = open_event(node)
            elif node.upstreams[0] in self._streams:
                self._streams[node.name] = derive(node, self._streams[node.upstreams[0]], node.name)
            else:
                waiting.append(node.upstreams[0])
                continue
            waiting.pop()
        return self._streams[name]

    def check(self, node: Node, path: str) -> None:
        """Compiles a node.

        Raises:
            RegistrationError: it does not compile; its path is that of the node, or of an upstream that is the reason.
        """
        if isinstance(node, EventNode):
            return
        try:
            upstream = self.stream(node.upstreams[0])
        except RegistrationError as error:
            reason = f"upstream '{node.upstreams[0]}' does not compile: {error}"
            raise RegistrationError(error.code, f"{path}.upstreams[0]", reason) from error
        if node.output_kind == "table":
            aggregate(node, upstream, _begin(node, None, 0), path)
        else:
            self._streams[node.name] = derive(node, upstream, path)

    def aggregated_types(self, node: Derivation) -> dict[str, str]:
        """Returns the types of the fields that the aggregations of a table see."""
        upstream = self.stream(node.upstreams[0])
        return types_of(compile_chain(node.ops[:-1], upstream.columns, upstream.sources, node.name).columns)


def _check_upstreams(parsed: Sequence[Node], registered: Mapping[str, Node], merged: Mapping[str, Node]) -> None:
    """Checks what each node of the call says of others: upstreams come first, and some things never change."""
    declared = set(registered)
    for index, node in enumerate(parsed):
        path, before = f"nodes[{index}]", registered.get(node.name)
        declared.add(node.name)
        if isinstance(node, EventNode):
            if isinstance(before, EventNode):
                for setting in ("lanes", "lane_key"):
                    old, new = getattr(before, setting), getattr(node, setting)
                    if old != new:
                        _refuse(f"{path}.{setting}", f"{setting} of '{node.name}' can't change from {old} to {new}")
            continue
        if isinstance(before, EventNode):
            _refuse(
                f"{path}.{node.name}.kind", f"the event '{node.name}' can't become a derivation: use another name"
            )
        upstream = node.upstreams[0]
        if upstream not in declared or upstream == node.name:
            reason = (
                f"upstream {show(upstream)} is not declared before '{node.name}' in this call, and is not registered"
            )
            _refuse(
                f"{path}.upstreams[0]", reason if upstream != node.name else f"'{upstream}' can't be its own upstream"
            )
        _check_no_table(node, merged, path)


def _check_no_table(node: Derivation, merged: Mapping[str, Node], path: str) -> None:
    upstream = merged[node.upstreams[0]]
    if isinstance(upstream, Derivation) and upstream.output_kind == "table":
        code = "aggregation_on_table_not_supported" if node.output_kind == "table" else "invalid_registration"
        raise RegistrationError(
            code, f"{path}.upstreams[0]", f"upstream '{upstream.name}' is a table: only events can be read"
        )


def _check_dependent(node: Node, merged: Mapping[str, Node], paths: Mapping[str, str], after: _Compiler) -> None:
    """Checks a node that is not in the call, but depends on one that is."""
    ancestor = node
    while ancestor.name not in paths and isinstance(ancestor, Derivation):
        ancestor = merged[ancestor.upstreams[0]]
    path = paths[ancestor.name]
    try:
        if isinstance(node, Derivation):
            _check_no_table(node, merged, path)
        after.check(node, node.name)
    except RegistrationError as error:
        reason = f"'{node.name}', which depends on it, would no longer compile: {error}. Change it in the same call"
        raise RegistrationError("invalid_registration", f"{path}.{ancestor.name}", reason) from error


def _change(old: Node, new: Node, before: _Compiler, after: _Compiler) -> Change:
    entry = kind_change(old, new)
    if entry:
        return Change([], [entry])
    if isinstance(old, EventNode) and isinstance(new, EventNode):
        return event_change(old, new)
    assert isinstance(old, Derivation) and isinstance(new, Derivation), "both are of one kind"
    if is_same(old, new):
        return Change([], [])
    return derivation_change(old, new, lambda: before.aggregated_types(old), lambda: after.aggregated_types(new))


def _begin(node: Derivation, before: TableState | None, version: int) -> TableState:
    """Returns the state of a table: what it was, and the features that are new."""
    started = before.started if before else {}
    features = {feature: started.get(feature, version) for feature in node.ops[-1]["agg"]}
    return replace(before or TableState(str(version), {}), started=features)


def _sort(nodes: Mapping[str, Node], paths: Mapping[str, str]) -> list[str]:
    """Returns the names, upstreams first, else in the given order.

    Raises:
        RegistrationError: there is a cycle; the path is that of one of its nodes that has one.
    """
    done: dict[str, None] = {}
    for name in nodes:
        path: dict[str, None] = {}
        while name not in done:
            if name in path:
                at = next((f"{paths[each]}.upstreams[0]" for each in path if each in paths), "<body>")
                _refuse(at, f"'{name}' would depend on itself: {' <- '.join(list(path)[:10])}")
            path[name] = None
            node = nodes[name]
            if isinstance(node, EventNode):
                break
            name = node.upstreams[0]
        done.update(dict.fromkeys(reversed(path)))
    return list(done)


def _descend(names: Iterable[str], order: Iterable[str], nodes: Mapping[str, Node]) -> set[str]:
    """Returns the names, and those of all nodes that come from them."""
    reached = set(names)
    for name in order:
        node = nodes[name]
        if isinstance(node, Derivation) and node.upstreams[0] in reached:
            reached.add(name)
    return reached


def _refuse(path: str, reason: str) -> NoReturn:
    raise RegistrationError("invalid_registration", path, reason)
