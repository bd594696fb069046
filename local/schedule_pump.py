"""A scheduled rule: invokes its function when the time comes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Event
from uuid import uuid4

from local.account import ACCOUNT, REGION
from local.deployment import ScheduleTrigger
from local.lambda_events import scheduled_event
from local.lambda_runtime import FunctionFailed, Invoker
from local.schedule import next_time

log = logging.getLogger("headrace.dispatcher")
LONGEST_SLEEP_SECONDS = 60.0


def _utc_now() -> datetime:
    return datetime.now(UTC)


class SchedulePump:
    """One rule and one function. A failed invocation waits for the next time; `period_seconds` replaces the rule's."""

    def __init__(
        self,
        trigger: ScheduleTrigger,
        runtime: Invoker,
        period_seconds: float | None = None,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._trigger = trigger
        self._runtime = runtime
        self._period_seconds = period_seconds
        self._clock = clock

    def prepare(self) -> None:
        """Raises ValueError now, not at midnight, when the schedule cannot be read."""
        self._next(self._clock())

    def run(self, stop: Event) -> None:
        """Sleeps and invokes until told to stop."""
        due = self._next(self._clock())
        while not stop.is_set():
            left = (due - self._clock()).total_seconds()
            if left > 0:
                # In short sleeps, since a laptop's clock jumps when its lid opens.
                stop.wait(min(left, LONGEST_SLEEP_SECONDS))
                continue
            with suppress(FunctionFailed):
                self._runtime.invoke(
                    scheduled_event(self._trigger, at=due, event_id=str(uuid4()), account=ACCOUNT, region=REGION)
                )
            due = self._next(self._clock())

    def _next(self, after: datetime) -> datetime:
        if self._period_seconds:
            return after + timedelta(seconds=self._period_seconds)
        return next_time(self._trigger.expression, after)
