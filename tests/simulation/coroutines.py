"""Coroutines for blocking code: each has a thread, and exactly one of them runs.

A baton says which. Nothing else may decide anything, so a run does not depend on the machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Coroutine:
    """Code that stands still until the baton comes to it. Without a body: the code that makes it, now."""

    def __init__(self, body: Callable[[], Coroutine] | None = None) -> None:
        """`body` returns who gets the baton at its end."""
        self._baton = threading.Lock()
        self._baton.acquire()
        if body is not None:
            threading.Thread(target=self._run, args=(body,), daemon=True).start()

    def _run(self, body: Callable[[], Coroutine]) -> None:
        self._baton.acquire()
        body()._baton.release()

    def hand_to(self, other: Coroutine) -> None:
        """Lets `other` run; returns when the baton comes back."""
        if other is not self:
            other._baton.release()
            self._baton.acquire()
