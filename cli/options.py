"""Options that commands share: which server, which key, and output for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from cli.client import Client, open_client
from cli.target import Target, base_url, target

EXIT_CODES = "\b\nExit codes: 0 done, 1 refused by the server, 2 wrong usage or input, 3 server unreachable."


@dataclass(frozen=True)
class Connection:
    """The server and key that the command line named."""

    url: str
    key: str | None

    def target(self, name_or_url: str) -> Target:
        return target(self.url, name_or_url)

    def client(self, for_url: str | None = None) -> Client:
        return open_client(for_url or base_url(self.url), self.key)


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --url and --key, and passes them as one `connection` argument. What they leave out, `headrace` itself has."""

    @click.option("--url", help="The server; else what `headrace --url` or HEADRACE_URL says.")
    @click.option("--key", help="API key; else what `headrace --key` or HEADRACE_API_KEY says.")
    @wraps(command)
    def with_connection(*args: Any, url: str | None, key: str | None, **kwargs: Any) -> Any:
        common = click.get_current_context().find_root().params
        return command(*args, connection=Connection(url or common["url"], key or common["key"]), **kwargs)

    return with_connection


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document for scripts.")


def example(*lines: str) -> str:
    """An epilog of examples, kept as written, and the exit codes."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines) + "\n\n" + EXIT_CODES


def json_bytes(value: object) -> bytes:
    """Returns compact JSON in UTF-8. Half a surrogate pair, which has no UTF-8, becomes an escape."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def print_json(value: object) -> None:
    """Prints a JSON document on a line."""
    click.echo(json_bytes(value))
