"""What keys allow: scopes, and prefixes of names. A server without keys obeys this machine alone."""

from __future__ import annotations

import enum
import hashlib
import hmac
from collections.abc import Collection
from dataclasses import dataclass, field

from starlette.requests import Request

from functions.api.door.errors import Forbidden, Unauthorized
from functions.api.door.requests import is_foreign

SCHEME = "bearer "
GRANT = "headrace.grant"  # where the scope of a request keeps what its key allows


class Scope(enum.Flag):
    """The permissions that a key can have."""

    READ = enum.auto()
    WRITE = enum.auto()
    DELETE = enum.auto()
    ADMIN = enum.auto()


ALL = Scope.READ | Scope.WRITE | Scope.DELETE | Scope.ADMIN


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


ANY_HOST = "*"


class Access:
    """The keys of a server. Without any keys, everything is allowed to everybody on this machine.

    Without keys, the address is all that tells a program of this machine from a web page that its browser shows. So only
    loopback is obeyed, and the hosts that were allowed: as `Host`, or a page whose name was made to lead here could
    write (DNS rebinding); and as `Origin`, or any page could (a browser sends a form without asking).

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
        """Does nothing, since these keys don't change."""

    def check_sender(self, host: str | None, origin: str | None) -> None:
        """Checks that a request with these headers may be obeyed by a server without keys. A missing header is right: a
        browser always sends `Host`, and `Origin` with all that a page of another site writes or may read.

        Raises:
            Forbidden: the server has no keys, and one of them is neither loopback nor allowed.
        """
        if self.grants or ANY_HOST in self.hosts:
            return
        foreign = is_foreign(host, origin, self.hosts)
        if foreign:
            raise Forbidden(
                f"a server without API keys obeys loopback only: {foreign}; to obey others, too, set "
                "HEADRACE_ALLOWED_HOSTS (headrace dev: --allow-host)"
            )

    def grant(self, authorization: str | None) -> Grant:
        """Returns what the key in the `Authorization` header allows; everything, whatever the header, if the server has
        no keys.

        The digest is always compared with the digest of every key, so that the time taken does not reveal which one
        matched.

        Raises:
            Unauthorized: the header is missing, has another scheme, or has an unknown key.
        """
        if not self.grants:
            return Grant()
        if authorization is None or authorization[: len(SCHEME)].lower() != SCHEME:
            raise Unauthorized
        presented = hashlib.sha256(authorization[len(SCHEME) :].encode()).digest()
        found: Grant | None = None
        for digest, grant in self.grants.items():
            if hmac.compare_digest(digest, presented):
                found = grant
        if found is None:
            raise Unauthorized
        return found


def grant_of(request: Request) -> Grant:
    """Returns the grant that the door stored with a request: what its key allows."""
    grant: Grant = request.scope[GRANT]
    return grant
