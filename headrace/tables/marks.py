"""The mark of a lane: how far its events are in the rows of feature tables, and in which generations. Pure values."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace


class Stop(msgspec.Struct, frozen=True, array_like=True):
    """A generation whose rows are folded no further, because of the event at an offset."""

    generation: str
    offset: int
    reason: str


class Dropped(msgspec.Struct, frozen=True, array_like=True):
    """A generation that no pipeline names any longer: its rows are removed twice, the second time a day later, since
    readers and folders with an old picture may still use it. `turn` counts the times.
    """

    generation: str
    next_ms: int
    turn: int = 0


class Build(msgspec.Struct, frozen=True, array_like=True):
    """A generation that a back-fill computes: the rows of its job are written first, then the events since then are folded,
    until it has all that the others have.

    Attributes:
        installed: how many parts of the job's result are written.
        folded: its rows have the events below this offset; -1 while parts are left to write.
    """

    generation: str
    installed: int = 0
    folded: int = -1


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a lane is folded.

    Attributes:
        incarnation: that of the lane.
        folded: the rows of every living generation that has not stopped have the events below this offset.
        total_bytes: bytes of the lane's records up to there.
        retained_ms: when it was last looked whether events are too old to be kept.
        generations: those that are folded.
        dropped: those to be removed.
        builds: those that are back-filled, and have not all of these events yet.
        stopped: those that have stopped.
        trying: a generation that is being folded alone, because folders died here: a folder that finds it stops it.
        version: number of times the mark was written. A write decides it, not its caller.
    """

    log_id: str
    incarnation: int
    folded: int = 0
    total_bytes: int = 0
    retained_ms: int = 0
    generations: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    builds: tuple[Build, ...] = ()
    stopped: tuple[Stop, ...] = ()
    trying: str = ""
    version: int = 0


def begin(mark: Mark | None, log_id: str, incarnation: int, floor: int, later_ms: int) -> Mark:
    """Returns the mark of a lane in its present incarnation: the one that there is, or one of a lane that was never folded.

    Args:
        floor: the offset of the first event that is kept.
        later_ms: when rows of an earlier incarnation may go.
    """
    if mark is not None and mark.incarnation == incarnation:
        return mark
    fresh = Mark(log_id, incarnation, folded=floor)
    if mark is None:
        return fresh
    gone = tuple(Dropped(one, later_ms) for one in _folded(mark))
    return replace(fresh, dropped=(*mark.dropped, *gone), version=mark.version)


def note(mark: Mark, read: tuple[str, ...], built: tuple[str, ...], later_ms: int) -> Mark:
    """Returns a mark that says which generations are folded from now on, and which go.

    Args:
        read: those that are read.
        built: those that are back-filled; they are folded with the others once they have all of these events.
        later_ms: when rows that nothing names may go.
    """
    living = (*read, *(one for one in built if one in mark.generations))
    builds = {one: Build(one) for one in built if one not in living}
    builds |= {one.generation: one for one in mark.builds if one.generation in builds}
    if set(living) == set(mark.generations) and set(mark.builds) == set(builds.values()):
        return mark
    named = {*living, *builds}
    gone = tuple(Dropped(one, later_ms) for one in _folded(mark) if one not in named)
    return replace(
        mark,
        generations=living,
        builds=tuple(builds.values()),
        dropped=(*(one for one in mark.dropped if one.generation not in named), *gone),
        stopped=tuple(stop for stop in mark.stopped if stop.generation in named),
    )


def note_build(mark: Mark, build: Build) -> Mark:
    """Returns a mark with the progress of a back-fill."""
    return replace(mark, builds=(*(one for one in mark.builds if one.generation != build.generation), build))


def end_build(mark: Mark, build: Build) -> Mark:
    """Returns a mark by which a generation that was back-filled is folded with the others."""
    builds = tuple(one for one in mark.builds if one.generation != build.generation)
    return replace(mark, builds=builds, generations=(*mark.generations, build.generation))


def stop(mark: Mark, *stops: Stop) -> Mark:
    """Returns a mark in which generations have stopped."""
    return replace(mark, stopped=(*mark.stopped, *stops))


def is_stopped(mark: Mark, generation: str) -> bool:
    """Returns whether a generation has stopped."""
    return any(one.generation == generation for one in mark.stopped)


def generations_of(mark: Mark) -> list[str]:
    """Returns every generation that may have rows."""
    return [*_folded(mark), *(one.generation for one in mark.dropped)]


def _folded(mark: Mark) -> list[str]:
    return [*mark.generations, *(one.generation for one in mark.builds)]
