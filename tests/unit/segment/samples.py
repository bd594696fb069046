"""Records, stored segments and a store that counts, for the tests of segments."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.batch import Record
from headrace.objects import keys
from headrace.objects.memory import MemoryObjects
from headrace.segment.descriptor import Segment
from headrace.segment.writer import build
from tests.support.builders import batch_of

LOG = "0" * 32
START_MS = 1_700_000_000_000


class CountingObjects(MemoryObjects):
    """Remembers which reads it served."""

    def __init__(self) -> None:
        super().__init__()
        self.gets: list[str] = []
        self.ranges: list[tuple[str, int, int]] = []

    def get(self, key: str) -> bytes:
        self.gets.append(key)
        return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.ranges.append((key, start, length))
        return MemoryObjects.get(self, key)[start : start + length]


def records(datas: Sequence[bytes], *, first: int = 0, every_ms: int = 3, named: int = 5) -> list[Record]:
    """Records with these data: `every_ms` of them share an append time, every third has no key."""
    return [
        Record(first + row, START_MS + row // every_ms, None if row % 3 == 0 else f"key-{row % named}", data)
        for row, data in enumerate(datas)
    ]


def mixed(count: int, *, first: int = 0) -> list[Record]:
    """Records of very different sizes, empty ones too, on several pages."""
    return records([(b"%06d." % row) * (row * 37 % 501) for row in range(count)], first=first)


def stored(content: Sequence[Record], objects: MemoryObjects, *, text: bool = False, number: int = 0) -> Segment:
    """Builds a segment and puts both of its objects, as the sealer does."""
    built = build(content[0].offset, batch_of(content), text=text, log_id=LOG)
    segment = built.describe(number, keys.segment(LOG, number, "n"))
    objects.put(segment.key, built.data)
    objects.put(keys.segment_keys(segment.key), built.key_page)
    return segment


def expected(content: Sequence[Record], start: int, max_records: int, max_bytes: int) -> list[bytes]:
    """Returns what a read must return, by the rule and nothing else."""
    found: list[bytes] = []
    for record in content[start - content[0].offset :]:
        found.append(record.data)
        if len(found) >= max_records or sum(map(len, found)) >= max_bytes:
            break
    return found
