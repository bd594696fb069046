"""The values of queues: requests and answers. Seqs are those of the jobs log."""

from __future__ import annotations

from typing import NamedTuple

from headrace.batch import Record


class ClaimRequest(NamedTuple):
    """A request to lease jobs (§ 10.2), clamped. `lease_ms` None means the topic's.

    Attributes:
        connection: id of the `/work` stream that asks; empty for a poll.
        max_bytes: what the answer may hold; the first job is given whatever its size.
    """

    node: str
    max: int = 1
    lease_ms: int | None = None
    connection: str = ""
    max_bytes: int = 4 * 1024 * 1024


class Job(NamedTuple):
    """A leased job: its record, the lease's id, when it ends (epoch ms), and how often the job was delivered."""

    record: Record
    lease_id: str
    deadline_ms: int
    deliveries: int


class Lease(NamedTuple):
    """A lease that a worker holds now: the job's seq, the lease's id, when it ends (epoch ms), the id of the `/work` stream
    that delivered it (empty for a poll), the worker, how often the job was delivered, and when it was claimed (epoch ms).
    """

    seq: int
    lease_id: str
    deadline_ms: int
    connection: str = ""
    node: str = ""
    deliveries: int = 1
    claimed_ms: int = 0


class Claimed(NamedTuple):
    """The answer to a claim: the jobs, ascending, how many are still ready, and how many it moved to the dead-letter
    topic; `tries` is the number of commits.
    """

    jobs: list[Job]
    ready: int
    dead: int = 0
    tries: int = 0


class SettleRequest(NamedTuple):
    """An ack, nack or extend (§ 10.4 to 10.6) of jobs that `node` holds. `lease_ids` fences: one for each seq, or none."""

    node: str
    seqs: tuple[int, ...]
    lease_ids: tuple[str, ...] | None = None
    delay_ms: int = 0  # of a nack
    lease_ms: int = 0  # of an extend


class Settled(NamedTuple):
    """The answer to an ack, nack or extend: the seqs that it changed, those that it skipped, and the counters then.
    `deadlines` has the new deadline (epoch ms) of each extended seq; `durable` says whether the topic's durability class
    is `fsync`; `tries` is the number of commits.
    """

    done: tuple[int, ...]
    skipped: tuple[int, ...]
    ready: int
    in_flight: int
    deadlines: dict[int, int]
    durable: bool = False
    tries: int = 0
