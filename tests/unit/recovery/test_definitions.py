"""Definitions outlive the tables: a fork keeps the one that it began with, and verification looks at each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.definition import Definition
from headrace.errors import InvalidRequest
from headrace.json import registry
from headrace.log.requests import JSON
from headrace.objects import keys
from headrace.streams import profiles
from headrace.wal.state import LogConfig, LogState
from tests.support.builders import appending
from tests.unit.recovery.test_skewed_restores import rewind_entries
from tests.unit.recovery.world import Ruins

NUMBERS = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
RENAMED = {"type": "object", "required": ["m"], "properties": {"m": {"type": "integer"}}}
RENAME = {"from": 1, "to": 2, "ops": [{"op": "rename", "from": "/n", "to": "/m"}]}


def install(world: Ruins, name: str, schema: Any, lens: Any = None) -> None:
    """The next version of a stream's schema."""
    if lens is not None:
        lens = {"apiVersion": "durable.lens/v1", "schema": name, **lens}
    body = {"schema": schema} if lens is None else {"schema": schema, "lens": lens}
    update = registry.parse_update(json.dumps(body).encode(), name)

    def change(before: Definition, _: LogConfig, state: LogState) -> Definition:
        end = state.next_offset
        after = registry.apply(before.registry, update, name=name, next_offset=end, is_empty=end == 0)
        return Definition(after, before.own)

    world.logs.define(name, change)


def take_profile(world: Ruins, name: str, kind: str) -> None:
    """Another profile."""
    world.logs.define(name, lambda before, _, __: Definition(before.registry, profiles.parse({"kind": kind})))


def put(world: Ruins, name: str, **document: Any) -> None:
    """One record."""
    world.logs.append(name, appending(json.dumps(document).encode(), content_type=JSON))


def promoted() -> tuple[Ruins, str]:
    """Returns a log with a record of its first version, under its second."""
    world = Ruins()
    log_id = world.create("s", content_type=JSON)
    install(world, "s", NUMBERS)
    put(world, "s", n=1)
    install(world, "s", RENAMED, RENAME)
    return world, log_id


def shown(world: Ruins, name: str) -> list[Any]:
    """Returns what readers see."""
    return [json.loads(data) for data in world.read(name)]


@pytest.mark.parametrize("loses_rows", [False, True])
def test_a_fork_whose_entries_are_lost_keeps_the_definition_that_it_began_with(loses_rows: bool) -> None:
    world, source = promoted()
    earlier = world.snapshot()
    fork = world.fork("f", "s")
    world.seal(source)
    if loses_rows:
        world.seal(fork)
        world.objects.delete([keys.manifest(fork, 1), *world.keys(fork, "segments/")])  # its sealer died before them
        world.lose_tables()
    else:
        rewind_entries(world, earlier)
    assert world.recovered(rewound=True)[fork].status == "restored"
    assert shown(world, "f") == [{"m": 1}]
    with pytest.raises(InvalidRequest):
        put(world, "f", n=2)
    put(world, "f", m=2)
    assert shown(world, "f") == [{"m": 1}, {"m": 2}]
    assert not world.recover().changed
    assert not [one for one in world.verify().findings if one.severity == "error"]


def test_what_is_published_brings_its_definition_back() -> None:
    world, log_id = promoted()
    take_profile(world, "s", "state-protocol")
    world.seal(log_id)
    world.lose_tables()
    world.recover()
    assert shown(world, "s") == [{"m": 1}]
    assert [row.label for row in world.logs.list(limit=1)] == ["state-protocol"]
    assert not world.recover().changed
    assert not world.verify().findings


def test_a_row_from_before_a_change_of_profile_is_put_right() -> None:
    world = Ruins()
    log_id = world.create("s", content_type=JSON)
    earlier = dict(world.wal.catalog.rows)
    take_profile(world, "s", "state-protocol")
    world.wal.catalog.rows = earlier
    assert [(one.kind, one.severity) for one in world.verify().findings] == [("catalog.differs", "warning")]
    assert world.recovered()[log_id].wrote == ("entry", "row")
    assert [row.label for row in world.logs.list(limit=1)] == ["state-protocol"]
    assert not world.recover().changed
    assert not world.verify().findings


def test_verification_looks_at_every_definition_that_is_named() -> None:
    world, log_id = promoted()
    world.seal(log_id)
    first, second = world.keys(log_id, "registry/")
    assert not world.verify().findings
    data = world.objects.get(second)
    world.objects._objects[second] = data[:-1]
    assert world.kinds() == {"definition.damaged"}
    world.objects._objects[second] = world.objects.get(first)
    assert world.kinds() == {"definition.damaged"}
    world.objects.delete([second])
    assert world.kinds() == {"definition.missing"}


def test_a_definition_of_a_change_that_never_was_is_an_orphan() -> None:
    world, log_id = promoted()
    never, later = keys.definition(log_id, 2, "lost-its-slot"), keys.definition(log_id, 3, "on-its-way")
    (_, second) = world.keys(log_id, "registry/")
    for key in (never, later):
        world.objects.put(key, world.objects.get(second))
    assert [(one.kind, one.severity, one.where) for one in world.verify().findings] == [
        ("bucket.orphan", "warning", later)
    ]
