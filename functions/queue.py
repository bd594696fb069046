"""Messages to a later run of a function: what to do, for which log, and not before when.

Guarantees every adapter keeps:
 1. A message that `send` accepted is delivered at least once, in no order.
 2. It is not delivered long before its time. SQS delays by at most 15 minutes, so a worker that receives a message too
    early sends it again.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from headrace.errors import StoreError

MAX_DELAY_S = 900  # SQS
_BATCH = 10  # SQS

SealerVerb = Literal["seal", "trim", "purge", "sweep", "audit", "orphans"]
IndexerVerb = Literal["look", "rebuild", "tick", "audit", "orphans"]


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One verb, for one log or for none.

    Attributes:
        not_before_ms: wall clock before which it must not be acted on.
        force: of seal: everything that is there, due or not.
        surface, after: where an audit goes on.
    """

    verb: SealerVerb | IndexerVerb
    log_id: str = ""
    not_before_ms: int = 0
    force: bool = False
    surface: str = ""
    after: str = ""


class NotQueued(StoreError):
    """The queue did not take every message; some may have been taken."""


class Queue(Protocol):
    """The way to a later run."""

    def send(self, messages: Sequence[Message], now_ms: int) -> None:
        """Delivers each message at its `not_before_ms`, or when it can wait no longer. Raises if one fails."""


class SendsBatches(Protocol):
    """The part of the SQS client that is used."""

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
        """Sends up to ten messages."""


class SqsQueue:
    """The port on SQS. Raises what the client raises, and `NotQueued`."""

    def __init__(self, client: SendsBatches, url: str) -> None:
        self._client = client
        self._url = url

    def send(self, messages: Sequence[Message], now_ms: int) -> None:
        """Sends the messages, ten at a time."""
        for start in range(0, len(messages), _BATCH):
            entries = [
                {
                    "Id": str(number),
                    "MessageBody": msgspec.json.encode(message).decode(),
                    "DelaySeconds": delay_s(message, now_ms),
                }
                for number, message in enumerate(messages[start : start + _BATCH])
            ]
            answer = self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
            failed = answer.get("Failed", [])
            if failed:
                raise NotQueued(f"queue refused messages: count={len(failed)} first={failed[0]}")


class MemoryQueue:
    """The port in memory: for tests and simulations."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Message]] = []
        self._sent = 0

    def send(self, messages: Sequence[Message], now_ms: int) -> None:
        """Keeps the messages."""
        for message in messages:
            self._sent += 1
            heapq.heappush(self._heap, (now_ms + delay_s(message, now_ms) * 1000, self._sent, message))

    def receive(self, now_ms: int) -> list[Message]:
        """Takes the messages whose delay is over, the earliest first."""
        taken = []
        while self._heap and self._heap[0][0] <= now_ms:
            taken.append(heapq.heappop(self._heap)[2])
        return taken

    @property
    def waiting(self) -> list[Message]:
        """Every message that was not taken, the earliest first."""
        return [message for _, _, message in sorted(self._heap)]


def delay_s(message: Message, now_ms: int) -> int:
    """Returns how many seconds the queue must hold the message: rounded up, at most what it can."""
    return min(MAX_DELAY_S, max(0, -(-(message.not_before_ms - now_ms) // 1000)))
