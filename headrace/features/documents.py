"""What the definitions of lanes and registries hold, and the answers that show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from headrace import decoding
from headrace.definition import Definition
from headrace.errors import HeadraceError
from headrace.features.pipeline.compiled import Pipeline, PipelineDocument, compile_pipeline
from headrace.features.pipeline.nodes import Derivation
from headrace.features.pipeline.registry import Registry
from headrace.features.rows import AsOf
from headrace.features.values import REGISTRY, RegistryState
from headrace.log.requests import Head


class Earlier(msgspec.Struct, frozen=True, array_like=True):
    """A reference to a definition that a lane had before: its pipeline applies from the offset `since` on."""

    since: int
    number: int
    nonce: str


class LaneDocument(msgspec.Struct, frozen=True):
    """What a lane's definition adds: its pipeline, and references to those before, ascending."""

    pipeline: PipelineDocument
    earlier: tuple[Earlier, ...] = ()


class Lane(NamedTuple):
    """A lane's definition as it is used."""

    document: LaneDocument
    pipeline: Pipeline


def read_lane(definition: Definition) -> Lane:
    """Returns a lane's definition in the form in which it is used; pass it to `Definition.derive`."""
    document = decoding.from_builtins(definition.own.document(), LaneDocument)
    return Lane(document, compile_pipeline(document.pipeline))


def read_registry(definition: Definition) -> Registry:
    """Returns the registry that a definition has, an empty one if it has none; pass it to `Definition.derive`."""
    found = definition.own.document().get(REGISTRY)
    return decoding.from_builtins(found, Registry) if found is not None else Registry()


def generation_of(table: str, generation: str, head: Head) -> str:
    """Returns under what the rows of a table in a lane are stored. A recovery of the lane may use offsets again, so its
    rows are others.
    """
    return f"{table}.{generation}.{head.incarnation}"


class Answers(NamedTuple):
    """The answers to requests for features, in their order: each a row, or an error of that request alone; and which events
    they include.
    """

    rows: list[dict[str, Any] | HeadraceError]
    as_of: AsOf


class Registered(NamedTuple):
    """The answer to a registration: the registry's version, the names of the nodes that are new or changed, those that were
    there, and all nodes.
    """

    version: int
    added: Sequence[str]
    already_present: Sequence[str]
    registry: Registry


class RegistryView(NamedTuple):
    """A registry as it is now, and the state of its log."""

    registry: Registry
    state: RegistryState
    incarnation: int

    @property
    def order(self) -> tuple[int, int, int]:
        """What rises with each change of the registry."""
        return self.incarnation, self.state.version, self.state.done

    @property
    def tables(self) -> list[Derivation]:
        """The nodes that are tables."""
        return [node for node in self.registry.nodes if isinstance(node, Derivation) and node.output_kind == "table"]

    def has_table(self, name: str) -> bool:
        """Returns whether a node is a table."""
        return name in self.registry.tables
