"""What happens behind the clients' backs: events and messages of the sealer, its schedules, its verbs called directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from emr_jobs import merge as merges
from functions.indexer.follow import publish_merged, remove_merged
from functions.sealer.purge import purge
from functions.sealer.seal import seal
from functions.sealer.trim import sweep_orphans, trim
from headrace.errors import Damaged
from headrace.index.job import Task
from headrace.manifest import merging
from headrace.manifest.manifest import Manifest
from headrace.manifest.merging import MergeLimits
from headrace.objects import keys
from headrace.wal.entry import entry_item
from tests.simulation.process import Process
from tests.simulation.world import Running, World

VISIBILITY_MS = 30_000
LOST = 0.05  # the share of batches


class Background:
    """One operation of the sealer."""

    def __init__(self, world: World, process: Process, running: Running) -> None:
        self._world = world
        self._process = process
        self._running = running
        self._dice = running.op.dice
        logs = list(world.model.logs)
        self._log_id = logs[-1 - int(self._dice[0] ** 2 * len(logs))] if logs else ""

    def kind(self) -> str:
        """As planned."""
        return self._running.op.kind

    def failed(self, exc: Exception) -> None:
        """The verb raised."""
        self._world.judge.background(exc, self._log_id)

    def stream(self) -> None:
        """A batch of stream events: in order for each log, in any order across logs, perhaps again, perhaps never."""
        stream = self._world.stream
        pending = [log_id for log_id, entries in stream.items() if entries]
        if not pending:
            return
        dice = self._running.dice
        chosen = [log_id for log_id in pending if dice.roll() < 0.7] or pending[:1]
        if dice.roll() < 0.5:
            chosen.reverse()
            self._world.met["stream", "out of order across keys"] += len(chosen) > 1
        if self._are_lost("stream"):
            for log_id in chosen:
                stream[log_id].clear()
            return
        taken = [(log_id, entry) for log_id in chosen for entry in stream[log_id][: 1 + int(dice.roll() * 6)]]
        records = [
            {
                "eventSource": "aws:dynamodb",
                "eventName": "INSERT",
                "dynamodb": {
                    "Keys": {"log_id": {"S": log_id}, "slot": {"N": str(entry.slot)}},
                    "NewImage": entry_item(entry),
                },
            }
            for log_id, entry in taken
        ]
        self._process.dispatcher.dispatch({"Records": records})
        if not self._world.calm and dice.roll() < 0.1:
            self._world.met["stream", "delivered twice"] += 1
            return
        for log_id, entry in taken:
            if entry in stream[log_id]:
                stream[log_id].remove(entry)

    def _are_lost(self, where: str) -> bool:
        """Whether a batch never comes: the sealer was off for longer than a stream keeps events, or gave a message up."""
        if self._world.calm or self._running.dice.roll() >= LOST:
            return False
        self._world.met[where, "lost"] += 1
        if self._world.tracing:
            self._world.trace(f"   lost: a batch of the {where}")
        return True

    def queue(self) -> None:
        """A batch of messages. Whatever fails, or is lost with the process, comes again; some succeed and come again. Some
        batches have been tried too often, and never come.
        """
        world, dice = self._world, self._running.dice
        messages = world.queue.receive(1 + int(dice.roll() * 5))
        if not messages or self._are_lost("queue"):
            return
        again = list(messages)
        try:
            records = [
                {"eventSource": "aws:sqs", "messageId": str(at), "body": msgspec.json.encode(message).decode()}
                for at, message in enumerate(messages)
            ]
            answer = self._process.dispatcher.dispatch({"Records": records})
            again = [messages[int(one["itemIdentifier"])] for one in answer["batchItemFailures"]]
            if not world.calm and dice.roll() < 0.1:
                world.met["queue", "delivered twice"] += 1
                again = messages
        finally:
            for message in again:
                world.queue.put(message, world.true_ms + VISIBILITY_MS)

    def _verb(self, verb: Callable[[Any, str], object]) -> None:
        if self._log_id:
            verb(self._process.parts, self._log_id)

    def seal(self) -> None:
        """One log, due or not."""
        self._verb(lambda parts, log_id: seal(parts, log_id, force=self._dice[1] < 0.8))

    def trim(self) -> None:
        """One log."""
        self._verb(trim)

    def purge(self) -> None:
        """One log."""
        self._verb(purge)

    def orphans(self) -> None:
        """One log."""
        self._verb(sweep_orphans)

    def merge(self) -> None:
        """Some small segments of one log: planned, made, and published at once or much later."""
        self._verb(self._merge)

    def _merge(self, parts: Any, log_id: str) -> None:
        manifest = parts.manifests.newest(log_id, None, parts.stores.watermarks.get(log_id).generation)
        planned_ms = parts.now_ms()
        settings = parts.stores.settings
        limits = MergeLimits(settings.merge_segments, 6_000, 40, settings.merge_age_ms)
        groups = merging.groups(manifest.open_page, planned_ms, limits) if manifest is not None else []
        if not groups:
            return
        group = groups[int(self._dice[1] * len(groups))]
        task = Task(
            work="merge",
            log_id=log_id,
            run_id="",
            level=0,
            plan="",
            first_offset=group[0].first_offset,
            end_offset=group[-1].end_offset,
            definition="",
            content_type=manifest.config.content_type,
            segments=group,
        )
        try:
            made = merges.merge_segments(parts.stores.objects, task, planned_ms, parts.stores.request_ids)
        except Damaged:
            if self._is_named(manifest, task):
                raise
            return  # others merged them long ago
        if self._dice[2] < 0.3 and not self._world.calm:
            self._world.scheduler.sleep(self._running.dice.long())
        newest = parts.stores.wal.newest(log_id)
        if newest is None or (newest.state.ended and not newest.state.forks):
            remove_merged(parts, log_id)
            return
        self._world.met["merge", "published" if publish_merged(parts, task, made) else "too late"] += 1

    def _is_named(self, manifest: Manifest, task: Task) -> bool:
        """Returns whether all segments of a task are in force, as the bucket has it: none of a log that is being purged."""
        if keys.tombstone(manifest.log_id) in self._world.objects._objects:
            return False
        newest = self._world.judge.manifests[manifest.log_id][-1]
        return {one.key for one in task.segments} <= {one.key for one in self._world.judge.segments(newest)}

    def sweep(self) -> None:
        """The schedule."""
        self._process.dispatcher.dispatch({"detail-type": "Scheduled Event"})

    def audit(self) -> None:
        """The other schedules."""
        self._process.dispatcher.dispatch({"verb": "overdue"})
        self._process.dispatcher.dispatch({"verb": "audit"})
