"""A named consumer of streams. Where it is in each stream is kept by the server, in a pull-wake subscription with the id
`NAME/STREAM`. A reader under that name claims the stream first, and acknowledges what is done; so the name may be
used on any machine, and by many workers at once.

    claim -> read from the acknowledged offset -> print, or run a command -> ack … ack with done
              heartbeat: an ack without an offset, at each third of the lease
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import random
from typing import Any, TypeVar

import httpx

from cli.client import CONNECT_TIMEOUT_S, RETRYABLE_STATUSES, RetryPolicy, http_settings, retry_after_s
from cli.documents import document
from cli.errors import CliError, Refused, envelope_code, refusal
from cli.jobs import Lease
from cli.options import Connection, Target, base_url, json_bytes
from cli.pages import PAGE_ROWS, Page, descriptors, page_of
from cli.processes import worker_name
from cli.queue_client import TryLater
from cli.subscriptions import WAKES, consumer_id, is_covered, literal_prefix, subscription

T = TypeVar("T")

READ_TIMEOUT_S = 90.0
"""Longer than any server keeps a long-poll open."""
JSON = {"content-type": "application/json"}


class Lost(Exception):
    """A claim is not held any more: its lease ended, and another worker may have the stream."""


@dataclass(frozen=True)
class Claim:
    """The right to read a stream under a name, until its lease ends. `offset`: what is acknowledged so far."""

    wake_id: str
    generation: int
    token: str
    lease_s: float
    offset: str


@dataclass(frozen=True)
class Busy:
    """Another worker has the stream, by the wake of a generation."""

    holder: str
    generation: int


@dataclass
class Consumer:
    """Requests about streams under one name. Those that fail for a while raise `TryLater`; `patiently` repeats them."""

    http: httpx.AsyncClient
    base: str
    name: str
    worker: str
    wakes: Target
    """The stream that its wakes are appended to."""
    now: Callable[[], float]
    """The time in seconds since 1970, for dates in answers."""
    on_retry: Callable[[str, float], None]
    policy: RetryPolicy = field(default_factory=RetryPolicy)

    def target(self, stream: str) -> Target:
        """Returns the subscription of the name to a stream."""
        return subscription(self.base, consumer_id(self.name, stream))

    async def create_wakes(self) -> str:
        """Creates the wake stream, unless it exists, and returns its end. Raises `TryLater` or `Refused`."""
        answer = await self.send("PUT", self.wakes.url, f"create {self.wakes.name}", b"")
        return str(answer.headers.get("stream-next-offset", "now"))

    async def find(self, pattern: str) -> list[str]:
        """Returns the names of the streams that a pattern covers now. Raises `TryLater` or `Refused`."""
        covered, after = list[str](), ""
        while True:
            asked = {"limit": str(PAGE_ROWS), "prefix": literal_prefix(pattern), "after": after}
            params = {name: text for name, text in asked.items() if text}
            names = [
                str(row.get("name"))
                for row in descriptors(
                    (await self.send("GET", f"{self.base}/v1/streams", "list streams", params=params)).content
                )
            ]
            covered += [name for name in names if is_covered(pattern, name) and name != self.wakes.name]
            if len(names) < PAGE_ROWS or names[-1] <= after:
                return covered
            after = names[-1]

    async def subscribe(self, stream: str, *, lease_ms: int, start: str) -> None:
        """Makes the subscription by which the name reads a stream, unless there is one.

        Args:
            start: where a new one begins: `-1` for the beginning of the stream, `now` for its end.

        Raises:
            TryLater: the request failed for a while.
            CliError: there is something else by its id, or the server refuses it.
        """
        target = self.target(stream)
        what = f"read {stream} as {self.name}"
        body = {
            "type": "pull-wake",
            "streams": [stream],
            "wake_stream": self.wakes.name,
            "lease_ttl_ms": lease_ms,
            "start_offset": start,
        }
        answer = await self.send("PUT", target.url, what, json_bytes(body), expect=(409,))
        if answer.status_code != 409:
            return
        # It is there with another lease or wake stream, which is all the same: it says where the name is.
        state = document(await self.send("GET", target.url, what), what)
        paths = [link.get("path") for link in state.get("streams") or [] if isinstance(link, dict)]
        if state.get("type") != "pull-wake" or paths != [stream]:
            raise CliError(
                f"{what}: the subscription {target.name} is something else", "choose another name for --as"
            )

    async def acked(self, stream: str) -> str:
        """Returns the offset up to which a stream is acknowledged. Raises `TryLater` or `Refused`."""
        what = f"look where {self.name} is in {stream}"
        state = document(await self.send("GET", self.target(stream).url, what), what)
        for link in state.get("streams") or []:
            if isinstance(link, dict) and link.get("path") == stream:
                return str(link.get("acked_offset"))
        raise CliError(f"{what}: its subscription does not name it", f"delete the subscription {self.name}/{stream}")

    async def claim(self, stream: str) -> Claim | Busy | None:
        """Claims a stream. Returns None if nothing is pending in it. Raises `TryLater` or `Refused`."""
        what = f"claim {stream} as {self.name}"
        url = f"{self.target(stream).url}/claim"
        answer = await self.send("POST", url, what, json_bytes({"worker": self.worker}), expect=(409,))
        if answer.status_code == 409:
            code = envelope_code(answer.content)
            if code == "NO_PENDING_WORK":
                return None
            if code == "ALREADY_CLAIMED":
                held = document(answer, what)["error"]
                return Busy(str(held.get("current_holder") or "another worker"), int(held.get("generation") or 0))
            raise refusal(what, 409, dict(answer.headers), answer.content)
        given = document(answer, what)
        try:
            (link,) = [link for link in given["streams"] if link["path"] == stream]
            return Claim(
                wake_id=str(given["wake_id"]),
                generation=int(given["generation"]),
                token=str(given["token"]),
                lease_s=int(given["lease_ttl_ms"]) / 1000,
                offset=str(link["acked_offset"]),
            )
        except (LookupError, TypeError, ValueError) as error:
            raise CliError(f"{what}: the answer is not a claim of it: {error!r}") from error

    async def read(self, target: Target, offset: str, *, live: bool, cursor: str | None = None) -> tuple[Page, str]:
        """Returns the page after an offset, and its content type; waits for one if `live`.

        Raises:
            TryLater: the request failed for a while.
            Refused: the stream is gone, or may not be read.
        """
        params = {
            "offset": offset,
            **({"live": "long-poll"} if live else {}),
            **({"cursor": cursor} if cursor else {}),
        }
        answer = await self.send("GET", target.url, f"read {target.name}", params=params)
        return page_of(answer, offset), answer.headers.get("content-type", "")

    async def send(
        self,
        method: str,
        url: str,
        what: str,
        content: bytes | None = None,
        *,
        params: Mapping[str, str] | None = None,
        token: str = "",
        timeout_s: float = READ_TIMEOUT_S,
        expect: tuple[int, ...] = (),
    ) -> httpx.Response:
        """Sends a request once and returns the answer. Raises `TryLater`, or `Refused` for a final error status that is not
        in `expect`.
        """
        headers = {**({} if content is None else JSON), **({"authorization": f"Bearer {token}"} if token else {})}
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))
        try:
            answer = await self.http.request(
                method, url, content=content, params=params, headers=headers, timeout=timeout
            )
        except httpx.RequestError as error:
            raise TryLater(f"{what}: {type(error).__name__}", may_be_done=True) from error
        if answer.status_code in RETRYABLE_STATUSES:
            after_s = retry_after_s(answer.headers.get("retry-after"), self.now())
            raise TryLater(f"{what}: status {answer.status_code}", after_s=after_s, may_be_done=True)
        if answer.status_code >= 400 and answer.status_code not in expect:
            raise refusal(what, answer.status_code, dict(answer.headers), answer.content)
        return answer

    async def patiently(self, ask: Callable[[], Awaitable[T]], policy: RetryPolicy | None = None) -> T:
        """Repeats a request until it is answered. Raises `Refused`."""
        failures = 0
        while True:
            try:
                return await ask()
            except TryLater as later:
                failures += 1
                wait_s = (policy or self.policy).wait_s(failures, later.after_s, random)
                self.on_retry(str(later), wait_s)
                await asyncio.sleep(wait_s)

    async def hold(
        self, stream: str, claim: Claim, asked_s: float, use: Callable[[Holding], Coroutine[Any, Any, T]]
    ) -> T:
        """Keeps a claim, which was asked for at `asked_s`, while `use` runs, and returns what that returns. If the claim is
        lost, `use` is cancelled. A claim that it has not ended is released.

        Raises:
            Lost: the claim is not held any more.
        """
        held = Holding(self, stream, claim, Lease(claim.lease_s, asked_s))
        using, keeping = asyncio.create_task(use(held)), asyncio.create_task(held.keep())
        try:
            await asyncio.wait({using, keeping}, return_when=asyncio.FIRST_COMPLETED)
            if not using.done():
                raise Lost(keeping.result())
            return using.result()
        finally:
            using.cancel()
            keeping.cancel()
            await asyncio.gather(using, keeping, return_exceptions=True)
            if not held.ended:
                await held.release()


@asynccontextmanager
async def open_consumer(connection: Connection, name: str, wakes: str | None = None) -> AsyncIterator[Consumer]:
    """Yields a consumer with a name, of whose retries nobody is told, and closes its connections in the end."""
    settings = http_settings(connection.url, connection.choice.key)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=8)
    async with httpx.AsyncClient(limits=limits, **settings) as http:
        yield Consumer(
            http=http,
            base=base_url(connection.url),
            name=name,
            worker=worker_name(),
            wakes=connection.target(wakes or f"{WAKES}{name}"),
            now=time.time,
            on_retry=lambda _reason, _wait_s: None,
        )


@dataclass
class Holding:
    """A claim in hand.

    Attributes:
        owed: an offset up to which all is done, and not acknowledged yet.
        ended: whether the server has been told that it is over, or has said so.
    """

    consumer: Consumer
    stream: str
    claim: Claim
    lease: Lease
    owed: str = ""
    ended: bool = False

    def __post_init__(self) -> None:
        length_s = self.claim.lease_s
        # Several tries must fit into what is left of a lease.
        self._hasty = RetryPolicy(
            first_wait_s=0.05, longest_wait_s=min(2.0, length_s / 12), longest_retry_after_s=length_s / 6
        )
        self._turn = asyncio.Lock()

    async def keep(self) -> str:
        """Sends heartbeats until the claim is lost; returns why."""
        while True:
            await asyncio.sleep(max(0.0, self.lease.renew_s - now_s()))
            if now_s() < self.lease.renew_s:  # an ack came between
                continue
            try:
                await self.ack()
            except Lost as error:
                return str(error)
            except CliError as error:
                return error.message

    async def ack(self, offset: str = "", *, done: bool = False) -> bool:
        """Acknowledges the stream up to an offset, or nothing new; either way the lease begins again, or ends if `done`.
        Returns whether more is pending after the end.

        Raises:
            Lost: the claim is not held any more, or the server did not answer before its lease ended.
            Refused: the server refuses it for another reason.
        """
        body: dict[str, object] = {"wake_id": self.claim.wake_id, "generation": self.claim.generation}
        if offset:
            body["acks"] = [{"stream": self.stream, "offset": offset}]
        if done:
            body["done"] = True
        async with self._turn:
            asked_s = now_s()
            answer = await self._tell("ack", body)
            self.lease = Lease(self.claim.lease_s, asked_s)
            self.ended = done
            self.owed = "" if offset else self.owed
        return document(answer, "ack").get("next_wake") is True

    async def release(self) -> None:
        """Acknowledges what is done, and gives the claim back, so that another worker may have it at once. If that fails,
        the lease ends by itself.
        """
        body = {"wake_id": self.claim.wake_id, "generation": self.claim.generation}
        with suppress(Lost, CliError, TimeoutError):
            async with asyncio.timeout(self.lease.timeout_s):
                if self.owed:
                    await self.ack(self.owed)
                await self._tell("release", body)
        self.ended = True

    async def _tell(self, verb: str, body: Mapping[str, object]) -> httpx.Response:
        """Sends an ack or release until it is answered, or the lease has ended."""
        what = f"{verb} {self.stream} as {self.consumer.name}"
        url = f"{self.consumer.target(self.stream).url}/{verb}"

        async def ask() -> httpx.Response:
            return await self.consumer.send(
                "POST", url, what, json_bytes(body), token=self.claim.token, timeout_s=self.lease.timeout_s
            )

        try:
            async with asyncio.timeout_at(self.lease.ends_s):
                return await self.consumer.patiently(ask, self._hasty)
        except TimeoutError as error:
            self.ended = True
            raise Lost("the server did not answer before the lease ended") from error
        except Refused as refused:
            self.ended = True
            if refused.status in (401, 404, 409):
                raise Lost(refused.message) from refused
            raise


def now_s() -> float:
    """Returns the time of the clock that leases are kept by."""
    return asyncio.get_running_loop().time()


def wake_of(record: bytes) -> tuple[str, int] | None:
    """Returns the id of the subscription that a record of a wake stream is about, and the wake's generation; None if the
    record is something else.
    """
    try:
        found = json.loads(record)
        return (str(found["subscription_id"]), int(found["generation"])) if found["type"] == "wake" else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
