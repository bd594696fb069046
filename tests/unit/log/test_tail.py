"""Reading the tail: an entry counts only with its successor in hand, wherever a page of the table ends."""

from __future__ import annotations

import pytest

from headrace.log.join import RECENT
from headrace.streams.values import CreateRequest, ForkRequest
from headrace.wal import memory
from tests.support.builders import appending
from tests.unit.log.world import World


@pytest.mark.parametrize("forks", range(1, 12))
def test_a_record_behind_many_control_entries_is_found(forks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_PAGE_BYTES", 1200)  # four control entries
    world = World()
    process = world.process()
    process.create()
    for number in range(forks):
        process.logs.create(f"f{number}", CreateRequest(fork=ForkRequest("s")))
    written = [f"{number}".encode() for number in range(2 * RECENT)]
    for data in written:
        process.logs.append("s", appending(data))
    assert world.process().read() == written
