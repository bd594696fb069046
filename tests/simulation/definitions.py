"""Definitions in the simulation: version N of every schema wants a member `vN`, which the lens from N - 1 adds.

So whether a record fits the schema in force at its slot, and how a later version shows it, is seen without the engine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from headrace.batch import Batch
from headrace.definition import Definition
from headrace.json.registry import Boundary
from headrace.log.requests import JSON
from headrace.streams import profiles
from headrace.wal.state import DefinitionRef, LogConfig, LogState

PLAIN, CHANGES = "generic", "state-protocol"


class Define(NamedTuple):
    """What is asked: the next version of the schema, or the other profile."""

    evolves: bool

    def change(self, before: Definition, config: LogConfig, state: LogState) -> Definition:
        """Returns the definition after the change."""
        if not self.evolves:
            return Definition(before.registry, profiles.parse({"kind": _other(before.own.kind)}))
        version = before.schema_version + 1
        lenses = dict(before.registry.lenses)
        if version > 1:
            lenses[str(version - 1)] = _lens(version)
        grown = replace(
            before.registry,
            current_version=version,
            schemas={**before.registry.schemas, str(version): _schema(version)},
            lenses=lenses,
            boundaries=(*before.registry.boundaries, Boundary(state.next_offset, version)),
        )
        return Definition(grown, before.own)

    def expected(self, before: DefinitionRef | None) -> tuple[int, int, str]:
        """Number, version and profile after it."""
        number, version, profile = facts(before)
        return (number + 1, version + 1, profile) if self.evolves else (number + 1, version, _other(profile))


def facts(ref: DefinitionRef | None) -> tuple[int, int, str]:
    """Number, version and profile of a definition."""
    return (0, 0, PLAIN) if ref is None else (ref.number, ref.schema_version, ref.label)


def record(version: int, text: str) -> bytes:
    """Returns a record that fits a version, under either profile."""
    value = {"d": text, **({f"v{version}": 1} if version else {})}
    return json.dumps({"type": "t", "key": "k", "value": value, "headers": {"operation": "insert"}}).encode()


def refused(content_type: str | None, records: Batch, ref: DefinitionRef | None) -> bool:
    """Returns whether records may not be appended under a definition."""
    _, version, profile = facts(ref)
    if not records or (version == 0 and profile == PLAIN):
        return False
    return content_type != JSON or not all(fits(one, version) for one in records.slices())


def fits(data: bytes, version: int) -> bool:
    """Returns whether a record is one that the schema of a version accepts."""
    return version == 0 or f"v{version}" in json.loads(data)["value"]


def shown(written: Sequence[tuple[bytes, int]], version: int) -> list[bytes]:
    """Records with the versions that they were written under, as readers at a later version see them."""
    return [_promoted(data, own, version) if 0 < own < version else data for data, own in written]


def _promoted(data: bytes, own: int, version: int) -> bytes:
    document: dict[str, Any] = json.loads(data)
    document["value"] |= dict.fromkeys((f"v{later}" for later in range(own + 1, version + 1)), 0)
    return json.dumps(document, separators=(",", ":")).encode()


def _other(profile: str) -> str:
    return CHANGES if profile == PLAIN else PLAIN


def _schema(version: int) -> dict[str, Any]:
    value = {"type": "object", "required": [f"v{version}"]}
    return {"type": "object", "required": ["value"], "properties": {"value": value}}


def _lens(version: int) -> dict[str, Any]:
    op = {"op": "add", "path": f"/value/v{version}", "schema": {"type": "integer"}, "default": 0}
    return {"apiVersion": "durable.lens/v1", "schema": "s", "from": version - 1, "to": version, "ops": [op]}
