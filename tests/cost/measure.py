"""Every count that `headrace cost` estimates with: measured on counting stores, or read from template and benchmarks."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from aws_lambda_powertools import Logger

from benchmarks.events import event
from functions.access import Access
from functions.api import context as api
from functions.indexer.follow import follow
from functions.indexer.handler import Indexer
from functions.indexer.look import look
from functions.indexer.runs import load_input
from functions.indexer.start import start
from functions.metrics import DIMENSION, IndexerMetric, Meter, RelayMetric, SealerMetric
from functions.relay.handler import Relay
from functions.sealer import context as sealer
from functions.sealer.audit import sweep
from functions.sealer.handler import Sealer, hints_by_log
from functions.sealer.policy import messages
from functions.sealer.seal import seal
from functions.sealer.trim import trim
from functions.worker import SCHEDULED
from headrace.batch import Batch
from headrace.index.job import VERSION, JobResult
from headrace.log.requests import At
from headrace.objects import keys, packed
from headrace.query.engine import context as engines
from headrace.query.engine.search import search
from headrace.settings import Settings
from headrace.streams.values import AppendRequest, CreateRequest
from headrace.topics.values import WriteRequest
from headrace.wal.entry import entry_item
from headrace.wal.state import BEGINNING, Cursor
from infra.environments import ENVIRONMENTS
from tests.cost import deployed_template, printed
from tests.cost.deployment import Deployment, deployed
from tests.cost.metered import size_of
from tests.cost.operations import RECORD_BYTES, operations
from tests.support import index_runs
from tests.unit.engine.world import Stream

JSON = "application/json"
GRID = [
    *((500, batch) for batch in (1, 2, 5, 10, 30, 100, 300, 1000, 3000)),
    (100, 1), (100, 100), (1_000, 1), (2_000, 1), (10_000, 1), (100_000, 1),
]  # fmt: skip
FULL_ENTRIES, FULL_BATCH = 330, 100  # 16.5 MB: a segment that is all but full
SEARCH_EVENTS = 2_000


def counts() -> dict[str, Any]:
    """Returns all counts, as the data file has them."""
    return {
        "appends": appends(),
        **streams(),
        "seal": sealing(1, 1, bytes_of_record=100),
        "seal_full": sealing(FULL_ENTRIES, FULL_BATCH, bytes_of_record=500),
        **schedules(),
        "operations": operations(lambda number: WriteRequest(records=records(number, 1, RECORD_BYTES))),
        "index": indexing(),
        "searches": searches(),
        "own_metrics": own_metrics(),
        "printed": printed.figures(),
        "templates": {name: deployed_template.figures(name) for name in ENVIRONMENTS},
    }


def records(first: int, count: int, size: int) -> Batch:
    """Records of exactly `size` bytes, cut from one long text of the benchmarks' events."""
    numbers = itertools.count(first * -(-size // 250))

    def one() -> bytes:
        text = b""
        while len(text) < size:
            text += event(next(numbers))
        return text[:size]

    return Batch.of([one() for _ in range(count)])


def _request(first: int, count: int, size: int) -> AppendRequest:
    return AppendRequest(content_type=JSON, records=records(first, count, size))


def appends() -> list[dict[str, Any]]:
    """Warm appends by size of a record and records of an append."""
    found = []
    with deployed() as here:
        log_id = here.logs.create("appends", CreateRequest(content_type=JSON)).head.log_id
        here.logs.append("appends", _request(0, 1, 100))
        for size, batch in GRID:
            request = _request(1, batch, size)
            spent = here.meters.of(lambda request=request: here.logs.append("appends", request))  # type: ignore[misc]
            entry = here.stores.wal.newest(log_id)
            assert entry is not None
            payload = entry.payload
            stored = len(payload) if payload is not None else here.objects.written[entry.payload_key or ""]
            found.append(
                {
                    "record_bytes": size,
                    "batch": batch,
                    "stored_bytes": stored,
                    "item_bytes": size_of(entry_item(entry)),
                    "spent": spent,
                }
            )
    return found


def streams() -> dict[str, Any]:
    """Returns what creates, cold appends, and reads of the tail and of segments spend."""
    with deployed() as here:
        found: dict[str, Any] = {
            "create": here.meters.of(lambda: here.logs.create("s", CreateRequest(content_type=JSON)))
        }
        here.logs.append("s", _request(0, 10, 500))
        found["append_cold"] = here.meters.of(lambda: here.cold().append("s", _request(1, 1, 500)))
        reader = here.cold()
        end = reader.read("s", At(BEGINNING)).next
        tail = At(Cursor(0, end))
        found["read_tail_idle"] = here.meters.of(lambda: reader.read("s", tail))
        here.logs.append("s", _request(2, 1, 500))
        found["read_tail_new"] = here.meters.of(lambda: reader.read("s", tail))
        for number in range(30):
            here.logs.append("s", _request(number, 100, 500))
        log_id = here.logs.head("s").log_id
        assert seal(here.sealer, log_id, force=True).segments == 1
        here.clock.advance(901)
        trim(here.sealer, log_id)
        cold = here.cold()
        found["read_segment_cold"] = here.meters.of(lambda: cold.read("s", At(BEGINNING), max_records=1000))
        with here.meters.during() as spent:
            page = cold.read("s", At(Cursor(0, 1000)), max_records=1000)
        found["read_segment"] = {
            "records": len(page.data),
            "payload_bytes": sum(map(len, page.data)),
            "spent": spent,
        }
        return found


def sealing(entries: int, batch: int, bytes_of_record: int) -> dict[str, Any]:
    """Returns what one segment spends after its appends: for a look that finds nothing due, the seal, the trim, and
    the messages.
    """
    with deployed() as here:
        log_id = here.logs.create("s", CreateRequest(content_type=JSON)).head.log_id
        for number in range(entries):
            here.logs.append("s", _request(number * batch, batch, bytes_of_record))
            here.clock.advance(0.01)
        sizes = _entries(here, log_id)
        look_spent = here.meters.of(lambda: _look_at(here, log_id, entries, batch))
        hints = hints_by_log(_events(here, log_id))[log_id]
        alarms = messages(log_id, hints, here.clock.now_ms(), here.sealer.limits)
        before = set(here.objects.written)
        with here.meters.during() as sealed:
            assert seal(here.sealer, log_id, force=True).segments == 1
        made = {key: size for key, size in here.objects.written.items() if key not in before}
        trims = [message for message in here.queue.waiting if message.verb == "trim"]
        here.clock.advance(901)
        trimmed = here.meters.of(lambda: trim(here.sealer, log_id))
        by_kind: dict[str, int] = {}
        for key, size in made.items():
            kind = _kind(key)
            by_kind[kind] = by_kind.get(kind, 0) + size
        return {
            "entries": len(sizes),
            "entry_bytes": sum(sizes),
            "payload_bytes": entries * batch * bytes_of_record,
            "object_bytes": by_kind,
            "manifest_bytes_of_each_segment": _manifest_growth(here, log_id),
            "messages": len(alarms) + len(trims),
            "look": look_spent,
            "seal": sealed,
            "trim": trimmed,
        }


def _kind(key: str) -> str:
    if "/manifests/" in key:
        return "manifest"
    if "/segments/" in key:
        return "segment" if key.endswith(".parquet") else "keys"
    return "description"


def _look_at(here: Deployment, log_id: str, entries: int, batch: int) -> None:
    """What a stream event has the sealer do for a log that is not due."""
    sealed = seal(here.sealer, log_id)
    assert sealed.segments == 0, (entries, batch)


def _entries(here: Deployment, log_id: str) -> list[int]:
    """Sizes of a log's entries."""
    found: list[int] = []
    start_slot = 0
    while True:
        page = here.stores.wal.read(log_id, start=start_slot)
        found += [size_of(entry_item(entry)) for entry in page.entries]
        if page.complete:
            return found
        start_slot = page.entries[-1].slot + 1


def _events(here: Deployment, log_id: str) -> list[dict[str, Any]]:
    """Returns the stream's events of a log's first page of entries."""
    return [
        {"dynamodb": {"Keys": {"log_id": {"S": log_id}}, "NewImage": entry_item(entry)}}
        for entry in here.stores.wal.read(log_id).entries
    ]


def _manifest_growth(here: Deployment, log_id: str) -> int:
    """Bytes that one more segment like the first adds to a manifest, on average over ten more."""
    sizes = []
    for number in range(11):
        if number:
            here.logs.append("s", _request(number, 1, 100))
        before = set(here.objects.written)
        seal(here.sealer, log_id, force=True)
        sizes += [
            size for key, size in here.objects.written.items() if key not in before and _kind(key) == "manifest"
        ]
    return (sizes[-1] - sizes[0]) // (len(sizes) - 1)


def schedules() -> dict[str, Any]:
    """Returns what the every-minute schedules of sealer, indexer and relay spend when there is nothing to do."""
    with deployed() as here:
        return {
            "sweep_idle": here.meters.of(lambda: sweep(here.sealer)),
            "tick_idle": here.meters.of(lambda: (follow(here.indexer), start(here.indexer))),
            "relay_idle": here.meters.of(lambda: Relay(here.relay, Logger(service="cost"), {}).run(Relay.scheduled)),
            "idle_metrics": idle_metrics(here),
        }


def idle_metrics(here: Deployment) -> list[str]:
    """Returns the metrics that the schedules of sealer, indexer and relay write when there is nothing to do."""
    lines: list[str] = []
    logger = Logger(service="cost")
    sealing = sealer.assemble(here.stores, here.queue, Meter(SealerMetric, lines.append))
    indexing = replace(here.indexer, meter=Meter(IndexerMetric, lines.append))
    relaying = replace(here.relay, meter=Meter(RelayMetric, lines.append))
    for worker in (Sealer(sealing, logger), Indexer(indexing, logger), Relay(relaying, logger, {})):
        worker.handle({"detail-type": SCHEDULED}, None)
    documents = [json.loads(line) for line in lines]
    return sorted(
        f"{document[DIMENSION]} {metric['Name']}"
        for document in documents
        for metric in document["_aws"]["CloudWatchMetrics"][0]["Metrics"]
    )


def indexing() -> dict[str, Any]:
    """Returns what one log spends in the indexer: to be noticed, planned, started and published; and for the requests
    of the job's own work.
    """
    with deployed() as here:
        stream = _Searchable(here)
        log_id = here.logs.head("s").log_id
        stream.fill(SEARCH_EVENTS)
        looked = here.meters.of(lambda: look(here.indexer, log_id))
        here.clock.advance(Settings().index_age_ms / 1000 + 1)
        started = here.meters.of(lambda: start(here.indexer))
        (job_id,) = here.runs.jobs
        job = load_input(here.objects.inner, job_id)
        assert job is not None
        with here.meters.during() as work:
            runs = index_runs.make(here.objects, job.tasks)
        result = JobResult(VERSION, job_id, {task.run_id: run for task, run in zip(job.tasks, runs, strict=True)}, ())
        here.objects.put(keys.job_result(job_id), packed.encode(result))
        here.runs.outcomes = dict.fromkeys(here.runs.outcomes, "succeeded")  # type: ignore[arg-type]
        followed = here.meters.of(lambda: follow(here.indexer))
        assert here.indexer.indexes.newest(log_id).runs
        steps = {"look": looked, "start": started, "job": work, "follow": followed}
        return {step: _calls(spent) for step, spent in steps.items()}


def own_metrics() -> dict[str, Any]:
    """Returns what an api process spends each time on the metrics stream and on counters of requests, and whether
    that stream is indexed.

    The process takes itself for a Lambda function, or it would flush by itself in a thread.
    """
    with deployed() as here, patch.dict(os.environ, {"AWS_LAMBDA_FUNCTION_NAME": "api"}):
        parts = api.assemble(here.stores, Access({}))
        logs = parts.logs()
        logs.create("s", CreateRequest(content_type=JSON))
        for round_number in range(2):
            for number in range(3):
                logs.append("s", _request(number, 1, 500))
            logs.read("s", At(BEGINNING))
            if round_number == 0:
                parts.metrics.flush()  # makes the stream
        flushed = here.meters.of(parts.metrics.flush)
        logs.append("s", _request(0, 300, 500))
        parts.counts.flush()
        logs.append("s", _request(0, 300, 500))
        counted = here.meters.of(parts.counts.flush)
        log_id = logs.head(parts.metrics.stream).log_id
        seal(here.sealer, log_id, force=True)
        return {"flush": flushed, "count": counted, "indexed": look(here.indexer, log_id)}


def searches() -> dict[str, Any]:
    """Returns what a search asks of the stores beside the GETs that the benchmark counts: a process's first, and a
    later one.
    """
    with deployed() as here:
        stream = _Searchable(here)
        stream.fill(SEARCH_EVENTS)
        stream.index()
        engine = engines.assemble(here.stores, here.cold())
        body = {"q": "service:billing* status:>=400", "size": 10}
        return {name: _calls(here.meters.of(lambda: search(engine, "s", body))) for name in ("cold", "warm")}


def _calls(spent: dict[str, float]) -> dict[str, float]:
    """Without bytes, which differ a little: runs are made at the time of the machine and with its ids."""
    return {name: count for name, count in spent.items() if not name.endswith("_bytes")}


class _Searchable(Stream):
    """A searchable stream of a counting deployment."""

    def __init__(self, here: Deployment) -> None:
        self.stores, self.logs, self.documents = here.stores, here.logs, []
        self._here = here
        self.logs.create("s", CreateRequest(content_type=JSON))
        self.update({"schema": {"type": "object"}, "search": _SEARCH})

    def fill(self, count: int) -> None:
        """So many events, sealed."""
        for block in _blocks(count):
            self.logs.append("s", AppendRequest(content_type=JSON, records=Batch.of(block)))
        seal(self._here.sealer, self.logs.head("s").log_id, force=True)


def _blocks(count: int, size: int = 500) -> Iterator[list[bytes]]:
    for first in range(0, count, size):
        yield [event(number) for number in range(first, first + size)]


def _field(kind: str, name: str, *capabilities: str) -> dict[str, Any]:
    bindings = [{"version": 1, "jsonPointer": f"/{name}"}]
    return {"kind": kind, "bindings": bindings, **dict.fromkeys(capabilities, True)}


_SEARCH = {
    "primaryTimestampField": "timestamp",
    "fields": {
        "timestamp": _field("date", "timestamp", "column"),
        "service": _field("keyword", "service", "exact", "prefix"),
        "requestId": _field("keyword", "requestId", "exact"),
        "status": _field("integer", "status", "exact", "column"),
        "message": {**_field("text", "message", "positions"), "analyzer": "unicode_word_v1"},
    },
}
