"""The command `headrace queue work`: a worker that runs a command for each job."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from functools import partial

import click
import httpx

from cli import processes
from cli.client import http_settings
from cli.errors import BadInput, CliError
from cli.jobs import Backoff
from cli.options import Connection, Target, connection_options, example
from cli.processes import STDERR, parse_command, worker_name
from cli.queue_client import QueueClient
from cli.reports import EventLog
from cli.topics import read_state
from cli.units import Duration, format_duration
from cli.worker import Plan, Worker

LEASE_MS = (100, 86_400_000)

EPILOG = (
    example(
        "headrace queue work jobs --exec ./resize.py",
        "headrace queue work jobs --exec './resize.py --size 256' --concurrency 4 --lease 5m",
        "headrace queue work jobs --exec ./nightly.sh --drain        # ends when no job is ready",
    )
    + """

\b
What the command gets: the job's JSON on standard input, and in its environment
  HEADRACE_QUEUE, HEADRACE_SEQ    which job it is; a job that is delivered again has the same
  HEADRACE_TAG                    the job's tag; empty without one
  HEADRACE_DELIVERIES             1 for the first delivery, 2 for the next
  HEADRACE_LEASE_ID               another one for each delivery

\b
What its exit code means:
  0       done: the job is deleted
  75      try later (EX_TEMPFAIL): delivered again after --backoff-limit
  other   failed: delivered again after --backoff, twice as long each time

\b
Signals: SIGTERM or Ctrl-C takes no more jobs, and waits for those that run, up to --grace; a second one does
not wait. What still runs then is stopped, and its job given back.
"""
)


@click.command("work", epilog=EPILOG)
@click.argument("name")
@click.option(
    "--exec",
    "command_line",
    required=True,
    help="The command, with its arguments, as one text. There is no shell: for pipes and variables say sh -c '…'.",
)
@click.option(
    "--concurrency", type=click.IntRange(1, 1000), default=1, show_default=True, help="Jobs at a time, at most."
)
@click.option(
    "--lease",
    "lease_ms",
    type=Duration(),
    help="How long a job stays with a worker that is not heard of any more. While the command runs, the lease is "
    "extended at each third of this. [default: the queue's]",
)
@click.option("--node", help="Name of this worker, in no two at a time. [default: host, process and a random part]")
@click.option("--max-jobs", type=click.IntRange(min=1), help="End after this many jobs.")
@click.option("--drain", is_flag=True, help="End once no job is ready. Jobs that wait for a retry stay.")
@click.option(
    "--backoff",
    "backoff_ms",
    type=Duration(),
    default="1s",
    show_default=True,
    help="Rest of a job after its first failure.",
)
@click.option(
    "--backoff-limit", "limit_ms", type=Duration(), default="10m", show_default=True, help="Its longest rest."
)
@click.option(
    "--grace",
    "grace_ms",
    type=Duration(),
    default="30s",
    show_default=True,
    help="How long SIGTERM waits for commands.",
)
@click.option(
    "--poll",
    "poll_ms",
    type=Duration(),
    help="Ask for jobs this often, instead of having them pushed. [default: pushed, or 2s where a server can't]",
)
@click.option(
    "--json", "as_json", is_flag=True, help="A JSON object a line for each event; what commands print goes to stderr."
)
@connection_options
def command(
    connection: Connection,
    name: str,
    command_line: str,
    concurrency: int,
    lease_ms: int | None,
    node: str | None,
    max_jobs: int | None,
    drain: bool,
    backoff_ms: int,
    limit_ms: int,
    grace_ms: int,
    poll_ms: int | None,
    as_json: bool,
) -> None:
    """Run a command for each job of the queue NAME.

    A job is deleted once its command has succeeded. If it fails, if this worker is killed, or the machine is lost, the job
    is delivered again. So each job is done at least once, and sometimes twice: the command must bear that.
    """
    argv = parse_command(command_line)
    queue = connection.topic(name)
    state = read_state(connection.client(queue.url), queue)
    config = state.get("config")
    if not isinstance(config, dict) or config.get("type") != "queue":
        raise CliError(f"{queue.name} is not a queue", "`headrace queue list` shows the queues")
    plan = Plan(
        concurrency=concurrency,
        lease_ms=check_lease(int(config.get("lease_ms", 30_000)) if lease_ms is None else lease_ms),
        backoff=Backoff(backoff_ms, max(backoff_ms, limit_ms)),
        poll_s=(2000 if poll_ms is None else poll_ms) / 1000,
        grace_s=grace_ms / 1000,
        max_jobs=max_jobs,
        drains=drain,
        streams=poll_ms is None,
    )
    asyncio.run(work(connection, queue, node or worker_name(), argv, plan, as_json=as_json))


def check_lease(lease_ms: int, bounds: tuple[int, int] = LEASE_MS) -> int:
    """Returns a lease in milliseconds unchanged. Raises BadInput if the server would not grant it."""
    low, high = bounds
    if not low <= lease_ms <= high:
        raise BadInput(
            f"--lease {format_duration(lease_ms)}: a lease has {format_duration(low)} to {format_duration(high)}"
        )
    return lease_ms


async def work(
    connection: Connection, queue: Target, node: str, argv: Sequence[str], plan: Plan, *, as_json: bool
) -> None:
    """Works on a queue until a signal or the plan ends it, and reports."""
    settings = http_settings(queue.url, connection.choice.key_for(queue.url))
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=8)
    async with httpx.AsyncClient(limits=limits, **settings) as http:
        with EventLog(queue.name, TEXTS, ENDS, as_json=as_json) as log:
            stdout = STDERR if as_json else None
            client = QueueClient(http, queue, node, time.time)
            worker = Worker(client, plan, partial(processes.run, argv, stdout=stdout), log)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, worker.stop)
            log.event("started", queue=queue.name, node=node, lease_ms=plan.lease_ms, concurrency=plan.concurrency)
            await worker.run()


TEXTS = {
    "started": "working on {queue} as {node}, up to {concurrency} at a time, lease {lease}",
    "failed": "job {seq} failed ({why}), delivery {deliveries}: again in {retry_in}",
    "deferred": "job {seq} asks for a later try, delivery {deliveries}: again in {retry_in}",
    "lost": "job {seq} is lost: {reason}",
    "unconfirmed": "job {seq} is done, but {reason}: it may be delivered again",
    "released": "job {seq} was stopped and given back",
    "retry": "{reason}: again in {wait_s} s",
    "stopping": "stopping; jobs in hand: {in_hand}",
}
"""What is said about events to people; the others are only counted."""

ENDS = ("done", "failed", "deferred", "lost", "unconfirmed", "released")
"""What can become of a job in hand."""
