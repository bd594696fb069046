"""The routes that register nodes, reset a namespace, and show what is registered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from functions.access import Grant, Scope
from functions.api.context import Context
from functions.api.door.gauges import Gauge
from functions.api.door.gauges import text_of as gauges_text
from functions.api.door.requests import run
from functions.api.features.calls import JSON, Call, ChangeUnknown, is_within
from functions.metrics import ApiMetric
from headrace.errors import HeadraceError, InvalidRequest, OutcomeUnknown, Overloaded, RequestTimeout, StoreError
from headrace.features.errors import RegistrationError
from headrace.features.pipeline.compiled import TableState
from headrace.features.pipeline.nodes import Derivation, EventNode, Node
from headrace.features.values import DEFAULT_NAMESPACE, DryRun


async def register(call: Call) -> Response:
    """Registers nodes, or says what would change (§ 2)."""
    call.grant.require(Scope.ADMIN)
    if not _is_json(call):
        raise HTTPException(415, "expected application/json")
    answer = await call.run(_register, call, await call.read())
    if isinstance(answer, DryRun):
        return await call.reply({"diff": answer.diff, "would_apply": False})
    call.context.meter.add(ApiMetric.Registrations, int(bool(answer.added)))
    document = {
        "status": "ok",
        "registry_version": answer.version,
        "added": answer.added,
        "already_present": answer.already_present,
        "registered_descriptors": [node.name for node in answer.registry.nodes if call.may_touch(node.name)],
    }
    return await call.reply(document)


async def reset(call: Call) -> Response:
    """Removes everything in a namespace, where the settings allow it."""
    call.require(Scope.ADMIN, "")
    return await call.reply({"reset": True, "registry_version": await call.run(_reset, call)})


async def ping(call: Call) -> Response:
    """Says which version of the registry is in force."""
    view = await call.run(call.features.registry, call.namespace)
    return await call.reply({"pong": True, "registry_version": view.state.done})


async def ready(call: Call) -> Response:
    """Says that the process can serve, after a call to the tables."""
    await call.run(call.features.registry, DEFAULT_NAMESPACE)
    return await call.reply({"status": "ready"})


async def show_registry(call: Call) -> Response:
    """Shows the nodes that the key may touch, in a form in which they can be registered again."""
    call.grant.require(Scope.READ)
    view = await call.run(call.features.registry, call.namespace)
    nodes = [node for node in in_order(view.registry.nodes) if call.may_touch(node.name)]
    tables = view.registry.tables
    document = {
        "node_count": len(nodes),
        "version": view.state.version,
        "nodes": [document_of(node) for node in nodes],
        "tables": {name: _state_of(one) for name, one in tables.items() if call.may_touch(name)},
    }
    return await call.reply(document)


def _state_of(table: TableState) -> dict[str, Any]:
    shown = {"building": msgspec.to_builtins(table.building)} if table.building else {}
    return {"generation": table.generation, **shown}


async def text_of(context: Context, grant: Grant) -> str:
    """Returns numbers of the default namespace as Prometheus text, of the nodes that a key may touch."""
    view = await run(context.features().registry, DEFAULT_NAMESPACE)
    nodes = sum(is_within(grant, DEFAULT_NAMESPACE, node.name) for node in view.registry.nodes)
    return gauges_text(
        [
            Gauge("beava_registry_version", "version of the registry that is in force", [("", view.state.done)]),
            Gauge("beava_node_count", "registered events and derivations", [("", nodes)]),
        ]
    )


def _is_json(call: Call) -> bool:
    try:
        return call.headers.content_type == JSON
    except InvalidRequest:  # no media type at all
        return False


def _register(call: Call, data: bytes) -> Any:
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        error = RegistrationError("invalid_registration", "<body>", f"the body is not JSON: {exc}")
        with suppress(HeadraceError, StoreError):  # then the version is not known
            error.version = call.features.known(call.namespace).state.version
        raise error from exc
    _check_scopes(call, body)
    is_dry = isinstance(body, dict) and body.get("dry_run") is True
    with failing_as(RequestTimeout() if is_dry else ChangeUnknown()):
        return call.features.register(call.namespace, body)


def _check_scopes(call: Call, body: Any) -> None:
    """Raises Forbidden unless the key may administer each node of a registration, and read each upstream."""
    nodes = body.get("nodes") if isinstance(body, dict) else None
    for node in nodes if isinstance(nodes, list) else ():
        if not isinstance(node, dict):
            continue
        if isinstance(node.get("name"), str):
            call.require(Scope.ADMIN, node["name"])
        upstreams = node.get("upstreams")
        for upstream in upstreams if isinstance(upstreams, list) else ():
            if isinstance(upstream, str):
                call.require(Scope.READ, upstream)


def _reset(call: Call) -> int:
    with failing_as(ChangeUnknown()):
        return call.features.reset(call.namespace)


@contextmanager
def failing_as(error: HeadraceError) -> Iterator[None]:
    """Raises this error for one of which the library does not tell on which side of the registry's entry it happened: after
    it a change may be in force.
    """
    try:
        yield
    except (StoreError, OutcomeUnknown, RequestTimeout, Overloaded) as exc:
        raise error from exc


def in_order(nodes: tuple[Node, ...]) -> list[Node]:
    """Returns nodes in an order in which they can be registered: upstreams first, else as they are."""
    by_name = {node.name: node for node in nodes}
    done: dict[str, Node] = {}
    for node in nodes:
        path = [node]
        while isinstance(path[-1], Derivation) and path[-1].upstreams[0] not in done:
            path.append(by_name[path[-1].upstreams[0]])
        done.update((each.name, each) for each in reversed(path) if each.name not in done)
    return list(done.values())


def document_of(node: Node) -> dict[str, Any]:
    """Returns a node as a client registers it. Settings that have their defaults are left out."""
    if isinstance(node, Derivation):
        document: dict[str, Any] = {
            "kind": "derivation",
            "name": node.name,
            "output_kind": node.output_kind,
            "upstreams": node.upstreams,
            "ops": node.ops,
        }
        if node.output_kind == "table":
            document["table_primary_key"] = node.primary_key
        else:
            document["schema"] = {}  # its types are inferred
        return {**document, **({"backfill": True} if node.backfill else {})}
    schema = {"fields": node.fields, "optional_fields": node.optional}
    default = EventNode("", {})
    named = {
        "keep_events_for_ms": "keep_events_ms",
        **{name: name for name in ("cold_after_ms", "dedupe_key", "dedupe_window_ms", "lanes", "lane_key", "search")},
    }
    settings = {
        member: getattr(node, name) for member, name in named.items() if getattr(node, name) != getattr(default, name)
    }
    return {"kind": "event", "name": node.name, "schema": schema, **settings}
