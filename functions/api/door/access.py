"""Bearer keys: their configuration, and how a running process learns of changed keys. `entry` checks what a key allows.

The configuration is a comma-separated list of `key[:scopes[:prefixes]]`: scopes joined by `+` (empty: all), name
prefixes joined by `|` (empty: any name). Only SHA-256 digests of keys are kept. With a malformed entry a process that is
given the keys themselves does not start, and one that reads them from a secret serves nobody.

The secret with the configuration is read again from time to time, so that keys can be changed without a deployment. A
change takes effect when a process next reads the secret: at most `keys_age_ms` later, or with the first request after a
longer pause (such as a restored snapshot). If reading fails, the process keeps its keys: it never serves without keys
because of a typo.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Collection

from functions.api.door.entry import ALL, ANY_HOST, Access, Grant, Scope
from functions.api.door.hosts import host_of, is_loopback
from headrace.clock import Clock
from headrace.errors import StoreError

# Of the key's SHA-256 digest: enough to tell keys apart, and too few to find one by.
KEY_ID_DIGITS = 8


class AccessError(ValueError):
    """The configuration of keys or hosts is malformed, or would leave a public server open. The message never contains a
    key.
    """


_SCOPES = {
    "read": Scope.READ,
    "r": Scope.READ,
    "write": Scope.WRITE,
    "w": Scope.WRITE,
    "rw": Scope.READ | Scope.WRITE,
    "delete": Scope.DELETE,
    "d": Scope.DELETE,
    "admin": Scope.ADMIN,
    "a": Scope.ADMIN,
}


def parse(text: str, hosts: Collection[str] = ()) -> Access:
    """Parses a configuration text with keys, as described at the top of this module. A text without entries gives an
    `Access` that allows everything to whom it obeys: loopback and `hosts`.

    Raises:
        AccessError: an entry is malformed, or a key is listed twice. The message has the number of the entry, never its
            key.
    """
    grants: dict[bytes, Grant] = {}
    for number, entry in enumerate(text.split(","), start=1):
        if not entry.strip():
            continue
        key, _, rest = entry.strip().partition(":")
        scopes, _, prefixes = rest.partition(":")
        if not key:
            raise AccessError(f"api key is empty: entry={number}")
        digest = _digest(key, number)
        if digest in grants:
            raise AccessError(f"api key is listed twice: entry={number}")
        grants[digest] = Grant(_scopes(scopes, number), _prefixes(prefixes, number), digest.hex()[:KEY_ID_DIGITS])
    return Access(grants, hosts)


def _digest(key: str, number: int) -> bytes:
    try:
        return hashlib.sha256(key.encode()).digest()
    except UnicodeEncodeError:  # it has the key in it: not the cause
        raise AccessError(f"api key is not UTF-8: entry={number}") from None


def _scopes(text: str, number: int) -> Scope:
    if not text:
        return ALL
    scopes = Scope(0)
    for token in text.split("+"):
        if token not in _SCOPES:
            # The text itself is not shown: it may be the rest of a key that has a colon in it.
            raise AccessError(f"api key has an unknown scope: entry={number} known={','.join(_SCOPES)}")
        scopes |= _SCOPES[token]
    return scopes


def _prefixes(text: str, number: int) -> tuple[str, ...]:
    if not text:
        return ()
    prefixes = tuple(text.split("|"))
    if "" in prefixes:
        raise AccessError(f"api key has an empty name prefix, which would allow every name: entry={number}")
    return prefixes


def check_exposure(access: Access, *, host: str, on_lambda: bool, allow_insecure: bool) -> None:
    """Checks that a server without keys listens only on loopback, or was explicitly allowed.

    Raises:
        AccessError: it does not; the message says what to set.
    """
    if access.restricted or allow_insecure or (is_loopback(host) and not on_lambda):
        return
    place = "on Lambda" if on_lambda else f"on {host}" if host else "(HEADRACE_HOST is not set to a loopback address)"
    raise AccessError(
        f"no api keys are set, so this server will not start {place}: "
        "set HEADRACE_API_KEYS (or HEADRACE_API_KEYS_SECRET), or HEADRACE_ALLOW_INSECURE_NO_AUTH=1"
    )


def parse_hosts(text: str, *, allow_insecure: bool) -> frozenset[str]:
    """Parses the hosts that a server without keys obeys beside loopback: names or addresses, separated by commas, or `*`.
    Without any, a server that was allowed to run without keys anywhere obeys everybody.

    Raises:
        AccessError: an entry is no host; it has a scheme or a port, perhaps.
    """
    hosts = frozenset(host for entry in text.split(",") if (host := entry.strip().lower()))
    for host in hosts - {ANY_HOST}:
        if host_of(f"[{host}]" if ":" in host else host) != host:
            raise AccessError(f"not a host name without scheme and port, nor *: {host}")
    return hosts or frozenset({ANY_HOST} if allow_insecure else ())


_log = logging.getLogger(__name__)


# How soon keys that could never be read are asked for again: until then every request waits for them in vain.
_FIRST_RETRY_MS = 1_000


class Keyring(Access):
    """Keys of a server that are read with the first request, and again from time to time. Not before: what a process
    reads while a snapshot of it is taken, it may not be allowed to read yet, and a new instance would find it old.

    Until they could be read once, nobody is served.

    Args:
        read: returns the configuration text; it may raise any error.
        check: raises AccessError for keys with which the server must not run.
        hosts: as for `Access`.
    """

    def __init__(
        self,
        read: Callable[[], str],
        clock: Clock,
        *,
        age_ms: int,
        check: Callable[[Access], None] = lambda _: None,
        hosts: Collection[str] = (),
    ) -> None:
        super().__init__({}, hosts)
        self._read = read
        self._check = check
        self._clock = clock
        self._age_ms = age_ms
        self._reading = threading.Lock()
        self._is_known = False
        # Wall clock: the monotonic one may stop while a process is frozen or kept as a snapshot.
        self._read_at_ms: int | None = None

    @property
    def restricted(self) -> bool:
        """Whether requests need a key; they do until it is known that there are none."""
        return not self._is_known or super().restricted

    @property
    def is_stale(self) -> bool:
        """Whether it is time to read the keys, or to read them again; also if the clock was set back."""
        if self._read_at_ms is None:
            return True
        age_ms = self._age_ms if self._is_known else _FIRST_RETRY_MS
        return not 0 <= self._clock.now_ms() - self._read_at_ms < age_ms

    def check_sender(self, host: str | None, origin: str | None) -> None:
        """Checks the headers as `Access` does, once it is known whether there are keys."""
        if self._is_known:
            super().check_sender(host, origin)

    def grant(self, authorization: str | None) -> Grant:
        """Returns what `Access` returns. Raises StoreError if the keys could not be read yet, besides Unauthorized."""
        if not self._is_known:
            raise StoreError("the API keys could not be read yet: repeat the request")
        return super().grant(authorization)

    def refresh(self) -> None:
        """Reads the keys, unless another thread is doing it; for the first keys it waits for that thread. If reading
        fails, the error is logged and the old keys stay. Blocks; never raises.
        """
        if not self._reading.acquire(blocking=not self._is_known):
            return
        try:
            if self.is_stale:  # another thread may just have read them
                self.grants = self._load()
                self._is_known = True
                self._read_at_ms = self._clock.now_ms()
        except AccessError as exc:
            _log.error("keys were not changed: the secret is malformed: %s", exc)
            self._read_at_ms = self._clock.now_ms()
        except Exception as exc:  # noqa: BLE001 - the store of secrets is away: later, then
            _log.warning("keys were not read again: error=%s", type(exc).__name__)
            self._read_at_ms = self._clock.now_ms()  # a store that is away is not asked at once
        finally:
            self._reading.release()

    def _load(self) -> dict[bytes, Grant]:
        access = parse(self._read())
        self._check(access)
        return access.grants
