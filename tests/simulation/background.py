"""What happens behind the clients' backs: events and messages of the sealer, its schedules, its verbs called directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from functions.sealer.orphans import sweep_orphans
from functions.sealer.purge import purge
from functions.sealer.seal import seal
from functions.sealer.trim import trim
from headrace.wal.dynamodb import entry_item
from tests.simulation.process import Process
from tests.simulation.world import Running, World

VISIBILITY_MS = 30_000


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
        """A batch of stream events: in order for each log, in any order across logs, perhaps again."""
        stream = self._world.stream
        pending = [log_id for log_id, entries in stream.items() if entries]
        if not pending:
            return
        dice = self._running.dice
        chosen = [log_id for log_id in pending if dice.roll() < 0.7] or pending[:1]
        if dice.roll() < 0.5:
            chosen.reverse()
            self._world.met["stream", "out of order across keys"] += len(chosen) > 1
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

    def queue(self) -> None:
        """A batch of messages. Whatever fails, or is lost with the process, comes again; some succeed and come again."""
        world, dice = self._world, self._running.dice
        messages = world.queue.receive(1 + int(dice.roll() * 5))
        if not messages:
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

    def sweep(self) -> None:
        """The schedule."""
        self._process.dispatcher.dispatch({"detail-type": "Scheduled Event"})

    def audit(self) -> None:
        """The other schedule."""
        self._process.dispatcher.dispatch({"verb": "audit"})
