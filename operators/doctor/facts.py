"""The doctor's values: the facts gathered about a deployment, and checks. None means unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from headrace.settings import Settings


class ServerFacts(msgspec.Struct, frozen=True):
    """Facts about a server, from its answers over HTTP.

    Attributes:
        error: why there was no answer, or the status of a `GET /health` that failed; empty if all went well.
        latencies_ms: durations of several `GET /health` in sequence.
        version: the release that the server reports; empty if it reports none.
        status_without_key: status of a listing without a key.
        status_with_key: status of a listing with the key; None if no key was given.
        status_as_admin: status of a request that needs a key with `admin` for every name; None if no key was given.
        is_local: whether its address is on this machine.
    """

    error: str = ""
    latencies_ms: tuple[float, ...] = ()
    version: str = ""
    status_without_key: int = 0
    status_with_key: int | None = None
    status_as_admin: int | None = None
    is_local: bool = False


class TableFacts(msgspec.Struct, frozen=True):
    """Facts about a table. `error` says why it could not be described; else it is empty. `is_recoverable` is None if
    that is unknown, `has_stream` for every table but the write-ahead log.
    """

    name: str
    error: str = ""
    status: str = ""
    is_protected: bool = False
    is_on_demand: bool = False
    has_customer_key: bool = False
    is_recoverable: bool | None = None
    has_stream: bool | None = None


class BucketFacts(msgspec.Struct, frozen=True):
    """Facts about the bucket. `error` says why they could not be asked; else it is empty."""

    name: str
    error: str = ""
    is_versioned: bool = False
    is_encrypted: bool = False
    has_customer_key: bool = False
    is_private: bool = False


class QueueFacts(msgspec.Struct, frozen=True):
    """Facts about a queue: numbers of messages, and in `oldest_s` the age of the oldest one in seconds, from CloudWatch
    (None if it has no data). `error` says why they could not be asked; else it is empty.
    """

    name: str
    is_dead_letters: bool
    error: str = ""
    waiting: int = 0
    delayed: int = 0
    in_flight: int = 0
    oldest_s: float | None = None


class LogFacts(msgspec.Struct, frozen=True):
    """How long a log has waited to be sealed.

    Attributes:
        oldest_ms: milliseconds since its oldest unsealed entry was committed; None if nothing waits, or if that is
            unknown.
        error: why it is unknown; else empty.
    """

    name: str
    oldest_ms: int | None
    error: str = ""


class WaitingFacts(msgspec.Struct, frozen=True):
    """A log that waits for an index job. `waited_ms` is how long records have been unindexed; None if that is
    unknown.
    """

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
    """An alarm's state (`OK`, `ALARM` or `INSUFFICIENT_DATA`), and CloudWatch's reason."""

    name: str
    state: str
    reason: str


class VisitFacts(msgspec.Struct, frozen=True):
    """A follower whose visit by the relay is due: its kind and id, and for how long (ms)."""

    kind: str
    id: str
    late_ms: int


class SubscriptionFacts(msgspec.Struct, frozen=True):
    """A subscription with an open wake.

    Attributes:
        type, stage: as in `headrace.subscriptions.values`.
        failures: how often its webhook failed since the wake was opened.
        waited_ms: milliseconds since then.
        refused: why its key does not allow the wake; empty if it does.
        error: why it could not be read; else empty.
    """

    id: str
    type: str = ""
    stage: str = ""
    failures: int = 0
    waited_ms: int = 0
    refused: str = ""
    error: str = ""


class RouterFacts(msgspec.Struct, frozen=True):
    """A router.

    Attributes:
        lag: how many records of its source it has yet to look at.
        waited_ms: milliseconds since the oldest of these was appended.
        blocked_ms: for how long its destination has been full; None if it is not.
        error: why it could not be read; else empty.
    """

    name: str
    source: str = ""
    dest: str = ""
    lag: int = 0
    waited_ms: int = 0
    blocked_ms: int | None = None
    error: str = ""


class JobQueueFacts(msgspec.Struct, frozen=True):
    """A topic that is a queue of jobs.

    Attributes:
        ready: jobs that can be claimed.
        oldest_ms: age of the oldest job that was never delivered; None if there is none, or that is unknown.
        dead_letter: its dead-letter topic; empty if it has none. `dead_letters` is the number of live records there.
        error: why it could not be read; else empty.
    """

    name: str
    ready: int = 0
    oldest_ms: int | None = None
    dead_letter: str = ""
    dead_letters: int = 0
    error: str = ""


class FollowingFacts(msgspec.Struct, frozen=True):
    """Facts about what follows appends: some hundreds of each. An error text says why something could not be asked; else
    it is empty. `visits` are those that are due; `subscriptions` those with an open wake.
    """

    visits: tuple[VisitFacts, ...] = ()
    subscriptions: tuple[SubscriptionFacts, ...] = ()
    visits_error: str = ""
    routers: tuple[RouterFacts, ...] = ()
    routers_error: str = ""
    queues: tuple[JobQueueFacts, ...] = ()
    queues_error: str = ""


class LaneFacts(msgspec.Struct, frozen=True):
    """A lane of feature tables.

    Attributes:
        waited_ms: milliseconds since the oldest event that is not in the rows was pushed; 0 if all are.
        stopped: the tables that have stopped there, each with the reason.
        error: why it could not be read; else empty.
    """

    name: str
    waited_ms: int = 0
    stopped: tuple[str, ...] = ()
    error: str = ""


class RegistryFacts(msgspec.Struct, frozen=True):
    """The registry of a namespace of feature tables.

    Attributes:
        open_ms: milliseconds since the registration that not all lanes have yet; None if they have every one.
        building_ms: milliseconds since each back-fill that is under way was asked for, by table.
        error: why it could not be read; else empty.
    """

    namespace: str
    open_ms: int | None = None
    building_ms: dict[str, int] = {}
    error: str = ""


class FailedJobFacts(msgspec.Struct, frozen=True):
    """A training set, snapshot or back-fill that has failed: its job, kind (the module of `emr_jobs`) and reason."""

    job_id: str
    kind: str
    reason: str


class FeatureFacts(msgspec.Struct, frozen=True):
    """Facts about feature tables: the first lanes and registries by name, and the jobs of the last day that failed. An
    error text says why something could not be asked; else it is empty.
    """

    lanes: tuple[LaneFacts, ...] = ()
    registries: tuple[RegistryFacts, ...] = ()
    logs_error: str = ""
    failed: tuple[FailedJobFacts, ...] = ()
    jobs_error: str = ""


class CloudFacts(msgspec.Struct, frozen=True):
    """Facts about the resources in AWS. An error text says why something could not be asked; else it is empty.

    Attributes:
        is_emulated: whether the AWS endpoint is on this machine; an emulator has no protections to check.
        logs: the logs that were looked at, first by name; `more_logs` says whether there are others.
        job_in_hand_ms: how long the job that holds the first place for job runs has been in its phase; None if the
            place is free, or that is unknown.
        has_alarms: whether the deployment's template has alarms.
        needs_customer_key: whether its data must be encrypted with a key of the account; None if that is not known.
        seal_age_ms, index_age_ms: as configured where the doctor runs.
    """

    is_emulated: bool
    tables: tuple[TableFacts, ...] = ()
    bucket: BucketFacts | None = None
    queues: tuple[QueueFacts, ...] = ()
    logs: tuple[LogFacts, ...] = ()
    logs_error: str = ""
    more_logs: bool = False
    following: FollowingFacts = FollowingFacts()
    features: FeatureFacts = FeatureFacts()
    waiting: tuple[WaitingFacts, ...] = ()
    waiting_error: str = ""
    job_in_hand_ms: int | None = None
    jobs: tuple[JobFacts, ...] | None = None
    jobs_error: str = ""
    has_alarms: bool = False
    needs_customer_key: bool | None = None
    alarms: tuple[AlarmFacts, ...] = ()
    alarms_error: str = ""
    seal_age_ms: int = Settings().seal_age_ms
    index_age_ms: int = Settings().index_age_ms


Level = Literal["ok", "skipped", "warn", "fail"]
_EXIT = {"ok": 0, "skipped": 0, "warn": 1, "fail": 2}


class Check(msgspec.Struct, frozen=True):
    """The result of one check.

    Attributes:
        name: what was checked.
        level: how bad it is; `skipped`, which counts as `ok`, if it could not be or need not be checked.
        found: what was observed.
        advice: what to do; empty if there is nothing to do.
        docs: the page and section that explain it; empty if there is none.
    """

    name: str
    level: Level
    found: str
    advice: str = ""
    docs: str = ""


def exit_code(checks: Sequence[Check]) -> int:
    """Returns the exit code of the command: 2 if any check failed, else 1 if any is a warning, else 0."""
    return max((_EXIT[check.level] for check in checks), default=0)


def summary(checks: Sequence[Check]) -> str:
    """Returns the number of checks by level, like `9 ok, 1 warn, 0 fail`."""
    counts = [(level, sum(check.level == level for check in checks)) for level in ("ok", "skipped", "warn", "fail")]
    return ", ".join(f"{count} {level}" for level, count in counts if count or level != "skipped")
