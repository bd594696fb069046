"""The priority of a topic (§ 8), which falls while nobody reads it."""

from __future__ import annotations

from headrace.topics.values import TopicConfig

_AUTO_PRIORITY = 500
_HALF_LIFE_MS = 30_000
_IDLE_MS = 300_000
_MAX_PRIORITY = 1000


def effective_priority(config: TopicConfig, read_ms: int | None, now_ms: int) -> int:
    """Returns the priority of a topic that was last read at `read_ms`: the one that was given, else by how long ago that
    was.
    """
    if config.priority is not None:
        return max(-_MAX_PRIORITY, min(config.priority, _MAX_PRIORITY))
    if not config.auto_priority or read_ms is None or now_ms - read_ms > _IDLE_MS:
        return 0
    return round(_AUTO_PRIORITY * 2 ** (-max(0, now_ms - read_ms) / _HALF_LIFE_MS))
