"""Payloads that are objects: a page fetches those that it takes records of, no others, all but the first in one round."""

from __future__ import annotations

import random

import pytest

from headrace.errors import Damaged
from headrace.log.requests import At
from headrace.wal.state import BEGINNING, Cursor
from tests.support.builders import appending
from tests.unit.log.world import Process, World

NOISE = random.Random(1)


def spilled(world: World) -> list[bytes]:
    writer = world.process()
    writer.create()
    written: list[bytes] = []
    for _ in range(8):
        batch = [NOISE.randbytes(500) for _ in range(4)]
        writer.logs.append("s", appending(*batch))
        written += batch
    return written


def fetched(process: Process) -> tuple[int, list[int]]:
    """GETs one by one, and how many each round of parallel ones fetched."""
    rounds = [len(args[0]) for method, args in process.objects.seen if method == "get_ranges"]
    return process.objects.calls["get"], rounds


def test_a_page_takes_exactly_the_payloads_that_it_needs_in_two_rounds() -> None:
    world = World(spill_bytes=100)
    written = spilled(world)
    for position, limit, payloads in ((0, 9_000, 5), (3, 9_000, 6), (1, 1, 1), (4, 2_001, 2), (0, 1 << 20, 8)):
        reader = world.process()
        page = reader.logs.read("s", At(Cursor(None, position)), max_bytes=limit)
        assert page.data == written[position : page.next]
        assert page.next == 32 or page.size >= limit
        one_by_one, rounds = fetched(reader)
        assert one_by_one + sum(rounds) == payloads
        assert len(rounds) <= 1
        assert one_by_one == (1 if rounds else payloads)


def test_a_payload_that_is_gone_is_told_by_the_place_that_needs_it() -> None:
    world = World(spill_bytes=100)
    written = spilled(world)
    reader = world.process()
    log_id = reader.logs.head("s").log_id
    keys = [entry.payload_key for entry in world.entries(log_id) if entry.payload_key]
    world.objects.delete([keys[3]])
    assert reader.logs.read("s", At(BEGINNING), max_bytes=6_000).data == written[:12]
    with pytest.raises(Damaged, match="position=12"):
        reader.logs.read("s", At(BEGINNING))
