"""The port through which webhooks leave, and what a receiver's answer means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

ATTEMPT_MS = 10_000
"""How long one delivery may take, from resolving the host to the end of the answer."""


class Delivered(msgspec.Struct, frozen=True):
    """What became of one delivery.

    Attributes:
        status: of the receiver's answer; 0 if there was none, or not a whole one.
        done: whether the answer was JSON whose member `done` is exactly true.
        error: why there is no answer: a short text for logs, without the URL; empty if there is one.
    """

    status: int
    done: bool = False
    error: str = ""

    @property
    def is_accepted(self) -> bool:
        """Whether the receiver took the wake, done or not; else the delivery must be repeated."""
        return 200 <= self.status < 300


class Deliver(Protocol):
    """Posts webhooks, one attempt each. Never raises for what a receiver, or the way to it, does."""

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Delivered:
        """Posts `body` to `url` and waits for the answer, at most `ATTEMPT_MS` and what it takes to ask for it."""
