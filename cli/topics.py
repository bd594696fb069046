"""Requests about topics (`/v0/topics/…`), which include queues, and the options of their configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

import click
import httpx

from cli.client import Client
from cli.documents import Members, document, members, value
from cli.elements import array_elements, object_members
from cli.errors import BadInput, CliError
from cli.options import TOPIC_ROOT, Target, json_bytes
from cli.units import Duration, Size

Config = dict[str, object]

PAGE_ROWS = 1000
DURABILITIES = ("ephemeral", "memory", "disk", "fsync")


def call(
    client: Client,
    method: str,
    target: Target,
    what: str,
    *,
    action: str = "",
    body: object | bytes = None,
    params: Mapping[str, str] | None = None,
    expect: tuple[int, ...] = (),
) -> httpx.Response:
    """Sends a request about a topic and returns the answer. `action` is the path below the topic; `body` is a value, or
    JSON text. Raises `Refused` or `Unreachable`, which name `what`.
    """
    content = body if isinstance(body, bytes) or body is None else json_bytes(body)
    headers = {} if content is None else {"content-type": "application/json"}
    url = f"{target.url}/{action}" if action else target.url
    return client.send(method, url, what=what, headers=headers, content=content, params=params, expect=expect)


def read_state(client: Client, target: Target) -> dict[str, Any]:
    """Returns the state of a topic; the look does not count as a read. Raises `Refused` if there is no such topic."""
    return document(look_at(client, target), f"look at {target.name}")


def look_at(client: Client, target: Target, *, expect: tuple[int, ...] = ()) -> httpx.Response:
    """Returns the answer with a topic's state, without counting as a read of it."""
    return call(client, "GET", target, f"look at {target.name}", params={"touch": "false"}, expect=expect)


def list_topics(client: Client, base: str, prefix: str, limit: int | None) -> Iterator[dict[str, Any]]:
    """Yields the rows of the list of topics whose names begin with `prefix`, at most `limit` (None: all), page by page."""
    return list_rows(client, base + TOPIC_ROOT.rstrip("/"), "topics", {"prefix": prefix}, limit)


