"""The object store: a port for whole objects under keys.

Guarantees that every adapter keeps:
 1. `create` succeeds for exactly one caller per key; for the others it reports that the key is taken, which is no
    failure.
 2. An object is visible whole or not at all.
 3. After `StoreTimeout` from `put` or `create` the object may exist, whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol


class ObjectMissing(Exception):
    """There is no object under this key."""


class Range(NamedTuple):
    """A range of bytes of an object: `length` bytes (at least one) from `start` on."""

    key: str
    start: int
    length: int


class Objects(Protocol):
    """The port of a bucket. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def get(self, key: str) -> bytes:
        """Returns the whole object. Raises ObjectMissing if there is none under this key."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Returns `length` bytes from `start` on; fewer, or none, at the end of the object. Raises ObjectMissing if it does
        not exist.
        """

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Returns the bytes of each range, in the given order; all ranges are fetched at the same time. Raises
        ObjectMissing if one of the objects does not exist.
        """

    def put(self, key: str, data: bytes) -> None:
        """Writes the object. Keys of plain puts contain a nonce, so that no object is overwritten on purpose."""

    def create(self, key: str, data: bytes) -> bool:
        """Writes the object if the key is free. Returns False, and changes nothing, if it is taken."""

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yields the keys that begin with `prefix` and come after `after`, in byte order; a thousand at a time, as far as
        the caller reads on.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects; missing ones are not an error."""
