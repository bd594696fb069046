"""Pages of a stream, as catch-up reads, long-polls and server-sent events return them, and pages of the list of
streams.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import httpx

from cli.client import Client
from cli.elements import array_elements
from cli.errors import CliError
from cli.options import Target

PAGE_ROWS = 1000
EVERYTHING: Mapping[str, str] = MappingProxyType({})
"""The parameters of a read that shows all records, each as its data."""


@dataclass(frozen=True)
class Page:
    """The data of one answer. Reading on from `next_offset` neither skips nor repeats."""

    body: bytes
    next_offset: str
    up_to_date: bool
    closed: bool
    cursor: str | None = None


def page_of(answer: httpx.Response, asked_offset: str) -> Page:
    headers = answer.headers
    next_offset = headers.get("stream-next-offset", asked_offset)
    is_end = headers.get("stream-end-offset") == next_offset
    return Page(
        body=b"" if answer.status_code == 204 else answer.content,
        next_offset=next_offset,
        up_to_date=is_end or is_true(headers, "stream-up-to-date"),
        closed=is_true(headers, "stream-closed"),
        cursor=headers.get("stream-cursor"),
    )


def is_true(headers: Mapping[str, str], name: str) -> bool:
    return headers.get(name, "").lower() == "true"


def is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


def catch_up(
    client: Client,
    target: Target,
    offset: str,
    since: str | None,
    selection: Mapping[str, str] = EVERYTHING,
) -> Iterator[Page]:
    """Yields pages from `offset`, or from the time `since` if that is given, to the stream's current end. `selection` has
    more parameters of each request.
    """
    params = {"since": since} if since else {"offset": offset}
    while True:
        answer = client.send("GET", target.url, what=f"read {target.name}", params={**selection, **params})
        page = page_of(answer, offset)
        yield page
        stands_still = page.next_offset == offset and not page.body.strip(b"[] \n")
        if page.up_to_date or page.closed or stands_still:
            return
        offset = page.next_offset
        params = {"offset": offset}


def elements(body: bytes) -> list[bytes]:
    """Splits a JSON page into its elements, each as the bytes that the server sent. Raises CliError if it is not a JSON
    array.
    """
    if not body.strip():
        return []
    try:
        return [element.encode() for element in array_elements(body.decode())]
    except (ValueError, RecursionError) as error:
        raise CliError(f"the server sent no JSON array: {error}", "is the URL that of a stream?") from error


def list_streams(client: Client, url: str, offset: int, limit: int | None) -> Iterator[dict[str, Any]]:
    """Yields descriptions of streams from row `offset` on, at most `limit` (None: all), page by page. Raises CliError
    if the server has no list.
    """
    while limit is None or limit > 0:
        page_rows = PAGE_ROWS if limit is None else min(limit, PAGE_ROWS)
        params = {"limit": str(page_rows), "offset": str(offset)}
        answer = client.send("GET", url, what="list streams", params=params, expect=(404,))
        if answer.status_code == 404:
            raise CliError("list streams: this server has no list (404)", "is --url the root of a server?")
        rows = descriptors(answer.content)
        yield from rows
        if len(rows) < page_rows:
            return
        offset += len(rows)
        limit = None if limit is None else limit - len(rows)


def descriptors(body: bytes) -> list[dict[str, Any]]:
    """Parses an answer with a list of streams: an array of objects or names, or an object with such an array under
    `streams`. Raises CliError if it is neither.
    """
    try:
        rows = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise CliError(f"list streams: the answer is not JSON: {error}", "is --url that of a server?") from error
    if isinstance(rows, dict):
        rows = rows.get("streams", [])
    if not isinstance(rows, list):
        raise CliError("list streams: the answer is no list", "is --url that of a server?")
    return [row if isinstance(row, dict) else {"name": str(row)} for row in rows]
