"""Files of a single machine: their contents and their names are on the disk when a call returns."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

_UNNAMED = "unnamed"


def sync(folder: Path) -> None:
    """Syncs the names in a folder."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Creates a folder if there is none, and those above it, and syncs their names."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode, exist_ok=True)
    sync(folder.parent)


@contextmanager
def unnamed(data_folder: Path, content: bytes, mode: int = 0o666) -> Iterator[Path]:
    """Yields the path of a new file whose content is on the disk, for the block to link or to move to its name. Removes
    this path at the end; if the process is killed, `forget_unnamed` does.
    """
    path = data_folder / _UNNAMED / uuid4().hex
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # until it has its name
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            yield path
    finally:
        path.unlink(missing_ok=True)


def make_unnamed(data_folder: Path) -> None:
    """Creates the folder in which `unnamed` writes."""
    make_folder(data_folder / _UNNAMED, 0o700)


def forget_unnamed(data_folder: Path) -> None:
    """Removes what processes left that were killed while they wrote; keeps what others are writing."""
    paths = list((data_folder / _UNNAMED).iterdir())
    if paths:
        os.sync()  # also the names that they had given already: see `FileObjects`
    for path in paths:
        # Its writer may give it its name meanwhile, or be writing.
        with suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
