"""Options that commands share (server, key, output for scripts), and the resolution of a stream's name or URL."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import click

from cli.client import Client, open_client
from cli.contexts import Choice, choose, context_names
from cli.elements import json_problem
from cli.errors import BadInput
from cli.terminal import clean, print_document

EXIT_CODES = """\b
Exit codes: 0 done, 1 refused by the server, 2 wrong usage or input,
            3 server unreachable."""


@dataclass(frozen=True)
class Connection:
    """The server and the key that the command line, the environment or a saved context named."""

    choice: Choice

    @property
    def url(self) -> str:
        """The server's URL."""
        return self.choice.url

    def target(self, name_or_url: str) -> Target:
        return target(self.url, name_or_url)

    def topic(self, name_or_url: str) -> Target:
        return target(self.url, name_or_url, root=TOPIC_ROOT)

    def client(self, for_url: str | None = None) -> Client:
        """Returns a client that is closed when the command ends."""
        url = for_url or base_url(self.url)
        client = open_client(url, self.choice.key_for(url))
        click.get_current_context().call_on_close(client.http.close)
        return client


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --url, --key and --context to a command, and passes what they choose as one `connection` argument. Defaults
    are the options of `headrace` itself.
    """

    @click.option("--url", help="The server; else what `headrace --url` or HEADRACE_URL says.")
    @click.option("--key", help="API key; else what `headrace --key` or HEADRACE_API_KEY says.")
    @click.option(
        "--context",
        metavar="NAME",
        shell_complete=context_names,
        help="A saved server and key; else the one in use (`headrace context`).",
    )
    @wraps(command)
    def with_connection(*args: Any, url: str | None, key: str | None, context: str | None, **kwargs: Any) -> Any:
        return command(*args, connection=Connection(choose(url, key, context)), **kwargs)

    return with_connection


def json_file(name: str, help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns an option that names a file with a JSON document, for `read_json`."""
    file = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
    return click.option(name, type=file, help=f"{help_text} - is standard input.")


def read_json(path: Path) -> str:
    """Returns the text of a JSON document in a file; `-` is standard input. Raises BadInput if it is none."""
    where = "standard input" if str(path) == "-" else str(path)
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        problem = json_problem(data.strip())
    except OSError as error:
        raise BadInput(f"can't read {where}: {error.strerror}") from error
    if problem:
        raise BadInput(f"{where} is not a JSON document: {problem}")
    return data.decode().strip()


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document for scripts.")


def example(*lines: str) -> str:
    """Returns help text with examples, kept as written, and the exit codes."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines) + "\n\n" + EXIT_CODES


def json_bytes(value: object) -> bytes:
    """Encodes a value as compact JSON in UTF-8. An unpaired surrogate, which UTF-8 can't hold, is escaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def print_json(value: object) -> None:
    """Prints a value as one line of JSON."""
    print_document(json_bytes(value))


def confirm(what: str, question: str, *, yes: bool) -> None:
    """Asks before something is deleted, unless `yes`. Raises BadInput if there is no terminal to ask, Abort for a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput(
            f"{what}: standard input is not a terminal, so nothing can be confirmed", "--yes deletes without asking"
        )
    click.confirm(clean(question), abort=True)


STREAM_ROOT = "/v1/stream/"
TOPIC_ROOT = "/v0/topics/"


@dataclass(frozen=True)
class Target:
    """The stream or topic that a command is about: its URL, and the name to show for it."""

    url: str
    name: str

    @property
    def path(self) -> str:
        """Returns the path of the stream's URL, as a request to fork it needs."""
        return urlsplit(self.url).path


def base_url(text: str) -> str:
    """Returns a server's URL without its trailing slash. Raises `BadInput` if it is not an HTTP URL."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BadInput(f"not a server URL: {text!r}", "give one like http://127.0.0.1:8787")
    return text.rstrip("/")


def target(base: str, name_or_url: str, *, root: str = STREAM_ROOT) -> Target:
    """Returns the stream with this name at server `base`, or the stream with this URL; with another `root`, the topic.
    A name becomes one percent-encoded path segment. Raises `BadInput` if the name is empty or a URL is invalid.
    """
    if name_or_url.startswith(("http://", "https://")):
        url = base_url(name_or_url)
        return Target(url, unquote(url.rpartition(root)[2] or url))
    if not name_or_url:
        raise BadInput("a name can't be empty")
    return Target(base_url(base) + root + segment(name_or_url), name_or_url)


def segment(name: str) -> str:
    """Returns a stream's name as one percent-encoded segment of a URL path. A name of dots alone is encoded, too,
    because it would otherwise mean a step in the path.
    """
    encoded = quote(name, safe="")
    return encoded.replace(".", "%2E") if encoded in (".", "..") else encoded
