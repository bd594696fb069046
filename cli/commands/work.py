"""The command `headrace work`: runs a command for what is appended to the streams of a pattern."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from functools import partial

import click

from cli import processes
from cli.commands.queue_work import check_lease
from cli.consumer import open_consumer
from cli.errors import BadInput
from cli.jobs import Backoff
from cli.options import Connection, base_url, connection_options, example
from cli.processes import STDERR, parse_command
from cli.reports import EventLog
from cli.stream_worker import Plan, StreamWorker
from cli.subscriptions import LEASE_MS, WAKES, consumer_id
from cli.units import Duration

EPILOG = (
    example(
        "headrace work 'orders/*' --as billing --exec ./bill.py",
        "headrace work 'logs/**' --as search --exec ./index.py --concurrency 8 --batch-records 500",
        "headrace work orders --as report --exec 'wc -l' --drain     # what came since the last time",
    )
    + """

\b
PATTERN, by whole segments between slashes:
  *    one segment                 orders/*  covers orders/eu, not orders/eu/1
  **   any number, also none       logs/**   covers logs, logs/a and logs/a/b

\b
What the command gets: on standard input a record per line, or the bytes of a stream that is not JSON; and in its
environment
  HEADRACE_CONSUMER, HEADRACE_STREAM     the name, and the stream
  HEADRACE_OFFSET, HEADRACE_INDEX        where in the stream: the same at each try, so a key to know it again
  HEADRACE_NEXT_OFFSET                   where the page ends that it is from
  HEADRACE_RECORDS, HEADRACE_CONTENT_TYPE

\b
What its exit code means:
  0       done: when all of a page is done, it is acknowledged, and nobody of this name gets it again
  other   failed: the same again after --backoff, twice as long each time; the rest of the stream waits

\b
Signals: SIGTERM or Ctrl-C takes nothing more, and waits for commands that run, up to --grace; a second one does
not wait. What is not done goes to the other workers at once. After kill -9 it does when the lease ends.
"""
)


@click.command("work", epilog=EPILOG)
@click.argument("pattern")
@click.option(
    "--as", "name", required=True, help="The name that the work is done under. Workers of one name share it."
)
@click.option(
    "--exec",
    "command_line",
    required=True,
    help="The command, with its arguments, as one text. There is no shell: for pipes and variables say sh -c '…'.",
)
@click.option(
    "--from",
    "start",
    type=click.Choice(["-1", "now"]),
    default="-1",
    show_default=True,
    help="Where a stream begins that the name has not had yet: at its beginning, or at its end.",
)
@click.option(
    "--concurrency", type=click.IntRange(1, 1000), default=1, show_default=True, help="Commands at a time, at most."
)
@click.option(
    "--batch-records",
    type=click.IntRange(min=1),
    help="Records for a command, at most. [default: what a read returns]",
)
@click.option(
    "--lease",
    "lease_ms",
    type=Duration(),
    default="30s",
    show_default=True,
    help="How long a stream stays with a worker that is not heard of any more, if the name has not had it yet.",
)
@click.option("--drain", is_flag=True, help="End once nothing is pending that no other worker has.")
@click.option(
    "--backoff", "backoff_ms", type=Duration(), default="1s", show_default=True, help="Rest after a failure."
)
@click.option(
    "--backoff-limit", "limit_ms", type=Duration(), default="10m", show_default=True, help="The longest rest."
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
    "--discover",
    "discover_ms",
    type=Duration(),
    default="30s",
    show_default=True,
    help="How often new streams are looked for.",
)
@click.option("--wakes", help=f"The stream that wakes are appended to; it is created. [default: {WAKES}NAME]")
@click.option(
    "--json", "as_json", is_flag=True, help="A JSON object a line for each event; what commands print goes to stderr."
)
@connection_options
def command(
    connection: Connection,
    pattern: str,
    name: str,
    command_line: str,
    start: str,
    concurrency: int,
    batch_records: int | None,
    lease_ms: int,
    drain: bool,
    backoff_ms: int,
    limit_ms: int,
    grace_ms: int,
    discover_ms: int,
    wakes: str | None,
    as_json: bool,
) -> None:
    """Run a command for what is appended to the streams that PATTERN covers.

    Each stream is worked on by one worker at a time, in order. The server keeps how far the name is, so any worker of that
    name goes on where the last one stopped, on any machine. If this worker is killed, nothing is lost; what it had not
    acknowledged is done again: the command must bear that.
    """
    argv = parse_command(command_line)
    consumer_id(name, "")
    check_lease(lease_ms, LEASE_MS)
    if not discover_ms:
        raise BadInput("--discover 0: give a pause, like 5s")
    plan = Plan(
        start=start,
        lease_ms=lease_ms,
        concurrency=concurrency,
        backoff=Backoff(backoff_ms, max(backoff_ms, limit_ms)),
        batch_records=batch_records,
        discover_s=discover_ms / 1000,
        grace_s=grace_ms / 1000,
        drains=drain,
    )
    # The first question decides whether there is a server, and whether the key may ask.
    connection.client().send(
        "GET", f"{base_url(connection.url)}/v1/streams", what="list streams", params={"limit": "1"}
    )
    asyncio.run(work(connection, pattern, name, argv, plan, wakes, as_json=as_json))


async def work(
    connection: Connection,
    pattern: str,
    name: str,
    argv: Sequence[str],
    plan: Plan,
    wakes: str | None,
    *,
    as_json: bool,
) -> None:
    """Works on the streams of a pattern until a signal or the plan ends it, and reports."""
    async with open_consumer(connection, name, wakes) as consumer:
        with EventLog(f"{pattern} as {name}", TEXTS, ENDS, as_json=as_json) as log:
            consumer.on_retry = lambda reason, wait_s: log.event("retry", reason=reason, wait_s=round(wait_s, 3))
            run_command = partial(processes.run, argv, stdout=STDERR if as_json else None)
            worker = StreamWorker(consumer, plan, pattern, connection.target, run_command, log.event)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, worker.stop)
            log.event("started", pattern=pattern, consumer=name, worker=consumer.worker, concurrency=plan.concurrency)
            await worker.run()


TEXTS = {
    "started": "working on {pattern} as {consumer}, up to {concurrency} at a time; this is {worker}",
    "found": "found {stream}",
    "failed": "{stream} at {offset}: the command failed ({why}), try {tries}: again in {retry_in}",
    "stopped": "{stream} at {offset}: stopped, and given back",
    "lost": "{stream} is lost: {reason}",
    "gone": "{stream} is gone: {reason}",
    "retry": "{reason}: again in {wait_s} s",
    "stopping": "stopping; streams in hand: {in_hand}",
}
"""What is said about events to people; the others are only counted."""

ENDS = ("done", "failed", "stopped", "lost")
"""What can become of a batch that has begun, and of a stream in hand."""
