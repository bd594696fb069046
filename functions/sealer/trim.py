"""Verb: trim. Removes entries that are published and old, oldest first.

Only entries below the watermark, committed at least the trim age ago, and never the newest. A crash between
pages, or between entries and their payloads, leaves entries that the next trim removes, or payloads that
the orphan sweep does.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from functions.queue import Message
from functions.sealer.context import Context
from headrace.wal.state import Entry

MAX_PAGES = 100  # about 100 MB of entries in one run


class Trimmed(NamedTuple):
    """What a run removed. `lag_ms`: how much longer than the trim age the oldest of it had stayed."""

    items: int = 0
    lag_ms: int = 0


def trim(parts: Context, log_id: str) -> Trimmed:
    """Removes what may go."""
    wal = parts.stores.wal
    newest = wal.newest(log_id)
    if newest is None:
        return Trimmed()
    end_slot = min(parts.stores.watermarks.get(log_id).end_slot, newest.slot)
    oldest_kept_ms = parts.now_ms() - parts.limits.trim_age_ms
    removed = Trimmed()
    for _ in range(MAX_PAGES):
        page = wal.read(log_id, end=end_slot)
        doomed = list(takewhile(lambda entry: entry.committed_ms <= oldest_kept_ms, page.entries))
        if doomed:
            payloads = list(_payloads(parts, page.entries, doomed))
            wal.remove(log_id, [entry.slot for entry in doomed])
            if payloads:
                parts.stores.objects.delete(payloads)
            lag_ms = max(removed.lag_ms, oldest_kept_ms - doomed[0].committed_ms)
            removed = Trimmed(removed.items + len(doomed), lag_ms)
        if page.complete or len(doomed) < len(page.entries):
            return removed
    parts.queue.send([Message("trim", log_id)], parts.now_ms())
    return removed


def _payloads(parts: Context, entries: list[Entry], doomed: list[Entry]) -> Iterator[str]:
    """Payload objects of those entries that are part of the chain.

    A dead item that a late writer put into a trimmed slot may share its payload with an entry of the chain,
    so its payload is left to the orphan sweep, which looks at every entry.
    """
    last = doomed[-1]
    after = entries[len(doomed) : len(doomed) + 1]
    if not after and last.payload_key is not None:
        after = parts.stores.wal.read(last.log_id, start=last.slot + 1, limit=1).entries
    followers = [*doomed[1:], after[0] if after else None]
    for entry, follower in zip(doomed, followers, strict=True):
        is_in_chain = follower is not None and (follower.prev_slot, follower.prev_id) == (
            entry.slot,
            entry.id,
        )
        if entry.payload_key is not None and is_in_chain:
            yield entry.payload_key
