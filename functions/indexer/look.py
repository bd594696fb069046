"""The verbs look and audit: they note when something of a log will be due for indexing or merging.

A look follows a message that the log was, or may have been, published. The audit goes through the names that live once a
day (`functions/worker.py: audit` is the walk), and looks at each log that was written to in the last two days, at any
other one once a week, to find what every event and message missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile

from functions import worker
from functions.indexer import policy
from functions.indexer.context import Context
from functions.indexer.policy import Picture
from functions.queue import MAX_DELAY_S, Message
from functions.worker import Audited, is_its_day
from headrace.definition import Definition, key_of
from headrace.errors import Damaged, StoreThrottled
from headrace.index.descriptors import NONE, hash_of
from headrace.manifest import merging
from headrace.manifest.manifest import MAX_REPLACED, Manifest
from headrace.manifest.merging import Scrub
from headrace.objects import ObjectMissing, keys
from headrace.segment import keypage, reader
from headrace.segment.descriptor import Segment
from headrace.tables.catalog import Row
from headrace.wal.state import LogState

_TRIES = 8


def look(context: Context, log_id: str) -> bool:
    """Looks at a log and notes in its row of waiting logs when indexing or merging will be due. Returns False if
    nothing is or will be due; then no row is written.

    Raises:
        Damaged: the log's data contradicts itself.
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
    """Sends the indexer a message for that time (epoch ms), if it is in the future and within the queue's longest delay
    (15 minutes); otherwise does nothing, because the schedule will look.
    """
    now_ms = context.now_ms()
    if 0 < due_ms - now_ms <= MAX_DELAY_S * 1000:
        context.queue.send([Message("tick", not_before_ms=due_ms)], now_ms)


def is_over(state: LogState) -> bool:
    """Returns whether the log has ended and no fork reads it, so that it needs no index any more."""
    return bool(state.ended) and not state.forks


def see(context: Context, log_id: str) -> Picture | None:
    """Reads what the policy needs to know about a log. Returns None if there is nothing to do: the log is unknown, over
    or unpublished, or it needs no index and merging is off.

    Raises:
        Damaged: the log's data contradicts itself.
        StoreTimeout, StoreThrottled: repeat later.
    """
    newest = context.stores.wal.newest(log_id)
    if newest is None or is_over(newest.state):
        return None
    watermark = context.stores.watermarks.get(log_id)
    manifest = context.manifests.newest(log_id, None, watermark.generation)
    if manifest is None or not manifest.segment_count:
        return None
    definition = context.definitions.of(log_id, newest.state)
    plan = hash_of(definition)
    index = context.indexes.newest(log_id, at_least=watermark.index_generation)
    is_indexed = plan != NONE or bool(index.runs) or _has_keys(context, manifest, definition)
    scrubs = _scrubs(context, manifest) if len(manifest.replaced) < MAX_REPLACED else ()
    if not is_indexed and not context.limits.merge.segments and not scrubs:
        return None
    base_offset, end_offset = max(manifest.config.base_offset, manifest.state.floor), manifest.end_offset
    ranges = policy.unindexed_ranges(index, plan, base_offset, end_offset) if is_indexed else []
    return Picture(
        log_id=log_id,
        content_type=manifest.config.content_type,
        plan=plan,
        definition=key_of(log_id, newest.state.definition),
        base_offset=base_offset,
        end_offset=end_offset,
        published_ms=manifest.end_published_ms,
        manifest=index,
        unindexed=_newest_in(context, manifest, ranges, policy.enough(context.limits)),
        open_page=manifest.open_page if len(manifest.replaced) < MAX_REPLACED else (),
        scrubs=scrubs,
    )


def _scrubs(context: Context, manifest: Manifest) -> tuple[Scrub, ...]:
    """Returns the first segments from which removed records are to be scrubbed now, ascending; as many as one job takes.

    Costs a GET for each sealed page of the manifest that is not cached, of those that name segments with such records.
    """
    now_ms = context.now_ms()

    def segments_from(offset: int) -> Iterator[Segment]:
        return context.manifests.segments_from(manifest, offset)

    dead = context.dead(manifest, now_ms)
    expired = _expired(context, manifest, dead.expired_ms)
    runs = [(first, end) for first, end in dead.runs if end > expired]
    if expired:
        runs = [(0, expired), *((max(first, expired), end) for first, end in runs)]
    found = merging.with_dead(segments_from, runs)
    due = (one for one in found if merging.is_due(one, manifest.log_id, now_ms, manifest.state.floor))
    return tuple(islice(due, policy.MAX_MERGES))


def _expired(context: Context, manifest: Manifest, before_ms: int | None) -> int:
    """Returns the offset of the first published record that was appended at a time or later; 0 if there is no time."""
    if before_ms is None:
        return 0
    segment = context.manifests.segment_for_time(manifest, before_ms)
    if segment is None:
        return manifest.end_offset
    return reader.find_time(context.stores.objects, segment, before_ms)


def _has_keys(context: Context, manifest: Manifest, definition: Definition) -> bool:
    """Returns whether records have routing keys: the definition requires them, or the newest segment has some."""
    if definition.registry.routing_key is not None:
        return True
    if manifest.begin_offset == manifest.end_offset:
        return False
    newest = next(context.manifests.segments_from(manifest, manifest.end_offset - 1), None)
    if newest is None:
        raise Damaged(f"manifest has no last segment: log_id={manifest.log_id} generation={manifest.generation}")
    key = keys.segment_keys(newest.key)
    try:
        data = context.stores.objects.get(key)
    except ObjectMissing as exc:
        raise Damaged(f"key page is missing: object={key}") from exc
    return bool(keypage.decode(data, sha256=newest.keys_sha256, count=newest.count, source=key).keys)


def _newest_in(
    context: Context, manifest: Manifest, ranges: list[tuple[int, int]], limit: int
) -> tuple[Segment, ...]:
    """Returns the newest `limit` segments that overlap these ranges of offsets, ascending."""
    found: list[Segment] = []
    for start, end in reversed(ranges):
        inside = list(_last_in(context, manifest, start, end, limit - len(found)))[::-1]
        found = inside + [one for one in found if not inside or one.number > inside[-1].number]
        if len(found) >= limit:
            break
    return tuple(found[-limit:])


def _last_in(context: Context, manifest: Manifest, start: int, end: int, limit: int) -> Iterator[Segment]:
    """Yields the last `limit` segments that overlap `[start, end)`, the newest first."""
    found = takewhile(lambda one: one.end_offset > start, context.manifests.segments_before(manifest, end))
    return islice(found, limit)


def audit(context: Context, message: Message) -> Audited[bool]:
    """Looks at the logs of one page of names whose day it is, notes what is due for them, and sends messages to sweep their
    orphans (objects that nothing names). The result says of each such log whether it waits for an index or a merge, now or
    later.
    """
    now_ms = context.now_ms()

    def looked(row: Row) -> tuple[str, bool] | None:
        newest = context.stores.wal.newest(row.log_id)
        if newest is None or not is_its_day(message, row.log_id, now_ms - newest.committed_ms, now_ms):
            return None
        return row.log_id, look(context, row.log_id)

    def sweeps(audited: Audited[tuple[str, bool] | None]) -> list[Message]:
        looked_at = [one[0] for one in audited.found if one is not None]
        return [Message("orphans", log_id) for log_id in looked_at + [log_id for log_id, _ in audited.failed]]

    audited = worker.audit(context, message, looked, sweeps)
    return Audited([one[1] for one in audited.found if one is not None], audited.failed)
