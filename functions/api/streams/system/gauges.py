"""What is true of a process at the end of a window. Pure."""

from __future__ import annotations

from functions.api.door.layers import Load
from functions.api.streams.inspection.process import Memory
from functions.api.streams.system.window import Series


def gauges(load: Load, memory: Memory) -> list[tuple[Series, int]]:
    """Requests under way that write, and memory."""
    return [
        (Series("tieredstore.ingest.queue.requests", "count"), load.writes),
        (Series("tieredstore.ingest.queue.bytes", "bytes"), load.write_bytes),
        (Series("process.rss.bytes", "bytes"), memory.resident),
    ]
