"""A deployment in memory whose tables can be lost, rewound or damaged."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from functions.sealer.context import assemble
from headrace.batch import Batch
from headrace.log.requests import At
from headrace.memory import memory_stores
from headrace.objects import keys
from headrace.recovery.recover import recover
from headrace.recovery.report import LogRecovered, RecoverReport, VerifyReport
from headrace.recovery.verify import verify_all
from headrace.streams.values import AppendRequest
from headrace.streams.verbs import Streams
from headrace.tables.catalog import Row
from headrace.tables.watermarks import Watermark
from headrace.wal.memory import MemoryWal
from headrace.wal.state import BEGINNING, Cursor, Entry, Producer
from headrace.wal.state import decode_cursor as decode
from tests.support.pairs import Pairs, pairs_wal
from tests.unit.sealer.world import BYTES, SETTINGS, World

HOUR_S = 3600
AGE_S = SETTINGS.trim_age_ms / 1000  # after which entries may be trimmed


class Tables(NamedTuple):
    """Everything in the tables."""

    entries: dict[str, dict[int, Entry]]
    rows: dict[tuple[str, str], Row]
    marks: dict[str, Watermark]
    producers: dict[tuple[str, str], Producer]


class Ruins(World):
    """A world that disasters happen to."""

    def lose_tables(self) -> None:
        """Every item of every table is gone; processes are started again."""
        self._install(pairs_wal())

    def lose_catalog(self) -> None:
        """The catalog and the watermarks are gone, the entries are not."""
        self.wal.catalog.rows.clear()
        self.wal.watermarks.rows.clear()

    def snapshot(self) -> MemoryWal:
        """Returns the tables as they are now."""
        kept = pairs_wal()
        kept._slots, kept._entries = copy.deepcopy(self.wal._slots), dict(self.wal._entries)
        kept._marks = dict(self.wal._marks)
        kept.catalog.rows = dict(self.wal.catalog.rows)
        kept.watermarks.rows = dict(self.wal.watermarks.rows)
        kept.producers.rows = dict(self.wal.producers.rows)
        kept.sessions.counters = dict(self.wal.sessions.counters)
        kept.follows.rows = dict(self.wal.follows.rows)
        return kept

    def rewind(self, to: MemoryWal) -> None:
        """The tables are as they were."""
        self._install(to)

    def _install(self, wal: MemoryWal) -> None:
        self.wal = wal
        before = self.stores
        self.stores = memory_stores(
            before.settings,
            before.clock,
            wal=wal,
            objects=before.objects,
            surfaces=before.surfaces,
            counted=before.counted,
            log_ids=before.log_ids,
            request_ids=before.request_ids,
        )
        self.logs, self.pairs = Streams(self.stores), Pairs(self.stores, most=0)
        self.parts = assemble(self.stores, self.queue)

    def tables(self) -> Tables:
        """For comparing."""
        entries: dict[str, dict[int, Entry]] = {}
        for (log_id, slot), entry in self.wal._entries.items():
            entries.setdefault(log_id, {})[slot] = entry
        return Tables(
            entries,
            dict(self.wal.catalog.rows),
            {log_id: mark for log_id, mark in self.wal.watermarks.rows.items() if mark != Watermark()},
            dict(self.wal.producers.rows),
        )

    def bucket(self) -> dict[str, bytes]:
        """Returns every object."""
        return dict(self.objects._objects)

    def recover(self, **options: Any) -> RecoverReport:
        """In fresh processes."""
        report = recover(self.stores, **options)
        self.logs, self.pairs = Streams(self.stores), Pairs(self.stores, most=0)
        return report

    def seconds(self) -> int:
        """Returns the time: what a recovery now raises an incarnation to."""
        return self.clock.now_ms() // 1000

    def recovered(self, **options: Any) -> dict[str, LogRecovered]:
        """By log id."""
        return {log.log_id: log for log in self.recover(**options).logs}

    def verify(self) -> VerifyReport:
        """Everything."""
        return verify_all(self.stores)

    def kinds(self) -> set[str]:
        """Returns what verification finds."""
        return {finding.kind for finding in self.verify().findings}

    def read(self, name: str, at: At = At(cursor=BEGINNING)) -> list[bytes]:  # noqa: B008 - immutable
        """Returns everything readable from `at` on."""
        found: list[bytes] = []
        while True:
            page = self.logs.read(name, at, touch=False)
            found += page.data
            if page.up_to_date:
                return found
            at = At(cursor=page_cursor(page.text(page.next)))

    def close(self, name: str) -> None:
        """Ends appends."""
        self.logs.append(name, AppendRequest(close=True))

    def produce(self, name: str, producer: str, seq: int, data: bytes) -> Any:
        """Appends a record as a producer; returns the answer."""
        request = AppendRequest(content_type=BYTES, records=Batch.of([data]), producer=Producer(producer, 0, seq))
        return self.logs.append(name, request)

    def segment_keys(self, log_id: str) -> list[str]:
        """Segments, in order."""
        return [key for key in self.keys(log_id, "segments/") if key.endswith(".parquet")]

    def newest_manifest_key(self, log_id: str) -> str:
        """Returns the key of the newest generation."""
        manifest = self.manifest(log_id)
        assert manifest is not None
        return keys.manifest(log_id, manifest.generation)


def page_cursor(text: str) -> Any:
    """Returns a cursor from its text."""
    return decode(text)


def at(incarnation: int, position: int) -> At:
    """Returns the place that a client names by a cursor."""
    return At(cursor=Cursor(incarnation, position))
