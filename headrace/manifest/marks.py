"""The two small objects beside a log's manifests: `log.json` describes the log, `deleted.json` says that it is gone.
Both are plain JSON, version 1.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.wal.state import LogConfig


class Description(msgspec.Struct, frozen=True):
    """The content of `log.json`: what recovery needs to rebuild the catalog row of a published log."""

    log_id: str
    config: LogConfig
    version: int = 1


class Tombstone(msgspec.Struct, frozen=True):
    """The content of `deleted.json`: the log has ended and its data is gone. The configuration holds the
    incarnation.
    """

    log_id: str
    config: LogConfig
    ended: Literal["", "deleted", "expired"]
    next_offset: int
    version: int = 1
