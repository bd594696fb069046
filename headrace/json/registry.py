"""The schema registry of a stream: schema versions and the offsets where each begins, lenses between them, the routing
key, and the search configuration.

An update is parsed strictly, then applied to the current registry. Both are pure functions, so that an update can be
applied again to a newer state. The documents are those of Prisma Streams, `durable.streams/schema-registry/v1`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from headrace.errors import InvalidRequest, PayloadTooLarge
from headrace.json import jsontext, lens, search_config, validate
from headrace.limits import MAX_SAFE_INTEGER

API_VERSION = "durable.streams/schema-registry/v1"
MAX_REGISTRY_BYTES = 4 * 1024 * 1024  # a process keeps the registries that it has met

Schema = dict[str, Any] | bool

_UPDATE_KEYS = ("apiVersion", "schema", "lens", "routingKey", "search")
_ROUTING_KEY_KEYS = ("jsonPointer", "required")

_path = lru_cache(1024)(jsontext.parse_pointer)  # every record asks for the same one


class Boundary(msgspec.Struct, frozen=True):
    """The start of a schema version: records from `offset` on are of `version`, up to the next boundary."""

    offset: int
    version: int


class RoutingKey(msgspec.Struct, frozen=True):
    """The JSON pointer to a document's routing key, and whether each document must have one."""

    json_pointer: str
    required: bool


class Registry(msgspec.Struct, frozen=True):
    """The schemas of a stream and everything that depends on them. Neither the registry nor the documents in it are
    ever changed.

    Attributes:
        current_version: version of the schema that appends are checked against; 0 if there is no schema.
        schemas: the schemas, by version as text.
        lenses: the lenses by version as text; "N" leads from version N to N + 1.
        boundaries: ascending by offset; if several have the same offset, the last one counts.
        routing_key: where a record's key is taken from; None means from the request.
        search: the normalised search configuration, if there is one.
    """

    current_version: int = 0
    schemas: dict[str, Any] = {}
    lenses: dict[str, Any] = {}
    boundaries: tuple[Boundary, ...] = ()
    routing_key: RoutingKey | None = None
    search: dict[str, Any] | None = None


class Update(msgspec.Struct, frozen=True):
    """A requested change of a registry. If `routing_key` or `search` is unset, it is kept; None removes it.

    Attributes:
        schema: the schema of the next version; without it, only the routing key or only the search configuration
            changes.
        lens: the lens from the current version to the next one, not checked yet.
        search: the search configuration, not checked yet.
    """

    schema: Schema | UnsetType = UNSET
    lens: Any = None
    routing_key: RoutingKey | UnsetType | None = UNSET
    search: Any = UNSET


def document(registry: Registry, name: str) -> dict[str, Any]:
    """Returns the document that `GET …/_schema` answers. `name` is the stream's."""
    shown: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "schema": name,
        "currentVersion": registry.current_version,
    }
    if registry.routing_key is not None:
        key = registry.routing_key
        shown["routingKey"] = {"jsonPointer": key.json_pointer, "required": key.required}
    if registry.search is not None:
        shown["search"] = registry.search
    shown["boundaries"] = [{"offset": one.offset, "version": one.version} for one in registry.boundaries]
    shown["schemas"] = registry.schemas
    shown["lenses"] = registry.lenses
    return shown


def parse_update(body: bytes, name: str) -> Update:
    """Parses the body of `POST …/_schema`: `{schema, lens?, routingKey?, search?}`, `{routingKey}` or `{search}`.

    Args:
        name: the stream's name, which a lens must contain, too.

    Raises:
        InvalidRequest: the body is not JSON or has another shape, the lens is for another stream, or the schema is
            invalid.
    """
    update = _update(jsontext.loads(body))
    named = update.lens.get("schema", name) if isinstance(update.lens, dict) else name
    if named != name:
        raise InvalidRequest(f"lens schema mismatch: expected={name} received={named!r:.80}")
    return update


def _update(body: Any) -> Update:
    fields = _object(body, "schema update", _UPDATE_KEYS)
    if fields.get("apiVersion", API_VERSION) != API_VERSION:
        raise InvalidRequest(f"apiVersion must be {API_VERSION}")
    has_schema, has_key, has_search = (key in fields for key in ("schema", "routingKey", "search"))
    if not has_schema:
        if fields.get("lens") is not None:
            raise InvalidRequest("lens needs a schema")
        if has_key == has_search:
            raise InvalidRequest("schema update must have a schema, or else one of routingKey and search")
    routing_key = _routing_key(fields["routingKey"]) if has_key else UNSET
    if has_schema:
        if routing_key is None:
            raise InvalidRequest("routingKey must be an object when there is a schema")
        validate.compile(fields["schema"])
    return Update(
        schema=fields.get("schema", UNSET),
        lens=fields.get("lens"),
        routing_key=routing_key,
        search=fields.get("search", UNSET),
    )


