"""A queue without an engine: its decisions are taken on values, and their entries applied to values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from headrace.batch import Batch, Record
from headrace.log.seam import Decision, Look
from headrace.queues.decide import Claim, Dealing, Release, Settle
from headrace.queues.ledger import Points, leases_of
from headrace.queues.projection import Projection
from headrace.queues.surface import QueueSurface
from headrace.queues.values import Claimed, ClaimRequest, Settled, SettleRequest
from headrace.tables.catalog import Row
from headrace.topics.values import LEASES, TOPICS, TopicConfig, TopicState
from headrace.wal.state import Companion, LogConfig, LogState, Recovery

NOW_MS = 1_700_000_000_000


class Desk:
    """One queue, one clock, one process with a memory of its own (`forget` makes it another one).

    Attributes:
        now_ms: the clock.
        jobs, leases: the logs as they are.
        written: the events' data.
        objects: the snapshots.
        pages: the reads of records: log id, offset, and how many.
    """

    def __init__(self, **config: Any) -> None:
        self.now_ms = NOW_MS
        topic = TopicConfig(**{"type": "queue", **config})
        made = LogConfig(TOPICS, "q", 0, "application/json", NOW_MS, companions=(Companion(LEASES, "l", "x"),))
        self.row = Row("j", made)
        self.jobs = LogState(extension=TopicState(topic))
        self.leases = LogState()
        self.written: list[bytes] = []
        self.objects: dict[str, bytes] = {}
        self.pages: list[tuple[str, int, int]] = []
        self.refused: Sequence[Any] = ()
        self._records: list[Record] = []
        self._ids = itertools.count()
        self.forget()

    def forget(self) -> None:
        """Becomes a process that knows nothing."""
        self.surface = QueueSurface(lambda jobs: self.looks()[0])

    def produce(self, *data: bytes, key: str | None = None, meta: bytes | None = None) -> None:
        """Adds jobs."""
        batch = Batch.of(data, key=key, meta=meta, time_ms=self.now_ms)
        self._records += batch.records(self.jobs.next_offset)
        self.jobs = replace(self.jobs, next_offset=self.jobs.next_offset + len(data), append_time_ms=self.now_ms)

    def raise_floor(self, floor: int) -> None:
        """Drops records of the jobs log."""
        self.jobs = replace(self.jobs, floor=floor)

    # What decisions read.

    def page(self, row: Row, position: int, max_records: int, max_bytes: int) -> list[Record]:
        """Returns records; no less than one, as the log does."""
        self.pages.append((row.log_id, position, max_records))
        if row.log_id == "l":
            found = [Record(at, 0, None, data) for at, data in enumerate(self.written)]
        else:
            assert position >= self.jobs.floor, "a record below the floor was read"
            found = self._records
        taken, size = [], 0
        for record in found[position : position + max_records]:
            taken.append(record)
            size += len(record.data) + len(record.meta or b"")
            if size >= max_bytes:
                break
        assert taken, "a page begins behind the end"
        return taken

    def object(self, key: str, decode: Callable[[bytes, str], Any]) -> Any:
        """Returns a decoded object."""
        return decode(self.objects[key], key)

    def nonce(self, data: bytes) -> str:
        """Returns a nonce."""
        return f"n{next(self._ids)}"

    # Decisions.

    def looks(self) -> tuple[Look, Look]:
        """Returns the lease log and the jobs log."""
        return Look(self.row.companions[0], self.leases), Look(self.row, self.jobs)

    def decide(self, *requests: Any, looks: Sequence[Look] | None = None) -> Decision:
        """Decides requests of one process; commits nothing."""
        asked = [SimpleNamespace(request=one, request_id=f"r{next(self._ids)}", memo=None) for one in requests]
        return self.surface.decide(looks or self.looks(), asked, self, self.now_ms, self)

    def commit(self, decision: Decision) -> Decision:
        """Applies what was decided."""
        self.objects |= {one.key: one.data for one in decision.objects}
        for draft in decision.entries:
            assert draft.log_id == "l"
            self.written += [data for batch in draft.batches for data in batch.slices()]
            self.leases = draft.state
            assert self.leases.next_offset == len(self.written)
        return decision

    def ask(self, *requests: Any) -> list[Any]:
        """Decides requests in one entry, applies it, and returns the answers."""
        return list(self.commit(self.decide(*requests)).answers)

    # Verbs.

    def claim(self, node: str = "a", max: int = 1, **fields: Any) -> Claimed:
        """Claims."""
        claimed: Claimed = self.ask(self.claiming(node, max, **fields))[0].claimed
        return claimed

    @staticmethod
    def claiming(node: str, max: int = 1, **fields: Any) -> Claim:
        """Returns the request of a claim."""
        return Claim(ClaimRequest(node, max, **fields))

    def settle(self, verb: Any, node: str, seqs: Sequence[int], **fields: Any) -> Settled:
        """Acks, nacks or extends."""
        settled: Settled = self.ask(Settle(verb, SettleRequest(node, tuple(seqs), **fields)))[0]
        return settled

    def ack(self, node: str, *seqs: int, **fields: Any) -> Settled:
        """Acks."""
        return self.settle("ack", node, seqs, **fields)

    def release(self, node: str, connection: str) -> int:
        """Ends a connection."""
        released: int = self.ask(Release(node, connection))[0]
        return released

    def join(self, node: str, max: int) -> Dealing:
        """Joins a window; returns the request for the share."""
        claim = Claim(ClaimRequest(node, max))
        return Dealing(claim, self.ask(claim)[0])

    def projection(self) -> Projection:
        """Returns who holds what, as a process reads it that knows nothing."""
        return Points().load(self.looks()[0], self)

    @property
    def is_inline(self) -> bool:
        """Whether the state has the projection."""
        return leases_of(self.leases).projection is not None


def seqs(claimed: Claimed) -> list[int]:
    """Returns the seqs of a claim's jobs."""
    return [job.record.offset + 1 for job in claimed.jobs]


def filled(jobs: int = 10, **config: object) -> Desk:
    """Returns a queue with some jobs."""
    desk = Desk(**config)
    desk.produce(*(b"job%d" % number for number in range(jobs)))
    return desk


def recovered(desk: Desk, *recoveries: Recovery) -> None:
    """Cuts the jobs log where the last of these recoveries began."""
    end = recoveries[-1].at
    desk.jobs = replace(desk.jobs, next_offset=end, recoveries=recoveries)
    desk._records = desk._records[:end]
