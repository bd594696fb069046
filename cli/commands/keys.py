"""The command `headrace keys`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from cli.client import Client
from cli.documents import document, in_time, lost
from cli.options import Connection, Target, connection_options, example, json_option, print_json
from cli.terminal import say

PAGE_KEYS = 500  # the most that a server gives at once

EPILOG = example(
    "headrace keys orders",
    "headrace keys orders --after customer-41 --limit 10",
    "headrace keys orders --all | wc -l",
    "headrace keys orders --all --json | jq -r '.keys[]'",
)


@click.command(epilog=EPILOG)
@click.argument("name")
@click.option("--after", help="Only keys above this one, in the order of their bytes.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Show at most this many.")
@click.option("--all", "show_all", is_flag=True, help="Show every key, whatever --limit says.")
@json_option
@connection_options
def command(connection: Connection, name: str, after: str | None, limit: int, show_all: bool, as_json: bool) -> None:
    """List the routing keys of stream NAME, each once, in the order of their UTF-8 bytes.

    The stream's schema must say where its records have their key. Control characters in a key are printed as
    escapes; --json prints the exact text.
    """
    target = connection.target(name)
    found: list[str] = []
    count = 0
    last: dict[str, Any] = {}
    missing = ""
    for page in pages(connection.client(target.url), target, after, None if show_all else limit):
        last = page
        missing = missing or lost(page.get("coverage") or {})
        count += len(page["keys"])
        if as_json:
            found += page["keys"]
            continue
        for key in page["keys"]:
            say(key)
    if as_json:
        print_json({**last, "keys": found, "complete": not missing})
        return
    if not count:
        say("no keys", err=True)
    if missing:
        say(f"warning: {missing}", err=True)
    if last.get("next_after") is not None:
        say(f"there may be more: --after {last['next_after']!r}, or --all", err=True)


def pages(client: Client, target: Target, after: str | None, limit: int | None) -> Iterator[dict[str, Any]]:
    """Yields answers, page by page, until there are no more keys or `limit` (None: no limit) is reached. Raises
    CliError if the server ran out of time.
    """
    what = f"keys of {target.name}"
    left = limit
    while True:
        params = {"limit": str(PAGE_KEYS if left is None else min(left, PAGE_KEYS))}
        if after is not None:
            params["after"] = after
        answer = client.send("GET", f"{target.url}/_routing_keys", what=what, params=params, expect=(408,))
        page = document(in_time(answer, what, "ask for fewer: --limit"), what)
        page.setdefault("keys", [])
        yield page
        left = None if left is None else left - len(page["keys"])
        after = page.get("next_after")
        if after is None or left == 0:
            return
