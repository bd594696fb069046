"""An entry's payload: inline when small, an object of the bucket when not.

The object is written before the entry that names it, so a reader that sees the entry finds it. One that no entry came
to name is swept after a day; its writer falls under the ack fence long before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from types import MappingProxyType
from typing import NamedTuple

from headrace.batch import EMPTY, MAX_PAYLOAD_BYTES, Batch, concat, decode_frames, encode_frames
from headrace.errors import Damaged
from headrace.log.stores import Stores
from headrace.objects import ObjectMissing, Range, keys
from headrace.wal.state import Entry


class Payload(NamedTuple):
    """Where the frames are; both None without records."""

    inline: bytes | None = None
    key: str | None = None


class Payloads:
    """Makes the payload of a batch, once, however often the batch is decided again."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._log_id = ""
        self._batches: Sequence[Batch] | None = None
        self._payload = Payload()

    def of(self, log_id: str, slot: int, batches: Sequence[Batch]) -> Payload:
        """Returns the payload of these batches, for this log: its objects go when the log is purged."""
        if not any(batches):
            return Payload()
        if self._batches is not None and log_id == self._log_id and _same(self._batches, batches):
            return self._payload
        frames = encode_frames(concat(batches))
        if len(frames) <= self._stores.settings.spill_bytes:
            self._payload = Payload(inline=frames)
        else:
            key = keys.payload(log_id, slot, self._stores.request_ids())
            self._stores.objects.put(key, frames)
            self._payload = Payload(key=key)
        self._log_id, self._batches = log_id, batches
        return self._payload


def _same(some: Sequence[Batch], others: Sequence[Batch]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


class PayloadTrimmed(Exception):
    """The entry's object is gone: the entry was trimmed after it was read."""


def fetch_payloads(stores: Stores, entries: Iterable[Entry]) -> dict[str, bytes]:
    """Returns the objects that hold records of these entries, by key, with one round of parallel GETs.

    Returns nothing if there are fewer than two, or if one of them is gone: who reads them one by one meets it in its turn.
    """
    spilled = [entry.payload_key for entry in entries if entry.payload_key is not None]
    if len(spilled) < 2:
        return {}
    try:
        found = stores.objects.get_ranges([Range(key, 0, MAX_PAYLOAD_BYTES) for key in spilled])
    except ObjectMissing:
        return {}
    return dict(zip(spilled, found, strict=True))


def read_payload(stores: Stores, entry: Entry, fetched: Mapping[str, bytes] = MappingProxyType({})) -> Batch:
    """Returns the records of an entry, with their append times.

    Args:
        fetched: objects in hand, by key.

    Raises:
        PayloadTrimmed: the object that holds them is gone.
        Damaged: they don't decode, or aren't as many as the entry or its append times say.
    """
    if not entry.count:
        return EMPTY
    source = entry.payload_key or f"log_id={entry.log_id} slot={entry.slot}"
    if entry.payload is not None:
        frames = entry.payload
    elif entry.payload_key is not None and entry.payload_key in fetched:
        frames = fetched[entry.payload_key]
    elif entry.payload_key is not None:
        try:
            frames = stores.objects.get(entry.payload_key)
        except ObjectMissing as exc:
            raise PayloadTrimmed(source) from exc
    else:
        raise Damaged(f"entry has records and no payload: {source}")
    batch = decode_frames(frames, source)
    timed = sum(run.count for run in entry.times)
    if not len(batch) == timed == entry.count:
        raise Damaged(f"entry holds other than it says: {source} expected={entry.count} found={len(batch)} {timed=}")
    if len(entry.times) == 1:
        return batch.at(entry.times[0].time_ms)
    return batch.at(list(chain.from_iterable(repeat(run.time_ms, run.count) for run in entry.times)))
