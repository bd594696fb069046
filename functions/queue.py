"""Messages to a later run of a function: which verb, for which log, and the earliest time.

Guarantees that every adapter keeps:
 1. A message that `send` accepted is delivered at least once, in any order.
 2. It is not delivered long before its time. SQS delays by at most 15 minutes, so a worker that receives a message too
    early sends it again.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from headrace.clock import Threads
from headrace.errors import StoreError
from headrace.objects import packed
from headrace.tables.follows import Follow

MAX_DELAY_S = 900  # SQS
MAX_BATCH = 10  # SQS
_SENDERS = Threads(
    8, "send"
)  # a thousand messages in a sixth of a second, if a call takes 10 ms; clients keep 10 connections

SealerVerb = Literal["seal", "trim", "purge", "overdue", "sweep", "audit", "orphans"]
IndexerVerb = Literal["look", "rebuild", "tick", "audit", "orphans", "request"]
RelayVerb = Literal["visit", "created", "sweep", "audit"]


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to run one verb, for one log or for none.

    Attributes:
        not_before_ms: the earliest time to run it, in epoch milliseconds.
        force: to seal everything, due or not; to look closely at every log in an audit, whether it is its day or not; to
            visit followers now, also those that wait for a later visit.
        surface, part, after: which names to audit (`headrace.tables.catalog.BUCKETS`), and where to continue; without
            them, all. A visit uses `after` for followers: the key of the last one before; the news of a created log, for
            those who may want to follow it.
        followers: the keys of the followers to visit; without them, all of the log.
        due_ms: the time that a follower's row names for the visit that this message asks for; 0 for any other message.
        job_id: the requested job to start.
        turn: number of a message that goes on with unfinished or failed work; 0 for any other.
        version: of this form; a message of a newer release is not run, and comes again.
    """

    verb: SealerVerb | IndexerVerb | RelayVerb
    log_id: str = ""
    not_before_ms: int = 0
    force: bool = False
    surface: str = ""
    part: str = ""
    after: str = ""
    followers: tuple[str, ...] = ()
    due_ms: int = 0
    turn: int = 0
    job_id: str = ""
    version: int = 1


def parse(body: str) -> Message:
    """Decodes a message from the body of a queue message. Raises NewerFormat if a newer release sent it, Damaged if it is
    no message.
    """
    return packed.parse(body, Message, "message")


class NotQueued(StoreError):
    """The queue did not accept every message; it may have accepted some."""


class Queue(Protocol):
    """The port of a queue of messages."""

    def send(self, messages: Sequence[Message], now_ms: int) -> None:
        """Sends each message so that it is delivered at its `not_before_ms`, or earlier if the queue can't delay it so
        long. Raises an error if one fails; others may have been sent.
        """


def visit_when_due(follow: Follow) -> Message:
    """Returns the message that has the relay visit a follower when its row says."""
    return Message("visit", follow.log_id, not_before_ms=follow.due_ms, followers=(follow.key,), due_ms=follow.due_ms)


class LazyQueue:
    """A queue whose client is created with the first message: most processes of the api never send one."""

    def __init__(self, create: Callable[[], Queue]) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._queue: Queue | None = None

    def send(self, messages: Sequence[Message], now_ms: int) -> None:
        """Sends the messages. Raises what the queue raises."""
        with self._lock:
            if self._queue is None:
                self._queue = self._create()
        self._queue.send(messages, now_ms)


class SendsBatches(Protocol):
    """The part of the SQS client that is used here."""

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
        """Sends up to ten messages."""


class SqsQueue:
    """The port on SQS. Raises the client's errors, and `NotQueued`."""

    def __init__(self, client: SendsBatches, url: str) -> None:
        self._client = client
        self._url = url

    def send(self, messages: Sequence[Message], now_ms: int) -> None:
        """Sends the messages, ten at a time, and several tens at once. Raises NotQueued if SQS refused any; others may have
        been sent.
        """

        def send(batch: Sequence[Message]) -> None:
            entries = [
                {
                    "Id": str(number),
                    "MessageBody": msgspec.json.encode(message).decode(),
                    "DelaySeconds": delay_s(message, now_ms),
                }
                for number, message in enumerate(batch)
            ]
            answer = self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
            failed = answer.get("Failed", [])
            if failed:
                raise NotQueued(f"queue refused messages: count={len(failed)} first={failed[0]}")

        _SENDERS.map(send, [messages[start : start + MAX_BATCH] for start in range(0, len(messages), MAX_BATCH)])


class MemoryQueue:
    """The port in memory: for tests and simulations."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Message]] = []
        self._sent = 0

    def send(self, messages: Sequence[Message], now_ms: int) -> None:
        """Stores the messages until `receive` returns them."""
        for message in messages:
            self._sent += 1
            heapq.heappush(self._heap, (now_ms + delay_s(message, now_ms) * 1000, self._sent, message))

    def receive(self, now_ms: int) -> list[Message]:
        """Removes and returns the messages whose time has come, earliest first."""
        taken = []
        while self._heap and self._heap[0][0] <= now_ms:
            taken.append(heapq.heappop(self._heap)[2])
        return taken

    @property
    def waiting(self) -> list[Message]:
        """The messages that were not received yet, earliest first."""
        return [message for _, _, message in sorted(self._heap)]


def delay_s(message: Message, now_ms: int) -> int:
    """Returns for how many seconds the queue must hold the message: rounded up, from 0 to 900, the most that SQS can."""
    return min(MAX_DELAY_S, max(0, -(-(message.not_before_ms - now_ms) // 1000)))
