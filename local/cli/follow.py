"""Follows a stream live, through long-polls or server-sent events, and goes on after a lost connection."""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from local.cli.client import Client
from local.cli.errors import Refused
from local.cli.pages import Page, page_of
from local.cli.retry import retry_after_s
from local.cli.sse import pages, split_lines
from local.cli.target import Target

IDLE_CONNECTION_S = 1.0
"""A connection that ends sooner, without data, came through a door that does not hold connections open."""


def long_poll(client: Client, target: Target, offset: str) -> Iterator[Page]:
    """Pages from `offset` on as they appear, empty ones included, until the stream is closed."""
    cursor: str | None = None
    while True:
        params = live_params("long-poll", offset, cursor)
        answer = client.send("GET", target.url, what=f"follow {target.name}", params=params)
        page = page_of(answer, offset)
        yield page
        if page.closed:
            return
        offset, cursor = page.next_offset, page.cursor


def server_sent(client: Client, target: Target, offset: str) -> Iterator[Page]:
    """The same through server-sent events. Servers end a connection now and then; that is no failure."""
    what = f"follow {target.name}"
    cursor: str | None = None
    failures = 0
    idle = 0
    while True:
        started = client.now()
        got_data = False
        try:
            with client.stream(target.url, what=what, params=live_params("sse", offset, cursor)) as answer:
                is_base64 = answer.headers.get("stream-sse-data-encoding") == "base64"
                for page in pages(split_lines(answer.iter_bytes()), offset, is_base64=is_base64):
                    failures = 0
                    got_data = got_data or bool(page.body)
                    offset, cursor = page.next_offset, page.cursor
                    yield page
                    if page.closed:
                        return
        except httpx.TransportError as error:
            failures += 1
            client.wait_or_raise(error, failures, target.url, what)
            continue
        except Refused as refused:
            failures += 1
            if client.policy.gives_up(failures, refused.status):
                raise
            after_s = retry_after_s(refused.headers.get("retry-after"), client.now())
            client.pause(f"status {refused.status}", failures, after_s)
            continue
        idle = 0 if got_data or client.now() - started > IDLE_CONNECTION_S else idle + 1
        if idle:
            client.sleep(min(IDLE_CONNECTION_S, client.policy.wait_s(idle, None, client.random)))


def live_params(mode: str, offset: str, cursor: str | None) -> dict[str, str]:
    params = {"live": mode, "offset": offset}
    return {"cursor": cursor, **params} if cursor else params
