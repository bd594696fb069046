"""Wakes the readers of this process that wait on a log. A hint: they poll as well, for other processes' writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.log.seam import Which, split


class Wakeups:
    """Callbacks by log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[tuple[str, str], list[Callable[[], None]]] = {}

    @contextmanager
    def listen(self, which: Which, callback: Callable[[], None]) -> Iterator[None]:
        """Calls `callback`, from any thread, after each change of a log by this process."""
        key = split(which)
        with self._lock:
            self._listeners.setdefault(key, []).append(callback)
        try:
            yield
        finally:
            with self._lock:
                listeners = self._listeners[key]
                listeners.remove(callback)
                if not listeners:
                    del self._listeners[key]

    def notify(self, which: Which) -> None:
        """Wakes all that listen to a log."""
        with self._lock:
            listeners = list(self._listeners.get(split(which), ()))
        for callback in listeners:
            callback()
