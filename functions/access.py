"""API keys: what each allows, and how a running process learns of changed keys.

`headrace/access_keys.py` has the format of their list. Only SHA-256 digests of keys are kept. With a malformed entry a
process that is given the keys themselves does not start, and one that reads them from a secret serves nobody.

The secret with the configuration is read again from time to time, so that keys can be changed without a deployment. A
change takes effect when a process next reads the secret: at most `keys_age_ms` later, or with the first request after a
longer pause (such as a restored snapshot). If reading fails, the process keeps its keys: it never serves without keys
because of a typo.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from functions.hosts import check_sender, host_of, is_loopback
from functions.refusals import Forbidden, Unauthorized
from headrace.access_keys import ALL as ALL
from headrace.access_keys import AccessError as AccessError
from headrace.access_keys import Scope as Scope
from headrace.access_keys import parse_keys
from headrace.clock import Clock
from headrace.errors import StoreError

SCHEME = "bearer "
_BASIC = "basic "


@dataclass(frozen=True, slots=True)
class Grant:
    """What the key of one request allows: scopes, and `prefixes` of names (none means any name). `key_id` is what logs
    call the key; empty if no key is needed.
    """

    scopes: Scope = ALL
    prefixes: tuple[str, ...] = ()
    key_id: str = field(default="", compare=False)

    def require(self, scope: Scope, name: str | None = None) -> None:
        """Checks that the key has the scope, and allows `name` if one is given.

        Raises:
            Forbidden: it does not.
        """
        if scope not in self.scopes:
            assert scope.name is not None
            raise Forbidden(f"this key lacks the scope: {scope.name.lower()}")
        if name is not None and self.prefixes and not name.startswith(self.prefixes):
            raise Forbidden("this key may not touch this name")

    def within(self, prefix: str) -> list[str]:
        """Returns the prefixes to list, sorted, so that the result has those names with `prefix` that the key allows;
        empty if it allows none. No prefix includes another.
        """
        if not self.prefixes:
            return [prefix]
        seen: list[str] = []
        for own in sorted(self.prefixes):
            both = own if own.startswith(prefix) else prefix if prefix.startswith(own) else None
            if both is not None and not any(both.startswith(other) for other in seen):
                seen.append(both)
        return seen


class Refusal(NamedTuple):
    """Why a key that was presented before may not do something now: as the code and message of an error."""

    code: str
    message: str


ANY_HOST = "*"


class Access:
    """The keys of a server. Without any keys, everything is allowed to everybody on this machine.

    Args:
        grants: what each key allows, by the key's SHA-256 digest.
        hosts: the hosts that are obeyed beside loopback, in lower case; `ANY_HOST` stands for all.
    """

    def __init__(self, grants: dict[bytes, Grant], hosts: Collection[str] = ()) -> None:
        self.grants = grants
        self.hosts = frozenset(hosts)

    @property
    def restricted(self) -> bool:
        """Whether requests need a key."""
        return bool(self.grants)

    @property
    def is_stale(self) -> bool:
        """Whether the keys should be read again; never, since these keys don't change."""
        return False

    def refresh(self) -> None:
        """Reads the keys again if it is time; never, since these keys don't change."""

    def check_sender(self, host: str | None, origin: str | None) -> None:
        """Checks that a request with these headers may be obeyed; with keys, any may. Raises Forbidden if it may not."""
        if not self.grants and ANY_HOST not in self.hosts:
            check_sender(host, origin, self.hosts)

    def grant(self, authorization: str | None) -> Grant:
        """Returns what the key in the `Authorization` header allows; everything, whatever the header, if the server has
        no keys.

        The digest is always compared with the digest of every key, so that the time taken does not reveal which one
        matched.

        Raises:
            Unauthorized: the header is missing or malformed, has another scheme, or has an unknown key.
        """
        if not self.grants:
            return Grant()
        presented = hashlib.sha256(_key_in(authorization or "").encode()).digest()
        found: Grant | None = None
        for digest, grant in self.grants.items():
            if hmac.compare_digest(digest, presented):
                found = grant
        if found is None:
            raise Unauthorized
        return found

    def grant_of(self, key_id: str) -> Grant:
        """Returns what the key with this id allows now, which was presented before; everything if the server has no keys.

        Raises:
            Unauthorized: there is no such key any more, or two have the id.
        """
        if not self.grants:
            return Grant()
        found = [grant for grant in self.grants.values() if grant.key_id == key_id]
        if len(found) != 1:
            raise Unauthorized
        return found[0]

    def refusal(self, key_id: str, require: Callable[[Grant], None]) -> Refusal | None:
        """Returns why the key with this id, which was presented before, may not do now what `require` checks; None if it
        may. Reads the keys again if it is time: may block.

        Raises:
            StoreError: the keys could not be read yet.
        """
        self.refresh()
        try:
            require(self.grant_of(key_id))
        except Unauthorized:
            return Refusal("unauthorized", "the key was revoked")
        except Forbidden as exc:
            return Refusal("forbidden", str(exc))
        return None


def _key_in(authorization: str) -> str:
    """Returns the key in a header: the token of `Bearer`, or the password of `Basic`, which is what clients make of
    `https://any:KEY@host`; the user name, if there is no password. Raises Unauthorized if there is none.
    """
    if authorization[: len(SCHEME)].lower() == SCHEME:
        return authorization[len(SCHEME) :]
    if authorization[: len(_BASIC)].lower() != _BASIC:
        raise Unauthorized
    encoded = authorization[len(_BASIC) :].strip()
    try:
        user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:  # not base64, or not UTF-8
        raise Unauthorized from None
    return password or user


def parse(text: str, hosts: Collection[str] = ()) -> Access:
    """Parses a list of keys (`headrace.access_keys`). A text without entries gives an `Access` that allows everything to
    whom it obeys: loopback and `hosts`.

    Raises:
        AccessError: an entry is malformed, or a key is listed twice. The message has the number of the entry, never its
            key.
    """
    return Access({key.digest: Grant(key.scopes, key.prefixes, key.id) for key in parse_keys(text)}, hosts)


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
        self._check_known()
        return super().grant(authorization)

    def grant_of(self, key_id: str) -> Grant:
        """Returns what `Access` returns. Raises StoreError if the keys could not be read yet, besides Unauthorized."""
        self._check_known()
        return super().grant_of(key_id)

    def _check_known(self) -> None:
        if not self._is_known:
            raise StoreError("the API keys could not be read yet: repeat the request")

    def refresh(self) -> None:
        """Reads the keys if it is time, unless another thread is doing it; for the first keys it waits for that thread. If
        reading fails, the error is logged and the old keys stay. May block; never raises.
        """
        if not self.is_stale or not self._reading.acquire(blocking=not self._is_known):
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
