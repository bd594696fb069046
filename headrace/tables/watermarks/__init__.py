"""Watermarks: per log, how far it is published, when it was last touched, and what was asked of its objects.

Guarantees every adapter keeps:
 1. The published part is raised only by a newer generation of the same log, and its end never falls; a repeat changes
    nothing. (A sealer that stood still while its log was purged publishes a newer generation with a lower end.)
 2. `touched_ms` and `index_generation` never fall.
 3. `get` and `counts` are strongly consistent.
 4. Counts only grow, and touch nothing else of the row. After `StoreTimeout` from `count` they may have been added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec


class Watermark(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a log is published.

    Attributes:
        generation: newest manifest known here (0: none). The bucket may hold a newer one.
        end_slot: slot after the last entry that the manifest covers: entries below it are published.
        end_offset: offset after the last published record.
        sealed_bytes: logical bytes published.
        touched_ms: last counted read of a stream with a sliding TTL.
        index_generation: newest index manifest known here (0: none is). The bucket may hold a newer one.
    """

    generation: int = 0
    end_slot: int = 0
    end_offset: int = 0
    sealed_bytes: int = 0
    touched_ms: int = 0
    index_generation: int = 0


class Watermarks(Protocol):
    """Rows by log id. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def get(self, log_id: str) -> Watermark:
        """The row; zeros when there is none."""

    def publish(self, log_id: str, generation: int, end_slot: int, end_offset: int, sealed_bytes: int) -> bool:
        """Raises the published part. False, and nothing changed, if this generation or a newer one stands there."""

    def publish_index(self, log_id: str, generation: int) -> None:
        """Raises `index_generation` to `generation`, of a log that is published and not purged."""

    def touch(self, log_id: str, now_ms: int) -> None:
        """Raises `touched_ms` to `now_ms`."""

    def count(self, log_id: str, requests: Mapping[str, int]) -> None:
        """Adds to the log's counters, by name."""

    def counts(self, log_id: str) -> dict[str, int]:
        """The log's counters; those that were never added to are left out."""

    def note(self, log_id: str) -> bytes | None:
        """What surfaces keep of a log beside it (templates of waiters); its loss costs no record. At most 300 KB."""

    def set_note(self, log_id: str, data: bytes, replaces: bytes | None) -> bool:
        """Writes the note if `replaces` stands there (None: if there is none). False, and nothing changed, if not."""

    def drop_note(self, log_id: str) -> None:
        """Removes the note."""

    def delete(self, log_id: str) -> None:
        """Drops the row, counters included, after everything of the log was purged."""
