"""The bucket of a single machine: a file for each object, in folders as the keys say.

An object is written under another name, synced to the disk, and then gets its own name, which one caller at most can give
it. Only the newest version of an object exists: unlike a bucket on AWS this folder keeps no deleted and no replaced ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote
from uuid import uuid4

from headrace.clock import check_deadline
from headrace.errors import StoreTimeout
from headrace.objects import ObjectMissing, Range

_SAFE = "/!'()*+,:;=@$&[]{} "  # beside letters, digits and _.-~; never %, which begins what is not safe
_END = "%"  # of the name of a folder, so that `a` and `a/b` can be keys at the same time


class FileObjects:
    """The port `headrace.objects.Objects` on a folder. Thread-safe, and safe for several processes.

    Args:
        created: told the key of each object when it is on the disk.
    """

    def __init__(self, folder: Path, created: Callable[[str], None] = lambda _: None) -> None:
        self._root = folder / "objects"
        self._scratch = folder / "unnamed"
        self._created = created
        for path in (self._root, self._scratch):
            path.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> bytes:
        """Returns the whole object. Raises ObjectMissing if there is none under this key."""
        with _translated(key):
            return self.path(key).read_bytes()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Returns `length` bytes from `start` on; fewer, or none, at the end of the object. Raises ObjectMissing if it does
        not exist. Raises ValueError for a negative start or a length below 1.
        """
        if start < 0 or length < 1:
            raise ValueError(f"no such range: start={start} length={length}")
        with _translated(key), self.path(key).open("rb", buffering=0) as file:
            return os.pread(file.fileno(), length, start)

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Returns the bytes of each range, as `get_range` does."""
        return [self.get_range(*one) for one in ranges]

    def put(self, key: str, data: bytes) -> None:
        """Writes the object; replaces one that is already under this key."""
        self._write(key, data, lambda scratch, path: scratch.replace(path))

    def create(self, key: str, data: bytes) -> bool:
        """Writes the object if the key is free; returns whether it was."""
        try:
            self._write(key, data, lambda scratch, path: path.hardlink_to(scratch))
        except FileExistsError:
            return False
        return True

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yields the keys that begin with `prefix` and come after `after`, in byte order."""
        check_deadline()
        folder = prefix.rpartition("/")[0]
        yield from self._walk(f"{folder}/" if folder else "", prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects; missing ones are no error."""
        folders = set()
        for key in keys:
            path = self.path(key)
            with _translated(key), suppress(FileNotFoundError):
                path.unlink()
                folders.add(path.parent)
        for folder in folders:
            with suppress(FileNotFoundError):
                _sync(folder)
            with suppress(OSError):  # it is not empty, or another process has removed it
                while folder != self._root:
                    folder.rmdir()
                    folder = folder.parent

    def forget_unnamed(self) -> None:
        """Removes what processes left that were killed while they wrote. Only for the one server of the folder, before it
        starts its processes: a command that writes at that moment fails.
        """
        for path in self._scratch.iterdir():
            path.unlink(missing_ok=True)

    def path(self, key: str) -> Path:
        """Returns the path of an object. Raises ValueError for a key that no path can stand for."""
        *folders, name = quote(key, safe=_SAFE).split("/")
        if not name or "" in folders or name in (".", ".."):
            raise ValueError(f"not a key of a file: {key!r}")
        return self._root.joinpath(*(folder + _END for folder in folders), name)

    def _walk(self, above: str, prefix: str, after: str) -> Iterator[str]:
        """Yields keys below a folder, whose own key is `above`."""
        path = self._root.joinpath(*(quote(part, safe=_SAFE) + _END for part in above.split("/")[:-1]))
        try:
            names = [entry.name for entry in os.scandir(path)]
        except FileNotFoundError:
            return
        keys = [above + unquote(name.removesuffix(_END)) + ("/" if name.endswith(_END) else "") for name in names]
        for key in sorted(keys, key=str.encode):
            if not key.startswith(prefix) and not prefix.startswith(key):
                continue
            if not key.endswith("/"):
                if key.startswith(prefix) and key > after:
                    yield key
            elif key > after or after.startswith(key):
                yield from self._walk(key, prefix, after)

    def _write(self, key: str, data: bytes, name: Callable[[Path, Path], object]) -> None:
        """Writes an object under no name, and then names it. Raises FileExistsError if `name` does."""
        path = self.path(key)
        scratch = self._scratch / uuid4().hex
        with _translated(key):
            with scratch.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                while True:
                    self._make(path.parent)
                    # A folder that has just become empty may vanish under it.
                    with suppress(FileNotFoundError):
                        name(scratch, path)
                        break
            finally:
                scratch.unlink(missing_ok=True)
                with suppress(FileNotFoundError):
                    _sync(path.parent)  # also what another one has named: it is believed from now on
        self._created(key)

    def _make(self, folder: Path) -> None:
        """Makes a folder, and those above it, and syncs the names of new ones."""
        if folder.exists():
            return
        self._make(folder.parent)
        with suppress(FileNotFoundError):
            folder.mkdir(exist_ok=True)
            _sync(folder.parent)


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Converts errors of the disk to those of the port; raises DeadlineExceeded before the block if the request's time is
    over.
    """
    check_deadline()
    try:
        yield
    except (FileExistsError, ObjectMissing):
        raise
    except FileNotFoundError:
        raise ObjectMissing(key) from None
    except OSError as exc:
        raise StoreTimeout(f"the disk fails: object={key} reason={exc}") from exc