def list_rows(
    client: Client, url: str, what: str, params: Mapping[str, str], limit: int | None
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a list of `what`, at most `limit` (None: all), page by page. Empty parameters are left out."""
    target = Target(url, what)
    cursor = ""
    while limit is None or limit > 0:
        page_rows = PAGE_ROWS if limit is None else min(limit, PAGE_ROWS)
        asked = {"page_size": str(page_rows), **params, "cursor": cursor}
        given = {name: text for name, text in asked.items() if text}
        page = document(call(client, "GET", target, f"list {what}", params=given), f"list {what}")
        rows = page.get(what)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise CliError(f"list {what}: the answer has no list", "is --url the root of a server?")
        yield from rows[:page_rows]
        limit = None if limit is None else limit - len(rows)
        cursor = str(page.get("next_cursor") or "")
        if not cursor:
            return


def match(tag: str | None, tag_prefix: str | None) -> list[str] | None:
    """Returns the condition on tags that two options name; None for none. Raises BadInput if both are given."""
    if tag is not None and tag_prefix is not None:
        raise BadInput("--tag and --tag-prefix exclude each other")
    if tag is not None:
        return ["tag", "Eq", tag]
    return None if tag_prefix is None else ["tag", "Glob", f"{tag_prefix}*"]


class DiffPage:
    """The answer to a read after a cursor. Records keep the server's text."""

    def __init__(self, answer: httpx.Response, what: str) -> None:
        found = members(answer, what)
        try:
            self.records = [element.encode() for element in array_elements(found["records"])]
            self.next_seq = int(found["next_from_seq"])
            self.head_seq = int(found["head_seq"])
            self.tombstone = found.get("tombstone", "null")
            self.caught_up = bool(value(found["caught_up"]))
        except (ValueError, LookupError, RecursionError) as error:
            raise CliError(f"{what}: the answer is not a page of records: {error}") from error

    @property
    def gap(self) -> str:
        """What the page says about records that were lost to a cap or a TTL, in words; empty if there were none."""
        if self.tombstone == "null":
            return ""
        return gap_text(value(self.tombstone))


def gap_text(lost: object) -> str:
    """Returns in words which records are gone and why, as a tombstone tells it."""
    if not isinstance(lost, dict):
        return "records are gone"
    reasons = {
        "cap": "over the cap",
        "ttl": "expired",
        "mixed": "over the cap, or expired",
        "recreated": "the topic was created again",
        "source_trim": "gone before they were forwarded",
        "from_seq_too_old": "gone before the start",
    }
    reason = reasons.get(str(lost.get("reason")), str(lost.get("reason")))
    return f"records are gone: seqs {lost.get('gap_from')} to {lost.get('gap_to')} ({reason})"


def record_members(record: bytes) -> Members:
    """Returns the members of a record or job of an answer, as text. Raises CliError if it is not a JSON object."""
    try:
        return object_members(record.decode())
    except (ValueError, RecursionError) as error:
        raise CliError(f"the server sent a record that is not a JSON object: {error}") from error


class Priority(click.ParamType):  # type: ignore[type-arg]
    """A click option type: a number from -1000 to 1000, or `auto`."""

    name = "number|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if value == "auto":
            return value
        return click.IntRange(-1000, 1000).convert(value, param, ctx)


_COUNT = click.IntRange(min=0)

LOG_OPTIONS = (
    click.option("--ttl", "ttl_ms", type=Duration(), help="Records older than this are gone, like 1h; 0s: never."),
    click.option("--cap-records", "cap_records", type=_COUNT, help="Keep at most this many records; 0: no cap."),
    click.option("--cap-bytes", "cap_bytes", type=Size(), help="Keep at most this much data, like 64MiB; 0: no cap."),
    click.option(
        "--discard",
        "discard",
        type=click.Choice(["old", "reject"]),
        help="What a full topic does: drop its oldest records, or refuse the write.",
    ),
    click.option(
        "--durability",
        "durability",
        type=click.Choice(DURABILITIES),
        help="Class that the topic reports. All of them are durable here: an answer means committed.",
    ),
    click.option("--priority", "priority", type=Priority(), help="-1000 to 1000, or auto: by how recent reads are."),
    click.option(
        "--auto-priority/--no-auto-priority", "auto_priority", default=None, help="Derive a missing priority."
    ),
    click.option("--auto-create/--no-auto-create", "auto_create", default=None, help="Let a write create the topic."),
    click.option(
        "--idempotency-window",
        "idempotency_window_ms",
        type=Duration(),
        help="How long a write with the same --idempotency-key is recognized.",
    ),
    click.option(
        "--dedupe-node/--no-dedupe-node",
        "dedupe_node",
        default=None,
        help="Let readers leave out the records of their own node.",
    ),
)

QUEUE_OPTIONS = (
    click.option(
        "--lease", "lease_ms", type=Duration(), help="How long a claimed job stays with its worker, like 30s."
    ),
    click.option(
        "--claim-jitter",
        "claim_jitter_ms",
        type=Duration(),
        help="Gather claims for this long, and share the jobs out among them; up to 5s.",
    ),
    click.option(
        "--max-deliveries",
        "max_deliveries",
        type=_COUNT,
        help="After so many deliveries without an ack a job goes to --dead-letter; 0: never.",
    ),
    click.option("--dead-letter", "dead_letter", help="The topic for such jobs; '' for none."),
    click.option(
        "--leases-durable/--no-leases-durable",
        "leases_durable",
        default=None,
        help="Reported back. Leases are always durable here.",
    ),
)

_MEMBERS = (
    "ttl_ms", "cap_records", "cap_bytes", "discard", "durability", "priority", "auto_priority", "auto_create",
    "idempotency_window_ms", "dedupe_node", "lease_ms", "claim_jitter_ms", "max_deliveries", "dead_letter",
    "leases_durable",
)  # fmt: skip
_NULLS = {"priority": "auto", "dead_letter": ""}


def list_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of a list to a command: which topics it looks at."""
    for option in (
        click.option("--all", "show_all", is_flag=True, help="Look at every topic, whatever --limit says."),
        click.option(
            "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Look at so many topics."
        ),
        click.option("--prefix", default="", help="Only names that begin with this."),
    ):
        command = option(command)
    return command


def config_options(*groups: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:
    """Adds the options of these groups to a command, and passes what was given as one `config` argument: members of the
    configuration, with the names of the API.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_config(*args: Any, **given: Any) -> Any:
            members = {name: given.pop(name) for name in _MEMBERS if name in given}
            config: Config = {
                name: None if _NULLS.get(name) == member else member
                for name, member in members.items()
                if member is not None
            }
            return command(*args, config=config, **given)

        decorated: Callable[..., Any] = with_config
        for option in reversed([option for group in groups for option in group]):
            decorated = option(decorated)
        return decorated

    return decorate
