"""The two small objects beside a log's manifests: what the log is, and that it is gone. Plain JSON, version 1."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.wal.state import LogConfig


class Description(msgspec.Struct, frozen=True):
    """`log.json`: what recovery needs to rebuild the catalog row, should the log have been published."""

    log_id: str
    config: LogConfig
    version: int = 1


class Tombstone(msgspec.Struct, frozen=True):
    """`deleted.json`: the log has ended and its data are gone. The configuration has the incarnation in force."""

    log_id: str
    config: LogConfig
    ended: Literal["", "deleted", "expired"]
    next_offset: int
    version: int = 1
