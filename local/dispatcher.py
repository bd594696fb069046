"""Feeds the real Lambda handlers with real events, by Lambda's rules.

    python -m local.dispatcher --deployment deployment.json

polls the streams and queues of a deployment and watches its schedules. One thread for each trigger; a function serves
one event at a time. Prints `ready` when it has found its place in every stream.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

from local.deployment import Deployment
from local.environment import client
from local.lambda_runtime import FunctionRuntime
from local.lifeline import exit_with_parent
from local.queue_pump import QueuePump
from local.schedule_pump import SchedulePump
from local.stream_pump import StreamPump

log = logging.getLogger("headrace.dispatcher")


class Dispatcher:
    """The pumps of a deployment. `start` returns when every stream position is taken; `stop` waits for the pumps."""

    def __init__(self, deployment: Deployment, *, seed: int, schedule_period_seconds: float | None = None) -> None:
        runtimes = {
            name: FunctionRuntime(function, lambda: str(uuid4())) for name, function in deployment.functions.items()
        }
        self._stop = threading.Event()
        # Set when a pump dies: the emulator must fail loudly, not stop dispatching in silence.
        self.failed: BaseException | None = None
        sqs = client("sqs", deployment.endpoint)
        streams = client("dynamodbstreams", deployment.endpoint)
        self._pumps: list[Any] = [
            *(StreamPump(t, runtimes[t.function], streams, sqs, Random(seed)) for t in deployment.streams),
            *(QueuePump(t, runtimes[t.function], sqs) for t in deployment.queues),
            *(SchedulePump(t, runtimes[t.function], schedule_period_seconds) for t in deployment.schedules),
        ]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Starts one thread for each trigger."""
        for pump in self._pumps:
            pump.prepare()
        for pump in self._pumps:
            thread = threading.Thread(target=self._run, args=(pump,), name=type(pump).__name__, daemon=True)
            thread.start()
            self._threads.append(thread)

    def wait(self) -> None:
        """Returns after `stop`, or when a pump has failed."""
        self._stop.wait()

    def stop(self, timeout_seconds: float = 5) -> None:
        """Asks every pump to end after the invocation at hand."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout_seconds)

    def _run(self, pump: Any) -> None:
        try:
            pump.run(self._stop)
        except Exception as exc:
            if not self._stop.is_set():
                log.exception("%s stopped", type(pump).__name__)
                self.failed = exc
        finally:
            self._stop.set()


def main(arguments: list[str] | None = None) -> None:
    """Runs until SIGTERM, SIGINT or the end of standard input. Exit code 1 when a pump fails."""
    parser = argparse.ArgumentParser(prog="python -m local.dispatcher", description=__doc__)
    parser.add_argument("--deployment", type=Path, required=True, help="a Deployment as JSON")
    parser.add_argument("--seed", type=int, default=0, help="decides the order across keys")
    parser.add_argument("--schedule-seconds", type=float, help="fire every schedule at this period instead")
    parser.add_argument("--log-level", default="info")
    options = parser.parse_args(arguments)
    exit_with_parent()
    logging.basicConfig(stream=sys.stderr, level=options.log_level.upper(), format="%(levelname)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    for number in (signal.SIGTERM, signal.SIGINT):
        # Every step of a handler may be repeated, so there is nothing to wait for.
        signal.signal(number, lambda *_: os._exit(0))
    deployment = Deployment.from_json(options.deployment.read_bytes())
    dispatcher = Dispatcher(deployment, seed=options.seed, schedule_period_seconds=options.schedule_seconds)
    dispatcher.start()
    print("ready", flush=True)
    dispatcher.wait()
    raise SystemExit(1 if dispatcher.failed else 0)


if __name__ == "__main__":
    main()
