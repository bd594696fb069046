"""When the load is over and faults have ended: everything comes to rest by itself, and nothing is damaged."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headrace.aws import aws_stores, region_of
from headrace.log.stores import Stores
from headrace.machine import machine_of
from headrace.manifest import merging
from headrace.manifest.merging import MergeLimits
from headrace.recovery.survey import list_logs
from headrace.recovery.verify import verify_all
from headrace.settings import Settings, child_environment
from headrace.tables.catalog import Row
from local.environment import client
from tests.support.emulated_cloud import DevServer

# Left by a kill between an upload and what names it; the sealer's orphan sweep removes them after a day.
EXPECTED = frozenset({"bucket.orphan"})
ROWS = 500


@dataclass
class Rest:
    """What was found at rest."""

    seconds: float = 0.0
    unfinished: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    orphans: int = 0
    logs: int = 0
    generations: int = 0
    segments: int = 0
    merged_away: int = 0
    dead_letters: list[str] = field(default_factory=list)


@contextmanager
def stores_of(state: dict[str, Any]) -> Iterator[Stores]:
    """Yields the stores of an emulator, on clients without faults; the environment is put back afterwards."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(child_environment(before, state["environment"]))
    try:
        settings = Settings.from_environment(os.environ)
        yield aws_stores(settings, region_of(os.environ), dynamodb_timeout_s=10, s3_read_timeout_s=10)
    finally:
        os.environ.clear()
        os.environ.update(before)


def unfinished(stores: Stores, limits: MergeLimits) -> list[str]:
    """Returns what is still to do until each living log is sealed, trimmed to one entry and merged, and each ended
    one is purged and in no listing.
    """
    left = []
    living = {log.log_id: log for row in _living(stores) for log in row.logs}
    for log_id, row in living.items():
        entries, end_slot = stores.wal.read(log_id).entries, stores.watermarks.get(log_id).end_slot
        if entries and entries[-1].state.ended:
            left.append(f"{log_id} {row.config.name}: has ended, and its row says that it lives")
        elif not entries or end_slot <= entries[-1].slot:
            left.append(f"{log_id} {row.config.name}: not sealed, {len(entries)} entries")
        elif len(entries) > 1:
            left.append(f"{log_id} {row.config.name}: not trimmed, {len(entries)} entries")
        elif mergeable(stores, log_id, limits):
            left.append(f"{log_id} {row.config.name}: not merged")
    for listed in list_logs(stores.objects):
        if listed.log_id not in living and not listed.tombstoned:
            newest = stores.wal.newest(listed.log_id)
            if newest is not None and not newest.state.forks:
                left.append(f"{listed.log_id}: not purged")
    return left


def mergeable(stores: Stores, log_id: str, limits: MergeLimits) -> bool:
    """Returns whether small segments of a log wait to become one."""
    manifest = stores.manifests().newest(log_id, None, 0)
    return manifest is not None and bool(merging.groups(manifest.open_page, stores.clock.now_ms(), limits))


def merged_away(stores: Stores, log_id: str) -> int:
    """Returns how many segments fewer a log has because of merging."""
    manifest = stores.manifests().newest(log_id, None, 0)
    return manifest.merged_away if manifest is not None else 0


def _living(stores: Stores) -> Iterator[Row]:
    for surface in stores.surfaces:
        after = ""
        while rows := stores.catalog.living(surface, after=after, limit=ROWS):
            yield from rows
            after = rows[-1].name


def come_to_rest(server: DevServer, limit_s: float, limits: MergeLimits, progress: Callable[[str], None]) -> Rest:
    """Waits until nothing is left to do, or `limit_s` is over, and looks at everything."""
    started, sqs = time.monotonic(), _sqs(server.state)
    with stores_of(server.state) as stores:
        while (left := unfinished(stores, limits)) and time.monotonic() - started < limit_s:
            waiting = waiting_messages(sqs)
            progress(f"coming to rest, {len(left)} logs and {waiting} messages left, such as {left[0]}")
            time.sleep(2)  # each look scans every log: it must not slow down what it waits for
        found = Rest(seconds=time.monotonic() - started, unfinished=left)
        report = verify_all(stores)
        found.merged_away = sum(merged_away(stores, log.log_id) for log in report.logs)
    kinds = Counter(finding.kind for finding in report.findings)
    found.orphans = kinds["bucket.orphan"]
    found.damage = [str(finding) for finding in report.findings if finding.kind not in EXPECTED]
    found.logs = len(report.logs)
    found.generations = sum(log.generations for log in report.logs)
    found.segments = sum(log.segments for log in report.logs)
    found.dead_letters = dead_letters(sqs)
    return found


def waiting_messages(sqs: Any) -> int:
    """Returns how many messages are in the queues, most of them the sealer's."""
    names = [f"ApproximateNumberOfMessages{what}" for what in ("", "Delayed", "NotVisible")]
    attributes = [
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        for url in sqs.list_queues().get("QueueUrls", [])
    ]
    return sum(int(one[name]) for one in attributes for name in names)


def dead_letters(sqs: Any) -> list[str]:
    """Messages in every dead-letter queue."""
    letters = []
    for url in sqs.list_queues().get("QueueUrls", []):
        if "DeadLetters" in url:
            while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
                letters += [f"{url.rsplit('/', 1)[-1]}: {message['Body']}" for message in messages]
    return letters


def _sqs(state: dict[str, Any]) -> Any:
    machine = machine_of(state["environment"])
    return machine.client("sqs") if machine is not None else client("sqs", state["endpoint"])
