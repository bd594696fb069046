"""Fills a bucket with a sealed stream, through the log engine and the sealer; the tables are in memory.

A later reader of the bucket rebuilds the tables from it, as `headrace recover` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import orjson

from benchmarks.search.directory import DirectoryObjects
from benchmarks.search.events import SCHEMA_UPDATE
from functions.queue import MemoryQueue
from functions.sealer.context import assemble as assemble_sealer
from functions.sealer.seal import seal
from headrace.batch import Batch
from headrace.definition import Definition
from headrace.index.manifest import IndexManifestStore
from headrace.json import registry
from headrace.log.requests import JSON
from headrace.log.stores import Stores
from headrace.memory import memory_stores
from headrace.objects import Objects
from headrace.recovery.recover import recover
from headrace.settings import Settings
from headrace.streams.values import STREAMS, AppendRequest, CreateRequest
from headrace.streams.verbs import Streams
from headrace.wal.state import LogConfig, LogState

STREAM = "requests"
_BATCH = 1_000
_NEVER_SPILL = 1 << 40  # entries stay in memory, outside of the bucket


def fill(root: Path, blocks: Iterable[list[bytes]], progress: Callable[[int], None]) -> str:
    """Appends the events to a new stream and seals all of them; returns the log's id.

    Args:
        root: an empty folder, the bucket.
        progress: told how many events were appended since it was last told.
    """
    settings = Settings(spill_bytes=_NEVER_SPILL)
    stores = memory_stores(settings, objects=DirectoryObjects(root))
    logs = Streams(stores)
    sealer = assemble_sealer(stores, MemoryQueue())
    log_id = logs.create(STREAM, CreateRequest(content_type=JSON)).head.log_id
    logs.define(STREAM, _described)
    for block in blocks:
        for at in range(0, len(block), _BATCH):
            records = Batch.of(block[at : at + _BATCH])
            logs.append(STREAM, AppendRequest(content_type=JSON, records=records))
            progress(len(records))
        seal(sealer, log_id)  # full segments only
    seal(sealer, log_id, force=True)
    return log_id


def reopened(objects: Objects, settings: Settings) -> Stores:
    """Stores over a bucket that was filled before: tables in memory, rebuilt from it.

    Raises:
        RuntimeError: it can't be read.
    """
    stores = memory_stores(settings, objects=objects)
    refused = [log.reason for log in recover(stores).logs if log.status == "refused"]
    if refused:
        raise RuntimeError(f"the bucket can't be read: {refused}")
    indexes = IndexManifestStore(objects)
    for row in stores.catalog.living(STREAMS, limit=1):
        stores.watermarks.publish_index(row.log_id, indexes.newest(row.log_id).generation)
    return stores


def _described(before: Definition, _: LogConfig, state: LogState) -> Definition:
    update = registry.parse_update(orjson.dumps(SCHEMA_UPDATE), STREAM)
    is_empty = state.next_offset == 0
    after = registry.apply(before.registry, update, name=STREAM, next_offset=state.next_offset, is_empty=is_empty)
    return Definition(after, before.own)
