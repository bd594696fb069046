"""The catalog: one row per name, a projection of the write-ahead log that can be repaired from it.

Guarantees every adapter keeps:
 1. A row is created and replaced only as a guard of a commit (`headrace.wal.PutRow`), so a name has one log at a time.
 2. `get` is strongly consistent. Listings and `due` may lag by a moment.
 3. Listings are in byte order of the name, and cost in proportion to what they return.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import msgspec

from headrace.wal.state import LogConfig

BUCKETS = "0123456789abcdef"
GENERIC = "generic"  # the profile of a log that was given none


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a name stands for.

    Attributes:
        log_id: its log.
        config: the log's configuration.
        ended: the log has ended; listings omit it. A hint: the log's own state decides.
        deadline_ms: not before this time can it expire; None when it never does.
        profile: the kind of the log's profile, for listings.
    """

    log_id: str
    config: LogConfig
    ended: bool = False
    deadline_ms: int | None = None
    profile: str = GENERIC

    @property
    def surface(self) -> str:
        """The surface that owns the name."""
        return self.config.surface

    @property
    def name(self) -> str:
        """The name."""
        return self.config.name


def bucket_of(surface: str, name: str) -> str:
    """Hash key of a name's row: the surface and one hex digit, so that a listing merges 16 ordered queries."""
    return f"{surface}#{hashlib.sha256(name.encode()).hexdigest()[0]}"


class Catalog(Protocol):
    """Names to logs. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def get(self, surface: str, name: str) -> Row | None:
        """The row of a name, ended or not."""

    def living(self, surface: str, *, after: str = "", prefix: str = "", limit: int) -> list[Row]:
        """Up to `limit` rows that have not ended, with names above `after` and beginning with `prefix`, in order."""

    def every(self, surface: str, *, after: str = "", limit: int) -> list[Row]:
        """Up to `limit` rows, ended or not, with names above `after`, in order: what a recovery looks at."""

    def due(self, now_ms: int, *, limit: int) -> list[Row]:
        """Rows whose deadline is at or before `now_ms`, as they are now. Not all: the index lags."""

    def mark_ended(self, row: Row) -> None:
        """Records that the row's log has ended, and drops its deadline. Nothing if the name has another log now."""

    def set_hints(self, row: Row, *, deadline_ms: int | None = None, profile: str | None = None) -> None:
        """Corrects deadline and profile (None: it stays). Nothing if the name has another log now, or it has ended."""
