"""Keys that change while a process serves: the secret is read again once in a while, so a rotation needs no deploy.

A key that was added works, and one that was removed is refused, when a process has next read the secret: at most
`keys_age_ms` after the change, or with the first request after a longer pause (a snapshot that is restored has had one).
Whatever goes wrong with the reading, a process keeps the keys that it has: it never serves without keys because of a typo.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from functions.api.door.access import Access, AccessError, Grant, parse
from headrace.clock import Clock

_log = logging.getLogger(__name__)


class Keyring:
    """The keys of a server, as they were when they were read last. Usable wherever `Access` is.

    Args:
        read: gives the configuration text; it may raise anything.
        check: refuses keys that must not be served with (AccessError).

    Raises:
        AccessError: the first text is malformed or refused. Whatever the first reading raises.
    """

    def __init__(
        self, read: Callable[[], str], clock: Clock, *, age_ms: int, check: Callable[[Access], None] = lambda _: None
    ) -> None:
        self._read = read
        self._check = check
        self._clock = clock
        self._age_ms = age_ms
        self._reading = threading.Lock()
        self._access = self._load()
        # Wall clock: the monotonic one may stand still while a process is frozen or kept as a snapshot.
        self._read_at_ms = clock.now_ms()

    @property
    def restricted(self) -> bool:
        """Keys are demanded."""
        return self._access.restricted

    def grant(self, authorization: str | None) -> Grant:
        """As of `Access`."""
        return self._access.grant(authorization)

    @property
    def is_stale(self) -> bool:
        """It is time to read the keys again. So it is when the clock was set back."""
        return not 0 <= self._clock.now_ms() - self._read_at_ms < self._age_ms

    def refresh(self) -> None:
        """Reads the keys again, unless another thread does. Blocks; never raises."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            self._access = self._load()
        except AccessError as exc:
            _log.error("keys were not changed: the secret is malformed: %s", exc)
        except Exception as exc:  # noqa: BLE001 - the store of secrets is away: later, then
            _log.warning("keys were not read again: error=%s", type(exc).__name__)
        finally:
            self._read_at_ms = self._clock.now_ms()  # also after a failure: a store that is away is not asked at once
            self._reading.release()

    def _load(self) -> Access:
        access = parse(self._read())
        self._check(access)
        return access


Keys = Access | Keyring
