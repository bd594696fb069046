"""An entry's payload: inline when small, an object of the bucket when not.

The object is written before the entry that names it, so a reader that sees the entry finds it. One that no entry came
to name is swept after a day; its writer falls under the ack fence long before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.errors import Damaged
from headrace.log.stores import Stores
from headrace.objects import ObjectMissing, keys
from headrace.record import NewRecord, decode_frames, encode_frames
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
        self._records: Sequence[NewRecord] | None = None
        self._payload = Payload()

    def of(self, log_id: str, slot: int, records: Sequence[NewRecord]) -> Payload:
        """The payload of `records`, for this log: its objects go when the log is purged."""
        if not records:
            return Payload()
        if self._records is not None and log_id == self._log_id and _same(self._records, records):
            return self._payload
        frames = encode_frames(records)
        if len(frames) <= self._stores.settings.spill_bytes:
            self._payload = Payload(inline=frames)
        else:
            key = keys.payload(log_id, slot, self._stores.request_ids())
            self._stores.objects.put(key, frames)
            self._payload = Payload(key=key)
        self._log_id, self._records = log_id, records
        return self._payload


def _same(some: Sequence[NewRecord], others: Sequence[NewRecord]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


class PayloadTrimmed(Exception):
    """The entry's object is gone: the entry was trimmed after it was read."""


def read_payload(stores: Stores, entry: Entry) -> list[NewRecord]:
    """The records of an entry.

    Raises:
        PayloadTrimmed: the object that holds them is gone.
        Damaged: they don't decode, or aren't as many as the entry says.
    """
    if not entry.count:
        return []
    source = entry.payload_key or f"log_id={entry.log_id} slot={entry.slot}"
    if entry.payload is not None:
        frames = entry.payload
    elif entry.payload_key is not None:
        try:
            frames = stores.objects.get(entry.payload_key)
        except ObjectMissing as exc:
            raise PayloadTrimmed(source) from exc
    else:
        raise Damaged(f"entry has records and no payload: {source}")
    records = decode_frames(frames, source)
    if len(records) != entry.count:
        raise Damaged(f"entry holds other than it says: {source} expected={entry.count} found={len(records)}")
    return records
