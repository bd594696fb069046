"""Groups records into request bodies. Same input and limits, same bodies, unless the input pauses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cli.elements import PAUSE


@dataclass(frozen=True)
class Batch:
    """One request's body. `records` is 0 for bytes, which have no records."""

    body: bytes
    records: int


def json_batches(records: Iterable[bytes | None], max_records: int, max_bytes: int) -> Iterator[Batch]:
    """Arrays of at most `max_records` records and, brackets and commas included, `max_bytes` bytes.

    A record too large for that goes alone. A pause ends a batch.
    """
    held: list[bytes] = []
    size = 2
    for record in records:
        if record is PAUSE:
            if held:
                yield json_batch(held)
                held, size = [], 2
            continue
        if held and (len(held) == max_records or size + len(record) + 1 > max_bytes):
            yield json_batch(held)
            held, size = [], 2
        held.append(record)
        size += len(record) + 1
    if held:
        yield json_batch(held)


def json_batch(records: list[bytes]) -> Batch:
    return Batch(b"[" + b",".join(records) + b"]", len(records))


def byte_batches(chunks: Iterable[bytes | None], max_bytes: int) -> Iterator[Batch]:
    """Bodies of exactly `max_bytes` bytes, the last one and those before a pause aside."""
    held = bytearray()
    for chunk in chunks:
        if chunk is PAUSE:
            if held:
                yield Batch(bytes(held), 0)
                held.clear()
            continue
        held += chunk
        while len(held) >= max_bytes:
            yield Batch(bytes(held[:max_bytes]), 0)
            del held[:max_bytes]
    if held:
        yield Batch(bytes(held), 0)
