"""Ranged reads as generators: a routine says which ranges it needs next, and is sent their bytes.

Whoever drives routines decides how they are fetched: `gather` lets many of them share each round, so that what they ask
for at the same time is one round of parallel GETs, whatever runs, parts and families it comes from.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol, TypeVar

from headrace.errors import Damaged
from headrace.objects import ObjectMissing, Range

T = TypeVar("T")

Routine = Generator[list[Range], list[bytes], T]


class Ranges(Protocol):
    """Where ranges come from."""

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """The bytes of each range, in their order; fewer than asked for at the end of an object.

        Raises:
            ObjectMissing: one of the objects does not exist.
        """


def run(routine: Routine[T], source: Ranges) -> T:
    """Drives a routine to its end.

    Raises:
        Damaged: an object is missing: whoever names one means that it is there.
    """
    try:
        wanted = next(routine)
        while True:
            wanted = routine.send(source.get_ranges(wanted) if wanted else [])
    except ObjectMissing as exc:
        raise Damaged(f"index object is missing: object={exc}") from exc
    except StopIteration as end:
        found: T = end.value
        return found
    finally:
        routine.close()


def gather(routines: Sequence[Routine[T]]) -> Routine[list[T]]:
    """Drives several routines in step: each round asks for the ranges of all that are not at their end.

    Ends with their results, in their order. A routine that raises ends all of them.
    """
    results: dict[int, T] = {}
    waiting: dict[int, list[Range]] = {}

    def step(number: int, found: list[bytes] | None) -> None:
        try:
            routine = routines[number]
            waiting[number] = next(routine) if found is None else routine.send(found)
        except StopIteration as end:
            results[number] = end.value

    try:
        for number in range(len(routines)):
            step(number, None)
        while waiting:
            asked, waiting = waiting, {}
            found = yield [one for wanted in asked.values() for one in wanted]
            at = 0
            for number, wanted in asked.items():
                step(number, found[at : at + len(wanted)])
                at += len(wanted)
    finally:
        for routine in routines:
            routine.close()
    return [results[number] for number in range(len(routines))]
