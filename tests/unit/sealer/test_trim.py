"""Laws of trimming: below the watermark, old, never the newest; payloads only of what is in the chain."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from functions.sealer.purge import purge
from functions.sealer.trim import trim
from headrace.settings import MAX_SPILL_BYTES
from tests.unit.sealer.world import SETTINGS, World, noise

AGE_S = SETTINGS.trim_age_ms / 1000


@settings(deadline=None)  # a shared machine
@given(
    st.lists(
        st.one_of(
            st.just("fill"),
            st.just("seal"),
            st.just("trim"),
            st.just(AGE_S - 0.5),
            st.just(1.0),
            st.floats(min_value=0, max_value=AGE_S * 1.2),
        ),
        max_size=25,
    )
)
def test_only_old_published_entries_go(steps: list[str | float]) -> None:
    world = World()
    log_id = world.create("a")
    written: list[bytes] = []
    for step in [*steps, "trim"]:
        if step == "fill":
            written += world.fill("a", 4)
        elif step == "seal":
            world.seal(log_id)
        elif step == "trim":
            before = world.entries(log_id)
            removed = trim(world.parts, log_id).items
            after = world.entries(log_id)
            gone = before[:removed]
            assert after == before[removed:]  # ascending
            end_slot = world.stores.watermarks.get(log_id).end_slot
            oldest_kept = world.clock.now_ms() - SETTINGS.trim_age_ms
            assert all(e.slot < end_slot for e in gone)
            assert all(e.committed_ms <= oldest_kept for e in before[: removed + 1 if removed else 0])
            assert after and after[-1] == before[-1]
            assert not [
                e for e, following in pairwise(after) if e.slot < end_slot and following.committed_ms <= oldest_kept
            ]
            named = {e.payload_key for e in after if e.payload_key}
            assert set(world.keys(log_id, "wal/")) == named
        else:
            world.wait(float(step))
    while world.seal(log_id).generations:
        pass  # a long backlog takes more than one run
    assert world.published(log_id) == written


def test_a_dead_item_goes_and_leaves_its_payload() -> None:
    world = World()
    log_id = world.create("a")
    world.fill("a", 8)
    world.seal(log_id)
    world.wait(AGE_S)
    trim(world.parts, log_id)
    world.fill("a", 4)
    (alive,) = [e for e in world.entries(log_id) if e.payload_key][-1:]
    dead = replace(alive, slot=5 * 10**9, request_ids=("late",), committed_ms=0)
    world.wal.commit(dead)
    assert trim(world.parts, log_id).items >= 1
    assert dead not in world.entries(log_id)
    world.objects.get(alive.payload_key or "")
    world.seal(log_id)
    assert len(world.published(log_id)) == 36


def test_trim_walks_over_pages() -> None:
    world = World(replace(SETTINGS, seal_bytes=10**8, spill_bytes=MAX_SPILL_BYTES))
    log_id = world.create("a")
    for number in range(8):
        world.append("a", noise(str(number), 250_000))
    assert not world.wal.read(log_id).complete
    world.seal(log_id)
    world.wait(AGE_S - 1)
    assert trim(world.parts, log_id).items == 0
    world.wait(1)
    assert trim(world.parts, log_id).items == 8


@pytest.mark.parametrize("verb", [trim, purge])
def test_a_run_that_the_store_holds_up_goes_on_by_a_message(verb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred pages, each held up for seconds, did not end within the function's time."""
    monkeypatch.setattr("headrace.wal.memory._PAGE_BYTES", 1000)
    world = World()
    log_id = world.create("a")
    world.fill("a", 120)
    while not world.seal(log_id).is_done:
        pass
    if verb is purge:
        world.logs.delete("a")
    world.wait(AGE_S)
    calls = []

    def slow(name: str, after: bool) -> None:
        if name == "remove" and after:
            calls.append(world.clock.advance(9))

    assert not verb(world.watched(slow), log_id).is_done
    assert len(calls) == 2


def test_nothing_there_is_nothing_to_trim() -> None:
    assert trim(World().parts, "0" * 32).items == 0
