"""When a request is sent again, and how long to wait before that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class RetryPolicy:
    """Up to `tries` sends. Waits double from `first_wait_s` to `longest_wait_s`; jitter takes up to half off.

    A server's Retry-After is honoured up to `longest_retry_after_s`; for a longer one the wait is that.
    """

    tries: int = 10
    tries_after_500: int = 4
    """Fewer: an internal error is more often there to stay than a busy server."""
    first_wait_s: float = 0.1
    longest_wait_s: float = 5.0
    longest_retry_after_s: float = 60.0

    def gives_up(self, failures: int, status: int) -> bool:
        """Whether to stop after `failures` failed sends, the last of which was answered with `status`."""
        tries = min(self.tries, self.tries_after_500) if status == 500 else self.tries
        return status not in RETRYABLE_STATUSES or failures >= tries

    def wait_s(self, failures: int, retry_after_s: float | None, random: Callable[[], float]) -> float:
        """Seconds to wait after `failures` (1 or more) failed sends; `random` gives [0, 1)."""
        full = min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(failures - 1, 30))
        wait = full * (0.5 + 0.5 * random())
        if retry_after_s is not None:
            return max(wait, min(retry_after_s, self.longest_retry_after_s))
        return wait


def retry_after_s(value: str | None, now_s: float) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or an HTTP date; None if it says neither."""
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
