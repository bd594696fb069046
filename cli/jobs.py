"""The values that a worker decides by: jobs, leases, and when what is tried again. Pure; times are seconds of a clock that
never goes back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from cli.errors import CliError
from cli.topics import record_members

TRY_LATER = 75  # EX_TEMPFAIL of sysexits.h
LONGEST_DELAY_MS = 86_400_000  # that a queue accepts


@dataclass(frozen=True)
class Job:
    """A leased job. `data` is its JSON as it was pushed; `deliveries` counts this one."""

    seq: int
    lease_id: str
    data: bytes
    tag: str | None
    deliveries: int


def parse_job(text: str) -> Job:
    """Parses a job of a claim's answer, or of a `job` event. Raises CliError if it is none."""
    members = record_members(text.encode())
    try:
        tag = members.get("$tag")
        return Job(
            seq=int(members["$seq"]),
            lease_id=str(json.loads(members["lease_id"])),
            data=members["data"].encode(),
            tag=None if tag is None else str(json.loads(tag)),
            deliveries=int(members["deliveries"]),
        )
    except (ValueError, LookupError) as error:
        raise CliError(f"the server sent a job that makes no sense: {error}", "is --url that of a server?") from error


@dataclass(frozen=True)
class Lease:
    """A lease as its holder sees it. The server counts `length_s` from a moment after `asked_s`, when the request that gave
    or renewed it was sent; so it ends at the server no earlier than here.
    """

    length_s: float
    asked_s: float

    @property
    def ends_s(self) -> float:
        """When the holder must have stopped, at the latest."""
        return self.asked_s + self.length_s

    @property
    def renew_s(self) -> float:
        """When to ask for more time: early enough for several tries."""
        return self.asked_s + self.length_s / 3

    @property
    def timeout_s(self) -> float:
        """How long to wait for the answer to one try, so that another one fits."""
        return min(10.0, max(self.length_s / 4, 0.1))


@dataclass(frozen=True)
class Backoff:
    """How long a failed job rests: twice as long after each delivery, up to a limit."""

    first_ms: int
    limit_ms: int

    def delay_ms(self, deliveries: int, random: Callable[[], float]) -> int:
        """Returns the rest after the job's failed delivery number `deliveries`, less up to half of it at random (`random`
        gives [0, 1)), so that jobs that failed together do not come back together.
        """
        doubled = self.first_ms << min(max(deliveries, 1) - 1, 30)
        return round(min(self.limit_ms, doubled, LONGEST_DELAY_MS) * (0.5 + 0.5 * random()))


class Verdict(NamedTuple):
    """What becomes of a job `done`, `failed` or `deferred`, and how long it rests; None if it is acked."""

    name: str
    delay_ms: int | None


def judge(exit_code: int | None, deliveries: int, backoff: Backoff, random: Callable[[], float]) -> Verdict:
    """Returns what becomes of a job by its command's exit code; None if the command could not be started."""
    if exit_code == 0:
        return Verdict("done", None)
    if exit_code == TRY_LATER:
        return Verdict("deferred", min(backoff.limit_ms, LONGEST_DELAY_MS))
    return Verdict("failed", backoff.delay_ms(deliveries, random))
