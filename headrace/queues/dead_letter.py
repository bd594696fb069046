"""Jobs that were delivered as often as they may be move to the dead-letter topic.

One commit has the event of the lease log and the records of the dead-letter topic, so that each job is there once. If
that topic takes no records, because it is full or absent and not to be created, the jobs wait where they are.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from headrace.batch import Batch, Record
from headrace.queues import events
from headrace.queues.decide import Queue, doomed, pick
from headrace.queues.projection import Projection
from headrace.topics.runs import Runs

MOST = 256  # jobs of one commit
MOST_BYTES = 4 * 1024 * 1024

_meta = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.Encoder().encode


def take(queue: Queue, most: int = MOST) -> list[Record]:
    """Returns the records of jobs that are to move, at most `most` of them; removes those whose TTL is over."""
    ledger, waiting = queue.ledger, doomed(queue.ledger.now, queue.config)
    offsets = (offset for first, end in waiting for offset in range(first, end))
    records, gone = pick(queue, islice(offsets, most), most, MOST_BYTES)
    if gone:
        ledger.add(events.Remove(at=ledger.at, jobs=Runs.of_offsets(gone).flat()))
    return records


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
