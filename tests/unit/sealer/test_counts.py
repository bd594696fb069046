"""The sealer's requests to the object store, in the streams' counters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from functions.sealer import handler
from functions.sealer.context import assemble
from tests.support.faults import Faulty
from tests.unit.sealer.world import World, dispatcher


def test_they_are_added_at_the_end_of_an_invocation(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    log_id = world.create("s")
    world.append("s", b"x")
    monkeypatch.setattr(handler, "worker", lambda: dispatcher(world.parts)[0])
    handler.handler({"verb": "seal", "log_id": log_id, "force": True}, None)
    counts = world.stores.watermarks.usage(log_id).requests
    assert (counts["segment.put"], counts["key_page.put"], counts["manifest.put"]) == (1, 1, 1)
    assert len(world.parts.counts) == 0


def test_no_invocation_fails_because_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    log_id = world.create("s")
    world.append("s", b"x")
    watermarks = Faulty(world.stores.watermarks)
    watermarks.fail("count", ValueError)
    parts = assemble(replace(world.stores, watermarks=watermarks), world.queue)
    monkeypatch.setattr(handler, "worker", lambda: dispatcher(parts)[0])
    assert handler.handler({"verb": "seal", "log_id": log_id, "force": True}, None) == {}
    assert watermarks.calls["count"] == 1
