"""A bucket that is a directory, so that the workers of a job and the test see the same objects."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from headrace.objects import ObjectMissing, Objects, Range


class DirectoryObjects:
    """Objects are files whose names are quoted keys."""

    def __init__(self, path: str) -> None:
        """Stores in an existing directory."""
        self._path = Path(path)

    def _file(self, key: str) -> Path:
        return self._path / quote(key, safe="")

    def get(self, key: str) -> bytes:
        try:
            return self._file(key).read_bytes()
        except FileNotFoundError:
            raise ObjectMissing(key) from None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if start < 0 or length < 1:
            raise ValueError(f"no such range: start={start} length={length}")
        return self.get(key)[start : start + length]

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        return [self.get_range(*one) for one in ranges]

    def put(self, key: str, data: bytes) -> None:
        whole = self._path / f".{os.urandom(8).hex()}"
        whole.write_bytes(data)
        whole.replace(self._file(key))

    def create(self, key: str, data: bytes) -> bool:
        whole = self._path / f".{os.urandom(8).hex()}"
        whole.write_bytes(data)
        try:
            os.link(whole, self._file(key))
        except FileExistsError:
            return False
        finally:
            whole.unlink()
        return True

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        found = (unquote(one.name) for one in self._path.iterdir() if not one.name.startswith("."))
        return iter(sorted((key for key in found if key.startswith(prefix) and key > after), key=str.encode))

    def delete(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            self._file(key).unlink(missing_ok=True)


@dataclass(frozen=True)
class DirectoryDoor:
    """The way to a directory."""

    path: str

    def open(self) -> Objects:
        return DirectoryObjects(self.path)
