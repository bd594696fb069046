"""The rules of a deployment that wait for events of EMR Serverless: invokes their functions when one matches."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event
from typing import Any
from urllib.request import urlopen

from local.deployment import EventTrigger
from local.event_filter import matches
from local.lambda_runtime import FunctionFailed, Invoker

log = logging.getLogger("headrace.dispatcher")
WAIT_SECONDS = 1
# Lambda repeats a failed asynchronous invocation after a minute; here nobody wants to wait so long.
RETRY_SECONDS = 1.0

Events = Callable[[int | None], dict[str, Any]]


class EventPump:
    """All rules with an event pattern. As with EventBridge an event may be lost: what happens while nobody asks is."""

    def __init__(self, triggers: Sequence[EventTrigger], runtimes: dict[str, Invoker], events: Events) -> None:
        self._triggers = triggers
        self._runtimes = runtimes
        self._events = events
        self._after = 0

    def prepare(self) -> None:
        """Finds the newest event."""
        self._after = self._events(None)["newest"]

    def run(self, stop: Event) -> None:
        """Asks and dispatches until told to stop."""
        while not stop.is_set():
            answer = self._events(self._after)
            for event in answer["events"]:
                self._dispatch(event, stop)
            self._after = answer["newest"]

    def _dispatch(self, event: dict[str, Any], stop: Event) -> None:
        for trigger in self._triggers:
            if not matches(trigger.pattern, event):
                continue
            given = json.loads(trigger.input) if trigger.input is not None else event
            for attempt in range(1 + trigger.retries):
                if attempt and stop.wait(RETRY_SECONDS):
                    return
                with suppress(FunctionFailed):
                    self._runtimes[trigger.function].invoke(given)
                    break


def events_at(endpoint: str) -> Events:
    """Asks the emulator's EMR Serverless, again and again while it is being replaced."""

    def ask(after: int | None) -> dict[str, Any]:
        query = "" if after is None else f"?after={after}&wait={WAIT_SECONDS}"
        for attempt in range(50):
            try:
                with urlopen(f"{endpoint}/_emulator/events{query}", timeout=30) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except OSError:
                if attempt == 49:
                    raise
                time.sleep(0.1)
        raise AssertionError("the last try returns or raises")

    return ask
