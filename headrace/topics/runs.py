"""Sets of offsets as runs: which records of a log were removed, and which jobs of a queue are done.

A set has as many runs as a client's deletes left holes, which can be hundreds of thousands; so every operation takes
time by the runs that it touches, and copies the others as arrays.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, pairwise

import msgspec

from headrace.errors import Damaged
from headrace.objects import packed


class RunsObject(msgspec.Struct, frozen=True):
    """A set of offsets as an object, a page of `headrace.topics.removed`. `steps` has two numbers for each run, ascending:
    the distance from the end of the run before it (from 0 for the first one), and its length.
    """

    steps: list[int]
    version: int = packed.VERSION


class Runs:
    """An immutable sorted set of offsets. Its runs `[first, end)` neither overlap nor touch, so equal sets are equal."""

    __slots__ = ("__dict__", "_ends", "_starts")

    def __init__(self, starts: array[int], ends: array[int]) -> None:
        """Creates a set from its runs, which ascend and don't touch; see `of` for any others."""
        self._starts = starts
        self._ends = ends

    @staticmethod
    def of(pairs: Iterable[tuple[int, int]]) -> Runs:
        """Returns the set of all offsets in these runs `[first, end)`, in any order; empty ones are ignored."""
        starts, ends = array("q"), array("q")
        for first, end in sorted(pairs):
            _push(starts, ends, first, end)
        return Runs(starts, ends)

    @staticmethod
    def of_offsets(offsets: Iterable[int]) -> Runs:
        """Returns the set of these offsets, in any order."""
        found = sorted(set(offsets))
        starts = array("q", (one for before, one in zip([-2, *found], found, strict=False) if one > before + 1))
        ends = array("q", (one + 1 for one, after in zip(found, [*found[1:], -1], strict=False) if after != one + 1))
        return Runs(starts, ends)

    @staticmethod
    def of_flat(flat: Sequence[int]) -> Runs:
        """Returns the set that `flat` encoded."""
        return Runs(array("q", flat[::2]), array("q", flat[1::2]))

    @staticmethod
    def joined(parts: Iterable[Runs]) -> Runs:
        """Returns the offsets of sets that ascend: none begins before the end of the one before it."""
        starts, ends = array("q"), array("q")
        for part in parts:
            touches = 1 if part and ends and part._starts[0] == ends[-1] else 0
            if touches:
                ends[-1] = part._ends[0]
            starts += part._starts[touches:]
            ends += part._ends[touches:]
        return Runs(starts, ends)

    @staticmethod
    def decode(data: bytes, source: str) -> Runs:
        """Decodes a set from the bytes of an object.

        Args:
            data: the bytes that `encode` returned.
            source: the object's key, for the error.

        Raises:
            NewerFormat: a newer release wrote the object.
            Damaged: the object is truncated or altered, or its runs don't ascend.
        """
        steps = packed.decode_msgpack(data, RunsObject, source).steps
        if len(steps) % 2 or min(steps, default=1) < 0 or 0 in steps[1:]:
            raise Damaged(f"runs do not ascend: object={source}")
        try:
            return Runs.of_flat(array("q", accumulate(steps)))
        except OverflowError as exc:
            raise Damaged(f"runs end beyond every offset: object={source}") from exc

    def encode(self) -> bytes:
        """Encodes the set as the bytes of an object; equal sets give equal bytes."""
        flat = array("q", chain.from_iterable(self))
        return packed.encode_msgpack(
            RunsObject([one - before for before, one in zip([0, *flat], flat, strict=False)])
        )

    def flat(self) -> tuple[int, ...]:
        """Encodes the set as the numbers `first, end, first, end, …`."""
        return tuple(chain.from_iterable(self))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yields the runs `[first, end)`, ascending."""
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        """Returns the number of runs, not of offsets."""
        return len(self._starts)

    def __eq__(self, other: object) -> bool:
        """Returns whether both sets have the same offsets."""
        return isinstance(other, Runs) and (self._starts, self._ends) == (other._starts, other._ends)

    def __hash__(self) -> int:
        """Returns a hash of the offsets."""
        return hash((self._starts.tobytes(), self._ends.tobytes()))

    def __repr__(self) -> str:
        """Returns the runs, the first ones if there are many."""
        more = ", …" if len(self) > 8 else ""
        return f"Runs({list(zip(self._starts[:8], self._ends[:8], strict=True))}{more})"

    def __contains__(self, offset: int) -> bool:
        """Returns whether the offset is in the set."""
        at = bisect_right(self._ends, offset)
        return at < len(self) and self._starts[at] <= offset

    @property
    def first(self) -> int:
        """The first offset; 0 if the set is empty."""
        return self._starts[0] if self else 0

    @property
    def end(self) -> int:
        """The offset after the last one; 0 if the set is empty."""
        return self._ends[-1] if self else 0

    @property
    def weight(self) -> int:
        """About how many bytes it takes in memory."""
        return 200 + 16 * len(self)

    @property
    def count_all(self) -> int:
        """The number of offsets in the set."""
        return sum(self._ends) - sum(self._starts)

    @cached_property
    def _below(self) -> list[int]:
        """The number of offsets before each run, and at last of all."""
        return list(accumulate(map(int.__sub__, self._ends, self._starts), initial=0))

    def count_below(self, offset: int) -> int:
        """Returns the number of offsets below this one. The first call adds up all runs, later ones none."""
        at = bisect_right(self._ends, offset)
        inside = max(0, offset - self._starts[at]) if at < len(self) else 0
        return self._below[at] + inside

    def count(self, first: int, end: int) -> int:
        """Returns the number of offsets in `[first, end)`."""
        return self.within(first, end).count_all

    def live_at(self, first: int, n: int = 0) -> int:
        """Returns the offset, from `first` on, that is not in the set, after `n` others that are not. Beyond the last run
        every offset is live: it is for the caller to know where its log ends.
        """
        for at in range(bisect_right(self._ends, first), len(self)):
            live = self._starts[at] - first
            if n < live:
                break
            n -= max(live, 0)
            first = self._ends[at]
        return first + n

    def live_end(self, end: int) -> int:
        """Returns the offset after the last one below `end` that is not in the set; 0 if there is none."""
        at = bisect_left(self._ends, end)
        return self._starts[at] if at < len(self) and self._starts[at] < end else end

    def next(self, first: int) -> int | None:
        """Returns the first offset of the set from `first` on; None if there is none."""
        at = bisect_right(self._ends, first)
        return max(first, self._starts[at]) if at < len(self) else None

    def live_runs(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yields the runs of offsets in `[first, end)` that are not in the set, ascending."""
        for removed, after in self.within(first, end):
            if first < removed:
                yield first, removed
            first = after
        if first < end:
            yield first, end

    def within(self, first: int, end: int) -> Runs:
        """Returns the offsets of the set in `[first, end)`."""
        low, high = bisect_right(self._ends, first), bisect_left(self._starts, end)
        if low >= high or first >= end:
            return NONE
        starts, ends = self._starts[low:high], self._ends[low:high]
        starts[0], ends[-1] = max(starts[0], first), min(ends[-1], end)
        return Runs(starts, ends)

    def near(self, others: Runs) -> Runs:  # noqa: ARG002 - all of it is in memory
        """Returns the set: a part of it with all offsets that are in `others`, too."""
        return self

    def parts(self, most: int) -> Iterator[Runs]:
        """Yields the set in parts of about as many runs each, and of at most so many."""
        count = -(-len(self) // most)
        for low, high in pairwise(len(self) * at // count for at in range(count + 1)) if count else ():
            yield Runs(self._starts[low:high], self._ends[low:high])

    def common(self, other: Runs) -> Runs:
        """Returns the offsets that both sets have. It takes time by the runs of the one that has fewer."""
        if len(self) > len(other):
            return other.common(self)
        starts, ends = array("q"), array("q")
        for first, end in self:
            part = other.within(first, end)
            starts += part._starts
            ends += part._ends
        return Runs(starts, ends)

    def above(self, floor: int) -> Runs:
        """Returns the offsets of the set from `floor` on."""
        return self if not self or floor <= self._starts[0] else self.within(floor, self.end)

    def add(self, first: int, end: int) -> Runs:
        """Returns the set with the offsets `[first, end)`, too."""
        return self.union(Runs.of([(first, end)]))

    def union(self, other: Runs) -> Runs:
        """Returns the offsets of both sets. It takes time by the runs of the one that has fewer."""
        if len(self) < len(other):
            return other.union(self)
        if not other:
            return self
        starts, ends = array("q"), array("q")
        copied = 0
        for first, end in other:
            low, high = bisect_left(self._ends, first), bisect_right(self._starts, end)
            if low > copied:
                starts += self._starts[copied:low]
                ends += self._ends[copied:low]
            if low < high:
                first, end = min(first, self._starts[low]), max(end, self._ends[high - 1])
            _push(starts, ends, first, end)
            copied = max(copied, high)
        return Runs(starts + self._starts[copied:], ends + self._ends[copied:])

    def minus(self, other: Runs) -> Runs:
        """Returns the offsets of this set that are not in the other."""
        if not self or not other:
            return self
        starts, ends = array("q"), array("q")
        for first, end in self:
            for live, after in other.live_runs(first, end):
                starts.append(live)
                ends.append(after)
        return Runs(starts, ends)


def _push(starts: array[int], ends: array[int], first: int, end: int) -> None:
    """Adds a run after others, none of which begins behind it; joins it with the last one if they touch."""
    if first >= end:
        return
    if ends and first <= ends[-1]:
        ends[-1] = max(ends[-1], end)
    else:
        starts.append(first)
        ends.append(end)


NONE = Runs(array("q"), array("q"))
