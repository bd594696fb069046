"""Access keys as an operator writes them: a comma-separated list of `key[:scopes[:prefixes]]`.

Scopes are joined by `+` (none: all), name prefixes by `|` (none: any name). Nothing here keeps a key itself but the text of
its entry, which no message and no `repr` shows.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field


class Scope(enum.Flag):
    """The permissions that a key can have."""

    READ = enum.auto()
    WRITE = enum.auto()
    DELETE = enum.auto()
    ADMIN = enum.auto()


ALL = Scope.READ | Scope.WRITE | Scope.DELETE | Scope.ADMIN

# Of the key's SHA-256 digest: enough to tell keys apart, and too few to find one by.
KEY_ID_DIGITS = 8

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


class AccessError(ValueError):
    """The configuration of keys or hosts is malformed, or would leave a public server open. The message never contains a
    key.
    """


@dataclass(frozen=True, slots=True)
class AccessKey:
    """One entry of the list.

    Attributes:
        text: the entry itself, with the key in it.
        digest: the SHA-256 digest of the key.
        prefixes: of names that the key allows; none means any name.
    """

    text: str = field(repr=False)
    digest: bytes
    scopes: Scope
    prefixes: tuple[str, ...]

    @property
    def id(self) -> str:
        """What logs and operators call the key."""
        return self.digest.hex()[:KEY_ID_DIGITS]


def parse_keys(text: str) -> list[AccessKey]:
    """Parses a list of keys; a text without entries has none.

    Raises:
        AccessError: an entry is malformed, or a key is listed twice. The message has the number of the entry, never its
            key.
    """
    keys: dict[bytes, AccessKey] = {}
    for number, entry in enumerate(map(str.strip, text.split(",")), start=1):
        if not entry:
            continue
        key, _, rest = entry.partition(":")
        scopes, _, prefixes = rest.partition(":")
        if not key:
            raise AccessError(f"api key is empty: entry={number}")
        digest = _digest(key, number)
        if digest in keys:
            raise AccessError(f"api key is listed twice: entry={number}")
        keys[digest] = AccessKey(entry, digest, _scopes(scopes, number), _prefixes(prefixes, number))
    return list(keys.values())


def format_keys(keys: Iterable[AccessKey]) -> str:
    """Returns the list with these entries, each as it was written."""
    return ",".join(key.text for key in keys)


def make_entry(key: str, scopes: Scope, prefixes: Iterable[str]) -> AccessKey:
    """Returns the entry for a key.

    Raises:
        AccessError: the list can't express it: a prefix is empty, contains `,` or `|`, or ends with white space.
    """
    wanted = tuple(prefixes)
    parts = [key, "" if scopes == ALL else "+".join(scope_names(scopes)), "|".join(wanted)]
    while not parts[-1] and not wanted:
        parts.pop()
    parsed = parse_keys(":".join(parts))
    if len(parsed) != 1 or (parsed[0].scopes, parsed[0].prefixes) != (scopes, wanted):
        raise AccessError("a name prefix can't be empty, contain , or |, or end with white space")
    return parsed[0]


def scope_names(scopes: Scope) -> list[str]:
    """Returns the names of single scopes, as in a list of keys."""
    return [scope.name.lower() for scope in Scope if scope in scopes and scope.name]


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
