"""What was seen of a deployment: plain values, no meaning yet. None stands for what could not be known."""

from __future__ import annotations

import msgspec


class ServerFacts(msgspec.Struct, frozen=True):
    """A server as it answered over HTTP.

    Attributes:
        error: why there was no answer; empty if there was one.
        latencies_ms: of `GET /health`, one after the other.
        version: the release that the server says it is.
        status_without_key, status_with_key: of a listing; None with a key that was not given.
        status_as_admin: of a resource that needs a key with `admin` for every name.
        is_local: its address is one of this machine.
    """

    error: str = ""
    latencies_ms: tuple[float, ...] = ()
    version: str = ""
    status_without_key: int = 0
    status_with_key: int | None = None
    status_as_admin: int | None = None
    is_local: bool = False


class TableFacts(msgspec.Struct, frozen=True):
    """A table. `error`: why it could not be described."""

    name: str
    error: str = ""
    status: str = ""
    is_protected: bool = False
    is_on_demand: bool = False
    has_customer_key: bool = False
    is_recoverable: bool | None = None
    has_stream: bool | None = None


class BucketFacts(msgspec.Struct, frozen=True):
    """The bucket."""

    name: str
    error: str = ""
    is_versioned: bool = False
    is_encrypted: bool = False
    is_private: bool = False


class QueueFacts(msgspec.Struct, frozen=True):
    """A queue. `oldest_s`: age of the oldest message in the last minutes, as CloudWatch has it."""

    name: str
    is_dead_letters: bool
    error: str = ""
    waiting: int = 0
    delayed: int = 0
    in_flight: int = 0
    oldest_s: float | None = None


class LogFacts(msgspec.Struct, frozen=True):
    """How far a log is sealed. `oldest_ms`: age of its oldest unsealed entry; None if all is sealed."""

    name: str
    oldest_ms: int | None
    error: str = ""


class WaitingFacts(msgspec.Struct, frozen=True):
    """A log that waits for an index job. `waited_ms`: how long something is unindexed, if anything is known to be."""

    log_id: str
    waited_ms: int | None
    failures: int
    reason: str


class JobFacts(msgspec.Struct, frozen=True):
    """A job run of the Spark application: its state, and how long ago it changed."""

    run_id: str
    state: str
    age_ms: int


class AlarmFacts(msgspec.Struct, frozen=True):
    """An alarm: `OK`, `ALARM` or `INSUFFICIENT_DATA`, and CloudWatch's reason."""

    name: str
    state: str
    reason: str


class CloudFacts(msgspec.Struct, frozen=True):
    """What stands in AWS. An error names what could not be asked.

    Attributes:
        is_emulated: the endpoint is one of this machine, which keeps no protections.
        logs: as many as were looked at, the first by name; `more_logs` if there are others.
        job_in_hand_ms: how long the job that holds the first place is in its phase; None if the place is free.
    """

    is_emulated: bool
    tables: tuple[TableFacts, ...] = ()
    bucket: BucketFacts | None = None
    queues: tuple[QueueFacts, ...] = ()
    logs: tuple[LogFacts, ...] = ()
    logs_error: str = ""
    more_logs: bool = False
    waiting: tuple[WaitingFacts, ...] = ()
    waiting_error: str = ""
    job_in_hand_ms: int | None = None
    jobs: tuple[JobFacts, ...] | None = None
    jobs_error: str = ""
    alarms: tuple[AlarmFacts, ...] = ()
    alarms_error: str = ""
    seal_age_ms: int = 300_000
    index_age_ms: int = 60_000
