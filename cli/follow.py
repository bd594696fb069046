"""Follows a stream under a name (`headrace tail --as`): the reader that has the claim shows pages and acknowledges them,
until the stream is closed; others wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from cli.consumer import Busy, Claim, Consumer, Holding, Lost, now_s
from cli.options import Target
from cli.pages import Page
from cli.terminal import say

AGAIN_S = 1.0
"""The pause before a stream is claimed again that another reader has."""

Show = Callable[[Page, str, str], None]
"""Prints a page, which begins after an offset, and has a content type."""


async def follow_as(consumer: Consumer, target: Target, start: str, lease_ms: int, show: Show) -> None:
    """Shows what is appended to a stream, from where the consumer is in it, until it is closed. Raises CliError if the
    server refuses it.
    """
    stream = target.name
    await consumer.patiently(consumer.create_wakes)
    await consumer.patiently(partial(consumer.subscribe, stream, lease_ms=lease_ms, start=start))

    async def use(held: Holding) -> None:
        offset, cursor, live = held.claim.offset, None, False
        while True:
            read = partial(consumer.read, target, offset, live=live, cursor=cursor)
            page, content_type = await consumer.patiently(read)
            show(page, offset, content_type)
            held.owed = page.next_offset if page.next_offset != offset else ""
            if held.owed or page.closed:
                await held.ack(held.owed, done=page.closed)
            if page.closed:
                return
            live = live or page.up_to_date
            offset, cursor = page.next_offset, page.cursor

    waits_for = ""
    while True:
        asked_s = now_s()
        claim = await consumer.patiently(partial(consumer.claim, stream))
        if isinstance(claim, Claim):
            try:
                return await consumer.hold(stream, claim, asked_s, use)
            except Lost as lost:
                say(f"{stream} is lost: {lost}", err=True)
                await asyncio.sleep(AGAIN_S)
        elif isinstance(claim, Busy):
            if claim.holder != waits_for:
                say(f"{claim.holder} reads {stream} as {consumer.name}: waiting", err=True)
            waits_for = claim.holder
            await asyncio.sleep(AGAIN_S)
        elif await _is_over(consumer, target):
            return None


async def _is_over(consumer: Consumer, target: Target) -> bool:
    """Waits until a stream has something after where the consumer is. Returns True if it is closed there."""
    offset = await consumer.patiently(partial(consumer.acked, target.name))
    asked_s = now_s()
    page, _ = await consumer.patiently(partial(consumer.read, target, offset, live=True))
    if page.next_offset == offset and not page.closed and now_s() - asked_s < AGAIN_S:
        await asyncio.sleep(AGAIN_S)  # this door does not hold requests open
    return page.closed and page.next_offset == offset
