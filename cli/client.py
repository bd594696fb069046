"""HTTP for every command: one connection, a bearer key, safe retries, and errors that say what to do."""

from __future__ import annotations

import random as random_module
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx

from cli.errors import BadInput, Unreachable, envelope_code, refusal

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 90.0
"""Longer than any server keeps a long-poll open."""
CONNECT_HINT = "is `headrace dev` running? another server: --url, HEADRACE_URL or --context"


RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how soon to retry: up to `tries` sends. The wait doubles from `first_wait_s` to `longest_wait_s`,
    minus a random part of up to half.

    A server's Retry-After is honoured up to `longest_retry_after_s`; a longer one is cut to that.
    """

    tries: int = 10
    tries_after_500: int = 4
    """Fewer tries than for a busy server, because an internal error is more likely to last."""
    first_wait_s: float = 0.1
    longest_wait_s: float = 5.0
    longest_retry_after_s: float = 60.0

    def gives_up(self, failures: int, status: int) -> bool:
        """Returns whether to stop after `failures` failed sends, of which the last was answered with `status`: there
        were enough tries, or a retry does not help with this status.
        """
        tries = min(self.tries, self.tries_after_500) if status == 500 else self.tries
        return status not in RETRYABLE_STATUSES or failures >= tries

    def wait_s(self, failures: int, retry_after_s: float | None, random: Callable[[], float]) -> float:
        """Returns the seconds to wait after `failures` (1 or more) failed sends; at least `retry_after_s`, up to the
        policy's limit for it, if that is given. `random` gives [0, 1).
        """
        full = min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(failures - 1, 30))
        wait = full * (0.5 + 0.5 * random())
        if retry_after_s is not None:
            return max(wait, min(retry_after_s, self.longest_retry_after_s))
        return wait


@dataclass
class Client:
    """An HTTP client that retries, and counts its retries. Times are in seconds.

    A request given to `send` must be safe to repeat (reads, creates, appends with producer headers), or say that it is
    not.
    """

    http: httpx.Client
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time
    random: Callable[[], float] = random_module.random
    on_retry: Callable[[str, float], None] = lambda _reason, _wait_s: None
    retries: int = 0
    answered: bool = False
    """Whether the server has ever answered. Before that, a refused connection is final; afterwards it is retried."""

    def send(
        self,
        method: str,
        url: str,
        *,
        what: str,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        expect: tuple[int, ...] = (),
        is_safe: bool = True,
    ) -> httpx.Response:
        """Sends a request, again if that may help, and returns the answer with its whole body. A request that is not
        safe to repeat is only sent again if the server certainly did nothing. Raises `Refused` for a final error status
        that is not in `expect`, `Unreachable` if the last try was not answered.
        """
        failures = 0
        encoded = encode_headers(headers or {})
        while True:
            failures += 1
            try:
                answer = self.http.request(method, url, headers=encoded, params=params, content=content)
            except (httpx.TransportError, httpx.InvalidURL) as error:
                if not is_safe and not isinstance(error, httpx.ConnectError):
                    raise unreachable(error, url, what) from error
                self.wait_or_raise(error, failures, url, what)
                continue
            self.answered = True
            if answer.status_code < 400 or answer.status_code in expect:
                return answer
            if (not is_safe and not did_nothing(answer)) or self.policy.gives_up(failures, answer.status_code):
                raise self.refusal(what, answer)
            after_s = retry_after_s(answer.headers.get("retry-after"), self.now())
            self.pause(f"status {answer.status_code}", failures, after_s)

    @contextmanager
    def stream(
        self,
        url: str,
        *,
        what: str,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[httpx.Response]:
        """Yields an answer whose body is still arriving. It does not retry: httpx errors pass through, an error status
        raises `Refused`.
        """
        with self.http.stream("GET", url, params=params, headers=encode_headers(headers or {})) as answer:
            self.answered = True
            if answer.status_code >= 400:
                answer.read()
                raise self.refusal(what, answer)
            yield answer

    def wait_or_raise(self, error: Exception, failures: int, url: str, what: str) -> None:
        """Waits before the next try, or raises `Unreachable` if there are no tries left or a retry makes no sense."""
        never_there = isinstance(error, httpx.ConnectError) and not self.answered
        never_works = isinstance(error, (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError))
        if never_there or never_works or failures >= self.policy.tries:
            raise unreachable(error, url, what) from error
        self.pause(type(error).__name__, failures, None)

    def pause(self, reason: str, failures: int, after_s: float | None) -> None:
        wait_s = self.policy.wait_s(failures, after_s, self.random)
        self.retries += 1
        self.on_retry(reason, wait_s)
        self.sleep(wait_s)

    def refusal(self, what: str, answer: httpx.Response) -> Exception:
        return refusal(what, answer.status_code, dict(answer.headers), answer.content)


def did_nothing(answer: httpx.Response) -> bool:
    """Returns whether the answer says that the server wrote nothing. A gateway's own 503, which has no error code, does
    not: the server may be slow, and may write yet.
    """
    return answer.status_code in (425, 429) or (answer.status_code == 503 and bool(envelope_code(answer.content)))


def encode_headers(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    """Encodes header values as UTF-8. Raises `BadInput` for characters that no header can carry."""
    for name, value in headers.items():
        if any(ord(character) < 32 or ord(character) == 127 for character in value):
            shown = "" if name == "authorization" else f": {value!r}"
            raise BadInput(f"{name} can't hold control characters{shown}")
    return {name.encode(): value.encode() for name, value in headers.items()}


def unreachable(error: Exception, url: str, what: str) -> Unreachable:
    server = "{0.scheme}://{0.netloc}".format(urlsplit(url))
    if isinstance(error, httpx.ConnectError):
        return Unreachable(
            f"{what}: can't connect to {server}",
            CONNECT_HINT,
        )
    if isinstance(error, httpx.TimeoutException):
        return Unreachable(f"{what}: {server} did not answer in time", "try again; data sent last may be there")
    return Unreachable(f"{what}: {server}: {error or type(error).__name__}", "check the URL and the network")


def open_client(
    url: str,
    key: str | None,
    *,
    transport: httpx.BaseTransport | None = None,
    policy: RetryPolicy | None = None,
) -> Client:
    """Returns a client for the server at `url`. Requests to a loopback address never go through a proxy."""
    return Client(httpx.Client(transport=transport, **http_settings(url, key)), policy=policy or RetryPolicy())


def http_settings(url: str, key: str | None) -> dict[str, Any]:
    """Returns what every HTTP client of the server at `url` is made with, the bearer key among it."""
    headers = {"user-agent": "headrace-cli"}
    if key:
        headers["authorization"] = f"Bearer {key.strip()}"
    return {
        "headers": encode_headers(headers),
        "timeout": httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        "trust_env": urlsplit(url).hostname not in ("127.0.0.1", "::1", "localhost"),
    }


def retry_after_s(value: str | None, now_s: float) -> float | None:
    """Returns the seconds that a Retry-After header (a number or an HTTP date) asks for; None if it is neither."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now_s)
    except ValueError:
        return None
