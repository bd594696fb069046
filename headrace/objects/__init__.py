"""The object store: whole objects under keys.

Guarantees every adapter keeps:
 1. `create` succeeds for exactly one caller per key, and tells the others apart from a failure.
 2. An object is visible whole or not at all.
 3. After `StoreTimeout` from `put` or `create` the object may exist, whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol


class ObjectMissing(Exception):
    """No object under this key."""


class Range(NamedTuple):
    """Bytes of an object: `length` of them (at least one) from `start` on."""

    key: str
    start: int
    length: int


class Objects(Protocol):
    """A bucket. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def get(self, key: str) -> bytes:
        """Returns the whole object. Raises `ObjectMissing`."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes from `start` (shorter at the end of the object). Raises `ObjectMissing`."""

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Returns the bytes of each range, in their order, fetched at once: as `get_range` of each. Raises
        `ObjectMissing`.
        """

    def put(self, key: str, data: bytes) -> None:
        """Writes the object. Keys of plain puts carry a nonce, so nothing is ever overwritten by meaning."""

    def create(self, key: str, data: bytes) -> bool:
        """Writes the object if the key is free: True. False if it was taken; then nothing changed."""

    def list(self, prefix: str) -> Iterator[str]:
        """Keys that begin with `prefix`, in byte order."""

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects; missing ones are no error."""
