"""What appends to topics do, and deletes of records: pure functions, which decide from a topic's state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from msgspec.structs import replace

from headrace.batch import Batch
from headrace.errors import HeadraceError
from headrace.log import seam as rules
from headrace.log.requests import Head
from headrace.log.seam import Decision, Draft, Ids, Look, NamedObject, Request, Rows, Surface
from headrace.tables.items import Guard
from headrace.tables.producers import Key, PutKey
from headrace.topics import feeds, live, quota, retention
from headrace.topics.errors import TopicFull, TopicNotFound
from headrace.topics.feeds import VOID, Forward, Forwarded
from headrace.topics.live import Gone
from headrace.topics.retention import Measured
from headrace.topics.runs import NONE, Runs
from headrace.topics.values import TOPICS, Erased, TopicConfig, WriteRequest, Written, topic_of
from headrace.wal.state import LogState, TimeRun


class TopicSurface(Surface):
    """The rules by which a log serves as a topic: its name in the catalog and in messages, and how appends are decided."""

    name = TOPICS
    noun = "topic"

    def missing(self, name: str) -> HeadraceError:
        """Returns the error for a name that does not exist."""
        return TopicNotFound(name)

    def reserve(self, looks: Sequence[Look], decision: Decision, most_bytes: int, rows: Rows, ids: Ids) -> Decision:
        """Returns the decision with entries that reserve the bytes that topics hold after them. Raises LimitReached."""
        return quota.reserve(looks, decision, most_bytes, self.hidden, rows, ids)

    def hidden(self, look: Look, rows: Rows) -> Runs:  # noqa: ARG002
        """Returns the records that are gone, though the topic's state does not say so: the done jobs of a queue."""
        return NONE

    def decide(
        self, logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
    ) -> Decision:
        """Decides appends to one topic."""
        look = logs[0]
        assert look is not None, "an append looks at a log"
        if look.state.ended:
            return Decision([self.missing(look.config.name) for _ in requests])
        return Appends(look, rows, now_ms, ids, lambda: self.hidden(look, rows)).decide(requests)


SURFACE = TopicSurface()


class Appends:
    """A decision about appends of one group: one entry for all that are accepted, and an answer for each."""

    def __init__(
        self, look: Look, rows: Rows, now_ms: int, ids: Ids, hidden: Callable[[], Runs] = lambda: NONE
    ) -> None:
        """Begins a decision. `hidden` returns records that are gone, though the state does not say so; it is called only
        if that matters.
        """
        self._look = look
        self._rows = rows
        self._now_ms = now_ms
        self._hidden = hidden if retention.is_marked(topic_of(look.state).config) else (lambda: NONE)
        self._ids = ids
        refused = [(guard, row) for guard, row in ids.refused if isinstance(guard, PutKey)]
        self._taken: dict[str, Key] = {guard.digest: row for guard, row in refused if guard.log_id == look.log_id}
        self._state = retention.expire(
            look.state, retention.cutoff_ms(look.state, now_ms), self._removed(look.state), hidden=self._hidden
        )
        self._accepted: list[int] = []
        self._batches: list[Batch] = []
        self._guards: list[Guard] = []
        self._written: dict[str, Written] = {}
        self._is_exact = False  # whether all that has expired is gone

    def decide(self, requests: Sequence[Request]) -> Decision:
        """Decides these requests, in their order."""
        answers = [self._answer(number, asked) for number, asked in enumerate(requests)]
        if not self._batches:
            return Decision(answers)
        state = self._state
        if topic_of(state).config.discard == "old":
            state = retention.enforce_caps(state, self._removed(state), self._hidden)
        objects: tuple[NamedObject, ...] = ()
        if any(batch is VOID for batch in self._batches):
            state, objects = live.pack(self._look.log_id, state, self._rows, self._ids)
        times = (TimeRun(sum(map(len, self._batches)), state.append_time_ms),)
        draft = Draft(self._look.log_id, "data", state, self._batches, times, tuple(self._accepted))
        return Decision(answers, (draft,), tuple(self._guards), objects)

    def _removed(self, state: LogState) -> Gone:
        return live.removed_of(self._look.log_id, state, self._rows)

    def _answer(self, number: int, asked: Request) -> Written | Forwarded | HeadraceError:
        if isinstance(asked.request, Forward):
            return self._forward(number, asked.request)
        request: WriteRequest = asked.request
        config = topic_of(self._state).config
        digest = key_digest(request) if config.idempotency_window_ms else None
        if digest is not None:
            if digest in self._written:
                self._accepted.append(number)  # the entry with the first one's records answers it, too
                return self._written[digest]._replace(deduped=True)
            repeat = self._repeat(self._taken.get(digest), asked)
            if repeat is not None:
                return repeat
        grown = grow(self._state, request.records, self._now_ms)
        if config.discard == "reject" and self._is_full(grown):
            self._expire_exactly()
            grown = grow(self._state, request.records, self._now_ms)
            if self._is_full(grown):
                # What is no commit meets no guard: a repeat of a write that filled the topic.
                row = self._rows.key(self._look.log_id, digest) if digest is not None else None
                return self._repeat(row, asked) or full(
                    self._look.config.name, self._state, self._removed(self._state), self._hidden()
                )
        first, self._state = self._state.next_offset, grown
        self._accepted.append(number)
        self._batches.append(request.records)
        answer = Written(first + 1, grown.next_offset, grown.next_offset, durable=config.durable)
        if digest is not None:
            self._written[digest] = answer
            self._guards.append(put_key(self._look.log_id, digest, answer, config, self._now_ms, asked.request_id))
        return answer

    def _forward(self, number: int, step: Forward) -> Forwarded:
        """Takes the longest prefix of a router's records that fits, and moves its cursor."""
        if feeds.feed_in(topic_of(self._state).fed_by, step.feed.router) != step.feed:
            return Forwarded("stale")
        if step.is_cut:
            grown = rules.grow(self._state, VOID, self._now_ms).state
            self._state = retention.void(grown, self._removed(grown))
            self._batches.append(VOID)
        count = self._fitting(step)
        if count:
            batch = feeds.copies(step.feed, step.records[:count], step.incarnation)
            self._state = grow(self._state, batch, self._now_ms)
            self._batches.append(batch)
        is_all = count == len(step.records)
        if count or step.is_cut:
            self._accepted.append(number)
            moved = replace(
                step.feed,
                incarnation=step.incarnation,
                offset=step.next if is_all else step.records[count].offset,
                total=step.feed.total + count,
            )
            topic = topic_of(self._state)
            topic = replace(topic, fed_by=feeds.with_feed(topic.fed_by, moved))
            self._state = replace(self._state, extension=topic)
        return Forwarded("moved" if is_all else "blocked", count)

    def _fitting(self, step: Forward) -> int:
        """Returns how many of a router's records have room: those that a topic refuses wait in their source."""
        config = topic_of(self._state).config
        if not step.records:
            return 0
        grown = grow(self._state, feeds.copies(step.feed, step.records, step.incarnation), self._now_ms)
        if config.discard == "old" or not self._is_full(grown):
            return len(step.records)
        self._expire_exactly()
        live_now, size = retention.counted(self._state, self._removed(self._state), self._hidden())
        return feeds.fitting(
            step.records,
            config.cap_records - live_now if config.cap_records else None,
            config.cap_bytes - size if config.cap_bytes else None,
        )

    def _repeat(self, row: Key | None, asked: Request) -> Written | None:
        """Returns the answer to a request whose key has been used; None if its key is free."""
        if row is None or row.until_ms <= self._now_ms:
            return None
        is_other = row.request_id != asked.request_id
        head, is_durable = max(self._state.next_offset, row.end), topic_of(self._state).config.durable
        return Written(row.first + 1, row.end, head, deduped=is_other, durable=is_durable)

    def _is_full(self, state: LogState) -> bool:
        """Returns whether a state has more than its caps, as far as is known without reading when records expire."""
        topic = topic_of(state)
        if not retention.is_over(topic.config, topic.live, topic.bytes):
            return False
        counted = retention.counted(state, self._removed(state), self._hidden())
        return retention.is_over(topic.config, *counted)

    def _expire_exactly(self) -> None:
        if self._is_exact:
            return
        self._is_exact = True
        state, end = self._state, self._look.state.next_offset
        read = live.times_of(self._look.row, self._rows)

        def time_of(offset: int) -> int:
            return read(offset) if offset < end else state.append_time_ms  # else it is in hand, and no read finds it

        self._state = live.expire(state, self._now_ms, time_of, self._removed(state), self._hidden)


