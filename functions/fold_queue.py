"""Messages to the folder: which lane may have events that are not in its rows.

A message is a hint: the folder reads by itself what there is to fold. The queue is FIFO. Its groups are lanes, so that a
lane is folded by one folder at a time. A message that repeats another one of the last five minutes, by its deduplication
id, is swallowed, even if that one was received already. So an id names the two seconds in which it is sent, and the queue
holds each message for two seconds: an event whose message was swallowed is older than the pass that the other message leads
to.

Guarantee that every adapter keeps: a message that `send` accepted, or one for the same lane that was sent within the same
two seconds, is delivered at least once, after these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from functions.queue import MAX_BATCH, NotQueued, SendsBatches
from headrace.objects import packed

SLOT_MS = 2_000  # in which equal messages are one; the queue's delay


class Fold(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to fold a lane.

    Attributes:
        log_id, name, role: the lane.
        again: the id of the message before, if this one goes on with its work; empty for any other.
        version: of this form; a message of a newer release is not run, and comes again.
    """

    log_id: str
    name: str
    role: str = ""
    again: str = ""
    version: int = 1


def parse(body: str) -> Fold:
    """Decodes a message from the body of a queue message. Raises NewerFormat if a newer release sent it, Damaged if it is
    no message.
    """
    return packed.parse(body, Fold, "message")


def deduplication_id(message: Fold, now_ms: int) -> str:
    """Returns the text by which equal messages are known. One that goes on is equal to none but its own repeats."""
    return f"{message.log_id}#{message.again or now_ms // SLOT_MS}"


class FoldQueue(Protocol):
    """The port of the queue."""

    def send(self, messages: Sequence[Fold], now_ms: int) -> None:
        """Sends messages. Raises an error if one fails; others may have been sent."""


class SqsFoldQueue:
    """The port on SQS. Raises the client's errors, and `NotQueued`."""

    def __init__(self, client: SendsBatches, url: str) -> None:
        self._client = client
        self._url = url

    def send(self, messages: Sequence[Fold], now_ms: int) -> None:
        """Sends messages, ten with one call."""
        for start in range(0, len(messages), MAX_BATCH):
            entries = [
                {
                    "Id": str(number),
                    "MessageBody": msgspec.json.encode(message).decode(),
                    "MessageGroupId": message.log_id,
                    "MessageDeduplicationId": deduplication_id(message, now_ms),
                }
                for number, message in enumerate(messages[start : start + MAX_BATCH])
            ]
            answer = self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
            failed = answer.get("Failed", [])
            if failed:
                raise NotQueued(f"queue refused messages: count={len(failed)} first={failed[0]}")


class MemoryFoldQueue:
    """The port in memory: for tests and simulations."""

    def __init__(self) -> None:
        self._sent: set[str] = set()
        self.waiting: list[Fold] = []

    def send(self, messages: Sequence[Fold], now_ms: int) -> None:
        """Keeps the messages, but those that repeat another one."""
        for message in messages:
            key = deduplication_id(message, now_ms)
            if key not in self._sent:
                self._sent.add(key)
                self.waiting.append(message)

    def take(self) -> list[Fold]:
        """Removes and returns the messages."""
        taken, self.waiting = self.waiting, []
        return taken
