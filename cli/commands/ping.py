"""The command `headrace ping`."""

from __future__ import annotations

import time

import click
import httpx

from cli.client import CONNECT_HINT, Client
from cli.errors import EXIT_REFUSED
from cli.latencies import percentile, show_ms
from cli.options import Connection, base_url, connection_options, json_option, print_json
from cli.tables import counted
from cli.terminal import say
from cli.units import Duration

VERSION_HEADER = "headrace-version"

EPILOG = """\b
Examples:
  headrace ping
  headrace ping -c 20 --interval 1s
  until headrace ping -c 1; do sleep 1; done     # wait for a server

\b
Exit codes: 0 every request was answered, 1 one was not, 2 wrong usage.
"""


@click.command(epilog=EPILOG)
@click.option("-c", "--count", type=click.IntRange(1, 10_000), default=5, show_default=True, help="Requests to send.")
@click.option(
    "--interval", "interval_ms", type=Duration(), default="200ms", show_default=True, help="Wait between requests."
)
@click.option(
    "--timeout", "timeout_ms", type=Duration(), default="5s", show_default=True, help="How long one request may take."
)
@json_option
@connection_options
def command(connection: Connection, count: int, interval_ms: int, timeout_ms: int, as_json: bool) -> None:
    """Ask a server for its health some times, and say how soon it answers.

    One connection is used for all requests. The first one opens it, so its time is shown apart. No key is needed, and
    no store is read: this is the way to the server and back.
    """
    url = base_url(connection.url)
    client = connection.client()
    latencies: list[float] = []
    version = problem = ""
    answered = 0
    first_ms: float | None = None
    for number in range(count):
        if number:
            client.sleep(interval_ms / 1000)
        latency_ms, said, problem = _ask(client, f"{url}/health", timeout_ms / 1000)
        if not as_json:
            say(
                f"{number + 1:4}  {problem}" if problem else f"{number + 1:4}  {show_ms(latency_ms)} ms",
                err=bool(problem),
            )
        if problem:
            continue
        answered, version = answered + 1, said or version
        if first_ms is None:
            first_ms = latency_ms
        else:
            latencies.append(latency_ms)
    facts = {"first_ms": first_ms, "min_ms": percentile(latencies, 0), "median_ms": percentile(latencies, 50)}
    facts["max_ms"] = percentile(latencies, 100)
    if as_json:
        rounded = {name: None if ms is None else round(ms, 3) for name, ms in facts.items()}
        print_json({"url": url, "version": version or None, "sent": count, "answered": answered, **rounded})
    else:
        least, median, most = (show_ms(facts[name]) for name in ("min_ms", "median_ms", "max_ms"))
        say(f"{url}  {f'Headrace {version}' if version else 'version unknown'}")
        first = f"; the first in {show_ms(first_ms)} ms" if answered else ""
        say(f"{counted(count, 'request')}, {answered:,} answered{first}")
        if latencies:
            say(f"then min {least}, median {median}, max {most} ms")
    if not answered and not as_json:
        say(f"  hint: {CONNECT_HINT}", err=True)
    if answered < count:
        click.get_current_context().exit(EXIT_REFUSED)


def _ask(client: Client, url: str, timeout_s: float) -> tuple[float, str, str]:
    """Sends one request, and returns its latency in milliseconds, the version of the server, and what went wrong."""
    started = time.perf_counter()
    try:
        answer = client.http.get(url, timeout=timeout_s)
    except (httpx.TransportError, httpx.InvalidURL) as error:
        return 0.0, "", f"no answer: {error or type(error).__name__}"
    latency_ms = (time.perf_counter() - started) * 1000
    problem = "" if answer.is_success else f"status {answer.status_code}"
    return latency_ms, answer.headers.get(VERSION_HEADER, ""), problem
