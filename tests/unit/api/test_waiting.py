"""Pauses of waiting requests: they end by a wake-up, and by a cancellation, which is never lost."""

from __future__ import annotations

import asyncio

import pytest

from functions.api.door.waiting import Waiter


@pytest.mark.parametrize("steps", range(6))
def test_a_cancellation_that_comes_with_the_wake_up_is_not_lost(steps: int) -> None:
    async def run() -> None:
        waiter = Waiter()
        waiter._delay_s = 5.0
        pausing = asyncio.ensure_future(waiter.pause(5.0))
        for _ in range(3):
            await asyncio.sleep(0)
        waiter._woken.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        was_cancelled = pausing.cancel()  # false if the pause was over
        await asyncio.wait({pausing})
        assert pausing.cancelled() == was_cancelled

    asyncio.run(run())
