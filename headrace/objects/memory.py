"""The object store in memory: one dictionary behind one lock."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

from headrace.objects import ObjectMissing, Range


class MemoryObjects:
    """Objects of this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, bytes] = {}

    def get(self, key: str) -> bytes:
        """Returns the whole object. Raises `ObjectMissing`."""
        with self._lock:
            try:
                return self._objects[key]
            except KeyError:
                raise ObjectMissing(key) from None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes from `start`, fewer at the end of the object."""
        if start < 0 or length < 1:
            raise ValueError(f"no such range: start={start} length={length}")
        return self.get(key)[start : start + length]

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Returns each as `get_range` gives it."""
        return [self.get_range(*one) for one in ranges]

    def put(self, key: str, data: bytes) -> None:
        """Writes the object."""
        with self._lock:
            self._objects[key] = bytes(data)

    def create(self, key: str, data: bytes) -> bool:
        """Writes the object if the key is free."""
        with self._lock:
            if key in self._objects:
                return False
            self._objects[key] = bytes(data)
            return True

    def list(self, prefix: str) -> Iterator[str]:
        """Keys as they are now, in byte order."""
        with self._lock:
            found = [key for key in self._objects if key.startswith(prefix)]
        return iter(sorted(found, key=str.encode))

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects; missing ones are no error."""
        doomed = tuple(keys)  # before the lock: the iterable may itself list this store
        with self._lock:
            for key in doomed:
                self._objects.pop(key, None)
