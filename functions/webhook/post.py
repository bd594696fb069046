"""One HTTP request to a receiver: to an address that was checked, within a time and a size, wherever it would lead."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from headrace.subscriptions.addresses import Target, UrlRefused, check_url, pick
from headrace.subscriptions.delivery import ATTEMPT_MS, Delivered

MAX_ANSWER_BYTES = 64 * 1024
Resolve = Callable[[str, int], Sequence[str]]


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    allow_loopback: bool,
    context: ssl.SSLContext,
    resolve: Resolve,
    seconds: float = ATTEMPT_MS / 1000,
) -> Delivered:
    """Posts `body` to `url`, and returns what the receiver answered. Redirects are answers like others; proxies that the
    environment names are not used.

    Args:
        allow_loopback: whether this machine may be called, also without TLS.
        context: says which certificates are trusted.
        resolve: returns the addresses of a host; it is called once, and one of them is dialled.
        seconds: the longest that all of it may take.
    """
    try:
        target = check_url(url, allow_loopback=allow_loopback)
        line = _Line(target, context, seconds, resolve)
    except UrlRefused as exc:
        return Delivered(0, error=f"refused: {exc}")
    timer = threading.Timer(seconds, line.cut)
    timer.daemon = True
    timer.start()
    try:
        line.request("POST", target.path, body, {**headers, "Host": target.authority, "Connection": "close"})
        with line.getresponse() as response:
            answer = response.read(MAX_ANSWER_BYTES + 1)
            status = response.status
        if line.was_cut:
            return Delivered(0, error="the answer took too long")
        return Delivered(status, 200 <= status < 300 and _says_done(answer))
    except UrlRefused as exc:
        return Delivered(0, error=f"refused: {exc}")
    except (OSError, http.client.HTTPException, UnicodeError) as exc:
        # The socket's own time may be over before the timer's thread has its turn.
        is_late = line.was_cut or isinstance(exc, TimeoutError)
        return Delivered(0, error="the answer took too long" if is_late else _named(exc))
    finally:
        timer.cancel()
        line.close()


def addresses_of(host: str, port: int) -> list[str]:
    """Returns the addresses of a host, best first, as the system's resolver finds them. Raises OSError if it finds none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for _, _, _, _, address in found]


class _Line(http.client.HTTPConnection):
    """A connection to one address of the target, whatever its name resolves to by then. `cut` may be called by another
    thread: it ends whatever the connection waits for.
    """

    def __init__(self, target: Target, context: ssl.SSLContext, seconds: float, resolve: Resolve) -> None:
        super().__init__(target.host, target.port)
        self._target = target
        self._seconds = seconds
        self._trust = context
        self._resolve = resolve
        self._wire: socket.socket | None = None
        self.was_cut = False

    def connect(self) -> None:
        """Dials the address, and proves by TLS that the target's name is its own."""
        address = pick(self._target, self._resolve(self._target.host, self._target.port))
        if self.was_cut:
            raise TimeoutError
        # Half of the time, since it could begin when that is nearly over. `cut` ends what comes after it.
        plain = socket.create_connection((address, self._target.port), self._seconds / 2)
        plain.settimeout(self._seconds)
        if self._target.is_tls:
            self.sock = self._trust.wrap_socket(
                plain, server_hostname=self._target.host, do_handshake_on_connect=False
            )
        else:
            self.sock = plain
        self._wire = self.sock
        if self.was_cut:  # before there was something to cut
            raise TimeoutError
        if isinstance(self.sock, ssl.SSLSocket):
            self.sock.do_handshake()

    def cut(self) -> None:
        """Ends the connection now."""
        self.was_cut = True
        if self._wire is not None:
            with suppress(OSError):
                # Not the method of TLS, which another thread may be in.
                socket.socket.shutdown(self._wire, socket.SHUT_RDWR)


def _says_done(answer: bytes) -> bool:
    """Returns whether an answer is JSON whose member `done` is exactly true. A longer one than is read says nothing."""
    if len(answer) > MAX_ANSWER_BYTES:
        return False
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("done") is True


def _named(exc: Exception) -> str:
    """Returns the kind of an error, without its text: that may repeat what the receiver sent."""
    return f"no answer: {type(exc).__name__}"