def _routing_key(value: Any) -> RoutingKey | None:
    if value is None:
        return None
    fields = _object(value, "routingKey", _ROUTING_KEY_KEYS)
    text, required = fields.get("jsonPointer"), fields.get("required")
    if not isinstance(text, str):
        raise InvalidRequest("routingKey.jsonPointer must be a string")
    if not isinstance(required, bool):
        raise InvalidRequest("routingKey.required must be a boolean")
    jsontext.parse_pointer(text)
    return RoutingKey(text, required)


def _object(value: Any, what: str, allowed: Collection[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{what} must be an object")
    for key in value:
        if key not in allowed:
            raise InvalidRequest(f"{what} has an unknown key: {key[:80]!r} allowed={', '.join(allowed)}")
    return value


def apply(registry: Registry, update: Update, *, name: str, next_offset: int, is_empty: bool) -> Registry:
    """Applies an update, and returns the new registry.

    Args:
        registry: the current registry.
        update: as `parse_update` returns it.
        name: the stream's name.
        next_offset: offset of the first record that the new schema will check.
        is_empty: whether the stream never had a record.

    Raises:
        Conflict: the lens does not lead from the current version to the next one.
        InvalidRequest: the first schema comes after records; a later schema comes without a lens; a lens or search
            configuration is invalid; a lens can't be proven; there is search without a schema.
        PayloadTooLarge: the registry would outgrow `MAX_REGISTRY_BYTES`.
    """
    changed = registry
    if update.schema is not UNSET and registry.current_version:
        changed = _next(registry, update.schema, update.lens, name, next_offset)
    elif update.schema is not UNSET:
        if not is_empty:
            raise InvalidRequest("first schema requires an empty stream")
        changed = _first(registry, update.schema, update.lens, name)
    if update.routing_key is not UNSET:
        changed = replace(changed, routing_key=update.routing_key)
    if update.search is not UNSET:
        changed = replace(changed, search=_search(update.search, changed.current_version))
    if len(jsontext.dumps(document(changed, name))) > MAX_REGISTRY_BYTES:
        raise PayloadTooLarge(f"schema registry is too large: limit={MAX_REGISTRY_BYTES}")
    return changed


def _first(registry: Registry, schema: Schema, wanted: Any, name: str) -> Registry:
    if wanted is not None:  # some clients send a lens from nothing; it has nothing to do
        lens.parse(wanted, name, 0)
    return replace(registry, current_version=1, schemas={"1": schema}, boundaries=(Boundary(0, 1),))


def _next(registry: Registry, schema: Schema, wanted: Any, name: str, next_offset: int) -> Registry:
    version = registry.current_version
    if wanted is None:
        raise InvalidRequest("lens required")
    if next_offset > MAX_SAFE_INTEGER:
        raise InvalidRequest(f"offset is too large for a boundary: limit={MAX_SAFE_INTEGER}")
    proven = lens.prove(lens.parse(wanted, name, version), registry.schemas[str(version)], schema)
    return replace(
        registry,
        current_version=version + 1,
        schemas={**registry.schemas, str(version + 1): schema},
        lenses={**registry.lenses, str(version): proven},
        boundaries=(*registry.boundaries, Boundary(next_offset, version + 1)),
    )


def _search(value: Any, version: int) -> dict[str, Any] | None:
    if value is None:
        return None
    if version == 0:
        raise InvalidRequest("search config requires an installed schema version")
    return search_config.parse(value, version).document()


def install(update: dict[str, Any], *, name: str, next_offset: int) -> Registry:
    """Returns the registry with which a profile replaces any other: its schema is version 1, from `next_offset` on.

    Records before it are of version 0: nothing is known of them, and no lens promotes them.

    Raises:
        InvalidRequest: the update is invalid.
    """
    fresh = apply(Registry(), _update(update), name=name, next_offset=0, is_empty=True)
    return replace(fresh, boundaries=tuple(Boundary(next_offset, one.version) for one in fresh.boundaries))


def cut(registry: Registry, base: int) -> Registry:
    """Returns the registry of a fork that begins at offset `base`: records that the fork itself appends are of the
    current version.
    """
    kept = tuple(one for one in registry.boundaries if one.offset < base)
    if registry.current_version and (not kept or kept[-1].version != registry.current_version):
        kept = (*kept, Boundary(base, registry.current_version))
    return replace(registry, boundaries=kept)


def routing_key_of(routing_key: RoutingKey, document: Any) -> str | None:
    """Extracts a document's routing key; None if it has none and none is required.

    Raises:
        InvalidRequest: the key is missing although it is required, or is not a string (null included).
    """
    found = jsontext.get(document, _path(routing_key.json_pointer))
    if isinstance(found, str):
        return found
    if found is not jsontext.MISSING:
        raise InvalidRequest("routing key must be string")
    if routing_key.required:
        raise InvalidRequest("routing key missing")
    return None
