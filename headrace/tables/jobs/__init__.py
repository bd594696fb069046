"""What the indexer remembers between its runs: logs that wait for an index job, and the job runs under way.

All of it can be lost without a record or a run being lost: what is published stands in the bucket, the daily audit finds
the logs again, and a job run that nobody follows has made runs that nobody names.

Guarantees every adapter keeps:
 1. `put` and `drop` act only on the version that the caller read, so that of two planners one has a log's work.
 2. `take` gives a place to one job at a time; `move` and `release` act only on the job that holds it.
 3. `get`, `place` are strongly consistent. `due` may lag by a moment.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A log that the indexer shall look at.

    Attributes:
        due_ms: not before this time.
        since_ms: since when something of it waits to be indexed, as far as known; 0: nothing is known to.
        failures: job runs in a row that made nothing for it; it then runs alone, and ever later.
        job_id: of the job that has its work in hand; `due_ms` is then when that job is given up.
        reason: why the last of them failed.
        version: how often the row was written: from 1 on, 0 of a row that was never written.
    """

    log_id: str
    due_ms: int
    since_ms: int = 0
    failures: int = 0
    job_id: str = ""
    reason: str = ""
    version: int = 0


Phase = Literal["planning", "starting", "running"]


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the places for job runs that may run at once, with the job that holds it.

    Attributes:
        number: of the place, from 0 on.
        job_id: of the job.
        phase: `planning` until its input is written, `starting` until the run's id is known, then `running`.
        since_ms: when the phase began.
        run_id: of the job run at EMR Serverless; empty before `running`.
    """

    number: int
    job_id: str
    phase: Phase
    since_ms: int
    run_id: str = ""


class Jobs(Protocol):
    """Rows of waiting logs, and places. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def get(self, log_id: str) -> Waiting | None:
        """The row of a log."""

    def put(self, row: Waiting) -> Waiting | None:
        """Writes the row if the version in it is the one that stands (0: if there is none).

        Returns:
            The row with its new version; None, and nothing changed, if another version stands.
        """

    def drop(self, row: Waiting) -> bool:
        """Removes the row if its version stands. False, and nothing changed, if not."""

    def due(self, now_ms: int, *, limit: int) -> list[Waiting]:
        """Rows that are due at `now_ms`, the longest due first."""

    def place(self, number: int) -> Place | None:
        """Who holds a place; None while it is free."""

    def take(self, place: Place) -> bool:
        """Gives a free place to a job. False, and nothing changed, if it is not free."""

    def move(self, place: Place) -> bool:
        """Writes phase, time and run id of the job that holds the place. False, and nothing changed, if another does."""

    def release(self, place: Place) -> bool:
        """Frees the place if this job holds it. False, and nothing changed, if not."""
