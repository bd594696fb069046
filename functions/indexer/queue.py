"""Messages from the indexer to a later run of itself, and from whoever asks for something: what to do, for which log.

Guarantees every adapter keeps: a message that `send` accepted is delivered at least once, in no order, and not much before
its delay is over. SQS delays by at most 15 minutes; what waits longer is met by the schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from headrace.errors import StoreError

MAX_DELAY_S = 900  # SQS
_BATCH = 10  # SQS

Verb = Literal["look", "rebuild", "tick", "audit", "orphans"]


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One verb.

    Attributes:
        log_id: of look, rebuild and orphans.
        surface, after: where an audit goes on.
    """

    verb: Verb
    log_id: str = ""
    surface: str = ""
    after: str = ""


class NotQueued(StoreError):
    """The queue did not take every message; some may have been taken."""


class WakeQueue(Protocol):
    """The way to a later run."""

    def send(self, messages: Sequence[Message], delay_ms: int = 0) -> None:
        """Delivers each after the delay, or when it can wait no longer. Raises if one fails."""


class SendsBatches(Protocol):
    """The part of the SQS client that is used."""

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
        """Sends up to ten messages."""


class SqsQueue:
    """The port on SQS. Raises what the client raises, and `NotQueued`."""

    def __init__(self, client: SendsBatches, url: str) -> None:
        self._client = client
        self._url = url

    def send(self, messages: Sequence[Message], delay_ms: int = 0) -> None:
        """Ten at a time."""
        delay_s = min(MAX_DELAY_S, max(0, -(-delay_ms // 1000)))
        for start in range(0, len(messages), _BATCH):
            entries = [
                {"Id": str(number), "MessageBody": msgspec.json.encode(message).decode(), "DelaySeconds": delay_s}
                for number, message in enumerate(messages[start : start + _BATCH])
            ]
            failed = self._client.send_message_batch(QueueUrl=self._url, Entries=entries).get("Failed", [])
            if failed:
                raise NotQueued(f"queue refused messages: count={len(failed)} first={failed[0]}")


class MemoryQueue:
    """The port in memory: for tests and simulations. `sent` has each message with its delay."""

    def __init__(self) -> None:
        self.sent: list[tuple[Message, int]] = []

    def send(self, messages: Sequence[Message], delay_ms: int = 0) -> None:
        """Keeps the messages."""
        self.sent += [(message, delay_ms) for message in messages]
