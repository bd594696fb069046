"""The limits of what a key, and all clients together, may have open at once: streams over all processes, requests in one.

A stream takes its slot before its answer begins, so that a refusal is a 429, and frees it at its end. A process that dies,
or is frozen, frees nothing; its slots expire at the deadlines of their streams (`headrace.tables.slots`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from functions.api.door.requests import run
from headrace.clock import Clock, within_deadline
from headrace.errors import LimitReached
from headrace.settings import Settings
from headrace.tables import slots
from headrace.tables.parts import SLOT, Part
from headrace.tables.sessions import Sessions
from headrace.wal.state import random_id

_log = logging.getLogger(__name__)

STREAMS = "streams"  # the counter of open streams; with a key's id behind a slash, that of the key


class StreamSlots:
    """The slots of open streams, as one process takes them."""

    def __init__(self, sessions: Sessions, settings: Settings, clock: Clock) -> None:
        self._sessions = sessions
        self._settings = settings
        self._clock = clock

    async def hold(self, stream: Response, key_id: str, ends_ms: int) -> Response:
        """Takes a slot for a stream and returns the response to send in its place: the same, which frees the slot at its
        end, however it ends.

        Args:
            key_id: id of the key whose limit counts; empty if no key is needed, and then only the limit of all counts.
            ends_ms: when the stream ends at the latest, in epoch milliseconds.

        Raises:
            LimitReached: no slot is free; nothing of the stream was sent.
            StoreThrottled, StoreTimeout: the table of slots does not answer.
        """
        slot = await run(self.take, Part(SLOT, random_id(), expires_ms=ends_ms), key_id)
        return stream if slot is None else _Holding(stream, self, slot)

    async def free(self, slot: Part) -> None:
        """Frees a slot. Never raises: one that is not freed expires."""
        try:
            await asyncio.shield(run(self._free, slot))
        except Exception:  # noqa: BLE001 - as said
            _log.warning("slot is not freed: slot=%s expires_ms=%s", slot.id, slot.expires_ms, exc_info=True)

    def take(self, row: Part, key_id: str) -> Part | None:
        """Writes a new row that counts as an open stream, and returns it; None if no limit is set, and nothing was written.
        Blocks. Raises as `hold` does.
        """
        settings = self._settings
        limits = [slots.Limit("max_sse_connections", STREAMS, settings.max_sse_connections)]
        if key_id:
            of_key = settings.max_sse_connections_per_key
            limits.append(slots.Limit("max_sse_connections_per_key", f"{STREAMS}/{key_id}", of_key))
        with within_deadline(settings.request_timeout_ms):
            return slots.take(self._sessions, row, limits, self._clock.now_ms())

    def _free(self, slot: Part) -> None:
        with within_deadline(self._settings.request_timeout_ms):
            self._sessions.drop_part(slot)


class _Holding(Response):
    """A stream that frees its slot when it has ended."""

    def __init__(self, stream: Response, taken: StreamSlots, slot: Part) -> None:
        super().__init__(None, stream.status_code)
        self.raw_headers = stream.raw_headers
        self._stream = stream
        self._slots = taken
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._stream(scope, receive, send)
        finally:
            await self._slots.free(self._slot)


class InFlight:
    """The requests that this process works on, by key. For one event loop.

    Args:
        most: how many one key may have at once; 0 means that there is no limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._requests: Counter[str] = Counter()

    @contextmanager
    def request(self, key_id: str) -> Iterator[None]:
        """Counts a request of a key while the block runs; of no key (empty) it counts nothing. Streams are left out: they
        have slots.

        Raises:
            LimitReached: the key has as many as it may.
        """
        if not key_id or not self._most:
            yield
            return
        if self._requests[key_id] >= self._most:
            raise LimitReached("max_inflight_per_key", self._most)
        self._requests[key_id] += 1
        try:
            yield
        finally:
            self._requests[key_id] -= 1
            if not self._requests[key_id]:
                del self._requests[key_id]