def grow(state: LogState, records: Batch, now_ms: int) -> LogState:
    """Returns a topic's state after these records are added, before caps."""
    return retention.grow(rules.grow(state, records, now_ms).state, len(records), live.size_of(records))


def full(name: str, state: LogState, removed: Gone, hidden: Runs) -> TopicFull:
    """Returns the error of a write that does not fit into a topic."""
    config = topic_of(state).config
    count, size = retention.counted(state, removed, hidden)
    caps = {"cap_records": config.cap_records, "cap_bytes": config.cap_bytes}
    return TopicFull(name, {**caps, "count": count, "bytes": size})


def key_digest(request: WriteRequest) -> str | None:
    """Returns the digest by which the row of a request's idempotency key is named; None if it has no key."""
    return sha256(request.key.encode()).hexdigest() if request.key is not None else None


def put_key(log_id: str, digest: str, written: Written, config: TopicConfig, now_ms: int, request_id: str) -> PutKey:
    """Returns the guard that gives a key to a write, for the time of the topic's window."""
    until_ms = now_ms + config.idempotency_window_ms
    return PutKey(log_id, digest, Key(written.first_seq - 1, written.last_seq, until_ms, request_id), now_ms)


class EraseRequest(NamedTuple):
    """A request to delete records.

    Attributes:
        found: the topic as it was when the victims were found. If another one has its name by now, they are gone.
        victims: the records; those that live when it is decided are deleted.
        size_of: as in `retention.remove`, about the log that its first argument describes.
    """

    found: Head
    victims: Runs
    size_of: Callable[[Head, Measured], int]


def decide_erase(
    logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
) -> Decision:
    """Decides a delete of records. The answer is an `Erased`."""
    (look,) = logs
    assert look is not None, "it was found"
    request: EraseRequest = requests[0].request
    removed = live.removed_of(look.log_id, look.state, rows)
    state = live.expire(look.state, now_ms, live.times_of(look.row, rows), removed)
    before = live.removed_of(look.log_id, state, rows)()
    head = Head(look.log_id, look.config, look.state, None)
    is_same = (head.log_id, head.incarnation) == (request.found.log_id, request.found.incarnation)
    victims = request.victims if is_same else NONE
    removal = retention.remove(state, victims, before, partial(request.size_of, head))
    topic = topic_of(removal.state)
    answer = Erased(removal.deleted, removal.state.next_offset, removal.state.floor + 1, topic.live, topic.bytes)
    if not removal.deleted:
        return Decision((answer,))
    state, objects = live.pack(look.log_id, removal.state, rows, ids)
    return Decision((answer,), (Draft(look.log_id, "erase", state),), objects=objects)
