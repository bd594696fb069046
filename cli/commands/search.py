"""The command `headrace search`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click
import httpx

from cli.documents import Members, in_time, lost, members, text, value
from cli.elements import array_elements, join_object, object_members
from cli.errors import BadInput
from cli.options import Connection, connection_options, example, json_bytes, json_option
from cli.output import LINE_BREAKS
from cli.tables import Column, counted, print_table, print_tree
from cli.terminal import output, print_document, say

PAGE_HITS = 500  # the most that a server gives at once
SHOWN_FIELDS = 6
Send = Callable[[dict[str, Any]], httpx.Response]

EPILOG = """\b
A query:
  level:error                     a keyword or a number
  status:>=500 -path:"/health"    both must hold, the second must not
  path:/api/*                     what a keyword begins with
  message:"connection reset"      words next to each other in a text
  timeout OR refused              words in the default fields
  has:traceId (a:1 OR b:2)        the field has a value; parentheses group
Values with white space, colons, parentheses, < > = or a minus in front are quoted.
""" + example(
    "headrace search logs 'level:error' --sort timestamp:desc",
    "headrace search logs 'status:>=500' --field path --field duration",
    "headrace search logs 'user:42' --all --records | jq -r .message",
    "headrace search logs 'message:timeout' --explain",
    "headrace search logs -- '-level:info'        # a query that begins with a minus",
)


@dataclass(frozen=True)
class Hit:
    """A record that matches the query. `source` and `fields` keep the server's text."""

    offset: str
    source: str
    fields: Members
    score: float | None

    @staticmethod
    def parse(text_: str) -> Hit:
        """Parses a hit from its JSON text."""
        given = object_members(text_)
        fields = object_members(given.get("fields", "{}"))
        return Hit(text(given["offset"]), given["source"], fields, value(given.get("score")))


def search_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the query, and the options of a search and of how its hits are shown, to a command; pass them to `show`."""
    for option in (
        click.argument("query"),
        click.option(
            "--sort",
            multiple=True,
            metavar="FIELD[:asc|:desc]",
            help="Order: a sortable field, offset or _score; again for ties. [default: newest first, text by score]",
        ),
        click.option(
            "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Show at most this many."
        ),
        click.option("--all", "show_all", is_flag=True, help="Show every hit, whatever --limit says."),
        click.option("--after", metavar="JSON", help="Continue after a hit: give what the previous page printed."),
        click.option(
            "--field",
            "fields",
            multiple=True,
            help=f"A column of the table; may be repeated. [default: {SHOWN_FIELDS} fields]",
        ),
        click.option("--records", "as_records", is_flag=True, help="Print the records, one a line, not a table."),
        click.option(
            "--timeout-ms",
            type=click.IntRange(min=0),
            help="The server's time for a page, in ms; then it returns what it has found.",
        ),
        click.option(
            "--explain", is_flag=True, help="Explain how the server answered: plan, requests, bytes, caches, time."
        ),
        json_option,
    )[::-1]:
        command = option(command)
    return command


@click.command(epilog=EPILOG)
@click.argument("name")
@search_options
@connection_options
def command(connection: Connection, name: str, **options: Any) -> None:
    """Find the records of stream NAME that match QUERY.

    The stream needs a schema with search fields. The newest records are found at once. If the server could not look
    at everything in time, standard error says what is left out.
    """
    target = connection.target(name)
    client, what = connection.client(target.url), f"search of {target.name}"

    def send(body: dict[str, Any]) -> httpx.Response:
        headers = {"content-type": "application/json"}
        url = f"{target.url}/_search"
        return client.send("POST", url, what=what, headers=headers, content=json_bytes(body), expect=(408,))

    show(send, what, Hit.parse, **options)


def show(
    send: Send,
    what: str,
    parse: Callable[[str], Hit],
    *,
    query: str,
    sort: tuple[str, ...],
    limit: int,
    show_all: bool,
    after: str | None,
    fields: tuple[str, ...],
    as_records: bool,
    timeout_ms: int | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Searches, and prints the hits.

    Args:
        send: sends the body of a search, and returns the answer.
        what: what is done, for messages.
        parse: returns a hit from its JSON text.
        query, sort, limit, show_all, after, fields, as_records, timeout_ms, explain, as_json: what `search_options` adds.
    """
    if as_records and as_json:
        raise BadInput("--records and --json exclude each other")
    body: dict[str, Any] = {"q": query}
    if sort:
        body["sort"] = list(sort)
    if after is not None:
        body["search_after"] = _position(after)
    if timeout_ms is not None:
        body["timeout_ms"] = timeout_ms
    if explain:
        body["explain"] = True
    started = time.monotonic()
    hits: list[Hit] = []
    raw_hits: list[str] = []
    count = 0
    first: Members | None = None
    last: Members | None = None
    for page in pages(send, what, body, None if show_all else limit):
        first, last = first or page, page
        raw = array_elements(page.get("hits", "[]"))
        count += len(raw)
        if as_json:
            raw_hits += raw
            continue
        found = [parse(one) for one in raw]
        if as_records:
            _print_records(found)
        else:
            hits += found
    assert first is not None
    assert last is not None, "there is always a page"
    if as_json:
        print_document(join_object({**first, **last, **_kept(first), "hits": f"[{','.join(raw_hits)}]"}).encode())
        return
    if hits:
        _print_hits(hits, fields, by_score=any(hit.score for hit in hits))
    if explain and "explain" in first:
        print_tree("explain", value(first["explain"]))
    _summary(last, count, time.monotonic() - started)


def pages(send: Send, what: str, body: dict[str, Any], limit: int | None) -> Iterator[Members]:
    """Yields answers, page by page, until there are no more hits, `limit` (None: no limit) is reached, or the server's
    time is over. Raises CliError if it was over before anything was found.
    """
    left = limit
    while True:
        wanted = PAGE_HITS if left is None else min(left, PAGE_HITS)
        answer = send({**body, "size": wanted})
        page = members(in_time(answer, what, "ask for less: a narrower query, a smaller --limit"), what)
        yield page
        count = len(array_elements(page.get("hits", "[]")))
        left = None if left is None else left - count
        position = value(page.get("next_search_after"))
        if position is None or not count or left == 0 or value(page.get("timed_out")):
            return
        body = {**body, "search_after": position}


def _position(text_: str) -> list[Any]:
    try:
        found = json.loads(text_)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise BadInput(f"--after is not a JSON array: {text_!r}", "give what the previous page printed")
    return found


def _kept(first: Members) -> Members:
    """Returns the members that only the first page has, although they describe the whole search."""
    return {name: first[name] for name in ("explain",) if name in first}


def _print_records(hits: list[Hit]) -> None:
    out = output()
    for hit in hits:
        out.write(hit.source.encode().translate(LINE_BREAKS) + b"\n")
    out.flush()


def _print_hits(hits: list[Hit], wanted: tuple[str, ...], *, by_score: bool) -> None:
    known = list(dict.fromkeys(name for hit in hits for name in hit.fields))
    shown = list(wanted) or known[:SHOWN_FIELDS]
    columns = [Column("offset")]
    if by_score:
        columns.append(Column("score", is_number=True))
    columns += [Column(name) for name in shown] if shown else [Column("record")]
    rows = []
    for hit in hits:
        row: list[object] = [hit.offset]
        if by_score:
            row.append(None if hit.score is None else f"{hit.score:g}")
        row += [text(hit.fields.get(name)) for name in shown] if shown else [text(hit.source)]
        rows.append(row)
    print_table(columns, rows)
    hidden = [name for name in known if name not in shown]
    if hidden and not wanted:
        say(f"more fields, with --field: {', '.join(hidden)}", err=True)


def _summary(page: Members, count: int, seconds: float) -> None:
    total = value(page.get("total")) or {}
    of = f" of {'at least ' if total.get('relation') == 'gte' else ''}{total['value']:,}" if "value" in total else ""
    say(f"{counted(count, 'hit')}{of} in {seconds * 1000:,.0f} ms", err=True)
    missing = lost(value(page.get("coverage")) or {})
    if missing:
        say(f"warning: {missing}", err=True)
    if value(page.get("timed_out")):
        say("warning: the server's time was over; these are the hits found until then", err=True)
    elif "next_search_after" in page and value(page["next_search_after"]) is not None:
        say(f"there may be more: --after '{page['next_search_after']}', or --all", err=True)
