"""Verb: look. A log was published, or may have been: notes when something of it will be due."""

from __future__ import annotations

from functions.indexer import policy
from functions.indexer.context import Context
from functions.indexer.picture import see
from functions.queue import MAX_DELAY_S, Message
from headrace.errors import StoreThrottled

_TRIES = 8


def look(context: Context, log_id: str) -> bool:
    """Notes that the log waits; whether something of it is due, or will be.

    Raises:
        Damaged: what was found contradicts itself.
        StoreTimeout, StoreThrottled: repeat later.
    """
    picture = see(context, log_id)
    if picture is None:
        return False
    for _ in range(_TRIES):
        now_ms = context.now_ms()
        row = context.jobs.get(log_id)
        since_ms = row.since_ms if row is not None else now_ms
        due_ms = policy.next_look_ms(picture, since_ms, now_ms, context.limits)
        if due_ms is None:
            return False
        changed = policy.noted(row, log_id, now_ms, due_ms)
        if changed is None:
            return True
        if context.jobs.put(changed) is not None:
            wake(context, changed.due_ms)
            return True
    raise StoreThrottled(f"row of a waiting log moves on: log_id={log_id}")


def wake(context: Context, due_ms: int) -> None:
    """Has the indexer look again at that time, if a message can wait so long; else the schedule does."""
    now_ms = context.now_ms()
    if 0 < due_ms - now_ms <= MAX_DELAY_S * 1000:
        context.queue.send([Message("tick", not_before_ms=due_ms)], now_ms)
