"""The removed records of a topic: a root object, pages of runs, and the newest runs, which are in the state.

However many runs there are, a question reads the root and the one or two pages that it is about, and a delete writes the
root and the pages that it touches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

import msgspec

from headrace.errors import Damaged
from headrace.objects import packed
from headrace.topics.runs import NONE, Runs

PAGE_RUNS = 4096  # at most, of a page that is written


class Offsets(Protocol):
    """A set of offsets that need not be in memory: what `Runs` and `Removed` have in common."""

    def count(self, first: int, end: int) -> int:
        """Returns the number of offsets in `[first, end)`."""

    def live_at(self, first: int, n: int = 0) -> int:
        """Returns the offset, from `first` on, that is not in the set, after `n` others that are not."""

    def live_end(self, end: int) -> int:
        """Returns the offset after the last one below `end` that is not in the set; 0 if there is none."""

    def within(self, first: int, end: int) -> Runs:
        """Returns the offsets of the set in `[first, end)`."""

    def near(self, others: Runs) -> Runs:
        """Returns a part of the set with all offsets that are in `others`, too."""

    def union(self, other: Runs) -> Offsets:
        """Returns the offsets of both sets."""


class Page(msgspec.Struct, frozen=True, array_like=True):
    """A page: the number and nonce of its object; its first offset, and the one after its last; how many offsets and runs
    it has.
    """

    number: int
    nonce: str
    first: int
    end: int
    records: int
    runs: int


class Root(msgspec.Struct, frozen=True, dict=True):
    """The pages, ascending. The last run of one and the first of the next may touch."""

    pages: list[Page]
    version: int = packed.VERSION

    @staticmethod
    def decode(data: bytes, source: str) -> Root:
        """Decodes a root from the bytes of an object whose key is `source`.

        Raises:
            NewerFormat: a newer release wrote the object.
            Damaged: the object is truncated or altered, or its pages don't ascend.
        """
        root = packed.decode_msgpack(data, Root, source)
        bounds = [0, *(bound for page in root.pages for bound in (page.first, page.end))]
        if any(one > other for one, other in pairwise(bounds)):
            raise Damaged(f"pages of removed records do not ascend: object={source}")
        return root

    def encode(self) -> bytes:
        """Encodes the root as the bytes of an object."""
        return packed.encode_msgpack(self)

    @cached_property
    def firsts(self) -> list[int]:
        """The first offset of each page."""
        return [page.first for page in self.pages]

    @cached_property
    def ends(self) -> list[int]:
        """The offset after the last one of each page."""
        return [page.end for page in self.pages]

    @cached_property
    def below(self) -> list[int]:
        """The number of offsets in the pages before each page, and at last in all."""
        return list(accumulate((page.records for page in self.pages), initial=0))

    @property
    def weight(self) -> int:
        """About how many bytes it takes in memory."""
        return 500 * len(self.pages)


EMPTY = Root([])


class Packed(NamedTuple):
    """Removed records without runs in the state: the root, and those of its pages that are new, with their content."""

    root: Root
    pages: list[tuple[Page, bytes]]


class Removed:
    """An immutable set of offsets, of which pages are loaded when they are asked for."""

    __slots__ = ("_load", "_newer", "_root")

    def __init__(self, root: Root, load: Callable[[Page], Runs], newer: Runs = NONE) -> None:
        """Creates a set of the offsets in pages, which `load` reads, and newer ones, which are in no page."""
        self._root = root
        self._load = load
        self._newer = newer

    def count(self, first: int, end: int) -> int:
        """Returns the number of offsets in `[first, end)`."""
        return self._below(end) - self._below(first) if first < end else 0

    def live_at(self, first: int, n: int = 0) -> int:
        """Returns the offset, from `first` on, that is not in the set, after `n` others that are not. Beyond the last run
        every offset is live.
        """
        root = self._root
        n += first - self._below(first)  # now it counts from offset 0 on
        at = bisect_right(root.pages, n, key=lambda page: page.end - self._before(page.end))
        start = max(first, root.ends[at - 1] if at else 0)
        n -= start - self._below(start)
        newer = self._newer.live_at(start, n)
        if at == len(root.pages) or newer < root.firsts[at]:
            return newer
        page = root.pages[at]
        return self.within(start, page.end).live_at(start, n)

    def live_end(self, end: int) -> int:
        """Returns the offset after the last one below `end` that is not in the set; 0 if there is none."""
        live = end - self._below(end)
        return self.live_at(0, live - 1) + 1 if live > 0 else 0

    def within(self, first: int, end: int) -> Runs:
        """Returns the offsets of the set in `[first, end)`. Loads the pages that have some."""
        if first >= end:
            return NONE
        low, high = bisect_right(self._root.ends, first), bisect_right(self._root.firsts, end - 1)
        pages = Runs.joined(map(self._load, self._root.pages[low:high]))
        return pages.within(first, end).union(self._newer.within(first, end))

    def near(self, others: Runs) -> Runs:
        """Returns a part of the set with all offsets that are in `others`, too. Loads the pages that reach some."""
        return Runs.joined(map(self._load, self._reached(others))).union(self._newer)

    def union(self, other: Runs) -> Removed:
        """Returns the offsets of both sets. Loads the pages that the other one reaches."""
        if not other:
            return self
        newer = other.minus(self.near(other)).union(self._newer) if self._root.pages else other.union(self._newer)
        return Removed(self._root, self._load, newer)

    def pack(self, floor: int, number: int, nonce: Callable[[bytes], str]) -> Packed:
        """Returns the offsets from `floor` on, and perhaps some below, as pages.

        Args:
            number: the number of new pages.
            nonce: returns the nonce of a new page.
        """
        kept = [page for page in self._root.pages if page.end > floor]
        # The newer runs up to the end of a page, and behind the page before, go into it.
        bounds = [0, *(page.end for page in kept[:-1]), max(self._newer.end, kept[-1].end if kept else 0)]
        changed = {at for at, (low, high) in enumerate(pairwise(bounds)) if self._newer.within(low, high)}
        small = [at for at, (one, other) in enumerate(pairwise(kept)) if one.runs + other.runs <= PAGE_RUNS // 2]
        changed |= {one for at in small if not changed.isdisjoint((at, at + 1)) for one in (at, at + 1)}
        pages: list[Page] = []
        new: list[tuple[Page, bytes]] = []
        pending: list[Runs] = []

        def write() -> None:
            for part in Runs.joined(pending).above(floor).parts(PAGE_RUNS):
                data = part.encode()
                page = Page(number, nonce(data), part.first, part.end, part.count_all, len(part))
                pages.append(page)
                new.append((page, data))
            pending.clear()

        for at, (low, high) in enumerate(pairwise(bounds)):
            if at in changed:
                old = self._load(kept[at]) if kept else NONE
                pending.append(old.union(self._newer.within(low, high)))
            else:
                write()
                pages += kept[at : at + 1]
        write()
        return Packed(Root(pages), new)

    def _before(self, bound: int) -> int:
        """Returns the number of offsets below the first or last offset of a page. Loads nothing."""
        at = bisect_right(self._root.ends, bound)
        return self._root.below[at] + self._newer.count_below(bound)

    def _below(self, offset: int) -> int:
        """Returns the number of offsets below this one."""
        at = bisect_right(self._root.ends, offset)
        inside = at < len(self._root.pages) and self._root.firsts[at] < offset
        return self._before(offset) + (self._load(self._root.pages[at]).count(0, offset) if inside else 0)

    def _reached(self, others: Runs) -> Iterator[Page]:
        """Yields the pages between whose bounds there are others, in time of whichever are fewer."""
        position = 0
        while True:
            at = bisect_right(self._root.ends, position)
            if at == len(self._root.pages):
                return
            page = self._root.pages[at]
            first = others.next(max(position, page.first))
            if first is None:
                return
            if first < page.end:
                yield page
            position = max(page.end, first)
