"""Wakes the readers of this process that wait on a name. A hint: they poll as well, for other processes' writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Wakeups:
    """Callbacks by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str, list[Callable[[], None]]] = {}

    @contextmanager
    def listen(self, name: str, callback: Callable[[], None]) -> Iterator[None]:
        """Calls `callback`, from any thread, after each change of `name` by this process."""
        with self._lock:
            self._listeners.setdefault(name, []).append(callback)
        try:
            yield
        finally:
            with self._lock:
                listeners = self._listeners[name]
                listeners.remove(callback)
                if not listeners:
                    del self._listeners[name]

    def notify(self, name: str) -> None:
        """Wakes everybody who listens to `name`."""
        with self._lock:
            listeners = list(self._listeners.get(name, ()))
        for callback in listeners:
            callback()
