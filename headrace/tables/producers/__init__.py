"""Producers beyond those in a log's state.

Rows are written only as guards of a commit (`headrace.wal.PutProducer`): a producer leaves the state and enters its row
in one step, so exactly-once holds for any number of producers. `get` is strongly consistent.
"""

from __future__ import annotations

from typing import Protocol

from headrace.wal.state import Producer


class Producers(Protocol):
    """Rows by log id and producer id. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def get(self, log_id: str, producer_id: str) -> Producer | None:
        """The row of a producer."""

    def purge(self, log_id: str) -> None:
        """Drops every row of a log."""
