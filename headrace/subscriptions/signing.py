"""The keys that sign webhooks, as receivers see them: header `Webhook-Signature`, key ids, and the public keys (JWKS).

A deployment has a secret text with its keys, the oldest first: `secret[@first use],…`, times in Unix seconds. The first
secret is generated when the deployment is made. `rotated` adds one whose first use is far enough away that no receiver
meets its signature before it could fetch the key; the key before it stays public until its last signature is too old to
be accepted.

NaCl is imported where a key is made, so that processes that sign nothing don't load it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.clock import Clock
from headrace.errors import StoreError

if TYPE_CHECKING:
    from nacl.signing import SigningKey

HEADER = "Webhook-Signature"
JWKS_AGE_S = 300
"""How long receivers may cache the public keys. A key is public so long before its first use."""
REPLAY_S = 300
"""How long a signature may be accepted. A key stays public so long after its last use."""

_log = logging.getLogger(__name__)
# Keys are derived for this purpose, in case one secret is used for another, too.
_PURPOSE = b"headrace webhook signature\n"
_ENTRY = re.compile(r"([A-Za-z0-9_-]{32,128})(?:@(\d{1,12}))?", re.ASCII)


class BadSigningKeys(ValueError):
    """The secret's text is no list of signing keys. The message holds nothing of it."""


class RotationUnderWay(ValueError):
    """The newest key was not used yet. `first_use_s` says when it will be, in Unix seconds."""

    def __init__(self, first_use_s: int) -> None:
        super().__init__(f"the newest signing key is not used before {first_use_s}")
        self.first_use_s = first_use_s


@dataclass(frozen=True)
class Key:
    """One key: its secret, and when it is first used, in Unix seconds."""

    secret: str
    first_use_s: int

    @cached_property
    def _private(self) -> SigningKey:
        from nacl.signing import SigningKey

        return SigningKey(hashlib.sha256(_PURPOSE + self.secret.encode()).digest())

    @cached_property
    def kid(self) -> str:
        """The id: `ds_` and the thumbprint of the public key (RFC 7638)."""
        members = {"crv": "Ed25519", "kty": "OKP", "x": self._x}
        canonical = json.dumps(members, separators=(",", ":"), sort_keys=True)
        return "ds_" + _text(hashlib.sha256(canonical.encode()).digest())

    @cached_property
    def _x(self) -> str:
        return _text(self._private.verify_key.encode())

    def jwk(self) -> dict[str, str]:
        """Returns the public key as a JSON Web Key (RFC 8037)."""
        return {"kty": "OKP", "crv": "Ed25519", "kid": self.kid, "use": "sig", "alg": "EdDSA", "x": self._x}

    def sign(self, message: bytes) -> str:
        """Returns the Ed25519 signature, in base64url without padding."""
        return _text(self._private.sign(message).signature)


@dataclass(frozen=True)
class SigningKeys:
    """The keys of a deployment, in the order of their first use; the first one has always been in use."""

    keys: tuple[Key, ...]

    @staticmethod
    def parse(text: str) -> SigningKeys:
        """Reads the secret's text. Raises BadSigningKeys if it is no list of keys, or out of order."""
        found = [_ENTRY.fullmatch(entry.strip()) for entry in text.split(",")]
        keys = [Key(entry[1], int(entry[2] or 0)) for entry in found if entry]
        times = [key.first_use_s for key in keys]
        if len(keys) < len(found) or times != sorted(set(times)) or len({key.secret for key in keys}) < len(keys):
            raise BadSigningKeys(
                "signing keys are a list secret[@first use], the first uses in ascending order; "
                "a secret has 32 to 128 letters, digits, - or _"
            )
        return SigningKeys(tuple(keys))

    def format(self) -> str:
        """Returns the secret's text."""
        return ",".join(f"{key.secret}@{key.first_use_s}" if key.first_use_s else key.secret for key in self.keys)

    def current(self, now_s: int) -> Key:
        """Returns the key that signs now."""
        used = [key for key in self.keys if key.first_use_s <= now_s]
        return used[-1] if used else self.keys[0]

    def public(self, now_s: int) -> list[Key]:
        """Returns the keys that receivers may meet: those in use, coming, or in use until a while ago."""
        ends = [key.first_use_s + REPLAY_S for key in self.keys[1:]]
        return [key for key, end in zip(self.keys, [*ends, None], strict=True) if end is None or now_s < end]

    def jwks(self, now_s: int) -> dict[str, Any]:
        """Returns the public keys as a JSON Web Key Set."""
        return {"keys": [key.jwk() for key in self.public(now_s)]}

    def sign(self, body: bytes, now_s: int) -> str:
        """Returns the header `Webhook-Signature` for a body that is sent now."""
        key = self.current(now_s)
        return f"t={now_s},kid={key.kid},ed25519={key.sign(b'%d.' % now_s + body)}"

    def rotated(self, secret: str, now_s: int, *, cached_s: int) -> SigningKeys:
        """Returns the keys with a new one, and without those that no receiver needs any more.

        Args:
            secret: of the new key.
            cached_s: how long a process may work with the keys that it read before.
        Raises:
            RotationUnderWay: the newest key was not used yet.
            BadSigningKeys: the new secret is none, or an old one.
        """
        newest = self.keys[-1]
        if newest.first_use_s > now_s:
            raise RotationUnderWay(newest.first_use_s)
        kept = [*self.public(now_s), Key(secret, now_s + cached_s + JWKS_AGE_S)]
        return SigningKeys.parse(SigningKeys(tuple(kept)).format())


class SigningKeyring:
    """The signing keys that a process reads with their first use, and again from time to time. Thread-safe.

    Args:
        read: returns the secret's text; it may raise any error.
        age_ms: how long keys are used before they are read again.
    """

    def __init__(self, read: Callable[[], str], clock: Clock, *, age_ms: int) -> None:
        self._read = read
        self._clock = clock
        self._age_ms = age_ms
        self._lock = threading.Lock()
        self._known: SigningKeys | None = None
        # Wall clock: the monotonic one may stop while a process is frozen or kept as a snapshot.
        self._read_at_ms = 0

    def keys(self) -> SigningKeys:
        """Returns the keys. If they can't be read again, the error is logged and those from before stay.

        Raises:
            StoreError: they could never be read.
        """
        with self._lock:
            now_ms = self._clock.now_ms()
            if self._known is None or not 0 <= now_ms - self._read_at_ms < self._age_ms:
                try:
                    self._known = SigningKeys.parse(self._read())
                except Exception as exc:
                    _log.error("signing keys were not read: error=%s", type(exc).__name__)
                    if self._known is None:
                        raise StoreError("the signing keys could not be read: repeat the request") from exc
                self._read_at_ms = now_ms
            return self._known


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
