"""Calls the real Lambda handlers with real event shapes, by Lambda's rules.

    python -m local.dispatcher --deployment deployment.json

It polls the streams and queues of a deployment, watches its schedules, receives job-state events, and lets functions
call each other (`local/lambda_api.py`). Each trigger has a thread. A function serves one event at a time, in a process
of its own; events of a prompt stream have another one, and calls of functions as many as run at once. Prints `ready`
when it has found its position in every stream. With `--state-dir` a restarted dispatcher continues where its predecessor
had finished.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import uuid4

from headrace.machine import machine_of
from local import access
from local.access import AccessDoor
from local.deployment import Deployment, Function, StreamTrigger
from local.environment import client
from local.lambda_api import LambdaApi
from local.lambda_runtime import FunctionRuntime, Invoker, Sandbox
from local.lifeline import exit_with_parent
from local.pumps import EventPump, QueuePump, Runs, SchedulePump, events_at
from local.stream_pump import Checkpoint, StreamPump

log = logging.getLogger("headrace.dispatcher")


class Sources(NamedTuple):
    """Where the events of a dispatcher come from.

    Attributes:
        sqs, streams: clients with the calls of boto3's.
        checkpoint: returns the position of the reader that serves the stream trigger of a number.
        pumps: what else has a thread.
        runs: remembers when each rule with a schedule ran last; None: nobody does, and each begins a period at the start.
    """

    sqs: Any
    streams: Any
    checkpoint: Callable[[int], Checkpoint]
    pumps: Sequence[Any] = ()
    runs: Runs | None = None


def emulated(deployment: Deployment, state_dir: Path | None) -> Sources:
    """Returns the sources of the emulated AWS; positions are in files of `state_dir`, or in memory."""

    def checkpoint(number: int) -> Checkpoint:
        return Checkpoint(state_dir / f"stream-{number}.checkpoint" if state_dir is not None else None)

    return Sources(client("sqs", deployment.endpoint), client("dynamodbstreams", deployment.endpoint), checkpoint)


class Dispatcher:
    """All triggers of a deployment, each a pump with a thread. `start` returns when every stream position is known;
    `stop` waits for the pumps.

    Args:
        sources: where events come from; by default the emulated AWS of the deployment.
        seed: decides the order of events across keys.
        schedule_period_seconds: replaces the period of every schedule.
        instance: creates an instance that runs a function, given a name for it; by default in this process.
        state_dir: a folder for the positions in streams; without it they are kept in memory.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        seed: int,
        schedule_period_seconds: float | None = None,
        instance: Callable[[Function, str], Invoker] = lambda function, _: FunctionRuntime(function),
        state_dir: Path | None = None,
        sources: Sources | None = None,
    ) -> None:
        sources = sources or emulated(deployment, state_dir)
        runtimes = {name: instance(function, name) for name, function in deployment.functions.items()}
        self._stop = threading.Event()
        # Set when a pump dies: the emulator must fail loudly, not stop dispatching in silence.
        self.failed: BaseException | None = None
        sqs = sources.sqs

        def of_stream(trigger: StreamTrigger) -> Invoker:
            if not trigger.prompt:
                return runtimes[trigger.function]
            return instance(deployment.functions[trigger.function], f"{trigger.function}-stream")

        self._pumps: list[Any] = [
            *(
                StreamPump(
                    trigger, of_stream(trigger), sources.streams, sqs, Random(seed), sources.checkpoint(number)
                )
                for number, trigger in enumerate(deployment.streams)
            ),
            *(QueuePump(t, runtimes[t.function], sqs) for t in deployment.queues),
            *(
                SchedulePump(
                    t,
                    runtimes[t.function],
                    schedule_period_seconds,
                    runs=None if _administers(deployment.functions[t.function]) else sources.runs,
                )
                for t in deployment.schedules
            ),
            *sources.pumps,
        ]
        if deployment.events and deployment.emr_endpoint:
            self._pumps.append(EventPump(deployment.events, runtimes, events_at(deployment.emr_endpoint)))
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Finds the position in every stream, then starts one thread for each trigger."""
        for pump in self._pumps:
            pump.prepare()
        for pump in self._pumps:
            thread = threading.Thread(target=self._run, args=(pump,), name=type(pump).__name__, daemon=True)
            thread.start()
            self._threads.append(thread)

    def wait(self) -> None:
        """Waits until `stop` is called or a pump has failed."""
        self._stop.wait()

    def stop(self, timeout_seconds: float = 5) -> None:
        """Asks every pump to end after its current invocation, and waits up to `timeout_seconds` for each."""
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


def _administers(function: Function) -> bool:
    """Returns whether a function looks after other functions, not after data."""
    return function.handler.startswith("functions.versions.")


def _sources(deployment: Deployment) -> Sources | None:
    """Returns the sources of the single machine that the environment names; None if it names none."""
    if machine_of() is None:
        return None
    from local.machine import sources  # not for the emulated AWS

    return Sources(*sources.of_machine([trigger.function for trigger in deployment.streams]))


def main(arguments: list[str] | None = None) -> None:
    """Runs until SIGTERM, SIGINT or the end of standard input. Exits with 1 if a pump fails."""
    parser = argparse.ArgumentParser(prog="python -m local.dispatcher", description=__doc__)
    parser.add_argument("--deployment", type=Path, required=True, help="a Deployment as JSON")
    parser.add_argument("--state-dir", type=Path, help="keeps positions in streams, and the pids of functions")
    parser.add_argument("--seed", type=int, default=0, help="decides the order across keys")
    parser.add_argument("--schedule-seconds", type=float, help="fire every schedule at this period instead")
    parser.add_argument("--lambda-port", type=int, default=0, help="where functions call each other")
    parser.add_argument("--log-level", default="info")
    access.add_options(parser)
    options = parser.parse_args(arguments)
    exit_with_parent()
    logging.basicConfig(stream=sys.stderr, level=options.log_level.upper(), format="%(levelname)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    state_dir = options.state_dir or Path(tempfile.mkdtemp(prefix="headrace-dispatcher-"))
    sandboxes: list[Sandbox] = []

    def instance(function: Function, name: str) -> Sandbox:
        sandboxes.append(Sandbox(function, lambda: str(uuid4()), state_dir / f"{name}.pid"))
        return sandboxes[-1]

    def end(*_: object) -> None:
        # Every step of a handler may be repeated, so there is nothing to wait for.
        for sandbox in sandboxes:
            sandbox.kill()
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    deployment = Deployment.from_json(options.deployment.read_bytes())
    # Before the functions that call it.
    api = LambdaApi(deployment, instance, options.lambda_port, AccessDoor(options.policies, options.record))
    threading.Thread(target=api.serve_forever, name="lambda api", daemon=True).start()
    dispatcher = Dispatcher(
        deployment,
        seed=options.seed,
        schedule_period_seconds=options.schedule_seconds,
        instance=instance,
        state_dir=state_dir,
        sources=_sources(deployment),
    )
    dispatcher.start()
    print("ready", flush=True)
    dispatcher.wait()
    for sandbox in sandboxes:
        sandbox.kill()
    raise SystemExit(1 if dispatcher.failed else 0)


if __name__ == "__main__":
    main()
