"""Jobs that were delivered as often as they may be move to the dead-letter topic.

One commit has the event of the lease log and the records of the dead-letter topic, so that each job is there once. If
that topic takes no records, because it is full or absent and not to be created, the jobs wait where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from headrace.batch import Batch, Record
from headrace.errors import HeadraceError
from headrace.log.control import Asked
from headrace.log.seam import Decision, Ids, Look, Request, Rows
from headrace.queues import events
from headrace.queues.decide import Queue, doomed, open_queue, pick
from headrace.queues.feed import size_of
from headrace.queues.ledger import Points
from headrace.queues.projection import Projection
from headrace.topics.configure import FirstWrite, decide_first_write
from headrace.topics.decide import TopicSurface
from headrace.topics.runs import Runs
from headrace.topics.values import WriteRequest

MOST = 256  # jobs of one commit
MOST_BYTES = 4 * 1024 * 1024  # of these, and about as many are read for it
PAUSE_MS = 5_000  # after a try that moved none of the jobs that it read

_meta = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.Encoder().encode


class Buried(NamedTuple):
    """The answer to a burial: how many jobs move, and the offset after the last one that it looked at; 0 for none."""

    moved: int
    end: int = 0


class Vain(NamedTuple):
    """A burial that moved none of the jobs that it looked at.

    Attributes:
        end: the offset after the last of them, where the next try goes on.
        until_ms: when that may be (epoch ms), so that claims do not read the same jobs again and again.
    """

    end: int
    until_ms: int


class Burial:
    """The decision to move the jobs of one queue that were delivered too often.

    Attributes:
        topics: decides the append to the dead-letter topic.
        limit: how many topics there may be, if that topic is to be created; 0 for any number.
        start: the offset from which on jobs are looked at; from the first one on if none is there.
        is_alone: whether only the smallest job is tried; set if the commit of more was refused.
        end: the offset after the last job that the newest decision looked at; 0 for none.
    """

    def __init__(self, topics: TopicSurface, points: Points, limit: int, start: int) -> None:
        self.topics, self.limit, self.start = topics, limit, start
        self.is_alone, self.end = False, 0
        self._points = points

    def decide(
        self, logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
    ) -> Decision:
        """Decides: `logs` are the queue's lease log and jobs log, and the dead-letter topic (None if there is none). The
        answer is a `Buried`. If the topic does not take all, only the smallest one is tried, so that those for which it
        never has room hold up no others.
        """
        gone: list[int] = []
        end = 0
        for is_alone in (False, True)[self.is_alone :]:
            queue = open_queue(logs[:2], requests, self._points, rows, now_ms)
            records, gone = take(queue, self.start)
            self.end = end = records[-1].offset + 1 if records else 0
            if is_alone:
                records = sorted(records, key=size_of)[:1]
            forget(queue, gone)
            written = self._write(queue, bury(queue, records), logs[2], rows, now_ms, ids) if records else None
            if written is not None and not isinstance(written.answers[0], HeadraceError):
                draft, objects = queue.ledger.draft(ids, ())
                entries = (draft, *written.entries)
                return Decision((Buried(len(records), end),), entries, written.guards, (*objects, *written.objects))
        if gone:
            queue = open_queue(logs[:2], requests, self._points, rows, now_ms)
            forget(queue, gone)
            draft, objects = queue.ledger.draft(ids, (0,))
            return Decision((Buried(0, end),), (draft,), (), objects)
        return Decision((Buried(0, end),))

    def _write(
        self, queue: Queue, records: Batch, look: Look | None, rows: Rows, now_ms: int, ids: Ids
    ) -> Decision | None:
        """Decides the append to the dead-letter topic, which it creates if the queue allows that. None if it does not."""
        name = queue.config.dead_letter
        assert name is not None, "a job is dead only if there is a topic for it"
        request = WriteRequest(records=records, create=queue.config.auto_create)
        if look is not None and not look.state.ended:
            return self.topics.decide((look,), (Asked(request),), rows, now_ms, ids)
        if not queue.config.auto_create:
            return None
        try:
            return decide_first_write((look,), (Asked(FirstWrite(name, request, self.limit)),), rows, now_ms, ids)
        except HeadraceError as error:  # it could never fit, or there are too many topics
            return Decision((error,))


def take(queue: Queue, start: int) -> tuple[list[Record], list[int]]:
    """Returns the records of jobs that are to move, at most `MOST` of them and `MOST_BYTES`; and the offsets of jobs before
    them that would have moved, but whose TTL is over. They begin at offset `start` if there are any from there on.
    """
    jobs = doomed(queue.ledger.now, queue.config)
    jobs = jobs.within(start, queue.ledger.end) or jobs
    queue.feed.left = min(queue.feed.left, MOST_BYTES)
    return pick(queue, (offset for first, end in jobs for offset in range(first, end)), MOST, MOST_BYTES)


def forget(queue: Queue, gone: list[int]) -> None:
    """Adds the event that these jobs have expired. Otherwise those before a job that waits would hold it up."""
    queue.ledger.lapse(gone)
    if gone:
        queue.ledger.add(events.Remove(at=queue.ledger.at, jobs=Runs.of_offsets(gone).flat()))


def bury(queue: Queue, records: list[Record]) -> Batch:
    """Adds the event that these jobs are dead, and returns the records for the dead-letter topic: with the jobs' tags, data
    and meta, which also says where they come from.
    """
    ledger, topic = queue.ledger, queue.config.dead_letter
    assert topic is not None, "a job is dead only if there is a topic for it"
    batch = Batch.of(
        [record.data for record in records],
        key=[record.key for record in records],
        meta=[stamp(record, ledger.jobs.row.name, _deliveries(ledger.now, record.offset)) for record in records],
    )
    jobs = Runs.of_offsets(record.offset for record in records).flat()
    ledger.add(events.Dead(at=ledger.at, jobs=jobs, topic=topic))
    return batch


def stamp(record: Record, name: str, deliveries: int) -> bytes:
    """Returns the meta of a dead job: its own, and the queue's name, the number of deliveries and the seq, as strings. That
    may be more than a client's meta can be.
    """
    meta = _meta.decode(record.meta) if record.meta else {}
    stamps = {
        "$dead_letter_from": name,
        "$dead_letter_deliveries": str(deliveries),
        "$dead_letter_src_seq": str(record.offset + 1),
    }
    return _encode({**meta, **stamps})


def _deliveries(now: Projection, offset: int) -> int:
    """Returns how often a job was delivered that was given back."""
    return next(one.deliveries for one in now.back if not one.ready_ms and offset in one.jobs)
