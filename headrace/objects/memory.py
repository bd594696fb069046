"""The object store in memory: a dictionary behind a lock."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

from headrace.objects import ObjectMissing, Range


class MemoryObjects:
    """The port `headrace.objects.Objects` in memory. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, bytes] = {}

    def get(self, key: str) -> bytes:
        """Returns the whole object. Raises ObjectMissing if there is none under this key."""
        with self._lock:
            try:
                return self._objects[key]
            except KeyError:
                raise ObjectMissing(key) from None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Returns `length` bytes from `start` on; fewer, or none, at the end of the object. Raises ObjectMissing if it does
        not exist. Raises ValueError for a negative start or a length below 1.
        """
        if start < 0 or length < 1:
            raise ValueError(f"no such range: start={start} length={length}")
        return self.get(key)[start : start + length]

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Returns the bytes of each range, as `get_range` does."""
        return [self.get_range(*one) for one in ranges]

    def put(self, key: str, data: bytes) -> None:
        """Writes the object; replaces one that is already under this key."""
        with self._lock:
            self._objects[key] = bytes(data)

    def create(self, key: str, data: bytes) -> bool:
        """Writes the object if the key is free; returns whether it was."""
        with self._lock:
            if key in self._objects:
                return False
            self._objects[key] = bytes(data)
            return True

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yields the current keys that begin with `prefix` and come after `after`, in byte order."""
        with self._lock:
            found = [key for key in self._objects if key.startswith(prefix) and key > after]
        return iter(sorted(found, key=str.encode))

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects; missing ones are no error."""
        chosen = tuple(keys)  # before the lock: the iterable may itself list this store
        with self._lock:
            for key in chosen:
                self._objects.pop(key, None)
