"""The bucket of a single machine: a file for each object, in folders as the keys say.

An object is written under another name, synced to the disk, and then gets its own name, which one caller at most can give
it. Only the newest version of an object exists: unlike a bucket on AWS this folder keeps no deleted and no replaced ones.

A name that is not on the disk yet can be seen already. `create` keeps the other name until its own is synced, so a file
with two names tells a reader to sync before it believes: else it could remove entries because of a manifest that is lost
with the power.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from urllib.parse import quote, unquote

from headrace.clock import check_deadline
from headrace.errors import StoreThrottled, StoreTimeout
from headrace.objects import ObjectMissing, Range
from local.machine import files

_SAFE = "/!'()*+,:;=@$&[]{} "  # beside letters, digits and _.-~; never %, which begins what is not safe
_END = "%"  # of the name of a folder, so that `a` and `a/b` can be keys at the same time
_REMEMBERED = 10_000  # folders


class FileObjects:
    """The port `headrace.objects.Objects` on a folder. Thread-safe, and safe for several processes.

    Args:
        created: told the key of each object when it is on the disk.
    """

    def __init__(self, folder: Path, created: Callable[[str], None] = lambda _: None) -> None:
        self._folder = folder
        self._root = folder / "objects"
        self._created = created
        self._synced = set[Path]()  # folders whose names this process has synced
        files.make_folder(self._root)
        files.make_unnamed(folder)

    def get(self, key: str) -> bytes:
        """Returns the whole object. Raises ObjectMissing if there is none under this key."""
        check_deadline()
        with _translated(key), self._opened(key) as file:
            return file.readall()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Returns `length` bytes from `start` on; fewer, or none, at the end of the object. Raises ObjectMissing if it does
        not exist. Raises ValueError for a negative start or a length below 1.
        """
        if start < 0 or length < 1:
            raise ValueError(f"no such range: start={start} length={length}")
        check_deadline()
        with _translated(key), self._opened(key) as file:
            return os.pread(file.fileno(), length, start)

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Returns the bytes of each range, as `get_range` does."""
        return [self.get_range(*one) for one in ranges]

    def put(self, key: str, data: bytes) -> None:
        """Writes the object; replaces one that is already under this key."""
        self._write(key, data, lambda unnamed, path: unnamed.replace(path))

    def create(self, key: str, data: bytes) -> bool:
        """Writes the object if the key is free; returns whether it was."""
        return self._write(key, data, lambda unnamed, path: path.hardlink_to(unnamed))

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yields the keys that begin with `prefix` and come after `after`, in byte order."""
        check_deadline()
        folder = prefix.rpartition("/")[0]
        yield from self._walk(f"{folder}/" if folder else "", prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects; missing ones are no error."""
        check_deadline()
        folders = set()
        for key in keys:
            path = self.path(key)
            with _translated(key), suppress(FileNotFoundError):
                path.unlink()
                folders.add(path.parent)
        for folder in folders:
            with _translated(folder.name), suppress(FileNotFoundError):
                files.sync(folder)
            with suppress(OSError):  # it is not empty, or another process has removed it
                while folder != self._root:
                    folder.rmdir()
                    folder = folder.parent

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

    def _opened(self, key: str) -> FileIO:
        """Opens an object, and syncs its name unless its writer has done so."""
        path = self.path(key)
        file = FileIO(path)
        if os.fstat(file.fileno()).st_nlink > 1:
            files.sync(path.parent)
        return file

    def _write(self, key: str, data: bytes, name: Callable[[Path, Path], object]) -> bool:
        """Writes an object under no name, and then names it; returns whether the name was free.

        Raises:
            StoreThrottled: the disk is full; nothing was written.
        """
        check_deadline()
        path = self.path(key)
        is_new = True
        with _translated(key, full=StoreThrottled), files.unnamed(self._folder, data) as unnamed:
            try:
                self._name(unnamed, path, name)
            except FileExistsError:
                is_new = False
            with _translated(key), suppress(FileNotFoundError):
                files.sync(path.parent)  # also what another one has named: it is believed from now on
        if is_new:
            self._created(key)
        return is_new

    def _name(self, unnamed: Path, path: Path, name: Callable[[Path, Path], object]) -> None:
        while True:
            try:
                self._make(path.parent)
                name(unnamed, path)
                return
            except FileNotFoundError:  # a folder that has just become empty vanished under it
                if not unnamed.exists():
                    raise StoreTimeout(f"a file vanished while it was written: object={path.name}") from None
                self._synced.difference_update(path.parents)

    def _make(self, folder: Path) -> None:
        """Creates a folder of objects, and those above it, and syncs their names: also of those that exist, since another
        process may have created them a moment ago.
        """
        if folder == self._root or folder in self._synced:
            return
        self._make(folder.parent)
        folder.mkdir(exist_ok=True)
        files.sync(folder.parent)
        if len(self._synced) >= _REMEMBERED:
            self._synced.clear()
        self._synced.add(folder)


@contextmanager
def _translated(key: str, full: type[StoreThrottled | StoreTimeout] = StoreTimeout) -> Iterator[None]:
    """Converts errors of the disk to those of the port. `full` is that of a full disk."""
    try:
        yield
    except FileNotFoundError:
        raise ObjectMissing(key) from None
    except OSError as exc:
        kind = full if exc.errno in (errno.ENOSPC, errno.EDQUOT) else StoreTimeout
        raise kind(f"the disk fails: object={key} reason={exc}") from exc
