"""The bucket of the benchmark: a folder. The loader and the job write into it; readers reach it over HTTP."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from headrace.objects import ObjectMissing, Range


class DirectoryObjects:
    """An `Objects` port over a folder. Objects appear whole: they are written beside their place and linked into it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def get(self, key: str) -> bytes:
        """Returns the whole object. Raises `ObjectMissing`."""
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            raise ObjectMissing(key) from None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes from `start`, fewer at the end of the object."""
        try:
            with self._path(key).open("rb") as file:
                return os.pread(file.fileno(), length, start)
        except FileNotFoundError:
            raise ObjectMissing(key) from None

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Returns the bytes of each range, as `get_range` does."""
        return [self.get_range(*one) for one in ranges]

    def put(self, key: str, data: bytes) -> None:
        """Writes the object."""
        self._written(key, data).replace(self._path(key))

    def create(self, key: str, data: bytes) -> bool:
        """Writes the object if the key is free."""
        beside = self._written(key, data)
        try:
            self._path(key).hardlink_to(beside)
        except FileExistsError:
            return False
        finally:
            beside.unlink()
        return True

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Keys as they are now, in byte order."""
        found = (path.relative_to(self._root).as_posix() for path in self._root.rglob("*") if path.is_file())
        return iter(sorted((key for key in found if key.startswith(prefix) and key > after), key=str.encode))

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects; missing ones are no error."""
        for key in keys:
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._root / key

    def _written(self, key: str, data: bytes) -> Path:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.parent / f".{uuid.uuid4().hex}"
        beside.write_bytes(data)
        return beside
